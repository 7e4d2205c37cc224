// What futex(2) can do beyond waiting and waking, with those who wait and those who wake on different kernels, and words whose waiters
// queue on one kernel or another: FUTEX_WAKE_OP with each operation and comparison, bitsets, requeueing, and all kinds of timeouts.
// cob: link=static,dynamic flags=-pthread compare=host timeout=240
#include "hands.h"
#include <limits.h>
#include <linux/futex.h>

static long futex(void *word, int operation, int value, void *timeout, void *second, int third) {
    return syscall(SYS_futex, word, operation, value, timeout, second, third);
}

static int flag; // FUTEX_PRIVATE_FLAG or not
static int32_t *first, *second, *third;

// How many wait: they are moved from the word to itself.
static int waiters(int32_t *word) {
    long count = futex(word, FUTEX_REQUEUE | flag, 0, (void *)(long)INT_MAX, word, 0);
    MUST(count >= 0);
    return (int)count;
}

static void until_waiting(int32_t *word, int count) {
    while (waiters(word) != count)
        sched_yield();
}

// -- those who wait --------------------------------------------------------------------------------------------------------

static struct {
    int32_t *word;
    int bits, outcome;
    const struct timespec *end;
} waits[HANDS];

static void wait_as(int who) {
    int32_t *word = waits[who].word;
    long result = waits[who].bits
                      ? futex(word, FUTEX_WAIT_BITSET | flag, *word, (void *)waits[who].end, NULL, waits[who].bits)
                      : futex(word, FUTEX_WAIT | flag, *word, (void *)waits[who].end, NULL, 0);
    waits[who].outcome = result == 0 ? 0 : errno;
}

static void begin_wait(int who, int32_t *word, int bits, const struct timespec *end) {
    int before = waiters(word);
    waits[who].word = word, waits[who].bits = bits, waits[who].end = end;
    switch (who) {
    case 0:
        BEGIN(0, wait_as(0));
        break;
    case 1:
        BEGIN(1, wait_as(1));
        break;
    default:
        BEGIN(2, wait_as(2));
    }
    if (!end)
        until_waiting(word, before + 1);
}

static const char *outcome(int who) {
    finish(who);
    return waits[who].outcome ? error_name(waits[who].outcome) : "woken";
}

static int wake(int32_t *word, int count) { return (int)futex(word, FUTEX_WAKE | flag, count, NULL, NULL, 0); }

// -- where the words are ---------------------------------------------------------------------------------------------------

static char *pages[HANDS];

static void map(int who) {
    int kind = flag ? MAP_PRIVATE : MAP_SHARED;
    pages[who] = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);
    MUST(pages[who] != MAP_FAILED);
    memset(pages[who], 0, PAGE);
}

// -- FUTEX_WAKE_OP ---------------------------------------------------------------------------------------------------------

static const char *const operations[] = {"set", "add", "or", "andn", "xor"};
static const char *const comparisons[] = {"==", "!=", "<", "<=", ">", ">="};

static uint32_t encoded(int operation, int argument, int comparison, int with) {
    return (uint32_t)operation << 28 | (uint32_t)comparison << 24 | (uint32_t)(argument & 0xfff) << 12 | (with & 0xfff);
}

static int wake_op(int count, int count_second, uint32_t op) {
    return (int)futex(first, FUTEX_WAKE_OP | flag, count, (void *)(long)count_second, second, (int)op);
}

