// What comes with messages, and how much they may be (man 7 socket, ip, ipv6, unix, tcp): control messages, the queue of errors, SO_PEEK_OFF,
// SO_RCVLOWAT, SO_PEERGROUPS, pidfds, buffers; the two ends on any kernels.
// cob: link=static,dynamic flags=-pthread kernels=1,4 compare=host net=lo timeout=60
#include "hands.h"
#include "internet.h"
#include <grp.h>
#include <linux/errqueue.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>

#ifndef SO_PASSPIDFD
#define SO_PASSPIDFD 76
#define SO_PEERPIDFD 77
#endif
#define SCM_PIDFD_ 4
#define SO_TIMESTAMP_NEW_ 63
#define SO_TIMESTAMPNS_NEW_ 64

static int from, to;
static char buffer[1 << 16];

static void set(int fd, const char *what, int level, int name, int value) {
    int now = -7;
    socklen_t size = sizeof now;
    int done = setsockopt(fd, level, name, &value, sizeof value), error = errno;
    int told = getsockopt(fd, level, name, &now, &size);
    printf("  %s to %d: %s, is ", what, value, done ? error_name(error) : "done");
    if (told)
        printf("%s\n", error_name(errno));
    else
        printf("%d\n", now);
}
static void quietly(int fd, int level, int name, int value) { MUST(setsockopt(fd, level, name, &value, sizeof value) == 0); }

static int is_time(const struct cmsghdr *at) {
    int kind = at->cmsg_type;
    return at->cmsg_level == SOL_SOCKET && (kind == SO_TIMESTAMP || kind == SO_TIMESTAMPNS || kind == SO_TIMESTAMP_NEW_ || kind == SO_TIMESTAMPNS_NEW_);
}
static void show_control(struct msghdr *header, int port) {
    for (struct cmsghdr *at = CMSG_FIRSTHDR(header); at; at = CMSG_NXTHDR(header, at)) {
        printf("    level %d type %d, %zu bytes:", at->cmsg_level, at->cmsg_type, (size_t)at->cmsg_len);
        unsigned char *data = CMSG_DATA(at);
        size_t length = at->cmsg_len - sizeof *at;
        if (is_time(at)) {
            long parts[2];
            memcpy(parts, data, sizeof parts);
            printf(" %s\n", parts[0] > 1000000000 && parts[1] >= 0 && parts[1] < 1000000000 ? "a time" : "no time");
            continue;
        }
        if (at->cmsg_level == SOL_SOCKET && at->cmsg_type == SCM_PIDFD_) {
            int fd;
            memcpy(&fd, data, sizeof fd);
            printf(" %s\n", fd >= 0 && syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0) == 0 ? "a process" : "none");
            close(fd);
            continue;
        }
        if (at->cmsg_level == SOL_SOCKET && at->cmsg_type == SCM_CREDENTIALS) {
            struct ucred who;
            memcpy(&who, data, sizeof who);
            printf(" %s\n", who.pid == getpid() ? "us" : "others");
            continue;
        }
        for (size_t i = 0; i < length; i++) {
            int is_port = (at->cmsg_type == 20 || at->cmsg_type == 74) && (i == 2 || i == 3);
            if (is_port && port && data[i] == (i == 2 ? port >> 8 : (port & 255)))
                printf(" port");
            else
                printf(" %02x", data[i]);
        }
        printf("\n");
    }
}
static void receive(int fd, int flags, size_t room) {
    char control[600];
    struct sockaddr_storage name;
    struct iovec part = {buffer, 100};
    struct msghdr header = {.msg_name = &name, .msg_namelen = sizeof name, .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = room};
    errno = 0;
    ssize_t count = recvmsg(fd, &header, flags | MSG_DONTWAIT);
    if (count < 0) {
        printf("  received: %s\n", error_name(errno));
        return;
    }
    printf("  received %zd '%.*s' flags %x, name %d, control %zu\n", count, (int)count, buffer, header.msg_flags, header.msg_namelen, header.msg_controllen);
    int domain;
    socklen_t size = sizeof domain;
    MUST(getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0);
    show_control(&header, domain == AF_UNIX ? 0 : port_of(fd));
}

