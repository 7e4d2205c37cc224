// Between two CPUs, which on Cob are two kernels.
#include "micro.h"
#include <linux/futex.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#define SIXTEEN_MIB (16 * 256L)

// To CPU 1 and back; both have been visited.
static uint64_t migrate_visited(long n) {
    stay_on(1);
    stay_on(0);
    uint64_t start = now();
    for (long i = 0; i < n; i++) {
        stay_on(1);
        stay_on(0);
    }
    return now() - start;
}

// To CPU 1, where this process has never been, and back.
static uint64_t migrate_first(long n) {
    uint64_t sum = 0;
    for (long i = 0; i < n; i++) {
        int ends[2];
        MUST(!pipe(ends));
        pid_t child = fork();
        MUST(child >= 0);
        if (!child) {
            uint64_t start = now();
            stay_on(1);
            stay_on(0);
            uint64_t time = now() - start;
            MUST(write(ends[1], &time, sizeof time) == sizeof time);
            _exit(0);
        }
        uint64_t time;
        MUST(read(ends[0], &time, sizeof time) == sizeof time && waitpid(child, NULL, 0) == child);
        close(ends[0]);
        close(ends[1]);
        sum += time;
    }
    return sum;
}

// Turns before the clock starts: until both are where they belong, have their pages, and idle CPUs know what to expect.
#define WARM_TURNS 64

// Two threads in turns, by futex: the word says whose turn it is.
struct rally {
    int word;
    long n;
};

