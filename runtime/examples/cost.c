// What a task of libgomp costs, beside runtime/examples/cost.rs: empty tasks made by one thread, and a tree of tasks with a taskwait in each.
//
//     gcc -O2 -fopenmp -o /tmp/cost runtime/examples/cost.c && /tmp/cost
#include <stdio.h>
#include <time.h>

enum { TASKS = 100000, DEPTH = 17, ROUNDS = 7 };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static volatile int nothing;

static void spawn(void) {
    for (int i = 0; i < TASKS; i++)
#pragma omp task
        nothing = 1;
#pragma omp taskwait
}

static void spawn_with_a_use(void) {
    static char used[64];
    for (int i = 0; i < TASKS; i++) {
        char *use = &used[i % 64];
#pragma omp task depend(inout : *use)
        nothing = 1;
    }
#pragma omp taskwait
}

static void leaves(int depth) {
    if (depth == 0) {
        nothing = 1;
        return;
    }
#pragma omp task
    leaves(depth - 1);
    leaves(depth - 1);
#pragma omp taskwait
}

static void join(void) {
    leaves(DEPTH);
}

static double fastest(void (*work)(void), double count) {
    double least = 1e18;
    for (int round = 0; round < ROUNDS; round++) {
        double begin = now();
#pragma omp parallel
#pragma omp single
        work();
        double took = now() - begin;
        least = took < least ? took : least;
    }
    return least / count;
}

int main(void) {
    double spawned = fastest(spawn, TASKS), used = fastest(spawn_with_a_use, TASKS), joined = fastest(join, (1 << DEPTH) - 1);
    printf("{\"benchmark\": \"libgomp\", \"spawn_ns\": %.0f, \"spawn_with_a_use_ns\": %.0f, \"join_ns\": %.0f}\n", spawned, used, joined);
}
