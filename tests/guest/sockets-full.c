// A user's sockets keep all that they may, in the kernel where they are: who writes waits until what it wrote before has been read, or is
// told EAGAIN and that the socket can't be written; nobody hears ENOBUFS, as on Linux, where each socket has a limit of its own.
// cob: link=static compare=host kernels=1,4 timeout=240 options=--memory,256M
#include "test.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define NOBODY 54321
#define PAIRS 450

static int pairs[PAIRS][2], kind, rounds, bytes;
static char data[10000];

static void open_pairs(int flags) {
    for (int at = 0; at < PAIRS; at++)
        MUST(socketpair(AF_UNIX, kind | flags, 0, pairs[at]) == 0);
}

static void writes(void) {
    for (int round = 0; round < rounds; round++)
        for (int at = 0; at < PAIRS; at++)
            MUST(write(pairs[at][1], data, bytes) == bytes);
}

static void read_one(int fd) {
    for (ssize_t got, all = 0; all < bytes; all += got)
        MUST((got = read(fd, data, bytes - all)) > 0 && (kind == SOCK_STREAM || got == bytes));
}

// As `stress-ng --sockpair`: one writes to all in turn, as fast as it can, and another reads.
static void waits(int moved) {
    open_pairs(0);
    fflush(stdout);
    pid_t writer = fork();
    MUST(writer >= 0);
    if (writer == 0) {
        if (moved)
            move_to(cpu_count() - 1);
        writes();
        _exit(0);
    }
    // Until it waits. On Linux it never has to.
    while (strchr("SZ", state_letter(writer, 0)) == NULL)
        sched_yield();
    for (int at = 0; at < PAIRS; at++)
        MUST(close(pairs[at][1]) == 0);
    for (int round = 0; round < rounds; round++)
        for (int at = 0; at < PAIRS; at++)
            read_one(pairs[at][0]);
    int status;
    MUST(waitpid(writer, &status, 0) == writer);
    show_status("writer", status);
    for (int at = 0; at < PAIRS; at++)
        MUST(close(pairs[at][0]) == 0);
}

static short can(int fd) {
    struct pollfd one = {fd, POLLOUT, 0};
    MUST(poll(&one, 1, 0) >= 0);
    return one.revents;
}

static void is_told(int moved) {
    static int full[PAIRS];
    open_pairs(SOCK_NONBLOCK);
    if (moved)
        move_to(cpu_count() - 1);
    memset(full, 0, sizeof full);
    for (int left = PAIRS; left > 0;)
        for (int at = 0; at < PAIRS; at++) {
            ssize_t put = full[at] ? 0 : write(pairs[at][1], data, bytes);
            MUST(put > 0 || full[at] || errno == EAGAIN);
            if (put < 0)
                full[at] = 1, left--;
        }
    int writable = 0;
    for (int at = 0; at < PAIRS; at++)
        writable += can(pairs[at][1]) != 0;
    printf("%d of those that are full can be written\n", writable);
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLOUT | EPOLLET};
    MUST(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, pairs[7][1], &event) == 0);
    MUST(epoll_wait(epoll, &event, 1, 0) == 0);
    while (read(pairs[7][0], data, bytes) > 0)
        continue;
    MUST(errno == EAGAIN);
    MUST(epoll_wait(epoll, &event, 1, -1) == 1 && event.events == EPOLLOUT);
    MUST(can(pairs[7][1]) == POLLOUT && write(pairs[7][1], data, bytes) == bytes);
    close(epoll);
    for (int at = 0; at < PAIRS; at++)
        MUST(close(pairs[at][0]) == 0 && close(pairs[at][1]) == 0);
    if (moved)
        move_to(0);
}

int main(void) {
    MUST(setresuid(NOBODY, NOBODY, NOBODY) == 0);
    static const int kinds[] = {SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM};
    for (int at = 0; at < 3; at++)
        for (int moved = 0; moved < 2; moved++) {
            kind = kinds[at];
            // One message in each socket is less than a user may have in all.
            rounds = kind == SOCK_STREAM ? 24 : 10;
            bytes = kind == SOCK_STREAM ? 4000 : sizeof data;
            waits(moved);
            is_told(moved);
        }
    return 0;
}
