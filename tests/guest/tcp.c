// TCP within the machine (man 7 tcp, ip, ipv6): a connection's life and its ends, errors, poll, ports and options; listener, client and accepted end each on any kernel.
// cob: link=static,dynamic flags=-pthread kernels=1,4 compare=host net=lo timeout=120
#include "hands.h"
#include "internet.h"
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

static int listener, client, accepted;
static char buffer[1 << 16];

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
    printf("  %s: family %d size %d %s %s\n", what, name.ss_family, size, text,
           port == 0 ? "no port" : port == port_of(listener) ? "listener's port" : "own port");
}
static int option(int fd, int level, int name) {
    int value = 0;
    socklen_t size = sizeof value;
    return getsockopt(fd, level, name, &value, &size) < 0 ? -errno : value;
}
static int set(int fd, int level, int name, int value) { return setsockopt(fd, level, name, &value, sizeof value); }
static void show_read(int fd) {
    errno = 0;
    ssize_t count = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
    printf("  read %zd %.*s %s\n", count, count > 0 && count < 20 ? (int)count : 0, buffer, count < 0 ? error_name(errno) : "");
}
static void show_write(int fd, const char *text) {
    errno = 0;
    ssize_t count = send(fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT);
    printf("  write %zd %s\n", count, count < 0 ? error_name(errno) : "");
}

// -- what hands do -----------------------------------------------------------------------------------------------------

