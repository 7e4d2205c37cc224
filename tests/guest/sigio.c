// Signal-driven I/O (man 2 fcntl: O_ASYNC, F_SETOWN, F_SETSIG): which files have it, who is told, by which signal, and what
// that says; files made, opened and changed on one kernel, used and owned on another.
// cob: link=static,dynamic flags=-pthread kernels=1,4 compare=host net=lo timeout=240
#define _GNU_SOURCE
#include "hands.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <limits.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#ifndef F_GETOWNER_UIDS
#define F_GETOWNER_UIDS 17
#endif

static sigset_t all;
// Waits for the next signal and says what it brought.
static void take(const char *what) {
    siginfo_t info;
    struct timespec patience = {10, 0};
    int got = sigtimedwait(&all, &info, &patience);
    if (got < 0) {
        printf("  %s: no signal\n", what);
        return;
    }
    printf("  %s: ", what);
    if (got >= SIGRTMIN)
        printf("SIGRTMIN+%d", got - SIGRTMIN);
    else
        printf("%s", strsignal(got));
    if (info.si_code == SI_KERNEL || info.si_code == SI_USER)
        printf(" code=%d pid=%d\n", info.si_code, info.si_pid);
    else
        printf(" code=%d errno=%d band=%#lx fd=%d\n", info.si_code, info.si_errno, info.si_band, info.si_fd);
}

static int any(void) {
    siginfo_t info;
    struct timespec none = {0, 0};
    int count = 0;
    while (sigtimedwait(&all, &info, &none) > 0)
        count++;
    return count;
}

static void answer(const char *what, long result) {
    if (result < 0)
        printf("  %s: %s\n", what, error_name(errno));
    else
        printf("  %s: %ld\n", what, result);
}
#define ASK(...) answer(#__VA_ARGS__, (__VA_ARGS__))

static void owner(const char *what, int fd) {
    struct f_owner_ex owner = {-1, -1};
    uid_t uids[2] = {7, 7};
    int got = fcntl(fd, F_GETOWN_EX, &owner);
    MUST(fcntl(fd, F_GETOWNER_UIDS, uids) == 0);
    const char *who = owner.pid == 0 ? "nobody" : owner.pid == getpid() ? "me" : owner.pid == getpgrp() ? "my group" : "other";
    printf("  %s: %d type=%d %s signal=%d uids=%d,%d flags=%#x\n", what, got, owner.type, who, fcntl(fd, F_GETSIG),
           uids[0] == getuid(), uids[1] == geteuid(), fcntl(fd, F_GETFL) & ~O_LARGEFILE & ~0100000);
}

