// Two processes that talk much come together on the kernel that has what they talk through, and then stay: for ten seconds their moves are counted, by
// themselves and by the kernels, and the messages. They stay where they are if an affinity keeps them apart, if they compute more than they
// talk, or if the one that would come had to leave a file behind.
// cob: link=static kernels=4 compare=self timeout=180 shake=no
#include "test.h"
#include <sys/socket.h>

enum { FIRST = 0, MIDDLE = 1, LAST = 3 };

struct example {
    const char *name;
    int socket;    // else two pipes
    int made_on;   // the CPU on which the pipes or sockets are made
    int begins[2]; // the CPUs on which the two begin
    int pinned;    // to those
    int keeps;     // the second has made a pipe, and used it
    double work;   // seconds that each computes when it has passed the byte on
    int together;  // what is expected
};

static const struct example examples[] = {
    {"pipes", .made_on = FIRST, .begins = {FIRST, LAST}, .together = 1},
    {"socket", .socket = 1, .made_on = FIRST, .begins = {FIRST, LAST}, .together = 1},
    {"pipes of a third kernel", .made_on = MIDDLE, .begins = {FIRST, LAST}, .together = 1},
    {"both elsewhere", .made_on = MIDDLE, .begins = {LAST, LAST}, .together = 1},
    {"pinned", .made_on = FIRST, .begins = {FIRST, LAST}, .pinned = 1},
    {"keeps a pipe", .made_on = FIRST, .begins = {FIRST, LAST}, .keeps = 1},
    {"busy", .made_on = FIRST, .begins = {FIRST, LAST}, .work = 0.002},
};

static volatile struct shared {
    int cpu[2];    // where each was at its last turn
    int moves[2];  // how often it was elsewhere than at the turn before
    long rounds;   // of the byte
    int free, end; // they may go anywhere; they end
} *shared;

static double now(void) {
    struct timespec time;
    MUST(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void wait_for(double seconds) {
    for (double end = now() + seconds; now() < end;)
        usleep(50000);
}

// Sums the column of a table of all kernels.
static long sum(const char *name, int column) {
    FILE *file = fopen(name, "r");
    MUST(file);
    char line[4096];
    long all = 0;
    MUST(fgets(line, sizeof line, file));
    while (fgets(line, sizeof line, file)) {
        char *rest = line, *word = NULL;
        for (int at = 0; at <= column; at++)
            word = strtok_r(at ? NULL : line, " \n", &rest);
        all += word ? atol(word) : 0;
    }
    fclose(file);
    return all;
}

static long kernels_moves(void) { return sum("/proc/cob/kernels", 8); }
static long messages(void) { return sum("/proc/cob/messages", 1); }

static void note_cpu(int me) {
    int cpu = sched_getcpu();
    if (cpu != shared->cpu[me]) {
        shared->cpu[me] = cpu;
        shared->moves[me]++;
    }
}

// One of a pair: passes the byte on, and works while the other one has it.
static void talker(const struct example *example, int me, int input, int output) {
    char byte = 0;
    int freed = 0, own[2];
    move_to(example->begins[me]);
    shared->cpu[me] = sched_getcpu();
    if (me == 1 && example->keeps)
        MUST(pipe(own) == 0 && write(own[1], &byte, 1) == 1);
    if (me == 0)
        MUST(write(output, &byte, 1) == 1);
    while (read(input, &byte, 1) == 1) {
        if (shared->free && !freed) {
            cpu_set_t all;
            memset(&all, 0xff, sizeof all);
            MUST(sched_setaffinity(0, sizeof all, &all) == 0);
            freed = 1;
        }
        note_cpu(me);
        shared->rounds += me == 0;
        if (me == 0 && shared->end)
            break;
        if (write(output, &byte, 1) != 1)
            break;
        for (double end = now() + example->work; now() < end;)
            ;
    }
    _exit(0);
}

static pid_t start(const struct example *example, int me, const int ends[4]) {
    fflush(stdout);
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid)
        return pid;
    int input = me ? ends[0] : ends[2], output = me ? ends[3] : ends[1];
    for (int at = 0; at < 4; at++)
        if (ends[at] != input && ends[at] != output)
            close(ends[at]);
    talker(example, me, input, output);
    return 0;
}

static int apart(void) { return shared->cpu[0] != shared->cpu[1]; }

static void run(const struct example *example) {
    int ends[4], status, wrong = 0;
    memset((void *)shared, 0, sizeof *shared);
    move_to(example->made_on);
    if (example->socket) {
        int both[2];
        MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, both) == 0);
        ends[0] = ends[3] = both[0], ends[1] = ends[2] = both[1];
    } else {
        MUST(pipe(ends) == 0 && pipe(ends + 2) == 0);
    }
    pid_t pids[2] = {start(example, 0, ends), start(example, 1, ends)};
    for (int at = 0; at < (example->socket ? 2 : 4); at++)
        close(ends[at]);
    while (!shared->rounds)
        usleep(10000);
    if (example->together) {
        shared->free = 1;
        double begin = now();
        // A minute is long: the machine may be slow, and what is counted here is no time.
        while ((apart() || shared->cpu[0] != example->made_on) && now() < begin + 60)
            usleep(10000);
        fprintf(stderr, "%s: together after %.2f s, %d moves\n", example->name, now() - begin, shared->moves[0] + shared->moves[1]);
        // Until each has been seen where it is.
        wait_for(0.1);
        shared->moves[0] = shared->moves[1] = 0;
    }
    shared->free = !example->pinned;
    long moved = kernels_moves(), sent = messages(), rounds = shared->rounds;
    wait_for(example->together ? 10 : 3);
    sent = messages() - sent, moved = kernels_moves() - moved, rounds = shared->rounds - rounds;
    int moves = shared->moves[0] + shared->moves[1], parted = apart();
    shared->end = 1;
    for (int at = 0; at < 2; at++)
        MUST(waitpid(pids[at], &status, 0) == pids[at] && status == 0);
    printf("%s: %s%s\n", example->name, parted ? "apart" : "together", example->together ? ", no messages" : "");
    fprintf(stderr, "%s: %ld rounds, %ld messages, %d and %ld moves\n", example->name, rounds, sent, moves, moved);
    if (example->together)
        wrong = parted || moves > 1 || moved > 1 || sent > rounds / 10;
    else
        wrong = !parted || moves || moved;
    if (wrong) {
        puts("wrong");
        exit(1);
    }
}

int main(void) {
    MUST(cpu_count() == 4);
    shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(shared != MAP_FAILED);
    signal(SIGPIPE, SIG_IGN);
    for (size_t at = 0; at < sizeof examples / sizeof *examples; at++)
        run(&examples[at]);
    puts("ok");
    return 0;
}
