// Circles of locks with an owner (FUTEX_LOCK_PI), of two and three threads on different kernels, whose locks are queued here or there: who
// closes one is refused, and nobody else. Threads of one process and processes; one after the other and all at once.
// cob: link=static,dynamic flags=-pthread compare=host timeout=120
#include "hands.h"
#include <linux/futex.h>

static int flag; // FUTEX_PRIVATE_FLAG or not
static uint32_t *words[HANDS];

static long futex(uint32_t *word, int operation, void *timeout) {
    return syscall(SYS_futex, word, operation | flag, 0, timeout, NULL, 0);
}

static const char *lock(uint32_t *word) { return futex(word, FUTEX_LOCK_PI, NULL) == 0 ? "locked" : error_name(errno); }

static void must_lock(uint32_t *word) { MUST(futex(word, FUTEX_LOCK_PI, NULL) == 0); }

static void unlock(uint32_t *word) { MUST(futex(word, FUTEX_UNLOCK_PI, NULL) == 0); }

static const char *lock_within(uint32_t *word, int seconds) {
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += seconds;
    return futex(word, FUTEX_LOCK_PI, &end) == 0 ? "locked" : error_name(errno);
}

// Until somebody stands in the queue: who has set the mark joins before anybody else is answered for the same word.
static void until_waiting(uint32_t *word) {
    while (!(__atomic_load_n(word, __ATOMIC_SEQ_CST) & FUTEX_WAITERS))
        sched_yield();
    MUST(futex(word, FUTEX_TRYLOCK_PI, NULL) == -1 && errno == EAGAIN);
}

static void map(int who) {
    int kind = flag ? MAP_PRIVATE : MAP_SHARED;
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);
    MUST(page != MAP_FAILED);
    words[who] = page;
    *words[who] = 0;
}

static uint32_t *first, *second, *third;

static void of_two(void) {
    ON(0, must_lock(first));
    ON(2, must_lock(second));
    BEGIN(0, must_lock(second));
    until_waiting(second);
    ON(2, printf("  of two: %s\n", lock(first)));
    ON(2, printf("  and for a while: %s\n", lock_within(first, 100)));
    ON(2, unlock(second));
    finish(0);
    ON(0, unlock(second); unlock(first));
}

static void of_three(void) {
    ON(0, must_lock(first));
    ON(1, must_lock(second));
    ON(2, must_lock(third));
    BEGIN(0, must_lock(second));
    until_waiting(second);
    BEGIN(1, must_lock(third));
    until_waiting(third);
    // A queue is no circle.
    printf("  behind them: %s\n", lock_within(first, 1));
    ON(2, printf("  of three: %s\n", lock(first)));
    ON(2, unlock(third));
    finish(1);
    ON(1, unlock(third); unlock(second));
    finish(0);
    ON(0, unlock(second); unlock(first));
}

// -- all at once -----------------------------------------------------------------------------------------------------------

enum { ROUNDS = 20 };
static pthread_barrier_t together;
static _Atomic int refused;

static void circle(uint32_t *own, uint32_t *next) {
    for (int round = 0; round < ROUNDS; round++) {
        must_lock(own);
        pthread_barrier_wait(&together);
        if (futex(next, FUTEX_LOCK_PI, NULL) == 0) {
            unlock(next);
        } else {
            MUST(errno == EDEADLK);
            refused++;
        }
        unlock(own);
        pthread_barrier_wait(&together);
    }
}

static void all_at_once(void) {
    MUST(pthread_barrier_init(&together, NULL, HANDS) == 0);
    refused = 0;
    BEGIN(0, circle(first, second));
    BEGIN(1, circle(second, third));
    BEGIN(2, circle(third, first));
    for (int who = 0; who < HANDS; who++)
        finish(who);
    // Linux now and then refuses two.
    printf("  at once: %s\n", refused >= ROUNDS ? "refused each time" : "not refused");
}

// -- processes -------------------------------------------------------------------------------------------------------------

static void of_processes(void) {
    must_lock(first);
    fflush(stdout);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        move_to(cpu_count() - 1);
        must_lock(second);
        must_lock(first);
        unlock(first);
        unlock(second);
        _exit(0);
    }
    // Whose the lock is hears nothing of the queue.
    ON(1, until_waiting(first));
    printf("  of processes: %s\n", lock(second));
    unlock(first);
    int status;
    MUST(waitpid(child, &status, 0) == child);
    show_status("  the child", status);
    printf("  it is free: %s\n", lock(second));
    unlock(second);
}

int main(void) {
    start_hands();
    for (int private = 0; private < 2; private ++) {
        flag = private ? FUTEX_PRIVATE_FLAG : 0;
        ON(0, map(0));
        ON(1, map(1));
        ON(2, map(2));
        for (int turn = 0; turn < HANDS; turn++) {
            printf("%s, turn %d\n", private ? "private" : "shared", turn);
            first = words[turn], second = words[(turn + 1) % HANDS], third = words[(turn + 2) % HANDS];
            of_two();
            of_three();
            all_at_once();
            if (!private)
                of_processes();
        }
    }
    return 0;
}
