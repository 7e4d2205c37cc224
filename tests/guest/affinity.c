// sched_setaffinity and its relatives, where the answer does not depend on the number of CPUs.
// cob: link=static,dynamic flags=-pthread compare=self
#include "test.h"
#include <pthread.h>
#include <sys/resource.h>

static int size(void) {
    cpu_set_t set;
    MUST(sched_getaffinity(0, sizeof set, &set) == 0);
    return CPU_COUNT(&set);
}

static _Atomic int pushed, done;
static _Atomic long tid;

static void *busy(void *argument) {
    tid = syscall(SYS_gettid);
    while (!pushed)
        ;
    // Was moved from outside, while computing.
    MUST(sched_getcpu() == pushed - 1);
    done = 1;
    return argument;
}

int main(void) {
    int cpus = cpu_count();
    cpu_set_t all, one, none;
    CPU_ZERO(&none);
    MUST(sched_getaffinity(0, sizeof all, &all) == 0);
    MUST(CPU_COUNT(&all) == cpus);
    MUST(sysconf(_SC_NPROCESSORS_CONF) == cpus);
    for (int cpu = 0; cpu < cpus; cpu++) {
        MUST(CPU_ISSET(cpu, &all));
        move_to(cpu);
        MUST(size() == 1);
        unsigned here, node;
        MUST(syscall(SYS_getcpu, &here, &node, NULL) == 0 && here == (unsigned)cpu);
        pid_t child = fork();
        if (child == 0) {
            MUST(size() == 1 && sched_getcpu() == cpu);
            _exit(0);
        }
        int status;
        MUST(waitpid(child, &status, 0) == child && status == 0);
    }
    MUST(sched_setaffinity(0, sizeof none, &none) == -1 && errno == EINVAL);
    CPU_SET(1000, &none);
    MUST(sched_setaffinity(0, sizeof none, &none) == -1 && errno == EINVAL);
    CPU_SET(cpus - 1, &none);
    MUST(sched_setaffinity(0, sizeof none, &none) == 0 && size() == 1 && sched_getcpu() == cpus - 1);
    MUST(sched_setaffinity(1 << 29, sizeof all, &all) == -1 && errno == ESRCH);
    MUST(syscall(SYS_sched_getaffinity, 0, 1, &one) == -1 && errno == EINVAL);
    MUST(syscall(SYS_sched_getaffinity, 0, 9, &one) == -1 && errno == EINVAL);
    MUST(sched_setaffinity(0, sizeof all, &all) == 0 && size() == cpus);
    for (int cpu = 0; cpu < cpus; cpu++) {
        pthread_t thread;
        pushed = done = 0, tid = 0;
        MUST(pthread_create(&thread, NULL, busy, NULL) == 0);
        while (!tid)
            sched_yield();
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        MUST(sched_setaffinity(tid, sizeof one, &one) == 0);
        pushed = cpu + 1;
        MUST(pthread_join(thread, NULL) == 0 && done);
    }
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    CPU_ZERO(&one);
    CPU_SET(cpus - 1, &one);
    MUST(pthread_attr_setaffinity_np(&attributes, sizeof one, &one) == 0);
    MUST(sched_getscheduler(0) == SCHED_OTHER);
    struct sched_param parameter = {.sched_priority = 5};
    MUST(sched_setscheduler(0, SCHED_OTHER, &parameter) == -1 && errno == EINVAL);
    MUST(sched_get_priority_max(SCHED_FIFO) == 99 && sched_get_priority_min(SCHED_RR) == 1);
    MUST(sched_get_priority_max(77) == -1 && errno == EINVAL);
    MUST(setpriority(PRIO_PROCESS, 0, 5) == 0 && getpriority(PRIO_PROCESS, 0) == 5);
    MUST(sched_yield() == 0);
    printf("ok\n");
}
