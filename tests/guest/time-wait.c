// Who may have a port again (man 7 socket, SO_REUSEADDR; man 7 ip, tcp): after a listener and its connections, in TIME_WAIT and not, whoever closed
// first; with and without SO_REUSEADDR, by address and by wildcard, of both families, on whichever kernel.
// cob: link=static,dynamic flags=-pthread kernels=1,4 compare=host net=lo timeout=240
#include "hands.h"
#include "internet.h"

enum state {
    SERVER_FIRST,   // the accepted end closes first, then the client
    CLIENT_FIRST,   // the other way about
    OPEN,           // the listener is closed, the connection is open
    LISTENS,        // both are open
    HALF,           // the accepted end is closed, the client is not
    UNACCEPTED,     // the listener is closed before it has accepted
    RESET,          // the accepted end closes with data unread
    SHARED,         // of two connections one is open
    LISTENS_WAITS,  // one connection is in TIME_WAIT, the listener is open
    CLIENT_CLOSED,  // the port is a client's, which has closed first
    CLIENT_OPEN,    // a client's, which is connected
    CLIENT_CLOSED_SECOND,
    BOUND,
    STATES
};
static const char *const states[] = {"server first", "client first", "open",           "listens",     "half",                  "unaccepted",
                                     "reset",        "shared",       "listens, waits", "client's",    "client's, open",        "client's, closed second",
                                     "bound"};

struct place {
    const char *name, *text, *peer;
    int family, only_six;
};
static const struct place olds[] = {
    {"127.0.0.1", "127.0.0.1", "127.0.0.1", AF_INET, 0}, {"0.0.0.0", "0.0.0.0", "127.0.0.1", AF_INET, 0},
    {"::1", "::1", "::1", AF_INET6, 0},                  {"::", "::", "::1", AF_INET6, 0},
    {":: by IPv4", "::", "127.0.0.1", AF_INET6, 0},      {":: only", "::", "::1", AF_INET6, 1},
};
static const struct place news[] = {
    {"127.0.0.1", "127.0.0.1", NULL, AF_INET, 0}, {"0.0.0.0", "0.0.0.0", NULL, AF_INET, 0}, {"127.0.0.2", "127.0.0.2", NULL, AF_INET, 0},
    {"::1", "::1", NULL, AF_INET6, 0},            {"::", "::", NULL, AF_INET6, 0},          {":: only", "::", NULL, AF_INET6, 1},
};
#define COUNT(list) (int)(sizeof(list) / sizeof *(list))

static int port = 20000, reuse;
static const struct place *old;
static int listener, client[2], accepted[2];

