// UDP within the machine (man 7 udp): datagrams whole, to whom they go, what is lost and who hears of it; sender and receiver on any kernels.
// cob: link=static,dynamic flags=-pthread kernels=1,4 compare=host net=lo timeout=60
#include "hands.h"
#include "internet.h"
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

static int here, there, third;
static char buffer[1 << 17];

static void show_name(const char *what, int fd, int (*get)(int, struct sockaddr *, socklen_t *)) {
    struct sockaddr_storage name;
    socklen_t size = sizeof name;
    char text[100] = "";
    if (get(fd, (void *)&name, &size) < 0) {
        printf("  %s: %s\n", what, error_name(errno));
        return;
    }
    void *at = name.ss_family == AF_INET6 ? (void *)&((struct sockaddr_in6 *)&name)->sin6_addr : (void *)&((struct sockaddr_in *)&name)->sin_addr;
    inet_ntop(name.ss_family, at, text, sizeof text);
    int port = ntohs(((struct sockaddr_in *)&name)->sin_port);
    printf("  %s: family %d size %d %s %s\n", what, name.ss_family, size, text, port ? "a port" : "no port");
}
static void show_receive(int fd, int flags) {
    struct sockaddr_storage name;
    struct iovec part = {buffer, 6};
    struct msghdr header = {.msg_name = &name, .msg_namelen = sizeof name, .msg_iov = &part, .msg_iovlen = 1};
    errno = 0;
    ssize_t count = recvmsg(fd, &header, flags | MSG_DONTWAIT);
    if (count < 0)
        printf("  received: %s\n", error_name(errno));
    else
        printf("  received %zd %.*s flags %x from family %d size %d %s\n", count, count > 6 ? 6 : (int)count, buffer, header.msg_flags,
               name.ss_family, header.msg_namelen,
               ((struct sockaddr_in *)&name)->sin_port == htons(port_of(here)) ? "here" : "elsewhere");
}
static int send_text(int fd, const char *text, int to) {
    if (to == 0)
        return (int)send(fd, text, strlen(text), MSG_NOSIGNAL);
    set_address(local(), to);
    return (int)sendto(fd, text, strlen(text), MSG_NOSIGNAL, (void *)&where, length());
}
static int make(void) {
    int fd = socket(six ? AF_INET6 : AF_INET, SOCK_DGRAM, 0);
    MUST(fd >= 0);
    return fd;
}
static void make_here(void) { here = make(); }
static void make_there(void) {
    there = make();
    set_address(six ? "::" : "0.0.0.0", 0);
    SHOW(bind(there, (void *)&where, length()));
}
static void close_here(void) { close(here); }
static void close_there(void) { close(there); }
static void send_first(void) {
    show_name("before", here, getsockname);
    SHOW(send_text(here, "one", port_of(there)));
    show_name("after", here, getsockname), show_name("peer", here, getpeername);
    SHOW(send_text(here, "longer than six", port_of(there)));
    SHOW(send_text(here, "", port_of(there)));
    SHOW(send_text(here, "nobody", 0));
}
static void receive_first(void) {
    show_poll("there", there);
    int count = 0;
    SHOW(ioctl(there, FIONREAD, &count)); SHOW(count);
    show_receive(there, MSG_PEEK), show_receive(there, 0), show_receive(there, MSG_TRUNC), show_receive(there, 0), show_receive(there, 0);
    show_poll("there", there);
}
static void connect_here(void) {
    set_address(local(), port_of(there));
    SHOW(connect(here, (void *)&where, length()));
    show_name("here", here, getsockname), show_name("peer", here, getpeername);
    SHOW(send_text(here, "again", 0));
}
static void answer(void) {
    show_receive(there, 0);
    SHOW(send_text(there, "answer", port_of(here)));
    third = make();
    SHOW(send_text(third, "stranger", port_of(here)));
    close(third);
}
static void hear(void) { show_receive(here, 0), show_receive(here, 0); }
static void nobody_there(void) {
    show_poll("here", here);
    SHOW(send_text(here, "lost", 0));
    show_poll("here", here);
    SHOW(send_text(here, "lost", 0));
    SHOW(send_text(here, "lost", 0));
    show_receive(here, 0), show_receive(here, 0);
    set_address(local(), 9);
    where.ss_family = AF_UNSPEC;
    SHOW(connect(here, (void *)&where, length()));
    show_name("here", here, getsockname), show_name("peer", here, getpeername);
    SHOW(send_text(here, "lost", 9));
    SHOW(send_text(here, "lost", 9));
    show_receive(here, 0);
}
static void story(int a, int b) {
    printf("-- from %d to %d, %s\n", a, b, six ? "IPv6" : "IPv4");
    on(a, make_here), on(b, make_there), on(a, send_first), on(b, receive_first), on(a, connect_here), on(b, answer), on(a, hear);
    on(b, close_there), on(a, nobody_there), on(a, close_here);
}

