// signalfd: signals for the process and for the thread, read and polled on the CPU (and kernel) where the process was made
// and after it has moved; descriptors made there and here; polled by threads and by children of who made them.
// cob: link=static flags=-pthread kernels=1,2,4 compare=host
#include "test.h"
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>

static int readable(int fd, int timeout) {
    struct pollfd poll_ = {fd, POLLIN, 0};
    return poll(&poll_, 1, timeout) == 1 && poll_.revents == POLLIN;
}

static void show(int fd) {
    struct signalfd_siginfo infos[4];
    errno = 0;
    long bytes = read(fd, infos, sizeof infos);
    if (bytes < 0) {
        printf("  read: %s\n", error_name(errno));
        return;
    }
    for (long i = 0; i < bytes / (long)sizeof *infos; i++)
        printf("  read: signal %d code %d pid %d status %d value %d\n", infos[i].ssi_signo, infos[i].ssi_code,
               infos[i].ssi_pid == (unsigned)getpid() ? 1 : infos[i].ssi_pid ? 2 : 0, infos[i].ssi_status, infos[i].ssi_int);
}

static void handler(int signal) { (void)signal; }

static void watch(const char *where, sigset_t *set) {
    printf("%s\n", where);
    int fd = signalfd(-1, set, SFD_CLOEXEC), nonblocking = signalfd(-1, set, SFD_CLOEXEC | SFD_NONBLOCK);
    MUST(fd >= 0 && nonblocking >= 0);
    printf(" nothing: %d\n", readable(fd, 0));
    show(nonblocking);

    printf(" for the process\n");
    MUST(kill(getpid(), SIGUSR1) == 0);
    printf("  readable %d\n", readable(fd, -1));
    show(fd);
    printf("  readable %d\n", readable(fd, 0));

    printf(" for the thread\n");
    MUST(syscall(SYS_tgkill, getpid(), gettid(), SIGUSR1) == 0);
    show(nonblocking);

    printf(" queued\n");
    for (int i = 0; i < 3; i++)
        MUST(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i}) == 0);
    int read_ = 0;
    // One read gives all on Linux; it may give fewer.
    struct signalfd_siginfo infos[4];
    while (read_ < 3) {
        long bytes = read(fd, infos, sizeof infos);
        MUST(bytes > 0);
        for (long i = 0; i < bytes / (long)sizeof *infos; i++)
            printf("  value %d\n", infos[i].ssi_int), read_++;
    }
    show(nonblocking);

    printf(" a child's end, waited for without end\n");
    pid_t child = fork();
    if (child == 0)
        _exit(7);
    printf("  readable %d\n", readable(fd, -1));
    show(fd);
    int status;
    MUST(waitpid(child, &status, 0) == child);

    printf(" by epoll\n");
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN}, got;
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
    printf("  %d\n", epoll_wait(epoll, &got, 1, 0));
    child = fork();
    if (child == 0) {
        kill(getppid(), SIGUSR1);
        _exit(0);
    }
    printf("  %d\n", epoll_wait(epoll, &got, 1, -1));
    MUST(waitpid(child, &status, 0) == child);
    while (readable(fd, 0))
        MUST(read(nonblocking, infos, sizeof infos) > 0);

    printf(" interrupted\n");
    child = fork();
    while (child == 0) {
        // Until the read is there to be interrupted.
        kill(getppid(), SIGUSR2);
        sched_yield();
    }
    show(fd);
    kill(child, SIGKILL);
    // It may still be sending.
    while (waitpid(child, &status, 0) != child)
        MUST(errno == EINTR);
    while (readable(fd, 0))
        MUST(read(nonblocking, infos, sizeof infos) > 0);
    close(fd);
    close(nonblocking);
    close(epoll);
}

// What was sent to a thread is not read by others.
static void *another(void *fd) {
    MUST(raise(SIGUSR1) == 0);
    show(*(int *)fd);
    show(*(int *)fd);
    return NULL;
}

static void *polls(void *fd) {
    printf(" the other's: %d\n", readable(*(int *)fd, 0));
    MUST(raise(SIGUSR1) == 0);
    printf(" its own: %d\n", readable(*(int *)fd, -1));
    return NULL;
}

static int waits(int epoll, int timeout) {
    struct epoll_event got;
    return epoll_wait(epoll, &got, 1, timeout);
}

// What is polled are the signals of who polls: a daemon's, though its parent has made the descriptor.
static void daemons(int fd, int inherited, int cpu) {
    pid_t child = fork();
    if (child == 0) {
        move_to(cpu);
        printf(" the parent's: %d %d\n", readable(fd, 0), waits(inherited, 0));
        int epoll = epoll_create1(0);
        struct epoll_event event = {.events = EPOLLIN};
        MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
        printf(" the parent's, by an epoll of the child: %d\n", waits(epoll, 0));
        MUST(kill(getpid(), SIGUSR1) == 0);
        printf(" its own: %d %d\n", readable(fd, -1), waits(epoll, -1));
        show(fd);
        printf(" read: %d %d\n", readable(fd, 0), waits(epoll, 0));
        for (int by_epoll = 0; by_epoll < 2; by_epoll++) {
            pid_t grandchild = fork();
            if (grandchild == 0) {
                move_to(cpu_count() - 1 - cpu);
                kill(getppid(), SIGUSR1);
                _exit(0);
            }
            // Either signal makes it readable.
            printf(" waited for: %d\n", by_epoll ? waits(epoll, -1) : readable(fd, -1));
            MUST(waitpid(grandchild, NULL, 0) == grandchild);
            printf(" both:\n");
            show(fd);
        }
        sigset_t other;
        sigemptyset(&other);
        sigaddset(&other, SIGRTMIN);
        MUST(signalfd(fd, &other, 0) == fd);
        MUST(kill(getpid(), SIGUSR1) == 0);
        printf(" not wanted: %d %d\n", readable(fd, 0), waits(epoll, 0));
        MUST(kill(getpid(), SIGRTMIN) == 0);
        printf(" wanted: %d %d\n", readable(fd, -1), waits(epoll, -1));
        close(fd);
        _exit(0);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child && status == 0);
}