// What becomes of the word.
static void show_words(void) {
    static const int32_t olds[] = {0, 5, -3, INT_MAX, INT_MIN};
    static const int arguments[] = {0, 1, 7, 0x7ff, 0x800, 0xfff};
    for (int operation = 0; operation < 16; operation++) {
        if (operation % 8 > 4)
            continue;
        printf("%s%s:", operations[operation % 8], operation & 8 ? " a bit" : "");
        for (size_t i = 0; i < sizeof olds / sizeof *olds; i++)
            for (size_t j = 0; j < sizeof arguments / sizeof *arguments; j++) {
                // Linux tells in its log of shifts beyond the word.
                if (operation & 8 && arguments[j] > 31)
                    continue;
                *second = olds[i];
                int woken = wake_op(1, 1, encoded(operation, arguments[j], i % 6, 0));
                printf(" %x", *second);
                MUST(woken == 0);
            }
        printf("\n");
    }
    *second = 5;
    SHOW(wake_op(1, 1, encoded(5, 1, 0, 0)));
    SHOW(*second);
    SHOW(wake_op(1, 1, encoded(0, 9, 6, 0)));
    MUST(futex(first, FUTEX_WAKE_OP | flag, 1, NULL, (char *)second + 2, 0) == -1 && errno == EINVAL);
    MUST(futex((char *)first + 1, FUTEX_WAKE_OP | flag, 1, NULL, second, 0) == -1 && errno == EINVAL);
    void *nothing = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SHOW(futex(first, FUTEX_WAKE_OP | flag, 1, NULL, nothing, 0));
    MUST(munmap(nothing, PAGE) == 0);
    SHOW(futex(first, FUTEX_WAKE_OP | flag, 1, NULL, nothing, 0));
    *second = 0;
}

// Who is woken. One waits at each word, but the second's only if the comparison holds.
static void show_woken(int waker) {
    static const int32_t olds[] = {-2, 0, 2};
    for (int comparison = 0; comparison < 6; comparison++) {
        printf("old %s 0:", comparisons[comparison]);
        for (size_t i = 0; i < sizeof olds / sizeof *olds; i++) {
            *second = olds[i];
            int one = (waker + 1) % HANDS, other = (waker + 2) % HANDS;
            begin_wait(one, first, 0, NULL);
            begin_wait(other, second, 0, NULL);
            static int woken, op;
            op = (int)encoded(comparison % 5, 1, comparison, 0);
            void job(void) { woken = wake_op(10, 10, (uint32_t)op); }
            on(waker, job);
            int left = waiters(second);
            printf(" %d%s", woken, left ? " and one sleeps" : "");
            MUST(waiters(first) == 0 && wake(second, 10) == left);
            MUST(strcmp(outcome(one), "woken") == 0 && strcmp(outcome(other), "woken") == 0);
            printf(" (%d)%s", *second, i < 2 ? "," : "\n");
        }
    }
    // Only as many as were asked for, and all at one word.
    for (int who = 0; who < HANDS; who++)
        if (who != waker)
            begin_wait(who, first, 0, NULL);
    int32_t *apart = second;
    second = first;
    static int woken;
    void job(void) { woken = wake_op(1, 1, encoded(FUTEX_OP_ADD, 1, FUTEX_OP_CMP_GE, 0)); }
    on(waker, job);
    printf("the same word: %d, %d left\n", woken, waiters(first));
    for (int who = 0; who < HANDS; who++)
        if (who != waker)
            outcome(who);
    second = apart;
    *first = *second = 0;
}

// A count is not looked at before one was woken.
static void show_counts(void) {
    static const int counts[] = {0, -1, INT_MIN, 2};
    static int woken[3];
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int kind = 0; kind < 3; kind++) {
            static int count, how;
            count = counts[i], how = kind;
            begin_wait(0, first, 1, NULL);
            begin_wait(1, first, 1, NULL);
            ON(2, woken[how] = how == 0   ? wake(first, count)
                               : how == 1 ? (int)futex(first, FUTEX_WAKE_BITSET | flag, count, NULL, NULL, 1)
                                          : wake_op(count, count, 0));
            printf("count %d: %d, left %d\n", count, woken[how], waiters(first));
            wake(first, 2);
            outcome(0);
            outcome(1);
        }
}

// A barrier as glibc's old condition variables made it: nobody is lost, whoever is where.
enum { ROUNDS = 300 };
static _Atomic int turns;

static void take_turns(int who) {
    // first: whose turn it is; second: how many turns are over.
    for (int round = 0; round < ROUNDS; round++) {
        int32_t now;
        while ((now = __atomic_load_n(first, __ATOMIC_SEQ_CST)) != who)
            futex(first, FUTEX_WAIT | flag, now, NULL, NULL, 0);
        turns++;
        __atomic_store_n(first, (who + 1) % HANDS, __ATOMIC_SEQ_CST);
        MUST(wake_op(INT_MAX, INT_MAX, encoded(FUTEX_OP_ADD, 1, FUTEX_OP_CMP_GE, 0)) >= 0);
    }
}