static void kinds(void) {
    printf("which files have it\n");
    int pipe_[2], pair[2];
    MUST(pipe(pipe_) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    struct {
        const char *name;
        int fd;
    } files[] = {
        {"pipe", pipe_[0]},
        {"pipe for writing", pipe_[1]},
        {"unix", pair[0]},
        {"tcp", socket(AF_INET, SOCK_STREAM, 0)},
        {"udp", socket(AF_INET, SOCK_DGRAM, 0)},
        {"netlink", socket(AF_NETLINK, SOCK_RAW, 0)},
        {"terminal", master},
        {"inotify", inotify_init()},
        {"eventfd", eventfd(0, 0)},
        {"timerfd", timerfd_create(CLOCK_MONOTONIC, 0)},
        {"epoll", epoll_create1(0)},
        {"file", open("file", O_CREAT | O_RDWR, 0600)},
        {"directory", open(".", O_RDONLY | O_DIRECTORY)},
        {"null", open("/dev/null", O_RDWR)},
        {"urandom", open("/dev/urandom", O_RDONLY)},
        {"proc", open("/proc/self/status", O_RDONLY)},
        {"file with O_ASYNC", open("file", O_RDWR | O_ASYNC)},
        {"pipe by name", (mkfifo("fifo", 0600), open("fifo", O_RDWR))},
        {"pipe by name with O_ASYNC", open("fifo", O_RDWR | O_ASYNC)},
        {"path", open("file", O_PATH)},
    };
    for (unsigned i = 0; i < sizeof files / sizeof *files; i++) {
        int fd = files[i].fd, on = 1, off = 0, who = 0;
        MUST(fd >= 0);
        printf(" %s\n", files[i].name);
        if (i < 19)
            owner("new", fd);
        ASK(fcntl(fd, F_SETOWN, getpid()) != 0);
        ASK(fcntl(fd, F_SETSIG, SIGRTMIN) != 0);
        ASK(fcntl(fd, F_SETFL, O_ASYNC));
        if (i < 19)
            owner("on", fd);
        ASK(fcntl(fd, F_SETFL, 0));
        if (i < 19)
            owner("off", fd);
        ASK(ioctl(fd, FIOASYNC, &on));
        printf("  %#x\n", fcntl(fd, F_GETFL) & O_ASYNC);
        ASK(ioctl(fd, FIOASYNC, &on));
        ASK(ioctl(fd, FIOASYNC, &off));
        ASK(ioctl(fd, FIOASYNC, &off));
        who = -1;
        printf("  own %d", ioctl(fd, FIOGETOWN, &who));
        printf(" %d", who == getpid());
        who = -getpgrp();
        printf(" %d", ioctl(fd, SIOCSPGRP, &who));
        who = 0;
        printf(" %d", ioctl(fd, SIOCGPGRP, &who));
        printf(" %d\n", who == -getpgrp());
        ASK(ioctl(fd, FIOSETOWN, NULL));
        ASK(ioctl(fd, FIOGETOWN, NULL));
    }
    for (unsigned i = 0; i < sizeof files / sizeof *files; i++)
        close(files[i].fd);
    close(pair[1]);
}

static void owners(void) {
    printf("owners\n");
    int fds[2];
    MUST(pipe(fds) == 0);
    int fd = fds[0];
    ASK(fcntl(fd, F_SETOWN, 0x7ffffffe));
    ASK(fcntl(fd, F_SETOWN, INT_MIN));
    ASK(fcntl(fd, F_SETOWN, -0x7ffffffe));
    ASK(fcntl(fd, F_SETOWN, -getpgrp()));
    owner("group", fd);
    printf("  %d\n", syscall(SYS_fcntl, fd, F_GETOWN) == -getpgrp() || errno == getpgrp());
    // A number that names a process, but no group; and a thread, but no process.
    pid_t child = fork();
    if (child == 0)
        for (;;)
            pause();
    ASK(fcntl(fd, F_SETOWN, -child));
    owner("no group", fd);
    ASK(fcntl(fd, F_SETOWN, child));
    printf("  %d\n", fcntl(fd, F_GETOWN) == child);
    kill(child, SIGKILL);
    siginfo_t ended;
    MUST(waitid(P_PID, child, &ended, WEXITED | WNOWAIT) == 0);
    printf("  dead: %d\n", fcntl(fd, F_GETOWN) == child);
    MUST(waitpid(child, NULL, 0) == child);
    printf("  gone: %d\n", fcntl(fd, F_GETOWN));
    ASK(fcntl(fd, F_SETOWN, child));
    ASK(fcntl(fd, F_SETOWN, hands[2].tid));
    owner("a thread as a process", fd);
    struct f_owner_ex new = {F_OWNER_TID, hands[1].tid};
    ASK(fcntl(fd, F_SETOWN_EX, &new));
    owner("a thread", fd);
    new = (struct f_owner_ex){3, getpid()};
    ASK(fcntl(fd, F_SETOWN_EX, &new));
    new = (struct f_owner_ex){F_OWNER_PGRP, 0x7ffffffe};
    ASK(fcntl(fd, F_SETOWN_EX, &new));
    new = (struct f_owner_ex){F_OWNER_PID, -1};
    ASK(fcntl(fd, F_SETOWN_EX, &new));
    ASK(fcntl(fd, F_SETOWN_EX, NULL));
    ASK(fcntl(fd, F_GETOWN_EX, NULL));
    ASK(fcntl(fd, F_GETOWNER_UIDS, NULL));
    owner("still", fd);
    new = (struct f_owner_ex){F_OWNER_PGRP, 0};
    ASK(fcntl(fd, F_SETOWN_EX, &new));
    owner("nobody", fd);
    ASK(fcntl(fd, F_SETSIG, 65));
    ASK(fcntl(fd, F_SETSIG, -1));
    ASK(fcntl(fd, F_SETSIG, SIGRTMAX));
    ASK(fcntl(fd, F_GETSIG) == SIGRTMAX);
    int copy = dup(fds[0]);
    owner("copy", copy);
    owner("other end", fds[1]);
    close(fds[0]), close(fds[1]), close(copy);
}

static void pipes(void) {
    printf("pipes\n");
    int fds[2];
    char byte = 0;
    MUST(pipe2(fds, O_NONBLOCK) == 0);
    MUST(fcntl(fds[0], F_SETOWN, getpid()) == 0 && fcntl(fds[0], F_SETFL, O_ASYNC | O_NONBLOCK) == 0);
    MUST(write(fds[1], "12", 2) == 2);
    take("SIGIO");
    MUST(fcntl(fds[0], F_SETSIG, SIGRTMIN) == 0);
    MUST(write(fds[1], "3", 1) == 1);
    take("a signal");
    MUST(write(fds[1], "4", 1) == 1 && write(fds[1], "5", 1) == 1);
    take("two");
    take("two");
    MUST(fcntl(fds[0], F_SETSIG, SIGIO) == 0);
    MUST(write(fds[1], "6", 1) == 1);
    take("SIGIO with more");
    MUST(fcntl(fds[0], F_SETSIG, SIGSYS) == 0);
    MUST(write(fds[1], "7", 1) == 1);
    take("one whose codes mean something");
    // By another descriptor: that number is told.
    int copy = fcntl(fds[0], F_DUPFD, 90);
    MUST(fcntl(fds[0], F_SETSIG, SIGRTMIN + 1) == 0);
    MUST(fcntl(copy, F_SETFL, O_ASYNC | O_NONBLOCK) == 0);
    MUST(write(fds[1], "8", 1) == 1);
    take("still the first");
    MUST(fcntl(copy, F_SETFL, O_NONBLOCK) == 0 && fcntl(copy, F_SETFL, O_ASYNC | O_NONBLOCK) == 0);
    MUST(write(fds[1], "9", 1) == 1);
    take("the copy");
    close(copy);
    MUST(write(fds[1], "a", 1) == 1);
    take("closed, and yet");
    // The other direction.
    MUST(fcntl(fds[1], F_SETOWN, getpid()) == 0 && fcntl(fds[1], F_SETSIG, SIGRTMIN + 2) == 0);
    MUST(fcntl(fds[1], F_SETFL, O_ASYNC | O_NONBLOCK) == 0);
    MUST(read(fds[0], &byte, 1) == 1);
    take("room");
    MUST(write(fds[1], "b", 1) == 1);
    take("the reader");
    char page[4096] = {0};
    while (write(fds[1], page, sizeof page) > 0)
        take("filled");
    take("refused");
    MUST(fcntl(fds[0], F_SETFL, O_NONBLOCK) == 0);
    MUST(read(fds[0], page, sizeof page) == sizeof page);
    take("room again");
    MUST(fcntl(fds[0], F_SETFL, O_NONBLOCK | O_ASYNC) == 0);
    int reader = fds[0];
    close(reader);
    take("no reader");
    close(fds[1]);

    MUST(pipe2(fds, O_NONBLOCK) == 0);
    MUST(fcntl(fds[0], F_SETOWN, getpid()) == 0 && fcntl(fds[0], F_SETSIG, SIGRTMIN) == 0);
    MUST(fcntl(fds[0], F_SETFL, O_ASYNC | O_NONBLOCK) == 0);
    close(fds[1]);
    take("no writer");
    close(fds[0]);
    printf("  more: %d\n", any());
}

static int full[2];
static void write_waiting(void) {
    char page[4096] = {0};
    MUST(write(full[1], page, sizeof page) == sizeof page);
}

// What found no room, or nothing, is told too.
static void refusals(void) {
    printf("refusals\n");
    char page[4096] = {0};
    int writes = 0;
    MUST(pipe2(full, O_NONBLOCK) == 0);
    MUST(fcntl(full[0], F_SETOWN, getpid()) == 0 && fcntl(full[0], F_SETSIG, SIGRTMIN) == 0);
    MUST(fcntl(full[0], F_SETFL, O_ASYNC | O_NONBLOCK) == 0);
    MUST(write(full[1], page, 0) == 0);
    printf("  nothing: %d\n", any());
    while (write(full[1], page, sizeof page) > 0)
        writes++;
    printf("  %s\n", error_name(errno));
    for (int i = 0; i <= writes; i++)
        take("one for each");
    printf("  more: %d\n", any());
    MUST(write(full[1], page, 1) == -1);
    printf("  %s\n", error_name(errno));
    take("again");
    MUST(fcntl(full[1], F_SETOWN, getpid()) == 0 && fcntl(full[1], F_SETSIG, SIGRTMIN + 1) == 0);
    MUST(fcntl(full[1], F_SETFL, O_ASYNC) == 0);
    MUST(read(full[0], page, 1) == 1);
    take("too little room");
    begin(1, write_waiting);
    take("a write that waits");
    MUST(read(full[0], page, sizeof page) == sizeof page);
    finish(1);
    take("written"), take("room");
    MUST(fcntl(full[0], F_SETFL, O_NONBLOCK) == 0);
    while (read(full[0], page, sizeof page) > 0)
        take("drained");
    printf("  %s\n", error_name(errno));
    take("a read of nothing");
    MUST(read(full[0], page, 0) == 0);
    close(full[0]), take("no reader");
    MUST(signal(SIGPIPE, SIG_IGN) != SIG_ERR && write(full[1], page, 1) == -1);
    printf("  %s,", error_name(errno));
    printf(" more: %d\n", any());
    close(full[1]);
    // One that is open both ways.
    MUST(mkfifo("both", 0600) == 0);
    int fd = open("both", O_RDWR | O_NONBLOCK);
    MUST(fd >= 0 && fcntl(fd, F_SETOWN, getpid()) == 0 && fcntl(fd, F_SETSIG, SIGRTMIN) == 0);
    MUST(fcntl(fd, F_SETFL, O_ASYNC | O_NONBLOCK) == 0);
    MUST(write(fd, "ab", 2) == 2);
    take("written");
    MUST(read(fd, page, 1) == 1);
    take("read");
    MUST(write(fd, "c", 1) == 1);
    take("written");
    int other = open("both", O_WRONLY);
    MUST(other >= 0 && write(other, "d", 1) == 1);
    take("written by another");
    close(other), close(fd);
    printf("  more: %d\n", any());
}

static void sockets(void) {
    printf("sockets\n");
    int pair[2];
    char bytes[100];
    for (int kind = SOCK_STREAM; kind <= SOCK_DGRAM; kind++) {
        MUST(socketpair(AF_UNIX, kind | SOCK_NONBLOCK, 0, pair) == 0);
        MUST(fcntl(pair[0], F_SETOWN, getpid()) == 0 && fcntl(pair[0], F_SETSIG, SIGRTMIN) == 0);
        int on = 1;
        MUST(ioctl(pair[0], FIOASYNC, &on) == 0);
        MUST(write(pair[1], "1", 1) == 1);
        take("one");
        MUST(write(pair[1], "2", 1) == 1);
        take("another");
        MUST(read(pair[0], bytes, sizeof bytes) > 0);
        if (kind == SOCK_STREAM) {
            MUST(shutdown(pair[1], SHUT_WR) == 0);
            take("shut");
        }
        close(pair[1]);
        if (kind == SOCK_STREAM)
            take("closed");
        close(pair[0]);
        printf("  more: %d\n", any());
    }
    struct sockaddr_in address = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {0}};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    MUST(bind(listener, (void *)&address, size) == 0 && listen(listener, 5) == 0);
    MUST(getsockname(listener, (void *)&address, &size) == 0);
    MUST(fcntl(listener, F_SETOWN, getpid()) == 0 && fcntl(listener, F_SETSIG, SIGRTMIN) == 0);
    MUST(fcntl(listener, F_SETFL, O_ASYNC | O_NONBLOCK) == 0);
    int client = socket(AF_INET, SOCK_STREAM, 0);
    MUST(connect(client, (void *)&address, size) == 0);
    take("a connection");
    printf("  more: %d\n", any());
    int server = accept(listener, NULL, NULL);
    owner("accepted", server);
    MUST(fcntl(server, F_SETOWN, getpid()) == 0 && fcntl(server, F_SETSIG, SIGRTMIN + 1) == 0);
    MUST(fcntl(server, F_SETFL, O_ASYNC | O_NONBLOCK) == 0);
    MUST(write(client, "x", 1) == 1);
    take("bytes");
    MUST(read(server, bytes, sizeof bytes) == 1);
    close(client);
    take("the end");
    any();
    close(server), close(listener);

    int one = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0), two = socket(AF_INET, SOCK_DGRAM, 0);
    address.sin_port = 0;
    MUST(bind(one, (void *)&address, size) == 0 && getsockname(one, (void *)&address, &size) == 0);
    MUST(fcntl(one, F_SETOWN, getpid()) == 0 && fcntl(one, F_SETSIG, SIGRTMIN) == 0);
    MUST(fcntl(one, F_SETFL, O_ASYNC | O_NONBLOCK) == 0);
    MUST(sendto(two, "x", 1, 0, (void *)&address, size) == 1);
    take("a datagram");
    printf("  more: %d\n", any());
    close(one), close(two);
    printf("  more: %d\n", any());
}