static void take_turns(struct rally *rally, int mine, long n) {
    for (long i = 0; i < n; i++) {
        while (__atomic_load_n(&rally->word, __ATOMIC_ACQUIRE) != mine)
            syscall(SYS_futex, &rally->word, FUTEX_WAIT_PRIVATE, !mine, NULL, NULL, 0);
        __atomic_store_n(&rally->word, !mine, __ATOMIC_RELEASE);
        syscall(SYS_futex, &rally->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    }
}

struct partner {
    int cpu;
    void *argument;
};

static void *futex_partner(void *argument) {
    struct partner *partner = argument;
    stay_on(partner->cpu);
    struct rally *rally = partner->argument;
    take_turns(rally, 1, WARM_TURNS + rally->n);
    return NULL;
}

static uint64_t futex_rally(long n, int cpu) {
    struct rally rally = {1, n};
    struct partner partner = {cpu, &rally};
    pthread_t thread;
    MUST(!pthread_create(&thread, NULL, futex_partner, &partner));
    // The partner's first turn is over when it is here.
    while (__atomic_load_n(&rally.word, __ATOMIC_ACQUIRE) != 0)
        sched_yield();
    take_turns(&rally, 0, WARM_TURNS);
    uint64_t start = now();
    take_turns(&rally, 0, n);
    uint64_t time = now() - start;
    MUST(!pthread_join(thread, NULL));
    return time;
}

static uint64_t futex_one(long n) { return futex_rally(n, 0); }
static uint64_t futex_two(long n) { return futex_rally(n, 1); }

// A byte there and back between two processes.
static uint64_t byte_rally(long n, int cpu, int here[2], int there[2]) {
    pid_t child = fork();
    char byte = 1;
    MUST(child >= 0);
    if (!child) {
        stay_on(cpu);
        for (long i = 0; i < WARM_TURNS + n; i++)
            MUST(read(there[0], &byte, 1) == 1 && write(here[1], &byte, 1) == 1);
        _exit(0);
    }
    for (long i = 0; i < WARM_TURNS; i++)
        MUST(write(there[1], &byte, 1) == 1 && read(here[0], &byte, 1) == 1);
    uint64_t start = now();
    for (long i = 0; i < n; i++)
        MUST(write(there[1], &byte, 1) == 1 && read(here[0], &byte, 1) == 1);
    uint64_t time = now() - start;
    MUST(waitpid(child, NULL, 0) == child);
    return time;
}

static uint64_t pipe_rally(long n, int cpu) {
    int here[2], there[2];
    MUST(!pipe(here) && !pipe(there));
    uint64_t time = byte_rally(n, cpu, here, there);
    for (int end = 0; end < 2; end++) {
        close(here[end]);
        close(there[end]);
    }
    return time;
}

uint64_t pipe_one(long n) { return pipe_rally(n, 0); }
static uint64_t pipe_two(long n) { return pipe_rally(n, 1); }

static uint64_t socket_rally(long n, int cpu) {
    int ends[2];
    MUST(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    int here[2] = {ends[0], ends[1]}, there[2] = {ends[1], ends[0]};
    uint64_t time = byte_rally(n, cpu, here, there);
    close(ends[0]);
    close(ends[1]);
    return time;
}

static uint64_t socket_one(long n) { return socket_rally(n, 0); }
static uint64_t socket_two(long n) { return socket_rally(n, 1); }

// An eventfd wakes a thread that waits in epoll, which answers through another one.
struct bells {
    int there, back;
    long n;
};

static void answer_bells(struct bells *bells) {
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    MUST(epoll >= 0 && !epoll_ctl(epoll, EPOLL_CTL_ADD, bells->there, &event));
    uint64_t count;
    for (long i = 0; i < WARM_TURNS + bells->n; i++) {
        MUST(epoll_wait(epoll, &event, 1, -1) == 1);
        MUST(read(bells->there, &count, sizeof count) == sizeof count);
        MUST(write(bells->back, &count, sizeof count) == sizeof count);
    }
    close(epoll);
}

static void *bells_partner(void *argument) {
    struct partner *partner = argument;
    stay_on(partner->cpu);
    answer_bells(partner->argument);
    return NULL;
}

static uint64_t epoll_rally(long n, int cpu) {
    struct bells bells = {eventfd(0, 0), eventfd(0, 0), n};
    struct partner partner = {cpu, &bells};
    pthread_t thread;
    MUST(bells.there >= 0 && bells.back >= 0 && !pthread_create(&thread, NULL, bells_partner, &partner));
    uint64_t count = 1, start = 0;
    for (long i = 0; i < WARM_TURNS + n; i++) {
        if (i == WARM_TURNS)
            start = now();
        MUST(write(bells.there, &count, sizeof count) == sizeof count);
        MUST(read(bells.back, &count, sizeof count) == sizeof count);
    }
    uint64_t time = now() - start;
    MUST(!pthread_join(thread, NULL));
    close(bells.there);
    close(bells.back);
    return time;
}

static uint64_t epoll_one(long n) { return epoll_rally(n, 0); }
static uint64_t epoll_two(long n) { return epoll_rally(n, 1); }

// 16 MiB touched from CPU 1.
struct touch {
    char *at;
    uint64_t time;
};

static void touch_write(void *argument) {
    struct touch *touch = argument;
    uint64_t start = now();
    write_pages(touch->at, SIXTEEN_MIB);
    touch->time = now() - start;
}

static void touch_read(void *argument) {
    struct touch *touch = argument;
    uint64_t start = now();
    read_pages(touch->at, SIXTEEN_MIB);
    touch->time = now() - start;
}

static uint64_t touch_across(long n, int present, void (*how)(void *), int again) {
    uint64_t sum = 0;
    struct helper helper;
    helper_start(&helper, 1);
    for (long i = 0; i < n; i++) {
        struct touch touch = {fresh_pages(SIXTEEN_MIB), 0};
        if (present)
            write_pages(touch.at, SIXTEEN_MIB);
        if (again)
            helper_do(&helper, how, &touch);
        helper_do(&helper, how, &touch);
        sum += touch.time;
        MUST(!munmap(touch.at, SIXTEEN_MIB * PAGE));
    }
    helper_end(&helper);
    return sum;
}

static uint64_t touch_present(long n) { return touch_across(n, 1, touch_read, 0); }
static uint64_t touch_present_write(long n) { return touch_across(n, 1, touch_write, 0); }
static uint64_t touch_again(long n) { return touch_across(n, 1, touch_read, 1); }
static uint64_t touch_fresh(long n) { return touch_across(n, 0, touch_write, 0); }

// A page that CPU 0 has written, read by CPU 1 for the first time: regions of a page each, so far apart that nobody takes them for a run.
#define LONE_PAGES 64
#define LONE_APART 64L

struct lone {
    char *pages[LONE_PAGES];
    long count;
    uint64_t time;
};

static void touch_lone(void *argument) {
    struct lone *lone = argument;
    uint64_t start = now();
    for (long i = 0; i < lone->count; i++)
        read_pages(lone->pages[i], 1);
    lone->time = now() - start;
}

static uint64_t fault_across(long n) {
    uint64_t sum = 0;
    struct helper helper;
    helper_start(&helper, 1);
    for (long done = 0; done < n;) {
        struct lone lone = {.count = n - done < LONE_PAGES ? n - done : LONE_PAGES};
        char *at = fresh_pages(LONE_PAGES * LONE_APART);
        for (long i = 0; i < LONE_PAGES; i++) {
            lone.pages[i] = at + i * LONE_APART * PAGE;
            MUST(!munmap(lone.pages[i] + PAGE, (LONE_APART - 1) * PAGE));
            write_pages(lone.pages[i], 1);
        }
        helper_do(&helper, touch_lone, &lone);
        sum += lone.time;
        done += lone.count;
        MUST(!munmap(at, LONE_PAGES * LONE_APART * PAGE));
    }
    helper_end(&helper);
    return sum;
}

// munmap of 16 pages that CPU 1 has touched, too.
#define SHARED_REGIONS 16
#define SHARED_PAGES 16L

static void touch_regions(void *argument) {
    char **regions = argument;
    for (int i = 0; i < SHARED_REGIONS; i++)
        read_pages(regions[i], SHARED_PAGES);
}

static uint64_t munmap_regions(long n, int shared) {
    uint64_t sum = 0;
    struct helper helper;
    helper_start(&helper, 1);
    for (long done = 0; done < n;) {
        char *regions[SHARED_REGIONS];
        // Gaps, so that they stay regions of their own.
        for (int i = 0; i < SHARED_REGIONS; i++) {
            regions[i] = fresh_pages(SHARED_PAGES + 1);
            MUST(!munmap(regions[i] + SHARED_PAGES * PAGE, PAGE));
            write_pages(regions[i], SHARED_PAGES);
        }
        if (shared)
            helper_do(&helper, touch_regions, regions);
        long count = n - done < SHARED_REGIONS ? n - done : SHARED_REGIONS;
        uint64_t start = now();
        for (long i = 0; i < count; i++)
            MUST(!munmap(regions[i], SHARED_PAGES * PAGE));
        sum += now() - start;
        for (long i = count; i < SHARED_REGIONS; i++)
            munmap(regions[i], SHARED_PAGES * PAGE);
        done += count;
    }
    helper_end(&helper);
    return sum;
}

static uint64_t munmap_alone(long n) { return munmap_regions(n, 0); }
static uint64_t munmap_shared(long n) { return munmap_regions(n, 1); }

const struct row across_rows[] = {
    {"migrate there and back, both visited", migrate_visited, 2},
    {"migrate there and back, first visit", migrate_first, 2},
    {"futex ping-pong, two CPUs", futex_two, 2},
    {"futex ping-pong, one CPU", futex_one, 1},
    {"pipe ping-pong, two CPUs", pipe_two, 2},
    {"pipe ping-pong, one CPU", pipe_one, 1},
    {"unix socket ping-pong, two CPUs", socket_two, 2},
    {"unix socket ping-pong, one CPU", socket_one, 1},
    {"epoll and eventfd ping-pong, two CPUs", epoll_two, 2},
    {"epoll and eventfd ping-pong, one CPU", epoll_one, 1},
    {"16 MiB present, read from another CPU", touch_present, 2, 2},
    {"16 MiB present, written from another CPU", touch_present_write, 2, 2},
    {"16 MiB present, read again from there", touch_again, 2, 2},
    {"16 MiB fresh, written from another CPU", touch_fresh, 2, 2},
    {"remote fault of one page", fault_across, 2},
    {"munmap 16 pages, one user", munmap_alone, 2},
    {"munmap 16 pages, shared with another CPU", munmap_shared, 2},
    {0},
};
