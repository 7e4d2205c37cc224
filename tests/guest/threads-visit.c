// Sixteen threads visit every CPU in turn 200 times each, while they share counters under a mutex, a condition
// variable and a barrier.
// cob: link=static,dynamic flags=-pthread kernels=1,2,4 compare=self timeout=240
#include "test.h"
#include <pthread.h>

enum { THREADS = 16, ROUNDS = 200 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn_changed = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static long under_mutex, at_barrier[ROUNDS / 20 + 1], turn;
static _Atomic long atomic_count;
static __thread long visits;

static void *visitor(void *argument) {
    long me = (long)argument;
    long local = me * 1000003; // lives on the stack through every move
    double value = me + 0.5;   // and in FPU registers
    int cpus = cpu_count();
    for (int round = 0; round < ROUNDS; round++) {
        for (int step = 0; step < cpus; step++) {
            move_to((int)((me + step) % cpus));
            visits++;
            atomic_count++;
            value = value * 1.5 - value / 2;
            MUST(pthread_mutex_lock(&mutex) == 0);
            under_mutex++;
            MUST(pthread_mutex_unlock(&mutex) == 0);
        }
        if (round % 20 == 0) {
            // In turn, by the condition variable.
            MUST(pthread_mutex_lock(&mutex) == 0);
            while (turn % THREADS != me)
                MUST(pthread_cond_wait(&turn_changed, &mutex) == 0);
            turn++;
            at_barrier[round / 20]++;
            MUST(pthread_cond_broadcast(&turn_changed) == 0);
            MUST(pthread_mutex_unlock(&mutex) == 0);
            pthread_barrier_wait(&barrier);
            MUST(at_barrier[round / 20] == THREADS);
        }
    }
    MUST(local == me * 1000003);
    MUST(value == me + 0.5); // x * 1.5 - x / 2 is exactly x for these
    MUST(visits == (long)ROUNDS * cpus);
    return argument;
}

int main(void) {
    pthread_t threads[THREADS];
    MUST(pthread_barrier_init(&barrier, NULL, THREADS) == 0);
    for (long i = 0; i < THREADS; i++)
        MUST(pthread_create(&threads[i], NULL, visitor, (void *)i) == 0);
    for (long i = 0; i < THREADS; i++) {
        void *result;
        MUST(pthread_join(threads[i], &result) == 0);
        MUST(result == (void *)i);
    }
    long expected = (long)THREADS * ROUNDS * cpu_count();
    MUST(under_mutex == expected);
    MUST(atomic_count == expected);
    MUST(turn == THREADS * (ROUNDS / 20));
    printf("ok\n");
}
