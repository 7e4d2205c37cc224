// 3000 tasks of one process wait at the same time (the thesis has so many threads, on 56 CPUs): each has a thread of its own, and the task after them still gets its turn.
// cob: link=dynamic lib=tasks flags=-pthread timeout=240
#include "../../include/cob/tasks.h"
#include "test.h"

enum { TASKS = 3000 };

static int ends[2], counted;

static void reads(void *argument) {
    char byte;
    MUST(read(ends[0], &byte, 1) == 1);
    __atomic_add_fetch(&counted, 1, __ATOMIC_SEQ_CST);
    (void)argument;
}

static int threads(void) {
    FILE *file = fopen("/proc/self/status", "r");
    MUST(file);
    int number = 0;
    for (char line[256]; fgets(line, sizeof line, file);)
        sscanf(line, "Threads: %d", &number);
    fclose(file);
    return number;
}

// Begins when all others have, and none of them can have ended.
static void writes(void *argument) {
    MUST(cob_tasks_monitored() == 0 || (counted == 0 && threads() > TASKS));
    for (int i = 0; i < TASKS; i++)
        MUST(write(ends[1], "b", 1) == 1);
    (void)argument;
}

static void all(void *argument) {
    MUST(pipe(ends) == 0);
    // Where the kernel does not tell, those that wait would have all workers.
    if (cob_tasks_monitored() == 0)
        writes(NULL);
    for (int i = 0; i < TASKS; i++)
        MUST(cob_task(reads, NULL, NULL, 0, 0) == 0);
    if (cob_tasks_monitored() == 1)
        MUST(cob_task(writes, NULL, NULL, 0, 0) == 0);
    cob_taskwait();
    printf("read: %d\n", counted);
    (void)argument;
}

int main(void) {
    MUST(setenv("COB_TASKS_WORKERS_PER_CPU", "1000", 1) == 0);
    SHOW(cob_tasks_run(all, NULL));
}
