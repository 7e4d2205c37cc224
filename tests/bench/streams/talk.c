// Round trips and bandwidth between two programs, through two pipes, an AF_UNIX connection, or a TCP connection.
#include "streams.h"
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>

#define NAME "/tmp/talk"
#define PORT 7000
#define BLOCK 65536
// The pair talks so long before the clock starts: under TCG code that was never run is translated first, and a balancer has the time to
// bring the two together.
#define WARM 1.0
#define LONG_ENOUGH 0.5
// How long a pair is watched that has come together, and how long it may take for that.
#define STAYS 10.0
#define MOST_PATIENT 30.0
// Whose pair sends no more in a twentieth of a second, so often in a row, is together: other programs of the machine send as many, too. Apart it sends thousands, but
// for moments in which a busy host gives the machine no turn.
#define STEP_US 50000
#define FEW_MESSAGES 20
#define STEPS 5
#define SECOND_INPUT 3
#define SECOND_OUTPUT 4

static char block[BLOCK];

static void put(int fd, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t written = write(fd, block + done, size - done);
        MUST(written > 0);
        done += written;
    }
}

// False at the end.
static bool take(int fd, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t got = read(fd, block + done, size - done);
        MUST(got >= 0);
        if (got == 0)
            return false;
        done += got;
    }
    return true;
}