static void *sender(void *thread) {
    move_to(0);
    MUST(pthread_kill(*(pthread_t *)thread, SIGUSR1) == 0);
    return NULL;
}

// An epoll and a signalfd of one kernel, and a thread that waits on another: what is sent to it is known there only.
static void waits_elsewhere(sigset_t *set, int mode) {
    int fd = signalfd(-1, set, SFD_NONBLOCK), epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | mode};
    MUST(fd >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
    for (int back = 0; back < 2; back++) {
        move_to(back ? 0 : cpu_count() - 1);
        printf(" nothing: %d\n", waits(epoll, 0));
        MUST(raise(SIGUSR1) == 0);
        printf(" raised: %d\n", waits(epoll, -1));
        printf(" again: %d\n", waits(epoll, 0));
        show(fd);
        printf(" read: %d\n", waits(epoll, 0));
        pthread_t self = pthread_self(), other;
        MUST(pthread_create(&other, NULL, sender, &self) == 0);
        printf(" sent: %d\n", waits(epoll, -1));
        MUST(pthread_join(other, NULL) == 0);
        show(fd);
    }
    close(fd);
    close(epoll);
}

int main(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGRTMIN);
    MUST(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    struct sigaction action = {.sa_handler = handler};
    MUST(sigaction(SIGUSR2, &action, NULL) == 0);
    setvbuf(stdout, NULL, _IOLBF, 0);
    watch("at home", &set);
    int old = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    move_to(cpu_count() - 1);
    watch("moved", &set);
    printf("a descriptor made before the move\n");
    MUST(kill(getpid(), SIGUSR1) == 0);
    printf(" readable %d\n", readable(old, -1));
    show(old);
    printf(" readable %d\n", readable(old, 0));
    printf(" for the thread\n");
    MUST(raise(SIGUSR1) == 0);
    printf("  readable %d\n", readable(old, 0));
    show(old);
    printf("  readable %d\n", readable(old, 0));
    printf(" for another thread\n");
    pthread_t other;
    MUST(pthread_create(&other, NULL, another, &old) == 0 && pthread_join(other, NULL) == 0);
    printf(" another mask\n");
    sigset_t none, one;
    sigemptyset(&none);
    one = none;
    sigaddset(&one, SIGCHLD);
    MUST(signalfd(old, &one, 0) == old);
    MUST(raise(SIGUSR1) == 0);
    printf("  readable %d\n", readable(old, 0));
    show(old);
    move_to(0);
    printf("  readable %d\n", readable(old, 0));
    show(old);
    move_to(cpu_count() - 1);
    MUST(signalfd(old, &set, 0) == old);
    show(old);
    printf(" inherited\n");
    pid_t child = fork();
    if (child == 0) {
        move_to(0);
        MUST(raise(SIGUSR1) == 0);
        show(old);
        MUST(kill(getpid(), SIGUSR1) == 0);
        show(old);
        show(old);
        _exit(0);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child && status == 0);
    show(old); // Its end.
    printf(" waited for\n");
    MUST(fcntl(old, F_SETFL, 0) == 0);
    pthread_t self = pthread_self();
    MUST(pthread_create(&other, NULL, sender, &self) == 0);
    show(old);
    MUST(pthread_join(other, NULL) == 0);
    MUST(fcntl(old, F_SETFL, O_NONBLOCK) == 0);
    move_to(0);
    MUST(kill(getpid(), SIGUSR1) == 0);
    show(old);
    show(old);
    printf("polled by another thread\n");
    int here = signalfd(-1, &set, SFD_NONBLOCK);
    MUST(here >= 0 && raise(SIGUSR1) == 0);
    MUST(pthread_create(&other, NULL, polls, &here) == 0 && pthread_join(other, NULL) == 0);
    show(here);
    printf("waited for by epoll elsewhere\n");
    waits_elsewhere(&set, 0);
    printf("each signal is an edge\n");
    waits_elsewhere(&set, EPOLLET);
    for (int cpu = 0; cpu < cpu_count(); cpu += cpu_count() - 1) {
        printf("polled by a child\n");
        int fd = signalfd(-1, &set, SFD_NONBLOCK), epoll = epoll_create1(0);
        struct epoll_event event = {.events = EPOLLIN};
        MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
        MUST(kill(getpid(), SIGUSR1) == 0);
        daemons(fd, epoll, cpu);
        MUST(signalfd(fd, &set, 0) == fd);
        printf(" the parent's is still there: %d %d\n", readable(fd, 0), waits(epoll, 0));
        show(fd);
        close(fd);
        close(epoll);
        if (cpu_count() == 1)
            break;
    }
    // Left open, made here and there.
    move_to(cpu_count() - 1);
    MUST(signalfd(-1, &set, 0) >= 0);
    return 0;
}
