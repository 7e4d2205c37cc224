// Clocks and sleeps: order, resolution, errnos, timers that fire; never how long something took.
// cob: link=static,dynamic compare=host
#include "test.h"
#include <sys/time.h>
#include <sys/times.h>

static long long nanoseconds(clockid_t clock) {
    struct timespec time;
    MUST(clock_gettime(clock, &time) == 0);
    MUST(time.tv_nsec >= 0 && time.tv_nsec < 1000000000);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static volatile int fired;
static void handler(int number) { fired += number == SIGALRM; }

int main(void) {
    clockid_t clocks[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID,
                          CLOCK_MONOTONIC_RAW, CLOCK_REALTIME_COARSE, CLOCK_MONOTONIC_COARSE, CLOCK_BOOTTIME};
    for (int i = 0; i < 8; i++) {
        struct timespec resolution;
        long long before = nanoseconds(clocks[i]);
        int backwards = 0;
        for (int n = 0; n < 1000; n++) {
            long long now = nanoseconds(clocks[i]);
            backwards += now < before;
            before = now;
        }
        printf("clock %d: resolution %d, backwards %d\n", clocks[i], clock_getres(clocks[i], &resolution), backwards);
    }
    printf("this century %d\n", time(NULL) > 1700000000 && time(NULL) < 4000000000);
    struct timeval of_day;
    gettimeofday(&of_day, NULL);
    printf("same %d\n", labs(of_day.tv_sec - time(NULL)) <= 1);
    struct timespec time;
    SHOW(clock_gettime(77, &time));
    SHOW(clock_getres(-77, &time));
    long long before = nanoseconds(CLOCK_MONOTONIC);
    struct timespec ten = {.tv_nsec = 10000000}, bad = {.tv_nsec = -1}, negative = {.tv_sec = -1};
    SHOW(nanosleep(&ten, NULL));
    printf("slept enough %d\n", nanoseconds(CLOCK_MONOTONIC) - before >= 10000000);
    SHOW(nanosleep(&bad, NULL));
    SHOW(nanosleep(&negative, NULL));
    struct timespec past = {.tv_sec = 1};
    SHOW(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &past, NULL));
    SHOW(clock_nanosleep(77, 0, &past, NULL));
    before = nanoseconds(CLOCK_MONOTONIC) + 5000000;
    struct timespec then = {before / 1000000000, before % 1000000000};
    SHOW(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &then, NULL));
    printf("not early %d\n", nanoseconds(CLOCK_MONOTONIC) >= before);
    signal(SIGALRM, handler);
    struct itimerval timer = {{0, 5000}, {0, 5000}}, old;
    SHOW(setitimer(ITIMER_REAL, &timer, NULL));
    while (fired < 3)
        pause();
    timer = (struct itimerval){0};
    SHOW(setitimer(ITIMER_REAL, &timer, &old));
    printf("interval %ld\n", (long)old.it_interval.tv_usec);
    SHOW(setitimer(9, &timer, NULL));
    SHOW(getitimer(ITIMER_REAL, &old));
    SHOW(alarm(100));
    printf("left %d\n", alarm(0) > 90);
    timer_t id;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    SHOW(timer_create(CLOCK_MONOTONIC, &event, &id));
    struct itimerspec once = {.it_value = {0, 3000000}};
    // It comes once: not between a look at `fired` and the wait.
    sigset_t alarms, none;
    sigemptyset(&none);
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    SHOW(sigprocmask(SIG_BLOCK, &alarms, NULL));
    fired = 0;
    SHOW(timer_settime(id, 0, &once, NULL));
    while (!fired)
        sigsuspend(&none);
    SHOW(timer_delete(id));
    SHOW(times(NULL) > 0);
    struct tms usage;
    for (volatile long i = 0; i < 50000000; i++)
        ;
    times(&usage);
    printf("cpu time %d\n", nanoseconds(CLOCK_PROCESS_CPUTIME_ID) > 1000000);
}
