// UMT_IDLE (docs/umt.md): only CPUs that have nothing to run, and no monitored thread that can go on there, tell.
// cob: link=static,dynamic flags=-pthread compare=self timeout=120
#include "umt.h"

static void hogs_monitored(struct worker *worker) {
    begin();
    hogs(worker);
    end();
}

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

static void all(void) {
    for (int cpu = 1; cpu < 4; cpu++)
        counts_idle(cpu);
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    move_to(0);
    MUST(umt_enable(fds, MOST, UMT_IDLE | 2) == -1 && errno == EINVAL);
    MUST((cpus = umt_enable(fds, MOST, UMT_IDLE)) == cpu_count() && cpus >= 4);
    MUST(umt_enable(fds, MOST, UMT_IDLE) == -1 && errno == EBUSY);
    map_all();
    for (int i = 0; i < cpus; i++)
        CHECK(umt_look(maps[i]) == 0 && tells(i, 0) == 0);
    // At first pages of this program come from the host, and are waited for.
    for (int round = 0; round < 2; round++) {
        one_kernel = round == 1 && kernels() == 1;
        all();
    }
    puts("ok");
}
