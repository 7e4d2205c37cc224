// What tests of user-monitored threads (docs/umt.md) share: counters of all CPUs and what they have counted since the last `forget`, and workers that are told what to do by pipes. What a CPU has
// counted is exact where all threads are on one kernel. On several, pages that a thread touches where it has come to are waited for as well, so there the sums must be right.
#pragma once
#include "../../include/cob/umt.h"
#include "test.h"
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>

enum { MOST = 64 };

struct count {
    long blocks, unblocks;
};

static int fds[MOST], cpus;
static struct count counted[MOST]; // since the last `forget`
static const struct umt_sums *maps[MOST];
static uint64_t forgotten[MOST]; // what was mapped at the last `forget`
static int one_kernel, warm;

static inline void fail(const char *what, int line) {
    printf("line %d: %s\n", line, what);
    for (int i = 0; i < cpus; i++)
        printf("  CPU %d: %ld blocks, %ld unblocks\n", i, counted[i].blocks, counted[i].unblocks);
    fflush(stdout);
    _exit(1);
}

#define CHECK(condition)                                                                                             \
    do {                                                                                                             \
        if (!(condition))                                                                                            \
            fail(#condition, __LINE__);                                                                              \
    } while (0)

// Lines of /proc/cob/kernels but the first.
static inline int kernels(void) {
    FILE *file = fopen("/proc/cob/kernels", "r");
    MUST(file);
    int lines = 0;
    for (int c; (c = getc(file)) != EOF;)
        lines += c == '\n';
    fclose(file);
    return lines - 1;
}

static inline void map_all(void) {
    for (int i = 0; i < cpus; i++) {
        maps[i] = umt_map(fds[i], i);
        MUST(maps[i]);
    }
}

// What was counted, as the mapping says it.
static inline struct count mapped(int cpu) {
    uint64_t value = umt_since(forgotten[cpu], umt_look(maps[cpu]));
    return (struct count){.blocks = umt_blocks(value), .unblocks = umt_unblocks(value)};
}

static inline struct count take(int cpu) {
    uint64_t value;
    ssize_t got = read(fds[cpu], &value, sizeof value);
    MUST(got == 8 || (got == -1 && errno == EAGAIN));
    if (got == 8) {
        counted[cpu].blocks += umt_blocks(value);
        counted[cpu].unblocks += umt_unblocks(value);
    }
    return counted[cpu];
}

static inline struct count look(int cpu) {
    // What comes meanwhile is in the mapping first: of this CPU, and of another that has taken a thread from it.
    struct count before = mapped(cpu), now = take(cpu), after = mapped(cpu);
    CHECK(before.blocks <= now.blocks + 2 && before.unblocks <= now.unblocks + 2);
    CHECK(now.blocks <= after.blocks && now.unblocks <= after.unblocks);
    return now;
}

static inline long ready(int cpu) {
    struct count now = look(cpu);
    return now.unblocks - now.blocks;
}

static inline void forget(void) {
    for (int i = 0; i < cpus; i++)
        take(i);
    memset(counted, 0, sizeof counted);
    for (int i = 0; i < cpus; i++) {
        // Between the read and this nothing happens, for no other thread is monitored; on several kernels one that ends may wait for another kernel before.
        uint64_t value;
        ssize_t got;
        do {
            forgotten[i] = umt_look(maps[i]);
            got = read(fds[i], &value, sizeof value);
            MUST(got == -1 ? errno == EAGAIN : !one_kernel);
        } while (got == 8);
    }
}

// Exactly so many, or on several kernels as many more of both.
static inline int is(int cpu, long blocks, long unblocks) {
    struct count now = look(cpu);
    if (one_kernel)
        return now.blocks == blocks && now.unblocks == unblocks;
    return now.unblocks - now.blocks == unblocks - blocks && now.blocks >= blocks;
}

static inline void until(int cpu, long blocks, long unblocks) {
    for (long tries = 0; !is(cpu, blocks, unblocks); tries++) {
        CHECK(tries < 2000000);
        sched_yield();
    }
}

static inline void set_cpu(pid_t thread, int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    MUST(sched_setaffinity(thread, sizeof set, &set) == 0);
}

static inline void begin(void) { MUST(umt_control(UMT_SET, 1, NULL) == 0); }
static inline void end(void) { MUST(umt_control(UMT_SET, 0, NULL) == 0); }

static inline void nap(void) {
    // Long enough to begin before it is over, also where the host has other work.
    struct timespec time = {0, 20000000};
    nanosleep(&time, NULL);
}

// What a thread is told, and answers with, by pipes: on pages of its own.
struct worker {
    pthread_t thread;
    pid_t tid;
    int in[2], out[2], cpu;
    void (*work)(struct worker *);
} __attribute__((aligned(4096)));

static struct worker workers[4];

static inline void hear(struct worker *worker) {
    char byte;
    MUST(read(worker->in[0], &byte, 1) == 1);
}

static inline void say(struct worker *worker) { MUST(write(worker->out[1], "s", 1) == 1); }
static inline void tell(struct worker *worker) { MUST(write(worker->in[1], "t", 1) == 1); }

static inline void listen_to(struct worker *worker) {
    char byte;
    MUST(read(worker->out[0], &byte, 1) == 1);
}

static inline void *life(void *pointer) {
    struct worker *worker = pointer;
    worker->tid = (pid_t)syscall(SYS_gettid);
    worker->work(worker);
    return NULL;
}

static inline struct worker *start(int number, int cpu, void (*work)(struct worker *)) {
    struct worker *worker = &workers[number];
    pthread_attr_t attributes;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    pthread_attr_init(&attributes);
    pthread_attr_setaffinity_np(&attributes, sizeof set, &set);
    MUST(pipe(worker->in) == 0 && pipe(worker->out) == 0);
    worker->cpu = cpu, worker->work = work;
    MUST(pthread_create(&worker->thread, &attributes, life, worker) == 0);
    return worker;
}

static inline void join(struct worker *worker) {
    MUST(pthread_join(worker->thread, NULL) == 0);
    close(worker->in[0]), close(worker->in[1]), close(worker->out[0]), close(worker->out[1]);
}

// -- what workers do

static inline void sleeper(struct worker *worker) {
    begin();
    for (int i = 0; i < 5; i++)
        nap();
    end();
    nap(); // V8
    (void)worker;
}

static inline void waits(struct worker *worker) {
    begin();
    hear(worker);
    end();
}

static inline void works_and_waits(struct worker *worker) {
    begin();
    say(worker);
    hear(worker);
    say(worker);
    hear(worker);
    end();
}

static volatile int over, running;

static inline void hogs(struct worker *worker) {
    running++;
    while (!over) {}
    (void)worker;
}

static inline void *enables(void *unused) {
    (void)unused;
    cpus = umt_enable(fds, MOST, 0);
    return NULL;
}

// All counters, made by another thread for the whole process, and mapped.
static inline void enable_all(void) {
    pthread_t other;
    MUST(pthread_create(&other, NULL, enables, NULL) == 0 && pthread_join(other, NULL) == 0);
    CHECK(cpus == cpu_count() && cpus >= 4);
    for (int i = 0; i < cpus; i++) {
        uint64_t value;
        MUST(read(fds[i], &value, sizeof value) == -1 && errno == EAGAIN);
    }
    map_all();
}

// At first pages of this program come from the host, and are waited for. Then counts are exact.
static inline void twice(void (*all)(void)) {
    for (int round = 0; round < 2; round++) {
        warm = round == 1;
        one_kernel = warm && kernels() == 1;
        all();
    }
    for (int i = 0; i < cpus; i++) // V11
        CHECK(umt_ready(umt_look(maps[i])) == 0 && ready(i) == 0);
}
