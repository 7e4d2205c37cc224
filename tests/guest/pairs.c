// Two processes that talk much come together on the kernel that has what they talk through, and then stay: for ten seconds their moves are counted, by
// themselves and by the kernels, and the messages. They stay where they are if an affinity keeps them apart, if they compute more than they
// talk, or if the one that would come talks more through pipes that it would leave behind. Connections, and the epolls that wait for them, come along.
// cob: link=static kernels=4 compare=self timeout=180 shake=no
#include "pairs.h"
#include <netinet/in.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { FIRST = 0, MIDDLE = 1, LAST = 3 };

// Sockets are made before the two begin; a connection when they have.
enum through { PIPES, PAIR, UNIX, TCP };

struct example {
    const char *name;
    enum through through;
    int made_on;   // the CPU on which the pipes or sockets are made
    int begins[2]; // the CPUs on which the two begin
    int pinned;    // to those
    int keeps;     // the second talks more with a child, through pipes of its own
    int idle;      // it has a pipe of its own, which is of no use
    double work;   // seconds that each computes when it has passed the byte on
    int together;  // what is expected
};

static const struct example examples[] = {
    {"pipes", .made_on = FIRST, .begins = {FIRST, LAST}, .together = 1},
    {"socket", .through = PAIR, .made_on = FIRST, .begins = {FIRST, LAST}, .together = 1},
    {"pipes of a third kernel", .made_on = MIDDLE, .begins = {FIRST, LAST}, .together = 1},
    {"connection", .through = UNIX, .made_on = FIRST, .begins = {FIRST, LAST}, .together = 1},
    {"connection by TCP", .through = TCP, .made_on = MIDDLE, .begins = {FIRST, LAST}, .together = 1},
    // This one has the console.
    {"from the first kernel", .through = UNIX, .made_on = LAST, .begins = {LAST, FIRST}, .together = 1},
    {"both elsewhere", .made_on = MIDDLE, .begins = {LAST, LAST}, .together = 1},
    {"pinned", .made_on = FIRST, .begins = {FIRST, LAST}, .pinned = 1},
    {"idle pipe", .through = UNIX, .made_on = FIRST, .begins = {FIRST, LAST}, .idle = 1, .together = 1},
    {"talks more with another", .made_on = FIRST, .begins = {FIRST, LAST}, .keeps = 1},
    {"busy", .made_on = FIRST, .begins = {FIRST, LAST}, .work = 0.002},
};

static volatile struct shared {
    int cpu[2];    // where each was at its last turn
    int moves[2];  // how often it was elsewhere than at the turn before
    long rounds;   // of the byte
    int free, end; // they may go anywhere; they end
} *shared;

static void note_cpu(int me) {
    int cpu = sched_getcpu();
    if (cpu != shared->cpu[me]) {
        shared->cpu[me] = cpu;
        shared->moves[me]++;
    }
}

static struct sockaddr_storage address;
static socklen_t address_size;

static int listener(enum through through) {
    memset(&address, 0, sizeof address);
    if (through == UNIX) {
        struct sockaddr_un *name = (void *)&address;
        name->sun_family = AF_UNIX;
        memcpy(name->sun_path + 1, "pairs", 5);
        address_size = offsetof(struct sockaddr_un, sun_path) + 6;
    } else {
        struct sockaddr_in *name = (void *)&address;
        *name = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        address_size = sizeof *name;
    }
    int fd = socket(address.ss_family, SOCK_STREAM, 0);
    MUST(fd >= 0 && bind(fd, (void *)&address, address_size) == 0 && listen(fd, 1) == 0);
    MUST(getsockname(fd, (void *)&address, &address_size) == 0);
    return fd;
}

// The first one accepts, the second connects; each waits for the other by an epoll.
static int connection(int me, int listens, int *epoll) {
    int fd = me ? socket(address.ss_family, SOCK_STREAM, 0) : accept(listens, NULL, NULL);
    MUST(fd >= 0);
    close(listens);
    if (me)
        MUST(connect(fd, (void *)&address, address_size) == 0);
    *epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = 7};
    MUST(*epoll >= 0 && epoll_ctl(*epoll, EPOLL_CTL_ADD, fd, &event) == 0);
    return fd;
}

static ssize_t receive(int epoll, int input, char *byte) {
    struct epoll_event event;
    if (epoll >= 0)
        MUST(epoll_wait(epoll, &event, 1, -1) == 1 && event.data.u32 == 7);
    return read(input, byte, 1);
}

// A child that answers until it is left alone: what to read from and to write to.
static void start_child(int child[2]) {
    int there[2], back[2];
    MUST(pipe(there) == 0 && pipe(back) == 0);
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        char byte;
        close(there[1]), close(back[0]);
        while (read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1)
            ;
        _exit(0);
    }
    close(there[0]), close(back[1]);
    child[0] = back[0], child[1] = there[1];
}

// One of a pair: passes the byte on, and works while the other one has it.
static void talker(const struct example *example, int me, int input, int output) {
    char byte = 0;
    int freed = 0, own[2], epoll = -1, child[2] = {-1, -1};
    move_to(example->begins[me]);
    if (example->through >= UNIX)
        input = output = connection(me, input, &epoll);
    shared->cpu[me] = sched_getcpu();
    if (me == 1 && example->idle)
        MUST(pipe(own) == 0 && write(own[1], &byte, 1) == 1);
    if (me == 1 && example->keeps)
        start_child(child);
    if (me == 0)
        MUST(write(output, &byte, 1) == 1);
    while (receive(epoll, input, &byte) == 1) {
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
        for (int at = 0; me == 1 && example->keeps && at < 4; at++)
            MUST(write(child[1], &byte, 1) == 1 && read(child[0], &byte, 1) == 1);
        if (write(output, &byte, 1) != 1)
            break;
        for (double end = now() + example->work; now() < end;)
            ;
        // A moment, in which CPUs halt: who talks without a pause stays apart where kernels have one CPU, for then their CPUs look out for messages.
        if (me == 0 && !example->work)
            usleep(1000);
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
    if (example->through >= UNIX) {
        ends[0] = ends[1] = ends[2] = ends[3] = listener(example->through);
    } else if (example->through == PAIR) {
        int both[2];
        MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, both) == 0);
        ends[0] = ends[3] = both[0], ends[1] = ends[2] = both[1];
    } else {
        MUST(pipe(ends) == 0 && pipe(ends + 2) == 0);
    }
    pid_t pids[2] = {start(example, 0, ends), start(example, 1, ends)};
    for (int at = 0; at < (example->through == PIPES ? 4 : example->through == PAIR ? 2 : 1); at++)
        close(ends[at]);
    while (!shared->rounds)
        usleep(10000);
    if (example->together) {
        shared->free = 1;
        double begin = now();
        // A minute is long: the machine may be slow, and what is counted here is no time.
        while ((apart() || (example->through == PIPES && shared->cpu[0] != example->made_on)) && now() < begin + 60)
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

// With an argument: the examples of that name.
int main(int count, char **arguments) {
    MUST(cpu_count() == 4);
    shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(shared != MAP_FAILED);
    signal(SIGPIPE, SIG_IGN);
    for (size_t at = 0; at < sizeof examples / sizeof *examples; at++)
        if (count < 2 || strcmp(arguments[1], examples[at].name) == 0)
            run(&examples[at]);
    puts("ok");
    return 0;
}
