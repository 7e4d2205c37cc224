// Timers that one kernel's thread makes, another's sets and a third's hears of: timerfd, interval timers, POSIX timers; threads
// that move while their timers run. Never how long it took.
// cob: link=static,dynamic flags=-pthread compare=host timeout=120
#include "hands.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <sys/timerfd.h>

static int fd, copy, epoll;
static uint64_t ticks;
static struct itimerspec old, never, soon = {{0, 0}, {0, 2000000}}, often = {{0, 1000000}, {0, 1000000}},
                              far = {{7, 0}, {1000, 0}}, past = {{0, 0}, {0, 1}}, past_and_often = {{0, 1000000}, {0, 1}};
static struct pollfd watched;
static struct epoll_event event;

static void show_left(const char *what, const struct itimerspec *left) {
    printf("%s: %s, interval %ld s\n", what,
           left->it_value.tv_sec > 1000    ? "too long"
           : left->it_value.tv_sec > 900   ? "far"
           : left->it_value.tv_sec > 0     ? "near"
           : left->it_value.tv_nsec > 0    ? "soon"
                                           : "not set",
           left->it_interval.tv_sec);
}

static struct itimerspec at_soon(clockid_t clock) {
    struct itimerspec at = {0};
    clock_gettime(clock, &at.it_value);
    at.it_value.tv_nsec += 3000000;
    if (at.it_value.tv_nsec >= 1000000000)
        at.it_value.tv_sec++, at.it_value.tv_nsec -= 1000000000;
    return at;
}

// -- timerfd -------------------------------------------------------------------------------------------------------------

static void read_ticks(void) {
    ticks = 0;
    SHOW(read(fd, &ticks, sizeof ticks));
    printf("  ticks %s\n", ticks == 0 ? "none" : ticks == 1 ? "1" : "many");
}

static void wait_by_poll(void) {
    watched = (struct pollfd){.fd = fd, .events = POLLIN | POLLOUT};
    SHOW(poll(&watched, 1, -1));
    printf("  events %x\n", watched.revents);
}

static void wait_by_epoll(void) {
    SHOW(epoll_wait(epoll, &event, 1, -1));
    printf("  events %x of %d\n", event.events, event.data.u32);
}

