// The pids controller of cgroup v2: pids.max for a group and those below it, on all CPUs; what counts, what is refused and told.
// (On this machine's Linux the controller may be of version 1, so there is nothing to compare with.)
// cob: link=static,dynamic flags=-pthread kernels=1,2,4 compare=self timeout=120
#include "cgroup.h"
#include <pthread.h>

static void show(const char *what) {
    printf("%s: current %ld %ld max %.*s refused %ld %ld\n", what, value(in("pids.current"), NULL), value(in("a/pids.current"), NULL),
           (int)strcspn(get(in("a/pids.max")), "\n"), get(in("a/pids.max")), value(in("pids.events"), "max"), value(in("a/pids.events.local"), "max"));
}

static int gate[2];

static void *waits(void *argument) {
    move_to((long)argument % cpu_count());
    char byte;
    MUST(read(gate[0], &byte, 1) == 0);
    return NULL;
}

// Makes processes on all CPUs until one is refused; how many there were.
static int fork_all(void) {
    for (int i = 0;; i++) {
        move_to(i % cpu_count());
        pid_t child = fork();
        if (child < 0) {
            MUST(errno == EAGAIN);
            return i;
        }
        if (child == 0) {
            for (;;)
                pause();
        }
    }
}

static void limited(void) {
    enter("a");
    MUST(pipe(gate) == 0);
    pthread_t threads[3];
    for (long i = 0; i < 3; i++)
        MUST(pthread_create(&threads[i], NULL, waits, (void *)(i + 1)) == 0);
    show("threads");
    printf("forked %d\n", fork_all());
    printf("a thread: %s\n", error_name(pthread_create(&threads[0], NULL, waits, NULL)));
    show("full");
    fflush(stdout);
    MUST(put(in("a/cgroup.kill"), "1") == 0);
    for (;;)
        pause();
}

// Forks as fast as it can; refused, it tries again.
__attribute__((noreturn)) static void breed(void) {
    for (;;)
        if (fork() < 0)
            sched_yield();
}