static void wait_for_turns(void) {
    int32_t now;
    while ((now = __atomic_load_n(second, __ATOMIC_SEQ_CST)) < ROUNDS * HANDS)
        futex(second, FUTEX_WAIT | flag, now, NULL, NULL, 0);
}

static void everybody_turns(void) {
    turns = *first = *second = 0;
    BEGIN(0, take_turns(0));
    BEGIN(1, take_turns(1));
    BEGIN(2, take_turns(2));
    wait_for_turns();
    for (int who = 0; who < HANDS; who++)
        finish(who);
    printf("%d turns, %d counted\n", turns, *second);
    *first = *second = 0;
}

// -- bitsets ---------------------------------------------------------------------------------------------------------------

static int wake_bits(int32_t *word, int count, int bits) {
    return (int)futex(word, FUTEX_WAKE_BITSET | flag, count, NULL, NULL, bits);
}

static void bitsets(void) {
    begin_wait(0, first, 1, NULL);
    begin_wait(1, first, 2, NULL);
    begin_wait(2, first, 6, NULL);
    printf("bits 8: %d,", wake_bits(first, 10, 8));
    printf(" 2, one: %d,", wake_bits(first, 1, 2));
    printf(" left %d,", waiters(first));
    printf(" the older, %s,", outcome(1));
    printf(" 2: %d,", wake_bits(first, 10, 2));
    printf(" %s,", outcome(2));
    printf(" 4: %d,", wake_bits(first, 10, 4));
    printf(" all: %d,", wake_bits(first, 10, -1));
    printf(" %s\n", outcome(0));
    // A plain wake and a plain wait are of all bits.
    begin_wait(0, first, 1 << 31, NULL);
    begin_wait(1, first, 0, NULL);
    begin_wait(2, first, 1, NULL);
    printf("bit 31: %d,", wake_bits(first, 10, 1 << 31));
    printf(" %s,", outcome(0));
    printf(" %s,", outcome(1));
    printf(" plain: %d,", wake(first, 10));
    printf(" %s\n", outcome(2));
    // What is moved keeps its bits.
    begin_wait(0, first, 1, NULL);
    begin_wait(2, first, 2, NULL);
    printf("moved %ld,", futex(first, FUTEX_REQUEUE | flag, 0, (void *)10L, third, 0));
    printf(" 2: %d,", wake_bits(third, 10, 2));
    printf(" %s,", outcome(2));
    printf(" 2: %d,", wake_bits(third, 10, 2));
    printf(" 1: %d,", wake_bits(third, 10, 1));
    printf(" %s\n", outcome(0));
    SHOW(wake_bits(first, 10, 0));
    SHOW(futex(first, FUTEX_WAIT_BITSET | flag, 0, NULL, NULL, 0));
}

// -- requeueing ------------------------------------------------------------------------------------------------------------

// The chain alternates between the two words' pages.
static int32_t *link_of(int32_t *to, int i) { return i % 2 ? to + 16 + i : first + 16 + i; }

static void requeueing(int32_t *to) {
    for (int wakes = 0; wakes <= 2; wakes++)
        for (long moves = 0; moves <= 3; moves++) {
            for (int who = 0; who < HANDS; who++)
                begin_wait(who, first, 0, NULL);
            *to = 7;
            long done = futex(first, FUTEX_CMP_REQUEUE | flag, wakes, (void *)moves, to, 0);
            int here = waiters(first), there = waiters(to);
            printf("wake %d, move %ld: %ld, here %d, there %d;", wakes, moves, done, here, there);
            printf(" woken %d here,", wake(first, 10));
            printf(" %d", wake(to, 1));
            printf(" and %d there\n", wake(to, 10));
            for (int who = 0; who < HANDS; who++)
                MUST(strcmp(outcome(who), "woken") == 0);
        }
    begin_wait(1, first, 0, NULL);
    SHOW(futex(first, FUTEX_CMP_REQUEUE | flag, 1, (void *)1L, to, 5));
    SHOW(futex(first, FUTEX_CMP_REQUEUE | flag, -1, (void *)1L, to, 0));
    SHOW(futex(first, FUTEX_CMP_REQUEUE | flag, 1, (void *)-1L, to, 0));
    SHOW(futex(first, FUTEX_REQUEUE | flag, 1, (void *)1L, (char *)to + 1, 0));
    printf("still there: %d\n", wake(first, 1));
    outcome(1);
    // One after the other over a chain of words.
    for (int who = 0; who < HANDS; who++)
        begin_wait(who, first, 0, NULL);
    MUST(futex(first, FUTEX_REQUEUE | flag, 0, (void *)10L, link_of(to, 0), 0) == HANDS);
    for (int i = 1; i < 50; i++)
        MUST(futex(link_of(to, i - 1), FUTEX_REQUEUE | flag, 0, (void *)10L, link_of(to, i), 0) == HANDS);
    printf("at the end of the chain: %d\n", wake(link_of(to, 49), 10));
    for (int who = 0; who < HANDS; who++)
        outcome(who);
    *to = 0;
}

