// AF_UNIX between kernels: names, connections, datagrams, descriptors and credentials that travel, readiness, the end.
// cob: link=static,dynamic compare=host
#define _GNU_SOURCE
#include "test.h"
#include <poll.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>

static int last_cpu;

static socklen_t name_of(struct sockaddr_un *at, const char *name) {
    memset(at, 0, sizeof *at);
    at->sun_family = AF_UNIX;
    memcpy(at->sun_path, name, strlen(name + 1) + 1);
    if (name[0] == '@') {
        at->sun_path[0] = 0;
        return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    }
    return sizeof *at;
}

static int bound(int type, const char *name) {
    struct sockaddr_un at;
    socklen_t len = name_of(&at, name);
    int fd = socket(AF_UNIX, type, 0);
    MUST(fd >= 0 && bind(fd, (struct sockaddr *)&at, len) == 0);
    return fd;
}

static int try_connect(int fd, const char *name) {
    struct sockaddr_un at;
    socklen_t len = name_of(&at, name);
    return connect(fd, (struct sockaddr *)&at, len);
}

static void show_peer(const char *who, int fd) {
    struct sockaddr_un at;
    socklen_t len = sizeof at;
    memset(&at, 0, sizeof at);
    if (getpeername(fd, (struct sockaddr *)&at, &len) != 0) {
        printf("%s: peer %s\n", who, error_name(errno));
        return;
    }
    printf("%s: peer length %u %s%s\n", who, len, at.sun_path[0] ? "" : "@", at.sun_path + !at.sun_path[0]);
}

static void send_fd(int over, int fd, char byte) {
    struct iovec data = {&byte, 1};
    union {
        char room[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } u;
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = u.room, .msg_controllen = sizeof u.room};
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    MUST(sendmsg(over, &message, 0) == 1);
}

// The descriptor that came along, or -1; says whose credentials came.
static int receive(int from, char *byte, pid_t expected) {
    struct iovec data = {byte, 1};
    union {
        char room[256];
        struct cmsghdr align;
    } u;
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = u.room, .msg_controllen = sizeof u.room};
    MUST(recvmsg(from, &message, 0) == 1);
    int fd = -1;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_type == SCM_RIGHTS)
            memcpy(&fd, CMSG_DATA(c), sizeof fd);
        if (c->cmsg_type == SCM_CREDENTIALS) {
            struct ucred who;
            memcpy(&who, CMSG_DATA(c), sizeof who);
            printf("credentials: pid %s, uid %s\n", who.pid == expected ? "right" : "wrong",
                   who.uid == getuid() ? "right" : "wrong");
        }
    }
    return fd;
}

static void read_all(int fd, char *to, size_t wanted) {
    size_t done = 0;
    while (done < wanted) {
        ssize_t got = read(fd, to + done, wanted - done);
        MUST(got > 0);
        done += (size_t)got;
    }
}

static void write_all(int fd, const char *from, size_t wanted) {
    size_t done = 0;
    while (done < wanted) {
        ssize_t put = write(fd, from + done, wanted - done);
        MUST(put > 0);
        done += (size_t)put;
    }
}

#define BIG 300000

