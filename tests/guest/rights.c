// Whose limits, priorities and policies may be changed by whom (man 2 getrlimit, setpriority, sched_setscheduler).
// cob: link=static,dynamic compare=host
#include "test.h"
#include <sys/resource.h>

#define ONE 54321
#define TWO 54322

// Real, effective and saved user, without any capability unless the effective one is root.
static void become(uid_t real, uid_t effective, uid_t saved) { MUST(syscall(SYS_setresuid, real, effective, saved) == 0); }

static int limit(pid_t pid, int resource, rlim_t soft, rlim_t hard) {
    struct rlimit both = {soft, hard};
    return (int)syscall(SYS_prlimit64, pid, resource, &both, NULL);
}

// A child of `real` and `effective`, which waits until its parent is no more: that may not be allowed to end it.
static pid_t sleeper(uid_t real, uid_t effective) {
    int ready[2], alive[2];
    MUST(pipe(ready) == 0 && pipe(alive) == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        become(real, effective, real);
        close(alive[1]);
        write(ready[1], "", 1);
        read(alive[0], ready, 1);
        _exit(0);
    }
    char c;
    MUST(read(ready[0], &c, 1) == 1);
    close(ready[0]), close(ready[1]), close(alive[0]);
    return child;
}

static void finish(pid_t child) {
    kill(child, SIGKILL);
    MUST(waitpid(child, NULL, 0) == child);
}

static void limits(const char *who, uid_t real, uid_t effective, uid_t saved) {
    printf("-- limits: %s\n", who);
    IN_CHILD("end", {
        MUST(limit(0, RLIMIT_NOFILE, 100, 200) == 0);
        pid_t other = sleeper(0, 0);
        become(real, effective, saved);
        struct rlimit both = {90, 200};
        SHOW(setrlimit(RLIMIT_NOFILE, &both));
        SHOW(limit(0, RLIMIT_NOFILE, 80, 190));
        SHOW(limit(getpid(), RLIMIT_NOFILE, 70, 180));
        // Root here may lack CAP_SYS_RESOURCE.
        if (effective)
            SHOW(limit(0, RLIMIT_NOFILE, 70, 500));
        SHOW(syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &both));
        SHOW(syscall(SYS_prlimit64, getpid(), RLIMIT_NOFILE, NULL, &both));
        printf("%lu %lu\n", (long)both.rlim_cur, (long)both.rlim_max);
        SHOW(getrlimit(RLIMIT_NOFILE, &both));
        SHOW(limit(0, 99, 1, 1));
        SHOW(limit(0, RLIMIT_NOFILE, 2, 1));
        if (effective) {
            SHOW(limit(other, RLIMIT_NOFILE, 80, 190));
            SHOW(syscall(SYS_prlimit64, other, RLIMIT_NOFILE, NULL, &both));
        }
        SHOW(limit(1 << 22, RLIMIT_NOFILE, 80, 190));
    });
}

static int policy(pid_t pid, int policy, int priority) {
    struct sched_param param = {priority};
    return sched_setscheduler(pid, policy, &param);
}

