// What programs of `cob bench` share that start other programs (`streams`, `disk`): counts of messages, time, and processes.
#pragma once
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// What one run of a row took.
struct result {
    double seconds, operations;
    // Messages and doorbells that kernels sent, and moves of threads between kernels; -1 where there are no such kernels.
    double messages, doorbells, moves;
};

struct counts {
    long messages, doorbells, moves;
};

// The counts of all kernels so far; false where there are no such kernels.
bool count(struct counts *counts);
// Counts from here to `count_end`, without what looking costs.
void count_begin(struct result *result);
void count_end(struct result *result);

// Says what went wrong and ends the process. A wrong answer must not look like a fast one.
#define MUST(expression)                                                                                             \
    do {                                                                                                             \
        if (!(expression)) {                                                                                         \
            printf("FAILED %s:%d %s: %s\n", __FILE__, __LINE__, #expression, strerror(errno));                       \
            fflush(stdout);                                                                                          \
            _exit(1);                                                                                                \
        }                                                                                                            \
    } while (0)

static inline double seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

// The first end of a pair goes to the first CPU, the second to the last: where there are two kernels, to one each.
void pin(bool apart, bool second);

// Starts a program whose standard output is `output` if that is not -1, as `user` if that is not 0.
pid_t start(char *const arguments[], bool apart, bool second, int output, uid_t user);
// Waits for the program; it must have ended well.
void finish(pid_t pid);
// The same with the program's standard output, as text.
void run_program(char *const arguments[], bool apart, bool second, uid_t user, char *text, size_t size);

// Ends a program by a signal and waits for it, however it ends.
void stop(pid_t pid, int signal);
// Runs a program, silently, until it ends well: whoever it asks may not listen yet.
void wait_for(char *const arguments[], uid_t user);

// /proc, /dev, /tmp and PATH, where this is init and nobody else has made them.
void mount_all(void);

// The driver of disks, where the kernel has it as modules; then /dev/vda and the other one are there.
void load_disk_modules(const char *other);
// What is clean is out of memory.
void drop_caches(void);
