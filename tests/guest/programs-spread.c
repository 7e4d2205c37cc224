// Programs that one parent starts are spread over the kernels, by fork and by vfork; a command it waits for stays; and
// an affinity is kept. A child writes a byte when its program runs and then keeps its CPU busy until all have come,
// so every choice is made while all earlier children run.
// cob: link=static,dynamic kernels=4 compare=self timeout=120 shake=no
#include "test.h"
#include <spawn.h>
#include <sys/prctl.h>

extern char **environ;

static char *self;
static volatile int *shared; // [0]: all have come; [1..]: where each child runs

static void child(const char *name, const char *ready) {
    int memory = open("/dev/shm/programs-spread", O_RDWR);
    MUST(memory >= 0);
    shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    MUST(shared != MAP_FAILED);
    int number = atoi(name);
    shared[number] = sched_getcpu() + 1;
    MUST(write(atoi(ready), "r", 1) == 1);
    while (!shared[0])
        shared[number] = sched_getcpu() + 1;
    _exit(number);
}

static pid_t start(int number, int ready, int spawn) {
    char name[12], fd[12];
    snprintf(name, sizeof name, "%d", number);
    snprintf(fd, sizeof fd, "%d", ready);
    char *arguments[] = {self, name, fd, NULL};
    pid_t pid;
    if (spawn) { // glibc: clone with CLONE_VM and CLONE_VFORK
        MUST(posix_spawn(&pid, self, NULL, NULL, arguments, environ) == 0);
        return pid;
    }
    pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        execv(self, arguments);
        _exit(98);
    }
    return pid;
}

// Children on the CPU that has most of them.
static int most(int count, int cpus) {
    int most = 0, load[256] = {0};
    for (int i = 1; i <= count; i++) {
        int cpu = shared[i] - 1;
        MUST(cpu >= 0 && cpu < cpus);
        if (++load[cpu] > most)
            most = load[cpu];
    }
    return most;
}

// Starts `count` children, each when the one before runs, and waits until no CPU has more than its share.
static void spread(const char *how, int count, int spawn) {
    int ready[2], cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
    pid_t pids[32];
    char byte;
    MUST(pipe(ready) == 0);
    memset((void *)shared, 0, PAGE);
    for (int i = 1; i <= count; i++) {
        pids[i] = start(i, ready[1], spawn);
        MUST(read(ready[0], &byte, 1) == 1);
    }
    // A kernel whose child was just loading its program looked idle: the balancer evens that out.
    while (most(count, cpus) > (count + cpus - 1) / cpus)
        usleep(20000);
    shared[0] = 1;
    for (int i = 1; i <= count; i++) {
        int status;
        MUST(waitpid(pids[i], &status, 0) == pids[i]);
        MUST(WIFEXITED(status) && WEXITSTATUS(status) == i);
    }
    printf("%s: spread\n", how);
    close(ready[0]);
    close(ready[1]);
}

int main(int argc, char **argv) {
    self = argv[0];
    if (argc == 3)
        child(argv[1], argv[2]);
    if (argc == 2)
        return sched_getcpu();
    int memory = open("/dev/shm/programs-spread", O_RDWR | O_CREAT | O_TRUNC, 0600);
    MUST(memory >= 0 && ftruncate(memory, PAGE) == 0);
    shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    MUST(shared != MAP_FAILED);
    spread("fork", 8, 0);
    spread("vfork", 8, 1);

    // One at a time, waited for: nobody else wants the CPU, so nothing moves. Parent and child want it together for moments
    // only; but where the host keeps a CPU from running just then, a moment is long enough to relieve it of one.
    int moved = 1;
    for (int attempt = 0; attempt < 5 && moved; attempt++) {
        int here = sched_getcpu();
        moved = 0;
        for (int i = 0; i < 10; i++) {
            pid_t pid;
            int status;
            char *arguments[] = {self, "where", NULL};
            MUST(posix_spawn(&pid, self, NULL, NULL, arguments, environ) == 0);
            MUST(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
            moved += WEXITSTATUS(status) != here;
        }
    }
    printf("waited for: %s\n", moved ? "moved" : "stayed");

    // Affinity is inherited and wins.
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu_count() - 1, &set);
    MUST(sched_setaffinity(0, sizeof set, &set) == 0);
    int ready[2], status;
    char byte;
    pid_t pids[4];
    MUST(pipe(ready) == 0);
    memset((void *)shared, 0, PAGE);
    for (int i = 1; i <= 3; i++) {
        pids[i] = start(i, ready[1], i & 1);
        MUST(read(ready[0], &byte, 1) == 1);
    }
    shared[0] = 1;
    int strayed = 0;
    for (int i = 1; i <= 3; i++) {
        MUST(waitpid(pids[i], &status, 0) == pids[i] && WIFEXITED(status) && WEXITSTATUS(status) == i);
        strayed += shared[i] - 1 != cpu_count() - 1;
    }
    printf("pinned: %s\n", strayed ? "strayed" : "stayed");
    unlink("/dev/shm/programs-spread");
    puts("ok");
    return moved || strayed;
}
