// Locks with an owner (FUTEX_LOCK_PI and its kin): words, errnos, handing over, deadlocks, owners that end, requeueing;
// pthread's PTHREAD_PRIO_INHERIT mutexes, robust ones too, with threads and processes on all CPUs.
// cob: link=static,dynamic flags=-pthread compare=host
#include "test.h"
#include <linux/futex.h>
#include <pthread.h>

#ifndef FUTEX_LOCK_PI2
#define FUTEX_LOCK_PI2 13
#endif

static uint32_t word, other, condition;
static volatile int step;

static long futex(uint32_t *at, int op, uint32_t value, const void *timeout, uint32_t *second, uint32_t third) {
    return syscall(SYS_futex, at, op, value, timeout, second, third);
}

static pid_t self(void) { return (pid_t)syscall(SYS_gettid); }

static void show_word(const char *what, uint32_t value) {
    uint32_t owner = value & FUTEX_TID_MASK;
    printf("%s:%s%s owner %s\n", what, value & FUTEX_WAITERS ? " waiters" : "",
           value & FUTEX_OWNER_DIED ? " died" : "", owner == 0 ? "none" : owner == (uint32_t)self() ? "me" : "other");
}

static void wait_for(int wanted) {
    while (__atomic_load_n(&step, __ATOMIC_SEQ_CST) < wanted)
        sched_yield();
}

static void set(int to) { __atomic_store_n(&step, to, __ATOMIC_SEQ_CST); }

static uint32_t load(uint32_t *at) { return __atomic_load_n(at, __ATOMIC_SEQ_CST); }

static void wait_for_waiters(uint32_t *at) {
    while (!(load(at) & FUTEX_WAITERS))
        sched_yield();
}

static void last_cpu(void) { move_to(cpu_count() - 1); }

static struct timespec soon(clockid_t clock) {
    struct timespec at;
    clock_gettime(clock, &at);
    at.tv_nsec += 20000000;
    if (at.tv_nsec >= 1000000000)
        at.tv_sec++, at.tv_nsec -= 1000000000;
    return at;
}

static void alone(void) {
    word = 0;
    SHOW(futex(&word, FUTEX_LOCK_PI, 0, NULL, NULL, 0));
    show_word("locked", word);
    SHOW(futex(&word, FUTEX_LOCK_PI, 0, NULL, NULL, 0));
    SHOW(futex(&word, FUTEX_TRYLOCK_PI, 0, NULL, NULL, 0));
    SHOW(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0));
    show_word("unlocked", word);
    SHOW(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0));
    SHOW(futex(&word, FUTEX_LOCK_PI2_PRIVATE, 0, NULL, NULL, 0));
    SHOW(futex(&word, FUTEX_UNLOCK_PI_PRIVATE, 0, NULL, NULL, 0));
    word = FUTEX_OWNER_DIED;
    SHOW(futex(&word, FUTEX_TRYLOCK_PI, 0, NULL, NULL, 0));
    show_word("after a death", word);
    SHOW(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0));
    show_word("unlocked", word);
    // An id nobody has.
    word = 4194303;
    SHOW(futex(&word, FUTEX_LOCK_PI, 0, NULL, NULL, 0));
    SHOW(futex(&word, FUTEX_TRYLOCK_PI, 0, NULL, NULL, 0));
    SHOW(futex((uint32_t *)((char *)&word + 1), FUTEX_LOCK_PI, 0, NULL, NULL, 0));
    SHOW(futex((uint32_t *)((char *)&word + 1), FUTEX_UNLOCK_PI, 0, NULL, NULL, 0));
    SHOW(futex((uint32_t *)4, FUTEX_LOCK_PI, 0, NULL, NULL, 0));
    SHOW(futex((uint32_t *)4, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0));
    SHOW(futex(&word, FUTEX_LOCK_PI, 0, (void *)4, NULL, 0));
    struct timespec bad = {0, 1000000000};
    SHOW(futex(&word, FUTEX_LOCK_PI, 0, &bad, NULL, 0));
    word = 0;
    SHOW(futex(&word, FUTEX_LOCK_PI | FUTEX_CLOCK_REALTIME, 0, NULL, NULL, 0));
    SHOW(futex(&word, FUTEX_WAIT | FUTEX_CLOCK_REALTIME, 1, NULL, NULL, 0));
    SHOW(futex(&word, FUTEX_WAIT_REQUEUE_PI, 0, NULL, &word, 0));
    SHOW(futex(&word, FUTEX_WAIT_REQUEUE_PI, 1, NULL, &other, 0));
    SHOW(futex(&word, FUTEX_CMP_REQUEUE_PI, 1, NULL, &word, 0));
    SHOW(futex(&word, FUTEX_CMP_REQUEUE_PI, 2, NULL, &other, 0));
    SHOW(futex(&word, FUTEX_CMP_REQUEUE_PI, 1, NULL, &other, 1));
    SHOW(futex(&word, FUTEX_CMP_REQUEUE_PI, 1, NULL, &other, 0));
}

// Of two that want what the other has, the other thread was refused.
static int refused;

