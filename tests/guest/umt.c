// User-monitored threads (docs/umt.md): V1 to V12 of the requirements, on threads that sleep, wait for a mutex, a pipe, a page and SIGCONT, that are preempted, moved
// and end. What is mapped of the counters always says the same as what is read from them; and with UMT_IDLE only CPUs without anything to run tell. What a CPU has counted is exact where all threads are on one kernel. On several, pages that a thread touches where it has come to are waited for as
// well, so there the sums must be right.
// cob: link=static,dynamic flags=-pthread compare=self timeout=120
#include "../../include/cob/umt.h"
#include "test.h"
#include <pthread.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
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

static void fail(const char *what, int line) {
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
static int kernels(void) {
    FILE *file = fopen("/proc/cob/kernels", "r");
    MUST(file);
    int lines = 0;
    for (int c; (c = getc(file)) != EOF;)
        lines += c == '\n';
    fclose(file);
    return lines - 1;
}

static void map_all(void) {
    for (int i = 0; i < cpus; i++) {
        maps[i] = umt_map(fds[i], i);
        MUST(maps[i]);
    }
}

// What was counted, as the mapping says it.
static struct count mapped(int cpu) {
    uint64_t value = umt_since(forgotten[cpu], umt_look(maps[cpu]));
    return (struct count){.blocks = umt_blocks(value), .unblocks = umt_unblocks(value)};
}

static struct count take(int cpu) {
    uint64_t value;
    ssize_t got = read(fds[cpu], &value, sizeof value);
    MUST(got == 8 || (got == -1 && errno == EAGAIN));
    if (got == 8) {
        counted[cpu].blocks += umt_blocks(value);
        counted[cpu].unblocks += umt_unblocks(value);
    }
    return counted[cpu];
}

static struct count look(int cpu) {
    // What comes meanwhile is in the mapping first: of this CPU, and of another that has taken a thread from it.
    struct count before = mapped(cpu), now = take(cpu), after = mapped(cpu);
    CHECK(before.blocks <= now.blocks + 2 && before.unblocks <= now.unblocks + 2);
    CHECK(now.blocks <= after.blocks && now.unblocks <= after.unblocks);
    return now;
}

static long ready(int cpu) {
    struct count now = look(cpu);
    return now.unblocks - now.blocks;
}

static void forget(void) {
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
static int is(int cpu, long blocks, long unblocks) {
    struct count now = look(cpu);
    if (one_kernel)
        return now.blocks == blocks && now.unblocks == unblocks;
    return now.unblocks - now.blocks == unblocks - blocks && now.blocks >= blocks;
}

static void until(int cpu, long blocks, long unblocks) {
    for (long tries = 0; !is(cpu, blocks, unblocks); tries++) {
        CHECK(tries < 2000000);
        sched_yield();
    }
}

static void set_cpu(pid_t thread, int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    MUST(sched_setaffinity(thread, sizeof set, &set) == 0);
}

static void begin(void) { MUST(umt_control(UMT_SET, 1, NULL) == 0); }
static void end(void) { MUST(umt_control(UMT_SET, 0, NULL) == 0); }

static void nap(void) {
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

static void hear(struct worker *worker) {
    char byte;
    MUST(read(worker->in[0], &byte, 1) == 1);
}

static void say(struct worker *worker) { MUST(write(worker->out[1], "s", 1) == 1); }
static void tell(struct worker *worker) { MUST(write(worker->in[1], "t", 1) == 1); }

static void listen_to(struct worker *worker) {
    char byte;
    MUST(read(worker->out[0], &byte, 1) == 1);
}

static void *life(void *pointer) {
    struct worker *worker = pointer;
    worker->tid = (pid_t)syscall(SYS_gettid);
    worker->work(worker);
    return NULL;
}

static struct worker *start(int number, int cpu, void (*work)(struct worker *)) {
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

static void join(struct worker *worker) {
    MUST(pthread_join(worker->thread, NULL) == 0);
    close(worker->in[0]), close(worker->in[1]), close(worker->out[0]), close(worker->out[1]);
}

// -- V1, and that sleeps of all kinds count

static void sleeper(struct worker *worker) {
    begin();
    for (int i = 0; i < 5; i++)
        nap();
    end();
    nap(); // V8
    (void)worker;
}

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

// -- V3, V6: moved while it waits

static void waits(struct worker *worker) {
    begin();
    hear(worker);
    end();
}

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

static volatile int over, running;

static void hogs(struct worker *worker) {
    running++;
    while (!over) {}
    (void)worker;
}

static void hogs_monitored(struct worker *worker) {
    begin();
    hogs(worker);
    end();
}

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

static void works_and_waits(struct worker *worker) {
    begin();
    say(worker);
    hear(worker);
    say(worker);
    hear(worker);
    end();
}

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
}

// -- a leader that sleeps on all of them

static void epolled(void) {
    forget();
    int leader = epoll_create1(0);
    for (int i = 0; i < cpus; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &fds[i]};
        MUST(epoll_ctl(leader, EPOLL_CTL_ADD, fds[i], &event) == 0);
    }
    struct epoll_event events[MOST];
    MUST(epoll_wait(leader, events, MOST, 0) == 0 && epoll_wait(leader, events, MOST, 1) == 0);
    for (int cpu = 0; cpu < 4; cpu++) {
        struct worker *worker = start(0, cpu, waits);
        while (!is(cpu, 1, 1)) {
            int count = epoll_wait(leader, events, MOST, -1);
            CHECK(count == 1 && events[0].data.ptr == &fds[cpu]);
        }
        tell(worker);
        join(worker);
        CHECK(is(cpu, 2, 2));
        forget();
    }
    close(leader);
}

// -- what can be mapped, and how

static void *reads_from_afar(void *unused) {
    (void)unused;
    move_to(cpus - 1); // of the last kernel
    // Through the same mapping, and a new one.
    const struct umt_sums *own = umt_map(fds[0], 0);
    MUST(own);
    CHECK(umt_look(own) == umt_look(maps[0]));
    for (int i = 0; i < cpus; i++)
        CHECK(umt_ready(umt_look(maps[i])) == 0);
    return NULL;
}

static void mappings(void) {
    size_t bytes = sizeof(struct umt_sums) * cpus;
    MUST(mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0) == MAP_FAILED && errno == EPERM);
    void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fds[0], 0);
    MUST(map != MAP_FAILED && mprotect(map, bytes, PROT_READ | PROT_WRITE) == -1 && errno == EACCES);
    MUST(munmap(map, bytes) == 0);
    int plain = eventfd(0, 0);
    MUST(plain >= 0 && mmap(NULL, PAGE, PROT_READ, MAP_SHARED, plain, 0) == MAP_FAILED && errno == ENODEV);
    close(plain);
    for (int i = 0; i < cpus; i++)
        CHECK(maps[i]->reserved[0] == 0 && ((uintptr_t)maps[i] & 63) == 0);
    join(start(0, 0, sleeper));
    pthread_t far;
    MUST(pthread_create(&far, NULL, reads_from_afar, NULL) == 0 && pthread_join(far, NULL) == 0);
    // A child sees what its parent's threads do, and counts nothing itself.
    uint64_t before = umt_look(maps[0]);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        MUST(umt_control(UMT_SET, 1, NULL) == -1 && errno == ENXIO);
        _exit(umt_look(maps[0]) == before ? 0 : 1);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child && status == 0);
}

