// membarrier as the slow side of Dekker's handshake: the fast side has no fence, and still never do both sides
// miss each other (without the call they do, in a few of the rounds). The threads are on two kernels.
// cob: link=static,dynamic flags=-pthread compare=host
#include "test.h"
#include <linux/membarrier.h>
#include <pthread.h>

enum { ROUNDS = 3000, FAST = 1, SPINS = 2000 };

static volatile int flags[FAST][16], seen[FAST][16], slow[16];
static int round_number[16], finished[16];

// Both sides look without giving up the CPU for a while, so that they start at the same moment.
static void wait_for(int *at, int least) {
    for (int i = 0; __atomic_load_n(at, __ATOMIC_ACQUIRE) < least; i++)
        if (i >= SPINS)
            sched_yield();
}

static void *fast(void *argument) {
    int me = (intptr_t)argument;
    for (int round = 1; round <= ROUNDS; round++) {
        wait_for(round_number, round);
        flags[me][0] = 1;
        __asm__ volatile("" ::: "memory");
        seen[me][0] = slow[0];
        __atomic_fetch_add(finished, 1, __ATOMIC_RELEASE);
    }
    return NULL;
}

int main(void) {
    pthread_t threads[FAST];
    MUST(syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0);
    for (int i = 0; i < FAST; i++)
        MUST(pthread_create(&threads[i], NULL, fast, (void *)(intptr_t)i) == 0);
    int missed = 0, failed = 0;
    for (int round = 1; round <= ROUNDS; round++) {
        for (int i = 0; i < FAST; i++)
            flags[i][0] = 0;
        slow[0] = 0;
        finished[0] = 0;
        __atomic_store_n(round_number, round, __ATOMIC_SEQ_CST);
        for (volatile int delay = round % 64; delay > 0; delay--)
            ;
        slow[0] = 1;
        failed += syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0;
        int found[FAST];
        for (int i = 0; i < FAST; i++)
            found[i] = flags[i][0];
        wait_for(finished, FAST);
        for (int i = 0; i < FAST; i++)
            missed += !found[i] && !seen[i][0];
    }
    for (int i = 0; i < FAST; i++)
        pthread_join(threads[i], NULL);
    printf("failed %d missed %d\n", failed, missed);
}
