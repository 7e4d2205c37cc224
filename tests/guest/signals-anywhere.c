// Signals to threads wherever they are: blocked in a read, in a futex, computing; and a kill of all of them.
// cob: link=static,dynamic flags=-pthread kernels=1,2,4 compare=self timeout=120
#include "test.h"
#include <pthread.h>

static __thread _Atomic int mine;
static _Atomic int got[8], ready, stop;
static long tids[8];
static __thread int me;
static int pipes[2];

static void handler(int number) {
    (void)number;
    got[me]++;
    mine++;
}

static void *worker(void *argument) {
    me = (int)(long)argument;
    tids[me] = syscall(SYS_gettid);
    move_to(me % cpu_count());
    ready++;
    if (me % 3 == 0) { // computes
        while (!stop)
            ;
    } else if (me % 3 == 1) { // blocks in read, EINTR each time
        char byte;
        while (!stop)
            MUST(read(pipes[0], &byte, 1) == -1 && errno == EINTR);
    } else { // sleeps
        while (!stop) {
            struct timespec time = {.tv_sec = 1000}, left;
            MUST(nanosleep(&time, &left) == -1 && errno == EINTR && left.tv_sec > 800);
        }
    }
    return NULL;
}

int main(void) {
    struct sigaction action = {.sa_handler = handler};
    MUST(sigaction(SIGUSR2, &action, NULL) == 0);
    MUST(pipe(pipes) == 0);
    pthread_t threads[8];
    for (long i = 0; i < 8; i++)
        MUST(pthread_create(&threads[i], NULL, worker, (void *)i) == 0);
    while (ready < 8)
        sched_yield();
    for (int round = 1; round <= 20; round++) {
        move_to(round % cpu_count());
        for (int i = 0; i < 8; i++) {
            MUST(syscall(SYS_tgkill, getpid(), tids[i], SIGUSR2) == 0);
            while (got[i] < round)
                sched_yield();
        }
    }
    stop = 1;
    for (int i = 0; i < 8; i++) {
        // It may have looked at `stop` just before: ring until it is gone.
        while (pthread_tryjoin_np(threads[i], NULL) == EBUSY) {
            syscall(SYS_tgkill, getpid(), tids[i], SIGUSR2);
            usleep(1000);
        }
    }
    MUST(syscall(SYS_tgkill, getpid(), tids[3], SIGUSR2) == -1 && errno == ESRCH);
    MUST(mine == 0);
    printf("ok\n");
}
