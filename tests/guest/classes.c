// Scheduling policies and nice values are obeyed: threads that compete for one CPU get it by class, and by weight inside
// the fair class. Counted in CPU time, while the main thread, which is of a higher class, looks on.
// cob: link=static flags=-pthread kernels=1,4 compare=self timeout=120
#include "test.h"
#include <pthread.h>
#include <sys/resource.h>

static volatile int stop;
static pthread_barrier_t start;

struct worker {
    pthread_t thread;
    int policy, priority, nice;
    volatile unsigned long rounds;
    double seconds;
};

static double cpu_seconds(clockid_t clock) {
    struct timespec time;
    MUST(clock_gettime(clock, &time) == 0);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void *work(void *argument) {
    struct worker *me = argument;
    if (me->nice)
        MUST(setpriority(PRIO_PROCESS, 0, me->nice) == 0);
    pthread_barrier_wait(&start);
    MUST(sched_getscheduler(0) == me->policy);
    double begin = cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
    while (!stop)
        me->rounds++;
    me->seconds = cpu_seconds(CLOCK_THREAD_CPUTIME_ID) - begin;
    return NULL;
}

static double total(clockid_t clock) { return cpu_seconds(clock); }

// Lets the workers compete until they have used `seconds` of CPU in all.
static void compete(struct worker *workers, int count, double seconds) {
    stop = 0;
    MUST(pthread_barrier_init(&start, NULL, count + 1) == 0);
    double begin = total(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < count; i++)
        MUST(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
    for (int i = 0; i < count; i++) {
        struct sched_param parameter = {.sched_priority = workers[i].priority};
        MUST(pthread_setschedparam(workers[i].thread, workers[i].policy, &parameter) == 0);
    }
    pthread_barrier_wait(&start);
    while (total(CLOCK_PROCESS_CPUTIME_ID) - begin < seconds)
        usleep(10000);
    stop = 1;
    for (int i = 0; i < count; i++)
        MUST(pthread_join(workers[i].thread, NULL) == 0);
}

int main(void) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(0, &set);
    MUST(sched_setaffinity(0, sizeof set, &set) == 0);
    struct sched_param high = {.sched_priority = 50};
    if (sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &high) != 0) {
        puts("not root");
        return 1;
    }
    printf("kept: %d\n", sched_getscheduler(0) == (SCHED_FIFO | SCHED_RESET_ON_FORK));

    struct worker nices[] = {{.policy = SCHED_OTHER}, {.policy = SCHED_OTHER, .nice = 5}};
    compete(nices, 2, 1.5);
    double ratio = nices[0].seconds / nices[1].seconds;
    printf("nice 0 against 5: %s\n", ratio > 2 && ratio < 5 ? "about three times as much" : "wrong");

    struct worker idle[] = {{.policy = SCHED_OTHER}, {.policy = SCHED_IDLE}};
    compete(idle, 2, 1);
    printf("idle: %s\n", idle[1].seconds < idle[0].seconds / 10 ? "what is left" : "too much");

    struct worker batch[] = {{.policy = SCHED_OTHER}, {.policy = SCHED_BATCH}};
    compete(batch, 2, 1);
    ratio = batch[0].seconds / batch[1].seconds;
    printf("batch: %s\n", ratio > 0.6 && ratio < 1.7 ? "its share" : "wrong");

    struct worker robin[] = {{.policy = SCHED_RR, .priority = 10}, {.policy = SCHED_RR, .priority = 10}};
    compete(robin, 2, 1.2);
    ratio = robin[0].seconds / robin[1].seconds;
    printf("round robin: %s\n", ratio > 0.5 && ratio < 2 ? "turns" : "wrong");

    struct worker fifo[] = {{.policy = SCHED_FIFO, .priority = 10}, {.policy = SCHED_OTHER}};
    compete(fifo, 2, 1);
    printf("fifo: %s\n", fifo[1].seconds < fifo[0].seconds / 5 ? "before all others" : "wrong");
    puts("ok");
    return 0;
}