static void terminals(void) {
    printf("terminals\n");
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    MUST(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    MUST(slave >= 0);
    MUST(fcntl(slave, F_SETSIG, SIGRTMIN) == 0);
    MUST(fcntl(slave, F_SETFL, O_ASYNC) == 0);
    owner("its own", slave);
    MUST(write(master, "half", 4) == 4);
    MUST(write(master, " a line\n", 8) == 8);
    take("a line");
    MUST(fcntl(slave, F_SETFL, 0) == 0);
    MUST(fcntl(master, F_SETSIG, SIGRTMIN + 1) == 0);
    MUST(fcntl(master, F_SETFL, O_ASYNC) == 0);
    owner("the master", master);
    MUST(write(slave, "x", 1) == 1);
    take("output");
    close(slave), close(master);
    any();
}

static void names(void) {
    printf("inotify\n");
    int fd = inotify_init1(IN_NONBLOCK);
    MUST(inotify_add_watch(fd, ".", IN_CREATE) >= 0);
    MUST(fcntl(fd, F_SETOWN, getpid()) == 0 && fcntl(fd, F_SETSIG, SIGRTMIN) == 0);
    MUST(fcntl(fd, F_SETFL, O_ASYNC | O_NONBLOCK) == 0);
    close(open("new", O_CREAT | O_RDWR, 0600));
    take("a name");
    close(fd);
    printf("  more: %d\n", any());
}

// Who may not signal the owner when the signal comes has no effect.
static void rights(void) {
    printf("rights\n");
    if (getuid() != 0)
        return;
    for (int who = 0; who < 2; who++) {
        int fds[2], told[2];
        MUST(pipe(fds) == 0 && pipe(told) == 0);
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            // Not the parent's user: may not signal it, only itself.
            MUST(setresuid(1234, 1234, 1234) == 0);
            MUST(fcntl(fds[0], F_SETOWN, who == 0 ? getppid() : getpid()) == 0);
            MUST(fcntl(fds[0], F_SETSIG, SIGRTMIN) == 0 && fcntl(fds[0], F_SETFL, O_ASYNC) == 0);
            MUST(write(told[1], "x", 1) == 1);
            if (who == 1)
                take("to itself");
            fflush(stdout);
            _exit(0);
        }
        char byte;
        MUST(read(told[0], &byte, 1) == 1);
        MUST(write(fds[1], "x", 1) == 1);
        MUST(waitpid(child, NULL, 0) == child);
        uid_t uids[2];
        MUST(fcntl(fds[0], F_GETOWNER_UIDS, uids) == 0);
        printf("  %d %d\n", uids[0], uids[1]);
        if (who == 0) {
            // Set by somebody who may: comes. The other one's would have come before.
            MUST(fcntl(fds[0], F_SETOWN, getpid()) == 0 && write(fds[1], "x", 1) == 1);
            take("to its parent");
        }
        close(fds[0]), close(fds[1]), close(told[0]), close(told[1]);
        printf("  more: %d\n", any());
    }
}

