// The order in which one CPU serves its threads: the real-time class before the fair one for as long as it wants, by priority, in
// order of arrival, at once when a more urgent thread wakes. All on one CPU, so that the order is certain; no share and no time is measured.
// Not shaken: a thread that touches another kernel's page waits for it, and then the next one has the CPU, as after any page fault that waits.
// cob: link=static,dynamic flags=-pthread kernels=1,4 compare=self timeout=120 shake=no
#include "test.h"
#include <pthread.h>
#include <semaphore.h>
#include <time.h>

static char order[64];
static volatile int ended;

static void note(char who) { order[strlen(order)] = who; }

static void show(const char *what, const char *expected) {
    printf("%s: %s\n", what, order);
    MUST(strcmp(order, expected) == 0);
    memset(order, 0, sizeof order);
}

static pthread_t start(int policy, int priority, void *(*body)(void *), void *argument) {
    pthread_attr_t attributes;
    pthread_t thread;
    struct sched_param parameter = {.sched_priority = priority};
    MUST(pthread_attr_init(&attributes) == 0);
    MUST(pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED) == 0);
    MUST(pthread_attr_setschedpolicy(&attributes, policy) == 0);
    MUST(pthread_attr_setschedparam(&attributes, &parameter) == 0);
    MUST(pthread_create(&thread, &attributes, body, argument) == 0);
    return thread;
}

static volatile unsigned long rounds;

static void *fair(void *unused) {
    while (!ended)
        rounds++;
    return unused;
}

static double now(void) {
    struct timespec time;
    MUST(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
    return time.tv_sec + time.tv_nsec / 1e9;
}

// While a FIFO thread wants the CPU, in user mode or in system calls, a fair one gets nothing; when it blocks, all.
static void fifo_keeps_fair_waiting(void) {
    pthread_t thread = start(SCHED_OTHER, 0, fair, NULL);
    double took;
    do {
        unsigned long before = rounds;
        while (rounds == before)
            usleep(1000);
        double began = now();
        before = rounds;
        for (volatile long i = 0; i < 10000000; i++)
            if (i % 100000 == 0)
                getppid();
        unsigned long after = rounds;
        took = now() - began;
        // After 950 ms of each second it is the fair class's turn (man 7 sched): then this was no proof.
        if (took < 0.9)
            MUST(before == after);
    } while (took >= 0.9);
    puts("fifo before fair: yes");
    ended = 1;
    MUST(pthread_join(thread, NULL) == 0);
}

static sem_t go[4];

static void *once(void *argument) {
    long who = (long)argument;
    MUST(sem_wait(&go[who]) == 0);
    note('0' + who);
    return NULL;
}

// Woken from the least urgent to the most, by somebody more urgent than all of them.
static void by_priority(void) {
    pthread_t threads[4];
    int policy[] = {SCHED_OTHER, SCHED_FIFO, SCHED_RR, SCHED_FIFO}, priority[] = {0, 10, 20, 30};
    for (long i = 0; i < 4; i++) {
        MUST(sem_init(&go[i], 0, 0) == 0);
        threads[i] = start(policy[i], priority[i], once, (void *)i);
    }
    usleep(20000); // Most wait by then; those that do not come in the same order.
    for (int i = 0; i < 4; i++)
        MUST(sem_post(&go[i]) == 0);
    note('m');
    for (int i = 0; i < 4; i++)
        MUST(pthread_join(threads[i], NULL) == 0);
    show("by priority", "m3210");
}

static void *high(void *argument) {
    MUST(sem_wait(argument) == 0);
    note('h');
    return NULL;
}

static void *low(void *argument) {
    note('l');
    MUST(sem_post(argument) == 0);
    note('L');
    return NULL;
}

// Who wakes somebody more urgent does not go on before that one sleeps.
static void at_once(void) {
    sem_t sem;
    MUST(sem_init(&sem, 0, 0) == 0);
    pthread_t upper = start(SCHED_FIFO, 40, high, &sem);
    pthread_t lower = start(SCHED_FIFO, 5, low, &sem);
    MUST(pthread_join(upper, NULL) == 0);
    MUST(pthread_join(lower, NULL) == 0);
    show("at once", "lhL");
}

static void *twice(void *argument) {
    char who = (char)(long)argument;
    note(who);
    MUST(sched_yield() == 0);
    note(who);
    return NULL;
}

// Equals run in order, each until it yields; then it is the last. They are born with this thread's priority and then lowered to theirs,
// and who is lowered comes first among its new equals (man 7 sched).
static void in_turn(void) {
    pthread_t threads[3];
    for (long i = 0; i < 3; i++)
        threads[i] = start(SCHED_FIFO, 10, twice, (void *)('a' + i));
    for (int i = 0; i < 3; i++)
        MUST(pthread_join(threads[i], NULL) == 0);
    show("in turn", "cbacba");
}

static void *lowered(void *argument) {
    note('1');
    struct sched_param parameter = {.sched_priority = 1};
    // Another waits that is more urgent from now on.
    MUST(pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameter) == 0);
    note('3');
    return argument;
}

static void *between(void *argument) {
    note('2');
    return argument;
}

// A change of class counts at once, for the thread that runs.
static void change(void) {
    pthread_t first = start(SCHED_FIFO, 20, lowered, NULL), second = start(SCHED_FIFO, 10, between, NULL);
    MUST(pthread_join(first, NULL) == 0);
    MUST(pthread_join(second, NULL) == 0);
    show("lowered", "123");
}

int main(void) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(0, &set);
    MUST(sched_setaffinity(0, sizeof set, &set) == 0);
    struct sched_param urgent = {.sched_priority = 50};
    MUST(sched_setscheduler(0, SCHED_FIFO, &urgent) == 0);
    fifo_keeps_fair_waiting();
    by_priority();
    at_once();
    in_turn();
    change();
    puts("ok");
    return 0;
}
