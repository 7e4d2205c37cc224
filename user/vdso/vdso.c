// The vDSO: what a program can find out without a system call (man 7 vdso). One page, mapped into every program by execve
// (crates/process/src/vdso.rs), which the C library finds through AT_SYSINFO_EHDR.
//
// The clock of Cob is the time-stamp counter, the same on all kernels and never adjusted, so its parameters are constants: the kernel
// writes them into its copy of the page, and nothing has to be read twice as on Linux, whose clock is steered.
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>

// Filled in by the kernel; crates/process/src/vdso.rs knows where they are and what they mean.
__attribute__((section(".parameters"))) const volatile struct {
    uint64_t base, rate, realtime, has_rdtscp;
} parameters;

enum { BILLION = 1000000000 };

static long call(long number, long first, long second, long third) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(first), "S"(second), "d"(third) : "rcx", "r11", "memory");
    return result;
}

// Nanoseconds since the machine started. The fence: not read before what comes earlier in the program.
static uint64_t now(void) {
    uint32_t low, high;
    __asm__ volatile("lfence\n\trdtsc" : "=a"(low), "=d"(high)::"memory");
    uint64_t ticks = (uint64_t)high << 32 | low;
    uint64_t base = parameters.base;
    return ticks < base ? 0 : (uint64_t)((unsigned __int128)(ticks - base) * parameters.rate >> 32);
}

static uint64_t realtime(void) { return now() + parameters.realtime; }

// The clocks that are the counter, and what there is to add to it; others are the kernel's.
static int is_counter(clockid_t clock, uint64_t *offset) {
    switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
        *offset = parameters.realtime;
        return 1;
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_BOOTTIME:
        *offset = 0;
        return 1;
    default:
        return 0;
    }
}

int __vdso_clock_gettime(clockid_t clock, struct timespec *at) {
    uint64_t offset;
    if (!is_counter(clock, &offset))
        return call(SYS_clock_gettime, clock, (long)at, 0);
    uint64_t ns = now() + offset;
    at->tv_sec = ns / BILLION;
    at->tv_nsec = ns % BILLION;
    return 0;
}

int __vdso_clock_getres(clockid_t clock, struct timespec *resolution) {
    uint64_t offset;
    if (!is_counter(clock, &offset))
        return call(SYS_clock_getres, clock, (long)resolution, 0);
    if (resolution)
        *resolution = (struct timespec){.tv_nsec = 1};
    return 0;
}

int __vdso_gettimeofday(struct timeval *at, struct timezone *zone) {
    if (at) {
        uint64_t ns = realtime();
        at->tv_sec = ns / BILLION;
        at->tv_usec = ns % BILLION / 1000;
    }
    if (zone)
        *zone = (struct timezone){0};
    return 0;
}

time_t __vdso_time(time_t *at) {
    time_t seconds = realtime() / BILLION;
    if (at)
        *at = seconds;
    return seconds;
}

long __vdso_getcpu(unsigned *cpu, unsigned *node, void *unused) {
    if (!parameters.has_rdtscp)
        return call(SYS_getcpu, (long)cpu, (long)node, (long)unused);
    uint32_t low, high, place;
    __asm__ volatile("rdtscp" : "=a"(low), "=d"(high), "=c"(place));
    if (cpu)
        *cpu = place & 0xfff;
    if (node)
        *node = place >> 12;
    return 0;
}
