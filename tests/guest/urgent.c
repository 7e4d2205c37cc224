// Urgent data of AF_UNIX streams and of TCP (man 7 unix, tcp; MSG_OOB, SIOCATMARK, SO_OOBINLINE, POLLPRI, SIGURG), with the two ends on any kernels.
// cob: link=static,dynamic flags=-pthread kernels=1,4 compare=host net=lo timeout=60
#include "hands.h"
#include "internet.h"
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>

static int tcp, listener, from, to;
static char buffer[1000];

static void make_listener(void) {
    if (tcp) {
        listener = socket(AF_INET, SOCK_STREAM, 0);
        set_address("127.0.0.1", 0);
        MUST(bind(listener, (void *)&where, length()) == 0);
    } else {
        listener = socket(AF_UNIX, SOCK_STREAM, 0);
        sa_family_t family = AF_UNIX;
        // The kernel chooses a name.
        MUST(bind(listener, (void *)&family, sizeof family) == 0);
    }
    MUST(listen(listener, 1) == 0);
}
static void make_from(void) {
    struct sockaddr_storage name;
    socklen_t size = sizeof name;
    MUST(getsockname(listener, (void *)&name, &size) == 0);
    from = socket(tcp ? AF_INET : AF_UNIX, SOCK_STREAM, 0);
    MUST(connect(from, (void *)&name, size) == 0);
    int one = 1;
    if (tcp)
        MUST(setsockopt(from, IPPROTO_TCP, 1, &one, sizeof one) == 0);
}
static void make_to(void) {
    to = accept(listener, NULL, NULL);
    MUST(to >= 0);
    close(listener);
}

static void receive(int flags) {
    errno = 0;
    ssize_t count = recv(to, buffer, sizeof buffer, flags | MSG_DONTWAIT);
    printf("  recv%s%s: ", flags & MSG_OOB ? " urgent" : "", flags & MSG_PEEK ? " peek" : "");
    if (count < 0)
        printf("%s\n", error_name(errno));
    else
        printf("%zd '%.*s'\n", count, (int)count, buffer);
}
static void show(const char *what) {
    int mark = -1;
    MUST(ioctl(to, SIOCATMARK, &mark) == 0);
    printf("  %s, %s mark,", what, mark ? "at the" : "no");
    show_poll("it", to);
}
// Sends, and waits until the other end has so many bytes to read, before the urgent one if it is TCP; -1: until it has any.
static void put(const char *text, int flags, int bytes, int bytes_tcp) {
    int wanted = tcp ? bytes_tcp : bytes, there = -1;
    MUST(send(from, text, strlen(text), flags | MSG_NOSIGNAL) == (ssize_t)strlen(text));
    struct pollfd one = {to, flags & MSG_OOB ? POLLPRI : POLLIN, 0};
    MUST(poll(&one, 1, 10000) == 1);
    for (int i = 0; wanted >= 0 && there != wanted; i++) {
        MUST(ioctl(to, FIONREAD, &there) == 0 && i < 10000);
        if (there != wanted)
            usleep(100);
    }
}
static void inline_on(void) {
    int one = 1;
    MUST(setsockopt(to, SOL_SOCKET, SO_OOBINLINE, &one, sizeof one) == 0);
}
static void take_one(void) { MUST(recv(to, buffer, 1, 0) == 1); }
static void shut(void) {
    MUST(shutdown(from, SHUT_WR) == 0);
    struct pollfd one = {to, POLLRDHUP, 0};
    MUST(poll(&one, 1, 10000) == 1);
}

static int sender, reader;
static void open_two(const char *what) {
    printf("-- %s %s\n", tcp ? "TCP" : "AF_UNIX", what);
    on(reader, make_listener), on(sender, make_from), on(reader, make_to);
}
static void close_two(void) { close(from), close(to); }

#define PUT(...) ON(sender, put(__VA_ARGS__))
#define GET(...) ON(reader, __VA_ARGS__)
#define STORY(what, ...)                                                                                             \
    do {                                                                                                             \
        open_two(what);                                                                                              \
        __VA_ARGS__;                                                                                                 \
        close_two();                                                                                                 \
    } while (0)

