// Timers with the shortest and the longest intervals: a kernel goes on, and no expiration is lost or invented. What is counted is compared
// with clocks read before and after, never with how long it should have taken.
// cob: link=static flags=-pthread compare=host kernels=1,4
#include "test.h"
#include <limits.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <sys/timerfd.h>

static int64_t now(void) {
    struct timespec at;
    MUST(clock_gettime(CLOCK_MONOTONIC, &at) == 0);
    return at.tv_sec * 1000000000L + at.tv_nsec;
}

static struct timespec spec(int64_t ns) { return (struct timespec){ns / 1000000000, ns % 1000000000}; }

static void pause_for(int64_t ns) {
    struct timespec length = spec(ns);
    nanosleep(&length, NULL);
}

// Reads in a row, blocking: all expirations since the timer was set come, each once.
static void count(int64_t interval, int reads) {
    int fd = timerfd_create(CLOCK_MONOTONIC, 0);
    int64_t start = now();
    struct itimerspec setting = {spec(interval), spec(start + interval)};
    MUST(timerfd_settime(fd, TFD_TIMER_ABSTIME, &setting, NULL) == 0);
    pause_for(20000000);
    uint64_t sum = 0, times;
    int64_t before = 0, after = 0;
    for (int turn = 0; turn < reads; turn++) {
        before = now();
        MUST(read(fd, &times, 8) == 8);
        after = now();
        MUST(times > 0);
        sum += times;
        MUST(sum >= (uint64_t)((before - start) / interval) && sum <= (uint64_t)((after - start) / interval));
    }
    printf("%ld ns: all there\n", (long)interval);
    close(fd);
}

static void edges(const char *when, int epoll) {
    struct epoll_event event;
    int seen = 0;
    for (int turn = 0; turn < 3; turn++)
        seen += epoll_wait(epoll, &event, 1, turn == 0 ? -1 : 20);
    printf("%s: %d\n", when, seen);
}

static void watched(void) {
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
    struct itimerspec setting = {{0, 1000}, {0, 1000}}, left;
    MUST(timerfd_settime(fd, 0, &setting, NULL) == 0);
    edges("set", epoll);
    MUST(timerfd_gettime(fd, &left) == 0);
    edges("asked for", epoll);
    uint64_t times;
    MUST(read(fd, &times, 8) == 8);
    edges("read", epoll);
    MUST(timerfd_settime(fd, 0, &setting, NULL) == 0);
    edges("set again", epoll);
    close(fd), close(epoll);
}

static void show_left(const char *what, struct itimerspec left) {
    printf("%s: far %d interval %ld.%09ld\n", what, left.it_value.tv_sec > 9000000000, (long)left.it_interval.tv_sec,
           left.it_interval.tv_nsec);
}

static void longest(void) {
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct timespec most = {LONG_MAX, 999999999};
    struct itimerspec once_each_age = {most, {0, 1}}, in_an_age = {{0, 0}, most}, left;
    uint64_t times = 0;
    SHOW(timerfd_settime(fd, 0, &once_each_age, NULL));
    pause_for(1000000);
    SHOW(read(fd, &times, 8));
    printf("%lu\n", (unsigned long)times);
    SHOW(timerfd_gettime(fd, &left));
    show_left("timerfd", left);
    SHOW(read(fd, &times, 8));
    for (int flags = 0; flags <= TFD_TIMER_ABSTIME; flags++) {
        SHOW(timerfd_settime(fd, flags, &in_an_age, &left));
        show_left("before", left);
        SHOW(timerfd_gettime(fd, &left));
        show_left("timerfd", left);
    }
    close(fd);
    timer_t timer;
    struct sigevent none = {.sigev_notify = SIGEV_NONE};
    SHOW(timer_create(CLOCK_MONOTONIC, &none, &timer));
    SHOW(timer_settime(timer, 0, &once_each_age, NULL));
    pause_for(1000000);
    SHOW(timer_gettime(timer, &left));
    show_left("timer", left);
    SHOW(timer_delete(timer));
    struct itimerval real = {{0, 0}, {LONG_MAX, 999999}}, off = {0};
    SHOW(setitimer(ITIMER_REAL, &real, NULL));
    SHOW(setitimer(ITIMER_REAL, &off, &real));
    printf("far %d\n", real.it_value.tv_sec > 9000000000);
}

// Signals of a timer, taken one by one: with their overruns no more than have expired.
static void signals(int64_t interval) {
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGUSR1);
    MUST(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    MUST(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    int64_t start = now();
    struct itimerspec setting = {spec(interval), spec(start + interval)};
    MUST(timer_settime(timer, TIMER_ABSTIME, &setting, NULL) == 0);
    int64_t sum = 0;
    for (int turn = 0; turn < 100; turn++) {
        siginfo_t info;
        MUST(sigwaitinfo(&set, &info) == SIGUSR1);
        sum += 1 + info.si_overrun;
        MUST(sum <= (now() - start) / interval);
    }
    MUST(timer_delete(timer) == 0);
    // One may be left.
    struct timespec at_once = {0};
    sigtimedwait(&set, NULL, &at_once);
    printf("%ld ns: no signal too much\n", (long)interval);
}

int main(void) {
    int64_t intervals[] = {1, 1000, 2000, 3000, 50000, 1000000};
    for (int turn = 0; turn < 6; turn++)
        count(intervals[turn], 50);
    // Many that nobody reads, left to the end of the process.
    for (int turn = 0; turn < 200; turn++) {
        struct itimerspec setting = {{0, 1}, {0, 1}};
        MUST(timerfd_settime(timerfd_create(CLOCK_MONOTONIC, 0), 0, &setting, NULL) == 0);
    }
    watched();
    longest();
    for (int turn = 0; turn < 6; turn++)
        signals(intervals[turn]);
    return 0;
}
