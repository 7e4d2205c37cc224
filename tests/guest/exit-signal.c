// The signal that a child's end sends: whose it is with CLONE_PARENT, and when it becomes SIGCHLD again (man 2 clone).
// cob: link=dynamic
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static long clone_with(unsigned long flags) {
    fflush(stdout);
    return syscall(SYS_clone, flags, 0, 0, 0, 0);
}

static sigset_t all;

// The signals of so many ends, by number.
static void signals(const char *what, int count) {
    int seen[65] = {0};
    for (int i = 0; i < count; i++) {
        siginfo_t info;
        int number = sigwaitinfo(&all, &info);
        if (number < 0) {
            printf("%s: sigwaitinfo: %d\n", what, errno);
            return;
        }
        seen[number]++;
    }
    printf("%s:", what);
    for (int number = 1; number < 65; number++)
        if (seen[number])
            printf(" %d x%d", number, seen[number]);
    printf("\n");
}

// How many children an ordinary wait reaps, and then one for all kinds.
static void reap(const char *what) {
    int plain = 0, other = 0;
    while (waitpid(-1, 0, 0) > 0)
        plain++;
    int none = errno;
    while (waitpid(-1, 0, __WALL) > 0)
        other++;
    printf("%s: %d by wait (then %d), %d by __WALL (then %d)\n", what, plain, none, other, errno);
}

// A child of `child` that makes a sibling with `sibling` and ends behind it.
static void pair(const char *what, unsigned long child, unsigned long sibling) {
    int pipes[2];
    if (pipe(pipes))
        exit(1);
    if (clone_with(child) == 0) {
        long other = clone_with(sibling);
        if (other == 0)
            _exit(0);
        char byte = other < 0 ? errno : 0;
        if (write(pipes[1], &byte, 1) != 1)
            _exit(1);
        _exit(0);
    }
    char made = -1;
    if (read(pipes[0], &made, 1) != 1)
        exit(1);
    printf("%s: made, %d\n", what, made);
    close(pipes[0]), close(pipes[1]);
}

int main(void) {
    sigemptyset(&all);
    for (int number = 1; number < 65; number++)
        if (number != SIGINT && number != SIGTERM)
            sigaddset(&all, number);
    sigprocmask(SIG_BLOCK, &all, 0);

    if (clone_with(SIGUSR1) == 0)
        _exit(0);
    signals("own", 1);
    reap("own");

    if (clone_with(0) == 0)
        _exit(0);
    reap("none");

    // Of real-time signals each is there.
    pair("sibling of a quiet one", 0, CLONE_PARENT | (SIGRTMIN + 1));
    reap("sibling of a quiet one");
    pair("sibling", SIGRTMIN + 2, CLONE_PARENT | (SIGRTMIN + 3));
    signals("sibling", 2);
    reap("sibling");
    pair("sibling without a word", SIGRTMIN + 2, CLONE_PARENT);
    signals("sibling without a word", 2);
    reap("sibling without a word");

    // A new program's end is SIGCHLD.
    if (clone_with(SIGRTMIN + 4) == 0) {
        execl("/bin/true", "true", (char *)0);
        _exit(1);
    }
    signals("after execve", 1);
    reap("after execve");

    // So is the end of one that gets another parent.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    int pipes[2];
    if (pipe(pipes))
        return 1;
    if (clone_with(SIGCHLD) == 0) {
        if (clone_with(SIGRTMIN + 5) == 0) {
            char byte;
            close(pipes[1]);
            _exit(read(pipes[0], &byte, 1) < 0);
        }
        _exit(0);
    }
    close(pipes[0]);
    signals("its parent", 1);
    printf("its parent: %d\n", waitpid(-1, 0, 0) > 0);
    close(pipes[1]);
    signals("adopted", 1);
    reap("adopted");
    return 0;
}