static void stories(int a, int b) {
    sender = a, reader = b;
    printf("== from %d to %d\n", a, b);
    STORY("one", {
        GET(show("empty"), receive(MSG_OOB));
        PUT("ab!", MSG_OOB, 3, 2);
        GET(show("sent"), receive(MSG_OOB | MSG_PEEK), receive(MSG_PEEK), receive(0), show("read"), receive(MSG_OOB), receive(MSG_OOB), show("received"),
            receive(0), show("passed"));
        PUT("cd", 0, 2, 2);
        GET(receive(0), show("end"));
    });
    STORY("that nobody receives", {
        PUT("ab!", MSG_OOB, 3, 2);
        PUT("cd", 0, 5, 2);
        GET(receive(0), show("read"), receive(MSG_PEEK), show("peeked"), receive(0), show("passed"), receive(MSG_OOB));
    });
    STORY("alone", {
        PUT("!", MSG_OOB, 1, 0);
        GET(show("sent"), receive(MSG_PEEK), receive(0), show("passed"), receive(MSG_OOB));
        PUT("x", 0, -1, -1);
        GET(receive(0));
    });
    STORY("and another", {
        PUT("a1", MSG_OOB, 2, 1);
        PUT("b2", MSG_OOB, 4, 3);
        GET(show("sent"), receive(0), show("read"), receive(MSG_OOB), receive(0), show("end"));
    });
    STORY("received, and another", {
        PUT("a1", MSG_OOB, 2, 1);
        GET(receive(MSG_OOB));
        PUT("b2", MSG_OOB, 3, 3);
        GET(show("sent"), receive(0), show("read"), receive(0), receive(MSG_OOB), receive(0), show("end"));
    });
    STORY("received first, and another", {
        PUT("1", MSG_OOB, 1, 0);
        GET(receive(MSG_OOB), show("received"));
        PUT("2", MSG_OOB, 1, 0);
        GET(show("sent"), receive(0), show("read"), receive(MSG_OOB), receive(0), show("end"));
    });
    STORY("in line", {
        GET(inline_on());
        PUT("ab!", MSG_OOB, 3, 3);
        PUT("cd", 0, 5, 5);
        GET(show("sent"), receive(MSG_OOB), receive(MSG_PEEK), receive(0), show("read"), receive(MSG_PEEK), receive(0), show("end"));
    });
    STORY("in line late", {
        PUT("a1", MSG_OOB, 2, 1);
        PUT("b", 0, 3, 1);
        GET(receive(MSG_OOB), inline_on(), receive(0), show("read"));
    });
    STORY("and the end", {
        PUT("ab!", MSG_OOB, 3, 2);
        ON(sender, shut());
        GET(receive(0), receive(0), show("end"), receive(MSG_OOB), receive(0));
    });
    STORY("looked at after a part", {
        PUT("a1", MSG_OOB, 2, 1);
        PUT("bc", 0, 4, 1);
        GET(receive(MSG_PEEK), take_one(), show("read"), receive(MSG_PEEK), receive(MSG_OOB), receive(MSG_PEEK), receive(0), show("end"));
    });
}

static void details(void) {
    open_two("details");
    errno = 0;
    SHOW(send(from, "", 0, MSG_OOB));
    PUT("ab!", MSG_OOB, 3, 2);
    SHOW(recv(to, buffer, 10, MSG_WAITALL | MSG_DONTWAIT));
    struct iovec part = {buffer, 5};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    SHOW(recvmsg(to, &header, MSG_OOB));
    printf("  flags %x\n", header.msg_flags);
    // epoll tells it as poll does.
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLPRI, .data.u32 = 5};
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, to, &event) == 0);
    SHOW(epoll_wait(epoll, &event, 1, 0));
    MUST(send(from, "q", 1, MSG_OOB) == 1);
    event.events = 0;
    SHOW(epoll_wait(epoll, &event, 1, 10000));
    printf("  events %x\n", event.events);
    close(epoll);
    // A descriptor that is sent with an urgent byte goes with it.
    if (!tcp) {
        char control[CMSG_SPACE(sizeof(int))] = {0};
        struct msghdr with = {.msg_iov = &(struct iovec){"f", 1}, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        struct cmsghdr *first = CMSG_FIRSTHDR(&with);
        *first = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        int ends[2];
        MUST(pipe(ends) == 0);
        memcpy(CMSG_DATA(first), &ends[1], sizeof(int));
        SHOW(sendmsg(from, &with, MSG_OOB));
        close(ends[1]);
        SHOW(recv(to, buffer, 10, MSG_OOB));
        receive(0), receive(0);
        SHOW(read(ends[0], buffer, 1));
        close(ends[0]);
    }
    shutdown(from, SHUT_WR);
    SHOW(send(from, "ab", 2, MSG_OOB | MSG_NOSIGNAL));
    close_two();
    open_two("closed unread");
    PUT("!", MSG_OOB, 1, 0);
    close(to);
    SHOW(read(from, buffer, 1));
    close(from);
    open_two("closed after it was received");
    PUT("!", MSG_OOB, 1, 0);
    receive(MSG_OOB);
    close(to);
    SHOW(read(from, buffer, 1));
    close(from);
}

