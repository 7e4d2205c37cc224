// User-monitored threads (docs/umt.md): V1 to V12 of the requirements, on threads that sleep, wait for a mutex, a pipe, a page and SIGCONT, that are preempted, moved
// and end. What is mapped of the counters always says the same as what is read from them.
// cob: link=static,dynamic flags=-pthread compare=self timeout=120
#include "umt.h"

// -- V1, and that sleeps of all kinds count

static void ends_active(struct worker *worker) {
    begin();
    (void)worker;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void locks(struct worker *worker) {
    begin();
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    end();
    (void)worker;
}

static void faults(struct worker *worker) {
    int fd = open("/usr/bin/perl", O_RDONLY);
    struct stat about;
    MUST(fd >= 0 && fstat(fd, &about) == 0);
    volatile char *map = mmap(NULL, about.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    MUST(map != MAP_FAILED);
    int sum = 0;
    begin();
    // A part that no CPU has read before.
    long part = about.st_size / 4;
    for (long at = part * worker->cpu; at < part * (worker->cpu + 1); at += 8 * PAGE)
        sum += map[at];
    end();
    (void)sum;
}

static void single_threads(int cpu) {
    forget();
    join(start(0, cpu, sleeper));
    CHECK(is(cpu, 6, 6));
    forget();
    join(start(0, cpu, ends_active)); // V7
    until(cpu, 1, 1); // pthread_join hears of the end a moment before
    forget();
    MUST(pthread_mutex_lock(&mutex) == 0);
    struct worker *worker = start(0, cpu, locks);
    until(cpu, 1, 1);
    MUST(pthread_mutex_unlock(&mutex) == 0);
    join(worker);
    CHECK(is(cpu, 2, 2));
    forget();
    join(start(0, cpu, faults));
    struct count now = look(cpu);
    CHECK(now.blocks == now.unblocks && now.blocks >= 1 + !warm);
}

// -- V2: who takes the CPU from whom is not told

static volatile int preempted[2]; // often

static void computes(struct worker *worker) {
    struct rusage usage;
    begin();
    do {
        for (volatile int i = 0; i < 10000000; i++) {}
        MUST(getrusage(RUSAGE_THREAD, &usage) == 0);
        if (usage.ru_nivcsw >= 5)
            preempted[worker - workers] = 1;
    } while (!preempted[0] || !preempted[1]);
    end();
}

static void preemption(int cpu) {
    forget();
    struct worker *first = start(0, cpu, computes), *second = start(1, cpu, computes);
    join(first), join(second);
    CHECK(is(cpu, 2, 2));
}

// -- who hears of a CPU there has its turn, though the thread that it hears of goes on computing there

static void naps_and_hogs(struct worker *worker) {
    begin();
    nap();
    hogs(worker);
    end();
}

static void heard_beside_a_hog(int cpu) {
    move_to(cpu);
    forget();
    over = 0;
    struct worker *worker = start(0, cpu, naps_and_hogs);
    // The second is that the nap is over.
    while (take(cpu).unblocks < 2)
        MUST(poll(&(struct pollfd){.fd = fds[cpu], .events = POLLIN}, 1, -1) == 1);
    over = 1;
    join(worker);
    move_to(0);
    CHECK(is(cpu, 2, 2));
}

// -- V3, V6: moved while it waits

static void moved_while_blocked(int from, int to) {
    forget();
    struct worker *worker = start(0, from, waits);
    until(from, 1, 1);
    set_cpu(worker->tid, to);
    nap();
    CHECK(is(from, 1, 1) && ready(to) == 0);
    tell(worker);
    join(worker);
    CHECK(is(from, 1, 1) && is(to, 1, 1));
}

// -- V4: it goes by itself

static void goes(struct worker *worker) {
    begin();
    set_cpu(0, worker->cpu + 1);
    MUST(sched_getcpu() == worker->cpu + 1);
    hear(worker);
    end();
}

static void moved_while_running(int cpu) {
    forget();
    struct worker *worker = start(0, cpu, goes);
    until(cpu + 1, 1, 1);
    CHECK(is(cpu, 1, 1));
    tell(worker);
    join(worker);
    CHECK(is(cpu, 1, 1) && is(cpu + 1, 2, 2));
}

// -- V5, V6: moved while it waits for a CPU, by way of one that it never has

static void real_time(pid_t thread) {
    struct sched_param first = {.sched_priority = 10};
    MUST(sched_setscheduler(thread, SCHED_FIFO, &first) == 0);
}

static void computes_and_waits(struct worker *worker) {
    begin();
    say(worker);
    while (sched_getcpu() == worker->cpu) {}
    hear(worker);
    end();
}

static void moved_while_preempted(void) {
    forget();
    set_cpu(0, 3);
    real_time(0); // it must go on where the others are
    struct worker *worker = start(0, 0, computes_and_waits);
    struct sched_param ordinary = {0};
    listen_to(worker);
    MUST(sched_setscheduler(worker->tid, SCHED_OTHER, &ordinary) == 0);
    over = running = 0;
    struct worker *hog[2] = {start(1, 0, hogs), start(2, 1, hogs)};
    while (running < 2)
        sched_yield();
    CHECK(is(0, 0, 1));
    set_cpu(worker->tid, 1);
    set_cpu(worker->tid, 2);
    until(2, 1, 1); // it has come, and waits for the pipe
    CHECK(is(0, 1, 1) && is(1, 0, 0));
    over = 1;
    tell(worker);
    join(worker), join(hog[0]), join(hog[1]);
    CHECK(is(2, 2, 2));
    MUST(sched_setscheduler(0, SCHED_OTHER, &ordinary) == 0);
    set_cpu(0, 0);
}

// -- V9: the story of figure 3.4 on one CPU

static void story(int cpu) {
    forget();
    struct worker *first = start(0, cpu, works_and_waits);
    listen_to(first);
    until(cpu, 1, 1); // T1: it was ready, T2: it waits
    struct worker *second = start(1, cpu, computes_and_waits);
    listen_to(second);
    for (long tries = 0; ready(cpu) != 1; tries++) // T3: another has its CPU
        CHECK(tries < 2000000);
    tell(first); // T4: both are ready, at least until the first waits again
    listen_to(first);
    for (long tries = 0; ready(cpu) != 1; tries++) // T5, T6
        CHECK(tries < 2000000);
    set_cpu(second->tid, cpu + 1);
    tell(first), tell(second);
    join(first), join(second);
    CHECK(ready(cpu) == 0 && ready(cpu + 1) == 0);
}

// -- V10: two readers share what is counted

static long sums[2][2];

static void *reads(void *pointer) {
    long *sum = pointer;
    while (!over) {
        uint64_t value;
        if (read(fds[1], &value, sizeof value) == 8)
            sum[0] += umt_blocks(value), sum[1] += umt_unblocks(value);
    }
    return NULL;
}

static void two_readers(void) {
    forget();
    over = 0;
    memset(sums, 0, sizeof sums);
    pthread_t readers[2];
    for (int i = 0; i < 2; i++)
        MUST(pthread_create(&readers[i], NULL, reads, sums[i]) == 0);
    join(start(0, 1, sleeper));
    over = 1;
    for (int i = 0; i < 2; i++)
        MUST(pthread_join(readers[i], NULL) == 0);
    struct count left = take(1);
    struct count all = mapped(1);
    long blocks = left.blocks + sums[0][0] + sums[1][0], unblocks = left.unblocks + sums[0][1] + sums[1][1];
    CHECK(blocks == unblocks && (one_kernel ? blocks == 6 : blocks >= 6));
    CHECK(all.blocks == blocks && all.unblocks == unblocks);
    forget(); // what they have read is not in `counted`
}

// -- stops, in a child with counters of its own

// 0: the stop was counted; 1: it was over before the thread could wait; 2: neither.
static int stop_in_child(void) {
    fflush(stdout);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        unsigned char was = 9;
        // The parent's counters are not the child's, though it has their descriptors.
        MUST(umt_control(UMT_GET, 0, &was) == -1 && errno == ENXIO && was == 9);
        MUST(umt_enable(fds, MOST, 0) == cpus);
        map_all();
        memset(counted, 0, sizeof counted);
        memset(forgotten, 0, sizeof forgotten);
        move_to(0);
        begin();
        kill(getpid(), SIGSTOP);
        end();
        _exit(is(0, 2, 2) ? 0 : is(0, 1, 1) ? 1 : 2);
    }
    int status;
    MUST(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
    kill(child, SIGCONT);
    MUST(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void stops(void) {
    int result = 1;
    for (int tries = 0; result == 1; tries++) {
        CHECK(tries < 100);
        result = stop_in_child();
    }
    CHECK(result == 0);
}

static void all(void) {
    for (int cpu = 0; cpu < 4; cpu++)
        single_threads(cpu);
    preemption(1);
    heard_beside_a_hog(1);
    for (int i = 0; i < 3; i++) {
        moved_while_blocked(1, 2);
        moved_while_running(1);
    }
    if (kernels() == 1)
        moved_while_preempted();
    story(1);
    two_readers();
    stops();
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    move_to(0);
    enable_all();
    twice(all);
    // The descriptors are closed, and nobody counts wrong for that.
    close(fds[1]);
    join(start(0, 1, sleeper));
    puts("ok");
}
