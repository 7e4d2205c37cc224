// A process group that becomes orphaned with a stopped member gets SIGHUP and SIGCONT (POSIX, exit(2)): nobody who could
// continue it is left. Only then: not if nothing in it is stopped, nor if its new parent is in the session, nor if it has
// been orphaned all the time.
//
// The main program is a subreaper in another session: it sees how the members end, and is nobody's tie to a session.
// cob: link=static,dynamic compare=host
#include "test.h"
#include <sys/prctl.h>

static volatile int hangups, continues;
static volatile pid_t *job; // the member that the case is about

static void count(int signal) {
    if (signal == SIGHUP)
        hangups++;
    else
        continues++;
}

static void wait_for(pid_t child, int options, const char *what) {
    int status;
    MUST(waitpid(child, &status, options) == child);
    show_status(what, status);
}

// A stopped child in `group` (0: its own); what it ends with says which signals it has got when it goes on.
static pid_t stopped_child(pid_t group) {
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        MUST(setpgid(0, group) == 0);
        *job = getpid();
        signal(SIGHUP, count);
        signal(SIGCONT, count);
        raise(SIGSTOP);
        _exit(hangups * 16 + continues);
    }
    wait_for(child, WUNTRACED, "its child");
    return child;
}

static void parent_ends(void) {
    stopped_child(0);
}

static void without_handler(void) {
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        raise(SIGSTOP);
        _exit(1);
    }
    wait_for(child, WUNTRACED, "its child");
}

static void several_members(void) {
    pid_t first = stopped_child(0);
    stopped_child(first);
}

// The tie is the parent of the group's leader, and it is the leader's end that cuts it.
static void leader_ends(void) {
    pid_t leader = fork();
    if (leader == 0) {
        setpgid(0, 0);
        stopped_child(getpid());
        _exit(2);
    }
    wait_for(leader, 0, "leader");
}

// All signals are blocked, so what comes can be seen.
static void nobody_stopped(void) {
    sigset_t all, pending;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    int ready[2], signal;
    char byte;
    MUST(pipe(ready) == 0);
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        *job = getpid();
        MUST(write(ready[1], "r", 1) == 1);
        sigset_t wanted;
        sigemptyset(&wanted);
        sigaddset(&wanted, SIGUSR1);
        sigwait(&wanted, &signal);
        sigpending(&pending);
        _exit(sigismember(&pending, SIGHUP) * 16 + sigismember(&pending, SIGCONT));
    }
    MUST(read(ready[0], &byte, 1) == 1);
}

static void other_session(void) {
    pid_t child = fork();
    if (child == 0) {
        setsid();
        *job = getpid();
        signal(SIGHUP, count);
        signal(SIGCONT, count);
        raise(SIGSTOP);
        _exit(hangups * 16 + continues);
    }
    wait_for(child, WUNTRACED, "its child");
}

static void heir_in_session(void) {
    MUST(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    pid_t parent = fork();
    if (parent == 0) {
        setpgid(0, 0);
        stopped_child(0);
        _exit(0);
    }
    wait_for(parent, 0, "parent of the group");
    MUST(kill(*job, SIGCONT) == 0);
    wait_for(*job, 0, "member");
}

// Runs `tie` in a group of a new session, lets it end, sends `then` to the job, and waits for the members that are left.
static void in_session(const char *what, void (*tie)(void), int then, int members) {
    printf("- %s\n", what);
    fflush(stdout);
    *job = 0;
    pid_t leader = fork();
    MUST(leader >= 0);
    if (leader == 0) {
        MUST(setsid() > 0);
        // A session leader's end would be a hang-up of another kind.
        pid_t parent = fork();
        if (parent == 0) {
            setpgid(0, 0);
            tie();
            _exit(0);
        }
        wait_for(parent, 0, "parent");
        _exit(0);
    }
    wait_for(leader, 0, "session");
    if (then)
        MUST(kill(*job, then) == 0);
    for (int i = 0; i < members; i++) {
        int status;
        MUST(waitpid(-1, &status, 0) > 0);
        show_status("member", status);
    }
}

int main(void) {
    job = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(job != MAP_FAILED);
    MUST(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    in_session("its parent ends", parent_ends, 0, 1);
    in_session("without a handler", without_handler, 0, 1);
    in_session("several members", several_members, 0, 2);
    in_session("its leader ends", leader_ends, 0, 1);
    in_session("nobody is stopped", nobody_stopped, SIGUSR1, 1);
    in_session("a session of its own", other_session, SIGCONT, 1);
    in_session("an heir in the session", heir_in_session, 0, 0);
    puts("ok");
}
