// futex between threads pinned to different CPUs: ping-pong, wake counts, requeue, timeouts, private and shared.
// cob: link=static,dynamic flags=-pthread kernels=1,2,4 compare=self timeout=120
#include "test.h"
#include <linux/futex.h>
#include <pthread.h>

static long futex(void *word, int operation, int value, void *timeout, void *word2, int value3) {
    return syscall(SYS_futex, word, operation, value, timeout, word2, value3);
}

static _Atomic int ball, sleepers, gate, gate2, woken;
static int operation_flag;

static void *player(void *argument) {
    int me = (int)(long)argument;
    move_to(me * (cpu_count() - 1));
    for (int round = 0; round < 1000; round++) {
        while (ball % 2 != me)
            futex(&ball, FUTEX_WAIT | operation_flag, 1 - me + (ball & ~1), NULL, NULL, 0);
        ball++;
        futex(&ball, FUTEX_WAKE | operation_flag, 1, NULL, NULL, 0);
    }
    return NULL;
}

static void *sleeper(void *argument) {
    move_to((int)(long)argument % cpu_count());
    sleepers++;
    while (gate == 0 && gate2 == 0)
        if (futex(&gate, FUTEX_WAIT | operation_flag, 0, NULL, NULL, 0) == 0)
            break;
    woken++;
    return NULL;
}

static void play(void) {
    pthread_t players[2];
    ball = 0;
    for (long i = 0; i < 2; i++)
        MUST(pthread_create(&players[i], NULL, player, (void *)i) == 0);
    for (int i = 0; i < 2; i++)
        MUST(pthread_join(players[i], NULL) == 0);
    MUST(ball == 2000);
}

static void requeue(void) {
    enum { COUNT = 8 };
    pthread_t threads[COUNT];
    sleepers = gate = gate2 = woken = 0;
    for (long i = 0; i < COUNT; i++)
        MUST(pthread_create(&threads[i], NULL, sleeper, (void *)i) == 0);
    // Wake one and move the rest to the second word, until all were seen.
    long seen = 0;
    while (seen < COUNT) {
        long moved = futex(&gate, FUTEX_CMP_REQUEUE | operation_flag, 1, (void *)100L, &gate2, 0);
        MUST(moved >= 0);
        seen += moved;
        sched_yield();
    }
    long rest = futex(&gate2, FUTEX_WAKE | operation_flag, 1000, NULL, NULL, 0);
    MUST(rest >= 0 && rest < COUNT);
    for (int i = 0; i < COUNT; i++)
        MUST(pthread_join(threads[i], NULL) == 0);
    MUST(woken == COUNT);
    MUST(futex(&gate, FUTEX_CMP_REQUEUE | operation_flag, 1, (void *)1L, &gate2, 5) == -1 && errno == EAGAIN);
}

int main(void) {
    for (int turn = 0; turn < 2; turn++) {
        operation_flag = turn ? 0 : FUTEX_PRIVATE_FLAG;
        play();
        requeue();
    }
    for (int cpu = 0; cpu < cpu_count(); cpu++) {
        move_to(cpu);
        struct timespec timeout = {.tv_nsec = 2000000};
        MUST(futex(&gate, FUTEX_WAIT_PRIVATE, gate, &timeout, NULL, 0) == -1 && errno == ETIMEDOUT);
        MUST(futex(&gate, FUTEX_WAIT_PRIVATE, gate + 1, &timeout, NULL, 0) == -1 && errno == EAGAIN);
    }
    // A shared word across fork.
    _Atomic int *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(shared != MAP_FAILED);
    pid_t child = fork();
    if (child == 0) {
        move_to(cpu_count() - 1);
        while (*shared == 0)
            futex((void *)shared, FUTEX_WAIT, 0, NULL, NULL, 0);
        *shared = 2;
        futex((void *)shared, FUTEX_WAKE, 1, NULL, NULL, 0);
        _exit(0);
    }
    move_to(0);
    *shared = 1;
    futex((void *)shared, FUTEX_WAKE, 1, NULL, NULL, 0);
    while (*shared == 1)
        futex((void *)shared, FUTEX_WAIT, 1, NULL, NULL, 0);
    MUST(waitpid(child, NULL, 0) == child);
    printf("ok\n");
}
