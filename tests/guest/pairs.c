// Two processes that talk much come together on one kernel, through pipes and through a socket, and then stay: their moves are counted for ten seconds.
// Where an affinity keeps them apart, or they compute more than they talk, they stay where they are.
// cob: link=static kernels=4 compare=self timeout=180 shake=no
#include "test.h"
#include <sys/socket.h>

enum { FIRST = 0, LAST = 3 };

static volatile struct shared {
    int cpu[2];    // where each was at its last turn
    int moves[2];  // how often it was elsewhere than at the turn before
    int free, end; // they may go anywhere; they end
} *shared;

static double now(void) {
    struct timespec time;
    MUST(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void note_cpu(int me) {
    int cpu = sched_getcpu();
    if (cpu != shared->cpu[me]) {
        shared->cpu[me] = cpu;
        shared->moves[me]++;
    }
}

static void compute(double seconds) {
    for (double begin = now(); now() < begin + seconds;)
        ;
}

// One of a pair: passes a byte on. The first computes before it does, if that is wanted; then the second one computes meanwhile.
static void talker(int me, int input, int output, double work) {
    char byte = 0;
    move_to(me ? LAST : FIRST);
    shared->cpu[me] = sched_getcpu();
    cpu_set_t all;
    memset(&all, 0xff, sizeof all);
    int freed = 0;
    if (me == 0)
        MUST(write(output, &byte, 1) == 1);
    while (read(input, &byte, 1) == 1) {
        if (shared->free && !freed) {
            MUST(sched_setaffinity(0, sizeof all, &all) == 0);
            freed = 1;
        }
        note_cpu(me);
        if (me == 0 && shared->end)
            break;
        // Both at the same time: who works after the byte has gone.
        if (write(output, &byte, 1) != 1)
            break;
        if (work > 0)
            compute(work);
    }
    _exit(0);
}

static pid_t start(int me, const int ends[4], double work) {
    fflush(stdout);
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid)
        return pid;
    int input = me ? ends[0] : ends[2], output = me ? ends[3] : ends[1];
    for (int at = 0; at < 4; at++)
        if (ends[at] != input && ends[at] != output)
            close(ends[at]);
    talker(me, input, output, work);
    return 0;
}

static void pair(const char *name, int socket, int free, double work) {
    int ends[4], status;
    memset((void *)shared, 0, sizeof *shared);
    if (socket) {
        int both[2];
        MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, both) == 0);
        ends[0] = ends[3] = both[0], ends[1] = ends[2] = both[1];
    } else {
        MUST(pipe(ends) == 0 && pipe(ends + 2) == 0);
    }
    shared->cpu[0] = FIRST, shared->cpu[1] = LAST;
    pid_t pids[2] = {start(0, ends, work), start(1, ends, work)};
    for (int at = 0; at < (socket ? 2 : 4); at++)
        close(ends[at]);
    shared->free = free;
    double begin = now(), together = 0;
    if (free && !work) {
        while (shared->cpu[0] != shared->cpu[1])
            usleep(10000);
        together = now() - begin;
        begin = now();
        shared->moves[0] = shared->moves[1] = 0;
    }
    double watched = free && !work ? 10 : 3;
    while (now() < begin + watched)
        usleep(100000);
    int moves = shared->moves[0] + shared->moves[1], apart = shared->cpu[0] != shared->cpu[1];
    shared->end = 1;
    for (int at = 0; at < 2; at++)
        MUST(waitpid(pids[at], &status, 0) == pids[at] && status == 0);
    printf("%s: %s, %d moves%s\n", name, apart ? "apart" : "together", moves, free && !work ? " afterwards" : "");
    fprintf(stderr, "%s: together after %.2f s\n", name, together);
    int right = free && !work ? !apart && moves <= 1 : apart && moves == 0;
    if (!right) {
        puts("wrong");
        exit(1);
    }
}

int main(void) {
    MUST(cpu_count() == 4);
    shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(shared != MAP_FAILED);
    signal(SIGPIPE, SIG_IGN);
    pair("pipes", 0, 1, 0);
    pair("socket", 1, 1, 0);
    pair("pinned", 0, 0, 0);
    pair("busy", 0, 1, 0.02);
    puts("ok");
    return 0;
}
