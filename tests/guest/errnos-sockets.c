// Every call of sockets on sockets of every kind in every state, with wrong addresses, wrong lengths and wrong flags: the errors of man 2 bind, connect,
// listen, accept, send, recv, shutdown, getsockname and their kin, as Linux orders them. The caller may be on another kernel than the socket.
// cob: link=static flags=-pthread kernels=1,4 compare=host net=lo timeout=600
#include "hands.h"
#include "internet.h"
#include <stdarg.h>
#include <stddef.h>
#include <sys/un.h>

struct way {
    const char *name;
    int family, type;
};
static const struct way ways[] = {
    {"unix stream", AF_UNIX, SOCK_STREAM}, {"unix packets", AF_UNIX, SOCK_SEQPACKET}, {"unix datagrams", AF_UNIX, SOCK_DGRAM}, {"tcp", AF_INET, SOCK_STREAM},
    {"udp", AF_INET, SOCK_DGRAM},          {"tcp6", AF_INET6, SOCK_STREAM},           {"udp6", AF_INET6, SOCK_DGRAM},
};
enum state { FRESH, BOUND, LISTENS, CONNECTED, PEER_SHUT, PEER_GONE, RESET, SHUT_READ, SHUT_WRITE, SHUT_BOTH, REFUSED, HAS_DATA, PAIRED, TO_LISTENER, STATES };
static const char *const states[] = {"fresh",    "bound",     "listens",  "connected", "peer shut", "peer gone",       "reset",
                                     "shut for reading", "shut for writing", "shut", "refused",   "has data", "pair", "waits to be accepted"};