static void client(int type, const char *name, int go) {
    char byte;
    MUST(read(go, &byte, 1) == 1);
    int fd = socket(AF_UNIX, type, 0);
    struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT};
    int watch = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u32 = 7};
    MUST(epoll_ctl(watch, EPOLL_CTL_ADD, fd, &event) == 0);
    MUST(epoll_wait(watch, &event, 1, 0) <= 1);
    SHOW(try_connect(fd, name));
    SHOW(try_connect(fd, name));
    show_peer("client", fd);
    struct ucred who;
    socklen_t len = sizeof who;
    MUST(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0);
    printf("client: peer is %s\n", who.pid == getppid() ? "the parent" : "somebody");
    MUST(poll(&p, 1, -1) == 1);
    printf("client: writable %d\n", !!(p.revents & POLLOUT));
    MUST(write(fd, "hello", 5) == 5);
    // An edge for what comes back, in an epoll that watched before there was a connection.
    char reply[64];
    do
        MUST(epoll_wait(watch, &event, 1, -1) == 1);
    while (!(event.events & EPOLLIN));
    int pending = -1;
    MUST(ioctl(fd, FIONREAD, &pending) == 0);
    printf("client: %d bytes, data %u\n", pending, event.data.u32);
    ssize_t got = read(fd, reply, sizeof reply);
    printf("client got %.*s\n", (int)got, reply);
    int ends[2];
    MUST(pipe(ends) == 0);
    send_fd(fd, ends[1], 'f');
    close(ends[1]);
    char text[16];
    got = read(ends[0], text, sizeof text);
    printf("client: through the pipe %.*s\n", (int)got, text);
    printf("client: then %zd\n", read(ends[0], text, sizeof text));
    char *big = malloc(BIG);
    if (type == SOCK_STREAM) {
        for (int i = 0; i < BIG; i++)
            big[i] = (char)(i * 31);
        write_all(fd, big, BIG);
        char *back = malloc(BIG);
        read_all(fd, back, BIG);
        printf("client: all came back %d\n", memcmp(big, back, BIG) == 0);
    } else {
        memset(big, 'p', 100000);
        SHOW(send(fd, big, 100000, 0));
        memset(big, 'q', 500);
        SHOW(send(fd, big, 500, 0));
    }
    SHOW(shutdown(fd, SHUT_WR));
    printf("client: end %zd\n", read(fd, reply, sizeof reply));
    fflush(stdout);
    close(fd);
}

static void connection(int type, const char *name, int at_server, int at_client) {
    printf("-- connection %d %s\n", type, name);
    fflush(stdout);
    int go[2];
    MUST(pipe(go) == 0);
    pid_t child = fork();
    if (child == 0) {
        move_to(at_client);
        client(type, name, go[0]);
        _exit(0);
    }
    move_to(at_server);
    int server = bound(type, name);
    SHOW(listen(server, 0));
    MUST(write(go[1], "g", 1) == 1);
    struct sockaddr_un from;
    socklen_t len = sizeof from;
    int fd = accept(server, (struct sockaddr *)&from, &len);
    MUST(fd >= 0);
    char text[64];
    ssize_t got = read(fd, text, sizeof text);
    int on = 1;
    MUST(setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0);
    struct ucred who;
    socklen_t wholen = sizeof who;
    MUST(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &wholen) == 0);
    // The client prints up to here only what the server waits for: the order is fixed.
    MUST(write(fd, "welcome", 7) == 7);
    char byte;
    int passed = receive(fd, &byte, child);
    MUST(passed >= 0);
    MUST(write(passed, "by hand", 7) == 7);
    close(passed);
    char *big = malloc(BIG);
    char said[64] = "";
    if (type == SOCK_STREAM) {
        read_all(fd, big, BIG);
        write_all(fd, big, BIG);
    } else {
        ssize_t one = recv(fd, big, BIG, MSG_TRUNC), two = recv(fd, big, 100, MSG_TRUNC);
        snprintf(said, sizeof said, "%zd %zd %c", one, two, big[99]);
    }
    got = read(fd, text, sizeof text);
    close(fd);
    int status;
    MUST(waitpid(child, &status, 0) == child);
    printf("server: %s, end %zd, the peer was the child %d, address %u\n", said, got, who.pid == child, len);
    close(server);
    if (name[0] != '@')
        SHOW(unlink(name));
    show_status("client", status);
    close(go[0]);
    close(go[1]);
}

static void take_turn(int pipe_end) {
    char byte;
    MUST(read(pipe_end, &byte, 1) == 1);
}

static void give_turn(int pipe_end) { MUST(write(pipe_end, "t", 1) == 1); }

