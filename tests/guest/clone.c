// clone by hand: shared and separate descriptors, memory, file system context, tids written and cleared; refusals.
// cob: link=static,dynamic compare=host
#include "test.h"
#include <linux/futex.h>
#include <linux/sched.h>

static int shared_value;
static int child_tid = -1, parent_tid = -1;

static int body(void *argument) {
    shared_value = 7;
    if (argument) {
        close(20);
        chdir("/");
    }
    return 3;
}

static void run(const char *what, int flags, void *argument) {
    static char stack[65536] __attribute__((aligned(16)));
    char cwd[4096], before[4096];
    MUST(getcwd(before, sizeof before));
    shared_value = 1;
    dup2(1, 20);
    fflush(stdout);
    pid_t child = clone(body, stack + sizeof stack, flags | SIGCHLD, argument, &parent_tid, NULL, &child_tid);
    if (child < 0) {
        printf("%s: %s\n", what, error_name(errno));
        return;
    }
    int status;
    MUST(waitpid(child, &status, 0) == child);
    MUST(getcwd(cwd, sizeof cwd));
    printf("%s: value %d descriptor %d directory %s parent tid %d child tid %d status %d\n", what, shared_value,
           fcntl(20, F_GETFD), strcmp(cwd, before) ? "changed" : "kept", parent_tid == child, child_tid,
           WEXITSTATUS(status));
    MUST(chdir(before) == 0);
    parent_tid = child_tid = -1;
}

int main(void) {
    run("plain", 0, &shared_value);
    run("memory", CLONE_VM | CLONE_VFORK, NULL);
    run("files", CLONE_FILES, &shared_value);
    run("fs", CLONE_FS, &shared_value);
    run("tids", CLONE_VM | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID | CLONE_VFORK, NULL);
    run("everything", CLONE_VM | CLONE_FILES | CLONE_FS | CLONE_VFORK, &shared_value);
    run("sighand without vm", CLONE_SIGHAND, NULL);
    run("thread without sighand", CLONE_THREAD | CLONE_VM, NULL);
    struct clone_args arguments = {.flags = 0, .exit_signal = SIGCHLD};
    fflush(stdout);
    long child = syscall(SYS_clone3, &arguments, sizeof arguments);
    if (child == 0)
        _exit(11);
    int status;
    waitpid(child, &status, 0);
    show_status("clone3", status);
    SHOW(syscall(SYS_clone3, &arguments, 8));
    SHOW(syscall(SYS_clone3, (void *)8, sizeof arguments));
    arguments.exit_signal = 200;
    SHOW(syscall(SYS_clone3, &arguments, sizeof arguments));
}
