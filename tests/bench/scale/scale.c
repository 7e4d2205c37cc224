// `cob bench scale`: loops by a worker on each CPU, as threads of one process and as processes. The same static binary is /init of
// the same initramfs on Cob and on Linux; the plugin of QEMU counts what happens between the marks.
//
// Workers take turns: after every operation they say `pause`, which makes QEMU go on with the next CPU. So operations of all
// CPUs alternate as finely as they would if the CPUs ran at once.
//
// Prints `LOOP name mode rounds operations` for each loop, in the plugin's order, then `BENCH-END`.
#include "marks.h"
#include "scale.h"

#define MOST 64
#define ROUNDS 5

// What all workers see, also as processes. Each flag has a line of its own.
struct flag {
    _Atomic int value;
} __attribute__((aligned(64)));

struct shared {
    struct flag ready, go, done, common;
    struct worker workers[MOST];
};

static struct shared *shared;
static const struct loop *loop;
static int count;

static void rest(void) { __asm__ volatile("pause" ::: "memory"); }

static void stay_on(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    MUST(!sched_setaffinity(0, sizeof set, &set));
}

static void repeat(struct worker *worker, int times) {
    for (int at = 0; at < times; at++) {
        loop->once(worker);
        rest();
    }
}

static void wait_for(struct flag *flag, int value) {
    while (flag->value < value)
        rest();
}

// All are warm before the first begins to be measured, and none goes on before all have been. Several times, because a rare
// interruption shows in one of them only.
static void *work(void *argument) {
    struct worker *worker = argument;
    stay_on(worker->number);
    loop->prepare(worker);
    repeat(worker, loop->warm);
    for (int round = 1; round <= ROUNDS; round++) {
        shared->ready.value++;
        if (worker->number == 0) {
            wait_for(&shared->ready, round * count);
            MARK(MARK_BEGIN);
            shared->go.value = round;
        } else {
            wait_for(&shared->go, round);
        }
        MARK(MARK_START);
        repeat(worker, loop->count);
        MARK(MARK_STOP);
        shared->done.value++;
        wait_for(&shared->done, round * count);
        if (worker->number == 0)
            MARK(MARK_END);
    }
    return NULL;
}

static void as_threads(void) {
    pthread_t threads[MOST];
    for (int at = 0; at < count; at++)
        MUST(!pthread_create(&threads[at], NULL, work, &shared->workers[at]));
    for (int at = 0; at < count; at++)
        MUST(!pthread_join(threads[at], NULL));
}

static void as_processes(void) {
    pid_t children[MOST];
    for (int at = 0; at < count; at++) {
        children[at] = fork();
        MUST(children[at] >= 0);
        if (!children[at]) {
            work(&shared->workers[at]);
            _exit(0);
        }
    }
    for (int at = 0; at < count; at++) {
        int status;
        MUST(waitpid(children[at], &status, 0) == children[at] && !status);
    }
}

// A process for each measurement, so that all begin alike.
static void measure(bool threads) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(shared != MAP_FAILED);
    for (int at = 0; at < count; at++)
        shared->workers[at].number = at, shared->workers[at].common = (unsigned *)&shared->common.value;
    fflush(stdout);
    pid_t child = fork();
    MUST(child >= 0);
    if (!child) {
        (threads ? as_threads : as_processes)();
        _exit(0);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child && !status);
    printf("LOOP %s %s %d %d\n", loop->name, threads ? "threads" : "processes", ROUNDS, loop->count);
    fflush(stdout);
    MUST(!munmap(shared, sizeof *shared));
}

// Prints for each address the symbol before it, and for each name its address: the kernel's names, of which it has no file.
static void name(char **words) {
    FILE *file = fopen("/proc/kallsyms", "r");
    MUST(file);
    unsigned long wanted[MOST], best[MOST] = {0}, at;
    char names[MOST][64] = {0}, found[256];
    int count = 0;
    for (; words[count] && count < MOST; count++)
        wanted[count] = strtoul(words[count], NULL, 0);
    while (fscanf(file, "%lx %*s %255s%*[^\n]", &at, found) == 2)
        for (int i = 0; i < count; i++)
            if (wanted[i] ? at <= wanted[i] && at > best[i] : !strcmp(found, words[i]))
                best[i] = at, snprintf(names[i], sizeof names[i], "%.63s", found);
    for (int i = 0; i < count; i++)
        printf("SYMBOL %#lx %s\n", wanted[i] ? wanted[i] : best[i], names[i]);
    fclose(file);
}

// Linux is started with one CPU here: takes the others into use. Its first CPU waits for each without a `pause`, and with -icount QEMU 7.2
// never goes on with another then. Beside a process that does say `pause` it does.
static void start_cpus(void) {
    if ((mkdir("/sys", 0755) && errno != EEXIST) || mount("sys", "/sys", "sysfs", 0, NULL))
        return;
    pid_t resting = fork();
    MUST(resting >= 0);
    if (!resting)
        for (;;)
            rest();
    for (int at = 1; at < MOST; at++) {
        char path[64];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/online", at);
        int file = open(path, O_RDWR);
        if (file < 0)
            break;
        char is;
        MUST(read(file, &is, 1) == 1 && (is == '1' || write(file, "1", 1) == 1));
        close(file);
    }
    MUST(!kill(resting, SIGKILL) && waitpid(resting, NULL, 0) == resting);
    MUST(!umount("/sys"));
}

// Words: `names ADDRESS|NAME...`, or loops (all if there are none).
int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "exit"))
        _exit(0);
    MUST(!mount("proc", "/proc", "proc", 0, NULL) || errno == EBUSY);
    MUST(!mount("tmp", "/tmp", "tmpfs", 0, NULL));
    start_cpus();
    count = sysconf(_SC_NPROCESSORS_ONLN);
    MUST(count <= MOST);
    if (argc > 1 && !strcmp(argv[1], "names")) {
        name(argv + 2);
    } else {
        for (loop = loops; loop->name; loop++) {
            bool wanted = argc == 1;
            for (int at = 1; at < argc; at++)
                wanted = wanted || strstr(loop->name, argv[at]);
            for (int mode = 0; wanted && mode < 2; mode++)
                measure(mode == 0);
        }
    }
    printf("BENCH-END\n");
    fflush(stdout);
    // Linux panics when its init ends.
    for (;;)
        pause();
}
