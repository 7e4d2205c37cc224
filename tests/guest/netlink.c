// AF_NETLINK: what the kernel tells of the interface lo, its addresses and routes, and how such sockets behave.
// Ports are one kernel's (docs/limits.md), and with fault injection the threads move: shake=no.
// cob: compare=host net=lo kernels=1,4 shake=no
#include "test.h"
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <net/if.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

// The last of Linux 6.1; newer ones are not shown.
#define LAST_LINK_ATTRIBUTE 60

static unsigned sequence = 100;

static int opened(int protocol) {
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK, protocol);
    MUST(fd >= 0);
    return fd;
}

static void hex(const unsigned char *bytes, int len) {
    for (int at = 0; at < len; at++)
        printf("%02x", bytes[at]);
}

static int wanted(int type, int attribute) {
    // When something was made, or how often it has been used; and what is longer than it is interesting.
    if (type == RTM_NEWADDR)
        return attribute != IFA_CACHEINFO;
    if (type == RTM_NEWROUTE)
        return attribute != RTA_CACHEINFO;
    if (type == RTM_NEWLINK)
        return attribute <= LAST_LINK_ATTRIBUTE && attribute != IFLA_AF_SPEC && attribute != IFLA_PROTINFO;
    return 1;
}

static void show_attributes(int type, const struct rtattr *at, int left) {
    for (; RTA_OK(at, left); at = RTA_NEXT(at, left)) {
        int attribute = at->rta_type & NLA_TYPE_MASK;
        if (!wanted(type, attribute)) {
            if (attribute <= LAST_LINK_ATTRIBUTE)
                printf("  %d\n", attribute);
            continue;
        }
        printf("  %d: ", attribute);
        hex(RTA_DATA(at), RTA_PAYLOAD(at));
        puts("");
    }
    if (left)
        printf("  %d bytes too many\n", left);
}

static int structure_of(int type) {
    switch (type) {
    case RTM_NEWLINK: return sizeof(struct ifinfomsg);
    case RTM_NEWADDR: return sizeof(struct ifaddrmsg);
    case RTM_NEWROUTE:
    case RTM_NEWRULE: return sizeof(struct rtmsg);
    case RTM_NEWQDISC: return sizeof(struct tcmsg);
    default: return 0;
    }
}

// Reads all that waits, and tells the messages, however they come in datagrams.
static void tell(int fd) {
    char buffer[65536];
    struct sockaddr_nl from;
    socklen_t size = sizeof from;
    ssize_t got;
    while ((got = recvfrom(fd, buffer, sizeof buffer, 0, (struct sockaddr *)&from, &size)) > 0) {
        MUST(size == sizeof from && from.nl_family == AF_NETLINK && from.nl_pid == 0 && from.nl_groups == 0);
        int left = got;
        for (struct nlmsghdr *at = (void *)buffer; NLMSG_OK(at, left); at = NLMSG_NEXT(at, left)) {
            int structure = structure_of(at->nlmsg_type), payload = at->nlmsg_len - NLMSG_HDRLEN;
            printf(" type %d flags %#x %s %d bytes: ", at->nlmsg_type, at->nlmsg_flags,
                   at->nlmsg_seq == sequence ? "" : "another sequence", at->nlmsg_type == RTM_NEWLINK ? 0 : payload);
            if (at->nlmsg_type == NLMSG_ERROR || at->nlmsg_type == NLMSG_DONE) {
                int error = *(int *)NLMSG_DATA(at);
                printf("%s\n", error ? error_name(-error) : "0");
                continue;
            }
            hex(NLMSG_DATA(at), structure);
            puts("");
            show_attributes(at->nlmsg_type, (void *)((char *)NLMSG_DATA(at) + NLMSG_ALIGN(structure)), payload - structure);
        }
    }
    printf(" then %zd %s\n", got, got < 0 ? error_name(errno) : "");
}

