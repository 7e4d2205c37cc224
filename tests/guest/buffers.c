// SO_SNDBUF and SO_RCVBUF bound what is on its way (man 7 socket), with the two ends on any kernels.
// cob: link=static,dynamic flags=-pthread kernels=1,4 compare=host net=lo timeout=60
#include "hands.h"
#include "internet.h"

static int family, type, listener, from, to, buffer;
static char bytes[1 << 18];

static void set_buffers(int fd) {
    if (buffer)
        MUST(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer) == 0 && setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer) == 0);
}
static void make_listener(void) {
    MUST((listener = socket(family, type, 0)) >= 0);
    set_buffers(listener);
    sa_family_t unnamed = AF_UNIX;
    set_address("127.0.0.1", 0);
    MUST((family == AF_UNIX ? bind(listener, (void *)&unnamed, sizeof unnamed) : bind(listener, (void *)&where, length())) == 0);
    MUST(listen(listener, 1) == 0);
}
static void make_from(void) {
    struct sockaddr_storage name;
    socklen_t size = sizeof name;
    MUST(getsockname(listener, (void *)&name, &size) == 0);
    MUST((from = socket(family, type, 0)) >= 0);
    set_buffers(from);
    MUST(connect(from, (void *)&name, size) == 0);
}
static void make_to(void) {
    MUST((to = accept(listener, NULL, NULL)) >= 0);
    close(listener);
}
static int sent;
static void fill(void) {
    int count = 0;
    ssize_t got;
    while ((got = send(from, bytes, 1000, MSG_DONTWAIT)) > 0)
        count += (int)got;
    printf("  %s", error_name(errno));
    struct pollfd one = {from, POLLOUT, 0};
    printf(", room: %d", poll(&one, 1, 0));
    // How much it is in bytes depends on what a packet takes. By TCP both buffers count.
    if (buffer)
        printf(", 5000 to 60000: %d\n", count >= 5000 && count <= 60000);
    else
        printf(", more than 60000: %d\n", count > 60000);
    sent = count;
}
static void drain(void) {
    while (sent > 0) {
        ssize_t got = recv(to, bytes, sizeof bytes, 0);
        MUST(got > 0);
        sent -= (int)got;
    }
}
static void wait_for_room(void) {
    struct pollfd one = {from, POLLOUT, 0};
    printf("  room: %d\n", poll(&one, 1, 10000));
}
// One message.
static void send_long(void) {
    if (type != SOCK_SEQPACKET)
        return;
    SHOW(send(from, bytes, 19968, MSG_DONTWAIT));
    SHOW(recv(to, bytes, sizeof bytes, 0));
    if (buffer)
        SHOW(send(from, bytes, 19969, MSG_DONTWAIT));
}
// Who waits goes on when there is room.
static void write_much(void) {
    for (int done = 0; done < 200000;) {
        ssize_t got = send(from, bytes, 5000, 0);
        MUST(got > 0);
        done += (int)got;
    }
}

int main(void) {
    static const struct {
        const char *name;
        int family, type;
    } kinds[] = {{"unix stream", AF_UNIX, SOCK_STREAM}, {"unix packets", AF_UNIX, SOCK_SEQPACKET}, {"tcp", AF_INET, SOCK_STREAM}};
    static const int places[][2] = {{0, 0}, {0, 2}, {2, 1}};
    start_hands();
    for (int kind = 0; kind < 3; kind++)
        for (int place = 0; place < 3; place++)
            for (buffer = 0; buffer <= 10000; buffer += 10000) {
                int a = places[place][0], b = places[place][1];
                printf("-- %s from %d to %d, SO_SNDBUF %d\n", kinds[kind].name, a, b, buffer);
                family = kinds[kind].family, type = kinds[kind].type;
                on(b, make_listener), on(a, make_from), on(b, make_to);
                on(a, fill), on(b, drain), on(a, wait_for_room);
                on(a, send_long);
                sent = 200000, begin(a, write_much), on(b == a ? 1 : b, drain), finish(a);
                close(from), close(to);
            }
    return 0;
}