static void test(void) {
    MUST(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    mount_groups();
    printf("controllers %s", strstr(get("groups/cgroup.controllers"), "pids") ? "have pids\n" : "lack pids\n");
    SHOW(access(in("pids.max"), F_OK));
    PUT("groups/cgroup.subtree_control", "+pids");
    printf("%s", get(in("cgroup.controllers")));
    SHOW(access(in("pids.max"), F_OK));
    SHOW(access("groups/pids.max", F_OK));
    MUST(mkdir(in("a"), 0755) == 0);
    SHOW(access(in("a/pids.max"), F_OK));
    PUT(in("cgroup.subtree_control"), "+pids");
    PUT(in("a/pids.max"), "-1");
    PUT(in("a/pids.max"), "5000000");
    PUT(in("a/pids.max"), "many");
    PUT(in("a/pids.max"), "10");
    PUT("groups/cgroup.subtree_control", "-pids");
    show("new");
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0)
        limited();
    int status;
    MUST(waitpid(child, &status, 0) == child);
    show_status("limited", status);
    until_empty(in("a/cgroup.events"));
    while (wait(NULL) > 0)
        ;
    while (value(in("pids.current"), NULL))
        usleep(1000);
    show("dead");
    printf("peak %ld\n", value(in("a/pids.peak"), NULL));
    // One that has ended counts until it is waited for.
    PUT(in("a/pids.max"), "2");
    child = fork();
    MUST(child >= 0);
    if (child == 0) {
        enter("a");
        pid_t zombie = fork();
        if (zombie == 0)
            _exit(0);
        siginfo_t info;
        MUST(waitid(P_PID, (id_t)zombie, &info, WEXITED | WNOWAIT) == 0);
        printf("zombie: fork %s\n", fork() < 0 ? error_name(errno) : "done");
        MUST(waitpid(zombie, NULL, 0) == zombie);
        fflush(stdout);
        // It is not counted a moment after the wait.
        for (pid_t next; (next = fork()) <= 0;)
            if (next == 0)
                _exit(0);
        _exit(0);
    }
    MUST(waitpid(child, &status, 0) == child && status == 0);
    while (wait(NULL) > 0)
        ;
    // The limit above counts, too, whoever is below; moving is not refused.
    PUT(in("pids.max"), "3");
    PUT(in("a/pids.max"), "max");
    MUST(pipe(gate) == 0);
    for (int i = 0; i < 5; i++) {
        pid_t one = fork();
        MUST(one >= 0);
        if (one == 0) {
            enter("a");
            pid_t child = fork();
            char refused = child < 0 && errno == EAGAIN;
            MUST(child == 0 || write(gate[1], &refused, 1) == 1);
            for (;;)
                pause();
        }
        char refused;
        MUST(read(gate[0], &refused, 1) == 1);
        printf("%ld: %s\n", value(in("pids.current"), NULL), refused ? "refused" : "forked");
    }
    printf("current %ld\n", value(in("pids.current"), NULL));
    MUST(put(in("cgroup.kill"), "1") == 0);
    while (wait(NULL) > 0)
        ;
    // A bomb under a limit, on every kernel: it dies by one write.
    PUT(in("pids.max"), "30");
    int start[2];
    MUST(pipe(start) == 0);
    for (int i = 0; i < cpu_count(); i++) {
        pid_t bomb = fork();
        MUST(bomb >= 0);
        if (bomb == 0) {
            enter("a");
            move_to(i);
            char refused = 0, byte;
            MUST(write(gate[1], &refused, 1) == 1 && close(start[1]) == 0 && read(start[0], &byte, 1) == 0);
            breed();
        }
        char refused;
        MUST(read(gate[0], &refused, 1) == 1);
    }
    close(start[1]);
    while (value(in("pids.events"), "max") < 100)
        usleep(1000);
    printf("at most %d\n", value(in("pids.current"), NULL) <= 30);
    MUST(put(in("cgroup.kill"), "1") == 0);
    until_empty(in("cgroup.events"));
    while (wait(NULL) > 0)
        ;
    printf("peak %ld\n", value(in("pids.peak"), NULL));
    MUST(rmdir(in("a")) == 0);
    unmount_groups();
}

static const char expected[] =
    "controllers have pids\n"
    "access(in(\"pids.max\"), F_OK) = -1 ENOENT\n"
    "cgroup.subtree_control < +pids: done\n"
    "pids\n"
    "access(in(\"pids.max\"), F_OK) = 0\n"
    "access(\"groups/pids.max\", F_OK) = -1 ENOENT\n"
    "access(in(\"a/pids.max\"), F_OK) = -1 ENOENT\n"
    "cgroup.subtree_control < +pids: done\n"
    "pids.max < -1: EINVAL\n"
    "pids.max < 5000000: EINVAL\n"
    "pids.max < many: EINVAL\n"
    "pids.max < 10: done\n"
    "cgroup.subtree_control < -pids: EBUSY\n"
    "new: current 0 0 max 10 refused 0 0\n"
    "threads: current 4 4 max 10 refused 0 0\n"
    "forked 6\n"
    "a thread: EAGAIN\n"
    "full: current 10 10 max 10 refused 2 2\n"
    "limited: killed by KILL\n"
    "dead: current 0 0 max 10 refused 2 2\n"
    "peak 10\n"
    "pids.max < 2: done\n"
    "zombie: fork EAGAIN\n"
    "pids.max < 3: done\n"
    "pids.max < max: done\n"
    "2: forked\n"
    "3: refused\n"
    "4: refused\n"
    "5: refused\n"
    "6: refused\n"
    "current 6\n"
    "pids.max < 30: done\n"
    "at most 1\n"
    "peak 30\n";

int main(void) { return check(test, expected); }
