// What a user makes the kernel keep while its threads wait: lists of poll as long as RLIMIT_NOFILE lets them be, and buffers of readers and
// writers, and what those lend to another kernel or have it keep. Some are refused, or get less; the kernel does not run out of memory,
// and nobody is ended.
// cob: link=static flags=-pthread kernels=1,4 compare=self timeout=240 options=--memory,512M
#include "test.h"
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/select.h>

#define NOBODY 54321
#define ENTRIES (1 << 16)
#define POLLERS 24
#define READERS 300
// As much as is lent for one read.
#define BUFFER (64 << 10)
// What a thread that waits takes beside its buffer, its stack included.
#define THREAD (32 << 10)

static long memory(const char *name) {
    char line[128];
    long kib = -1;
    FILE *file = fopen("/proc/meminfo", "r");
    MUST(file);
    while (kib < 0 && fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0)
            kib = atol(line + strlen(name));
    fclose(file);
    return kib * 1024;
}

// A sixteenth of a kernel's memory: what buffers for transfers may take there.
static long for_buffers(void) {
    char line[512];
    int kernels = -1;
    FILE *file = fopen("/proc/cob/kernels", "r");
    MUST(file);
    while (fgets(line, sizeof line, file))
        kernels++;
    fclose(file);
    return memory("MemTotal:") / kernels / 16;
}

static void start(void *(*run)(void *), void *argument, pthread_t *thread) {
    pthread_attr_t small;
    MUST(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, 32 << 10) == 0);
    MUST(pthread_create(thread, &small, run, argument) == 0);
}

static pid_t ids[READERS];

// Waits until /proc says that so many threads sleep.
static void until_asleep(int wanted, volatile int *gone) {
    for (;;) {
        int asleep = 0;
        for (int at = 0; at < wanted; at++)
            asleep += state_letter(getpid(), ids[at]) == 'S';
        if (asleep + *gone >= wanted)
            return;
        usleep(1000);
    }
}

static volatile int refused;
static int event;

static void *polls(void *list) {
    static int next;
    ids[__atomic_fetch_add(&next, 1, __ATOMIC_SEQ_CST)] = gettid();
    int found = poll(list, ENTRIES, -1);
    if (found < 0 && errno == ENOMEM)
        __atomic_fetch_add(&refused, 1, __ATOMIC_SEQ_CST);
    else
        MUST(found == ENTRIES);
    return NULL;
}

