// What a user may make the kernel keep of queued signals and timers: RLIMIT_SIGPENDING over all processes of the user (man 2 getrlimit). Not shaken: limits count what a user keeps on each kernel (docs/limits.md), and a shaken program is on several.
// cob: link=static,dynamic compare=host shake=no
#include "test.h"
#include <sys/resource.h>

#define NOBODY 54321
#define OTHER 54322

static void limit(rlim_t most) {
    struct rlimit both = {most, most};
    MUST(setrlimit(RLIMIT_SIGPENDING, &both) == 0);
}

static void block(void) {
    sigset_t all;
    sigfillset(&all);
    MUST(sigprocmask(SIG_BLOCK, &all, NULL) == 0);
}

static int queue(pid_t pid, int signal) {
    union sigval value = {.sival_int = 7};
    return sigqueue(pid, signal, value);
}

static int taken(int signal) {
    sigset_t set;
    siginfo_t info = {0};
    struct timespec now = {0, 0};
    sigemptyset(&set);
    sigaddset(&set, signal);
    int got = sigtimedwait(&set, &info, &now);
    if (got < 0)
        return -1;
    printf("code %d, from %s, value %d\n", info.si_code, info.si_pid == 0 ? "nobody" : "a process", info.si_code == SI_QUEUE ? info.si_int : 0);
    return got;
}

// What is sent to a thread waits, and counts, where the thread is.
static int moved;

// Those of one process, of each kind.
static void one(void) {
    block(), limit(4);
    SHOW(queue(getpid(), SIGUSR1));
    SHOW(queue(getpid(), SIGUSR1));
    SHOW(kill(getpid(), SIGUSR2));
    SHOW(queue(getpid(), SIGRTMIN));
    SHOW(queue(getpid(), SIGRTMIN));
    SHOW(queue(getpid(), SIGRTMIN));
    // These come without what is known of them.
    SHOW(kill(getpid(), SIGRTMIN + 1));
    SHOW(kill(getpid(), SIGRTMIN + 1));
    SHOW(kill(getpid(), SIGRTMIN + 1));
    if (!moved)
        SHOW(tgkill(getpid(), gettid(), SIGRTMIN + 2));
    SHOW(queue(getpid(), SIGHUP));
    if (!moved)
        SHOW(tgkill(getpid(), gettid(), SIGTERM));
    SHOW(kill(getpid(), SIGINT));
    SHOW(taken(SIGRTMIN + 1));
    SHOW(taken(SIGRTMIN + 1));
    SHOW(taken(SIGHUP));
    if (!moved)
        SHOW(taken(SIGTERM));
    SHOW(taken(SIGINT));
    SHOW(taken(SIGUSR1));
    SHOW(taken(SIGUSR1));
    SHOW(queue(getpid(), SIGRTMIN));
    SHOW(queue(getpid(), SIGRTMIN));
    SHOW(taken(SIGRTMIN));
    SHOW(taken(SIGRTMIN));
    if (moved)
        return;
    SHOW(tgkill(getpid(), gettid(), SIGRTMIN + 2));
    SHOW(queue(getpid(), SIGRTMIN));
    SHOW(queue(getpid(), SIGRTMIN));
    SHOW(taken(SIGRTMIN + 2));
    SHOW(queue(getpid(), SIGRTMIN));
}

