// SCHED_DEADLINE (man 7 sched): which reservations can be had, who may have them, what is told of them, what fork, affinity and other policies make of them, and that nobody gets
// more than he has reserved, and hears of it.
// cob: link=static,dynamic flags=-pthread timeout=120
#include "test.h"
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <time.h>

struct attr {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

enum { DEADLINE = 6, RESET = 1, RECLAIM = 2, OVERRUN = 4, KEEP_POLICY = 8, KEEP_PARAMETERS = 16 };
static const uint64_t US = 1000, MS = 1000000;

static int set(uint64_t flags, uint64_t runtime, uint64_t deadline, uint64_t period) {
    struct attr attr = {sizeof attr, DEADLINE, flags, 0, 0, runtime, deadline, period};
    return syscall(SYS_sched_setattr, 0, &attr, 0) == 0 ? 0 : errno;
}

static void normal(void) {
    struct sched_param none = {0};
    MUST(sched_setscheduler(0, SCHED_OTHER, &none) == 0);
}

static void show(const char *what, int error) {
    printf("%s: %s\n", what, error ? strerrorname_np(error) : "ok");
}

// As what follows takes more time than there may be for it.
static int tried(uint64_t runtime, uint64_t deadline, uint64_t period) {
    int error = set(0, runtime, deadline, period);
    normal();
    return error;
}


// Fields 18, 40 and 41 of /proc/self/stat: priority, real-time priority, policy.
static void stat_fields(void) {
    char text[1024];
    FILE *file = fopen("/proc/self/stat", "r");
    MUST(file && fgets(text, sizeof text, file));
    fclose(file);
    char *at = strrchr(text, ')') + 2;
    for (int field = 3; *at; field++) {
        char *end = strchr(at, ' ');
        if (end)
            *end = 0;
        if (field == 18 || field == 40 || field == 41)
            printf("field %d: %s\n", field, at);
        if (!end)
            break;
        at = end + 1;
    }
}

static void parameters(void) {
    show("runtime is too short", tried(1023, 10 * MS, 10 * MS));
    show("the shortest", tried(1024, 10 * MS, 10 * MS));
    show("runtime after deadline", tried(5 * MS, 4 * MS, 10 * MS));
    show("deadline after period", tried(5 * MS, 20 * MS, 10 * MS));
    show("no deadline", tried(5 * MS, 0, 10 * MS));
    show("no period", tried(MS, 10 * MS, 0));
    show("period is too short", tried(10 * US, 99 * US, 99 * US));
    show("the shortest period", tried(10 * US, 100 * US, 100 * US));
    show("period is too long", tried(MS, 10 * MS, 4194305 * US));
    show("the longest period", tried(MS, 10 * MS, 4194304 * US));
    show("highest bit", tried(MS, 1ull << 63, 1ull << 63));
    show("unknown flag", set(1u << 20, MS, 10 * MS, 10 * MS));
    struct attr attr = {sizeof attr, DEADLINE, 0, 0, 1, MS, 10 * MS, 10 * MS};
    show("with a priority", syscall(SYS_sched_setattr, 0, &attr, 0) ? errno : 0);
    struct sched_param param = {0};
    show("sched_setscheduler", sched_setscheduler(0, DEADLINE, &param) ? errno : 0);
}

static void told(void) {
    MUST(set(RESET | OVERRUN, 2 * MS, 8 * MS, 20 * MS) == 0);
    struct attr attr;
    MUST(syscall(SYS_sched_getattr, 0, &attr, 48, 0) == 0);
    printf("policy %u flags %lu nice %d priority %u: %lu %lu %lu\n", attr.policy, attr.flags, attr.nice, attr.priority,
           attr.runtime, attr.deadline, attr.period);
    struct sched_param param = {0};
    show("sched_setparam", sched_setparam(0, &param) ? errno : 0);
    param.sched_priority = 7;
    MUST(sched_getparam(0, &param) == 0);
    printf("scheduler %#x priority %d\n", sched_getscheduler(0), param.sched_priority);
    struct timespec interval = {1, 1};
    MUST(sched_rr_get_interval(0, &interval) == 0);
    printf("interval %ld %ld\n", interval.tv_sec, interval.tv_nsec);
    stat_fields();
    setpriority(PRIO_PROCESS, 0, 5);
    stat_fields();
    setpriority(PRIO_PROCESS, 0, 0);
    attr = (struct attr){.size = sizeof attr, .policy = SCHED_OTHER, .flags = KEEP_PARAMETERS | KEEP_POLICY};
    show("kept", syscall(SYS_sched_setattr, 0, &attr, 0) ? errno : 0);
    MUST(syscall(SYS_sched_getattr, 0, &attr, 48, 0) == 0);
    printf("policy %u flags %lu: %lu %lu %lu\n", attr.policy, attr.flags, attr.runtime, attr.deadline, attr.period);
    int child = fork();
    if (child == 0) {
        printf("a child has policy %#x\n", sched_getscheduler(0));
        fflush(stdout);
        _exit(0);
    }
    MUST(child > 0 && waitpid(child, NULL, 0) == child);
    normal();
    MUST(syscall(SYS_sched_getattr, 0, &attr, 48, 0) == 0);
    printf("policy %u: %lu %lu\n", attr.policy, attr.deadline, attr.period);
    stat_fields();
}

static void *nothing(void *unused) { return unused; }

static void children(void) {
    MUST(set(0, MS, 10 * MS, 10 * MS) == 0);
    show("fork", fork() == -1 ? errno : 0);
    pthread_t thread;
    show("pthread_create", pthread_create(&thread, NULL, nothing, NULL));
    normal();
    show("pthread_create", pthread_create(&thread, NULL, nothing, NULL));
    pthread_join(thread, NULL);
}

static void rights(void) {
    int child = fork();
    if (child == 0) {
        MUST(setgid(65534) == 0 && setuid(65534) == 0);
        show("without the right", set(0, MS, 10 * MS, 10 * MS));
        show("without the right, and nonsense", set(0, MS, 0, 0));
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

// CPUs of this kernel are less than those of the machine?
static int is_one_kernel(void) {
    FILE *file = fopen("/proc/cob/kernels", "r");
    if (!file)
        return 1;
    int lines = 0;
    for (int c; (c = getc(file)) != EOF;)
        lines += c == '\n';
    fclose(file);
    return lines == 2;
}

static void affinities(void) {
    cpu_set_t all, one;
    MUST(sched_getaffinity(0, sizeof all, &all) == 0);
    if (!is_one_kernel() || CPU_COUNT(&all) < 2)
        return;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    MUST(sched_setaffinity(0, sizeof one, &one) == 0);
    MUST(set(0, MS, 10 * MS, 10 * MS) == EPERM);
    MUST(sched_setaffinity(0, sizeof all, &all) == 0);
    MUST(set(0, MS, 10 * MS, 10 * MS) == 0);
    MUST(sched_setaffinity(0, sizeof one, &one) == -1 && errno == EBUSY);
    MUST(sched_setaffinity(0, sizeof all, &all) == 0);
    normal();
}

static pthread_barrier_t all_asked;
static int had;

static void *reserves(void *unused) {
    (void)unused;
    int error = set(0, 9 * MS, 10 * MS, 10 * MS);
    MUST(error == 0 || error == EBUSY);
    __atomic_fetch_add(&had, error == 0, __ATOMIC_SEQ_CST);
    pthread_barrier_wait(&all_asked);
    return NULL;
}

// Twice as many threads as CPUs want 90 % of one. Each round must find all of it free again; Linux frees what a thread had at the end of its period only.
static void admission(void) {
    int cpus = sysconf(_SC_NPROCESSORS_ONLN), wanted = 2 * cpus, tries = 0;
    for (int round = 0; round < 3;) {
        pthread_t threads[wanted];
        had = 0;
        pthread_barrier_init(&all_asked, NULL, wanted);
        for (int i = 0; i < wanted; i++)
            MUST(pthread_create(&threads[i], NULL, reserves, NULL) == 0);
        for (int i = 0; i < wanted; i++)
            pthread_join(threads[i], NULL);
        pthread_barrier_destroy(&all_asked);
        int right = is_one_kernel() ? had == cpus : had >= 1 && had <= cpus;
        round += right;
        if (had > cpus || (!right && ++tries > 1000)) {
            printf("%d of %d had 90 %% of a CPU, with %d CPUs\n", had, wanted, cpus);
            exit(1);
        }
    }
}

static volatile sig_atomic_t overruns;

static void overrun(int signal) {
    (void)signal;
    overruns++;
}

static double seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

// A tenth of a CPU, until it has been used up ten times.
static void budget(void) {
    signal(SIGXCPU, overrun);
    MUST(set(OVERRUN, 2 * MS, 20 * MS, 20 * MS) == 0);
    double began = seconds(CLOCK_MONOTONIC), used = seconds(CLOCK_THREAD_CPUTIME_ID);
    while (overruns < 10)
        ;
    began = seconds(CLOCK_MONOTONIC) - began;
    used = seconds(CLOCK_THREAD_CPUTIME_ID) - used;
    if (used > began / 2) {
        printf("used %f s of %f\n", used, began);
        exit(1);
    }
    // Who yields has nothing left in this period, and hears of nothing.
    MUST(set(0, 5 * MS, 20 * MS, 20 * MS) == 0);
    overruns = 0;
    began = seconds(CLOCK_MONOTONIC);
    for (int i = 0; i < 5; i++)
        MUST(sched_yield() == 0);
    normal();
    if (seconds(CLOCK_MONOTONIC) - began < 0.06) {
        printf("five periods of 20 ms are over too soon\n");
        exit(1);
    }
    MUST(overruns == 0);
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    parameters();
    normal();
    // A slow machine may take longer for these calls than was reserved.
    signal(SIGXCPU, SIG_IGN);
    told();
    children();
    rights();
    affinities();
    admission();
    budget();
    printf("done\n");
    return 0;
}