// Three threads move whoever waits round in a circle of words, each from another one, while everybody is woken at the last.
static int32_t *circle[HANDS];
static _Atomic int circling, moved_on;

static void move_on(int who) {
    while (circling) {
        long moved = futex(circle[who], FUTEX_REQUEUE | flag, 0, (void *)10L, circle[(who + 1) % HANDS], 0);
        MUST(moved >= 0);
        moved_on += (int)moved;
    }
}

static void *wait_in_circle(void *unused) {
    (void)unused;
    MUST(futex(first, FUTEX_WAIT | flag, *first, NULL, NULL, 0) == 0);
    return NULL;
}

static void in_a_circle(void) {
    enum { WAITERS = 5 };
    pthread_t threads[WAITERS];
    circle[0] = first, circle[1] = second, circle[2] = (int32_t *)pages[2] + 32;
    for (int i = 0; i < WAITERS; i++)
        MUST(pthread_create(&threads[i], NULL, wait_in_circle, NULL) == 0);
    until_waiting(first, WAITERS);
    moved_on = 0;
    circling = 1;
    BEGIN(0, move_on(0));
    BEGIN(1, move_on(1));
    BEGIN(2, move_on(2));
    while (moved_on < 50 * WAITERS)
        sched_yield();
    int woken = 0;
    while (woken < WAITERS)
        for (int i = 0; i < HANDS; i++)
            woken += wake(circle[i], 1);
    circling = 0;
    for (int i = 0; i < HANDS; i++)
        finish(i);
    for (int i = 0; i < WAITERS; i++)
        MUST(pthread_join(threads[i], NULL) == 0);
    printf("woken in the circle: %d, left %d\n", woken, waiters(first) + waiters(second) + waiters(circle[2]));
}

// A signal finds a waiter where it was moved to: it waits again, at its own word (or is interrupted).
static void do_nothing(int signal) { (void)signal; }

static void interrupted(int32_t *to) {
    for (int restart = 0; restart < 2; restart++) {
        struct sigaction action = {.sa_handler = do_nothing, .sa_flags = restart ? SA_RESTART : 0};
        MUST(sigaction(SIGUSR1, &action, NULL) == 0);
        begin_wait(1, first, 0, NULL);
        MUST(futex(first, FUTEX_REQUEUE | flag, 0, (void *)10L, to, 0) == 1);
        MUST(syscall(SYS_tgkill, getpid(), hands[1].tid, SIGUSR1) == 0);
        if (restart)
            until_waiting(first, 1);
        printf("a signal: woken there %d,", restart ? wake(to, 10) : 0);
        printf(" here %d,", restart ? wake(first, 10) : 0);
        printf(" %s\n", outcome(1));
        MUST(waiters(to) == 0);
    }
}

// -- timeouts --------------------------------------------------------------------------------------------------------------

static struct timespec after(clockid_t clock, long ms) {
    struct timespec now;
    clock_gettime(clock, &now);
    now.tv_nsec += ms * 1000000;
    now.tv_sec += now.tv_nsec / 1000000000;
    now.tv_nsec %= 1000000000;
    return now;
}

