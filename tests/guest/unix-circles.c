// Sockets of several kernels that hold each other in messages and that nobody has open: they go, and who sent them may send again. What
// can still be received stays.
// cob: link=static,dynamic kernels=1,2,4 compare=host timeout=240
#include "test.h"
#include <stddef.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#define ROUNDS 400
#define LIMIT 64

static int pass(int through, const int *fds, int count) {
    char space[CMSG_SPACE(4 * sizeof(int))] = {0}, byte = 'x';
    struct iovec bytes = {&byte, 1};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = space};
    message.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
    memcpy(CMSG_DATA(header), fds, (size_t)count * sizeof(int));
    return (int)sendmsg(through, &message, MSG_DONTWAIT);
}

static int received(int from) {
    char space[CMSG_SPACE(sizeof(int))] = {0}, byte;
    struct iovec bytes = {&byte, 1};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    MUST(recvmsg(from, &message, MSG_DONTWAIT) == 1 && CMSG_FIRSTHDR(&message));
    int fd;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

static void a_socket_ends(void) {
    int pair[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    close(pair[0]);
    close(pair[1]);
}

// Whoever may not have more in messages waits until circles are looked for, which the end of a socket is a reason for.
static void send_in_the_end(int through, const int *fds, int count) {
    while (pass(through, fds, count) != 1) {
        MUST(errno == ETOOMANYREFS);
        a_socket_ends();
        sched_yield();
    }
}

static int cpu(int number) { return number % cpu_count(); }

static void pair_on(int number, int *pair, int type) {
    move_to(cpu(number));
    MUST(socketpair(AF_UNIX, type, 0, pair) == 0);
}

static void close_all(const int *fds, int count) {
    for (int i = 0; i < count; i++)
        MUST(close(fds[i]) == 0);
}

// Each in the inbox of the other's.
static void two(int round, int end) {
    int pairs[4];
    pair_on(round, pairs, SOCK_STREAM);
    pair_on(round + 1, pairs + 2, round % 2 ? SOCK_DGRAM : SOCK_STREAM);
    send_in_the_end(pairs[0], (int[]){pairs[3], end}, 2);
    move_to(cpu(round / 2));
    send_in_the_end(pairs[2], (int[]){pairs[1]}, 1);
    close_all(pairs, 4);
}

// A ring, with a socket that is in it twice and one that only hangs on it.
static void ring(int round, int end) {
    int pairs[8];
    for (int i = 0; i < 4; i++)
        pair_on(round + i, pairs + 2 * i, SOCK_STREAM);
    for (int i = 0; i < 3; i++) {
        move_to(cpu(round * 3 + i));
        send_in_the_end(pairs[2 * i], (int[]){pairs[2 * ((i + 1) % 3) + 1], pairs[2 * ((i + 1) % 3) + 1]}, 2);
    }
    send_in_the_end(pairs[0], (int[]){pairs[7]}, 1);
    send_in_the_end(pairs[6], (int[]){end}, 1);
    close_all(pairs, 8);
}

// The end of a connection, sent through the connection to itself; before it is accepted, or after that.
static void connected(int round, int end) {
    move_to(cpu(round));
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    // A name ends with its socket: a new one each time.
    int length = snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "circle-%d-%d", (int)getpid(), round);
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    MUST(listener >= 0 && bind(listener, (struct sockaddr *)&at, len) == 0 && listen(listener, 1) == 0);
    move_to(cpu(round + 1));
    int client = socket(AF_UNIX, SOCK_STREAM, 0);
    MUST(client >= 0 && connect(client, (struct sockaddr *)&at, len) == 0);
    if (round % 2) {
        send_in_the_end(client, (int[]){listener, end}, 2);
    } else {
        int server = accept(listener, NULL, NULL);
        MUST(server >= 0);
        send_in_the_end(server, (int[]){client, end}, 2);
        send_in_the_end(client, (int[]){server}, 1);
        close(server);
    }
    move_to(cpu(round / 2));
    close(listener);
    close(client);
}

static void run(void) {
    int end[2], outer[2], inner[2];
    MUST(pipe2(end, O_NONBLOCK) == 0);
    pair_on(0, outer, SOCK_STREAM);
    pair_on(1, inner, SOCK_STREAM);
    // One that holds itself, too, but can be received.
    send_in_the_end(outer[0], (int[]){inner[1]}, 1);
    send_in_the_end(inner[0], (int[]){inner[1]}, 1);
    close(inner[0]);
    close(inner[1]);
    for (int round = 0; round < ROUNDS; round++) {
        switch (round % 3) {
        case 0: two(round, end[1]); break;
        case 1: ring(round, end[1]); break;
        default: connected(round / 3, end[1]); break;
        }
    }
    close(end[1]);
    char byte;
    ssize_t got;
    for (int i = 0; (got = read(end[0], &byte, 1)) == -1 && errno == EAGAIN; i++) {
        move_to(cpu(i));
        a_socket_ends();
    }
    printf("the pipe's other ends are gone: %zd\n", got);
    int back = received(outer[1]);
    int itself = received(back);
    struct stat one, other;
    MUST(fstat(back, &one) == 0 && fstat(itself, &other) == 0);
    printf("what could be received is there: %d\n", one.st_ino == other.st_ino && one.st_dev == other.st_dev);
}

int main(void) {
    IN_CHILD("of a user", {
        MUST(setrlimit(RLIMIT_NOFILE, &(struct rlimit){LIMIT, LIMIT}) == 0);
        MUST(setgid(65534) == 0 && setuid(65534) == 0);
        run();
    });
    return 0;
}