static void timerfds(int clock) {
    printf("clock %d\n", clock);
    static int of;
    of = clock;
    ON(0, MUST((fd = timerfd_create(of, TFD_CLOEXEC)) >= 0));
    ON(1, SHOW(timerfd_gettime(fd, &old)));
    show_left("at first", &old);
    BEGIN(1, read_ticks());
    ON(2, MUST(timerfd_settime(fd, 0, &soon, NULL) == 0));
    finish(1);
    BEGIN(2, wait_by_poll());
    ON(1, struct itimerspec at = at_soon(of); MUST(timerfd_settime(fd, TFD_TIMER_ABSTIME, &at, &old) == 0));
    finish(2);
    show_left("before", &old);
    ON(0, read_ticks(); SHOW(timerfd_gettime(fd, &old)));
    show_left("after", &old);
    // Again and again: whoever reads has some.
    ON(0, SHOW(timerfd_settime(fd, 0, &often, NULL)));
    for (int round = 0; round < 4; round++) {
        ON(1, MUST(read(fd, &ticks, 8) == 8 && ticks > 0));
        ON(2, MUST(read(fd, &ticks, 8) == 8 && ticks > 0));
    }
    // What has expired and was not read is forgotten.
    ON(2, wait_by_poll(); SHOW(timerfd_settime(fd, 0, &far, NULL)));
    ON(1, SHOW(timerfd_gettime(fd, &old)));
    show_left("set from elsewhere", &old);
    ON(0, SHOW(fcntl(fd, F_SETFL, O_NONBLOCK)));
    ON(1, read_ticks(); watched.fd = fd; SHOW(poll(&watched, 1, 0)));
    ON(1, SHOW(timerfd_settime(fd, TFD_TIMER_ABSTIME, &past_and_often, &old)));
    show_left("replaced", &old);
    ON(2, SHOW(fcntl(fd, F_SETFL, 0)); read_ticks(); SHOW(timerfd_settime(fd, 0, &never, NULL)));
    ON(1, SHOW(read(fd, &ticks, 7)); SHOW(write(fd, &ticks, 8)); SHOW(timerfd_settime(fd, 4, &soon, NULL)));
    ON(2, SHOW(timerfd_settime(fd, 0, (void *)8, NULL)); SHOW(timerfd_settime(0, 0, &soon, NULL)));
    // The clock is not set: this flag changes nothing.
    ON(1, struct itimerspec at = at_soon(of);
       SHOW(timerfd_settime(fd, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &at, NULL)));
    ON(2, read_ticks());
    ON(1, SHOW(timerfd_settime(fd, TFD_TIMER_CANCEL_ON_SET, &soon, NULL)));
    ON(2, read_ticks());

    ON(1, MUST((epoll = epoll_create1(0)) >= 0); event = (struct epoll_event){EPOLLIN, {.u32 = 5}};
       SHOW(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)));
    BEGIN(2, wait_by_epoll());
    ON(1, MUST(timerfd_settime(fd, TFD_TIMER_ABSTIME, &past, NULL) == 0));
    finish(2);
    ON(0, wait_by_epoll(); read_ticks(); SHOW(epoll_wait(epoll, &event, 1, 0)));
    event = (struct epoll_event){EPOLLIN | EPOLLET, {.u32 = 6}};
    ON(2, SHOW(epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event)));
    ON(0, SHOW(timerfd_settime(fd, 0, &soon, NULL)));
    ON(1, wait_by_epoll(); SHOW(epoll_wait(epoll, &event, 1, 0)));
    ON(2, read_ticks());
    // A child elsewhere has it in common with its parent; it lives as long as a descriptor of it.
    ON(1, MUST((copy = dup(fd)) >= 0 && close(fd) == 0); fd = copy);
    IN_CHILD("child", move_to(cpu_count() - 1); SHOW(timerfd_settime(fd, 0, &soon, NULL)); read_ticks();
             SHOW(timerfd_settime(fd, 0, &far, NULL)));
    ON(2, SHOW(timerfd_gettime(fd, &old)));
    show_left("set by the child", &old);
    ON(0, close(fd), close(epoll); SHOW(timerfd_gettime(fd, &old)));
}

// -- interval timers of the process --------------------------------------------------------------------------------------

static sigset_t set;
static siginfo_t info;
static _Atomic pid_t heard;
static struct itimerval real, slow = {{3, 0}, {1000, 0}}, quick = {{0, 0}, {0, 2000}}, quicker = {{0, 1000}, {0, 1000}}, none;

static void handler(int number) { heard = (pid_t)syscall(SYS_gettid); }

static void hear(void) {
    sigset_t nothing;
    sigemptyset(&nothing);
    heard = 0;
    SHOW(sigsuspend(&nothing));
    printf("heard here %d\n", heard == syscall(SYS_gettid));
}

static void only(int number) {
    sigemptyset(&set);
    sigaddset(&set, number);
}