static void lists(void) {
    pthread_t threads[POLLERS];
    struct pollfd *list = mmap(NULL, ENTRIES * sizeof *list, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(list != MAP_FAILED && (event = eventfd(0, 0)) >= 0);
    for (int at = 0; at < ENTRIES; at++)
        list[at] = (struct pollfd){event, POLLIN, 0};
    for (int at = 0; at < POLLERS; at++)
        start(polls, list, &threads[at]);
    until_asleep(POLLERS, &refused);
    MUST(refused > 0 && refused < POLLERS);
    MUST(eventfd_write(event, 1) == 0);
    for (int at = 0; at < POLLERS; at++)
        MUST(pthread_join(threads[at], NULL) == 0);
    // A single one has room again, and few entries always.
    MUST(poll(list, ENTRIES, 0) == ENTRIES && poll(list, 1000, 0) == 1000);
    munmap(list, ENTRIES * sizeof *list);
    printf("lists\n");
}

static int ends[2];
static char *shared;
static volatile long received;

// Threads in the kernel of the last CPU wait for a file of the first.
static void wait_there(const char *what, void *(*waits)(void *), pthread_t *threads) {
    int none = 0;
    move_to(cpu_count() - 1);
    long before = memory("MemFree:");
    for (int at = 0; at < READERS; at++)
        start(waits, &ids[at], &threads[at]);
    until_asleep(READERS, &none);
    // The heap takes a little more than it gives.
    long kept = before - memory("MemFree:"), most = for_buffers() * 5 / 4 + READERS * (long)THREAD;
    if (kept > most)
        printf("%s: %ld KiB are kept, at most %ld expected\n", what, kept >> 10, most >> 10);
    MUST(kept <= most);
}

static void *reads(void *id) {
    *(pid_t *)id = gettid();
    ssize_t got = read(ends[0], shared, BUFFER);
    MUST(got > 0);
    __atomic_fetch_add(&received, got, __ATOMIC_SEQ_CST);
    return NULL;
}

static void readers(void) {
    static pthread_t threads[READERS];
    MUST(pipe(ends) == 0);
    received = 0;
    wait_there("readers", reads, threads);
    // A byte for each.
    for (long sent = 1; sent <= READERS; sent++) {
        MUST(write(ends[1], "x", 1) == 1);
        while (received < sent)
            sched_yield();
    }
    for (int at = 0; at < READERS; at++)
        MUST(pthread_join(threads[at], NULL) == 0);
    MUST(received == READERS);
    close(ends[0]), close(ends[1]);
    move_to(0);
    printf("readers\n");
}

static void *writes(void *id) {
    *(pid_t *)id = gettid();
    MUST(write(ends[1], shared, BUFFER) == -1 && errno == EIO);
    return NULL;
}

// Of a terminal that nobody reads.
static void writers(void) {
    static pthread_t threads[READERS];
    MUST((ends[0] = posix_openpt(O_RDWR | O_NOCTTY)) >= 0 && unlockpt(ends[0]) == 0);
    MUST((ends[1] = open(ptsname(ends[0]), O_RDWR | O_NOCTTY | O_NONBLOCK)) >= 0);
    while (write(ends[1], shared, 1000) > 0)
        continue;
    MUST(errno == EAGAIN && fcntl(ends[1], F_SETFL, 0) == 0);
    wait_there("writers", writes, threads);
    close(ends[0]);
    for (int at = 0; at < READERS; at++)
        MUST(pthread_join(threads[at], NULL) == 0);
    close(ends[1]);
    move_to(0);
    printf("writers\n");
}

// As many files as fs.epoll.max_user_watches says, in as many epolls as that takes; those of another process count, too.
static void watches(void) {
    enum { FILES = 500, EPOLLS = 1000 };
    static int files[FILES], epolls[EPOLLS];
    FILE *file = fopen("/proc/sys/fs/epoll/max_user_watches", "r");
    long most, made = 0;
    MUST(file && fscanf(file, "%ld", &most) == 1);
    fclose(file);
    MUST(most > 1000 && most < FILES * EPOLLS);
    for (int at = 0; at < FILES; at++)
        MUST((files[at] = dup(event)) >= 0);
    struct epoll_event in = {.events = EPOLLIN};
    int at = 0;
    for (int epoll = 0;; epoll++) {
        MUST((epolls[epoll] = epoll_create1(0)) >= 0);
        for (at = 0; at < FILES && epoll_ctl(epolls[epoll], EPOLL_CTL_ADD, files[at], &in) == 0; at++)
            made++;
        if (at < FILES)
            break;
    }
    MUST(errno == ENOSPC && made == most);
    MUST(epoll_ctl(epolls[0], EPOLL_CTL_ADD, files[0], &in) == -1 && errno == EEXIST);
    MUST(epoll_ctl(epolls[0], EPOLL_CTL_MOD, files[0], &in) == 0);
    IN_CHILD("a child", {
        int own = epoll_create1(0);
        MUST(epoll_ctl(own, EPOLL_CTL_ADD, files[0], &in) == -1 && errno == ENOSPC);
    });
    MUST(epoll_ctl(epolls[0], EPOLL_CTL_DEL, files[0], &in) == 0);
    MUST(epoll_ctl(epolls[0], EPOLL_CTL_ADD, files[0], &in) == 0);
    for (int epoll = 0; epolls[epoll] > 0; epoll++)
        close(epolls[epoll]);
    int own = epoll_create1(0);
    MUST(epoll_ctl(own, EPOLL_CTL_ADD, files[0], &in) == 0);
    printf("watches\n");
}

int main(void) {
    struct rlimit files = {1 << 20, 1 << 20}, more = {1 << 20, (1 << 20) + 1}, now;
    MUST(setrlimit(RLIMIT_NOFILE, &files) == 0);
    MUST(setrlimit(RLIMIT_NOFILE, &more) == -1 && errno == EPERM);
    MUST(prlimit(0, RLIMIT_NOFILE, &more, &now) == -1 && errno == EPERM);
    MUST(prlimit(0, RLIMIT_NOFILE, NULL, &now) == 0 && now.rlim_max == 1 << 20);
    MUST(setresuid(NOBODY, NOBODY, NOBODY) == 0);
    lists();
    shared = mmap(NULL, BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    MUST(shared != MAP_FAILED);
    readers();
    writers();
    watches();
    printf("ok\n");
    return 0;
}
