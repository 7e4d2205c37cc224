// Bad input to setsockopt and getsockopt: every option of every level that sockets of each kind have, with wrong lengths and wrong values, by root and by
// others, from a kernel that may not be the socket's. What can be set is read back.
// cob: link=static flags=-pthread kernels=1,4 compare=host net=lo timeout=240
#include "hands.h"
#include "internet.h"
#include <limits.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <sys/un.h>

enum { UNIX_STREAM, UNIX_DATAGRAM, UNIX_CONNECTED, TCP_4, TCP_4_CONNECTED, TCP_4_LISTENS, UDP_4, UDP_4_CONNECTED, TCP_6, TCP_6_CONNECTED, UDP_6, KINDS };
static const char *const kinds[] = {"unix stream", "unix datagram", "unix connected", "tcp",   "tcp connected", "tcp listener",
                                    "udp",         "udp connected", "tcp6",           "tcp6 connected", "udp6"};
static const struct {
    const char *name;
    int level, most;
} levels[] = {{"socket", SOL_SOCKET, 90}, {"ip", IPPROTO_IP, 70}, {"tcp", IPPROTO_TCP, 50}, {"udp", IPPROTO_UDP, 12}, {"udp'", IPPROTO_UDP, 106},
              {"ipv6", IPPROTO_IPV6, 82}, {"icmp", IPPROTO_ICMP, 2},     {"raw", 255, 2},           {"icmpv6", 58, 2},          {"none", 999, 2}};

// What is not compared: options that give a file, a time, an address or a structure, those for raw sockets, netfilter, multicast groups and routes, and
// what Cob does not have (docs/limits.md) or only the newest Linux has.
static int skipped(int level, int name) {
    static const struct {
        int level, from, to;
    } list[] = {
        {SOL_SOCKET, 17, 17}, {SOL_SOCKET, 26, 27}, {SOL_SOCKET, 31, 31}, {SOL_SOCKET, 37, 37}, {SOL_SOCKET, 41, 41}, {SOL_SOCKET, 44, 44},
        {SOL_SOCKET, 47, 47}, {SOL_SOCKET, 50, 57}, {SOL_SOCKET, 59, 62}, {SOL_SOCKET, 65, 65}, {SOL_SOCKET, 68, 75}, {SOL_SOCKET, 77, 90},
        {IPPROTO_IP, 4, 4},   {IPPROTO_IP, 9, 9}, {IPPROTO_IP, 14, 14},   {IPPROTO_IP, 16, 17}, {IPPROTO_IP, 32, 32}, {IPPROTO_IP, 35, 52},
        {IPPROTO_IP, 64, 67}, {IPPROTO_TCP, 14, 14}, {IPPROTO_TCP, 19, 24}, {IPPROTO_TCP, 26, 26}, {IPPROTO_TCP, 28, 35}, {IPPROTO_TCP, 38, 42},
        {IPPROTO_TCP, 44, 50}, {IPPROTO_UDP, 1, 1}, {IPPROTO_UDP, 100, 100}, {IPPROTO_UDP, 103, 103}, {IPPROTO_IPV6, 1, 8}, {IPPROTO_IPV6, 17, 17},
        {IPPROTO_IPV6, 20, 21}, {IPPROTO_IPV6, 27, 28}, {IPPROTO_IPV6, 32, 32}, {IPPROTO_IPV6, 34, 35}, {IPPROTO_IPV6, 42, 48}, {IPPROTO_IPV6, 50, 50},
        {IPPROTO_IPV6, 54, 55}, {IPPROTO_IPV6, 57, 57}, {IPPROTO_IPV6, 59, 59}, {IPPROTO_IPV6, 61, 61}, {IPPROTO_IPV6, 64, 65}, {IPPROTO_IPV6, 68, 69},
        {IPPROTO_IPV6, 72, 72}, {IPPROTO_IPV6, 76, 76}, {IPPROTO_IPV6, 79, 82},
    };
    for (unsigned i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i].level == level && list[i].from <= name && name <= list[i].to)
            return 1;
    return 0;
}

static int fd, peer, listener, kind, level, name, user;
static void make(void) {
    static const int families[] = {AF_UNIX, AF_UNIX, AF_UNIX, AF_INET, AF_INET, AF_INET, AF_INET, AF_INET, AF_INET6, AF_INET6, AF_INET6};
    int family = families[kind], type = kind == UNIX_DATAGRAM || kind == UDP_4 || kind == UDP_4_CONNECTED || kind == UDP_6 ? SOCK_DGRAM : SOCK_STREAM;
    peer = listener = -1;
    if (kind == UNIX_CONNECTED) {
        int two[2];
        MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, two) == 0);
        fd = two[0], peer = two[1];
        return;
    }
    MUST((fd = socket(family, type, 0)) >= 0);
    six = family == AF_INET6;
    set_address(family == AF_UNIX ? "127.0.0.1" : local(), 0);
    if (kind == TCP_4_LISTENS)
        MUST(bind(fd, (void *)&where, length()) == 0 && listen(fd, 1) == 0);
    if (kind != TCP_4_CONNECTED && kind != TCP_6_CONNECTED && kind != UDP_4_CONNECTED)
        return;
    MUST((listener = socket(family, type, 0)) >= 0 && bind(listener, (void *)&where, length()) == 0);
    MUST(type == SOCK_DGRAM || listen(listener, 1) == 0);
    set_address(local(), port_of(listener));
    MUST(connect(fd, (void *)&where, length()) == 0);
    MUST(type == SOCK_DGRAM || (peer = accept(listener, NULL, NULL)) >= 0);
}
static void end(void) { close(fd), close(peer), close(listener); }