static void sender(const char *name, int turn, int back) {
    take_turn(turn);
    int fd = bound(SOCK_DGRAM, "@sender");
    struct sockaddr_un at;
    socklen_t len = name_of(&at, name);
    SHOW(sendto(fd, "one", 3, 0, (struct sockaddr *)&at, len));
    SHOW(connect(fd, (struct sockaddr *)&at, len));
    show_peer("sender", fd);
    SHOW(write(fd, "two", 3));
    int ends[2];
    MUST(pipe(ends) == 0);
    send_fd(fd, ends[1], '3');
    close(ends[1]);
    char text[16];
    printf("sender: through the pipe %zd\n", read(ends[0], text, sizeof text));
    // More than the receiver's queue holds: this waits for it.
    for (int i = 0; i < 50; i++) {
        char data[6000];
        memset(data, 'a' + i % 26, sizeof data);
        MUST(send(fd, data, 100 + (size_t)i * 100, 0) == 100 + i * 100);
    }
    printf("sender: all sent\n");
    take_turn(turn);
    int full = 0;
    while (send(fd, "x", 1, MSG_DONTWAIT) == 1)
        full++;
    printf("sender: %s went, then %s\n", full > 5 ? "some" : "few", error_name(errno));
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int watch = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLOUT | EPOLLET};
    MUST(epoll_ctl(watch, EPOLL_CTL_ADD, fd, &event) == 0);
    printf("sender: writable %d %d\n", poll(&p, 1, 0), epoll_wait(watch, &event, 1, 0));
    give_turn(back);
    printf("sender: writable %d\n", epoll_wait(watch, &event, 1, -1));
    while (send(fd, "x", 1, 0) == 1)
        ;
    printf("sender: %s\n", error_name(errno));
    fflush(stdout);
}

static void datagrams(const char *name, int at_server, int at_client) {
    printf("-- datagrams %s\n", name);
    fflush(stdout);
    int turn[2], back[2];
    MUST(pipe(turn) == 0 && pipe(back) == 0);
    pid_t child = fork();
    if (child == 0) {
        move_to(at_client);
        sender(name, turn[0], back[1]);
        _exit(0);
    }
    move_to(at_server);
    int fd = bound(SOCK_DGRAM, name);
    int on = 1;
    MUST(setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0);
    give_turn(turn[1]);
    char text[6000];
    struct sockaddr_un from;
    socklen_t len = sizeof from;
    ssize_t got = recvfrom(fd, text, sizeof text, 0, (struct sockaddr *)&from, &len);
    char first[64];
    snprintf(first, sizeof first, "%.*s from %.*s", (int)got, text, (int)len - 3, from.sun_path + 1);
    got = read(fd, text, sizeof text);
    char byte;
    int passed = receive(fd, &byte, child);
    MUST(passed >= 0 && write(passed, "abc", 3) == 3);
    close(passed);
    int right = 1;
    for (int i = 0; i < 50; i++)
        right &= recv(fd, text, sizeof text, 0) == 100 + i * 100 && text[99] == 'a' + i % 26;
    give_turn(turn[1]);
    take_turn(back[0]);
    while (recv(fd, text, 1, MSG_DONTWAIT) == 1)
        ;
    close(fd);
    int status;
    MUST(waitpid(child, &status, 0) == child);
    printf("receiver: %s, then %zd, in order %d\n", first, got, right);
    if (name[0] != '@')
        SHOW(unlink(name));
    show_status("sender", status);
    for (int i = 0; i < 2; i++) {
        close(turn[i]);
        close(back[i]);
    }
}

// The other side ends while somebody waits for room, or just before.
static void ends_while_waiting(int here, int there) {
    printf("-- ends\n");
    move_to(here);
    int listener = bound(SOCK_STREAM, "@ending");
    MUST(listen(listener, 0) == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(listener);
        move_to(there);
        char data[10000] = "";
        int first = socket(AF_UNIX, SOCK_STREAM, 0), result;
        MUST(try_connect(first, "@ending") == 0);
        while (write(first, data, sizeof data) > 0)
            ;
        // Linux says either, as it comes: the reader left bytes unread.
        printf("writer: %s\n", errno == EPIPE || errno == ECONNRESET ? "nobody reads" : error_name(errno));
        do
            result = try_connect(socket(AF_UNIX, SOCK_STREAM, 0), "@ending");
        while (result == 0);
        printf("connecting: %s\n", error_name(errno));
        fflush(stdout);
        _exit(0);
    }
    int fd = accept(listener, NULL, NULL);
    char byte;
    MUST(fd >= 0 && read(fd, &byte, 1) == 1);
    close(fd);
    // The backlog holds one more: the child waits for room or finds nobody.
    struct pollfd p = {.fd = listener, .events = POLLIN};
    MUST(poll(&p, 1, -1) == 1);
    close(listener);
    int status;
    MUST(waitpid(child, &status, 0) == child);
    show_status("waiting", status);
}