static void *holds(void *how) {
    last_cpu();
    MUST(futex(&word, FUTEX_LOCK_PI, 0, NULL, NULL, 0) == 0);
    set(1);
    if ((intptr_t)how == 1) {
        // Hands over when somebody waits.
        wait_for_waiters(&word);
        MUST(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0) == 0);
        return NULL;
    }
    if ((intptr_t)how == 2) {
        // Ends with the lock.
        wait_for_waiters(&word);
        return NULL;
    }
    if ((intptr_t)how == 3) {
        // Wants what the other has.
        wait_for(2);
        refused = futex(&other, FUTEX_LOCK_PI, 0, NULL, NULL, 0) != 0;
        if (refused) {
            MUST(errno == EDEADLK);
            MUST(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0) == 0);
            return NULL;
        }
        show_word("both", other);
        MUST(futex(&other, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0) == 0);
        MUST(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0) == 0);
        return NULL;
    }
    wait_for(2);
    MUST(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0) == 0);
    return NULL;
}

static pthread_t start(intptr_t how) {
    pthread_t thread;
    word = 0;
    set(0);
    MUST(pthread_create(&thread, NULL, holds, (void *)how) == 0);
    wait_for(1);
    return thread;
}

static void two(void) {
    pthread_t thread = start(0);
    show_word("held", word);
    SHOW(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0));
    SHOW(futex(&word, FUTEX_TRYLOCK_PI, 0, NULL, NULL, 0));
    show_word("tried", word);
    struct timespec at = soon(CLOCK_REALTIME);
    SHOW(futex(&word, FUTEX_LOCK_PI, 0, &at, NULL, 0));
    at = soon(CLOCK_MONOTONIC);
    SHOW(futex(&word, FUTEX_LOCK_PI2, 0, &at, NULL, 0));
    at = soon(CLOCK_REALTIME);
    SHOW(futex(&word, FUTEX_LOCK_PI2 | FUTEX_CLOCK_REALTIME, 0, &at, NULL, 0));
    show_word("timed out", word);
    set(2);
    pthread_join(thread, NULL);
    show_word("freed", word);

    thread = start(1);
    SHOW(futex(&word, FUTEX_LOCK_PI, 0, NULL, NULL, 0));
    show_word("handed over", word);
    SHOW(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0));
    pthread_join(thread, NULL);
    show_word("freed", word);

    thread = start(2);
    SHOW(futex(&word, FUTEX_LOCK_PI, 0, NULL, NULL, 0));
    show_word("inherited", word);
    SHOW(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0));
    pthread_join(thread, NULL);
    show_word("freed", word);
    word = 0;

    long error;
    int why;
    do {
        other = 0;
        MUST(futex(&other, FUTEX_LOCK_PI, 0, NULL, NULL, 0) == 0);
        thread = start(3);
        set(2);
        wait_for_waiters(&other);
        // It sets the bit just before it stands in the queue: if it comes there after this thread or just with it, it is refused, too.
        // Then once more.
        do {
            struct timespec soon_at = soon(CLOCK_REALTIME);
            errno = 0;
            error = futex(&word, FUTEX_LOCK_PI, 0, &soon_at, NULL, 0);
            why = errno;
        } while (error == -1 && why == ETIMEDOUT);
        if (error == 0) MUST(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0) == 0);
        MUST(futex(&other, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0) == 0);
        pthread_join(thread, NULL);
    } while (refused);
    printf("circle: %ld %s\n", error, error_name(why));
    show_word("freed", word);
}

static int interrupted;
static void handler(int signal) { interrupted = signal; }

static void *locks_interrupted(void *unused) {
    (void)unused;
    last_cpu();
    set(1);
    long result = futex(&word, FUTEX_LOCK_PI, 0, NULL, NULL, 0);
    printf("interrupted %d: %ld\n", interrupted, result);
    MUST(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0) == 0);
    return NULL;
}

static void with_signal(void) {
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGUSR1, &action, NULL);
    word = 0;
    set(0);
    MUST(futex(&word, FUTEX_LOCK_PI, 0, NULL, NULL, 0) == 0);
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, locks_interrupted, NULL) == 0);
    wait_for_waiters(&word);
    pthread_kill(thread, SIGUSR1);
    while (!__atomic_load_n(&interrupted, __ATOMIC_SEQ_CST))
        sched_yield();
    MUST(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0) == 0);
    pthread_join(thread, NULL);
}

static void *requeued(void *unused) {
    (void)unused;
    last_cpu();
    set(1);
    long result = futex(&condition, FUTEX_WAIT_REQUEUE_PI, 0, NULL, &word, 0);
    printf("requeued: %ld\n", result);
    show_word("after requeue", word & ~FUTEX_WAITERS);
    MUST(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0) == 0);
    return NULL;
}