// -- UMT_IDLE: only CPUs with nothing to run tell. In a child with counters of its own

// The descriptor of a CPU can be read, within two seconds at most.
static int tells(int cpu, int timeout) {
    struct pollfd poll_fd = {.fd = fds[cpu], .events = POLLIN};
    int got = poll(&poll_fd, 1, timeout);
    MUST(got >= 0);
    return got;
}

// On several kernels a thread waits for pages and answers, too, before it waits for what the test means: then its CPU may tell more than once.
static void reads_one(int cpu) {
    uint64_t value = 0;
    // What was told of a wait for a page is taken back when that is over, which may be before it is read.
    while (read(fds[cpu], &value, sizeof value) != 8)
        MUST(!one_kernel && errno == EAGAIN && tells(cpu, 20000) == 1);
    MUST(value == 1);
    MUST(!one_kernel || (read(fds[cpu], &value, sizeof value) == -1 && errno == EAGAIN));
}

static void waits_twice(struct worker *worker) {
    begin();
    hear(worker);
    say(worker);
    hear(worker);
    end();
}

static void counts_idle(int cpu) {
    // The only monitored thread waits: the CPU tells, once.
    struct worker *worker = start(0, cpu, waits_twice);
    CHECK(tells(cpu, 20000) == 1);
    CHECK(!one_kernel || umt_ready(umt_look(maps[cpu])) == 0);
    reads_one(cpu);
    CHECK(!one_kernel || tells(cpu, 0) == 0);
    // It goes on, and waits again: once more. Nobody has read what was told when it goes on: it is taken back.
    tell(worker);
    listen_to(worker);
    CHECK(tells(cpu, 20000) == 1);
    tell(worker);
    join(worker);
    CHECK(umt_ready(umt_look(maps[cpu])) == 0);
    // Its end leaves the CPU without a thread, too.
    CHECK(tells(cpu, 20000) == 1);
    reads_one(cpu);
    // While a second one can go on, nothing is told of the first that waits.
    over = running = 0;
    struct worker *busy = start(1, cpu, hogs_monitored);
    while (!running)
        sched_yield();
    worker = start(0, cpu, works_and_waits);
    listen_to(worker);
    uint64_t value;
    while (umt_ready(umt_look(maps[cpu])) != 1)
        sched_yield();
    nap();
    MUST(!one_kernel || (read(fds[cpu], &value, sizeof value) == -1 && errno == EAGAIN));
    over = 1;
    join(busy);
    CHECK(tells(cpu, 20000) == 1);
    tell(worker);
    listen_to(worker);
    tell(worker);
    join(worker);
    // It is withdrawn as the thread goes on, and told anew at its end.
    CHECK(tells(cpu, 20000) == 1);
    reads_one(cpu);
}

