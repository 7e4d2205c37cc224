// Processes that share memory, directories, descriptors and handlers, also from CPUs of other kernels: what one
// changes the others see; what is not shared stays; execve and unshare part them; the last one ends the memory.
// cob: link=static,dynamic compare=host
#include "test.h"
#include <linux/futex.h>
#include <sys/prctl.h>

static char stacks[4][65536] __attribute__((aligned(16)));
static volatile int value, step, rounds;
static volatile int child_tid;

static void wait_for(volatile int *word, int wanted) {
    while (__atomic_load_n(word, __ATOMIC_SEQ_CST) != wanted)
        sched_yield();
}

static void set(volatile int *word, int to) { __atomic_store_n(word, to, __ATOMIC_SEQ_CST); }

static void handler(int signal) { value = signal; }

// Not sched_getcpu: a child in shared memory has the parent's thread-local area, whose rseq tells the parent's CPU.
static void last_cpu(void) {
    int cpus = cpu_count();
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpus - 1, &set);
    MUST(sched_setaffinity(0, sizeof set, &set) == 0);
    unsigned cpu;
    MUST(syscall(SYS_getcpu, &cpu, NULL, NULL) == 0 && cpu == (unsigned)cpus - 1);
}

static int changes(void *unused) {
    (void)unused;
    last_cpu();
    value = 7;
    chdir("/");
    umask(0135);
    close(20);
    signal(SIGUSR1, handler);
    return 4;
}

static void show(const char *what) {
    char cwd[4096];
    MUST(getcwd(cwd, sizeof cwd));
    mode_t mask = umask(022);
    umask(mask);
    struct sigaction action;
    sigaction(SIGUSR1, NULL, &action);
    printf("%s: value %d root %d umask %o descriptor %d handler %d\n", what, value, strcmp(cwd, "/") == 0, mask,
           fcntl(20, F_GETFD), action.sa_handler == handler);
    fflush(stdout);
}

static void try_flags(const char *what, int flags) {
    MUST(chdir("/proc") == 0);
    umask(022);
    dup2(1, 20);
    signal(SIGUSR1, SIG_DFL);
    value = 0;
    pid_t child = clone(changes, stacks[0] + sizeof stacks[0], flags | SIGCHLD, NULL);
    if (child < 0) {
        printf("%s: %s\n", what, error_name(errno));
        return;
    }
    int status;
    MUST(waitpid(child, &status, 0) == child);
    show_status(what, status);
    show(what);
}

// The child outlives its parent's changes: both directions, while both live.
static int follows(void *unused) {
    (void)unused;
    last_cpu();
    set(&step, 1);
    wait_for(&step, 2);
    show("child sees");
    chdir("/proc");
    set(&step, 3);
    return 0;
}

static int grandchild(void *unused) {
    (void)unused;
    last_cpu();
    umask(0171);
    chdir("/");
    return 0;
}

static int has_grandchild(void *unused) {
    (void)unused;
    int status;
    pid_t child = clone(grandchild, stacks[1] + sizeof stacks[1], CLONE_FS | CLONE_VM | SIGCHLD, NULL);
    MUST(waitpid(child, &status, 0) == child);
    return 0;
}

static int execs(void *unused) {
    (void)unused;
    last_cpu();
    execl("/proc/self/exe", "clone-sharing", "chdir", NULL);
    return 9;
}

static int parts(void *unused) {
    (void)unused;
    SHOW(unshare(CLONE_FS | CLONE_FILES));
    chdir("/");
    close(20);
    return 0;
}

static int adds(void *unused) {
    (void)unused;
    last_cpu();
    for (int i = 0; i < 1000; i++)
        __atomic_fetch_add(&rounds, 1, __ATOMIC_SEQ_CST);
    char *memory = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, 5, 64 * PAGE);
    __atomic_fetch_add(&rounds, memory[63 * PAGE], __ATOMIC_SEQ_CST);
    return 0;
}

// Outlives its parent, whose memory it uses.
static int orphan(void *unused) {
    (void)unused;
    last_cpu();
    wait_for(&step, 1);
    set(&step, getppid() != 0 ? 2 : 3);
    pause();
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "chdir") == 0) {
        struct sigaction action;
        sigaction(SIGUSR2, NULL, &action);
        printf("execed: handler %d ignored %d\n", action.sa_handler != SIG_DFL, action.sa_handler == SIG_IGN);
        chdir("/");
        close(20);
        signal(SIGUSR2, SIG_IGN);
        return 0;
    }
    move_to(0);
    try_flags("nothing", 0);
    try_flags("memory", CLONE_VM);
    try_flags("directories", CLONE_FS);
    try_flags("descriptors", CLONE_FILES);
    try_flags("memory, handlers", CLONE_VM | CLONE_SIGHAND);
    try_flags("all", CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND);
    try_flags("handlers only", CLONE_SIGHAND);

    chdir("/proc");
    dup2(1, 20);
    signal(SIGUSR1, SIG_DFL);
    set(&step, 0);
    int status;
    pid_t child = clone(follows, stacks[0] + sizeof stacks[0], CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | SIGCHLD, NULL);
    MUST(child > 0);
    wait_for(&step, 1);
    chdir("/");
    umask(0111);
    close(20);
    signal(SIGUSR1, handler);
    set(&step, 2);
    MUST(waitpid(child, &status, 0) == child);
    show("parent sees");

    child = clone(has_grandchild, stacks[0] + sizeof stacks[0], CLONE_VM | CLONE_FS | SIGCHLD, NULL);
    MUST(waitpid(child, &status, 0) == child);
    show("grandchild's");

    chdir("/proc");
    dup2(1, 20);
    signal(SIGUSR2, handler);
    child = clone(execs, stacks[0] + sizeof stacks[0], CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | SIGCHLD, NULL);
    MUST(waitpid(child, &status, 0) == child);
    show_status("execed", status);
    show("after exec");
    struct sigaction action;
    sigaction(SIGUSR2, NULL, &action);
    printf("handler kept %d\n", action.sa_handler == handler);

    chdir("/proc");
    dup2(1, 20);
    fflush(stdout);
    child = clone(parts, stacks[0] + sizeof stacks[0], CLONE_VM | CLONE_FS | CLONE_FILES | SIGCHLD, NULL);
    MUST(waitpid(child, &status, 0) == child);
    show("after unshare");

    pid_t children[4];
    for (int i = 0; i < 4; i++)
        MUST((children[i] = clone(adds, stacks[i] + sizeof stacks[i],
                                  CLONE_VM | CLONE_CHILD_CLEARTID | SIGCHLD, NULL, NULL, NULL,
                                  &child_tid)) > 0);
    for (int i = 0; i < 4; i++)
        MUST(waitpid(children[i], &status, 0) == children[i]);
    printf("rounds %d\n", rounds);

    // A signal of one is not the other's, and the parent of an orphan that uses its memory may go.
    MUST(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    volatile int *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fflush(stdout);
    pid_t middle = fork();
    if (middle == 0) {
        set(&step, 0);
        shared[0] = clone(orphan, stacks[0] + sizeof stacks[0], CLONE_VM | SIGCHLD, NULL);
        set(&step, 1);
        wait_for(&step, 2);
        _exit(0);
    }
    MUST(waitpid(middle, &status, 0) == middle);
    show_status("middle", status);
    MUST(kill(shared[0], SIGTERM) == 0);
    MUST(waitpid(shared[0], &status, 0) == shared[0]);
    show_status("orphan", status);
    SHOW(unshare(0x10));
    SHOW(unshare(0));
    SHOW(syscall(SYS_close_range, 30, 40, 2));
}