static const struct way *way;
static enum state state;
static int fd, peer, listener;
static char line[60000];
static void add(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void add(const char *format, ...) {
    va_list list;
    va_start(list, format);
    size_t used = strlen(line);
    vsnprintf(line + used, sizeof line - used, format, list);
    va_end(list);
}

static int is_stream(void) { return way->type != SOCK_DGRAM; }
static socklen_t name_of(int of, struct sockaddr_storage *name) {
    socklen_t size = sizeof *name;
    memset(name, 0, sizeof *name);
    MUST(getsockname(of, (void *)name, &size) == 0);
    return size;
}
static void bind_one(int one) {
    sa_family_t family = AF_UNIX;
    six = way->family == AF_INET6;
    set_address(local(), 0);
    if (way->family == AF_UNIX)
        MUST(bind(one, (void *)&family, sizeof family) == 0);
    else
        MUST(bind(one, (void *)&where, length()) == 0);
}
static void open_one(int *one) { MUST((*one = socket(way->family, way->type | SOCK_NONBLOCK, 0)) >= 0); }
static void wait_for(int one, short events) {
    struct pollfd waits = {one, events, 0};
    MUST(poll(&waits, 1, 10000) == 1);
}
static void connect_to(int one, int to) {
    struct sockaddr_storage name;
    socklen_t size = name_of(to, &name);
    MUST(connect(one, (void *)&name, size) == 0 || errno == EINPROGRESS);
    if (is_stream())
        wait_for(one, POLLOUT);
    MUST(connect(one, (void *)&name, size) == 0 || errno == EISCONN);
}

// Whether there is such a state.
static int make(void) {
    int two[2];
    fd = peer = listener = -1;
    if (state == PAIRED && way->family != AF_UNIX)
        return 0;
    if (!is_stream() && (state == LISTENS || state == PEER_SHUT || state == RESET || state == TO_LISTENER))
        return 0;
    if (state == REFUSED && (way->family == AF_UNIX || way->type == SOCK_SEQPACKET))
        return 0;
    if (state == PAIRED) {
        MUST(socketpair(way->family, way->type | SOCK_NONBLOCK, 0, two) == 0);
        fd = two[0], peer = two[1];
        return 1;
    }
    open_one(&fd);
    if (state == FRESH)
        return 1;
    if (state == BOUND || state == LISTENS) {
        bind_one(fd);
        MUST(state == BOUND || listen(fd, 2) == 0);
        return 1;
    }
    open_one(&listener), bind_one(listener);
    if (state == REFUSED) {
        struct sockaddr_storage name;
        socklen_t size = name_of(listener, &name);
        close(listener), listener = -1;
        MUST(connect(fd, (void *)&name, size) == 0 || errno == EINPROGRESS);
        // Linux tells only of so many in a second (icmp_ratelimit).
        for (struct pollfd waits = {fd, POLLERR, 0}; !waits.revents; poll(&waits, 1, 1500))
            MUST(is_stream() || send(fd, "x", 1, 0) == 1);
        return 1;
    }
    if (is_stream())
        MUST(listen(listener, 2) == 0);
    else
        bind_one(fd);
    connect_to(fd, listener);
    if (state == TO_LISTENER)
        return 1;
    if (is_stream()) {
        wait_for(listener, POLLIN);
        MUST((peer = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0);
    } else {
        // A datagram socket's other side knows it, too.
        peer = listener, listener = -1;
        connect_to(peer, fd);
    }
    if (state == PEER_SHUT) {
        MUST(shutdown(peer, SHUT_WR) == 0);
        wait_for(fd, POLLRDHUP | POLLIN);
    }
    if (state == RESET) {
        MUST(send(fd, "x", 1, 0) == 1);
        wait_for(peer, POLLIN);
    }
    if (state == PEER_GONE || state == RESET) {
        close(peer), peer = -1;
        if (is_stream())
            wait_for(fd, POLLIN);
    }
    if (state == SHUT_READ || state == SHUT_WRITE || state == SHUT_BOTH)
        MUST(shutdown(fd, state == SHUT_READ ? SHUT_RD : state == SHUT_WRITE ? SHUT_WR : SHUT_RDWR) == 0);
    if (state == HAS_DATA) {
        MUST(send(peer, "some", 4, 0) == 4);
        wait_for(fd, POLLIN);
    }
    return 1;
}
static void end(void) { close(fd), close(peer), close(listener); }

// -- addresses ---------------------------------------------------------------------------------------------------------

enum { ANY, WILDCARD, ELSEWHERE, MULTICAST, BROADCAST, OTHER_FAMILY, STRANGE_FAMILY, UNSPECIFIED, SHORT, EMPTY, ONE_BYTE, FAMILY_ONLY, LONG, TOO_LONG, NEGATIVE, WILD, MISSING_NAME,
       LISTENERS, OWN, NOBODYS, ADDRESSES };
static const char *const addresses[] = {"any",     "wildcard", "elsewhere", "multicast", "broadcast", "other family", "strange family", "unspecified", "short", "empty", "one byte", "family only",
                                        "long", "too long", "negative", "wild", "missing", "listener's", "own", "nobody's"};
static struct sockaddr_storage place;
static void *at;
static socklen_t size;
static int unix_number;
static void set_place(int which) {
    static const char *const fours[] = {"127.0.0.1", "0.0.0.0", "8.8.8.8", "224.0.0.1", "255.255.255.255"};
    static const char *const sixes[] = {"::1", "::", "2001:db8::1", "ff0e::1", "::ffff:10.0.0.1"};
    int of_unix = way->family == AF_UNIX, port = which >= WILDCARD && which <= BROADCAST ? 9 : 0;
    memset(&place, 0, sizeof place);
    at = &place;
    six = way->family == AF_INET6;
    if (of_unix) {
        struct sockaddr_un *name = (void *)&place;
        name->sun_family = AF_UNIX;
        // An abstract name of its own.
        size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + sprintf(name->sun_path + 1, "n%d", unix_number++));
    } else {
        set_address(which <= BROADCAST ? (six ? sixes : fours)[which] : local(), port);
        memcpy(&place, &where, sizeof place);
        size = length();
    }
    switch (which) {
    case OTHER_FAMILY: place.ss_family = six || of_unix ? AF_INET : AF_INET6; break;
    case STRANGE_FAMILY: place.ss_family = 4711; break;
    case UNSPECIFIED: place.ss_family = AF_UNSPEC; break;
    case SHORT: size = of_unix ? 3 : six ? 23 : 15; break;
    case EMPTY: size = 0; break;
    case ONE_BYTE: size = 1; break;
    case FAMILY_ONLY: size = 2; break;
    case LONG: size = of_unix ? 110 : 100; break;
    case TOO_LONG: size = 129; break;
    case NEGATIVE: size = (socklen_t)-1; break;
    case WILD: at = (void *)8; break;
    case MISSING_NAME: at = NULL; break;
    case LISTENERS:
        if (listener >= 0 || peer >= 0)
            size = name_of(listener >= 0 ? listener : peer, &place);
        break;
    case OWN:
        // The port of a connect that was refused may be taken again by now.
        if (state != REFUSED)
            size = name_of(fd, &place);
        break;
    case NOBODYS:
        if (!of_unix)
            ((struct sockaddr_in *)&place)->sin_port = htons(9);
        break;
    default: break;
    }
}

// -- calls -------------------------------------------------------------------------------------------------------------

static void answer(long result) {
    if (result < 0)
        add(" %s", error_name(errno));
    else
        add(" %ld", result > 1000000 ? 1000000 : result);
}
// (Of Cob UDP knows no MSG_MORE, TCP no MSG_FASTOPEN.)
static const int flags[] = {0, MSG_OOB, MSG_PEEK, MSG_TRUNC, MSG_ERRQUEUE, MSG_EOR, MSG_DONTROUTE, MSG_CONFIRM, MSG_CTRUNC, MSG_ZEROCOPY, MSG_WAITFORONE, 1 << 30};
static char buffer[200];

static void call_bind(int which) { answer(bind(fd, at, size)); (void)which; }
static void call_connect(int which) { answer(connect(fd, at, size)); (void)which; }
static void call_send(int which) { answer(sendto(fd, "ab", 2, MSG_NOSIGNAL, at, size)); (void)which; }
static void call_send_message(int which) {
    struct iovec part = {"ab", 2};
    struct msghdr header = {.msg_name = at, .msg_namelen = size, .msg_iov = &part, .msg_iovlen = 1};
    answer(sendmsg(fd, &header, MSG_NOSIGNAL));
    (void)which;
}
static void call_send_flags(int which) { answer(send(fd, "ab", 2, flags[which] | MSG_NOSIGNAL | MSG_DONTWAIT)); }
static void call_send_nothing(int which) { answer(send(fd, "ab", 0, flags[which] | MSG_NOSIGNAL | MSG_DONTWAIT)); }
static void call_send_wild(int which) { answer(send(fd, (void *)8, 2, flags[which] | MSG_NOSIGNAL | MSG_DONTWAIT)); }
static void call_receive_flags(int which) { answer(recv(fd, buffer, 10, flags[which] | MSG_DONTWAIT)); }
static void call_receive_nothing(int which) { answer(recv(fd, buffer, 0, flags[which] | MSG_DONTWAIT)); }
static void call_receive_wild(int which) { answer(recv(fd, (void *)8, 10, flags[which] | MSG_DONTWAIT)); }
static void call_receive_message(int which) {
    struct iovec part = {buffer, 10};
    char control[100];
    struct sockaddr_storage name;
    struct msghdr header = {.msg_name = &name, .msg_namelen = sizeof name, .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    long result = recvmsg(fd, &header, flags[which] | MSG_DONTWAIT);
    answer(result);
    if (result >= 0)
        add("/%u/%zu/%x", header.msg_namelen, header.msg_controllen, header.msg_flags);
}
static void call_send_many(int which) {
    struct iovec part = {"ab", 2};
    struct mmsghdr all[2] = {{{.msg_iov = &part, .msg_iovlen = 1}, 0}, {{.msg_iov = &part, .msg_iovlen = 1}, 0}};
    answer(sendmmsg(fd, all, 2, flags[which] | MSG_NOSIGNAL | MSG_DONTWAIT));
}
static void call_receive_many(int which) {
    struct iovec part = {buffer, 3};
    struct mmsghdr all[2] = {{{.msg_iov = &part, .msg_iovlen = 1}, 0}, {{.msg_iov = &part, .msg_iovlen = 1}, 0}};
    answer(recvmmsg(fd, all, 2, flags[which] | MSG_DONTWAIT, NULL));
}
static const int numbers[] = {0, 1, 2, 3, -1, 4, 0x7fffffff, -0x7fffffff - 1};
static void call_listen(int which) { answer(listen(fd, numbers[which])); }
static void call_shutdown(int which) { answer(shutdown(fd, numbers[which])); }
static const int accepts[] = {0, SOCK_NONBLOCK, 1, -1, SOCK_CLOEXEC | 8};
static void call_accept(int which) {
    int got = accept4(fd, NULL, NULL, accepts[which]);
    answer(got < 0 ? got : 0);
    close(got);
}
static const socklen_t lengths[] = {200, 2, 0, 3, (socklen_t)-1, 0x7fffffff};
static void named(int (*get)(int, struct sockaddr *, socklen_t *), int which) {
    socklen_t room = lengths[which];
    int result = get(fd, (void *)buffer, &room);
    answer(result);
    if (result == 0)
        add("/%u", room);
}
static void call_name(int which) { named(getsockname, which); }
static void call_peer_name(int which) { named(getpeername, which); }
static void call_accept_named(int which) { named(accept, which); }
static void call_name_wild(int which) {
    socklen_t room = 100;
    answer(which == 0 ? getsockname(fd, (void *)8, &room) : which == 1 ? getsockname(fd, (void *)buffer, (void *)8) : which == 2 ? getpeername(fd, (void *)8, &room)
                                                                                                                                : getpeername(fd, NULL, NULL));
}
static void call_accept_wild(int which) {
    socklen_t room = 100;
    answer(which == 0 ? accept(fd, (void *)8, &room) : which == 1 ? accept(fd, (void *)buffer, (void *)8) : accept(fd, (void *)buffer, NULL));
}

#define COUNT(list) (int)(sizeof(list) / sizeof *(list))
static const struct call {
    const char *name;
    void (*call)(int which);
    int count, by_address;
} calls[] = {
    {"bind", call_bind, ADDRESSES, 1},
    {"connect", call_connect, ADDRESSES, 1},
    {"sendto", call_send, ADDRESSES, 1},
    {"sendmsg", call_send_message, ADDRESSES, 1},
    {"send", call_send_flags, COUNT(flags), 0},
    {"send nothing", call_send_nothing, COUNT(flags), 0},
    {"send wild", call_send_wild, COUNT(flags), 0},
    {"sendmmsg", call_send_many, COUNT(flags), 0},
    {"recv", call_receive_flags, COUNT(flags), 0},
    {"recv nothing", call_receive_nothing, COUNT(flags), 0},
    {"recv wild", call_receive_wild, COUNT(flags), 0},
    {"recvmsg", call_receive_message, COUNT(flags), 0},
    {"recvmmsg", call_receive_many, COUNT(flags), 0},
    {"listen", call_listen, COUNT(numbers), 0},
    {"shutdown", call_shutdown, COUNT(numbers), 0},
    {"accept4", call_accept, COUNT(accepts), 0},
    {"accept", call_accept_named, COUNT(lengths), 0},
    {"accept wild", call_accept_wild, 3, 0},
    {"getsockname", call_name, COUNT(lengths), 0},
    {"getpeername", call_peer_name, COUNT(lengths), 0},
    {"names wild", call_name_wild, 4, 0},
};

static int which, there_is;
static const struct call *call;
// What Cob does not have (docs/limits.md): multicast and broadcast, which Linux sends by lo from sockets that are bound to it; connecting to oneself; a
// socket that was reset is none that could be bound again; recvmmsg tells of errors before it looks at its flags.
static int left_out(void) {
    int internet = way->family != AF_UNIX, stream = way->type == SOCK_STREAM;
    return (internet && !stream && state != FRESH && (call->call == call_connect || call->call == call_send || call->call == call_send_message) &&
            (which == MULTICAST || which == BROADCAST)) ||
           (internet && stream && state == BOUND && call->call == call_connect && which == OWN) ||
           (internet && stream && state == RESET && call->call == call_bind) || (call->call == call_receive_many && which == 1);
}
static void make_state(void) { there_is = make(); }
static void run_call(void) {
    if (call->by_address)
        set_place(which), add(" %s:", addresses[which]);
    errno = 0;
    call->call(which);
    // What is left of it.
    int left = 0;
    socklen_t room = sizeof left;
    MUST(getsockopt(fd, SOL_SOCKET, SO_ERROR, &left, &room) == 0);
    if (left)
        add("(%s)", error_name(left));
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    start_hands();
    int turn = 0;
    for (way = ways; way < ways + COUNT(ways); way++)
        for (state = 0; state < STATES; state++)
            for (call = calls; call < calls + COUNT(calls); call++) {
                line[0] = 0;
                for (which = 0; which < call->count; which++) {
                    int maker = turn % HANDS, caller = turn / HANDS % HANDS;
                    turn++;
                    if (left_out())
                        continue;
                    on(maker, make_state);
                    if (!there_is)
                        break;
                    on(caller, run_call), end();
                }
                if (line[0])
                    printf("%s %s: %s:%s\n", way->name, states[state], call->name, line);
            }
    for (int family = 0; family < 48; family += family < 3 ? 1 : 9)
        for (int type = 0; type < 12; type++) {
            // Raw sockets, and packets.
            if ((family == AF_INET || family == AF_INET6) && (type == SOCK_RAW || type == 10))
                continue;
            line[0] = 0;
            for (int protocol = -1; protocol < 264; protocol += protocol < 20 ? 1 : 61) {
                int two[2], got = socket(family, type, protocol);
                if (got < 0)
                    add(" %s", error_name(errno));
                else
                    add(" ok"), close(got);
                if (socketpair(family, type, protocol, two) < 0)
                    add("/%s", error_name(errno));
                else
                    add("/ok"), close(two[0]), close(two[1]);
            }
            printf("socket %d %d:%s\n", family, type, line);
        }
    return 0;
}