static void make_to(void) {
    to = socket(six ? AF_INET6 : AF_INET, SOCK_DGRAM, 0);
    set_address(six ? "::" : "0.0.0.0", 0);
    MUST(bind(to, (void *)&where, length()) == 0);
}
static void make_from(void) { from = socket(six ? AF_INET6 : AF_INET, SOCK_DGRAM, 0); }
static void close_two(void) { close(from), close(to); }
static void send_to(const char *text, const char *address) {
    set_address(address, port_of(to));
    SHOW(sendto(from, text, strlen(text), 0, (void *)&where, length()));
}
// With one control message.
static void send_with(int level, int kind, const void *data, size_t size) {
    char control[200] = {0};
    set_address(local(), port_of(to));
    struct iovec part = {"with", 4};
    struct msghdr header = {.msg_name = &where, .msg_namelen = length(), .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE(size)};
    struct cmsghdr *first = CMSG_FIRSTHDR(&header);
    *first = (struct cmsghdr){.cmsg_len = CMSG_LEN(size), .cmsg_level = level, .cmsg_type = kind};
    memcpy(CMSG_DATA(first), data, size);
    errno = 0;
    ssize_t sent = sendmsg(from, &header, 0);
    printf("  sent with %d %d of %zu: %s\n", level, kind, size, sent < 0 ? error_name(errno) : "done");
}
static void send_number(int level, int kind, int value) { send_with(level, kind, &value, sizeof value); }

