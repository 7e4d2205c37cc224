// What resource limits do (man 2 getrlimit), at home and on another kernel: each child sets one and runs into it.
// cob: link=static,dynamic compare=host timeout=120
#include "test.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>

#define MIB (1L << 20)
// Signals that wait and processes are counted for a user: nobody else has this one.
#define NOBODY 54321

static int moved;

static int limit(int resource, rlim_t soft, rlim_t hard) {
    struct rlimit both = {soft, hard};
    return setrlimit(resource, &both);
}

static void files(void) {
    int ends[2];
    // 0, 1, 2 and two more.
    MUST(limit(RLIMIT_NOFILE, 5, 8) == 0);
    closefrom(3);
    SHOW(open("/", O_RDONLY));
    SHOW(dup(0));
    SHOW(open("/", O_RDONLY));
    SHOW(dup(0));
    SHOW(dup(77));
    SHOW(dup2(0, 5));
    SHOW(dup2(0, 4));
    SHOW(fcntl(0, F_DUPFD, 4));
    SHOW(fcntl(0, F_DUPFD, 5));
    SHOW(pipe(ends));
    SHOW(socket(AF_UNIX, SOCK_STREAM, 0));
    SHOW(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    SHOW(eventfd(0, 0));
    SHOW(epoll_create1(0));
    SHOW(memfd_create("x", 0));
    SHOW(close(4));
    SHOW(pipe(ends));
    SHOW(eventfd(0, 0));
    SHOW(limit(RLIMIT_NOFILE, 8, 8));
    SHOW(pipe(ends));
    SHOW(limit(RLIMIT_NOFILE, 3, 8));
    // What is open stays open.
    SHOW(fcntl(6, F_GETFD));
    SHOW(dup2(0, 6));
}

static void size_of_files(void) {
    static char bytes[2000];
    MUST(signal(SIGXFSZ, SIG_IGN) != SIG_ERR && limit(RLIMIT_FSIZE, 1000, 5000) == 0);
    int fd = open("grows", O_RDWR | O_CREAT | O_TRUNC, 0600), other = open("grows too", O_RDWR | O_CREAT | O_TRUNC, 0600);
    SHOW(write(fd, bytes, 900));
    SHOW(write(fd, bytes, 200));
    SHOW(write(fd, bytes, 1));
    SHOW(write(fd, bytes, 0));
    SHOW(pwrite(fd, bytes, 10, 995));
    SHOW(pwrite(fd, bytes, 10, 1000));
    SHOW(pwrite(fd, bytes, 10, 4000));
    SHOW(ftruncate(fd, 1000));
    SHOW(ftruncate(fd, 1001));
    SHOW(ftruncate(fd, 10));
    SHOW(fallocate(fd, 0, 0, 1001));
    SHOW(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 1001));
    SHOW(lseek(fd, 0, SEEK_SET));
    SHOW(write(other, bytes, 1000));
    SHOW(lseek(fd, 2000, SEEK_SET));
    SHOW(write(fd, bytes, 1));
    SHOW(lseek(fd, 0, SEEK_END));
    int memory = memfd_create("x", 0);
    SHOW(write(memory, bytes, 2000));
    SHOW(ftruncate(memory, 1001));
    int ends[2];
    MUST(pipe(ends) == 0);
    SHOW(write(ends[1], bytes, 2000));
    SHOW(limit(RLIMIT_FSIZE, 5000, 5000));
    SHOW(write(memory, bytes, 2000));
    MUST(signal(SIGXFSZ, SIG_DFL) != SIG_ERR);
    fflush(stdout);
    SHOW(ftruncate(fd, 5001));
}

