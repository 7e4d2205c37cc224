// What user-monitored threads cost: rows beside "pipe ping-pong, one CPU". One of the two processes is monitored, so there are a block and an unblock for each turn. And rows of others once more, by
// a monitored thread, in which nothing waits. Only where there are such threads.
#include "micro.h"
#include "../../../include/cob/umt.h"
#include <poll.h>

enum { MOST_CPUS = 64 };
static int fds[MOST_CPUS];

int has_umt(void) { return umt_enable(NULL, 0, 0) == -1 && errno != ENOSYS; }

static uint64_t while_monitored(uint64_t (*run)(long), long n, unsigned flags) {
    MUST(umt_enable(fds, MOST_CPUS, flags) > 0 || errno == EBUSY);
    MUST(!umt_control(UMT_SET, 1, NULL));
    uint64_t time = run(n);
    MUST(!umt_control(UMT_SET, 0, NULL));
    return time;
}

static uint64_t rally(long n, unsigned flags) { return while_monitored(pipe_one, n, flags); }

static uint64_t monitored(long n) { return rally(n, 0); }
static uint64_t monitored_idle(long n) { return rally(n, UMT_IDLE); }

static int over;

// The leader of a runtime, which is woken by every event.
static void *sleeper(void *unused) {
    (void)unused;
    stay_on(0);
    while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
        struct pollfd wanted = {.fd = fds[0], .events = POLLIN};
        uint64_t count;
        MUST(poll(&wanted, 1, -1) >= 0);
        MUST(read(fds[0], &count, sizeof count) == 8 || errno == EAGAIN);
    }
    return NULL;
}

static uint64_t with_sleeper(long n) {
    MUST(umt_enable(fds, MOST_CPUS, 0) > 0 || errno == EBUSY);
    over = 0;
    pthread_t thread;
    MUST(!pthread_create(&thread, NULL, sleeper, NULL));
    uint64_t time = rally(n, 0);
    __atomic_store_n(&over, 1, __ATOMIC_RELEASE);
    // It wakes up once more, for that.
    MUST(!umt_control(UMT_SET, 1, NULL) && !umt_control(UMT_SET, 0, NULL));
    MUST(!pthread_join(thread, NULL));
    return time;
}

static uint64_t looks(long n) {
    MUST(umt_enable(fds, MOST_CPUS, 0) > 0 || errno == EBUSY);
    const struct umt_sums *map = umt_map(fds[0], 0);
    MUST(map && umt_ready(umt_look(map)) == 0);
    int sum = 0;
    uint64_t start = now();
    for (long i = 0; i < n; i++)
        sum += umt_ready(umt_look(map));
    uint64_t time = now() - start;
    MUST(sum == 0);
    return time;
}

// The row of that name.
static uint64_t (*of_row(const struct row *rows, const char *name))(long) {
    while (rows->name && strcmp(rows->name, name))
        rows++;
    MUST(rows->name);
    return rows->run;
}

// It waits for nothing: the thread must have been counted once, as it asked to be.
static uint64_t nothing_waits(const struct row *rows, const char *name, long n) {
    uint64_t time = while_monitored(of_row(rows, name), n, 0), value;
    MUST(read(fds[0], &value, sizeof value) == 8);
    MUST(umt_blocks(value) == umt_unblocks(value) && umt_blocks(value) < 4 + n / 8);
    return time;
}

#define MONITORED(function, rows, name)                                                                              \
    static uint64_t function(long n) { return nothing_waits(rows, name, n); }
MONITORED(get_pid, call_rows, "getpid")
MONITORED(read_zero, call_rows, "read a byte of /dev/zero")
MONITORED(stat_path, call_rows, "stat a path")
MONITORED(pipe_byte, call_rows, "pipe, a byte in and out")
MONITORED(fault, memory_rows, "page fault, anonymous")
MONITORED(yields, process_rows, "two context switches by sched_yield")

const struct row umt_rows[] = {
    {"pipe ping-pong, one CPU, one end monitored", monitored, 1},
    {"pipe ping-pong, one CPU, one end monitored (UMT_IDLE)", monitored_idle, 1},
    {"pipe ping-pong, one CPU, one end monitored, a leader sleeps", with_sleeper, 1},
    {"look at a mapped counter", looks, 1},
    {"getpid, monitored", get_pid, 1},
    {"read a byte of /dev/zero, monitored", read_zero, 1},
    {"stat a path, monitored", stat_path, 1},
    {"pipe, a byte in and out, monitored", pipe_byte, 1},
    {"page fault, anonymous, monitored", fault, 1},
    {"two context switches by sched_yield, monitored", yields, 1},
    {0},
};