static void priorities(const char *who, uid_t real, uid_t effective, uid_t target_real, uid_t target_effective) {
    pid_t target = sleeper(target_real, target_effective);
    MUST(setpriority(PRIO_PROCESS, target, 5) == 0);
    printf("-- priorities: %s\n", who);
    IN_CHILD("end", {
        MUST(setpriority(PRIO_PROCESS, 0, 5) == 0);
        become(real, effective, real);
        cpu_set_t set;
        MUST(sched_getaffinity(0, sizeof set, &set) == 0);
        SHOW(setpriority(PRIO_PROCESS, target, 6));
        SHOW(setpriority(PRIO_PROCESS, target, 6));
        SHOW(setpriority(PRIO_PROCESS, target, 5));
        SHOW(setpriority(PRIO_PROCESS, target, -3));
        SHOW(setpriority(PRIO_PROCESS, target, -10));
        errno = 0;
        SHOW(getpriority(PRIO_PROCESS, target));
        SHOW(sched_setaffinity(target, sizeof set, &set));
        SHOW(policy(target, SCHED_BATCH, 0));
        SHOW(policy(target, SCHED_OTHER, 0));
        SHOW(policy(target, SCHED_FIFO, 5));
        SHOW(policy(target, SCHED_RR, 15));
        SHOW(policy(target, SCHED_OTHER, 0));
        SHOW(policy(target, SCHED_IDLE, 0));
        SHOW(policy(target, SCHED_OTHER, 0));
        SHOW(setpriority(PRIO_PROCESS, 1 << 22, 5));
        SHOW(setpriority(PRIO_PROCESS, 0, 7));
        SHOW(setpriority(PRIO_PROCESS, 0, 6));
        SHOW(setpriority(PRIO_PROCESS, 0, -7));
        SHOW(setpriority(PRIO_PROCESS, 0, 30));
        errno = 0;
        SHOW(getpriority(PRIO_PROCESS, 0));
        SHOW(policy(0, SCHED_FIFO, 1));
        SHOW(policy(0, SCHED_FIFO, 11));
        SHOW(policy(0, SCHED_FIFO | 0x40000000, 1));
        SHOW(policy(0, SCHED_OTHER, 0));
        SHOW(setpriority(3, 0, 5));
        SHOW(getpriority(3, 0));
    });
    errno = 0;
    SHOW(getpriority(PRIO_PROCESS, target));
    printf("policy %d\n", sched_getscheduler(target));
    finish(target);
}

// Several at once: the last error, though others were changed; EACCES before EPERM?
static void several(void) {
    printf("-- several\n");
    pid_t first = sleeper(ONE, ONE), second = sleeper(TWO, TWO), third = sleeper(ONE, ONE);
    MUST(setpgid(first, 0) == 0 && setpgid(second, first) == 0 && setpgid(third, first) == 0);
    MUST(setpriority(PRIO_PROCESS, first, 5) == 0 && setpriority(PRIO_PROCESS, third, 12) == 0);
    IN_CHILD("end", {
        become(ONE, ONE, ONE);
        SHOW(setpriority(PRIO_PGRP, first, 8));
        errno = 0;
        SHOW(getpriority(PRIO_PROCESS, first));
        SHOW(getpriority(PRIO_PROCESS, second));
        SHOW(getpriority(PRIO_PROCESS, third));
        SHOW(setpriority(PRIO_PGRP, first, 15));
        SHOW(getpriority(PRIO_PROCESS, first));
        SHOW(getpriority(PRIO_PROCESS, second));
        SHOW(getpriority(PRIO_PROCESS, third));
        SHOW(getpriority(PRIO_PGRP, first));
        SHOW(setpriority(PRIO_PGRP, getpid(), 15));
        SHOW(setpriority(PRIO_USER, TWO, 15));
        SHOW(setpriority(PRIO_USER, 77777, 15));
    });
    finish(first), finish(second), finish(third);
}

int main(void) {
    MUST(setpriority(PRIO_PROCESS, 0, 0) == 0);
    limits("root", 0, 0, 0);
    limits("a user", ONE, ONE, ONE);
    limits("effectively another", ONE, TWO, ONE);
    limits("saved another", ONE, ONE, TWO);
    limits("really root", 0, ONE, 0);
    limits("effectively root", ONE, 0, ONE);
    priorities("a user of itself", ONE, ONE, ONE, ONE);
    priorities("a user of another", ONE, ONE, TWO, TWO);
    priorities("of one that is really the same", ONE, ONE, ONE, TWO);
    priorities("of one that is effectively the same", ONE, ONE, TWO, ONE);
    priorities("really the same, effectively another", ONE, TWO, ONE, ONE);
    priorities("root", 0, 0, ONE, TWO);
    several();
    return 0;
}
