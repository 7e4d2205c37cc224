// Epolls that watch epolls: chains that grow at either end, ways up from one file, and EPOLLEXCLUSIVE, over all kernels.
// cob: link=static,dynamic compare=host
#define _GNU_SOURCE
#include "test.h"
#include <sys/epoll.h>
#include <sys/resource.h>

static int add(int epoll, int fd, uint32_t events) {
    struct epoll_event event = {.events = events, .data.fd = fd};
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

// Each new epoll on the next kernel.
static int new_epoll(void) {
    static int made;
    move_to(made++ % cpu_count());
    int epoll = epoll_create1(0);
    MUST(epoll >= 0);
    return epoll;
}

static void chain(const char *what, int up) {
    int last = new_epoll(), added = 0;
    for (;; added++) {
        int next = new_epoll();
        if ((up ? add(next, last, EPOLLIN) : add(last, next, EPOLLIN)) != 0)
            break;
        last = next;
    }
    printf("%s: %d, then %s\n", what, added, error_name(errno));
}

static void fan(int levels) {
    int ends[2], top = new_epoll(), added = 0;
    MUST(pipe(ends) == 0 && add(top, ends[0], EPOLLIN) == 0);
    for (int i = 0; i < levels; i++) {
        int above = new_epoll();
        MUST(add(above, top, EPOLLIN) == 0);
        top = above;
    }
    for (;; added++)
        if (add(new_epoll(), top, EPOLLIN) != 0)
            break;
    printf("%d levels: %d, then %s\n", levels, added, error_name(errno));
    MUST(write(ends[1], "x", 1) == 1);
    struct epoll_event event;
    printf("at the top: %d\n", epoll_wait(top, &event, 1, -1));
    closefrom(5);
}

// Each waits at an epoll of its own until it is woken, or told to end.
static void waiter(int file, int over, int report) {
    int epoll = new_epoll();
    MUST(add(epoll, file, EPOLLIN | EPOLLEXCLUSIVE) == 0 && add(epoll, over, EPOLLIN) == 0);
    MUST(write(report, "r", 1) == 1);
    struct epoll_event event;
    MUST(epoll_wait(epoll, &event, 1, -1) == 1);
    MUST(write(report, event.data.fd == file ? "w" : "o", 1) == 1);
    _exit(0);
}

static char next(int report) {
    char letter;
    MUST(read(report, &letter, 1) == 1);
    return letter;
}

static void exclusive(void) {
    enum { WAITERS = 8 };
    int file[2], over[2], report[2];
    MUST(pipe(file) == 0 && pipe(over) == 0 && pipe(report) == 0);
    fflush(stdout);
    for (int i = 0; i < WAITERS; i++) {
        pid_t child = fork();
        MUST(child >= 0);
        if (child == 0)
            waiter(file[0], over[0], report[1]);
        MUST(next(report[0]) == 'r');
    }
    MUST(write(file[1], "x", 1) == 1);
    MUST(next(report[0]) == 'w');
    MUST(write(over[1], "x", 1) == 1);
    int woken = 1;
    for (int i = 1; i < WAITERS; i++)
        woken += next(report[0]) == 'w';
    // One or more: one of each kernel that waits.
    printf("somebody woke up, and not all of them: %d\n", woken >= 1 && (woken < WAITERS));
    while (wait(NULL) > 0)
        ;
}

int main(void) {
    struct rlimit files = {4096, 4096};
    MUST(setrlimit(RLIMIT_NOFILE, &files) == 0);
    chain("up", 1);
    chain("down", 0);
    closefrom(3);
    fan(0);
    fan(1);
    fan(2);
    exclusive();
    return 0;
}
