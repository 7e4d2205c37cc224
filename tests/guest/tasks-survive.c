// A kernel that dies takes the process with it whose workers are there; the task runtime of another process, whose counters were made before, works.
// cob: link=static lib=tasks flags=-pthread kernels=4 options=--append,cob.on_panic=survive shake=no timeout=120
#include "../../include/cob/tasks.h"
#include "test.h"
#include <sched.h>
#include <sys/wait.h>

static int counted, ready[2];

static void use_cpus(int first, int last) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int cpu = first; cpu <= last; cpu++)
        CPU_SET(cpu, &set);
    MUST(sched_setaffinity(0, sizeof set, &set) == 0);
}

static void counts(void *argument) {
    usleep(1000);
    __atomic_add_fetch(&counted, 1, __ATOMIC_SEQ_CST);
    (void)argument;
}

static void many(void *argument) {
    for (int i = 0; i < 40; i++)
        MUST(cob_task(counts, NULL, NULL, 0, 0) == 0);
    (void)argument;
}

static void sleeps(void *argument) {
    MUST(write(ready[1], "x", 1) == 1);
    pause();
    (void)argument;
}

static void asleep(void *argument) {
    for (int i = 0; i < 2; i++)
        MUST(cob_task(sleeps, NULL, NULL, 0, 0) == 0);
    (void)argument;
}

// Ends the child as a kernel that dies does: there is one that has its workers, and on Linux there is none.
static void kernel_dies(pid_t child) {
    int fd = open("/proc/cob/panic", O_WRONLY);
    if (fd < 0) {
        MUST(kill(child, SIGKILL) == 0);
        return;
    }
    MUST(write(fd, "2", 1) == 1 && close(fd) == 0);
}

int main(void) {
    int is_cob = access("/proc/cob", F_OK) == 0;
    // It is to have nothing on the kernel that dies.
    use_cpus(0, is_cob);
    MUST(pipe(ready) == 0);
    fflush(stdout);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        use_cpus(is_cob ? 2 : 0, is_cob ? 2 : 0);
        cob_tasks_run(asleep, NULL);
        _exit(99);
    }
    // Its counters, those of the kernel that dies among them.
    MUST(cob_tasks_run(many, NULL) == 0);
    // One worker sleeps, so with user-monitored threads there is another one for the second task.
    char byte;
    MUST(read(ready[0], &byte, 1) == 1);
    if (is_cob)
        MUST(read(ready[0], &byte, 1) == 1);
    kernel_dies(child);
    // While it dies, and afterwards.
    for (int i = 0; i < 5; i++)
        MUST(cob_tasks_run(many, NULL) == 0);
    int status;
    MUST(waitpid(child, &status, 0) == child);
    printf("the other one: %s %d\n", WIFSIGNALED(status) ? "signal" : "status", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    SHOW(cob_tasks_run(many, NULL));
    printf("counted: %d\n", counted);
}