static void idle_only(void) {
    fflush(stdout);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        MUST(umt_enable(fds, MOST, UMT_IDLE | 2) == -1 && errno == EINVAL);
        MUST(umt_enable(fds, MOST, UMT_IDLE) == cpus);
        MUST(umt_enable(fds, MOST, UMT_IDLE) == -1 && errno == EBUSY);
        map_all();
        move_to(0);
        for (int i = 0; i < cpus; i++)
            CHECK(umt_look(maps[i]) == 0 && tells(i, 0) == 0);
        for (int cpu = 1; cpu < 4; cpu++)
            counts_idle(cpu);
        _exit(0);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child && status == 0);
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

// -- what is refused

static void errors(void) {
    unsigned char was = 9;
    MUST(umt_control(UMT_SET, 1, NULL) == -1 && errno == ENXIO);
    MUST(umt_control(UMT_GET, 0, &was) == -1 && errno == ENXIO && was == 9);
    MUST(umt_control(0, 1, NULL) == -1 && errno == EINVAL);
    MUST(umt_control(4 | UMT_SET, 1, NULL) == -1 && errno == EINVAL);
    MUST(umt_control(UMT_SET, 2, NULL) == -1 && errno == EINVAL);
    MUST(umt_enable(fds, MOST, 2) == -1 && errno == EINVAL);
    MUST(umt_enable(fds, 1, 0) == -1 && errno == EINVAL);
    int next = dup(0);
    close(next);
    MUST(umt_enable((int *)8, MOST, 0) == -1 && errno == EFAULT);
    struct rlimit limit, low;
    MUST(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    low = limit, low.rlim_cur = next + 2;
    MUST(setrlimit(RLIMIT_NOFILE, &low) == 0);
    MUST(umt_enable(fds, MOST, 0) == -1 && errno == EMFILE);
    MUST(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    int again = dup(0);
    CHECK(again == next); // all that was opened is closed
    close(again);
    MUST(umt_control(UMT_SET, 1, NULL) == -1 && errno == ENXIO);
}

static void *enables(void *unused) {
    (void)unused;
    cpus = umt_enable(fds, MOST, 0);
    return NULL;
}

static void control(void) {
    unsigned char was = 9;
    MUST(umt_enable(fds, MOST, 0) == -1 && errno == EBUSY);
    MUST(umt_control(UMT_GET, 0, &was) == 0 && was == 0);
    MUST(umt_control(UMT_GET | UMT_SET, 1, (unsigned char *)8) == -1 && errno == EFAULT);
    MUST(umt_control(UMT_GET, 7, &was) == 0 && was == 0);
    MUST(umt_control(UMT_GET | UMT_SET, 1, &was) == 0 && was == 0);
    MUST(umt_control(UMT_GET | UMT_SET, 1, &was) == 0 && was == 1);
    MUST(umt_control(UMT_GET | UMT_SET, 0, &was) == 0 && was == 1);
    MUST(umt_control(UMT_GET | UMT_SET, 0, &was) == 0 && was == 0);
    for (int i = 0; i < cpus; i++) {
        MUST(fcntl(fds[i], F_GETFL) & O_NONBLOCK && fcntl(fds[i], F_GETFD) == FD_CLOEXEC);
        CHECK(ready(i) == 0);
    }
}

static void all(void) {
    for (int cpu = 0; cpu < 4; cpu++)
        single_threads(cpu);
    preemption(1);
    for (int i = 0; i < 3; i++) {
        moved_while_blocked(1, 2);
        moved_while_running(1);
    }
    if (kernels() == 1)
        moved_while_preempted();
    story(1);
    two_readers();
    epolled();
    stops();
    mappings();
    idle_only();
}

int main(int argc, char **argv) {
    if (argc > 1) { // executed: there are no counters, and new ones can be made
        MUST(umt_control(UMT_SET, 1, NULL) == -1 && errno == ENXIO);
        MUST(fcntl(atoi(argv[1]), F_GETFD) == -1 && errno == EBADF);
        MUST(umt_enable(fds, MOST, 0) == cpu_count());
        puts("ok");
        return 0;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    move_to(0);
    errors();
    pthread_t other;
    MUST(pthread_create(&other, NULL, enables, NULL) == 0 && pthread_join(other, NULL) == 0);
    CHECK(cpus == cpu_count() && cpus >= 4);
    for (int i = 0; i < cpus; i++) {
        uint64_t value;
        MUST(read(fds[i], &value, sizeof value) == -1 && errno == EAGAIN);
    }
    map_all();
    control();
    // At first pages of this program come from the host, and are waited for. Then counts are exact.
    for (int round = 0; round < 2; round++) {
        warm = round == 1;
        one_kernel = warm && kernels() == 1;
        all();
    }
    for (int i = 0; i < cpus; i++) // V11
        CHECK(umt_ready(umt_look(maps[i])) == 0 && ready(i) == 0);
    // The descriptors are closed, and nobody counts wrong for that.
    close(fds[1]);
    join(start(0, 1, sleeper));
    begin(); // still monitored as it executes a program
    char fd[16];
    snprintf(fd, sizeof fd, "%d", fds[0]);
    execl("/proc/self/exe", argv[0], fd, NULL);
    MUST(0);
}