// -- who is signalled --------------------------------------------------------------------------------------------------

static sigset_t told;
// What has been signalled, SIGURG first; nothing else comes after `count` signals.
static void signals(const char *what, int count) {
    printf("  %s:", what);
    int urgent = 0, plain = 0, input = 0, priority = 0;
    for (int got = 0;; got++) {
        siginfo_t info;
        struct timespec patience = {got < count ? 10 : 0, 0};
        int signal = sigtimedwait(&told, &info, &patience);
        if (signal < 0)
            break;
        urgent += signal == SIGURG && info.si_code == SI_KERNEL, plain += signal == SIGIO;
        priority += signal == SIGRTMIN && info.si_code == POLL_PRI && info.si_band == (POLLPRI | POLLRDBAND) && info.si_fd == to;
        input += signal == SIGRTMIN && info.si_code == POLL_IN;
    }
    // How many messages a stream came in is not told.
    printf("%s%s%s%s\n", urgent ? " SIGURG" : "", plain ? " SIGIO" : "", priority ? " priority" : "", input ? " input" : "");
}
static void own_as_process(void) { MUST(fcntl(to, F_SETOWN, getpid()) == 0); }
static void own_as_group(void) {
    int group = -getpgrp();
    MUST(ioctl(to, SIOCSPGRP, &group) == 0);
}
static void own_as_thread(void) {
    struct f_owner_ex owner = {F_OWNER_TID, hands[1].tid};
    MUST(fcntl(to, F_SETOWN_EX, &owner) == 0);
}
static void own_by_nobody(void) { MUST(fcntl(to, F_SETOWN, 0) == 0); }
static void send_urgent(void) { MUST(send(from, "ab!", 3, MSG_OOB) == 3); }
static void send_plain(void) { MUST(send(from, "cd", 2, 0) == 2); }
static void wait_urgent(void) { signals("the thread", 1); }

static void owners(int a, int b) {
    sender = a, reader = b;
    open_two("owners");
    on(sender, send_urgent), signals("nobody's", 0);
    on(reader, own_as_process), on(sender, send_plain), signals("not urgent", 0);
    on(sender, send_urgent), signals("a process", 1);
    on(reader, own_as_group), on(sender, send_urgent), signals("a group", 1);
    on(reader, own_as_thread), begin(1, wait_urgent);
    if (sender == 1)
        send_urgent();
    else
        on(sender, send_urgent);
    finish(1);
    signals("the process", 0);
    on(reader, own_by_nobody), on(sender, send_urgent), signals("nobody's any more", 0);
    on(reader, own_as_process);
    ON(reader, MUST(fcntl(to, F_SETFL, O_ASYNC) == 0));
    on(sender, send_urgent), signals("with O_ASYNC", 2);
    ON(reader, MUST(fcntl(to, F_SETSIG, SIGRTMIN) == 0));
    on(sender, send_urgent), signals("with F_SETSIG", 3);
    ON(reader, MUST(fcntl(to, F_SETFL, 0) == 0));
    on(sender, send_urgent), signals("without O_ASYNC", 1);
    ON(reader, inline_on());
    on(sender, send_urgent), signals("in line", 1);
    close_two();
}

int main(void) {
    sigemptyset(&told), sigaddset(&told, SIGURG), sigaddset(&told, SIGIO), sigaddset(&told, SIGRTMIN);
    MUST(sigprocmask(SIG_BLOCK, &told, NULL) == 0);
    MUST(setpgid(0, 0) == 0 || errno == EPERM);
    start_hands();
    for (tcp = 0; tcp < 2; tcp++)
        owners(0, 0), owners(0, 2), owners(2, 1);
    for (tcp = 0; tcp < 2; tcp++) {
        stories(0, 0), stories(0, 2), stories(2, 1);
        sender = 0, reader = 2;
        details();
    }
    for (int kind = SOCK_DGRAM; kind <= SOCK_SEQPACKET; kind += SOCK_SEQPACKET - SOCK_DGRAM) {
        int pair[2];
        MUST(socketpair(AF_UNIX, kind, 0, pair) == 0);
        SHOW(send(pair[0], "x", 1, MSG_OOB));
        SHOW(recv(pair[1], buffer, 1, MSG_OOB | MSG_DONTWAIT));
        close(pair[0]), close(pair[1]);
    }
    return 0;
}