// An answer in short: an errno, or the length and the first word.
static char line[4000];
static int all_missing;
static void add(const char *format, ...) __attribute__((format(printf, 1, 2)));
#include <stdarg.h>
static void add(const char *format, ...) {
    va_list list;
    va_start(list, format);
    size_t used = strlen(line);
    vsnprintf(line + used, sizeof line - used, format, list);
    va_end(list);
}
static void error(void) {
    all_missing &= errno == ENOPROTOOPT || errno == EOPNOTSUPP;
    add(" %s", error_name(errno));
}
// Sizes of buffers, the usual algorithm, times and numbers differ from machine to machine.
static int of_machine(void) {
    static const int list[][2] = {{SOL_SOCKET, SO_SNDBUF}, {SOL_SOCKET, SO_RCVBUF}, {SOL_SOCKET, SO_SNDBUFFORCE}, {SOL_SOCKET, SO_RCVBUFFORCE},
                                  {SOL_SOCKET, SO_RCVLOWAT}, {SOL_SOCKET, SO_PEERNAME}, {IPPROTO_TCP, TCP_INFO}, {IPPROTO_TCP, TCP_CONGESTION},
                                  {IPPROTO_TCP, TCP_MAXSEG}, {IPPROTO_TCP, TCP_WINDOW_CLAMP}, {SOL_SOCKET, SO_INCOMING_CPU}};
    for (unsigned i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i][0] == level && list[i][1] == name)
            return 1;
    return 0;
}
static void get(socklen_t size) {
    unsigned char value[512];
    memset(value, 0xaa, sizeof value);
    if (getsockopt(fd, level, name, value, &size) < 0) {
        error();
        return;
    }
    all_missing = 0;
    int word = 0;
    memcpy(&word, value, sizeof word);
    if (of_machine()) {
        add(" ?");
        return;
    }
    add(" %u:", size);
    if (size == 0)
        add("-");
    else if (size < 4)
        add("%d", value[0]);
    else
        add("%d", word);
}
static void set(const void *value, socklen_t size) {
    if (setsockopt(fd, level, name, value, size) < 0)
        error();
    else
        all_missing = 0, add(" ok");
}

static void one_option(void) {
    static const int values[] = {-1, 0, 1, 2, 3, 5, 6, 7, 64, 88, 127, 128, 255, 256, 32767, 65535, 65536, 1000000, INT_MAX, INT_MIN};
    static const socklen_t sizes[] = {0, 1, 2, 3, 8, 16, 40, 300};
    static int words[100];
    // Nothing that waits for packets is removed or made.
    line[0] = 0, all_missing = 1;
    add("%s %s %d%s: get", kinds[kind], levels[user >> 8].name, name, user & 1 ? " as user" : "");
    get(4);
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
        get(sizes[i]);
    get((socklen_t)-1);
    socklen_t four = 4;
    errno = 0, add(" wild"), (getsockopt(fd, level, name, (void *)8, &four) < 0 ? error() : add(" ok"));
    errno = 0, add(" nowhere"), (getsockopt(fd, level, name, &four, (void *)8) < 0 ? error() : add(" ok"));
    add("; set");
    for (unsigned i = 0; i < sizeof values / sizeof *values; i++) {
        set(&values[i], 4);
        if (i < 4 || i == 14)
            get(4);
    }
    add("; sized");
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        words[0] = 1;
        set(words, sizes[i]);
    }
    get(4);
    set(&values[2], (socklen_t)-1);
    set((void *)8, 4), set(NULL, 4), set(NULL, 0);
    if (!all_missing)
        printf("%s\n", line);
    else if (name < 3)
        printf("%s %s %d%s: not there\n", kinds[kind], levels[user >> 8].name, name, user & 1 ? " as user" : "");
}

static void run(void) {
    for (kind = 0; kind < KINDS; kind++)
        for (unsigned i = 0; i < sizeof levels / sizeof *levels; i++)
            for (name = i == 4 ? 98 : 0; name <= levels[i].most; name++) {
                level = levels[i].level;
                user = (int)i << 8 | (user & 1);
                if (skipped(level, name))
                    continue;
                int maker = (kind + name) % HANDS, user_hand = (name / 3) % HANDS;
                on(maker, make), on(user_hand, one_option), end();
            }
}

int main(void) {
    IN_CHILD("as user", {
        MUST(setuid(12345) == 0);
        user = 1;
        start_hands();
        run();
    });
    user = 0;
    start_hands();
    run();
    return 0;
}