// A socket that is bound there, or -1.
static int bound(const struct place *place, int at, int reuse_address) {
    int fd = socket(place->family, SOCK_STREAM, 0), on = 1;
    MUST(fd >= 0);
    if (reuse_address)
        MUST(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    if (place->only_six)
        MUST(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) == 0);
    six = place->family == AF_INET6;
    set_address(place->text, at);
    if (bind(fd, (void *)&where, length()) == 0)
        return fd;
    MUST(errno == EADDRINUSE);
    close(fd);
    return -1;
}
static void make_listener(void) {
    MUST((listener = bound(old, port, reuse)) >= 0);
    MUST(listen(listener, 5) == 0);
}
// The port is the client's: the listener has any.
static void make_other_listener(void) {
    static const struct place any[] = {{"", "127.0.0.1", NULL, AF_INET, 0}, {"", "::1", NULL, AF_INET6, 0}};
    MUST((listener = bound(&any[strchr(old->peer, ':') != NULL], 0, 0)) >= 0);
    MUST(listen(listener, 5) == 0);
}
static void connect_one(int which) {
    if (client[which] < 0)
        MUST((client[which] = socket(strchr(old->peer, ':') ? AF_INET6 : AF_INET, SOCK_STREAM, 0)) >= 0);
    int at = port_of(listener), family;
    socklen_t size = sizeof family;
    MUST(getsockopt(client[which], SOL_SOCKET, SO_DOMAIN, &family, &size) == 0);
    six = family == AF_INET6;
    char text[100];
    snprintf(text, sizeof text, "%s%s", six && !strchr(old->peer, ':') ? "::ffff:" : "", old->peer);
    set_address(text, at);
    MUST(connect(client[which], (void *)&where, length()) == 0);
}
static void connect_first(void) { connect_one(0); }
static void connect_second(void) { connect_one(1); }
static void make_client(void) { MUST((client[0] = bound(old, port, reuse)) >= 0); }
static void accept_first(void) { MUST((accepted[0] = accept(listener, NULL, NULL)) >= 0); }
static void accept_second(void) { MUST((accepted[1] = accept(listener, NULL, NULL)) >= 0); }
static void close_one(int *fd) {
    if (*fd >= 0)
        MUST(close(*fd) == 0);
    *fd = -1;
}
// The other end has heard of it before the next one does something.
static void see_end(int fd) {
    char byte;
    struct pollfd one = {fd, POLLIN, 0};
    if (fd >= 0)
        MUST(poll(&one, 1, 10000) == 1 && read(fd, &byte, 1) <= 0);
}
static void close_listener(void) { close_one(&listener); }
static void close_client(void) { close_one(&client[0]); }
static void close_accepted(void) { close_one(&accepted[0]); }
static void write_client(void) { MUST(write(client[0], "x", 1) == 1); }
static void see_client(void) { see_end(client[0]); }
static void see_accepted(void) { see_end(accepted[0]); }
static void see_byte(void) {
    struct pollfd one = {accepted[0], POLLIN, 0};
    MUST(poll(&one, 1, 10000) == 1);
}
static void probe(void) {
    for (int again = 0; again < 2; again++) {
        printf(again ? "  reusing" : "  plain");
        for (int i = 0; i < COUNT(news); i++) {
            int fd = bound(&news[i], port, again);
            printf(" %s: %s,", news[i].name, fd < 0 ? "no" : listen(fd, 5) == 0 ? "yes" : "bound");
            close_one(&fd);
        }
        printf("\n");
    }
}

static void run(enum state state, int a, int b, int c) {
    listener = client[0] = client[1] = accepted[0] = accepted[1] = -1;
    port++;
    printf("- %s, %s%s\n", states[state], old->name, reuse ? ", SO_REUSEADDR" : "");
    if (state == BOUND) {
        on(b, make_client), on(c, probe), on(b, close_client);
        return;
    }
    int of_client = state >= CLIENT_CLOSED;
    if (of_client)
        on(a, make_other_listener), on(b, make_client);
    else
        on(a, make_listener);
    on(b, connect_first);
    if (state != UNACCEPTED)
        on(a, accept_first);
    if (state == SHARED)
        on(b, connect_second), on(a, accept_second);
    switch (state) {
    case SERVER_FIRST:
    case SHARED:
    case CLIENT_CLOSED_SECOND:
    case LISTENS_WAITS:
        on(a, close_accepted), on(b, see_client), on(b, close_client);
        break;
    case CLIENT_FIRST:
    case CLIENT_CLOSED:
        on(b, close_client), on(a, see_accepted), on(a, close_accepted);
        break;
    case HALF:
        on(a, close_accepted), on(b, see_client);
        break;
    case RESET:
        on(b, write_client), on(a, see_byte), on(a, close_accepted), on(b, see_client), on(b, close_client);
        break;
    default:
        break;
    }
    if (state != LISTENS && state != LISTENS_WAITS)
        on(a, close_listener);
    on(c, probe);
    on(a, close_listener), on(b, close_client), on(a, close_accepted);
    close_one(&client[1]), close_one(&accepted[1]);
}

int main(void) {
    start_hands();
    for (int state = 0; state < STATES; state++)
        for (int i = 0; i < COUNT(olds); i++)
            for (reuse = 0; reuse < 2; reuse++) {
                old = &olds[i];
                if (state >= CLIENT_CLOSED && (old->family == AF_INET6) != (strchr(old->peer, ':') != NULL) && old->only_six)
                    continue;
                run(state, i % 3, (i + state) % 3, (i + reuse + 1) % 3);
            }
    return 0;
}