static void requeues(void) {
    pthread_t thread;
    word = condition = 0;
    set(0);
    MUST(pthread_create(&thread, NULL, requeued, NULL) == 0);
    wait_for(1);
    MUST(futex(&word, FUTEX_LOCK_PI, 0, NULL, NULL, 0) == 0);
    long moved;
    // Another lock than it waits for, once it waits; then its own.
    while ((moved = futex(&condition, FUTEX_CMP_REQUEUE_PI, 1, (void *)5, &other, 0)) == 0)
        sched_yield();
    printf("other lock: %ld %s\n", moved, error_name(errno));
    SHOW(futex(&condition, FUTEX_WAKE, 1, NULL, NULL, 0));
    SHOW(futex(&condition, FUTEX_CMP_REQUEUE_PI, 1, (void *)5, &word, 1));
    SHOW(futex(&condition, FUTEX_CMP_REQUEUE_PI, 1, (void *)5, &word, 0));
    MUST(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0) == 0);
    pthread_join(thread, NULL);
    struct timespec at = soon(CLOCK_MONOTONIC);
    SHOW(futex(&condition, FUTEX_WAIT_REQUEUE_PI, 0, &at, &word, 0));
}

enum { THREADS = 4, ROUNDS = 200 };
static pthread_mutex_t mutex;
static long counter;

static void *counts(void *index) {
    move_to((int)(intptr_t)index % cpu_count());
    for (int i = 0; i < ROUNDS; i++) {
        MUST(pthread_mutex_lock(&mutex) == 0);
        long seen = counter;
        if (i % 16 == 0)
            sched_yield();
        counter = seen + 1;
        MUST(pthread_mutex_unlock(&mutex) == 0);
    }
    return NULL;
}

static void *dies(void *shared) {
    last_cpu();
    MUST(pthread_mutex_lock(shared) == 0);
    return NULL;
}

static void mutexes(void) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    MUST(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT) == 0);
    MUST(pthread_mutex_init(&mutex, &attributes) == 0);
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++)
        MUST(pthread_create(&threads[i], NULL, counts, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("counter %ld\n", counter);
    MUST(pthread_mutex_lock(&mutex) == 0);
    printf("busy: %s\n", error_name(pthread_mutex_trylock(&mutex)));
    MUST(pthread_mutex_unlock(&mutex) == 0);

    MUST(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0);
    MUST(pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) == 0);
    pthread_mutex_t *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(pthread_mutex_init(shared, &attributes) == 0);
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, dies, shared) == 0);
    pthread_join(thread, NULL);
    printf("after a thread: %s\n", error_name(pthread_mutex_lock(shared)));
    MUST(pthread_mutex_consistent(shared) == 0);
    MUST(pthread_mutex_unlock(shared) == 0);

    // A child dies with the lock while the parent waits for it.
    int *shared_step = (int *)((char *)shared + 2048);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        last_cpu();
        MUST(pthread_mutex_lock(shared) == 0);
        __atomic_store_n(shared_step, 1, __ATOMIC_SEQ_CST);
        wait_for_waiters((uint32_t *)shared);
        _exit(0);
    }
    while (!__atomic_load_n(shared_step, __ATOMIC_SEQ_CST))
        sched_yield();
    printf("after a process: %s\n", error_name(pthread_mutex_lock(shared)));
    MUST(pthread_mutex_consistent(shared) == 0);
    MUST(pthread_mutex_unlock(shared) == 0);
    MUST(waitpid(child, NULL, 0) == child);
    MUST(pthread_mutex_lock(shared) == 0);
    MUST(pthread_mutex_unlock(shared) == 0);
}

static uint32_t *shared_word;

static void *executes(void *lives) {
    last_cpu();
    MUST(futex(shared_word, FUTEX_LOCK_PI, 0, NULL, NULL, 0) == 0);
    shared_word[1] = 1;
    wait_for_waiters(shared_word);
    MUST(dup2((int)(intptr_t)lives, 0) == 0);
    execl("/proc/self/exe", "futex-owners", "lives", NULL);
    _exit(1);
}

// A child executes a program while it holds a lock that the parent waits for.
static void across_execve(int by_thread) {
    shared_word = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int lives[2];
    MUST(pipe2(lives, O_CLOEXEC) == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(lives[1]);
        pthread_t thread;
        if (!by_thread)
            executes((void *)(intptr_t)lives[0]);
        MUST(pthread_create(&thread, NULL, executes, (void *)(intptr_t)lives[0]) == 0);
        for (;;)
            pause();
    }
    close(lives[0]);
    while (!__atomic_load_n(&shared_word[1], __ATOMIC_SEQ_CST))
        sched_yield();
    printf("held by %s: %ld\n", by_thread ? "a thread" : "a process", futex(shared_word, FUTEX_LOCK_PI, 0, NULL, NULL, 0));
    show_word("after execve", *shared_word);
    SHOW(waitpid(child, NULL, WNOHANG));
    SHOW(futex(shared_word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0));
    show_word("freed", *shared_word);
    close(lives[1]);
    int status;
    MUST(waitpid(child, &status, 0) == child);
    printf("status %x\n", status);
}

int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1) {
        char byte;
        return read(0, &byte, 1) == 0 ? 7 : 1;
    }
    move_to(0);
    alone();
    two();
    with_signal();
    requeues();
    mutexes();
    across_execve(0);
    across_execve(1);
    return 0;
}