static void make_listener(void) {
    MUST((listener = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) >= 0);
    MUST(bind(listener, (void *)&where, length()) == 0);
    MUST(listen(listener, 5) == 0);
}
static void make_client(void) { MUST((client = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM, IPPROTO_TCP)) >= 0); }
static void connect_client(void) {
    set_address(local(), port_of(listener));
    SHOW(connect(client, (void *)&where, length()));
}
static void accept_one(void) {
    struct pollfd there = {listener, POLLIN, 0};
    MUST(poll(&there, 1, -1) == 1);
    struct sockaddr_storage name;
    socklen_t size = sizeof name;
    MUST((accepted = accept4(listener, (void *)&name, &size, SOCK_CLOEXEC)) >= 0);
    printf("  accepted: family %d size %d %s\n", name.ss_family, size,
           ((struct sockaddr_in *)&name)->sin_port == htons(port_of(client)) ? "the client's port" : "another port");
}
static void show_names(void) {
    show_name("client", client, getsockname), show_name("client's peer", client, getpeername);
    show_name("accepted", accepted, getsockname), show_name("accepted's peer", accepted, getpeername);
    show_name("listener", listener, getsockname), show_name("listener's peer", listener, getpeername);
}
static void client_writes(void) { show_write(client, "from the client"); }
static void client_reads(void) { show_read(client); }
static void accepted_writes(void) { show_write(accepted, "from the server"); }
static void accepted_reads(void) { show_read(accepted); }
static void client_polls(void) { show_poll("client", client); }
static void accepted_polls(void) { show_poll("accepted", accepted); }
static void listener_polls(void) { show_poll("listener", listener); }
static void client_shuts(void) { SHOW(shutdown(client, SHUT_WR)); }
static void close_client(void) { MUST(close(client) == 0); }
static void close_accepted(void) { MUST(close(accepted) == 0); }
static void close_listener(void) { MUST(close(listener) == 0); }
static void client_error(void) { printf("  SO_ERROR %s\n", error_name(option(client, SOL_SOCKET, SO_ERROR))); }
static void linger(void) {
    struct linger now = {1, 0};
    MUST(setsockopt(accepted, SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
}
static void send_much(void) {
    MUST(set(client, SOL_SOCKET, SO_SNDBUF, 1 << 16) == 0);
    char *all = malloc(8 << 20);
    for (int i = 0; i < 8 << 20; i++)
        all[i] = (char)(i * 7 + i / 4096);
    for (int done = 0; done < 8 << 20;) {
        ssize_t count = write(client, all + done, (8 << 20) - done > 100000 ? 100000 : (8 << 20) - done);
        MUST(count > 0);
        done += (int)count;
    }
    free(all);
    MUST(shutdown(client, SHUT_WR) == 0);
}
static void receive_much(void) {
    int got = 0, wrong = 0;
    for (ssize_t count; (count = read(accepted, buffer, sizeof buffer)) > 0; got += (int)count)
        for (int i = 0; i < count; i++)
            wrong += buffer[i] != (char)((got + i) * 7 + (got + i) / 4096);
    printf("  got %d, wrong %d\n", got, wrong);
}

static void story(int a, int b, int c) {
    printf("-- listener %d, client %d, server %d, %s\n", a, b, c, six ? "IPv6" : "IPv4");
    set_address(six ? "::" : "0.0.0.0", 0);
    on(a, make_listener), on(b, make_client);
    on(b, client_polls), on(c, listener_polls);
    on(b, connect_client), on(c, listener_polls), on(c, accept_one), on(b, show_names);
    on(b, client_polls), on(b, client_writes), on(c, accepted_polls), on(c, accepted_reads), on(c, accepted_reads);
    on(c, accepted_writes), on(b, client_reads);
    on(b, client_shuts), on(b, client_polls), on(c, accepted_polls), on(c, accepted_reads), on(b, client_writes);
    on(c, accepted_writes), on(b, client_reads), on(c, close_accepted), on(b, client_polls), on(b, client_reads), on(b, close_client);
    printf("- the other side closes, and is written to\n");
    on(b, make_client), on(b, connect_client), on(c, accept_one), on(c, close_accepted), on(b, client_polls);
    on(b, client_writes), on(b, client_reads), on(b, client_polls), on(b, client_writes), on(b, client_error), on(b, close_client);
    printf("- with data unread\n");
    on(b, make_client), on(b, connect_client), on(c, accept_one), on(b, client_writes), on(c, close_accepted), on(b, client_polls);
    on(b, client_reads), on(b, client_reads), on(b, client_writes), on(b, close_client);
    printf("- broken off\n");
    on(b, make_client), on(b, connect_client), on(c, accept_one), on(c, accepted_writes), on(c, linger), on(c, close_accepted);
    on(b, client_polls), on(b, client_reads), on(b, client_reads), on(b, client_error), on(b, close_client);
    printf("- much\n");
    on(b, make_client), on(b, connect_client), on(c, accept_one);
    int sender = b == c ? (c + 1) % HANDS : b;
    begin(sender, send_much), on(c, receive_much), finish(sender);
    on(b, close_client), on(c, close_accepted);
    printf("- never accepted\n");
    on(b, make_client), on(b, connect_client), on(b, client_writes), on(a, close_listener), on(b, client_polls), on(b, client_reads), on(b, close_client);
}

// -- errors ------------------------------------------------------------------------------------------------------------

static void refused(void) {
    set_address(local(), 9);
    make_client();
    SHOW(connect(client, (void *)&where, length()));
    SHOW(fcntl(client, F_SETFL, O_NONBLOCK));
    SHOW(connect(client, (void *)&where, length()));
    show_poll("refused", client);
    client_error(), client_error();
    SHOW(connect(client, (void *)&where, length()));
    SHOW(connect(client, (void *)&where, length()));
    show_read(client), show_write(client, "x");
    close(client);
}
static void misuse(void) {
    six = 0;
    set_address("127.0.0.1", 0);
    SHOW(socket(AF_INET, SOCK_SEQPACKET, 0) < 0 ? -1 : 0);
    SHOW(socket(AF_INET, SOCK_STREAM, IPPROTO_UDP) < 0 ? -1 : 0);
    SHOW(socket(AF_INET, SOCK_DGRAM, 300) < 0 ? -1 : 0);
    SHOW(socket(AF_INET, 99, 0) < 0 ? -1 : 0);
    SHOW(socketpair(AF_INET, SOCK_STREAM, 0, (int[2]){0}));
    make_client();
    show_read(client), show_write(client, "x");
    SHOW(accept(client, NULL, NULL));
    SHOW(shutdown(client, SHUT_RDWR));
    SHOW(shutdown(client, 9));
    show_name("unbound", client, getpeername);
    SHOW(bind(client, (void *)&where, 15));
    SHOW(bind(client, (void *)&where, 1));
    where.ss_family = AF_UNIX;
    SHOW(bind(client, (void *)&where, length()));
    SHOW(connect(client, (void *)&where, length()));
    where.ss_family = AF_INET6;
    SHOW(bind(client, (void *)&where, sizeof(struct sockaddr_in6)));
    set_address("10.1.2.3", 0);
    SHOW(bind(client, (void *)&where, length()));
    set_address("10.1.2.3", 80);
    SHOW(connect(client, (void *)&where, length()));
    set_address("127.0.0.1", 0);
    SHOW(connect(client, (void *)&where, 15));
    SHOW(connect(client, (void *)&where, length()));
    SHOW(bind(client, (void *)&where, length()));
    SHOW(bind(client, (void *)&where, length()));
    SHOW(listen(client, 1));
    SHOW(listen(client, 7));
    SHOW(connect(client, (void *)&where, length()));
    show_read(client), show_write(client, "x");
    SHOW(shutdown(client, SHUT_RD));
    SHOW(accept(client, NULL, NULL));
    close(client);
}
static void unprivileged(void) {
    IN_CHILD("unprivileged", {
        MUST(setuid(12345) == 0);
        set_address("127.0.0.1", 80);
        make_client();
        SHOW(bind(client, (void *)&where, length()));
        SHOW(set(client, SOL_SOCKET, SO_DEBUG, 1));
        SHOW(set(client, SOL_SOCKET, SO_MARK, 1));
        SHOW(set(client, SOL_SOCKET, SO_PRIORITY, 7));
        SHOW(set(client, SOL_SOCKET, SO_SNDBUFFORCE, 100000));
    });
}

static int bound(const char *text, int port, int family, int reuse_address, int reuse_port, int only_six) {
    int fd = socket(family, SOCK_STREAM, 0);
    MUST(fd >= 0);
    six = family == AF_INET6;
    if (reuse_address)
        MUST(set(fd, SOL_SOCKET, SO_REUSEADDR, 1) == 0);
    if (reuse_port)
        MUST(set(fd, SOL_SOCKET, SO_REUSEPORT, 1) == 0);
    if (only_six)
        MUST(set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1) == 0);
    set_address(text, port);
    if (bind(fd, (void *)&where, length()) == 0)
        return fd;
    printf("  bind %s: %s\n", text, error_name(errno));
    close(fd);
    return -1;
}
static int first, second, third;
static void first_any(void) { first = bound("0.0.0.0", 7001, AF_INET, 0, 0, 0); }
static void second_any(void) { second = bound("127.0.0.1", 7001, AF_INET, 1, 1, 0); }
static void first_local(void) { first = bound("127.0.0.1", 7001, AF_INET, 1, 0, 0); }
static void second_local(void) { second = bound("127.0.0.1", 7001, AF_INET, 1, 0, 0); }
static void third_other(void) { third = bound("127.0.0.2", 7001, AF_INET, 0, 0, 0); }
static void third_six(void) { third = bound("::", 7001, AF_INET6, 0, 0, 0); }
static void third_only_six(void) { third = bound("::", 7001, AF_INET6, 0, 0, 1); }
static void first_shared(void) { first = bound("127.0.0.1", 7002, AF_INET, 0, 1, 0); }
static void second_shared(void) { second = bound("127.0.0.1", 7002, AF_INET, 0, 1, 0); }
static void listen_first(void) { SHOW(listen(first, 100)); }
static void listen_second(void) { SHOW(listen(second, 100)); }
static void close_all(void) { close(first), close(second), close(third), first = second = third = -1; }
static void spread(void) {
    int counts[2] = {0, 0}, fds[64];
    six = 0;
    set_address("127.0.0.1", 7002);
    for (int i = 0; i < 64; i++) {
        MUST((fds[i] = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
        MUST(connect(fds[i], (void *)&where, length()) == 0);
    }
    fcntl(first, F_SETFL, O_NONBLOCK), fcntl(second, F_SETFL, O_NONBLOCK);
    for (int fd; (fd = accept(first, NULL, NULL)) >= 0; close(fd))
        counts[0]++;
    for (int fd; (fd = accept(second, NULL, NULL)) >= 0; close(fd))
        counts[1]++;
    printf("  %d connections, both sides: %d\n", counts[0] + counts[1], counts[0] > 0 && counts[1] > 0);
    for (int i = 0; i < 64; i++)
        close(fds[i]);
}

static void ports(void) {
    printf("-- ports\n");
    on(0, first_any), on(2, second_any), on(1, third_six), on(1, close_all);
    on(0, first_local), on(2, second_local), on(1, third_other), on(0, listen_first), on(2, listen_second), on(1, close_all);
    on(0, first_any), on(1, third_only_six), on(2, close_all);
    on(0, first_shared), on(2, second_shared), on(0, listen_first), on(2, listen_second), on(1, spread), on(1, close_all);
}

// What a server that starts anew meets: its old connections are in TIME_WAIT.
static void leave_waiting(void) {
    six = 0;
    listener = bound("127.0.0.1", 7003, AF_INET, 1, 0, 0);
    MUST(listen(listener, 5) == 0);
    make_client();
    connect_client();
    accept_one();
    close(accepted), close(client), close(listener);
}
static void bind_plainly(void) { SHOW(bound("127.0.0.1", 7003, AF_INET, 0, 0, 0) >= 0); }
static void bind_reusing(void) {
    SHOW((first = bound("127.0.0.1", 7003, AF_INET, 1, 0, 0)) >= 0);
    SHOW(listen(first, 5));
    close(first);
}

static void dual(void) {
    printf("-- both families\n");
    six = 1;
    set_address("::", 0);
    make_listener();
    six = 0;
    make_client();
    connect_client();
    accept_one();
    show_names();
    close(accepted), close(client), close(listener);
}

// A backlog that is full: the client waits.
static void full(void) {
    printf("-- full\n");
    int fds[2];
    six = 0;
    set_address("127.0.0.1", 0);
    make_listener();
    MUST(listen(listener, 0) == 0);
    set_address("127.0.0.1", port_of(listener));
    MUST((fds[0] = socket(AF_INET, SOCK_STREAM, 0)) >= 0 && connect(fds[0], (void *)&where, length()) == 0);
    MUST((client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)) >= 0);
    SHOW(connect(client, (void *)&where, length()));
    SHOW(connect(client, (void *)&where, length()));
    show_poll("trying", client);
    struct timeval soon = {0, 50000};
    MUST((fds[1] = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
    MUST(setsockopt(fds[1], SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof soon) == 0);
    SHOW(connect(fds[1], (void *)&where, length()));
    close(fds[1]);
    MUST((accepted = accept(listener, NULL, NULL)) >= 0);
    struct pollfd there = {client, POLLOUT, 0};
    MUST(poll(&there, 1, -1) == 1);
    SHOW(connect(client, (void *)&where, length()));
    SHOW(connect(client, (void *)&where, length()));
    close(accepted), close(client), close(fds[0]), close(listener);
}

static void options(void) {
    printf("-- options\n");
    make_client();
    SHOW(option(client, SOL_SOCKET, SO_TYPE)); SHOW(option(client, SOL_SOCKET, SO_PROTOCOL)); SHOW(option(client, SOL_SOCKET, SO_DOMAIN));
    SHOW(option(client, IPPROTO_TCP, TCP_MAXSEG)); SHOW(option(client, IPPROTO_TCP, TCP_KEEPIDLE));
    SHOW(set(client, IPPROTO_TCP, TCP_KEEPIDLE, 0)); SHOW(set(client, IPPROTO_TCP, TCP_KEEPIDLE, 40000)); SHOW(set(client, IPPROTO_TCP, TCP_KEEPIDLE, 77));
    SHOW(option(client, IPPROTO_TCP, TCP_KEEPIDLE));
    SHOW(set(client, IPPROTO_TCP, TCP_NODELAY, 5)); SHOW(option(client, IPPROTO_TCP, TCP_NODELAY));
    SHOW(set(client, IPPROTO_TCP, TCP_CORK, 1)); SHOW(option(client, IPPROTO_TCP, TCP_CORK));
    SHOW(set(client, SOL_SOCKET, SO_KEEPALIVE, 9)); SHOW(option(client, SOL_SOCKET, SO_KEEPALIVE));
    SHOW(set(client, SOL_SOCKET, SO_SNDBUF, 10000)); SHOW(option(client, SOL_SOCKET, SO_SNDBUF));
    SHOW(set(client, SOL_SOCKET, SO_RCVBUF, 1)); SHOW(option(client, SOL_SOCKET, SO_RCVBUF));
    SHOW(set(client, SOL_SOCKET, SO_RCVBUF, 5000)); SHOW(option(client, SOL_SOCKET, SO_RCVBUF));
    SHOW(set(client, IPPROTO_IP, IP_TTL, 0)); SHOW(set(client, IPPROTO_IP, IP_TTL, 7)); SHOW(option(client, IPPROTO_IP, IP_TTL));
    SHOW(set(client, IPPROTO_IP, IP_TTL, -1)); SHOW(option(client, IPPROTO_IP, IP_TTL));
    SHOW(set(client, IPPROTO_IP, IP_TOS, 16)); SHOW(option(client, IPPROTO_IP, IP_TOS));
    SHOW(set(client, IPPROTO_IPV6, IPV6_V6ONLY, 1)); SHOW(set(client, IPPROTO_UDP, 1, 1)); SHOW(set(client, SOL_SOCKET, 999, 1));
    SHOW(setsockopt(client, SOL_SOCKET, SO_REUSEADDR, buffer, 3)); SHOW(setsockopt(client, SOL_SOCKET, SO_REUSEADDR, NULL, 4));
    SHOW(option(client, SOL_SOCKET, 999)); SHOW(option(client, 77, 1));
    SHOW(setsockopt(client, IPPROTO_TCP, TCP_CONGESTION, "reno", 4)); SHOW(setsockopt(client, IPPROTO_TCP, TCP_CONGESTION, "none", 4));
    struct timeval time = {0, 2000000};
    SHOW(setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time)); SHOW(setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &time, 8));
    struct tcp_info info;
    socklen_t size = sizeof info;
    SHOW(getsockopt(client, IPPROTO_TCP, TCP_INFO, &info, &size)); SHOW(info.tcpi_state);
    close(client);
}
static struct timeval limit = {0, 30000};
static void limit_client(void) { SHOW(setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit)); }
static void read_limited(void) {
    SHOW(read(client, buffer, 1));
    SHOW(recv(client, buffer, 1, 0));
}
static void accept_limited(void) {
    SHOW(setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    SHOW(accept(listener, NULL, NULL));
}
static void timeouts(void) {
    printf("-- timeouts\n");
    six = 0;
    set_address("127.0.0.1", 0);
    on(0, make_listener), on(2, make_client), on(2, connect_client), on(1, accept_one);
    on(2, limit_client), on(2, read_limited), on(1, read_limited), on(1, accept_limited);
    on(2, close_client), on(1, close_accepted), on(0, close_listener);
}

static void peeks(void) {
    show_write(client, "abcdef");
    SHOW(recv(accepted, buffer, 3, MSG_PEEK));
    int there = 0;
    SHOW(ioctl(accepted, FIONREAD, &there)); SHOW(there);
    SHOW(recv(accepted, buffer, 3, MSG_TRUNC));
    SHOW(recv(accepted, buffer, 6, MSG_DONTWAIT | MSG_WAITALL));
    struct sockaddr_in name;
    socklen_t size = sizeof name;
    show_write(client, "z");
    SHOW(recvfrom(accepted, buffer, 6, 0, (void *)&name, &size)); SHOW(size);
    SHOW(sendto(client, "to", 2, 0, (void *)&where, sizeof where)); show_read(accepted);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    start_hands();
    for (six = 0; six < 2; six++) {
        int family = six;
        for (int turn = 0; turn < 4; turn++) {
            static const int who[4][3] = {{0, 0, 0}, {0, 2, 0}, {2, 0, 1}, {1, 2, 0}};
            story(who[turn][0], who[turn][1], who[turn][2]);
            six = family;
        }
        printf("-- refused\n");
        on(1, refused);
    }
    printf("-- misuse\n");
    on(1, misuse);
    unprivileged();
    ports();
    printf("-- TIME_WAIT\n");
    on(0, leave_waiting), on(2, bind_plainly), on(1, bind_reusing);
    on(1, dual);
    on(2, full);
    on(0, options);
    timeouts();
    printf("-- peeks\n");
    six = 0;
    set_address("127.0.0.1", 0);
    on(2, make_listener), on(0, make_client), on(0, connect_client), on(2, accept_one), on(2, peeks);
    return 0;
}