static void timers(void) {
    block(), limit(3);
    timer_t made[4];
    struct sigevent silent = {.sigev_notify = SIGEV_NONE};
    SHOW(timer_create(CLOCK_MONOTONIC, NULL, &made[0]));
    SHOW(timer_create(CLOCK_REALTIME, &silent, &made[1]));
    SHOW(queue(getpid(), SIGRTMIN));
    SHOW(timer_create(CLOCK_MONOTONIC, NULL, &made[2]));
    SHOW(queue(getpid(), SIGRTMIN));
    SHOW(timer_delete(made[1]));
    SHOW(queue(getpid(), SIGRTMIN));
    SHOW(timer_create(CLOCK_MONOTONIC, NULL, &made[2]));
    // A timer has its place.
    struct itimerspec soon = {.it_value = {0, 1}};
    MUST(timer_settime(made[0], 0, &soon, NULL) == 0);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    SHOW(sigwaitinfo(&set, NULL));
    SHOW(taken(SIGRTMIN));
    SHOW(taken(SIGRTMIN));
    SHOW(timer_create(CLOCK_MONOTONIC, NULL, &made[1]));
    SHOW(timer_create(CLOCK_MONOTONIC, NULL, &made[2]));
    SHOW(timer_create(CLOCK_MONOTONIC, NULL, &made[3]));
    SHOW(queue(getpid(), SIGRTMIN));
    // execve ends them.
    fflush(stdout);
    static char *arguments[] = {"queued", "after exec", NULL};
    execv("/proc/self/exe", arguments);
}

static void after_exec(void) {
    timer_t made;
    for (int at = 0; at < 4; at++)
        SHOW(timer_create(CLOCK_MONOTONIC, NULL, &made));
}

// Who waits until its parent says so, with all blocked.
static pid_t waiting(int ends[2]) {
    int ready[2];
    MUST(pipe(ends) == 0 && pipe(ready) == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        char c;
        close(ends[1]);
        write(ready[1], "", 1);
        read(ends[0], &c, 1);
        _exit(0);
    }
    char c;
    MUST(child > 0 && read(ready[0], &c, 1) == 1);
    close(ready[0]), close(ready[1]), close(ends[0]);
    return child;
}

static void end(pid_t child, int ends[2]) {
    close(ends[1]);
    MUST(waitpid(child, NULL, 0) == child);
}

// All that waits for processes of a user counts, and goes with them.
static void several(void) {
    block(), limit(5);
    int first[2], second[2];
    pid_t one = waiting(first), two = waiting(second);
    SHOW(queue(one, SIGRTMIN));
    SHOW(queue(one, SIGRTMIN));
    SHOW(queue(two, SIGRTMIN));
    SHOW(queue(two, SIGRTMIN));
    SHOW(queue(getpid(), SIGRTMIN));
    SHOW(queue(getpid(), SIGRTMIN));
    SHOW(queue(two, SIGRTMIN));
    end(two, second);
    SHOW(queue(one, SIGRTMIN));
    SHOW(queue(getpid(), SIGRTMIN));
    SHOW(queue(getpid(), SIGRTMIN));
    end(one, first);
    SHOW(queue(getpid(), SIGRTMIN));
    SHOW(queue(getpid(), SIGRTMIN));
    SHOW(queue(getpid(), SIGRTMIN));
    SHOW(queue(getpid(), SIGRTMIN));
}

// Made ignored, they are forgotten.
static void ignored(void) {
    block(), limit(2);
    SHOW(queue(getpid(), SIGRTMIN));
    SHOW(queue(getpid(), SIGRTMIN));
    SHOW(queue(getpid(), SIGRTMIN));
    MUST(signal(SIGRTMIN, SIG_IGN) != SIG_ERR && signal(SIGRTMIN, SIG_DFL) != SIG_ERR);
    SHOW(queue(getpid(), SIGRTMIN));
    SHOW(queue(getpid(), SIGRTMIN));
    SHOW(queue(getpid(), SIGRTMIN));
}

static void as(const char *name, uid_t uid, void (*run)(void)) {
    printf("-- %s, %s\n", name, moved ? "moved" : "at home");
    IN_CHILD(name, {
        if (moved)
            move_to(cpu_count() - 1);
        MUST(setresuid(uid, uid, uid) == 0);
        run();
    });
}

int main(int count, char **arguments) {
    (void)arguments;
    if (count > 1)
        return after_exec(), 0;
    for (moved = 0; moved < 2; moved++) {
        as("one process", NOBODY, one);
        as("timers", NOBODY, timers);
        // Children are at home where their parent is.
        if (!moved)
            as("several processes", NOBODY, several);
        as("ignored", NOBODY, ignored);
        as("another user", OTHER, ignored);
    }
    return 0;
}
