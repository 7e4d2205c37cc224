// What the tests about /proc share: a process to look at, and its files.
#pragma once
#include "errnos-each.h"
#include <poll.h>
#include <pthread.h>

static pid_t *peer, *thread;

// The compiler is not to know.
static void *volatile good = (void *)GOOD, *volatile low = (void *)8, *volatile null, *volatile read_only = (void *)READ_ONLY,
            *volatile kernel = (void *)0xffff888000000000, *volatile border = (void *)(BORDER + PAGE - 2);
static volatile size_t huge = -1;

static void before_each(void) {}

static void *second(void *unused) {
    *thread = (pid_t)syscall(SYS_gettid);
    for (;;)
        pause();
    return unused;
}

static pid_t begin_peer(void) {
    fflush(stdout);
    *thread = 0;
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        pthread_t id;
        move_to(cpu_count() - 1);
        MUST(pthread_create(&id, NULL, second, NULL) == 0);
        for (;;)
            pause();
    }
    while (*(volatile pid_t *)thread == 0)
        usleep(1000);
    return child;
}

// The path behind a name.
static const char *at(const char *name) {
    static char path[300];
    if (strncmp(name, "peer", 4) == 0)
        snprintf(path, sizeof path, "/proc/%d%s", *peer, name + 4);
    else if (strncmp(name, "thread", 6) == 0 && name[6] != '-')
        snprintf(path, sizeof path, "/proc/%d/task/%d%s", *peer, *thread, name + 6);
    else
        snprintf(path, sizeof path, "/proc/%s", name);
    return path;
}

// As open as it can be.
static int opened(const char *path) {
    static const int modes[] = {O_RDWR, O_RDONLY, O_WRONLY};
    int fd = -1;
    for (int i = 0; i < 3 && fd < 0; i++)
        fd = open(path, modes[i] | O_NOFOLLOW);
    errno = 0;
    return fd;
}

static long entries(int fd, void *buffer, unsigned size) { return syscall(SYS_getdents64, fd, buffer, size); }

static long polled(int fd) {
    struct pollfd one = {fd, POLLIN | POLLOUT | POLLPRI, 0};
    return poll(&one, 1, 0) < 0 ? -1 : one.revents;
}

static void prepare_proc(void) {
    prepare_each();
    restore(0);
    peer = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    thread = peer + 1;
}