static void intervals(void) {
    for (int who = 0; who < HANDS; who++) {
        begin(who, hear);
        // Whoever lets it come has it.
        ON((who + 1) % HANDS, MUST(setitimer(ITIMER_REAL, &quick, NULL) == 0));
        finish(who);
    }
    ON(2, SHOW(setitimer(ITIMER_REAL, &slow, NULL)));
    ON(1, SHOW(getitimer(ITIMER_REAL, &real)));
    printf("%d of 1000, interval %ld\n", real.it_value.tv_sec > 900 && real.it_value.tv_sec <= 1000, real.it_interval.tv_sec);
    ON(0, printf("alarm %d\n", alarm(500) > 900));
    ON(2, SHOW(setitimer(ITIMER_REAL, &quicker, &real)));
    printf("%d of 500, interval %ld\n", real.it_value.tv_sec > 400 && real.it_value.tv_sec <= 500, real.it_interval.tv_sec);
    only(SIGALRM);
    for (int round = 0; round < 6; round++)
        ON(round % HANDS, MUST(sigwaitinfo(&set, &info) == SIGALRM && info.si_code == SI_KERNEL));
    ON(1, SHOW(setitimer(ITIMER_REAL, &none, &real)));
    printf("interval %ld\n", (long)real.it_interval.tv_usec);
    struct timespec now = {0};
    while (sigtimedwait(&set, NULL, &now) > 0)
        ;
    // The time that two others burn is the process's.
    static volatile int stop;
    static _Atomic int burning;
    for (int which = ITIMER_VIRTUAL; which <= ITIMER_PROF; which++) {
        stop = burning = 0;
        for (int who = 1; who < HANDS; who++)
            BEGIN(who, for (burning++; !stop;));
        while (burning < 2)
            sched_yield();
        static int kind;
        kind = which;
        only(which == ITIMER_PROF ? SIGPROF : SIGVTALRM);
        ON(0, SHOW(setitimer(kind, &quicker, NULL)); for (int i = 0; i < 3; i++) SHOW(sigwaitinfo(&set, NULL) > 0);
           SHOW(setitimer(kind, &none, NULL)); stop = 1);
        finish(1), finish(2);
        while (sigtimedwait(&set, NULL, &now) > 0)
            ;
    }
}

// -- POSIX timers --------------------------------------------------------------------------------------------------------

static timer_t timer;
static struct sigevent to;
static struct timespec at_once;

static void posix(void) {
    only(SIGRTMIN);
    to = (struct sigevent){.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN, .sigev_value.sival_int = 9};
    ON(1, SHOW(timer_create(CLOCK_MONOTONIC, &to, &timer)); SHOW(timer_settime(timer, 0, &far, NULL)));
    ON(2, SHOW(timer_gettime(timer, &old)));
    show_left("from elsewhere", &old);
    for (int who = 0; who < HANDS; who++) {
        BEGIN(who, SHOW(sigwaitinfo(&set, &info) == SIGRTMIN));
        static int odd;
        odd = who % 2;
        ON((who + 1) % HANDS, MUST(timer_settime(timer, odd ? TIMER_ABSTIME : 0, odd ? &past : &soon, &old) == 0));
        finish(who);
        printf("code %d value %d\n", info.si_code == SI_TIMER, info.si_value.sival_int);
        show_left("before", &old);
    }
    ON(0, SHOW(timer_delete(timer)));
    ON(2, SHOW(timer_delete(timer)); SHOW(timer_settime(timer, 0, &soon, NULL)));

    // To one thread, whoever makes it.
    to.sigev_notify = SIGEV_THREAD_ID;
    for (int who = 0; who < HANDS; who++) {
        to._sigev_un._tid = hands[who].tid;
        ON((who + 1) % HANDS, SHOW(timer_create(CLOCK_REALTIME, &to, &timer)));
        ON((who + 2) % HANDS, struct itimerspec at = at_soon(CLOCK_REALTIME); SHOW(timer_settime(timer, TIMER_ABSTIME, &at, NULL)));
        ON(who, sigset_t waiting; do sigpending(&waiting); while (!sigismember(&waiting, SIGRTMIN)));
        ON((who + 1) % HANDS, SHOW(sigtimedwait(&set, NULL, &at_once)));
        ON(who, SHOW(sigwaitinfo(&set, &info) == SIGRTMIN); SHOW(timer_getoverrun(timer)));
        ON((who + 2) % HANDS, SHOW(timer_delete(timer)));
    }
    to._sigev_un._tid = getppid();
    ON(2, SHOW(timer_create(CLOCK_MONOTONIC, &to, &timer)));
    to.sigev_notify = SIGEV_NONE;
    ON(2, SHOW(timer_create(CLOCK_MONOTONIC, &to, &timer)); SHOW(timer_settime(timer, 0, &soon, NULL)));
    ON(1, do MUST(timer_gettime(timer, &old) == 0); while (old.it_value.tv_nsec));
    ON(0, SHOW(sigtimedwait(&set, NULL, &at_once)); SHOW(timer_delete(timer)));
}

