// Threads of low priority are no load to others: a thread that is born goes to the CPU on which only SCHED_IDLE threads run, though they are
// more than the ordinary ones elsewhere. Ten births, of which a few may meet a board that is a moment old.
// cob: link=static flags=-pthread kernels=4 compare=self timeout=60 shake=no
#include "test.h"
#include <pthread.h>

enum { HOGS = 6, BIRTHS = 10 };

static const struct hog {
    int cpu, policy;
} hogs[HOGS] = {{0, SCHED_OTHER}, {1, SCHED_IDLE}, {1, SCHED_IDLE}, {1, SCHED_IDLE}, {2, SCHED_OTHER}, {3, SCHED_OTHER}};

static void *born(void *cpu) {
    *(int *)cpu = sched_getcpu();
    return NULL;
}

int main(void) {
    pid_t children[HOGS];
    int ready[2], there = 0;
    char byte;
    MUST(cpu_count() == 4 && pipe(ready) == 0);
    for (int i = 0; i < HOGS; i++) {
        children[i] = fork();
        MUST(children[i] >= 0);
        if (children[i] == 0) {
            struct sched_param none = {0};
            MUST(sched_setscheduler(0, hogs[i].policy, &none) == 0);
            move_to(hogs[i].cpu);
            MUST(write(ready[1], "", 1) == 1);
            for (;;)
                ;
        }
        MUST(read(ready[0], &byte, 1) == 1);
    }
    for (int i = 0; i < BIRTHS; i++) {
        pthread_t thread;
        int cpu = -1;
        MUST(pthread_create(&thread, NULL, born, &cpu) == 0 && pthread_join(thread, NULL) == 0);
        there += cpu == 1;
    }
    for (int i = 0; i < HOGS; i++)
        MUST(kill(children[i], SIGKILL) == 0 && waitpid(children[i], NULL, 0) == children[i]);
    printf("%d of %d\n%s\n", there, BIRTHS, there >= 6 ? "ok" : "the ordinary threads were in each other's way");
}