static void wishes_4(void) {
    set(to, "IP_PKTINFO", IPPROTO_IP, IP_PKTINFO, 1), set(to, "IP_RECVTTL", IPPROTO_IP, IP_RECVTTL, 1), set(to, "IP_RECVTOS", IPPROTO_IP, IP_RECVTOS, 5);
    set(to, "IP_RECVORIGDSTADDR", IPPROTO_IP, IP_RECVORIGDSTADDR, 1);
    set(to, "SO_TIMESTAMP", SOL_SOCKET, SO_TIMESTAMP, 1), set(to, "SO_TIMESTAMPNS", SOL_SOCKET, SO_TIMESTAMPNS, 1);
    set(to, "SO_TIMESTAMP", SOL_SOCKET, SO_TIMESTAMP, 0);
    set(to, "new SO_TIMESTAMP", SOL_SOCKET, SO_TIMESTAMP_NEW_, 1), set(to, "new SO_TIMESTAMPNS", SOL_SOCKET, SO_TIMESTAMPNS_NEW_, 1);
    set(to, "TCP_INQ", IPPROTO_TCP, TCP_INQ, 1), set(to, "SO_PASSPIDFD", SOL_SOCKET, SO_PASSPIDFD, 1), set(to, "SO_PEERPIDFD", SOL_SOCKET, SO_PEERPIDFD, 1);
    set(to, "SO_PEERGROUPS", SOL_SOCKET, SO_PEERGROUPS, 1);
}
static void send_4(void) {
    quietly(from, IPPROTO_IP, IP_TTL, 33), quietly(from, IPPROTO_IP, IP_TOS, 0x28);
    for (int i = 0; i < 4; i++)
        send_to("hello", i ? "127.0.0.1" : "127.0.0.9");
}
static void receive_4(void) { receive(to, MSG_PEEK, 600), receive(to, 0, 600), receive(to, 0, 50), receive(to, 0, 8), receive(to, 0, 0); }
static void given_4(void) {
    struct in_pktinfo info = {.ipi_ifindex = 1};
    send_with(IPPROTO_IP, IP_PKTINFO, &info, sizeof info), send_with(IPPROTO_IP, IP_PKTINFO, &info, 11);
    info.ipi_ifindex = 0, inet_pton(AF_INET, "127.0.0.5", &info.ipi_spec_dst);
    send_with(IPPROTO_IP, IP_PKTINFO, &info, sizeof info);
    inet_pton(AF_INET, "10.1.2.3", &info.ipi_spec_dst);
    send_with(IPPROTO_IP, IP_PKTINFO, &info, sizeof info);
    info = (struct in_pktinfo){.ipi_ifindex = 77};
    send_with(IPPROTO_IP, IP_PKTINFO, &info, sizeof info);
    send_number(IPPROTO_IP, IP_TTL, 7), send_number(IPPROTO_IP, IP_TTL, 0), send_number(IPPROTO_IP, IP_TTL, 256);
    send_number(IPPROTO_IP, IP_TOS, 0x10), send_with(IPPROTO_IP, IP_TOS, "\x20", 1), send_number(IPPROTO_IP, IP_TOS, 256);
    send_number(IPPROTO_IP, IP_RECVERR, 1), send_number(IPPROTO_IPV6, IPV6_HOPLIMIT, 1), send_number(SOL_SOCKET, 99, 1), send_number(SOL_SOCKET, SCM_RIGHTS, 0);
    quietly(to, SOL_SOCKET, SO_TIMESTAMP, 0), quietly(to, IPPROTO_IP, IP_RECVORIGDSTADDR, 0);
}
static void receive_given(void) {
    struct sockaddr_storage name;
    socklen_t size = sizeof name;
    if (!six && recvfrom(to, buffer, 1, MSG_PEEK, (void *)&name, &size) == 1)
        printf("  from %s\n", inet_ntoa(((struct sockaddr_in *)&name)->sin_addr));
    for (int i = 0; i < 9; i++)
        receive(to, 0, 600);
}
static void wishes_6(void) {
    set(to, "IPV6_RECVPKTINFO", IPPROTO_IPV6, IPV6_RECVPKTINFO, 1), set(to, "IPV6_RECVHOPLIMIT", IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
    set(to, "IPV6_RECVTCLASS", IPPROTO_IPV6, IPV6_RECVTCLASS, 1), set(to, "IPV6_RECVORIGDSTADDR", IPPROTO_IPV6, 74, 1);
    set(to, "IP_PKTINFO", IPPROTO_IP, IP_PKTINFO, 1), set(to, "IP_RECVTTL", IPPROTO_IP, IP_RECVTTL, 1);
}
static void send_6(void) {
    quietly(from, IPPROTO_IPV6, IPV6_UNICAST_HOPS, 17), quietly(from, IPPROTO_IPV6, IPV6_TCLASS, 8);
    send_to("hello", "::1");
    six = 0;
    int old = from;
    make_from(), send_to("mapped", "127.0.0.2"), close(from);
    from = old, six = 1;
}
static void receive_6(void) { receive(to, 0, 600), receive(to, 0, 600); }
static void given_6(void) {
    struct in6_pktinfo info = {.ipi6_addr = IN6ADDR_LOOPBACK_INIT, .ipi6_ifindex = 1};
    send_with(IPPROTO_IPV6, IPV6_PKTINFO, &info, sizeof info);
    send_number(IPPROTO_IPV6, IPV6_HOPLIMIT, 3), send_number(IPPROTO_IPV6, IPV6_HOPLIMIT, -1), send_number(IPPROTO_IPV6, IPV6_HOPLIMIT, 256);
    send_number(IPPROTO_IPV6, IPV6_TCLASS, 4), send_number(IPPROTO_IPV6, IPV6_TCLASS, -2), send_number(IPPROTO_IP, IP_TTL, 9);
}

static void errors(int connected, int wants) {
    int level = six ? IPPROTO_IPV6 : IPPROTO_IP, option = six ? IPV6_RECVERR : IP_RECVERR, zero = 0;
    printf("-- errors, %s, connected %d, wanted %d\n", six ? "IPv6" : "IPv4", connected, wants);
    make_from();
    // Nobody has that port in a network of its own.
    set_address(local(), 9);
    struct sockaddr_storage nobody = where;
    if (connected)
        MUST(connect(from, (void *)&nobody, length()) == 0);
    if (wants)
        set(from, "RECVERR", level, option, 1);
    SHOW(sendto(from, "payload", 7, 0, connected ? NULL : (void *)&nobody, connected ? 0 : length()));
    show_poll("after it", from);
    if (wants && !six)
        quietly(from, IPPROTO_IP, IP_PKTINFO, 1), quietly(from, IPPROTO_IP, IP_RECVTTL, 1);
    receive(from, MSG_ERRQUEUE, 600), receive(from, MSG_ERRQUEUE, 600), receive(from, 0, 0);
    show_poll("in the end", from);
    if (wants) {
        SHOW(sendto(from, "one", 3, 0, (void *)&nobody, length())); SHOW(sendto(from, "two", 3, 0, (void *)&nobody, length()));
        socklen_t size = sizeof zero;
        SHOW(getsockopt(from, SOL_SOCKET, SO_ERROR, &zero, &size)); SHOW(zero);
        show_poll("one", from);
        receive(from, MSG_ERRQUEUE, 20), receive(from, MSG_ERRQUEUE, 600);
        quietly(from, SOL_SOCKET, 45, 1);
        SHOW(sendto(from, "three", 5, 0, (void *)&nobody, length()));
        show_poll("three", from);
        set(from, "RECVERR", level, option, 0);
        receive(from, MSG_ERRQUEUE, 600);
    }
    close(from);
}
static void all_errors(void) {
    for (six = 0; six < 2; six++)
        for (int i = 0; i < 4; i++)
            errors(i & 1, i >> 1);
    six = 0;
}

static int offset(int fd) {
    int value = -9;
    socklen_t size = sizeof value;
    MUST(getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &value, &size) == 0);
    return value;
}
static void peek(int times) {
    for (int i = 0; i < times; i++)
        receive(to, MSG_PEEK, 0), printf("  offset %d\n", offset(to));
}
static void unix_pair(int kind) {
    int pair[2];
    MUST(socketpair(AF_UNIX, kind, 0, pair) == 0);
    from = pair[0], to = pair[1];
}
static void put(const char *text) { MUST(send(from, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text)); }
static void peeking(void) {
    printf("-- SO_PEEK_OFF\n");
    for (int kind = SOCK_STREAM; kind <= SOCK_DGRAM; kind++) {
        unix_pair(kind);
        set(to, "SO_PEEK_OFF", SOL_SOCKET, SO_PEEK_OFF, 0);
        put("one"), put("twoo"), put(""), put("three");
        peek(6);
        set(to, "SO_PEEK_OFF", SOL_SOCKET, SO_PEEK_OFF, 2);
        peek(1), receive(to, 0, 0), peek(1);
        set(to, "SO_PEEK_OFF", SOL_SOCKET, SO_PEEK_OFF, 4);
        peek(1), put("more"), peek(2);
        set(to, "SO_PEEK_OFF", SOL_SOCKET, SO_PEEK_OFF, -1);
        peek(2);
        close_two();
    }
}
static void unix_messages(void) {
    printf("-- AF_UNIX\n");
    unix_pair(SOCK_DGRAM);
    set(to, "SO_TIMESTAMP", SOL_SOCKET, SO_TIMESTAMP, 1), set(to, "SO_PASSPIDFD", SOL_SOCKET, SO_PASSPIDFD, 1), set(to, "SO_PASSCRED", SOL_SOCKET, SO_PASSCRED, 1);
    put("x"), put("y"), put("z");
    receive(to, 0, 600), receive(to, 0, 40), receive(to, 0, 0);
    close_two();
    unix_pair(SOCK_STREAM);
    set(to, "SO_PASSPIDFD", SOL_SOCKET, SO_PASSPIDFD, 1), set(to, "SO_TIMESTAMP", SOL_SOCKET, SO_TIMESTAMP, 1);
    put("ab"), put("cd");
    receive(to, 0, 600);
    gid_t groups[10] = {0};
    socklen_t size = sizeof groups;
    SHOW(getsockopt(to, SOL_SOCKET, SO_PEERGROUPS, groups, &size)); SHOW(size / sizeof(gid_t) == (unsigned)getgroups(0, NULL));
    int fd = -1;
    size = sizeof fd;
    SHOW(getsockopt(to, SOL_SOCKET, SO_PEERPIDFD, &fd, &size)); SHOW(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0)); SHOW(fcntl(fd, F_GETFD));
    close(fd), close_two();
    fd = socket(AF_UNIX, SOCK_STREAM, 0), size = sizeof groups;
    SHOW(getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &size)); SHOW(getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, groups, &size));
    close(fd);
    gid_t two[] = {5, 7};
    if (setgroups(2, two) == 0) {
        unix_pair(SOCK_STREAM);
        MUST(setgroups(0, NULL) == 0);
        size = sizeof groups;
        SHOW(getsockopt(to, SOL_SOCKET, SO_PEERGROUPS, groups, &size)); SHOW(size); SHOW(groups[0]); SHOW(groups[1]);
        size = 4;
        SHOW(getsockopt(to, SOL_SOCKET, SO_PEERGROUPS, groups, &size)); SHOW(size);
        close_two();
    }
}

