// Bad input to the calls about time, and to futex (see errnos.h).
// cob: link=static kernels=1,4 compare=host timeout=600
#include "errnos.h"
#include <limits.h>
#include <linux/futex.h>
#include <sys/time.h>

static struct timespec second = {0, 1000000000}, before = {-1, 0}, negative = {0, -1}, max = {LONG_MAX, 999999999}, soon = {0, 1};
static struct timeval micros = {0, 1000000}, past = {-1, 0}, negative_micros = {0, -1};
static struct itimerval bad_value = {{0, 0}, {0, 1000000}}, bad_interval = {{0, 1000000}, {0, 0}}, negative_value = {{0, 0}, {-1, 0}};
static struct itimerspec spec_bad_value = {{0, 0}, {0, 1000000000}}, spec_bad_interval = {{0, 1000000000}, {0, 0}}, spec_negative = {{0, 0}, {-1, 0}},
                         spec_negative_interval = {{-1, 0}, {1, 0}}, spec_far = {{LONG_MAX, 0}, {LONG_MAX, 999999999}};
static struct sigevent bad_notify = {.sigev_notify = 77}, bad_signal = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = 65},
                       no_signal = {.sigev_notify = SIGEV_NONE, .sigev_signo = 65}, zero_signal = {.sigev_notify = SIGEV_SIGNAL},
                       bad_thread = {.sigev_notify = SIGEV_SIGNAL | SIGEV_THREAD_ID, .sigev_signo = 10};
static struct timezone zone = {60 * 20, 0};

// A lock of nobody that is alive, a lock that is free.
static uint32_t dead_owner = 4194303, free_lock;

// Timers are a process's own.
static struct object timer, processor_timer;

static void make_timers(void) {
    for (int i = 0; i < 2; i++) {
        struct object *object = i ? &processor_timer : &timer;
        int id, removed;
        MUST(syscall(SYS_timer_create, i ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, NULL, &id) == 0);
        MUST(syscall(SYS_timer_create, CLOCK_MONOTONIC, NULL, &removed) == 0 && syscall(SYS_timer_delete, removed) == 0);
        *object = (struct object){id, removed};
    }
}