// A request with a structure and, if `attribute` is not negative, one attribute behind it.
static void ask(int fd, const char *what, int type, int flags, const void *body, int size, int attribute, const void *value,
                int value_size) {
    struct {
        struct nlmsghdr header;
        char rest[512];
    } request = {.header = {.nlmsg_type = type, .nlmsg_flags = flags, .nlmsg_seq = ++sequence}};
    memcpy(request.rest, body, size);
    int len = NLMSG_LENGTH(size);
    if (attribute >= 0) {
        struct rtattr *at = (void *)(request.rest + NLMSG_ALIGN(size));
        at->rta_type = attribute;
        at->rta_len = RTA_LENGTH(value_size);
        memcpy(RTA_DATA(at), value, value_size);
        len = NLMSG_HDRLEN + NLMSG_ALIGN(size) + RTA_LENGTH(value_size);
    }
    request.header.nlmsg_len = len;
    ssize_t sent = send(fd, &request, len, 0);
    printf("%s: %s\n", what, sent == len ? "sent" : error_name(errno));
    tell(fd);
}

#define GET NLM_F_REQUEST
#define LIST (NLM_F_REQUEST | NLM_F_DUMP)
#define ASK(fd, type, flags, structure) ask(fd, #type " " #structure, type, flags, &(structure), sizeof(structure), -1, NULL, 0)
#define WITH(fd, type, flags, structure, attribute, value, size)                                                             \
    ask(fd, #type " " #structure " with " #attribute " " #value, type, flags, &(structure), sizeof(structure), attribute, value, size)

static void links(int fd) {
    ASK(fd, RTM_GETLINK, LIST, ((struct ifinfomsg){0}));
    ASK(fd, RTM_GETLINK, LIST, ((struct ifinfomsg){.ifi_family = AF_INET6}));
    ASK(fd, RTM_GETLINK, LIST, ((struct ifinfomsg){.ifi_family = AF_BRIDGE}));
    ASK(fd, RTM_GETLINK, LIST, ((struct rtgenmsg){0}));
    ASK(fd, RTM_GETLINK, LIST, ((struct ifinfomsg){.ifi_index = 1}));
    WITH(fd, RTM_GETLINK, LIST, ((struct ifinfomsg){0}), IFLA_EXT_MASK, &(unsigned){1}, 4);
    WITH(fd, RTM_GETLINK, LIST, ((struct ifinfomsg){0}), IFLA_MASTER, &(unsigned){5}, 4);
    WITH(fd, RTM_GETLINK, LIST, ((struct ifinfomsg){0}), IFLA_MTU, &(unsigned){5}, 4);
    ASK(fd, RTM_GETLINK, GET, ((struct ifinfomsg){0}));
    ASK(fd, RTM_GETLINK, GET, ((struct ifinfomsg){.ifi_index = 1}));
    ASK(fd, RTM_GETLINK, GET | NLM_F_ACK, ((struct ifinfomsg){.ifi_index = 1}));
    ASK(fd, RTM_GETLINK, GET, ((struct ifinfomsg){.ifi_index = 9}));
    WITH(fd, RTM_GETLINK, GET, ((struct ifinfomsg){0}), IFLA_IFNAME, "lo", 3);
    WITH(fd, RTM_GETLINK, GET, ((struct ifinfomsg){0}), IFLA_IFNAME, "eth7", 5);
    WITH(fd, RTM_GETLINK, GET, ((struct ifinfomsg){0}), IFLA_ALT_IFNAME, "lo", 3);
}

static void addresses(int fd) {
    ASK(fd, RTM_GETADDR, LIST, ((struct ifaddrmsg){0}));
    ASK(fd, RTM_GETADDR, LIST, ((struct ifaddrmsg){.ifa_family = AF_INET}));
    ASK(fd, RTM_GETADDR, LIST, ((struct ifaddrmsg){.ifa_family = AF_INET6}));
    ASK(fd, RTM_GETADDR, LIST, ((struct ifaddrmsg){.ifa_index = 1}));
    ASK(fd, RTM_GETADDR, LIST, ((struct ifaddrmsg){.ifa_family = AF_INET, .ifa_index = 7}));
    ASK(fd, RTM_GETADDR, LIST, ((struct ifaddrmsg){.ifa_family = AF_INET, .ifa_prefixlen = 7}));
    WITH(fd, RTM_GETADDR, GET, ((struct ifaddrmsg){.ifa_family = AF_INET6}), IFA_ADDRESS, &in6addr_loopback, 16);
    WITH(fd, RTM_GETADDR, GET, ((struct ifaddrmsg){.ifa_family = AF_INET6}), IFA_ADDRESS, &in6addr_any, 16);
}

static void routes(int fd) {
    ASK(fd, RTM_GETROUTE, LIST, ((struct rtmsg){0}));
    ASK(fd, RTM_GETROUTE, LIST, ((struct rtmsg){.rtm_family = AF_INET}));
    ASK(fd, RTM_GETROUTE, LIST, ((struct rtmsg){.rtm_family = AF_INET6}));
    ASK(fd, RTM_GETROUTE, LIST, ((struct rtmsg){.rtm_family = AF_INET, .rtm_table = RT_TABLE_LOCAL}));
    ASK(fd, RTM_GETROUTE, LIST, ((struct rtmsg){.rtm_family = AF_INET, .rtm_type = RTN_BROADCAST}));
    ASK(fd, RTM_GETROUTE, LIST, ((struct rtmsg){.rtm_family = AF_INET, .rtm_flags = RTM_F_CLONED}));
    ASK(fd, RTM_GETROUTE, LIST, ((struct rtmsg){.rtm_family = AF_INET, .rtm_dst_len = 8}));
    WITH(fd, RTM_GETROUTE, LIST, ((struct rtmsg){.rtm_family = AF_INET}), RTA_TABLE, &(unsigned){RT_TABLE_MAIN}, 4);
    WITH(fd, RTM_GETROUTE, LIST, ((struct rtmsg){.rtm_family = AF_INET}), RTA_TABLE, &(unsigned){RT_TABLE_LOCAL}, 4);
    WITH(fd, RTM_GETROUTE, LIST, ((struct rtmsg){.rtm_family = AF_INET}), RTA_TABLE, &(unsigned){77}, 4);
    WITH(fd, RTM_GETROUTE, LIST, ((struct rtmsg){.rtm_family = AF_INET6}), RTA_TABLE, &(unsigned){77}, 4);
    WITH(fd, RTM_GETROUTE, LIST, ((struct rtmsg){.rtm_family = AF_INET}), RTA_OIF, &(unsigned){1}, 4);
    WITH(fd, RTM_GETROUTE, LIST, ((struct rtmsg){.rtm_family = AF_INET}), RTA_OIF, &(unsigned){4}, 4);
    ASK(fd, RTM_GETRULE, LIST, ((struct rtmsg){.rtm_family = AF_INET}));
    ASK(fd, RTM_GETRULE, LIST, ((struct rtmsg){.rtm_family = AF_INET6}));
    ASK(fd, RTM_GETNEIGH, LIST, ((struct ndmsg){0}));
    ASK(fd, RTM_GETQDISC, LIST, ((struct tcmsg){0}));
}

static void lookups(int fd) {
    static const char *const to[] = {"127.0.0.1", "127.1.2.3", "127.255.255.255", "10.0.0.1", "255.255.255.255"};
    for (size_t at = 0; at < sizeof to / sizeof *to; at++) {
        struct in_addr address;
        inet_pton(AF_INET, to[at], &address);
        puts(to[at]);
        WITH(fd, RTM_GETROUTE, GET, ((struct rtmsg){.rtm_family = AF_INET, .rtm_dst_len = 32}), RTA_DST, &address, 4);
    }
    struct in6_addr elsewhere;
    inet_pton(AF_INET6, "2001:db8::1", &elsewhere);
    WITH(fd, RTM_GETROUTE, GET, ((struct rtmsg){.rtm_family = AF_INET6, .rtm_dst_len = 128}), RTA_DST, &in6addr_loopback, 16);
    WITH(fd, RTM_GETROUTE, GET, ((struct rtmsg){.rtm_family = AF_INET6, .rtm_dst_len = 128}), RTA_DST, &elsewhere, 16);
}

// Without rights: nothing changes.
static void changes(int fd) {
    ASK(fd, RTM_NEWADDR, GET | NLM_F_ACK, ((struct ifaddrmsg){.ifa_family = AF_INET, .ifa_index = 1}));
    ASK(fd, RTM_DELLINK, GET, ((struct ifinfomsg){.ifi_index = 1}));
    ASK(fd, RTM_SETLINK, GET, ((struct ifinfomsg){.ifi_index = 1}));
    ASK(fd, RTM_NEWROUTE, GET, ((struct rtmsg){.rtm_family = AF_INET}));
    SHOW(setsockopt(fd, SOL_NETLINK, NETLINK_CAP_ACK, &(int){1}, sizeof(int)));
    ASK(fd, RTM_NEWROUTE, GET, ((struct rtmsg){.rtm_family = AF_INET}));
    SHOW(setsockopt(fd, SOL_NETLINK, NETLINK_CAP_ACK, &(int){0}, sizeof(int)));
    ask(fd, "not known", 4000, GET, "abcd", 4, -1, NULL, 0);
    ask(fd, "no request", RTM_GETLINK, NLM_F_ACK, "abcd", 4, -1, NULL, 0);
    ask(fd, "no request, no answer", RTM_GETLINK, 0, "abcd", 4, -1, NULL, 0);
    ask(fd, "nothing", NLMSG_NOOP, GET | NLM_F_ACK, "abcd", 4, -1, NULL, 0);
    ask(fd, "no body", RTM_GETLINK, GET | NLM_F_ACK, "", 0, -1, NULL, 0);
    ask(fd, "short body", RTM_GETLINK, GET, "\0", 4, -1, NULL, 0);
    struct sockaddr_nl other = {.nl_family = AF_NETLINK, .nl_pid = 77};
    SHOW(sendto(fd, "0123456789abcdef", 16, 0, (void *)&other, sizeof other));
    SHOW(connect(fd, (void *)&other, sizeof other));
    other = (struct sockaddr_nl){.nl_family = AF_NETLINK, .nl_groups = 1};
    SHOW(sendto(fd, "0123456789abcdef", 16, 0, (void *)&other, sizeof other));
}

static void show_name(int fd) {
    struct sockaddr_nl name = {0};
    socklen_t size = sizeof name;
    SHOW(getsockname(fd, (void *)&name, &size));
    const char *port = name.nl_pid == (unsigned)getpid() ? "own" : (int)name.nl_pid < 0 ? "negative" : "other";
    printf("%u bytes, family %d, port %s, groups %x\n", size, name.nl_family, name.nl_pid ? port : "none", name.nl_groups);
    size = sizeof name;
    SHOW(getpeername(fd, (void *)&name, &size));
    printf("%u bytes, family %d, port %u, groups %x\n", size, name.nl_family, name.nl_pid, name.nl_groups);
}

static void names(void) {
    int one = opened(NETLINK_ROUTE), two = opened(NETLINK_ROUTE), three = opened(NETLINK_SOCK_DIAG);
    struct sockaddr_nl name = {.nl_family = AF_NETLINK};
    show_name(one);
    SHOW(bind(one, (void *)&name, sizeof name - 1));
    name.nl_family = AF_INET;
    SHOW(bind(one, (void *)&name, sizeof name));
    name.nl_family = AF_NETLINK;
    name.nl_groups = 5;
    SHOW(bind(one, (void *)&name, sizeof name));
    show_name(one);
    // It has a port: another one can't be given, and nobody else's process id is asked for here.
    name.nl_pid = getpid();
    SHOW(bind(two, (void *)&name, sizeof name));
    SHOW(bind(three, (void *)&name, sizeof name));
    name.nl_pid = getpid() + 1;
    SHOW(bind(one, (void *)&name, sizeof name));
    name.nl_pid = getpid();
    name.nl_groups = 0;
    SHOW(bind(one, (void *)&name, sizeof name));
    show_name(one);
    name.nl_pid = 0;
    SHOW(bind(two, (void *)&name, sizeof name));
    show_name(two);
    close(one);
    one = opened(NETLINK_ROUTE);
    SHOW(connect(one, (void *)&name, sizeof name));
    show_name(one);
    close(one), close(two), close(three);
}

static void option(int fd, const char *what, int level, int name) {
    int value = 77;
    socklen_t size = sizeof value;
    int result = getsockopt(fd, level, name, &value, &size);
    printf("%s: %s %d %u\n", what, result ? error_name(errno) : "", result ? 0 : value, result ? 0 : size);
}

static void options(int fd) {
#define OPTION(level, name) option(fd, #name, level, name)
    OPTION(SOL_SOCKET, SO_TYPE), OPTION(SOL_SOCKET, SO_DOMAIN), OPTION(SOL_SOCKET, SO_PROTOCOL), OPTION(SOL_SOCKET, SO_ERROR);
    OPTION(SOL_SOCKET, SO_SNDBUF), OPTION(SOL_SOCKET, SO_RCVBUF), OPTION(SOL_SOCKET, SO_ACCEPTCONN);
    OPTION(SOL_NETLINK, NETLINK_EXT_ACK), OPTION(SOL_NETLINK, NETLINK_GET_STRICT_CHK), OPTION(SOL_NETLINK, NETLINK_CAP_ACK);
    OPTION(SOL_NETLINK, NETLINK_NO_ENOBUFS), OPTION(SOL_NETLINK, 4711), OPTION(6, 1);
    static const int on[] = {NETLINK_EXT_ACK, NETLINK_GET_STRICT_CHK, NETLINK_CAP_ACK, NETLINK_NO_ENOBUFS, NETLINK_BROADCAST_ERROR};
    for (size_t at = 0; at < sizeof on / sizeof *on; at++) {
        SHOW(setsockopt(fd, SOL_NETLINK, on[at], &(int){5}, sizeof(int)));
        option(fd, "now", SOL_NETLINK, on[at]);
        SHOW(setsockopt(fd, SOL_NETLINK, on[at], NULL, 0));
        option(fd, "now", SOL_NETLINK, on[at]);
    }
    SHOW(setsockopt(fd, SOL_NETLINK, NETLINK_EXT_ACK, (void *)8, sizeof(int)));
    SHOW(setsockopt(fd, SOL_NETLINK, 4711, &(int){1}, sizeof(int)));
    static const int sizes[] = {0, 1, 5000, 32768, 100000, 1 << 20, -1};
    for (size_t at = 0; at < 5; at++) {
        SHOW(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &sizes[at], sizeof(int)));
        OPTION(SOL_SOCKET, SO_SNDBUF);
        SHOW(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &sizes[at], sizeof(int)));
        OPTION(SOL_SOCKET, SO_RCVBUF);
    }
    struct timeval got = {7, 7};
    socklen_t size = sizeof got;
    SHOW(getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &got, &size));
    printf("%u: %ld %ld\n", size, got.tv_sec, got.tv_usec);
    SHOW(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){0, 1000000}, sizeof(struct timeval)));
    SHOW(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){0, 40000}, sizeof(struct timeval)));
    SHOW(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &(struct timeval){3, 4000}, sizeof(struct timeval)));
    SHOW(getsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &got, &size));
    printf("%u: %ld %ld\n", size, got.tv_sec, got.tv_usec);
    // On several kernels once from another one than the socket's.
    for (int at = 0; at < 2; at++) {
        move_to(at == 0 ? cpu_count() - 1 : 0);
        SHOW(recv(fd, &(char){0}, 1, 0));
    }
    SHOW(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){0}, sizeof(struct timeval)));
    static const int groups[] = {0, 1, RTNLGRP_NEIGH, RTNLGRP_MAX, 1000, -1};
    for (size_t at = 0; at < sizeof groups / sizeof *groups; at++)
        SHOW(setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &groups[at], sizeof(int)));
    show_name(fd);
    SHOW(setsockopt(fd, SOL_NETLINK, NETLINK_DROP_MEMBERSHIP, &groups[1], sizeof(int)));
    show_name(fd);
}

