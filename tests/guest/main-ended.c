// A main thread that has ended while another lives, or a whole process that nobody has waited for yet: how it was scheduled is told and can be set.
// cob: link=static,dynamic flags=-pthread compare=host
#include "test.h"
#include <pthread.h>
#include <sys/resource.h>

static pid_t main_thread;
static pthread_t main_id;

static int first_cpu(pid_t tid) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(tid, sizeof set, &set) < 0)
        return -errno;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set))
            return CPU_COUNT(&set) == 1 ? (cpu == cpu_count() - 1 ? -1000 : cpu) : -2000;
    return -3000;
}

static const char *affinity(pid_t tid) {
    int cpu = first_cpu(tid);
    return cpu == 0 ? "the first CPU" : cpu == -1000 ? "the last CPU" : cpu == -2000 ? "several" : "none";
}

static void show(pid_t tid) {
    struct sched_param param = {-1};
    struct timespec interval = {-1, -1};
    printf("  on %s, ", affinity(tid));
    errno = 0;
    printf("policy %d, nice %d, ", sched_getscheduler(tid), getpriority(PRIO_PROCESS, (id_t)tid));
    printf("%s, ", error_name(errno));
    printf("priority %d ", sched_getparam(tid, &param));
    printf("%d, ", param.sched_priority);
    printf("interval %d\n", sched_rr_get_interval(tid, &interval));
}

static void change(pid_t tid) {
    cpu_set_t set;
    CPU_ZERO(&set);
    SHOW(sched_setaffinity(tid, sizeof set, &set));
    CPU_SET(0, &set);
    SHOW(sched_setaffinity(tid, sizeof set, &set));
    SHOW(setpriority(PRIO_PROCESS, (id_t)tid, 7));
    SHOW(sched_setscheduler(tid, SCHED_BATCH, &(struct sched_param){0}));
    show(tid);
    SHOW(sched_setscheduler(tid, SCHED_RR, &(struct sched_param){5}));
    show(tid);
    SHOW(sched_setscheduler(tid, SCHED_OTHER, &(struct sched_param){0}));
}

static void *lives_on(void *cpu) {
    move_to((int)(intptr_t)cpu);
    MUST(pthread_join(main_id, NULL) == 0);
    show(main_thread);
    change(main_thread);
    show(main_thread);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        move_to(0);
        printf("another process finds\n");
        show(main_thread);
        MUST(setresuid(64321, 64321, 64321) == 0);
        printf("another user\n");
        SHOW(setpriority(PRIO_PROCESS, (id_t)main_thread, 9));
        show(main_thread);
        fflush(stdout);
        _exit(0);
    }
    MUST(waitpid(child, NULL, 0) == child);
    fflush(stdout);
    _exit(0);
}

// The main thread ends on the last CPU, the other one is where `cpu` says.
static void main_ends(int cpu) {
    pthread_t thread;
    main_thread = getpid();
    main_id = pthread_self();
    MUST(setpriority(PRIO_PROCESS, 0, 3) == 0);
    MUST(pthread_create(&thread, NULL, lives_on, (void *)(intptr_t)cpu) == 0);
    move_to(cpu_count() - 1);
    pthread_exit(NULL);
}

static void zombie(void) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        move_to(cpu_count() - 1);
        MUST(setpriority(PRIO_PROCESS, 0, 4) == 0);
        _exit(0);
    }
    MUST(waitid(P_PID, (id_t)child, NULL, WEXITED | WNOWAIT) == 0);
    show(child);
    change(child);
    MUST(waitpid(child, NULL, 0) == child);
    show(child);
}

static void *ends_last(void *cpu) {
    move_to((int)(intptr_t)cpu);
    MUST(pthread_join(main_id, NULL) == 0);
    _exit(0);
}

static void *executes(void *cpu) {
    move_to((int)(intptr_t)cpu);
    execl("/proc/self/exe", "main-ended", "ends", NULL);
    MUST(0);
    return NULL;
}

// How often a process is not found while its main thread ends and `other` goes on: by who asks all the time.
static int lost(void *(*other)(void *), int round) {
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        main_id = pthread_self();
        move_to(round % cpu_count());
        MUST(pthread_create(&thread, NULL, other, (void *)(intptr_t)(round / 2 % cpu_count())) == 0);
        if (other == ends_last)
            pthread_exit(NULL);
        for (;;)
            pause();
    }
    int lost = 0;
    siginfo_t end = {0};
    for (int nice = 0; end.si_pid == 0; nice = (nice + 1) % 10) {
        cpu_set_t set;
        lost += sched_getaffinity(child, sizeof set, &set) < 0;
        lost += setpriority(PRIO_PROCESS, (id_t)child, nice) < 0;
        // execve ends the main thread, and another one has its id then.
        int is = getpriority(PRIO_PROCESS, (id_t)child);
        lost += other == ends_last ? is != nice : is < 0;
        MUST(waitid(P_PID, (id_t)child, &end, WEXITED | WNOHANG | WNOWAIT) == 0);
    }
    MUST(waitpid(child, NULL, 0) == child);
    return lost;
}

static void at_every_moment(void) {
    int ended = 0, executed = 0;
    for (int round = 0; round < 40; round++) {
        ended += lost(ends_last, round);
        executed += lost(executes, round);
    }
    printf("  lost %d and %d times\n", ended, executed);
}

int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1)
        return 0;
    IN_CHILD("beside its home", main_ends(0));
    IN_CHILD("on the last CPU", main_ends(cpu_count() - 1));
    IN_CHILD("zombie", zombie());
    at_every_moment();
    return 0;
}
