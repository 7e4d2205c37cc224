// Threads that do what they are told, each on a CPU of its own: with several kernels the first, the middle and the last are
// on different ones.
#pragma once
#include "test.h"
#include <pthread.h>

enum { HANDS = 3 };

static struct hand {
    pthread_t thread;
    pid_t tid;
    int cpu;
    void (*job)(void);
} hands[HANDS];
static pthread_mutex_t hands_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t hands_changed = PTHREAD_COND_INITIALIZER;

static void *serve(void *argument) {
    struct hand *hand = argument;
    move_to(hand->cpu);
    pthread_mutex_lock(&hands_mutex);
    hand->tid = (pid_t)syscall(SYS_gettid);
    pthread_cond_broadcast(&hands_changed);
    for (;;) {
        while (!hand->job)
            pthread_cond_wait(&hands_changed, &hands_mutex);
        void (*job)(void) = hand->job;
        pthread_mutex_unlock(&hands_mutex);
        job();
        fflush(stdout);
        pthread_mutex_lock(&hands_mutex);
        hand->job = NULL;
        pthread_cond_broadcast(&hands_changed);
    }
    return NULL;
}

// A hand that has nothing to do starts with a job; `finish` waits until it is done.
static inline void begin(int who, void (*job)(void)) {
    pthread_mutex_lock(&hands_mutex);
    MUST(!hands[who].job);
    hands[who].job = job;
    pthread_cond_broadcast(&hands_changed);
    pthread_mutex_unlock(&hands_mutex);
}

static inline void finish(int who) {
    pthread_mutex_lock(&hands_mutex);
    while (hands[who].job)
        pthread_cond_wait(&hands_changed, &hands_mutex);
    pthread_mutex_unlock(&hands_mutex);
}

static inline void on(int who, void (*job)(void)) {
    begin(who, job);
    finish(who);
}

// The same for statements that use static variables only.
#define BEGIN(who, ...)                                                                                              \
    do {                                                                                                             \
        void job_(void) { __VA_ARGS__; }                                                                             \
        begin(who, job_);                                                                                            \
    } while (0)
#define ON(who, ...)                                                                                                 \
    do {                                                                                                             \
        BEGIN(who, __VA_ARGS__);                                                                                     \
        finish(who);                                                                                                 \
    } while (0)

static inline void start_hands(void) {
    for (int who = 0; who < HANDS; who++) {
        hands[who].cpu = (cpu_count() - 1) * who / (HANDS - 1);
        MUST(pthread_create(&hands[who].thread, NULL, serve, &hands[who]) == 0);
    }
    pthread_mutex_lock(&hands_mutex);
    for (int who = 0; who < HANDS; who++)
        while (!hands[who].tid)
            pthread_cond_wait(&hands_changed, &hands_mutex);
    pthread_mutex_unlock(&hands_mutex);
}
