// `--placement pack`: threads and programs gather on few kernels until these are full, the parent's first, then the next one; and
// an affinity wins; and threads that run alone come together. On 4 kernels of 2 CPUs. Everybody who has come keeps a CPU busy until the round ends, the main thread too: what is
// free is known to all. Spread (programs-spread) would put one on each kernel.
// cob: link=static,dynamic flags=-pthread options=--cpus,8,--placement,pack kernels=4 compare=self timeout=120 shake=no
#include "test.h"
#include <pthread.h>
#include <spawn.h>
#include <time.h>

enum { KERNELS = 4, MOST = 8 };

extern char **environ;

static char *self;
static int each; // CPUs of a kernel
static int ready[2];
static volatile int *shared; // [0]: the round is over; [1..]: where each one runs
static int wrong;

static int kernel(void) { return sched_getcpu() / each; }

static void work(int number) {
    shared[number] = kernel() + 1;
    MUST(write(ready[1], "r", 1) == 1);
    while (!shared[0])
        shared[number] = kernel() + 1;
}

static void *thread(void *number) {
    work((int)(long)number);
    return NULL;
}

static void come(void) {
    char byte;
    MUST(read(ready[0], &byte, 1) == 1);
}

static pthread_t begin_thread(int number, const cpu_set_t *affinity) {
    pthread_t made;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (affinity)
        pthread_attr_setaffinity_np(&attributes, sizeof *affinity, affinity);
    MUST(pthread_create(&made, &attributes, thread, (void *)(long)number) == 0);
    come();
    return made;
}

static pid_t begin_program(int number) {
    char name[12], in[12], out[12];
    snprintf(name, sizeof name, "%d", number);
    snprintf(in, sizeof in, "%d", ready[0]);
    snprintf(out, sizeof out, "%d", ready[1]);
    char *arguments[] = {self, name, in, out, NULL};
    pid_t pid;
    MUST(posix_spawn(&pid, self, NULL, NULL, arguments, environ) == 0);
    come();
    return pid;
}

// How many are on each kernel, once none has more than its CPUs. Who has just come to a kernel may not be known yet to who
// chooses the next; what is too much there is moved on.
static void settle(int count, int self_too, int on[KERNELS]) {
    for (int crowded = 1; crowded;) {
        memset(on, 0, KERNELS * sizeof on[0]);
        if (self_too)
            on[kernel()]++;
        for (int i = 1; i <= count; i++)
            on[shared[i] - 1]++;
        crowded = 0;
        for (int k = 0; k < KERNELS; k++)
            crowded |= on[k] > each;
        // Somewhere a CPU is free: it can't stay so.
        if (count + self_too > KERNELS * each)
            break;
    }
}

static void expect(const char *what, const int on[KERNELS], const char *wanted) {
    char found[64];
    snprintf(found, sizeof found, "%d %d %d %d", on[0], on[1], on[2], on[3]);
    printf("%s: %s%s%s\n", what, found, strcmp(found, wanted) ? ", not " : "", strcmp(found, wanted) ? wanted : "");
    fflush(stdout);
    wrong |= strcmp(found, wanted) != 0;
}

static void begin(void) { memset((void *)shared, 0, PAGE); }

// `count` threads beside the main one.
static void threads(int count, const cpu_set_t *affinity, int self_too, const char *what, const char *wanted) {
    pthread_t made[MOST];
    int on[KERNELS];
    begin();
    for (int i = 1; i <= count; i++)
        made[i - 1] = begin_thread(i, affinity);
    settle(count, self_too, on);
    shared[0] = 1;
    for (int i = 0; i < count; i++)
        MUST(pthread_join(made[i], NULL) == 0);
    expect(what, on, wanted);
}