static int is_before(struct timespec one, struct timespec other) {
    return one.tv_sec < other.tv_sec || (one.tv_sec == other.tv_sec && one.tv_nsec < other.tv_nsec);
}

static void show_late(const char *what, int operation, struct timespec end, int expected) {
    clockid_t clock = operation & FUTEX_CLOCK_REALTIME ? CLOCK_REALTIME : CLOCK_MONOTONIC;
    struct timespec due = operation == FUTEX_WAIT ? after(clock, end.tv_nsec / 1000000) : end;
    long result = futex(first, operation | flag, expected, &end, NULL, 1);
    int error = result == 0 ? 0 : errno;
    int early = error == ETIMEDOUT && is_before(after(clock, 0), due);
    printf("%s: %s%s\n", what, error_name(error), early ? ", too early" : "");
}

static void timeouts(void) {
    struct timespec soon = {.tv_nsec = 3000000}, past = {.tv_sec = 1}, none = {0};
    struct timespec negative = {.tv_sec = -1}, large = {.tv_nsec = 1000000000};
    show_late("relative", FUTEX_WAIT, soon, 0);
    show_late("none left", FUTEX_WAIT, none, 0);
    show_late("another value", FUTEX_WAIT, soon, 1);
    show_late("negative", FUTEX_WAIT, negative, 0);
    show_late("too many ns", FUTEX_WAIT, large, 0);
    show_late("absolute", FUTEX_WAIT_BITSET, after(CLOCK_MONOTONIC, 4), 0);
    show_late("by the calendar", FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, after(CLOCK_REALTIME, 4), 0);
    show_late("over", FUTEX_WAIT_BITSET, none, 0);
    show_late("over by the calendar", FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, past, 0);
    show_late("absolute, another value", FUTEX_WAIT_BITSET, past, 1);
    show_late("absolute, negative", FUTEX_WAIT_BITSET, negative, 0);
    SHOW(futex(first, FUTEX_WAKE | FUTEX_CLOCK_REALTIME | flag, 1, NULL, NULL, 0));
}

static void timeouts_everywhere(void) {
    timeouts();
    ON(1, timeouts());
    ON(2, timeouts());
    // Who gave up does not eat a wake, also where it was moved to.
    static struct timespec soon = {.tv_nsec = 20000000};
    begin_wait(0, first, 0, NULL);
    begin_wait(2, first, 1, NULL);
    begin_wait(1, first, 0, &soon);
    printf("gave up: %s,", outcome(1));
    printf(" left %d,", waiters(first));
    printf(" woken %d,", wake(first, 10));
    printf(" %s,", outcome(0));
    printf(" %s\n", outcome(2));
    // It can't be seen whether it has begun to wait: it may give up first, and is not moved.
    int32_t *targets[] = {third, second};
    for (int i = 0; i < 2; i++) {
        begin_wait(2, first, 0, NULL);
        begin_wait(1, first, 0, &soon);
        long moved = futex(first, FUTEX_REQUEUE | flag, 0, (void *)10L, targets[i], 0);
        MUST(moved == 1 || moved == 2);
        printf("moved, gave up: %s,", outcome(1));
        printf(" woken %d there,", wake(targets[i], 10));
        printf(" %d here,", wake(first, 10));
        printf(" %s\n", outcome(2));
    }
}

int main(void) {
    start_hands();
    for (int turn = 0; turn < 2; turn++) {
        flag = turn ? 0 : FUTEX_PRIVATE_FLAG;
        printf("-- %s\n", turn ? "shared" : "private");
        ON(0, map(0));
        ON(1, map(1));
        ON(2, map(2));
        for (int home = 0; home < HANDS; home++) {
            // The second word's waiters queue elsewhere, or with the first's.
            first = (int32_t *)pages[home], third = first + 64;
            second = (int32_t *)pages[(home + 1) % HANDS] + 8;
            if (home == 1)
                second = first + 8;
            show_words();
            ON(2, show_words());
            for (int waker = 0; waker < HANDS; waker++)
                show_woken(waker);
            show_counts();
            everybody_turns();
            bitsets();
            requeueing(third);
            requeueing(second);
            interrupted(third);
            interrupted(second);
            in_a_circle();
            timeouts_everywhere();
        }
    }
    return 0;
}