static const struct row rows[] = {
    ROW(nanosleep, AT(&soon), W),
    ROW(nanosleep, C(&second), C(0)),
    ROW(nanosleep, C(&before), C(0)),
    ROW(nanosleep, C(&negative), C(0)),
    ROW(clock_nanosleep, E(1), C(0), AT(&soon), W),
    ROW(clock_nanosleep, C(1), X(0), AT(&soon), W),
    ROW(clock_nanosleep, C(1), C(0), C(&second), C(0)),
    ROW(clock_nanosleep, C(1), C(1), C(&before), C(0)),
    ROW(clock_nanosleep, C(3), C(0), C(&soon), C(0)),
    ROW(clock_nanosleep, C(4), C(0), C(&soon), C(0)),
    ROW(clock_nanosleep, C(5), C(0), C(&soon), C(0)),
    ROW(clock_nanosleep, C(7), C(0), C(&soon), C(0)),
    ROW(clock_nanosleep, C(11), C(0), C(&soon), C(0)),
    ROW(clock_nanosleep, C(-2), C(0), C(&soon), C(0)),
    // The clocks that wake a machine need one that can.
    ROW(clock_gettime, E(0), W),
    ROW(clock_gettime, C(3), W),
    ROW(clock_gettime, C(10), W),
    ROW(clock_gettime, C(11), W),
    ROW(clock_gettime, C(-2), W),
    ROW(clock_gettime, C(-4), W),
    ROW(clock_gettime, C(-6), W),
    ROW(clock_gettime, C(-5), W),
    ROW(clock_gettime, C((~4194303 << 3) | 2), W),
    ROW(clock_getres, E(0), W),
    ROW(clock_getres, C(0), C(0)),
    ROW(clock_getres, C(99), C(0)),
    ROW(clock_getres, C(-6), C(0)),
    // Nothing that would set the host's clock.
    ROW(clock_settime, C(1), R),
    ROW(clock_settime, C(4), R),
    ROW(clock_settime, C(99), R),
    ROW(clock_settime, C(2), R),
    ROW(clock_settime, C(0), C(&second)),
    ROW(clock_settime, C(0), C(&before)),
    ROW(clock_settime, C(0), C(8)),
    ROW(clock_settime, C(0), C(0)),
    ROW(settimeofday, C(&micros), C(0)),
    ROW(settimeofday, C(&negative_micros), C(0)),
    ROW(settimeofday, C(&past), C(0)),
    ROW(settimeofday, C(8), C(0)),
    ROW(settimeofday, C(0), C(8)),
    ROW(settimeofday, C(0), C(&zone)),
    ROW(gettimeofday, W, W),
    ANY(time, W),
    ANY(times, W),
    ROW(getitimer, X(0), W),
    ROW(setitimer, X(0), Z, W),
    ROW(setitimer, C(0), C(&bad_value), W),
    ROW(setitimer, C(0), C(&bad_interval), W),
    ROW(setitimer, C(0), C(&negative_value), W),
    ROW(setitimer, C(3), C(8), C(0)),
    ROW(alarm, C(-1)),
    ROW(timer_create, E(1), C(0), W),
    ROW(timer_create, C(1), Z, W),
    ROW(timer_create, C(1), C(&bad_notify), W),
    ROW(timer_create, C(1), C(&bad_signal), W),
    ROW(timer_create, C(1), C(&no_signal), W),
    ROW(timer_create, C(1), C(&zero_signal), W),
    ROW(timer_create, C(1), C(&bad_thread), W),
    ROW(timer_create, C(99), C(&bad_thread), C(8)),
    ROW(timer_create, C(4), C(0), W),
    ROW(timer_create, C(5), C(0), W),
    ROW(timer_create, C(2), C(0), W),
    ROW(timer_create, C(3), C(0), W),
    ROW(timer_create, C(11), C(0), W),
    ROW(timer_create, C(-2), C(0), W),
    ROW(timer_create, C((~4194303 << 3) | 2), C(0), W),
    ROW(timer_settime, C(99), X(0), Z, W),
    ROW(timer_settime, C(99), C(0), C(&spec_bad_value), C(0)),
    ROW(timer_settime, C(99), C(0), C(&spec_bad_interval), C(0)),
    ROW(timer_settime, C(99), C(0), C(&spec_negative), C(0)),
    ROW(timer_settime, C(-1), C(0), Z, C(0)),
    ROW(timer_gettime, C(99), W),
    ROW(timer_getoverrun, C(99)),
    ROW(timer_getoverrun, C(-1)),
    ROW(timer_delete, C(99)),
    ROW(timer_delete, C(-1)),
    ROW(timer_settime, O(&timer), X(0), Z, W),
    ROW(timer_settime, O(&timer), C(0), C(&spec_bad_value), W),
    ROW(timer_settime, O(&timer), C(0), C(&spec_bad_interval), W),
    ROW(timer_settime, O(&timer), C(0), C(&spec_negative), W),
    ROW(timer_settime, O(&timer), C(0), C(&spec_negative_interval), C(8)),
    ROW(timer_settime, O(&timer), C(1), C(&spec_far), W),
    ROW(timer_settime, O(&processor_timer), X(0), Z, W),
    ROW(timer_settime, O(&processor_timer), C(0), C(&spec_bad_value), C(0)),
    ROW(timer_settime, O(&processor_timer), C(0), C(&spec_far), W),
    ROW(timer_gettime, O(&timer), W),
    ROW(timer_gettime, O(&processor_timer), W),
    ROW(timer_getoverrun, O(&timer)),
    ROW(timer_getoverrun, O(&processor_timer)),
    ROW(timer_delete, O(&timer)),
    ROW(timer_delete, O(&processor_timer)),
    ROW(timerfd_settime, C(TIMER), C(0), C(&spec_negative_interval), C(0)),
    ROW(timerfd_settime, C(TIMER), C(1), C(&spec_negative), C(0)),
    ROW(futex, Z, X(0), C(1), C(0), C(0), C(0)),
    ROW(futex, Z, X(1), C(1), C(0), C(0), C(0)),
    ROW(futex, Z, C(0), C(0), C(&second), C(0), C(0)),
    ROW(futex, Z, C(0), C(0), C(&before), C(0), C(0)),
    ROW(futex, Z, C(0), C(0), C(&soon), C(0), C(0)),
    ROW(futex, Z, C(0), C(0), {'t', (long)&soon}, C(0), C(0)),
    ROW(futex, Z, C(9), C(0), C(&soon), C(0), X(0)),
    ROW(futex, Z, C(10), C(1), C(0), C(0), X(0)),
    ROW(futex, C(ZERO + 1), C(0), C(1), C(0), C(0), C(0)),
    ROW(futex, C(ZERO + 2), C(1), C(1), C(0), C(0), C(0)),
    ROW(futex, C(READ_ONLY), C(0), C(1), C(0), C(0), C(0)),
    ROW(futex, C(READ_ONLY), C(1), C(1), C(0), C(0), C(0)),
    ROW(futex, Z, C(3), N(1), N(1), W, C(0)),
    ROW(futex, Z, C(4), N(1), N(1), W, C(0)),
    ROW(futex, Z, C(4), C(1), C(1), W, C(1)),
    ROW(futex, Z, C(5), N(1), N(1), W, X(0)),
    ROW(futex, INTO(&dead_owner), C(6), C(0), C(&soon), C(0), C(0)),
    ROW(futex, W, C(7), C(0), C(0), C(0), C(0)),
    ROW(futex, INTO(&dead_owner), C(8), C(0), C(0), C(0), C(0)),
    ROW(futex, Z, C(11), C(0), C(&soon), W, C(0)),
    ROW(futex, Z, C(11), C(0), C(&soon), C(ZERO), C(0)),
    ROW(futex, Z, C(12), C(1), C(1), W, C(0)),
    ROW(futex, Z, C(12), C(2), C(1), W, C(0)),
    ROW(futex, Z, C(12), C(1), C(1), C(ZERO), C(0)),
    ROW(futex, INTO(&dead_owner), C(13), C(0), C(&soon), C(0), C(0)),
    ROW(futex, Z, C(2), C(0), C(0), C(0), C(0)),
    ROW(futex, Z, C(14), C(0), C(0), C(0), C(0)),
    ROW(futex, Z, C(FUTEX_WAKE | FUTEX_CLOCK_REALTIME), C(0), C(0), C(0), C(0)),
    ROW(futex, Z, C(FUTEX_WAIT | FUTEX_CLOCK_REALTIME), C(1), C(&soon), C(0), C(0)),
    ROW(futex, INTO(&free_lock), C(FUTEX_LOCK_PI | FUTEX_CLOCK_REALTIME), C(0), C(&soon), C(0), C(0)),
    ROW(futex, Z, C(0), C(1), C(&max), C(0), C(0)),
};

int main(int argc, char **argv) {
    begin_child = make_timers;
    return show_table(rows, sizeof rows / sizeof rows[0], argv + 1);
}
