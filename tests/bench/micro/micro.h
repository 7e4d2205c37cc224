// What the rows of `cob bench micro` share. A row is a function that does `n` operations and says how many
// nanoseconds they took; what it prepares is not counted. Each row runs in a process of its own, on CPU 0.
#pragma once
#include "../scale/marks.h"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096L

struct row {
    const char *name;
    uint64_t (*run)(long n);
    // CPUs it needs.
    int cpus;
    // Operations when instructions are counted, if not COUNTED.
    long counted;
};

extern const struct row across_rows[], memory_rows[], call_rows[], process_rows[], umt_rows[];

// Two processes pass a byte to and fro on one CPU.
uint64_t pipe_one(long n);
// Whether the system has user-monitored threads.
int has_umt(void);

static inline uint64_t clock_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

// A row asks for the time in pairs, before and after what is measured. The plugin of QEMU, if there is one, counts between them: on
// this CPU, or on all if the row needs more. So are messages counted, in a run of their own.
extern int counts_all_cpus, counts_messages;

void messages_begin(void);
void messages_end(void);

static inline uint64_t now(void) {
    static __thread int inside;
    inside = !inside;
    if (counts_messages) {
        if (inside)
            messages_begin();
        else
            messages_end();
    }
    if (!inside) {
        if (counts_all_cpus)
            MARK(MARK_STOP_ALL);
        else
            MARK(MARK_STOP);
        return clock_now();
    }
    uint64_t time = clock_now();
    if (counts_all_cpus)
        MARK(MARK_START_ALL);
    else
        MARK(MARK_START);
    return time;
}

// A wrong answer must not look like a fast one.
#define MUST(expression)                                                                                             \
    do {                                                                                                             \
        if (!(expression)) {                                                                                         \
            printf("FAILED %s:%d %s: %s\n", __FILE__, __LINE__, #expression, strerror(errno));                       \
            fflush(stdout);                                                                                          \
            _exit(1);                                                                                                \
        }                                                                                                            \
    } while (0)

// The calling thread to one CPU.
static inline void stay_on(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    MUST(!sched_setaffinity(0, sizeof set, &set));
}

static inline void go_anywhere(void) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        CPU_SET(cpu, &set);
    MUST(!sched_setaffinity(0, sizeof set, &set));
}

static inline char *fresh_pages(long pages) {
    char *at = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(at != MAP_FAILED);
    return at;
}

static inline void write_pages(char *at, long pages) {
    for (long page = 0; page < pages; page++)
        ((volatile char *)at)[page * PAGE] = 1;
}

static inline void read_pages(const char *at, long pages) {
    for (long page = 0; page < pages; page++)
        (void)((const volatile char *)at)[page * PAGE];
}

// A thread on another CPU that does what it is given.
struct helper {
    pthread_t thread;
    int cpu;
    sem_t start, done;
    void (*task)(void *);
    void *argument;
};

void helper_start(struct helper *helper, int cpu);
void helper_do(struct helper *helper, void (*task)(void *), void *argument);
void helper_end(struct helper *helper);
