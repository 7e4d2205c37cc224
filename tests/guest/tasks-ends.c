// What ends a process while its task runtime works, and what stays: a worker that is killed, exit and execve in a task, a child of fork.
// cob: link=static lib=tasks flags=-pthread timeout=120
#include "../../include/cob/tasks.h"
#include "test.h"
#include <sys/syscall.h>
#include <sys/wait.h>

static int counted;

static void counts(void *argument) {
    usleep(1000);
    __atomic_add_fetch(&counted, 1, __ATOMIC_SEQ_CST);
    (void)argument;
}

static void sleeps(void *argument) {
    pause();
    (void)argument;
}

static void is_killed(void *argument) {
    syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGKILL);
    (void)argument;
}

static void exits(void *argument) {
    exit(3);
    (void)argument;
}

static void executes(void *argument) {
    execl("/proc/self/exe", "tasks-ends", "again", NULL);
    (void)argument;
}

// Beside workers that sleep in the kernel.
static void beside(void *argument) {
    for (int i = 0; i < 8; i++)
        MUST(cob_task(sleeps, NULL, NULL, 0, 0) == 0);
    MUST(cob_task((void (*)(void *))argument, NULL, NULL, 0, 1) == 0);
    cob_taskwait();
}

static void many(void *argument) {
    for (int i = 0; i < 40; i++)
        MUST(cob_task(counts, NULL, NULL, 0, 0) == 0);
    (void)argument;
}

static void ends(const char *name, void (*how)(void *)) {
    fflush(stdout);
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        cob_tasks_run(beside, (void *)how);
        _exit(99);
    }
    int status;
    MUST(waitpid(pid, &status, 0) == pid);
    printf("%s: %s %d\n", name, WIFSIGNALED(status) ? "signal" : "status", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1) {
        counted = 0;
        return cob_tasks_run(many, NULL) == 0 && counted == 40 ? 7 : 1;
    }
    ends("killed", is_killed);
    ends("exit", exits);
    ends("execve", executes);
    // Ours begins after theirs have ended.
    SHOW(cob_tasks_run(many, NULL));
    printf("counted: %d\n", counted);
    fflush(stdout);
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0)
        _exit(cob_tasks_run(many, NULL) == -1 ? 5 : 1);
    int status;
    MUST(waitpid(pid, &status, 0) == pid);
    printf("child of fork: status %d\n", WEXITSTATUS(status));
    SHOW(cob_tasks_run(many, NULL));
    printf("counted: %d\n", counted);
}
