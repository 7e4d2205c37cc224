// What tests of programs that talk share: a clock, and how often threads have moved and messages were sent.
#pragma once
#include "test.h"

static double now(void) {
    struct timespec time;
    MUST(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void wait_for(double seconds) {
    for (double end = now() + seconds; now() < end;)
        usleep(50000);
}

// Sums the column of a table of all kernels.
static long sum(const char *name, int column) {
    FILE *file = fopen(name, "r");
    MUST(file);
    char line[4096];
    long all = 0;
    MUST(fgets(line, sizeof line, file));
    while (fgets(line, sizeof line, file)) {
        char *rest = line, *word = NULL;
        for (int at = 0; at <= column; at++)
            word = strtok_r(at ? NULL : line, " \n", &rest);
        all += word ? atol(word) : 0;
    }
    fclose(file);
    return all;
}

static long kernels_moves(void) { return sum("/proc/cob/kernels", 8); }
static long messages(void) { return sum("/proc/cob/messages", 1); }
