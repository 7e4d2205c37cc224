// A flood of connects to a listener that does not accept (man 2 connect, listen): as many as the backlog has places are connected, the rest wait or are
// refused, and nobody is lost: when the listener accepts all come in, when it is closed all hear of it.
// cob: link=static flags=-pthread kernels=1,4 compare=host net=lo timeout=240
#include "hands.h"
#include "internet.h"
#include <stddef.h>
#include <sys/resource.h>
#include <sys/un.h>

enum { MOST = 200, FEW = 4, BACKLOG = 7 };

static int family, listener, each, fds[HANDS][MOST];
static struct sockaddr_storage name;
static socklen_t size;

static void make_listener(void) {
    sa_family_t unnamed = AF_UNIX;
    MUST((listener = socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0)) >= 0);
    six = family == AF_INET6;
    if (family != AF_UNIX)
        set_address(local(), 0);
    MUST((family == AF_UNIX ? bind(listener, (void *)&unnamed, sizeof unnamed) : bind(listener, (void *)&where, length())) == 0);
    MUST(listen(listener, BACKLOG) == 0);
    size = sizeof name;
    MUST(getsockname(listener, (void *)&name, &size) == 0);
}

// The results of all, and how often there was each.
static struct {
    int error, count;
} results[10];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void note(int error) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < 10; i++)
        if (results[i].count == 0 || results[i].error == error) {
            results[i].error = error, results[i].count++;
            break;
        }
    pthread_mutex_unlock(&lock);
}
static int less(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
static void show(const char *what) {
    int count = 0;
    while (count < 10 && results[count].count)
        count++;
    qsort(results, (size_t)count, sizeof *results, less);
    printf("  %s:", what);
    for (int i = 0; i < count; i++)
        printf(" %s %d", results[i].error ? error_name(results[i].error) : "done", results[i].count);
    printf("\n");
    memset(results, 0, sizeof results);
}
static int me(void) {
    for (int who = 0; who < HANDS; who++)
        if (hands[who].tid == (pid_t)syscall(SYS_gettid))
            return who;
    MUST(0);
    return 0;
}

static void flood(void) {
    for (int i = 0; i < each; i++) {
        MUST((fds[me()][i] = socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0)) >= 0);
        note(connect(fds[me()][i], (void *)&name, size) == 0 ? 0 : errno);
    }
}
// Connected are those that could write.
static void look(void) {
    for (int i = 0; i < each; i++) {
        struct pollfd one = {fds[me()][i], POLLOUT, 0};
        MUST(poll(&one, 1, 0) >= 0);
        note(one.revents & POLLOUT && !(one.revents & POLLHUP) ? 0 : ENOTCONN);
    }
}
// Those that are on their way know how that ends.
static void wait_for_all(void) {
    for (int i = 0; i < each; i++) {
        struct pollfd one = {fds[me()][i], POLLOUT, 0};
        int error = 0;
        socklen_t room = sizeof error;
        MUST(poll(&one, 1, 60000) == 1 && getsockopt(fds[me()][i], SOL_SOCKET, SO_ERROR, &error, &room) == 0);
        note(error);
    }
}
static void close_all(void) {
    for (int i = 0; i < each; i++)
        close(fds[me()][i]);
}
static void connect_soon(void) {
    struct timeval soon = {0, 20000};
    for (int i = 0; i < 5; i++) {
        int fd = socket(family, SOCK_STREAM, 0);
        MUST(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof soon) == 0);
        note(connect(fd, (void *)&name, size) == 0 ? 0 : errno);
        close(fd);
    }
}
static void connect_and_wait(void) {
    for (int i = 0; i < 10; i++) {
        int fd = socket(family, SOCK_STREAM, 0);
        MUST(fd >= 0);
        note(connect(fd, (void *)&name, size) == 0 ? 0 : errno);
        close(fd);
    }
}
// One after the other: how many get in at once depends on luck on Linux.
static void in_turn(void (*job)(void)) {
    for (int who = 0; who < HANDS; who++)
        on(who, job);
}
static void all(void (*job)(void)) {
    for (int who = 0; who < HANDS; who++)
        begin(who, job);
    for (int who = 0; who < HANDS; who++)
        finish(who);
}
static void accept_all(int count) {
    for (int got = 0; got < count; got++) {
        struct pollfd one = {listener, POLLIN, 0};
        MUST(poll(&one, 1, 60000) == 1);
        int fd = accept(listener, NULL, NULL);
        MUST(fd >= 0);
        close(fd);
    }
    printf("  accepted %d\n", count);
}
static void accept_flood(void) { accept_all(HANDS * FEW); }
static void accept_few(void) { accept_all(HANDS * 10); }

int main(void) {
    static const int families[] = {AF_UNIX, AF_INET, AF_INET6};
    struct rlimit most = {2000, 2000};
    MUST(setrlimit(RLIMIT_NOFILE, &most) == 0);
    start_hands();
    for (int i = 0; i < 3; i++) {
        family = families[i];
        printf("-- %s\n", family == AF_UNIX ? "unix" : family == AF_INET ? "IPv4" : "IPv6");
        // One that is full stays so, whoever tries.
        each = MOST;
        make_listener();
        in_turn(flood), show("not waiting"), all(look), show("connected");
        all(connect_soon), show("for a while");
        // What is on its way when the listener goes.
        close(listener);
        if (family != AF_UNIX)
            all(wait_for_all), show("without a listener");
        all(close_all);
        // All come in. (On Linux when they try again, after a second and more: these are few.)
        if (family != AF_UNIX) {
            each = FEW;
            make_listener();
            in_turn(flood), show("not waiting");
            accept_flood();
            all(wait_for_all), show("in the end");
            all(close_all), close(listener);
        }
        // Those that wait.
        make_listener();
        for (int who = 0; who < HANDS; who++)
            begin(who, connect_and_wait);
        accept_few();
        for (int who = 0; who < HANDS; who++)
            finish(who);
        show("waiting");
        close(listener);
    }
    return 0;
}
