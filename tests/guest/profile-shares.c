// Spends shares of its time in three functions at different depths of calls, and in the kernel for a fourth, and says by the clock how much that was: test/profiled.rs
// compares the profile with what it says.
// cob: kernels=1,4 profiled=yes compare=self shake=no timeout=120
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned sink;
static char buffer[1 << 16];

#define WORK(name)                                             \
    __attribute__((noipa)) static unsigned name(unsigned n) {  \
        unsigned x = 1;                                        \
        for (unsigned i = 0; i < n; i++)                       \
            x = x * 1664525 + 1013904223;                      \
        return x;                                              \
    }
WORK(half)
WORK(third)
WORK(fifth)

__attribute__((noipa)) static void middle(unsigned n) {
    sink += third(n);
    sink++;
}

__attribute__((noipa)) static void deep(int depth, unsigned n) {
    if (depth)
        deep(depth - 1, n);
    else
        sink += fifth(n);
    sink++;
}

__attribute__((noipa)) static void calls(int zero, int times) {
    for (int i = 0; i < times; i++)
        sink += read(zero, buffer, sizeof buffer) > 0;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

int main(void) {
    const char *names[] = {"half", "third", "fifth", "calls"};
    double sums[4] = {0}, all = 0;
    int zero = open("/dev/zero", O_RDONLY);
    if (zero < 0)
        return 1;
    // Long enough for thousands of samples, however fast the machine is.
    while (all < 6) {
        for (int i = 0; i < 4; i++) {
            double from = now();
            for (int j = 0; j < 20; j++)
                switch (i) {
                case 0: sink += half(50000); break;
                case 1: middle(30000); break;
                case 2: deep(10, 20000); break;
                case 3: calls(zero, 4); break;
                }
            sums[i] += now() - from;
            all += now() - from;
        }
    }
    char line[200];
    int length = snprintf(line, sizeof line, "shares");
    for (int i = 0; i < 4; i++)
        length += snprintf(line + length, sizeof line - length, " %s=%.2f", names[i], sums[i] * 100 / all);
    int marker = open("/sys/kernel/tracing/trace_marker", O_WRONLY);
    if (marker < 0 || write(marker, line, length) != length)
        return 2;
    puts("ok");
}