// Names: taken, free again, refused.
static void names(int here, int there) {
    printf("-- names\n");
    move_to(here);
    int a = bound(SOCK_STREAM, "@taken"), fd = socket(AF_UNIX, SOCK_STREAM, 0);
    move_to(there);
    struct sockaddr_un at;
    socklen_t len = name_of(&at, "@taken");
    int b = socket(AF_UNIX, SOCK_STREAM, 0);
    SHOW(bind(b, (struct sockaddr *)&at, len));
    SHOW(try_connect(b, "@taken"));
    SHOW(try_connect(b, "@nobody"));
    SHOW(try_connect(b, "no-such-file"));
    int d = socket(AF_UNIX, SOCK_DGRAM, 0);
    SHOW(try_connect(d, "@taken"));
    SHOW(close(a));
    SHOW(bind(b, (struct sockaddr *)&at, len));
    SHOW(listen(b, 1));
    SHOW(try_connect(d, "@taken"));
    move_to(here);
    SHOW(try_connect(fd, "@taken"));
    // Used from a third place than the two where its halves are.
    move_to(last_cpu / 2);
    SHOW(write(fd, "x", 1));
    int c = accept(b, NULL, NULL);
    MUST(c >= 0);
    char byte;
    SHOW(read(c, &byte, 1));
    SHOW(fcntl(fd, F_SETFL, O_NONBLOCK));
    move_to(there);
    SHOW(fcntl(fd, F_GETFL) == (O_RDWR | O_NONBLOCK));
    SHOW(read(fd, &byte, 1));
    SHOW(recv(c, &byte, 1, MSG_DONTWAIT));
    SHOW(close(c));
    // The three are on three kernels: the end of c is told by the one that it was on (docs/limits.md).
    struct pollfd closed = {fd, POLLIN, 0};
    SHOW(poll(&closed, 1, -1));
    SHOW(read(fd, &byte, 1));
    SHOW(write(fd, "x", 1));
    close(b);
    close(d);
    int e = socket(AF_UNIX, SOCK_STREAM, 0);
    SHOW(try_connect(e, "@taken"));
    close(e);
    close(fd);
    // Nobody chose a name twice.
    int many[8];
    char known[8][6];
    for (int i = 0; i < 8; i++) {
        move_to(i % 2 ? here : there);
        many[i] = socket(AF_UNIX, SOCK_DGRAM, 0);
        sa_family_t family = AF_UNIX;
        MUST(bind(many[i], (struct sockaddr *)&family, sizeof family) == 0);
        len = sizeof at;
        MUST(getsockname(many[i], (struct sockaddr *)&at, &len) == 0 && len == 8);
        memcpy(known[i], at.sun_path, 6);
        for (int j = 0; j < i; j++)
            MUST(memcmp(known[i], known[j], 6) != 0);
    }
    for (int i = 0; i < 8; i++)
        close(many[i]);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    last_cpu = cpu_count() - 1;
    int pairs[][2] = {{0, last_cpu}, {last_cpu, 0}, {last_cpu, last_cpu / 2}, {0, 0}};
    for (unsigned i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        connection(SOCK_STREAM, i % 2 ? "stream" : "@stream", pairs[i][0], pairs[i][1]);
        connection(SOCK_SEQPACKET, i % 2 ? "@packets" : "packets", pairs[i][0], pairs[i][1]);
        datagrams(i % 2 ? "@datagrams" : "datagrams", pairs[i][0], pairs[i][1]);
        names(pairs[i][0], pairs[i][1]);
        ends_while_waiting(pairs[i][0], pairs[i][1]);
    }
    return 0;
}