static void addresses(void) {
    MUST(limit(RLIMIT_AS, 64 * MIB, 64 * MIB) == 0);
    TRY(mmap(NULL, 128 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0);
    char *small = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(small != MAP_FAILED);
    TRY(mremap(small, MIB, 2 * MIB, MREMAP_MAYMOVE) == MAP_FAILED ? -1 : 0);
    small = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TRY(mremap(small, MIB, 128 * MIB, MREMAP_MAYMOVE) == MAP_FAILED ? -1 : 0);
    TRY(sbrk(128 * MIB) == (void *)-1 ? -1 : 0);
    TRY(sbrk(MIB) == (void *)-1 ? -1 : 0);
    // In the place of what was there: nothing more than before.
    TRY(mmap(small, MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED ? -1 : 0);
    // All that is mapped counts, wherever it was; what is replaced does not.
    char *large = mmap(NULL, 40 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(large != MAP_FAILED);
    move_to(moved ? 0 : cpu_count() - 1);
    TRY(mmap(NULL, 40 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0);
    TRY(mremap(large, 40 * MIB, 80 * MIB, MREMAP_MAYMOVE) == MAP_FAILED ? -1 : 0);
    TRY(mmap(large, 40 * MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED ? -1 : 0);
    TRY(mremap(large, 40 * MIB, 41 * MIB, MREMAP_MAYMOVE) == MAP_FAILED ? -1 : 0);
    IN_CHILD("child under RLIMIT_AS", {
        TRY(mmap(NULL, 128 * MIB, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0);
        TRY(mmap(NULL, 40 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0);
    });
}

static void data(void) {
    MUST(limit(RLIMIT_DATA, 16 * MIB, 16 * MIB) == 0);
    TRY(sbrk(32 * MIB) == (void *)-1 ? -1 : 0);
    TRY(sbrk(MIB) == (void *)-1 ? -1 : 0);
    int kind = MAP_PRIVATE | MAP_ANONYMOUS;
    TRY(mmap(NULL, 32 * MIB, PROT_READ | PROT_WRITE, kind, -1, 0) == MAP_FAILED ? -1 : 0);
    TRY(mmap(NULL, 32 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0);
    char *quiet = mmap(NULL, 32 * MIB, PROT_READ, kind, -1, 0);
    MUST(quiet != MAP_FAILED);
    TRY(mprotect(quiet, 32 * MIB, PROT_READ | PROT_WRITE));
    TRY(mprotect(quiet, MIB, PROT_READ | PROT_WRITE));
    MUST(mmap(NULL, 10 * MIB, PROT_READ | PROT_WRITE, kind, -1, 0) != MAP_FAILED);
    move_to(moved ? 0 : cpu_count() - 1);
    TRY(mmap(NULL, 10 * MIB, PROT_READ | PROT_WRITE, kind, -1, 0) == MAP_FAILED ? -1 : 0);
    TRY(mprotect(quiet + MIB, 10 * MIB, PROT_READ | PROT_WRITE));
    TRY(mprotect(quiet, MIB, PROT_READ));
    TRY(sbrk(10 * MIB) == (void *)-1 ? -1 : 0);
}

static int deep(int levels) {
    volatile char room[4096];
    room[0] = (char)levels;
    return levels == 0 ? room[0] : deep(levels - 1) + room[0];
}

static void stack(void);

static void after_exec(void) {
    TRY(mmap(NULL, 128 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0);
    TRY(mmap(NULL, 32 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0);
    TRY(mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0);
    fflush(stdout);
    stack();
}

// A program obeys the limits of the one that executed it, and the parent of a vfork none that its child has set.
static void programs(void) {
    static char *arguments[] = {"limits", "after exec", NULL};
    pid_t child = vfork();
    if (child == 0) {
        limit(RLIMIT_AS, 100 * MIB, 100 * MIB);
        limit(RLIMIT_DATA, 16 * MIB, 16 * MIB);
        execv("/proc/self/exe", arguments);
        _exit(99);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child);
    show_status("executed", status);
    TRY(mmap(NULL, 128 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0);
}

static void stack(void) {
    MUST(limit(RLIMIT_STACK, MIB, MIB) == 0);
    printf("shallow %d\n", deep(100) != 12345);
    fflush(stdout);
    printf("deep %d\n", deep(1000) != 12345);
}

static void signals(void) {
    sigset_t blocked;
    union sigval value = {.sival_int = 1};
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGRTMIN);
    sigaddset(&blocked, SIGUSR1);
    MUST(sigprocmask(SIG_BLOCK, &blocked, NULL) == 0 && limit(RLIMIT_SIGPENDING, 2, 2) == 0 && setuid(NOBODY) == 0);
    SHOW(sigqueue(getpid(), SIGRTMIN, value));
    SHOW(sigqueue(getpid(), SIGRTMIN, value));
    SHOW(sigqueue(getpid(), SIGRTMIN, value));
    // Of those without a value one is always kept.
    SHOW(kill(getpid(), SIGUSR1));
    SHOW(sigwaitinfo(&blocked, NULL) != -1);
    SHOW(sigwaitinfo(&blocked, NULL) != -1);
    SHOW(sigqueue(getpid(), SIGRTMIN, value));
}

static void processes(void) {
    MUST(limit(RLIMIT_NPROC, 1, 1) == 0 && setuid(NOBODY) == 0);
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    printf("fork: %s\n", child < 0 ? error_name(errno) : "done");
    if (child > 0)
        waitpid(child, NULL, 0);
}

static volatile sig_atomic_t warnings;

static void warned(int signal) {
    (void)signal;
    warnings++;
}

static void time_of_cpu(void) {
    MUST(limit(RLIMIT_CPU, 1, 2) == 0 && signal(SIGXCPU, warned) != SIG_ERR);
    while (!warnings)
        ;
    printf("warned\n");
    fflush(stdout);
    for (;;)
        ;
}

static void wrong(void) {
    struct rlimit both;
    SHOW(limit(RLIMIT_NOFILE, 9, 8));
    SHOW(limit(RLIM_NLIMITS, 1, 1));
    SHOW(limit(-1, 1, 1));
    SHOW(limit(RLIMIT_NOFILE, 10, 1L << 31));
    SHOW(setrlimit(RLIMIT_NOFILE, (void *)8));
    SHOW(getrlimit(RLIMIT_NOFILE, (void *)8));
    SHOW(getrlimit(RLIM_NLIMITS, &both));
    SHOW(limit(RLIMIT_CORE, 5, 10));
    MUST(setuid(NOBODY) == 0);
    SHOW(limit(RLIMIT_CORE, 10, 10));
    SHOW(limit(RLIMIT_CORE, 10, 11));
    SHOW(limit(RLIMIT_CORE, 0, 9));
    SHOW(limit(RLIMIT_CORE, 0, 10));
    SHOW(prlimit(getpid(), RLIMIT_CORE, NULL, &both));
    SHOW(both.rlim_max);
}

int main(int count, char **arguments) {
    (void)arguments;
    if (count > 1)
        return after_exec(), 0;
    static const struct {
        const char *name;
        void (*run)(void);
    } all[] = {{"files", files},         {"size of files", size_of_files}, {"addresses", addresses}, {"data", data},
               {"programs", programs},
               {"stack", stack},         {"signals", signals},             {"processes", processes},
               {"time of CPU", time_of_cpu}, {"wrong", wrong}};
    for (unsigned at = 0; at < sizeof all / sizeof *all; at++)
        for (moved = 0; moved < 2; moved++) {
            printf("-- %s, %s\n", all[at].name, moved ? "moved" : "at home");
            IN_CHILD(all[at].name, {
                if (moved)
                    move_to(cpu_count() - 1);
                all[at].run();
            });
        }
    return 0;
}
