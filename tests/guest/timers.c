// POSIX timers, interval timers of CPU time: errnos, overruns, what exec and fork keep; never how long it took.
// cob: link=static,dynamic flags=-pthread compare=host
#include "test.h"
#include <pthread.h>
#include <sys/time.h>

static volatile int fired, code, value, least;

static void handler(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    code = info->si_code;
    value = info->si_value.sival_int;
    least = info->si_overrun;
    fired++;
}

static void install(int number) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    MUST(sigaction(number, &action, NULL) == 0);
}

// Of timers that leave a program no time but for their signals.
static timer_t storm;
static void calm(int number) {
    if (++fired < 100)
        return;
    struct itimerspec never = {{0, 0}, {0, 0}};
    struct itimerval none = {{0, 0}, {0, 0}};
    MUST(number == SIGALRM ? setitimer(ITIMER_REAL, &none, NULL) == 0 : timer_settime(storm, 0, &never, NULL) == 0);
}

static void wait_for(int times) {
    struct timespec ms = {.tv_nsec = 1000000};
    while (fired < times)
        nanosleep(&ms, NULL);
    fired = 0;
}

static volatile unsigned long burnt;
static void burn(int times) {
    while (fired < times)
        burnt++;
    fired = 0;
}

static volatile int notified;
static void notify(union sigval argument) { notified = argument.sival_int; }

int main(int count, char **arguments) {
    if (count > 1) {
        struct itimerspec left;
        struct itimerval real;
        SHOW(syscall(SYS_timer_gettime, 0, &left));
        SHOW(getitimer(ITIMER_REAL, &real));
        printf("the alarm stays %d\n", real.it_value.tv_sec > 50);
        return 0;
    }
    install(SIGUSR1), install(SIGVTALRM), install(SIGPROF), install(SIGALRM);
    timer_t id, other;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 77};
    SHOW(timer_create(99, &event, &id));
    event.sigev_signo = 65;
    SHOW(timer_create(CLOCK_MONOTONIC, &event, &id));
    event.sigev_signo = SIGUSR1, event.sigev_notify = 3;
    SHOW(syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &id));
    event.sigev_notify = SIGEV_SIGNAL;
    SHOW(timer_create(CLOCK_MONOTONIC, &event, &id));
    struct itimerspec once = {.it_value = {0, 2000000}}, old, bad = {.it_value = {0, 1000000000}};
    SHOW(timer_settime(id, 0, &bad, NULL));
    SHOW(timer_settime((timer_t)1000, 0, &once, NULL));
    SHOW(timer_gettime(id, &old));
    printf("disarmed %d\n", old.it_value.tv_sec == 0 && old.it_value.tv_nsec == 0);
    SHOW(timer_settime(id, 0, &once, NULL));
    wait_for(1);
    printf("code %d value %d overrun %d\n", code, value, least);
    // One that expires again and again while its signal is blocked comes once, with a count.
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGUSR1);
    MUST(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    struct itimerspec often = {{0, 1000000}, {0, 1000000}}, off = {0};
    SHOW(timer_settime(id, 0, &often, NULL));
    struct timespec pause_for = {.tv_nsec = 30000000};
    nanosleep(&pause_for, NULL);
    SHOW(timer_settime(id, 0, &off, &old));
    printf("interval %ld\n", old.it_interval.tv_nsec);
    MUST(sigprocmask(SIG_UNBLOCK, &set, NULL) == 0);
    fired = 0;
    struct timespec past = {.tv_sec = 1};
    struct itimerspec then = {{0, 0}, past};
    SHOW(timer_settime(id, TIMER_ABSTIME, &then, NULL));
    wait_for(1);
    SHOW(timer_getoverrun(id));
    SHOW(timer_create(CLOCK_REALTIME, NULL, &other));
    SHOW(timer_settime(other, 0, &once, NULL));
    wait_for(1);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    now.tv_nsec += 3000000;
    now.tv_sec += now.tv_nsec / 1000000000, now.tv_nsec %= 1000000000;
    then.it_value = now;
    SHOW(timer_settime(other, TIMER_ABSTIME, &then, NULL));
    wait_for(1);
    SHOW(timer_delete(other));
    SHOW(timer_delete(other));
    SHOW(timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &other));
    SHOW(timer_settime(other, 0, &once, NULL));
    burn(1);
    SHOW(timer_delete(other));
    SHOW(timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &other));
    SHOW(timer_settime(other, 0, &once, NULL));
    burn(1);
    SHOW(timer_delete(other));
    struct sigevent call = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = notify, .sigev_value.sival_int = 5};
    SHOW(timer_create(CLOCK_MONOTONIC, &call, &other));
    SHOW(timer_settime(other, 0, &once, NULL));
    while (!notified)
        usleep(1000);
    printf("notified %d\n", notified);
    SHOW(timer_delete(other));
    struct sigevent quiet = {.sigev_notify = SIGEV_NONE};
    SHOW(timer_create(CLOCK_BOOTTIME, &quiet, &other));
    struct itimerspec far = {{0, 0}, {1000, 0}};
    SHOW(timer_settime(other, 0, &far, NULL));
    SHOW(timer_gettime(other, &old));
    printf("counts down %d\n", old.it_value.tv_sec > 900 && old.it_value.tv_sec < 1000);
    struct itimerval slices = {{0, 2000}, {0, 2000}}, none = {0}, left;
    for (int which = ITIMER_VIRTUAL; which <= ITIMER_PROF; which++) {
        SHOW(setitimer(which, &slices, NULL));
        burn(3);
        SHOW(setitimer(which, &none, &left));
        printf("interval %ld\n", (long)left.it_interval.tv_usec);
        fired = 0;
    }
    // However short the interval is, the machine goes on.
    for (int which = 0; which < 3; which++) {
        struct sigevent told = {.sigev_notify = which == 2 ? SIGEV_NONE : SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
        signal(SIGUSR1, which == 1 ? SIG_IGN : SIG_DFL);
        if (which == 0)
            signal(SIGUSR1, calm);
        MUST(timer_create(CLOCK_MONOTONIC, &told, &storm) == 0);
        struct itimerspec shortest = {{0, 1}, {0, 1}};
        SHOW(timer_settime(storm, 0, &shortest, NULL));
        which == 0 ? burn(100) : usleep(100000);
        SHOW(timer_gettime(storm, &old));
        printf("interval %ld, less than a second %d\n", old.it_interval.tv_nsec, old.it_value.tv_sec == 0);
        SHOW(timer_delete(storm));
        fired = 0;
    }
    signal(SIGALRM, calm);
    slices = (struct itimerval){{0, 1}, {0, 1}};
    SHOW(setitimer(ITIMER_REAL, &slices, NULL));
    burn(100);
    slices = (struct itimerval){{0, 0}, {100, 0}};
    SHOW(setitimer(ITIMER_REAL, &slices, NULL));
    IN_CHILD("fork", {
        SHOW(syscall(SYS_timer_gettime, 0, &old));
        SHOW(getitimer(ITIMER_REAL, &left));
        printf("none %d\n", left.it_value.tv_sec == 0 && left.it_value.tv_usec == 0);
    });
    fflush(stdout);
    execl("/proc/self/exe", arguments[0], "again", NULL);
}
