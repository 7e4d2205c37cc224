// What one process may do to another wherever both are: pidfds used on another kernel than they were made on, limits,
// personalities, CPU clocks summed over kernels and read from outside, timers on them, orphans and their subreaper.
// cob: link=static,dynamic flags=-pthread compare=host
#include "test.h"
#include <poll.h>
#include <pthread.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/times.h>
#include <sys/utsname.h>

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

static void first(void) { move_to(0); }
static void last(void) { move_to(cpu_count() - 1); }

static pid_t sleeper(void) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        last();
        for (;;)
            pause();
    }
    return child;
}

static void pidfds(void) {
    first();
    pid_t child = sleeper();
    int fd = syscall(SYS_pidfd_open, child, 0), nonblocking = syscall(SYS_pidfd_open, child, O_NONBLOCK);
    MUST(fd >= 0 && nonblocking >= 0);
    last();
    siginfo_t info = {0};
    SHOW(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0));
    SHOW(waitid(P_PIDFD, nonblocking, &info, WEXITED));
    SHOW(waitid(P_PIDFD, fd, &info, WEXITED | WNOHANG));
    SHOW(syscall(SYS_pidfd_send_signal, fd, 100, NULL, 0));
    SHOW(syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 7));
    SHOW(syscall(SYS_pidfd_send_signal, 0, 0, NULL, 0));
    SHOW(syscall(SYS_pidfd_send_signal, 99, 0, NULL, 0));
    SHOW(syscall(SYS_pidfd_getfd, fd, 99, 0));
    SHOW(syscall(SYS_pidfd_getfd, fd, 0, 1));
    SHOW(syscall(SYS_pidfd_getfd, 0, 0, 0));
    SHOW(syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0));
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    SHOW(poll(&wait, 1, -1));
    SHOW(syscall(SYS_pidfd_getfd, fd, 0, 0));
    SHOW(waitid(P_PIDFD, fd, &info, WEXITED));
    printf("pid %d code %d status %d\n", info.si_pid == child, info.si_code == CLD_KILLED, info.si_status);
    SHOW(waitid(P_PIDFD, fd, &info, WEXITED));
    SHOW(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0));
    SHOW(syscall(SYS_pidfd_getfd, fd, 0, 0));
    close(fd);
    close(nonblocking);

    // A descriptor of the other: the same pipe.
    int pipes[2], go[2];
    MUST(pipe(go) == 0);
    first();
    child = fork();
    if (child == 0) {
        last();
        MUST(pipe(pipes) == 0);
        dup2(pipes[0], 40);
        MUST(write(go[1], "x", 1) == 1);
        char text[8] = "";
        MUST(read(pipes[0], text, sizeof text) == 5);
        _exit(strcmp(text, "hello") != 0);
    }
    char byte;
    MUST(read(go[0], &byte, 1) == 1);
    fd = syscall(SYS_pidfd_open, child, 0);
    // The write end is the number before the copy's... found by trying.
    int taken = -1;
    for (int number = 39; number >= 0 && taken < 0; number--) {
        int copy = syscall(SYS_pidfd_getfd, fd, number, 0);
        if (copy < 0)
            continue;
        if ((fcntl(copy, F_GETFL) & O_ACCMODE) == O_WRONLY && fcntl(copy, F_GETPIPE_SZ) > 0)
            taken = copy;
        else
            close(copy);
    }
    printf("taken %d close-on-exec %d\n", taken >= 0, fcntl(taken, F_GETFD));
    MUST(write(taken, "hello", 5) == 5);
    int status;
    MUST(waitpid(child, &status, 0) == child);
    show_status("reader", status);
}

static void limits(void) {
    first();
    pid_t child = sleeper();
    struct rlimit old, new = {100, 200};
    SHOW(prlimit(child, RLIMIT_NOFILE, &new, &old));
    SHOW(prlimit(child, RLIMIT_NOFILE, NULL, &old));
    printf("%lu %lu\n", old.rlim_cur, old.rlim_max);
    new.rlim_cur = 300;
    SHOW(prlimit(child, RLIMIT_NOFILE, &new, NULL));
    SHOW(prlimit(child, 16, NULL, &old));
    SHOW(prlimit(child, RLIMIT_NOFILE, (void *)8, NULL));
    SHOW(prlimit(child, RLIMIT_NOFILE, NULL, (void *)8));
    SHOW(prlimit(4194303, RLIMIT_NOFILE, NULL, &old));
    SHOW(prlimit(-1, RLIMIT_NOFILE, NULL, &old));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    IN_CHILD("not root", {
        pid_t root = getppid();
        MUST(setuid(1000) == 0);
        SHOW(prlimit(root, RLIMIT_NOFILE, NULL, &old));
        SHOW(prlimit(0, RLIMIT_NOFILE, NULL, &old));
        old.rlim_max++;
        SHOW(prlimit(0, RLIMIT_NOFILE, &old, NULL));
    });
}

