// Processes and threads.
#include "micro.h"
#include <spawn.h>

extern char **environ;
static char *const nothing[] = {"/proc/self/exe", "exit", NULL};

static uint64_t fork_exit(long n) {
    uint64_t start = now();
    for (long i = 0; i < n; i++) {
        pid_t child = fork();
        if (!child)
            _exit(0);
        MUST(child > 0 && waitpid(child, NULL, 0) == child);
    }
    return now() - start;
}

static uint64_t fork_exec(long n) {
    uint64_t start = now();
    for (long i = 0; i < n; i++) {
        int status;
        pid_t child = fork();
        if (!child) {
            execv(nothing[0], nothing);
            _exit(1);
        }
        MUST(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    }
    return now() - start;
}

static uint64_t spawn(long n) {
    uint64_t start = now();
    for (long i = 0; i < n; i++) {
        int status;
        pid_t child;
        MUST(!posix_spawn(&child, nothing[0], NULL, NULL, nothing, environ));
        MUST(waitpid(child, &status, 0) == child && status == 0);
    }
    return now() - start;
}

static void *nothing_to_do(void *argument) { return argument; }

static uint64_t thread_join(long n) {
    uint64_t start = now();
    for (long i = 0; i < n; i++) {
        pthread_t thread;
        MUST(!pthread_create(&thread, NULL, nothing_to_do, NULL) && !pthread_join(thread, NULL));
    }
    return now() - start;
}

static uint64_t thread_join_anywhere(long n) {
    go_anywhere();
    uint64_t time = thread_join(n);
    stay_on(0);
    return time;
}

// Two threads on one CPU give way to each other.
static void *yielder(void *argument) {
    stay_on(0);
    while (!__atomic_load_n((int *)argument, __ATOMIC_ACQUIRE))
        sched_yield();
    return NULL;
}

static uint64_t yield_between(long n) {
    int end = 0;
    pthread_t thread;
    MUST(!pthread_create(&thread, NULL, yielder, &end));
    sched_yield();
    uint64_t start = now();
    for (long i = 0; i < n; i++)
        sched_yield();
    uint64_t time = now() - start;
    __atomic_store_n(&end, 1, __ATOMIC_RELEASE);
    MUST(!pthread_join(thread, NULL));
    return time;
}

const struct row process_rows[] = {
    {"fork, exit, wait", fork_exit, 1},
    {"fork, exec, exit, wait", fork_exec, 1},
    {"posix_spawn, exit, wait", spawn, 1},
    {"thread create, join, one CPU", thread_join, 1},
    {"thread create, join, anywhere", thread_join_anywhere, 2},
    {"two context switches by sched_yield", yield_between, 1},
    {0},
};
