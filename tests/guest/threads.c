// pthreads: create and join in numbers, detach, cancel, once, keys, semaphores, rwlocks, timed waits, robust mutexes.
// cob: link=static,dynamic flags=-pthread compare=host timeout=120
#include "test.h"
#include <pthread.h>
#include <semaphore.h>

static pthread_key_t key;
static _Atomic int destroyed, runs, cleaned;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static sem_t semaphore;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static long guarded[2];
static pthread_mutex_t robust;

static void destroy(void *value) { destroyed += (int)(long)value; }
static void run_once(void) { runs++; }
static void clean(void *argument) { cleaned += (int)(long)argument; }

static void *small(void *argument) {
    pthread_setspecific(key, (void *)1L);
    pthread_once(&once, run_once);
    return (void *)((long)argument * 2);
}

static void *cancelled(void *argument) {
    pthread_cleanup_push(clean, (void *)5L);
    sem_post(&semaphore);
    for (;;)
        pause();
    pthread_cleanup_pop(0);
    return argument;
}

static void *detached(void *argument) {
    sem_post(&semaphore);
    return argument;
}

static void *reader_or_writer(void *argument) {
    for (int i = 0; i < 300; i++)
        if ((long)argument % 4 == 0) {
            pthread_rwlock_wrlock(&lock);
            guarded[0]++, sched_yield(), guarded[1]++;
            pthread_rwlock_unlock(&lock);
        } else {
            pthread_rwlock_rdlock(&lock);
            MUST(guarded[0] == guarded[1]);
            pthread_rwlock_unlock(&lock);
        }
    return NULL;
}

static void *dies_holding(void *argument) {
    pthread_mutex_lock(&robust);
    return argument;
}

int main(void) {
    pthread_t threads[64];
    long sum = 0;
    pthread_key_create(&key, destroy);
    for (int round = 0; round < 5; round++) {
        for (long i = 0; i < 64; i++)
            MUST(pthread_create(&threads[i], NULL, small, (void *)i) == 0);
        for (int i = 0; i < 64; i++) {
            void *result;
            MUST(pthread_join(threads[i], &result) == 0);
            sum += (long)result;
        }
    }
    printf("sum %ld destroyed %d once %d\n", sum, destroyed, runs);
    sem_init(&semaphore, 0, 0);
    pthread_create(&threads[0], NULL, cancelled, NULL);
    sem_wait(&semaphore);
    pthread_cancel(threads[0]);
    void *result;
    pthread_join(threads[0], &result);
    printf("cancelled %d cleaned %d\n", result == PTHREAD_CANCELED, cleaned);
    for (int i = 0; i < 20; i++) {
        pthread_create(&threads[0], NULL, detached, NULL);
        pthread_detach(threads[0]);
    }
    for (int i = 0; i < 20; i++)
        sem_wait(&semaphore);
    for (long i = 0; i < 12; i++)
        pthread_create(&threads[i], NULL, reader_or_writer, (void *)i);
    for (int i = 0; i < 12; i++)
        pthread_join(threads[i], NULL);
    printf("guarded %ld %ld\n", guarded[0], guarded[1]);
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    printf("timed: %s\n", (sem_timedwait(&semaphore, &time), error_name(errno)));
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&robust, &attributes);
    pthread_create(&threads[0], NULL, dies_holding, NULL);
    pthread_join(threads[0], NULL);
    printf("robust: %s\n", error_name(pthread_mutex_lock(&robust)));
    printf("consistent: %d\n", pthread_mutex_consistent(&robust));
    printf("unlock: %d\n", pthread_mutex_unlock(&robust));
    pthread_mutex_t checked;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&checked, &attributes);
    pthread_mutex_lock(&checked);
    printf("again: %s\n", error_name(pthread_mutex_lock(&checked)));
    clock_gettime(CLOCK_REALTIME, &time);
    pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    printf("condition: %s\n", error_name(pthread_cond_timedwait(&condition, &checked, &time)));
    // exit of the first thread leaves the others running.
    IN_CHILD("first thread leaves", {
        pthread_create(&threads[0], NULL, small, NULL);
        pthread_exit(NULL);
    });
}
