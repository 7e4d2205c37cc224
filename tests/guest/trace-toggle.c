// Trace points are switched on and off many times while threads on all CPUs pass them, and each time every kernel changes its code. All marks that were written while
// tracing was on are in the trace, and no other; what else is in it is possible (traced.rs).
// cob: link=static flags=-pthread kernels=1,2,4 compare=self traced=yes shake=no options=--cpus,8,--ring,4096 timeout=600
#include "test.h"
#include <pthread.h>

#define TIMES 60

static _Atomic int on, done, marked;

static int open_to_write(const char *path) {
    int file = open(path, O_WRONLY);
    MUST(file >= 0);
    return file;
}

static void write_all(int file, const char *text) {
    ssize_t length = strlen(text);
    MUST(write(file, text, length) == length);
}

// Calls, switches, faults, and a mark as soon as tracing has been switched on again.
static void *passes_points(void *argument) {
    move_to((int)(intptr_t)argument);
    int markers = open_to_write("/sys/kernel/tracing/trace_marker"), seen = 0;
    char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(page != MAP_FAILED);
    while (!done) {
        syscall(SYS_getppid);
        MUST(madvise(page, PAGE, MADV_DONTNEED) == 0);
        page[0] = 1;
        sched_yield();
        int now = on;
        if (now != seen) {
            char text[64];
            snprintf(text, sizeof text, "mark %d of %d", now, (int)(intptr_t)argument);
            write_all(markers, text);
            seen = now;
            marked++;
        }
    }
    return NULL;
}

int main(void) {
    int events = open_to_write("/proc/cob/trace"), markers = open_to_write("/sys/kernel/tracing/trace_marker");
    int cpus = cpu_count();
    pthread_t threads[cpus];
    write_all(events, "off");
    for (int cpu = 0; cpu < cpus; cpu++)
        MUST(pthread_create(&threads[cpu], NULL, passes_points, (void *)(intptr_t)cpu) == 0);
    for (int turn = 1; turn <= TIMES; turn++) {
        // Some of them, all of them, some others.
        write_all(events, (const char *[]){"marker,sched", "all", "syscall,fault,marker,message"}[turn % 3]);
        on = turn;
        while (marked < turn * cpus)
            sched_yield();
        write_all(events, "off");
        write_all(markers, "unseen ");
    }
    write_all(events, "marker");
    done = 1;
    for (int cpu = 0; cpu < cpus; cpu++)
        MUST(pthread_join(threads[cpu], NULL) == 0);
    char text[64];
    snprintf(text, sizeof text, "marks: %d", marked);
    write_all(markers, text);
    puts("ok");
}
