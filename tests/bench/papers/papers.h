// What the workloads of the multikernel papers share: `cob bench npb`. IS, FT and CG are written from their specification, "The NAS
// Parallel Benchmarks" (NAS-95-020), BFS on the kind of graph that Rodinia's generator makes, LUD after Rodinia's matrix. Each
// checks its result and says so: a wrong answer must not look like a fast one.
#pragma once
#define _GNU_SOURCE
#include <math.h>
#include <omp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

// A workload runs in a process of its own with the number of threads that OpenMP has been told. It gives the seconds of the part that
// its specification times, or says on stdout what is wrong and gives a negative number.
struct workload {
    const char *name;
    double (*run)(char size);
};

double run_is(char size), run_ft(char size), run_cg(char size), run_bfs(char size), run_lud(char size);

static inline double seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

// Memory that nobody has touched: the thread that writes a page first decides where it lies.
static inline void *fresh(size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        printf("WRONG no memory for %zu bytes\n", bytes);
        fflush(stdout);
        _Exit(1);
    }
    return at;
}

// NAS-95-020, 2.3: x' = a x mod 2^46, a number in (0, 1) from it. 5^13 and the seed that all of them take.
#define RANDOM_A 1220703125ull
#define RANDOM_SEED 314159265ull
#define RANDOM_MASK ((1ull << 46) - 1)

static inline double randlc(uint64_t *x) {
    *x = *x * RANDOM_A & RANDOM_MASK;
    return *x * 0x1p-46;
}

// The state after n more steps, so that every thread can begin in the middle of the sequence.
static inline uint64_t random_after(uint64_t x, uint64_t n) {
    for (uint64_t power = RANDOM_A; n; n >>= 1, power = power * power & RANDOM_MASK)
        if (n & 1)
            x = x * power & RANDOM_MASK;
    return x;
}
