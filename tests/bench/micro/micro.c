// `cob bench micro`: what single operations cost. The same static binary is /init of the same initramfs on Cob and on Linux.
//
// Prints a line for each row, `ROW nanoseconds operations messages name` (or `COUNTED operations name`, see count), and `BENCH-END`. Messages are those that the
// kernels of a Cob machine sent each other for one operation (from /proc/cob/messages), without what prepares it; - elsewhere.
#include "micro.h"
#include <stdbool.h>
#include <sys/mount.h>

// A row is measured over about this time, after a warm-up.
#define LONG_ENOUGH 60000000
#define WARM_UP 15000000
#define MOST_OPERATIONS 1000000
// Operations whose messages are counted, at most: looking costs much more than most of them.
#define MOST_COUNTED 256
// Operations whose instructions are counted, and those before them.
#define COUNTED 64
#define COUNTED_WARM 8

int counts_all_cpus, counts_messages;
// Shared with the children of rows that measure in a child.
static long *messages_counted;
static __thread long messages_before, messages_for_a_look;

static void *helper_main(void *argument) {
    struct helper *helper = argument;
    stay_on(helper->cpu);
    sem_post(&helper->done);
    for (;;) {
        while (sem_wait(&helper->start))
            ;
        if (!helper->task)
            return NULL;
        helper->task(helper->argument);
        sem_post(&helper->done);
    }
}

void helper_start(struct helper *helper, int cpu) {
    helper->cpu = cpu;
    sem_init(&helper->start, 0, 0);
    sem_init(&helper->done, 0, 0);
    MUST(!pthread_create(&helper->thread, NULL, helper_main, helper));
    while (sem_wait(&helper->done))
        ;
}

void helper_do(struct helper *helper, void (*task)(void *), void *argument) {
    helper->task = task;
    helper->argument = argument;
    sem_post(&helper->start);
    while (sem_wait(&helper->done))
        ;
}

void helper_end(struct helper *helper) {
    helper->task = NULL;
    sem_post(&helper->start);
    MUST(!pthread_join(helper->thread, NULL));
}

// Messages sent by all kernels so far, or -1.
static long messages(void) {
    char text[65536];
    int fd = open("/proc/cob/messages", O_RDONLY);
    if (fd < 0)
        return -1;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    text[length > 0 ? length : 0] = 0;
    long sum = 0, kernel, sent;
    for (char *line = strchr(text, '\n'); line; line = strchr(line + 1, '\n')) {
        // The table of kernels ends with the first line that is none of it.
        if (sscanf(line, "\n%ld %ld", &kernel, &sent) != 2)
            break;
        sum += sent;
    }
    return sum;
}

// What looking costs is taken off, and known from one look to the next; the first from a CPU or in a process costs more.
void messages_begin(void) {
    messages();
    long first = messages();
    messages_before = messages();
    messages_for_a_look = messages_before - first;
}

void messages_end(void) { *messages_counted += messages() - messages_before - messages_for_a_look; }

// Messages of one operation, or -1.
static double count_messages(const struct row *row, long n) {
    if (messages() < 0)
        return -1;
    messages_counted = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(messages_counted != MAP_FAILED);
    n = n < MOST_COUNTED ? n : MOST_COUNTED;
    counts_messages = 1;
    row->run(n);
    counts_messages = 0;
    return (double)*messages_counted / n;
}

// Runs a row and adds what its preparations took.
static uint64_t run(const struct row *row, long n, uint64_t *whole) {
    uint64_t start = clock_now(), time = row->run(n);
    *whole = clock_now() - start;
    return time;
}

static void measure(const struct row *row) {
    long n = 1;
    uint64_t whole, time;
    // Where code is translated (TCG), the first time says nothing.
    run(row, n, &whole);
    time = run(row, n, &whole);
    while (time < WARM_UP && whole < LONG_ENOUGH && n < MOST_OPERATIONS) {
        // Twice as many until the time says something, then as many as it says.
        n = time < WARM_UP / 8 ? n * 4 : n * 2;
        time = run(row, n, &whole);
    }
    double scale = (double)LONG_ENOUGH / time, most = 3.0 * LONG_ENOUGH / whole;
    double wanted = n * (scale < most ? scale : most);
    n = wanted < 1 ? 1 : wanted > MOST_OPERATIONS ? MOST_OPERATIONS : wanted;
    time = row->run(n);
    double counted = count_messages(row, n);
    printf("ROW %.1f %ld ", (double)time / n, n);
    if (counted < 0)
        printf("- %s\n", row->name);
    else
        printf("%.2f %s\n", counted, row->name);
    fflush(stdout);
}

// Always the same operations, whatever time they take.
static void count(const struct row *row) {
    long n = row->counted ? row->counted : COUNTED;
    counts_all_cpus = row->cpus > 1;
    row->run(COUNTED_WARM < n ? COUNTED_WARM : n);
    MARK(MARK_BEGIN);
    row->run(n);
    MARK(MARK_END);
    printf("COUNTED %ld %s\n", n, row->name);
    fflush(stdout);
}

// Whether one of the words, if there are any, is part of the name.
static int picked(const char *name, char **words) {
    char **word = words;
    while (*word && !strstr(name, *word))
        word++;
    return !*words || *word;
}

static void run_rows(const struct row *row, char **only, void (*measure)(const struct row *)) {
    int cpus = sysconf(_SC_NPROCESSORS_ONLN);
    for (; row->name; row++) {
        if (row->cpus > cpus || !picked(row->name, only))
            continue;
        fflush(stdout);
        pid_t child = fork();
        MUST(child >= 0);
        if (!child) {
            measure(row);
            exit(0);
        }
        int status;
        MUST(waitpid(child, &status, 0) == child);
        if (status)
            printf("FAILED %s: status %#x\n", row->name, status);
    }
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "exit"))
        _exit(0);
    // Started by hand in a system that runs already, it must not mount over what is there.
    int first = getpid() <= 2 && access("/proc/self", F_OK);
    if (first) {
        MUST(!mount("proc", "/proc", "proc", 0, NULL));
        MUST(!mount("dev", "/dev", "devtmpfs", 0, NULL));
        MUST(!mount("tmp", "/tmp", "tmpfs", 0, NULL));
    }
    stay_on(0);
    // `count`, or nothing, then parts of names in which + stands for a space.
    bool counting = argc > 1 && !strcmp(argv[1], "count");
    char **only = argv + 1 + counting;
    void (*how)(const struct row *) = counting ? count : measure;
    for (char **word = only; *word; word++)
        for (char *at = *word; *at; at++)
            if (*at == '+')
                *at = ' ';
    run_rows(across_rows, only, how);
    run_rows(memory_rows, only, how);
    run_rows(call_rows, only, how);
    run_rows(process_rows, only, how);
    if (has_umt())
        run_rows(umt_rows, only, how);
    printf("BENCH-END\n");
    fflush(stdout);
    // Linux panics when its init ends.
    while (first)
        pause();
}
