// The task runtime (runtime/, docs/umt.md) from C: dependencies, nested tasks, tasks that wait in the kernel. On Linux it is the baseline; in the guest the kernel tells it of
// threads that wait, and then tasks that wait for each other get on that would stop there.
// cob: link=static,dynamic lib=tasks flags=-pthread timeout=120
#include "../../include/cob/tasks.h"
#include "test.h"

enum { CELLS = 24, STEPS = 20, SLEEPERS = 40 };

static long cells[CELLS];

static void cell(void *argument) {
    long at = (long)argument;
    cells[at] = (cells[at] * 3 + cells[at - 1] + 1) % 1000003;
}

// A wave front: each cell needs its left neighbour of this step and itself of the step before.
static void wave(void) {
    for (int step = 0; step < STEPS; step++)
        for (long at = 1; at < CELLS; at++) {
            struct cob_access uses[] = {{&cells[at - 1], sizeof(long), COB_IN}, {&cells[at], sizeof(long), COB_INOUT}};
            MUST(cob_task(cell, (void *)at, uses, 2, 0) == 0);
        }
    cob_taskwait();
    long sum = 0;
    for (int at = 0; at < CELLS; at++)
        sum += cells[at];
    printf("wave: %ld\n", sum);
}

static int counted;

static void dive(void *argument) {
    long depth = (long)argument;
    if (depth == 0) {
        __atomic_add_fetch(&counted, 1, __ATOMIC_SEQ_CST);
        return;
    }
    for (int i = 0; i < 3; i++)
        MUST(cob_task(dive, (void *)(depth - 1), NULL, 0, (int)depth) == 0);
    cob_taskwait();
}

static void nested(void) {
    dive((void *)5);
    printf("nested: %d\n", counted);
}

static void sleeps(void *argument) {
    struct timespec time = {0, 1000000};
    nanosleep(&time, NULL);
    __atomic_add_fetch(&counted, 1, __ATOMIC_SEQ_CST);
    (void)argument;
}

static int ends[2];

static void reads(void *argument) {
    char byte;
    MUST(read(ends[0], &byte, 1) == 1);
    __atomic_add_fetch(&counted, 1, __ATOMIC_SEQ_CST);
    (void)argument;
}

static void writes(void *argument) {
    for (int i = 0; i < SLEEPERS; i++)
        MUST(write(ends[1], "b", 1) == 1);
    (void)argument;
}

static void waiting(void) {
    counted = 0;
    for (int i = 0; i < SLEEPERS; i++)
        MUST(cob_task(sleeps, NULL, NULL, 0, 0) == 0);
    cob_taskwait();
    printf("slept: %d\n", counted);
    counted = 0;
    MUST(pipe(ends) == 0);
    // Where the kernel does not tell, these would have all workers, and the one that they wait for would never begin.
    if (cob_tasks_monitored() == 0)
        writes(NULL);
    for (int i = 0; i < SLEEPERS; i++)
        MUST(cob_task(reads, NULL, NULL, 0, 0) == 0);
    if (cob_tasks_monitored() == 1)
        MUST(cob_task(writes, NULL, NULL, 0, 0) == 0);
    cob_taskwait();
    printf("read: %d\n", counted);
}

static void all(void *argument) {
    wave();
    nested();
    waiting();
    (void)argument;
}

int main(void) {
    MUST(cob_task(cell, NULL, NULL, 0, 0) == -1);
    SHOW(cob_tasks_run(all, NULL));
    SHOW(cob_tasks_run(all, NULL));
    int fd = open("/proc/cob/kernels", O_RDONLY);
    MUST((fd >= 0) == (cob_tasks_monitored() == 1));
}