static void calls(int fd) {
    SHOW(socket(AF_NETLINK, SOCK_STREAM, 0));
    SHOW(socket(AF_NETLINK, SOCK_RAW, 31));
    SHOW(socket(AF_NETLINK, SOCK_RAW, 4711));
    SHOW(socket(AF_NETLINK, SOCK_RAW, -1));
    SHOW(socketpair(AF_NETLINK, SOCK_RAW, 0, (int[2]){0}));
    SHOW(socketpair(AF_NETLINK, SOCK_RAW, 31, (int[2]){0}));
    SHOW(listen(fd, 5));
    SHOW(accept(fd, NULL, NULL));
    SHOW(shutdown(fd, SHUT_RD));
    SHOW(send(fd, "", 0, 0));
    SHOW(send(fd, "x", 1, MSG_OOB));
    SHOW(recv(fd, &(char){0}, 1, MSG_OOB));
    SHOW(recv(fd, &(char){0}, 1, 0));
    SHOW(write(fd, "junk", 4));
    SHOW(lseek(fd, 0, SEEK_SET));
    struct pollfd waits = {.fd = fd, .events = POLLIN | POLLOUT};
    SHOW(poll(&waits, 1, 0));
    printf("%#x\n", waits.revents);
    struct {
        struct nlmsghdr header;
        struct ifaddrmsg body;
    } request = {{sizeof request, RTM_GETADDR, LIST, 5, 0}, {.ifa_family = AF_INET}};
    SHOW(write(fd, &request, sizeof request));
    SHOW(poll(&waits, 1, 0));
    printf("%#x\n", waits.revents);
    char buffer[4096];
    SHOW(recv(fd, NULL, 0, MSG_PEEK | MSG_TRUNC));
    struct iovec piece = {buffer, 20};
    struct sockaddr_nl from;
    struct msghdr message = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &piece, .msg_iovlen = 1};
    SHOW(recvmsg(fd, &message, MSG_PEEK));
    printf("%#x %u\n", message.msg_flags, message.msg_namelen);
    SHOW(recvmsg(fd, &message, MSG_TRUNC));
    SHOW(read(fd, buffer, sizeof buffer));
    SHOW(read(fd, buffer, sizeof buffer));
}

