// Job control: background reads and writes, stopping and continuing groups, orphaned groups, foreground changes.
// cob: link=static,dynamic compare=host
#include "test.h"
#include <sys/ioctl.h>
#include <termios.h>

static void session(int terminal) {
    setsid();
    MUST(ioctl(terminal, TIOCSCTTY, 0) == 0);
    signal(SIGTTOU, SIG_IGN);
    int status;
    pid_t job = fork();
    if (job == 0) {
        setpgid(0, 0);
        signal(SIGTTOU, SIG_DFL);
        char byte;
        SHOW(read(terminal, &byte, 1)); // in the background: SIGTTIN
        fflush(stdout);
        _exit(byte);
    }
    setpgid(job, job);
    MUST(waitpid(job, &status, WUNTRACED) == job);
    show_status("background read", status);
    SHOW(tcsetpgrp(terminal, job));
    SHOW(tcgetpgrp(terminal) == job);
    fflush(stdout);
    kill(-job, SIGCONT);
    MUST(waitpid(job, &status, WUNTRACED) == job);
    show_status("foreground read", status);
    SHOW(tcsetpgrp(terminal, getpgrp()));
    fflush(stdout);
    job = fork();
    if (job == 0) {
        setpgid(0, 0);
        signal(SIGTTOU, SIG_DFL);
        struct termios modes;
        tcgetattr(terminal, &modes);
        modes.c_lflag |= TOSTOP;
        tcsetattr(terminal, TCSANOW, &modes); // in the background: SIGTTOU
        write(terminal, "x", 1);
        _exit(0);
    }
    setpgid(job, job);
    MUST(waitpid(job, &status, WUNTRACED) == job);
    show_status("background tcsetattr", status);
    kill(-job, SIGKILL);
    MUST(waitpid(job, &status, WUNTRACED) == job);
    show_status("killed while stopped", status);
    job = fork();
    if (job == 0) {
        setpgid(0, 0);
        for (int i = 0; i < 3; i++)
            if (fork() == 0)
                for (;;)
                    pause();
        for (;;)
            pause();
    }
    setpgid(job, job);
    usleep(50000);
    SHOW(kill(-job, SIGTSTP));
    MUST(waitpid(job, &status, WUNTRACED) == job);
    show_status("group stop", status);
    SHOW(kill(-job, SIGCONT));
    MUST(waitpid(job, &status, WCONTINUED) == job);
    show_status("group continue", status);
    SHOW(kill(-job, SIGTERM));
    MUST(waitpid(job, &status, 0) == job);
    show_status("group end", status);
    // SIGTSTP, SIGTTIN and SIGTTOU do not stop an orphaned group.
    fflush(stdout);
    int ends[2];
    MUST(pipe(ends) == 0);
    pid_t parent = fork();
    if (parent == 0) {
        parent = getpid();
        if (fork() == 0) {
            setpgid(0, 0);
            while (getppid() == parent)
                usleep(1000);
            raise(SIGTSTP);
            char byte;
            SHOW(read(terminal, &byte, 1));
            fflush(stdout);
            write(ends[1], "x", 1);
            _exit(0);
        }
        _exit(0);
    }
    waitpid(parent, &status, 0);
    close(ends[1]);
    char byte;
    MUST(read(ends[0], &byte, 1) == 1);
    printf("session ends\n");
    fflush(stdout);
    _exit(0);
}

int main(void) {
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    MUST(grantpt(master) == 0 && unlockpt(master) == 0);
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    MUST(slave >= 0);
    MUST(write(master, "A\n", 2) == 2);
    pid_t child = fork();
    if (child == 0)
        session(slave);
    int status;
    MUST(waitpid(child, &status, 0) == child);
    show_status("session", status);
}
