// Two processes that talk are moved from CPU to CPU meanwhile, and what they talk through stays where it was made: no byte and no wake is lost. Through
// pipes, AF_UNIX and TCP connections, by blocking reads, by poll, and by epoll, also of edges.
// cob: link=static kernels=2,4 compare=host net=lo timeout=240
#include "test.h"
#include <arpa/inet.h>
#include <poll.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

enum transport { PIPES, PAIR, UNIX, TCP, TRANSPORTS };
enum wait { READ, POLL, LEVEL, EDGE, WAITS };

static const char *const transports[] = {"pipes", "socketpair", "AF_UNIX", "TCP"};
static const char *const waits[] = {"read", "poll", "epoll", "epoll of edges"};

enum { MOVES = 60, PORT = 7801 };

static volatile struct shared {
    long rounds; // of the byte
    int end;
} *shared;

static void await_input(enum wait wait, int input, int epoll) {
    struct epoll_event event;
    struct pollfd one = {input, POLLIN, 0};
    if (wait == POLL)
        MUST(poll(&one, 1, -1) == 1);
    else if (wait != READ)
        MUST(epoll_wait(epoll, &event, 1, -1) == 1);
}

static void talk(enum wait wait, int me, int input, int output) {
    unsigned char byte = 0, expected = me ? 0 : 1;
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | (wait == EDGE ? EPOLLET : 0)};
    MUST(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, input, &event) == 0);
    if (wait == EDGE)
        MUST(fcntl(input, F_SETFL, fcntl(input, F_GETFL) | O_NONBLOCK) == 0);
    if (me == 0)
        MUST(write(output, &byte, 1) == 1);
    for (;;) {
        ssize_t got = wait == EDGE ? read(input, &byte, 1) : -1;
        if (got < 0) {
            await_input(wait, input, epoll);
            got = read(input, &byte, 1);
        }
        if (got < 0 && errno == EAGAIN)
            continue;
        if (got != 1)
            _exit(got != 0);
        // Each adds one.
        MUST(byte == expected);
        expected += 2;
        byte++;
        shared->rounds += me == 0;
        if (me == 0 && shared->end)
            _exit(0);
        // The other one may be through.
        if (send(output, &byte, 1, MSG_NOSIGNAL) != 1 && !(errno == ENOTSOCK && write(output, &byte, 1) == 1))
            _exit(0);
    }
}

static int open_socket(enum transport transport, enum wait wait, struct sockaddr_storage *name, socklen_t *length) {
    *name = (struct sockaddr_storage){};
    if (transport == TCP) {
        *(struct sockaddr_in *)name = (struct sockaddr_in){AF_INET, htons(PORT + wait), {htonl(INADDR_LOOPBACK)}, {0}};
        *length = sizeof(struct sockaddr_in);
    } else {
        struct sockaddr_un *place = (void *)name;
        place->sun_family = AF_UNIX;
        // An abstract name.
        memcpy(place->sun_path + 1, "moved-talk", 10);
        *length = offsetof(struct sockaddr_un, sun_path) + 11;
    }
    int fd = socket(name->ss_family, SOCK_STREAM, 0), on = 1;
    MUST(fd >= 0);
    MUST(transport != TCP || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    return fd;
}

// One end of the pair, which makes its connection first if there is none.
static void end(enum transport transport, enum wait wait, int me, int cpus, int listener, int input, int output) {
    struct sockaddr_storage name;
    socklen_t length;
    move_to(me * (cpus - 1));
    if (listener >= 0 && me) {
        MUST((input = output = accept(listener, NULL, NULL)) >= 0);
    } else if (listener >= 0) {
        input = output = open_socket(transport, wait, &name, &length);
        MUST(connect(input, (void *)&name, length) == 0);
    }
    close(listener);
    talk(wait, me, input, output);
}

static void run(enum transport transport, enum wait wait, int cpus) {
    int input[2] = {-1, -1}, output[2] = {-1, -1}, two[2], status, listener = -1;
    struct sockaddr_storage name;
    socklen_t length;
    pid_t pids[2];
    memset((void *)shared, 0, sizeof *shared);
    move_to(0);
    if (transport == PIPES) {
        for (int me = 0; me < 2; me++) {
            MUST(pipe(two) == 0);
            input[me] = two[0], output[1 - me] = two[1];
        }
    } else if (transport == PAIR) {
        MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, two) == 0);
        for (int me = 0; me < 2; me++)
            input[me] = output[me] = two[me];
    } else {
        listener = open_socket(transport, wait, &name, &length);
        MUST(bind(listener, (void *)&name, length) == 0 && listen(listener, 1) == 0);
    }
    fflush(stdout);
    for (int me = 0; me < 2; me++) {
        pids[me] = fork();
        MUST(pids[me] >= 0);
        if (!pids[me]) {
            close(input[1 - me]), close(output[1 - me]);
            end(transport, wait, me, cpus, listener, input[me], output[me]);
        }
    }
    close(listener);
    for (int me = 0; me < 2; me++)
        close(input[me]), close(output[me]);
    while (!shared->rounds)
        usleep(1000);
    unsigned random = transport * WAITS + wait + 1;
    for (int move = 0; move < MOVES; move++) {
        cpu_set_t set;
        random = random * 1103515245 + 12345;
        CPU_ZERO(&set);
        CPU_SET((random >> 16) % cpus, &set);
        MUST(sched_setaffinity(pids[(random >> 24) % 2], sizeof set, &set) == 0);
        // Every other move meets the one before.
        long before = shared->rounds;
        for (int waited = 0; move % 2 && shared->rounds < before + 3; waited++) {
            usleep(1000);
            if (waited == 30000) {
                printf("%s, %s: stands still after %d moves\n", transports[transport], waits[wait], move + 1);
                kill(pids[0], SIGKILL), kill(pids[1], SIGKILL);
                exit(1);
            }
        }
    }
    shared->end = 1;
    for (int me = 0; me < 2; me++)
        MUST(waitpid(pids[me], &status, 0) == pids[me] && status == 0);
    printf("%s, %s: ok\n", transports[transport], waits[wait]);
}

int main(void) {
    int cpus = cpu_count();
    shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(shared != MAP_FAILED);
    signal(SIGPIPE, SIG_IGN);
    for (int transport = 0; transport < TRANSPORTS; transport++)
        for (int wait = 0; wait < WAITS; wait++)
            run(transport, wait, cpus);
    return 0;
}
