// Counters of the CPUs of a kernel that dies (docs/umt.md): a process that has them, and no thread there, goes on and is counted on its other CPUs. Their descriptors answer EIO, and touching
// what was mapped by them is SIGBUS.
// cob: link=static flags=-pthread compare=self kernels=4 options=--append,cob.on_panic=survive shake=no timeout=120
#include "../../include/cob/umt.h"
#include "test.h"
#include <setjmp.h>

enum { MOST = 64, DIES = 2 };

static int fds[MOST], cpus, ready[2];
static const struct umt_sums *maps[MOST];
static sigjmp_buf after;

static void use_cpus(int first, int last) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int cpu = first; cpu <= last; cpu++)
        CPU_SET(cpu, &set);
    MUST(sched_setaffinity(0, sizeof set, &set) == 0);
}

static void say(void) { MUST(write(ready[1], "x", 1) == 1); }

static void until_said(void) {
    char byte;
    MUST(read(ready[0], &byte, 1) == 1);
}

static void bus(int signal) {
    (void)signal;
    siglongjmp(after, 1);
}

static const char *touch(int cpu) {
    if (sigsetjmp(after, 1))
        return "SIGBUS";
    return umt_ready(umt_look(maps[cpu])) >= 0 ? "sums" : "less than none";
}

static const char *take(int cpu) {
    uint64_t value;
    return read(fds[cpu], &value, sizeof value) == 8 ? "events" : error_name(errno);
}

// What it had done with its counters before the kernel died.
static void counted(int go, const char *name, int maps_them, int touches, int forks) {
    MUST((cpus = umt_enable(fds, MOST, 0)) > DIES);
    for (int cpu = 0; maps_them && cpu < cpus; cpu++)
        MUST((maps[cpu] = umt_map(fds[cpu], cpu)));
    if (touches)
        MUST(!strcmp(touch(DIES), "sums"));
    MUST(umt_control(UMT_SET, 1, NULL) == 0);
    pid_t child = forks ? fork() : 0;
    MUST(child >= 0);
    if (forks && child == 0) {
        use_cpus(DIES, DIES);
        say();
        pause();
    }
    say();
    char byte;
    MUST(read(go, &byte, 1) == 1);
    signal(SIGBUS, bus);
    int status = 0;
    if (forks)
        MUST(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    for (int i = 0; i < 3; i++)
        usleep(1000);
    const char *here = take(0), *there = take(DIES);
    printf("%s: here %s, there %s", name, here, there);
    int right = !strcmp(here, "events") && !strcmp(there, "EIO");
    if (maps_them) {
        const char *mapped_here = touch(0), *mapped_there = touch(DIES);
        printf(", mapped %s and %s", mapped_here, mapped_there);
        right &= !strcmp(mapped_here, "sums") && !strcmp(mapped_there, "SIGBUS");
    }
    printf("\n");
    fflush(stdout);
    MUST(right);
    _exit(0);
}

int main(void) {
    use_cpus(0, 0);
    MUST(pipe(ready) == 0);
    fflush(stdout);
    struct variant {
        const char *name;
        int maps, touches, forks;
    } variants[] = {{"only enabled", 0, 0, 0}, {"mapped", 1, 0, 0}, {"touched", 1, 1, 0}, {"with a child there", 1, 0, 1}};
    enum { COUNT = sizeof variants / sizeof *variants };
    pid_t children[COUNT + 1];
    int go[COUNT + 1][2];
    for (int i = 0; i <= COUNT; i++) {
        MUST(pipe(go[i]) == 0 && (children[i] = fork()) >= 0);
        if (children[i])
            continue;
        if (i < COUNT)
            counted(go[i][0], variants[i].name, variants[i].maps, variants[i].touches, variants[i].forks);
        use_cpus(DIES, DIES);
        say();
        pause();
    }
    for (int i = 0; i < COUNT + 2; i++)
        until_said();
    int fd = open("/proc/cob/panic", O_WRONLY);
    MUST(fd >= 0 && write(fd, "2", 1) == 1 && close(fd) == 0);
    int status;
    MUST(waitpid(children[COUNT], &status, 0) == children[COUNT]);
    MUST(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    for (int i = 0; i < COUNT; i++) {
        MUST(write(go[i][1], "g", 1) == 1);
        MUST(waitpid(children[i], &status, 0) == children[i]);
        show_status(variants[i].name, status);
        MUST(status == 0);
    }
    puts("ok");
}