static int open_socket(enum transport transport, struct sockaddr_storage *name, socklen_t *length) {
    *name = (struct sockaddr_storage){};
    if (transport == TCP) {
        *(struct sockaddr_in *)name =
            (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        *length = sizeof(struct sockaddr_in);
    } else {
        *(struct sockaddr_un *)name = (struct sockaddr_un){.sun_family = AF_UNIX, .sun_path = NAME};
        *length = sizeof(struct sockaddr_un);
    }
    int fd = socket(name->ss_family, SOCK_STREAM, 0), on = 1;
    MUST(fd >= 0);
    if (transport == TCP) {
        MUST(!setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
        MUST(!setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
    }
    return fd;
}

static int accept_one(enum transport transport) {
    struct sockaddr_storage name;
    socklen_t length;
    int fd = open_socket(transport, &name, &length);
    MUST(!bind(fd, (void *)&name, length) && !listen(fd, 1));
    int connection = accept(fd, NULL, NULL);
    MUST(connection >= 0);
    return connection;
}

static int connect_to(enum transport transport) {
    struct sockaddr_storage name;
    socklen_t length;
    int fd = open_socket(transport, &name, &length);
    // The other program may not listen yet.
    while (connect(fd, (void *)&name, length))
        usleep(10000);
    return fd;
}

// Answers until the end of its input: with as many bytes as came, or (bandwidth) with a byte for what was marked as the last block.
static void answer(int input, int output, size_t size) {
    while (take(input, size ? size : BLOCK))
        if (size || block[0])
            put(output, size ? size : 1);
}

// One operation: a round trip, or a block on its way. Who sends blocks waits for an answer to the last one only.
static void talk_for(int input, int output, size_t size, double time, struct result *result) {
    double begin = seconds(), now;
    long done = 0;
    do {
        long batch = size ? 16 : 64;
        for (long at = 0; at < batch; at++) {
            block[0] = !size && at == batch - 1;
            put(output, size ? size : BLOCK);
            if (size)
                MUST(take(input, size));
        }
        if (!size)
            MUST(take(input, 1));
        done += batch;
        now = seconds();
    } while (now < begin + time);
    result->seconds = now - begin;
    result->operations = done;
}

// `serve TRANSPORT SIZE`, `ask TRANSPORT SIZE` or `talk TRANSPORT SIZE`. Who asks writes the result to its standard output; who talks writes one when it has
// begun, and goes on.
int talk_end(char **words) {
    bool serves = !strcmp(words[0], "serve"), stays = !strcmp(words[0], "talk");
    enum transport transport = atoi(words[1]);
    size_t size = atol(words[2]);
    int input = SECOND_INPUT, output = SECOND_OUTPUT;
    if (transport == PIPE && !serves)
        input = 5, output = 6;
    else if (transport != PIPE)
        input = output = serves ? accept_one(transport) : connect_to(transport);
    if (serves) {
        answer(input, output, size);
        return 0;
    }
    struct result result = {};
    talk_for(input, output, size, stays ? 0 : WARM, &result);
    if (stays) {
        MUST(write(1, &result, sizeof result) == sizeof result);
        talk_for(input, output, size, 2 * (MOST_PATIENT + STAYS), &result);
        return 1;
    }
    count_begin(&result);
    talk_for(input, output, size, LONG_ENOUGH, &result);
    count_end(&result);
    return write(1, &result, sizeof result) != sizeof result;
}

// Starts two programs that talk, the client as `asks` says, and takes its first result.
static void start_pair(const struct row *row, bool apart, char *asks, pid_t *server, pid_t *client, struct result *result) {
    char transport[4], size[12];
    snprintf(transport, sizeof transport, "%d", row->transport);
    snprintf(size, sizeof size, "%d", row->size);
    char *serve[] = {"/proc/self/exe", "end", "serve", transport, size, NULL};
    char *ask[] = {"/proc/self/exe", "end", asks, transport, size, NULL};
    unlink(NAME);
    int there[2], back[2], told[2];
    MUST(!pipe2(told, O_CLOEXEC));
    if (row->transport == PIPE) {
        MUST(!pipe2(there, O_CLOEXEC) && !pipe2(back, O_CLOEXEC));
        // Each end gets its own two only: else nobody would see an end of file.
        int ends[] = {there[0], back[1], back[0], there[1]};
        for (int at = 0; at < 4; at++)
            MUST((ends[at] = fcntl(ends[at], F_DUPFD_CLOEXEC, 20)) >= 20);
        close(there[0]), close(there[1]), close(back[0]), close(back[1]);
        MUST((told[0] = fcntl(told[0], F_DUPFD_CLOEXEC, 20)) >= 20 && (told[1] = fcntl(told[1], F_DUPFD_CLOEXEC, 20)) >= 20);
        MUST(dup2(ends[0], SECOND_INPUT) == SECOND_INPUT && dup2(ends[1], SECOND_OUTPUT) == SECOND_OUTPUT);
        *server = start(serve, apart, false, -1, 0);
        close(SECOND_INPUT), close(SECOND_OUTPUT);
        MUST(dup2(ends[2], 5) == 5 && dup2(ends[3], 6) == 6);
        *client = start(ask, apart, true, told[1], 0);
        close(5), close(6);
        for (int at = 0; at < 4; at++)
            close(ends[at]);
    } else {
        *server = start(serve, apart, false, -1, 0);
        *client = start(ask, apart, true, told[1], 0);
    }
    close(told[1]);
    MUST(read(told[0], result, sizeof *result) == sizeof *result);
    close(told[0]);
}

static void talk(const struct row *row, bool apart, struct result *result) {
    pid_t server, client;
    start_pair(row, apart, "ask", &server, &client, result);
    finish(client);
    finish(server);
}

// The time from the start of two programs until they are together, which is one operation; and the messages and moves of the ten seconds after that.
static void settle(const struct row *row, bool apart, struct result *result) {
    pid_t server, client;
    double begin = seconds();
    start_pair(row, apart, "talk", &server, &client, result);
    *result = (struct result){.operations = 1};
    for (int quiet = 0; quiet < STEPS && result->seconds < MOST_PATIENT;) {
        struct result step = {};
        double now = seconds() - begin;
        count_begin(&step);
        usleep(STEP_US);
        count_end(&step);
        quiet = step.messages > FEW_MESSAGES ? 0 : quiet + 1;
        if (quiet <= 1)
            result->seconds = now;
    }
    count_begin(result);
    if (result->messages >= 0)
        usleep(STAYS * 1e6);
    count_end(result);
    // The client has nobody to complain to when it loses the server.
    stop(server, SIGKILL);
    stop(client, SIGKILL);
}

const struct row talk_rows[] = {
    {"pipe-1", PIPE, talk, 1, 1},      {"pipe-4k", PIPE, talk, 4096, 1}, {"pipe-bandwidth", PIPE, talk, 0, 1},
    {"unix-1", UNIX, talk, 1, 1},      {"unix-4k", UNIX, talk, 4096, 1}, {"unix-bandwidth", UNIX, talk, 0, 1},
    {"tcp-1", TCP, talk, 1, 1},        {"tcp-4k", TCP, talk, 4096, 1},   {"tcp-bandwidth", TCP, talk, 0, 1},
    {"settle-pipe", PIPE, settle, 1, 1}, {"settle-unix", UNIX, settle, 1, 1}, {"settle-tcp", TCP, settle, 1, 1},
    {},
};
