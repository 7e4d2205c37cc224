// How mpirun and its ranks meet (PMIx): a listener on one kernel, a thread on another that waits in select and accepts, a third that is told of what was
// accepted, reads a greeting that may have come before that, answers, and then waits in an epoll; and clients on all kernels, which connect, send at once,
// and meet at fences: who has sent its part sleeps a moment and looks again until the server has sent everybody the end. Nobody may wait for ever.
// cob: link=static flags=-pthread kernels=1,2,4 compare=host net=lo timeout=240
#include "test.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>

enum { CLIENTS = 4, ROUNDS = 60, FENCES = 2, RELEASE = 6000, ANSWER = 100 };

static int listener, news, told[CLIENTS], count;
static volatile int ended;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sockaddr_in address;

static void send_all(int fd, const char *from, size_t size) {
    for (ssize_t sent; size; from += sent, size -= sent)
        MUST((sent = send(fd, from, size, MSG_NOSIGNAL)) > 0);
}

static int receive_all(int fd, char *to, size_t size) {
    for (ssize_t got; size; to += got, size -= got)
        if ((got = recv(fd, to, size, 0)) <= 0)
            return 0;
    return 1;
}

// A length and as many bytes.
static void send_message(int fd, int size) {
    char message[16384] = {};
    memcpy(message, &size, sizeof size);
    send_all(fd, message, sizeof size + size);
}

static int receive_message(int fd) {
    char message[16384];
    int size;
    return receive_all(fd, (char *)&size, sizeof size) && receive_all(fd, message, size);
}

static void *accepts(void *unused) {
    move_to(0);
    for (int accepted = 0; accepted < ROUNDS * CLIENTS;) {
        fd_set watched;
        FD_ZERO(&watched);
        FD_SET(listener, &watched);
        // Without the timeout that PMIx has: a wake that is lost is to be seen.
        MUST(select(listener + 1, &watched, NULL, NULL, NULL) == 1);
        int fd = accept(listener, NULL, NULL);
        MUST(fd >= 0);
        accepted++;
        pthread_mutex_lock(&lock);
        told[count++] = fd;
        pthread_mutex_unlock(&lock);
        MUST(eventfd_write(news, 1) == 0);
    }
    return unused;
}

static void *serves(void *unused) {
    int epoll = epoll_create1(0), open = 0, there = 0, fds[CLIENTS];
    struct epoll_event event = {.events = EPOLLIN, .data.fd = news};
    MUST(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, news, &event) == 0);
    while (ended < ROUNDS * CLIENTS) {
        struct epoll_event events[8];
        int ready = epoll_wait(epoll, events, 8, -1);
        MUST(ready > 0);
        for (int at = 0; at < ready; at++) {
            int fd = events[at].data.fd;
            eventfd_t value;
            if (fd == news) {
                int fresh[CLIENTS], many;
                MUST(eventfd_read(news, &value) == 0);
                pthread_mutex_lock(&lock);
                many = count, count = 0;
                memcpy(fresh, told, sizeof fresh);
                pthread_mutex_unlock(&lock);
                for (int next = 0; next < many; next++) {
                    MUST(receive_message(fresh[next]));
                    send_message(fresh[next], ANSWER);
                    event.data.fd = fds[open++] = fresh[next];
                    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, fresh[next], &event) == 0);
                }
            } else if (!receive_message(fd)) {
                // A client that was forked meanwhile has it, too: a close alone would leave it in the epoll.
                MUST(epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL) == 0 && close(fd) == 0);
                if (--open == 0)
                    there = 0;
                ended++;
            } else if (++there % CLIENTS == 0) {
                for (int client = 0; client < CLIENTS; client++)
                    send_message(fds[client], RELEASE);
            }
        }
    }
    close(epoll);
    return unused;
}

static void client(unsigned seed) {
    srand(seed);
    if (rand() % 3)
        move_to(rand() % cpu_count());
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    MUST(fd >= 0 && connect(fd, (void *)&address, sizeof address) == 0);
    send_message(fd, 1 + rand() % 6000);
    MUST(receive_message(fd));
    for (int fence = 0; fence < FENCES; fence++) {
        char release[RELEASE + sizeof(int)];
        send_message(fd, 1 + rand() % 9000);
        for (size_t got = 0; got < sizeof release;) {
            ssize_t more = recv(fd, release + got, sizeof release - got, MSG_DONTWAIT);
            MUST(more > 0 || (more < 0 && errno == EAGAIN));
            got += more > 0 ? more : 0;
            if (more < 0)
                usleep(100);
        }
    }
    _exit(0);
}

static void too_long(int signal) {
    (void)signal;
    if (write(1, "somebody waits for ever\n", 24) == 24)
        _exit(1);
}

int main(void) {
    pthread_t threads[2];
    int cpus = cpu_count();
    move_to(cpus - 1);
    listener = socket(AF_INET, SOCK_STREAM, 0);
    news = eventfd(0, 0);
    socklen_t size = sizeof address;
    address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    MUST(listener >= 0 && news >= 0 && bind(listener, (void *)&address, size) == 0 && listen(listener, 64) == 0);
    MUST(getsockname(listener, (void *)&address, &size) == 0);
    signal(SIGALRM, too_long);
    alarm(200);
    MUST(pthread_create(&threads[0], NULL, accepts, NULL) == 0);
    move_to(cpus / 2);
    MUST(pthread_create(&threads[1], NULL, serves, NULL) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        for (int number = 0; number < CLIENTS; number++) {
            fflush(stdout);
            if (fork() == 0)
                client(round * CLIENTS + number);
        }
        for (int number = 0, status; number < CLIENTS; number++)
            MUST(wait(&status) > 0 && status == 0);
        while (ended < (round + 1) * CLIENTS)
            usleep(1000);
    }
    for (int at = 0; at < 2; at++)
        MUST(pthread_join(threads[at], NULL) == 0);
    printf("%d rounds\n", ROUNDS);
    return 0;
}
