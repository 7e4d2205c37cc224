// Children that only fork are not placed, for all their memory is their parent's; but those that wait for a CPU while
// another kernel has one to spare move there. Busy children wait until every CPU has its share, which
// never comes without a balancer.
// cob: link=static,dynamic kernels=2,4 compare=self timeout=120
#include "test.h"

enum { CHILDREN = 8 };

static volatile struct { int stop, cpu[CHILDREN]; } *shared;

static void child(int number) {
    while (!shared->stop)
        shared->cpu[number] = sched_getcpu() + 1;
    _exit(0);
}

static int is_even(void) {
    int cpus = (int)sysconf(_SC_NPROCESSORS_ONLN), load[256] = {0};
    for (int i = 0; i < CHILDREN; i++) {
        if (!shared->cpu[i] || ++load[shared->cpu[i] - 1] > (CHILDREN + cpus - 1) / cpus)
            return 0;
    }
    return 1;
}

int main(void) {
    shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(shared != MAP_FAILED);
    pid_t pids[CHILDREN];
    for (int i = 0; i < CHILDREN; i++) {
        pids[i] = fork();
        MUST(pids[i] >= 0);
        if (pids[i] == 0)
            child(i);
    }
    while (!is_even())
        usleep(20000);
    puts("even");
    shared->stop = 1;
    for (int i = 0; i < CHILDREN; i++) {
        int status;
        MUST(waitpid(pids[i], &status, 0) == pids[i] && status == 0);
    }
    puts("ok");
    return 0;
}