static int across[2];

static void wait_here(void) {
    take("here");
}

// The description is made by one thread, given its owner by another and written to by a third, on kernels of their own.
static void kernels(void) {
    printf("across\n");
    for (int turn = 0; turn < 3; turn++) {
        int maker = turn, setter = (turn + 1) % 3, writer = (turn + 2) % 3;
        printf(" %d\n", turn);
        ON(maker, MUST(pipe(across) == 0));
        ON(setter, {
            struct f_owner_ex owner = {F_OWNER_TID, hands[1].tid};
            MUST(fcntl(across[0], F_SETOWN_EX, &owner) == 0);
            MUST(fcntl(across[0], F_SETSIG, SIGRTMIN + 3) == 0 && fcntl(across[0], F_SETFL, O_ASYNC) == 0);
        });
        for (int who = 0; who < 3; who++)
            ON(who, owner("seen", across[0]));
        begin(1, wait_here);
        if (writer != 1)
            ON(writer, MUST(write(across[1], "x", 1) == 1));
        else
            MUST(write(across[1], "x", 1) == 1);
        finish(1);
        ON(setter, MUST(fcntl(across[0], F_SETOWN, getpid()) == 0));
        ON(writer, MUST(write(across[1], "x", 1) == 1));
        take("the process");
        ON(setter, MUST(fcntl(across[0], F_SETOWN, -getpgrp()) == 0));
        ON(writer, MUST(write(across[1], "x", 1) == 1));
        take("the group");
        ON(maker, MUST(fcntl(across[0], F_SETFL, 0) == 0));
        ON(setter, owner("off", across[0]));
        ON(writer, MUST(write(across[1], "x", 1) == 1));
        close(across[0]), close(across[1]);
    }
    printf("  more: %d\n", any());
}

int main(void) {
    sigemptyset(&all);
    sigaddset(&all, SIGIO);
    sigaddset(&all, SIGSYS);
    for (int i = 0; i < 4; i++)
        sigaddset(&all, SIGRTMIN + i);
    MUST(sigprocmask(SIG_BLOCK, &all, NULL) == 0);
    MUST(setpgid(0, 0) == 0 || errno == EPERM);
    start_hands();
    kinds();
    owners();
    pipes();
    refusals();
    sockets();
    terminals();
    names();
    rights();
    kernels();
    return 0;
}
