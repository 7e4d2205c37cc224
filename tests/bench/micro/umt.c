// What user-monitored threads cost: rows beside "pipe ping-pong, one CPU". One of the two processes is monitored, so there are a block and an unblock for each turn.
// Only where there are such threads.
#include "micro.h"
#include "../../../include/cob/umt.h"
#include <poll.h>

enum { MOST_CPUS = 64 };
static int fds[MOST_CPUS];

int has_umt(void) { return umt_enable(NULL, 0, 0) == -1 && errno != ENOSYS; }

static uint64_t rally(long n, unsigned flags) {
    MUST(umt_enable(fds, MOST_CPUS, flags) > 0 || errno == EBUSY);
    MUST(!umt_control(UMT_SET, 1, NULL));
    uint64_t time = pipe_one(n);
    MUST(!umt_control(UMT_SET, 0, NULL));
    return time;
}

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

const struct row umt_rows[] = {
    {"pipe ping-pong, one CPU, one end monitored", monitored, 1},
    {"pipe ping-pong, one CPU, one end monitored (UMT_IDLE)", monitored_idle, 1},
    {"pipe ping-pong, one CPU, one end monitored, a leader sleeps", with_sleeper, 1},
    {"look at a mapped counter", looks, 1},
    {0},
};
