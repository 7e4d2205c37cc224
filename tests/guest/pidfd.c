// pidfd_open, pidfd_send_signal, CLONE_PIDFD, waitid(P_PIDFD); membarrier.
// cob: link=static,dynamic compare=host
#include "test.h"
#include <linux/membarrier.h>
#include <linux/sched.h>
#include <poll.h>
#include <sys/pidfd.h>
#include <sys/wait.h>

static int ready(int fd, int wait) {
    struct pollfd poller = {fd, POLLIN, 0};
    // Newer kernels say POLLHUP as well once it was waited for.
    return poll(&poller, 1, wait) == 1 && poller.revents & POLLIN;
}

int main(void) {
    SHOW(pidfd_open(0, 0));
    SHOW(pidfd_open(1 << 29, 0));
    SHOW(pidfd_open(getpid(), 1));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        for (;;)
            pause();
    int fd = pidfd_open(child, 0);
    printf("open %d flags %d\n", fd >= 0, fcntl(fd, F_GETFD));
    printf("ready %d\n", ready(fd, 0));
    char byte;
    SHOW(read(fd, &byte, 1));
    SHOW(pidfd_send_signal(fd, 0, NULL, 0));
    SHOW(pidfd_send_signal(fd, 65, NULL, 0));
    SHOW(pidfd_send_signal(fd, 0, NULL, 77));
    SHOW(pidfd_send_signal(0, 0, NULL, 0));
    char name[64];
    snprintf(name, sizeof name, "/proc/%d", child);
    int directory = open(name, O_RDONLY | O_DIRECTORY), place = open(name, O_PATH);
    snprintf(name, sizeof name, "/proc/%d/task/%d", child, child);
    int thread = open(name, O_RDONLY | O_DIRECTORY), other = open("/proc", O_RDONLY | O_DIRECTORY);
    SHOW(pidfd_send_signal(directory, 0, NULL, 0));
    SHOW(pidfd_send_signal(place, 0, NULL, 0));
    SHOW(pidfd_send_signal(thread, 0, NULL, 0));
    SHOW(pidfd_send_signal(other, 0, NULL, 0));
    SHOW(syscall(SYS_pidfd_getfd, directory, 0, 0));
    siginfo_t info = {.si_signo = SIGUSR1, .si_code = SI_QUEUE};
    SHOW(pidfd_send_signal(fd, SIGTERM, &info, 0));
    info.si_signo = SIGTERM;
    SHOW(pidfd_send_signal(fd, SIGTERM, &info, 0));
    printf("ready %d\n", ready(fd, 10000));
    SHOW(pidfd_send_signal(fd, 0, NULL, 0));
    memset(&info, 0, sizeof info);
    SHOW(waitid(P_PIDFD, fd, &info, WEXITED));
    printf("child %d code %d status %d\n", info.si_pid == child, info.si_code, info.si_status);
    SHOW(waitid(P_PIDFD, fd, &info, WEXITED));
    SHOW(pidfd_send_signal(fd, SIGTERM, NULL, 0));
    SHOW(waitid(P_PIDFD, directory, &info, WEXITED));
    SHOW(pidfd_send_signal(directory, SIGTERM, NULL, 0));
    close(directory), close(place), close(thread), close(other);
    printf("ready %d\n", ready(fd, 0));
    SHOW(waitid(P_PIDFD, 0, &info, WEXITED));
    SHOW(waitid(P_PIDFD, 1000, &info, WEXITED));
    close(fd);
    int pidfd = -1;
    struct clone_args args = {.flags = CLONE_PIDFD, .pidfd = (uintptr_t)&pidfd, .exit_signal = SIGCHLD};
    child = syscall(SYS_clone3, &args, sizeof args);
    if (child == 0)
        _exit(fcntl(3, F_GETFD) == -1 ? 42 : 1);
    printf("pidfd %d\n", pidfd);
    printf("ready %d\n", ready(pidfd, 10000));
    SHOW(waitid(P_PIDFD, pidfd, &info, WEXITED));
    printf("status %d\n", info.si_status);
    args.pidfd = 8;
    SHOW(syscall(SYS_clone3, &args, sizeof args));
    long known = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    printf("private %d\n", (known & MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0);
    SHOW(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0));
    SHOW(syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0));
    SHOW(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0));
    SHOW(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 77, 0));
    SHOW(syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0));
    SHOW(syscall(SYS_membarrier, 1 << 20, 0, 0));
}
