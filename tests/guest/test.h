// What every guest test shares. A test prints one line per fact; the same binary prints the same on Linux.
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static inline const char *error_name(int error) {
    const char *name = strerrorname_np(error);
    return name ? name : "?";
}

// Prints an integer result, or -1 and the errno.
#define SHOW(expression)                                                                                             \
    do {                                                                                                             \
        errno = 0;                                                                                                   \
        long result_ = (long)(expression);                                                                           \
        if (result_ == -1)                                                                                           \
            printf("%s = -1 %s\n", #expression, error_name(errno));                                                  \
        else                                                                                                         \
            printf("%s = %ld\n", #expression, result_);                                                              \
    } while (0)

// Prints whether it worked, for results that differ from run to run.
#define TRY(expression)                                                                                              \
    do {                                                                                                             \
        errno = 0;                                                                                                   \
        long result_ = (long)(expression);                                                                           \
        printf("%s: %s\n", #expression, result_ == -1 ? error_name(errno) : "done");                                 \
    } while (0)

// Ends the test if a precondition fails: nothing after it would mean anything.
#define MUST(condition)                                                                                              \
    do {                                                                                                             \
        if (!(condition)) {                                                                                          \
            printf("%s:%d: %s failed (%s)\n", __FILE_NAME__, __LINE__, #condition, error_name(errno));               \
            fflush(stdout);                                                                                          \
            _exit(99);                                                                                               \
        }                                                                                                            \
    } while (0)

#ifndef __FILE_NAME__
#define __FILE_NAME__ __FILE__
#endif

#define PAGE 4096L

static inline void show_status(const char *what, int status) {
    if (WIFEXITED(status))
        printf("%s: exited %d\n", what, WEXITSTATUS(status));
    else if (WIFSIGNALED(status))
        printf("%s: killed by %s\n", what, sigabbrev_np(WTERMSIG(status)));
    else if (WIFSTOPPED(status))
        printf("%s: stopped by %s\n", what, sigabbrev_np(WSTOPSIG(status)));
    else if (WIFCONTINUED(status))
        printf("%s: continued\n", what);
    fflush(stdout);
}

// Runs `body` in a child and shows how it ended.
#define IN_CHILD(what, ...)                                                                                          \
    do {                                                                                                             \
        fflush(stdout);                                                                                              \
        pid_t child_ = fork();                                                                                       \
        MUST(child_ >= 0);                                                                                           \
        if (child_ == 0) {                                                                                           \
            __VA_ARGS__;                                                                                             \
            fflush(stdout);                                                                                          \
            _exit(0);                                                                                                \
        }                                                                                                            \
        int status_;                                                                                                 \
        MUST(waitpid(child_, &status_, 0) == child_);                                                                \
        show_status(what, status_);                                                                                  \
    } while (0)

// The number that /proc/self/status has after `name`, as "VmRSS:": KiB, if it is a size.
static inline long status_field(const char *name) {
    static char text[8192];
    int fd = open("/proc/self/status", O_RDONLY);
    MUST(fd >= 0);
    ssize_t got = read(fd, text, sizeof text - 1);
    MUST(got > 0);
    close(fd);
    text[got] = 0;
    char *at = strstr(text, name);
    MUST(at);
    return atol(at + strlen(name));
}

// The state letter in /proc/PID/stat, or that of a thread of it; 0 if there is none.
static inline char state_letter(pid_t pid, pid_t thread) {
    char path[64], text[512];
    if (thread)
        snprintf(path, sizeof path, "/proc/%d/task/%d/stat", pid, thread);
    else
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        return 0;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    if (got <= 0)
        return 0;
    text[got] = 0;
    return strrchr(text, ')')[2];
}

static inline int cpu_count(void) { return (int)sysconf(_SC_NPROCESSORS_ONLN); }

// Moves the calling thread to one CPU and waits until it is there.
static inline void move_to(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    MUST(sched_setaffinity(0, sizeof set, &set) == 0);
    MUST(sched_getcpu() == cpu);
}

// A child that does nothing and dies with its parent, also if that was gone before it could say so.
static inline void idle_child(void) {
    pid_t parent = getpid();
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(0);
        for (;;)
            pause();
    }
}
