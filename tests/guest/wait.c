// wait4 and waitid in all their ways: groups, options, stopped and continued children, orphans, ignored SIGCHLD.
// cob: link=static,dynamic compare=host
#include "test.h"
#include <sys/prctl.h>
#include <sys/resource.h>

static pid_t child_that(int status) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(status);
    return child;
}

int main(void) {
    int status = 0;
    SHOW(wait(&status));
    SHOW(waitpid(-1, &status, WNOHANG));
    SHOW(waitpid(1 << 29, &status, 0));
    SHOW(waitpid(-1, &status, 0x100000));
    pid_t child = child_that(300);
    SHOW(waitpid(child, &status, 0) == child);
    show_status("300", status);
    SHOW(waitpid(child, &status, 0));
    child = child_that(1);
    siginfo_t info = {0};
    SHOW(waitid(P_PID, child, &info, WEXITED | WNOWAIT));
    printf("code %d status %d signal %d\n", info.si_code, info.si_status, info.si_signo);
    SHOW(waitid(P_PID, child, &info, WEXITED));
    SHOW(waitid(P_PID, child, &info, WEXITED));
    SHOW(waitid(P_PID, child, &info, 0));
    SHOW(waitid(99, child, &info, WEXITED));
    fflush(stdout);
    child = fork();
    if (child == 0) {
        raise(SIGSTOP);
        pause();
    }
    SHOW(waitpid(child, &status, WUNTRACED) == child);
    show_status("stop", status);
    SHOW(waitpid(child, &status, WUNTRACED | WNOHANG));
    kill(child, SIGCONT);
    SHOW(waitpid(child, &status, WCONTINUED) == child);
    show_status("continue", status);
    kill(child, SIGTERM);
    struct rusage usage;
    SHOW(wait4(child, &status, 0, &usage) == child);
    show_status("end", status);
    // By group.
    fflush(stdout);
    pid_t grouped = fork();
    if (grouped == 0) {
        setpgid(0, 0);
        _exit(4);
    }
    setpgid(grouped, grouped);
    pid_t other = child_that(5);
    SHOW(waitpid(-grouped, &status, 0) == grouped);
    show_status("group", status);
    SHOW(waitpid(-grouped, &status, 0));
    SHOW(waitpid(0, &status, 0) == other);
    show_status("own group", status);
    // Ignored children leave nothing to wait for.
    signal(SIGCHLD, SIG_IGN);
    child_that(0);
    SHOW(wait(&status));
    signal(SIGCHLD, SIG_DFL);
    // An orphan goes to the subreaper.
    SHOW(prctl(PR_SET_CHILD_SUBREAPER, 1));
    int ends[2];
    MUST(pipe(ends) == 0);
    fflush(stdout);
    child = fork();
    if (child == 0) {
        if (fork() == 0) {
            char byte;
            read(ends[0], &byte, 1);
            _exit(getppid() == 0 ? 9 : 8);
        }
        _exit(6);
    }
    waitpid(child, &status, 0);
    show_status("parent of the orphan", status);
    write(ends[1], "x", 1);
    SHOW(wait(&status) > 0);
    show_status("orphan", status);
    // A zombie is there until it is waited for.
    child = child_that(0);
    waitid(P_PID, child, &info, WEXITED | WNOWAIT);
    SHOW(kill(child, 0));
    SHOW(kill(child, SIGKILL));
    waitpid(child, &status, 0);
    show_status("zombie", status);
    SHOW(kill(child, 0));
}