// How many expirations a signal stands for that had to wait is known when it is taken, to whoever asks.
static void overruns(void) {
    static int overrun;
    static struct timespec now, from;
    only(SIGRTMIN);
    to = (struct sigevent){.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN};
    for (int who = 0; who <= HANDS; who++) {
        to.sigev_notify = who < HANDS ? SIGEV_THREAD_ID : SIGEV_SIGNAL;
        to._sigev_un._tid = hands[who % HANDS].tid;
        printf("overruns of %d\n", who);
        ON((who + 1) % HANDS, SHOW(timer_create(CLOCK_MONOTONIC, &to, &timer)); SHOW(timer_settime(timer, 0, &often, NULL)));
        clock_gettime(CLOCK_MONOTONIC, &from);
        do
            clock_gettime(CLOCK_MONOTONIC, &now);
        while ((now.tv_sec - from.tv_sec) * 1000000000 + now.tv_nsec - from.tv_nsec < 20000000);
        // It waits still.
        ON((who + 2) % HANDS, SHOW(timer_getoverrun(timer)));
        static int taker;
        taker = who % HANDS;
        ON(taker, MUST(sigwaitinfo(&set, &info) == SIGRTMIN); overrun = timer_getoverrun(timer));
        printf("some %d, as told %d", overrun > 0, overrun == info.si_overrun);
        ON((taker + 1) % HANDS, overrun = timer_getoverrun(timer));
        printf(" %d\n", overrun == info.si_overrun);
        ON(taker, SHOW(timer_settime(timer, 0, &never, NULL)); SHOW(timer_getoverrun(timer)); SHOW(timer_delete(timer)));
        ON(taker, while (sigtimedwait(&set, NULL, &at_once) > 0));
    }
}

static void *moves(void *unused) {
    to.sigev_notify = SIGEV_THREAD_ID, to._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    timer_t own;
    MUST(timer_create(CLOCK_MONOTONIC, &to, &own) == 0 && timer_settime(own, 0, &often, NULL) == 0);
    for (int round = 0; round < 12; round++) {
        move_to(round % cpu_count());
        MUST(sigwaitinfo(&set, &info) == SIGRTMIN && info.si_code == SI_TIMER);
    }
    SHOW(timer_settime(own, 0, &never, NULL));
    while (sigtimedwait(&set, NULL, &at_once) > 0)
        ;
    // Of the time it uses, here and there.
    SHOW(timer_create(CLOCK_THREAD_CPUTIME_ID, &to, &timer));
    struct itimerspec used = {{0, 0}, {0, 30000000}};
    SHOW(timer_settime(timer, 0, &used, NULL));
    int round = 0;
    while (sigtimedwait(&set, &info, &at_once) == -1)
        move_to(round++ % cpu_count());
    struct timespec spent;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
    printf("moved %d used %d\n", round > 1, spent.tv_sec > 0 || spent.tv_nsec >= 30000000);
    SHOW(timer_delete(timer));
    // One that expires when the thread that it is for has ended.
    SHOW(timer_create(CLOCK_MONOTONIC, &to, &timer));
    return unused;
}

int main(void) {
    signal(SIGALRM, handler);
    sigemptyset(&set);
    sigaddset(&set, SIGALRM), sigaddset(&set, SIGVTALRM), sigaddset(&set, SIGPROF), sigaddset(&set, SIGRTMIN);
    MUST(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    start_hands();
    timerfds(CLOCK_MONOTONIC);
    timerfds(CLOCK_REALTIME);
    timerfds(CLOCK_BOOTTIME);
    intervals();
    posix();
    overruns();
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, moves, NULL) == 0 && pthread_join(thread, NULL) == 0);
    ON(2, SHOW(timer_settime(timer, 0, &soon, NULL)));
    ON(1, do MUST(timer_gettime(timer, &old) == 0); while (old.it_value.tv_nsec));
    ON(0, SHOW(sigtimedwait(&set, NULL, &at_once)); SHOW(timer_delete(timer)));
    return 0;
}
