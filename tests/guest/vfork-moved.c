// A child of vfork that has gone to another kernel is still in its parent's memory: what it changes of itself there changes
// nothing of its parent, and the parent waits until it executes another program or ends.
// cob: link=static,dynamic compare=host
#include "test.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define MIB (1UL << 20)

static volatile int done;
static char *arguments[] = {"true", NULL};

// Not move_to: the child has no restartable sequences, so glibc's sched_getcpu doesn't know.
static void go_to(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    MUST(sched_setaffinity(0, sizeof set, &set) == 0);
}

static void finish(pid_t child) {
    int status;
    MUST(waitpid(child, &status, 0) == child);
    show_status("child", status);
}

static void limits(void) {
    pid_t child = vfork();
    if (child == 0) {
        struct rlimit small = {16 * MIB, 16 * MIB};
        go_to(cpu_count() - 1);
        setrlimit(RLIMIT_DATA, &small);
        // Its descriptors become its own, its memory doesn't.
        unshare(CLONE_FILES);
        go_to(cpu_count() / 2);
        execv("/bin/true", arguments);
        _exit(99);
    }
    finish(child);
    int refused = 0;
    for (int cpu = cpu_count() - 1; cpu >= 0; cpu--) {
        move_to(cpu);
        void *memory = mmap(NULL, 64 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        refused += memory == MAP_FAILED || munmap(memory, 64 * MIB) != 0;
    }
    printf("refused on %d CPUs\n", refused);
}

static void waits(const char *what, void (*act)(void)) {
    done = 0;
    pid_t child = vfork();
    if (child == 0) {
        go_to(cpu_count() - 1);
        act();
        // A parent that does not wait would be seen.
        usleep(100000);
        done = 1;
        _exit(0);
    }
    printf("%s: done %d\n", what, done);
    finish(child);
}

static void opens(void) {
    for (int round = 0; round < 3; round++)
        close(open("/etc/passwd", O_RDONLY));
}

static void unshares(void) {
    unshare(CLONE_FILES);
}

static void closes_range(void) {
    close_range(100, 200, CLOSE_RANGE_UNSHARE);
}

int main(void) {
    limits();
    waits("open", opens);
    waits("unshare", unshares);
    waits("close_range", closes_range);
    return 0;
}
