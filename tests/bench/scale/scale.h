// What the loops of `cob bench scale` share: a loop is a piece of work that every worker does for itself, on a CPU of its own.
#pragma once
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// What a worker has; the lines of one are no other's, but `common` is one word for all.
struct worker {
    int number, ends[2];
    char path[64];
    // In memory of its own.
    unsigned *word, *common;
} __attribute__((aligned(64)));

struct loop {
    const char *name;
    void (*prepare)(struct worker *);
    void (*once)(struct worker *);
    // Operations before those that are measured, and these.
    int warm, count;
};

extern const struct loop loops[];

// A wrong answer must not look like a fast one.
#define MUST(expression)                                                                                             \
    do {                                                                                                             \
        if (!(expression)) {                                                                                         \
            printf("WRONG %s:%d %s: %s\n", __FILE__, __LINE__, #expression, strerror(errno));                        \
            fflush(stdout);                                                                                          \
            _exit(1);                                                                                                \
        }                                                                                                            \
    } while (0)