static int listener, kind_tcp;
static void listen_here(void) {
    listener = socket(kind_tcp ? AF_INET : AF_UNIX, SOCK_STREAM, 0);
    sa_family_t family = AF_UNIX;
    set_address("127.0.0.1", 0);
    MUST(bind(listener, kind_tcp ? (void *)&where : (void *)&family, kind_tcp ? length() : sizeof family) == 0 && listen(listener, 1) == 0);
}
static void connect_here(void) {
    struct sockaddr_storage name;
    socklen_t size = sizeof name;
    MUST(getsockname(listener, (void *)&name, &size) == 0);
    from = socket(kind_tcp ? AF_INET : AF_UNIX, SOCK_STREAM, 0);
    MUST(connect(from, (void *)&name, size) == 0);
}
static void accept_here(void) { to = accept(listener, NULL, NULL), close(listener); }

static void want_five(void) { set(to, "SO_RCVLOWAT", SOL_SOCKET, SO_RCVLOWAT, 5); }
static void read_five(void) {
    SHOW(recv(to, buffer, 10, 0));
    SHOW(recv(to, buffer, 10, MSG_DONTWAIT));
}
static void put_three(void) { put("abc"); }
static void put_five(void) { put("abcde"); }
static void settle(int bytes) {
    int there = 0;
    for (int i = 0; there != bytes && i < 10000; i++) {
        MUST(ioctl(to, FIONREAD, &there) == 0);
        usleep(there == bytes ? 0 : 100);
    }
    MUST(there == bytes);
}
static void poll_three(void) { settle(3), show_poll("three", to); }
static void poll_six(void) { settle(6), show_poll("six", to); }
static void put_last(void) { put("z"), shutdown(from, SHUT_WR); }
static void read_last(void) { SHOW(recv(to, buffer, 10, 0)); SHOW(recv(to, buffer, 10, 0)); }
static void low_water(int a, int b) {
    printf("-- SO_RCVLOWAT of %s from %d to %d\n", kind_tcp ? "TCP" : "AF_UNIX", a, b);
    on(b, listen_here), on(a, connect_here), on(b, accept_here), on(b, want_five);
    on(a, put_three), on(b, poll_three), on(a, put_three), on(b, poll_six), on(b, read_five);
    // It waits for what comes later (nobody waits for himself), or for the end.
    if (a == b)
        on(a, put_five), on(b, read_five);
    else
        begin(b, read_five), on(a, put_five), finish(b);
    on(a, put_last), on(b, read_last);
    close_two();
}
static void tcp_messages(void) {
    printf("-- TCP\n");
    set(to, "TCP_INQ", IPPROTO_TCP, TCP_INQ, 1), set(to, "SO_TIMESTAMP", SOL_SOCKET, SO_TIMESTAMP, 1);
    receive(to, MSG_ERRQUEUE, 100), receive(to, 0, 600);
}
static void tcp_inq(void) {
    settle(6);
    struct iovec part = {buffer, 2};
    char control[100];
    for (int i = 0; i < 2; i++) {
        struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        SHOW(recvmsg(to, &header, 0));
        show_control(&header, 0);
    }
    set(to, "SO_PEEK_OFF", SOL_SOCKET, SO_PEEK_OFF, 1);
    peek(2);
}
static void tcp_end(void) {
    struct pollfd one = {to, POLLRDHUP, 0};
    MUST(poll(&one, 1, 10000) == 1);
    receive(to, 0, 300), receive(to, 0, 300);
}