static void diagnosis(void) {
    int fd = opened(NETLINK_SOCK_DIAG);
    char body[64] = {0};
    static const unsigned char families[] = {AF_INET, AF_INET6, 45, 200};
    for (size_t at = 0; at < sizeof families; at++) {
        body[0] = families[at], body[1] = IPPROTO_UDP, memset(body + 4, 0xff, 4);
        printf("family %d\n", families[at]);
        ask(fd, "sockets", SOCK_DIAG_BY_FAMILY, LIST, body, 56, -1, NULL, 0);
    }
    ask(fd, "short", SOCK_DIAG_BY_FAMILY, LIST, body, 1, -1, NULL, 0);
    ask(fd, "unknown", 99, LIST, body, 56, -1, NULL, 0);
    close(fd);
}

static void libraries(void) {
    struct ifaddrs *all;
    MUST(getifaddrs(&all) == 0);
    for (struct ifaddrs *at = all; at; at = at->ifa_next) {
        char text[INET6_ADDRSTRLEN] = "", mask[INET6_ADDRSTRLEN] = "";
        int family = at->ifa_addr->sa_family;
        if (family == AF_INET) {
            inet_ntop(family, &((struct sockaddr_in *)at->ifa_addr)->sin_addr, text, sizeof text);
            inet_ntop(family, &((struct sockaddr_in *)at->ifa_netmask)->sin_addr, mask, sizeof mask);
        } else if (family == AF_INET6) {
            inet_ntop(family, &((struct sockaddr_in6 *)at->ifa_addr)->sin6_addr, text, sizeof text);
            inet_ntop(family, &((struct sockaddr_in6 *)at->ifa_netmask)->sin6_addr, mask, sizeof mask);
        }
        printf("%s family %d flags %#x %s %s\n", at->ifa_name, family, at->ifa_flags, text, mask);
    }
    freeifaddrs(all);
    struct addrinfo *found, hints = {.ai_flags = AI_ADDRCONFIG, .ai_socktype = SOCK_STREAM};
    SHOW(getaddrinfo("localhost", "80", &hints, &found));
    for (struct addrinfo *at = found; at; at = at->ai_next)
        printf("family %d, %u bytes\n", at->ai_family, at->ai_addrlen);
    printf("%u\n", if_nametoindex("lo"));
}

int main(void) {
    int fd = opened(NETLINK_ROUTE);
    calls(fd);
    names();
    for (int strict = 0; strict <= 1; strict++) {
        printf("strict: %d\n", strict);
        SHOW(setsockopt(fd, SOL_NETLINK, NETLINK_GET_STRICT_CHK, &strict, sizeof strict));
        links(fd);
        addresses(fd);
        routes(fd);
    }
    lookups(fd);
    diagnosis();
    libraries();
    MUST(setresuid(1000, 1000, 1000) == 0);
    changes(fd);
    lookups(fd);
    options(fd);
    return 0;
}
