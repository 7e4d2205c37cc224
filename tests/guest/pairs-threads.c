// Threads of one process that talk much over kernels, through sockets that one of these has, come together there and then stay: for ten seconds the
// kernels' moves and messages are counted. So do threads that only use such sockets and wake nobody. They stay where they are if an affinity keeps them apart, or if they compute more than they talk.
// cob: link=static kernels=4 compare=self timeout=180 shake=no
#include "pairs.h"
#include <pthread.h>
#include <sys/socket.h>

enum { FIRST = 0, LAST = 3, MOST = 4 };

struct example {
    const char *name;
    int pairs;    // of threads: one begins where the sockets are made, the other on the last kernel
    int pinned;   // to that
    int alone;    // the one elsewhere talks to itself and wakes nobody, the other sleeps
    double work;  // seconds that each computes when it has passed the byte on
    int together; // what is expected
};

static const struct example examples[] = {
    {"a pair", .pairs = 1, .together = 1},
    {"four pairs", .pairs = 4, .together = 1},
    {"wake nobody", .pairs = 2, .alone = 1, .together = 1},
    {"pinned", .pairs = 2, .pinned = 1},
    {"busy", .pairs = 1, .work = 0.002},
};

static const struct example *example;
static int ends[MOST][2];
static volatile int cpu[MOST][2], released, ended;
static volatile long rounds[MOST];

static void *talk(void *argument) {
    int number = (long)argument, pair = number / 2, me = number % 2, fd = ends[pair][me], freed = 0;
    char byte = 0;
    move_to(me ? LAST : FIRST);
    cpu[pair][me] = sched_getcpu();
    if (example->alone && me == 0) {
        while (!ended)
            usleep(1000);
        return NULL;
    }
    if (example->alone)
        fd = ends[pair][0];
    if (example->alone || me == 0)
        MUST(write(ends[pair][me], &byte, 1) == 1);
    while (read(fd, &byte, 1) == 1) {
        if (released && !freed) {
            cpu_set_t all;
            memset(&all, 0xff, sizeof all);
            MUST(sched_setaffinity(0, sizeof all, &all) == 0);
            freed = 1;
        }
        cpu[pair][me] = sched_getcpu();
        int counts = me == 0 || example->alone;
        rounds[pair] += counts;
        if (counts && ended)
            break;
        if (write(ends[pair][me], &byte, 1) != 1)
            break;
        for (double end = now() + example->work; now() < end;)
            ;
        // A moment, in which CPUs halt: who talks without a pause stays apart where kernels have one CPU.
        if (counts && !example->work)
            usleep(1000);
    }
    shutdown(fd, SHUT_RDWR);
    return NULL;
}

static int apart(void) {
    int parted = 0;
    for (int pair = 0; pair < example->pairs; pair++)
        parted += cpu[pair][0] != cpu[pair][1];
    return parted;
}

static long all_rounds(void) {
    long all = 0;
    for (int pair = 0; pair < example->pairs; pair++)
        all += rounds[pair];
    return all;
}

static void run(void) {
    pthread_t threads[2 * MOST];
    released = ended = 0;
    memset((void *)rounds, 0, sizeof rounds);
    move_to(FIRST);
    for (long number = 0; number < 2 * example->pairs; number++) {
        if (number % 2 == 0)
            MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends[number / 2]) == 0);
        MUST(pthread_create(&threads[number], NULL, talk, (void *)number) == 0);
    }
    for (int pair = 0; pair < example->pairs; pair++)
        while (!rounds[pair])
            usleep(10000);
    released = !example->pinned;
    double begin = now();
    // A minute is long: the machine may be slow, and what is counted here is no time.
    while (example->together && apart() && now() < begin + 60)
        usleep(10000);
    fprintf(stderr, "%s: %d of %d apart after %.2f s\n", example->name, apart(), example->pairs, now() - begin);
    if (example->together)
        wait_for(0.1);
    long moved = kernels_moves(), sent = messages(), made = all_rounds();
    wait_for(example->together ? 10 : 3);
    moved = kernels_moves() - moved, sent = messages() - sent, made = all_rounds() - made;
    int parted = apart(), wrong;
    ended = 1;
    for (int number = 0; number < 2 * example->pairs; number++)
        MUST(pthread_join(threads[number], NULL) == 0);
    for (int pair = 0; pair < example->pairs; pair++)
        close(ends[pair][0]), close(ends[pair][1]);
    printf("%s: %s%s\n", example->name, parted ? "apart" : "together", example->together ? ", no messages" : "");
    fprintf(stderr, "%s: %ld rounds, %ld messages, %ld moves\n", example->name, made, sent, moved);
    if (example->together)
        wrong = parted || moved > 1 || sent > made / 10;
    else
        wrong = parted != example->pairs || moved;
    if (wrong) {
        puts("wrong");
        exit(1);
    }
}

// With an argument: the examples of that name.
int main(int count, char **arguments) {
    MUST(cpu_count() == 4);
    for (size_t at = 0; at < sizeof examples / sizeof *examples; at++) {
        example = &examples[at];
        if (count < 2 || strcmp(arguments[1], example->name) == 0)
            run();
    }
    puts("ok");
    return 0;
}