static void sizes(void) {
    printf("-- sizes\n");
    set_address(local(), port_of(there));
    SHOW(sendto(here, buffer, 65507, 0, (void *)&where, length()));
    SHOW(recv(there, buffer, sizeof buffer, MSG_DONTWAIT));
    SHOW(sendto(here, buffer, 65508, 0, (void *)&where, length()));
    SHOW(sendto(here, buffer, 100000, 0, (void *)&where, length()));
    SHOW(write(here, buffer, 1));
    // What nobody takes is lost: the sender never waits.
    int sent = 0, got = 0;
    for (int i = 0; i < 1000; i++)
        sent += sendto(here, buffer, 2000, 0, (void *)&where, length()) == 2000;
    while (recv(there, buffer, sizeof buffer, MSG_DONTWAIT) == 2000)
        got++;
    printf("  sent %d, some came %d, some were lost %d\n", sent, got > 10, got < 1000);
}
static void misuse(void) {
    printf("-- misuse\n");
    SHOW(listen(here, 1)); SHOW(accept(here, NULL, NULL));
    SHOW(shutdown(there, SHUT_RD));
    show_poll("there", there);
    set_address("10.1.2.3", 9);
    SHOW(sendto(here, "x", 1, 0, (void *)&where, length())); SHOW(connect(here, (void *)&where, length()));
    set_address("255.255.255.255", 9);
    SHOW(sendto(here, "x", 1, 0, (void *)&where, length()));
    set_address("127.0.0.1", 0);
    SHOW(sendto(here, "x", 1, 0, (void *)&where, length()));
    SHOW(sendto(here, "x", 1, 0, (void *)&where, 15));
    where.ss_family = 77;
    SHOW(sendto(here, "x", 1, 0, (void *)&where, length()));
    SHOW(bind(here, (void *)&where, length()));
    set_address("127.0.0.1", port_of(there));
    int again = make();
    SHOW(bind(again, (void *)&where, length()));
    close(again);
    SHOW(recv(here, buffer, 1, MSG_DONTWAIT | MSG_OOB)); SHOW(send(here, buffer, 1, MSG_OOB));
}
static int shared[2];
static void share(int index, int connected) {
    int one = 1;
    shared[index] = make();
    MUST(setsockopt(shared[index], SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
    set_address("127.0.0.1", 7010);
    SHOW(bind(shared[index], (void *)&where, length()));
    if (connected) {
        set_address("127.0.0.1", port_of(here));
        SHOW(connect(shared[index], (void *)&where, length()));
    }
}
static void share_connected(void) { share(0, 1); }
static void share_open(void) { share(1, 0); }
static void send_shared(void) {
    SHOW(send_text(here, "mine", 7010));
    int stranger = make();
    SHOW(send_text(stranger, "other", 7010));
    close(stranger);
}
static void show_shared(void) { show_receive(shared[0], 0), show_receive(shared[1], 0), show_receive(shared[0], 0), show_receive(shared[1], 0); }

static void many(void) {
    struct iovec parts[3] = {{"a", 1}, {"bb", 2}, {"ccc", 3}};
    struct mmsghdr messages[3] = {0};
    set_address(local(), port_of(there));
    for (int i = 0; i < 3; i++)
        messages[i].msg_hdr = (struct msghdr){.msg_name = &where, .msg_namelen = length(), .msg_iov = &parts[i], .msg_iovlen = 1};
    SHOW(sendmmsg(here, messages, 3, 0));
    for (int i = 0; i < 3; i++) {
        parts[i] = (struct iovec){buffer + 10 * i, 10};
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &parts[i], .msg_iovlen = 1};
    }
    SHOW(recvmmsg(there, messages, 3, MSG_WAITFORONE, NULL));
    printf("  %u %u %u\n", messages[0].msg_len, messages[1].msg_len, messages[2].msg_len);
}

static void blocked(void) {
    MUST(recv(there, buffer, 6, 0) == 5);
}
static void send_late(void) { MUST(send_text(here, "later", port_of(there)) == 5); }

int main(void) {
    start_hands();
    for (six = 0; six < 2; six++)
        story(0, 0), story(0, 2), story(2, 1);
    six = 0;
    on(1, make_here), on(2, make_there);
    on(0, sizes), on(1, many), on(0, misuse);
    on(2, close_there), on(2, make_there);
    begin(0, blocked), on(1, send_late), finish(0);
    on(2, share_connected), on(0, share_open), on(1, send_shared), on(0, show_shared);
    return 0;
}