// How much a sender is let in before it would wait: little or much, as its buffers are.
static size_t fill(int fd) {
    size_t sent = 0;
    for (ssize_t count; (count = send(fd, buffer, 1000, MSG_DONTWAIT | MSG_NOSIGNAL)) > 0;)
        sent += count;
    return sent;
}
static void buffers(void) {
    printf("-- buffers\n");
    size_t sent[3];
    for (int i = 0; i < 3; i++) {
        unix_pair(SOCK_STREAM);
        if (i)
            quietly(from, SOL_SOCKET, SO_SNDBUF, i == 1 ? 1 : 1 << 20);
        quietly(to, SOL_SOCKET, SO_RCVBUF, 1);
        sent[i] = fill(from);
        close_two();
    }
    printf("  AF_UNIX: little %d, more %d\n", sent[1] < 10000 && sent[1] < sent[0], sent[2] > sent[0]);
    unix_pair(SOCK_SEQPACKET);
    set(from, "SO_SNDBUF", SOL_SOCKET, SO_SNDBUF, 5000);
    SHOW(send(from, buffer, 9969, MSG_DONTWAIT)); SHOW(send(from, buffer, 9968, MSG_DONTWAIT));
    close_two();
    make_to(), make_from();
    set(to, "SO_RCVBUF", SOL_SOCKET, SO_RCVBUF, 1);
    set_address("127.0.0.1", port_of(to));
    int got = 0;
    for (int i = 0; i < 100; i++)
        MUST(sendto(from, buffer, 100, 0, (void *)&where, length()) == 100);
    while (recv(to, buffer, 100, MSG_DONTWAIT) == 100)
        got++;
    printf("  UDP: some %d, not all %d\n", got > 0, got < 20);
    close_two();
}

int main(void) {
    start_hands();
    int places[][2] = {{0, 0}, {0, 2}, {2, 1}};
    for (int i = 0; i < 3; i++) {
        int a = places[i][0], b = places[i][1];
        printf("== from %d to %d\n", a, b), fflush(stdout);
        on(b, make_to), on(a, make_from), on(b, wishes_4), on(a, send_4), on(b, receive_4), on(a, given_4), on(b, receive_given), close_two();
        six = 1;
        on(b, make_to), on(a, make_from), on(b, wishes_6), on(a, send_6), on(b, receive_6), on(a, given_6), on(b, receive_given), close_two();
        six = 0;
        for (kind_tcp = 0; kind_tcp < 2; kind_tcp++)
            low_water(a, b);
        kind_tcp = 1;
        on(b, listen_here), on(a, connect_here), on(b, accept_here), on(b, tcp_messages);
        on(a, put_three), on(a, put_three), on(b, tcp_inq), on(a, put_last), on(b, tcp_end), close_two();
    }
    on(2, all_errors), on(1, peeking), on(0, unix_messages), on(0, buffers);
    return 0;
}