static void programs(int count, const char *what, const char *wanted) {
    pid_t pids[MOST];
    int on[KERNELS], status;
    begin();
    for (int i = 1; i <= count; i++)
        pids[i - 1] = begin_program(i);
    settle(count, 1, on);
    shared[0] = 1;
    for (int i = 0; i < count; i++)
        MUST(waitpid(pids[i], &status, 0) == pids[i] && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    expect(what, on, wanted);
}

// Threads that begin on a kernel each, on that CPU of it, and may go anywhere then, come together: none is left with less than it can take but
// one. They make no system call, and on a kernel's second CPU hardly anything interrupts them.
static void scattered(int cpu) {
    pthread_t made[KERNELS - 1];
    cpu_set_t set, all;
    time_t begun = time(NULL);
    int partly, on[KERNELS];
    begin();
    memset(&all, 0xff, sizeof all);
    for (int i = 1; i < KERNELS; i++) {
        CPU_ZERO(&set);
        CPU_SET(i * each + cpu, &set);
        made[i - 1] = begin_thread(i, &set);
    }
    for (int i = 1; i < KERNELS; i++)
        MUST(pthread_setaffinity_np(made[i - 1], sizeof all, &all) == 0);
    do {
        settle(KERNELS - 1, 1, on);
        partly = 0;
        for (int k = 0; k < KERNELS; k++)
            partly += on[k] && on[k] < each;
    } while (partly > 1 && time(NULL) < begun + 60);
    shared[0] = 1;
    for (int i = 1; i < KERNELS; i++)
        MUST(pthread_join(made[i - 1], NULL) == 0);
    printf("scattered threads: %s\n", partly > 1 ? "still are" : "come together");
    fprintf(stderr, "after %ld s: %d %d %d %d\n", (long)(time(NULL) - begun), on[0], on[1], on[2], on[3]);
    wrong |= partly > 1;
}

static void map_shared(int flags) {
    int memory = open("/dev/shm/placement-pack", O_RDWR | flags, 0600);
    MUST(memory >= 0 && ftruncate(memory, PAGE) == 0);
    shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    MUST(shared != MAP_FAILED);
    close(memory);
}

int main(int argc, char **argv) {
    self = argv[0];
    each = cpu_count() / KERNELS;
    if (argc == 4) {
        ready[0] = atoi(argv[2]), ready[1] = atoi(argv[3]);
        map_shared(0);
        work(atoi(argv[1]));
        return 0;
    }
    map_shared(O_CREAT | O_TRUNC);
    MUST(each == 2 && pipe(ready) == 0);
    threads(1, NULL, 1, "2 threads", "2 0 0 0");
    threads(3, NULL, 1, "4 threads", "2 2 0 0");
    threads(5, NULL, 1, "6 threads", "2 2 2 0");
    threads(7, NULL, 1, "8 threads", "2 2 2 2");
    // The main thread waits while a program starts, so that kernel 0 takes two, and has three when it works again: one moves on.
    programs(1, "2 programs", "2 0 0 0");
    programs(3, "4 programs", "2 2 0 0");
    programs(5, "6 programs", "2 2 2 0");

    scattered(0);
    scattered(1);

    // What an affinity says is so, whatever is free. The main thread is wherever it was last when a kernel had one too many.
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(2 * each, &set), CPU_SET(2 * each + 1, &set);
    threads(2, &set, 0, "2 threads for kernel 2", "0 0 2 0");
    for (int i = 0; i < each; i++)
        CPU_SET(3 * each + i, &set);
    threads(3, &set, 0, "3 threads for kernels 2 and 3", "0 0 2 1");
    CPU_ZERO(&set);
    CPU_SET(3 * each, &set), CPU_SET(3 * each + 1, &set);
    MUST(sched_setaffinity(0, sizeof set, &set) == 0);
    threads(1, NULL, 1, "2 threads for kernel 3", "0 0 0 2");
    programs(1, "2 programs for kernel 3", "0 0 0 2");
    unlink("/dev/shm/placement-pack");
    puts(wrong ? "wrong" : "ok");
    return wrong;
}