static void personalities(const char *self) {
    SHOW(personality(0xffffffff));
    IN_CHILD("kept", {
        SHOW(personality(ADDR_NO_RANDOMIZE | PER_LINUX32));
        last();
        printf("%lx\n", (long)personality(0xffffffff));
        struct utsname name;
        uname(&name);
        printf("%s\n", name.machine);
        fflush(stdout);
        execl("/proc/self/exe", self, "addresses", NULL);
    });
    IN_CHILD("executable", {
        SHOW(personality(READ_IMPLIES_EXEC));
        unsigned char *code = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        code[0] = 0xc3;
        ((void (*)(void))code)();
        printf("ran\n");
    });
}

static long long ns(clockid_t clock) {
    struct timespec now;
    if (clock_gettime(clock, &now) != 0)
        return -errno;
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static long long used(struct rusage *usage) {
    return (usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000000ll + usage->ru_utime.tv_usec +
           usage->ru_stime.tv_usec;
}

static volatile int stop;

static void *burns(void *cpu) {
    move_to((int)(intptr_t)cpu);
    while (ns(CLOCK_THREAD_CPUTIME_ID) < 60000000)
        ;
    return NULL;
}

static void expired(int signal) { stop = signal; }

static void clocks(void) {
    first();
    int threads = cpu_count() < 4 ? cpu_count() : 4;
    pthread_t ids[4];
    long long before = ns(CLOCK_PROCESS_CPUTIME_ID);
    for (intptr_t i = 0; i < threads; i++)
        MUST(pthread_create(&ids[i], NULL, burns, (void *)i) == 0);
    for (int i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    // From the other end of the machine, too.
    last();
    struct rusage usage;
    struct tms times_;
    long long process = ns(CLOCK_PROCESS_CPUTIME_ID) - before;
    MUST(getrusage(RUSAGE_SELF, &usage) == 0 && times(&times_) != -1);
    printf("all counted: %d %d %d\n", process >= threads * 60000000ll, used(&usage) >= threads * 60000ll,
           times_.tms_utime + times_.tms_stime >= threads * 5);

    // Another's clock.
    fflush(stdout);
    int pipes[2];
    MUST(pipe(pipes) == 0);
    pid_t child = fork();
    if (child == 0) {
        first();
        while (ns(CLOCK_PROCESS_CPUTIME_ID) < 50000000)
            ;
        MUST(write(pipes[1], "x", 1) == 1);
        for (volatile int i = 0;; i++)
            ;
    }
    clockid_t clock;
    printf("clock of the child: %s\n", clock_getcpuclockid(child, &clock) ? "none" : "there");
    char byte;
    MUST(read(pipes[0], &byte, 1) == 1);
    printf("counts: %d\n", ns(clock) >= 50000000);
    SHOW(clock_getres(clock, NULL) == 0);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    timer_t timer;
    signal(SIGUSR1, expired);
    SHOW(timer_create(clock, &event, &timer));
    long long armed = ns(clock);
    struct itimerspec in = {.it_value = {0, 20000000}};
    SHOW(timer_settime(timer, 0, &in, NULL));
    while (!stop)
        sched_yield();
    printf("expired after: %d\n", ns(clock) - armed >= 20000000);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    printf("gone: %s\n", error_name((int)-ns(clock)));
    SHOW(timer_create(clock, &event, &timer));
    SHOW(clock_getcpuclockid(4194303, &clock) != 0);
    MUST(getrusage(RUSAGE_CHILDREN, &usage) == 0);
    printf("children counted: %d\n", used(&usage) >= 70000);
}

static void orphans(void) {
    first();
    MUST(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    fflush(stdout);
    int pipes[2];
    MUST(pipe(pipes) == 0);
    // Generations on alternating ends of the machine; all but the first and the last end.
    pid_t child = fork();
    if (child == 0) {
        last();
        pid_t grandchild = fork();
        if (grandchild == 0) {
            first();
            pid_t parent = getpid();
            if (fork() == 0) {
                last();
                pid_t me = getpid();
                MUST(write(pipes[1], &me, sizeof me) == sizeof me);
                while (getppid() == parent)
                    sched_yield();
                _exit(7);
            }
            _exit(0);
        }
        for (;;)
            pause();
    }
    pid_t orphan, found;
    MUST(read(pipes[0], &orphan, sizeof orphan) == sizeof orphan);
    kill(child, SIGKILL);
    int status, killed = 0, sevens = 0;
    while ((found = wait(&status)) > 0) {
        killed += found == child && WIFSIGNALED(status);
        sevens += found == orphan && WEXITSTATUS(status) == 7;
    }
    printf("killed %d orphan waited for %d\n", killed, sevens);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        int local;
        printf("%lx fixed %d\n", (long)personality(0xffffffff), (unsigned long)&local >> 24 == 0x7fffff);
        return 0;
    }
    pidfds();
    if (getuid() == 0)
        limits();
    personalities(argv[0]);
    clocks();
    orphans();
    return 0;
}
