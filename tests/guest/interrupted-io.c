// What another kernel does for a thread that signals interrupt is done once or not at all, and the call says which.
// cob: link=static,dynamic compare=host
#define _GNU_SOURCE
#include "test.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { RECORDS = 300 };

static int last_cpu;
static pthread_t victim;
static atomic_int ready, over;

static void handler(int signal) { (void)signal; }

// Sends signals for as long as the other thread works; each at least one system call apart.
static void *interrupt(void *unused) {
    (void)unused;
    while (!over) {
        if (ready)
            pthread_kill(victim, SIGUSR1);
        sched_yield();
    }
    return NULL;
}

static pthread_t begin(int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    MUST(sigaction(SIGUSR1, &action, NULL) == 0);
    pthread_t other;
    victim = pthread_self();
    ready = over = 0;
    MUST(pthread_create(&other, NULL, interrupt, NULL) == 0);
    ready = 1;
    return other;
}

static void end(pthread_t other) {
    over = 1;
    MUST(pthread_join(other, NULL) == 0);
}

// Again until it is done; with SA_RESTART EINTR must not be seen.
static long again(int flags, ssize_t (*act)(int, void *, size_t), int fd, void *data, size_t size) {
    for (;;) {
        ssize_t done = act(fd, data, size);
        if (done >= 0 || errno != EINTR)
            return done;
        if (flags & SA_RESTART) {
            printf("EINTR in spite of SA_RESTART\n");
            return -1;
        }
    }
}

static ssize_t put(int fd, void *data, size_t size) { return write(fd, data, size); }
static ssize_t take(int fd, void *data, size_t size) { return read(fd, data, size); }
static ssize_t give(int fd, void *data, size_t size) {
    struct iovec piece = {data, size};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    return sendmsg(fd, &message, 0);
}
static ssize_t receive(int fd, void *data, size_t size) {
    struct iovec piece = {data, size};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    return recvmsg(fd, &message, 0);
}
static ssize_t take_connection(int fd, void *data, size_t size) {
    (void)data, (void)size;
    return accept(fd, NULL, NULL);
}

// Records come once each and in order. The files are of kernel `here`; who is interrupted works at `there`.
static void written(const char *what, int flags, int here, int there, int from, int to,
                    ssize_t (*act)(int, void *, size_t)) {
    fflush(stdout);
    pid_t reader = fork();
    MUST(reader >= 0);
    if (reader == 0) {
        move_to(here);
        close(to);
        int wrong = 0, count = 0, record;
        while (read(from, &record, sizeof record) == sizeof record && record >= 0)
            wrong += record != count++;
        printf("%s: %d records, %d wrong\n", what, count, wrong);
        fflush(stdout);
        _exit(0);
    }
    move_to(there);
    pthread_t other = begin(flags);
    int record = 0;
    for (; record < RECORDS; record++)
        MUST(again(flags, act, to, &record, sizeof record) == sizeof record);
    end(other);
    record = -1;
    MUST(write(to, &record, sizeof record) == sizeof record);
    MUST(waitpid(reader, NULL, 0) == reader);
    move_to(here);
    close(from);
    close(to);
}

static void taken(const char *what, int flags, int here, int there, int from, int to,
                  ssize_t (*act)(int, void *, size_t)) {
    fflush(stdout);
    pid_t writer = fork();
    MUST(writer >= 0);
    if (writer == 0) {
        move_to(here);
        for (int record = 0; record < RECORDS; record++)
            MUST(write(to, &record, sizeof record) == sizeof record);
        _exit(0);
    }
    close(to);
    move_to(there);
    pthread_t other = begin(flags);
    int wrong = 0;
    for (int count = 0; count < RECORDS; count++) {
        int record = -1;
        MUST(again(flags, act, from, &record, sizeof record) == sizeof record);
        wrong += record != count;
    }
    end(other);
    MUST(waitpid(writer, NULL, 0) == writer);
    int left;
    printf("%s: %d wrong, then %zd\n", what, wrong, act(from, &left, sizeof left));
    move_to(here);
    close(from);
}

static void counted(int flags, int here, int there) {
    move_to(here);
    int fd = eventfd(0, 0);
    MUST(fd >= 0);
    move_to(there);
    pthread_t other = begin(flags);
    uint64_t one = 1, sum;
    for (int i = 0; i < RECORDS; i++)
        MUST(again(flags, put, fd, &one, 8) == 8);
    end(other);
    MUST(read(fd, &sum, 8) == 8);
    printf("eventfd: %d\n", (int)sum);
    close(fd);
}

static struct sockaddr_un address(void) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    strcpy(at.sun_path + 1, "interrupted");
    return at;
}

static const socklen_t ADDRESS_LENGTH = offsetof(struct sockaddr_un, sun_path) + 12;

// A listener of that address.
static int listener_for(int waiting) {
    struct sockaddr_un at = address();
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    MUST(listener >= 0 && bind(listener, (struct sockaddr *)&at, ADDRESS_LENGTH) == 0 && listen(listener, waiting) == 0);
    return listener;
}

static void accepted(int flags, int here, int there) {
    enum { CONNECTIONS = 40 };
    struct sockaddr_un at = address();
    move_to(here);
    int listener = listener_for(5);
    fflush(stdout);
    pid_t client = fork();
    MUST(client >= 0);
    if (client == 0) {
        int lost = 0;
        close(listener);
        for (int i = 0; i < CONNECTIONS; i++) {
            int fd = socket(AF_UNIX, SOCK_STREAM, 0);
            char byte = 0;
            MUST(fd >= 0 && connect(fd, (struct sockaddr *)&at, ADDRESS_LENGTH) == 0);
            if (write(fd, "q", 1) != 1 || read(fd, &byte, 1) != 1 || byte != 'a')
                lost++;
            close(fd);
        }
        printf("connections lost: %d\n", lost);
        fflush(stdout);
        _exit(0);
    }
    move_to(there);
    pthread_t other = begin(flags);
    for (int i = 0; i < CONNECTIONS; i++) {
        char byte = 0;
        int fd = (int)again(flags, take_connection, listener, NULL, 0);
        MUST(fd >= 0 && again(flags, take, fd, &byte, 1) == 1 && byte == 'q' && again(flags, put, fd, "a", 1) == 1);
        close(fd);
    }
    end(other);
    MUST(waitpid(client, NULL, 0) == client);
    close(listener);
}

static void connected(int flags, int here, int there) {
    enum { CONNECTIONS = 40 };
    struct sockaddr_un at = address();
    move_to(here);
    int listener = listener_for(CONNECTIONS);
    move_to(there);
    int clients[CONNECTIONS], failed = 0;
    pthread_t other = begin(flags);
    for (int i = 0; i < CONNECTIONS; i++) {
        clients[i] = socket(AF_UNIX, SOCK_STREAM, 0);
        MUST(clients[i] >= 0);
        failed += connect(clients[i], (struct sockaddr *)&at, ADDRESS_LENGTH) != 0;
    }
    end(other);
    move_to(here);
    MUST(fcntl(listener, F_SETFL, O_NONBLOCK) == 0);
    int count = 0, fd;
    while ((fd = accept(listener, NULL, NULL)) >= 0) {
        count++;
        close(fd);
    }
    printf("connected: %d failed, %d too many\n", failed, count - CONNECTIONS);
    for (int i = 0; i < CONNECTIONS; i++)
        close(clients[i]);
    close(listener);
}

static int lock(int fd, int command, short kind) {
    struct flock l = {.l_type = kind, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    return fcntl(fd, command, &l);
}

// One process takes and gives up the lock, again and again; the other waits for it and is interrupted. What it has after each
// call is what the call said: asked of the file by the first.
static void locked(int whole, int here, int there) {
    enum { ROUNDS = 60 };
    move_to(here);
    int fd = open("locked", O_RDWR | O_CREAT, 0644), ask[2], answer[2], go[2];
    MUST(fd >= 0 && pipe(ask) == 0 && pipe(answer) == 0 && pipe(go) == 0);
    fflush(stdout);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        int mine = open("locked", O_RDWR);
        char byte;
        MUST(mine >= 0);
        move_to(there);
        for (int i = 0; i < ROUNDS; i++) {
            MUST(read(go[0], &byte, 1) == 1);
            pthread_t other = begin(0);
            int done = whole ? flock(mine, LOCK_EX) : lock(mine, F_SETLKW, F_WRLCK);
            byte = done == 0 ? 'l' : errno == EINTR ? 'i' : '?';
            end(other);
            MUST(write(ask[1], &byte, 1) == 1 && read(answer[0], &byte, 1) == 1);
            MUST((whole ? flock(mine, LOCK_UN) : lock(mine, F_SETLK, F_UNLCK)) == 0);
            MUST(write(ask[1], "u", 1) == 1);
        }
        _exit(0);
    }
    int wrong = 0, strange = 0;
    for (int i = 0; i < ROUNDS; i++) {
        char byte;
        MUST((whole ? flock(fd, LOCK_EX) : lock(fd, F_SETLK, F_WRLCK)) == 0);
        MUST(write(go[1], "g", 1) == 1);
        // The lock goes at some time while the other waits, or before.
        for (int j = 0; j < i % 30; j++)
            sched_yield();
        MUST((whole ? flock(fd, LOCK_UN) : lock(fd, F_SETLK, F_UNLCK)) == 0);
        MUST(read(ask[0], &byte, 1) == 1);
        int held;
        if (whole) {
            held = flock(fd, LOCK_EX | LOCK_NB) != 0;
            flock(fd, LOCK_UN);
        } else {
            struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
            MUST(fcntl(fd, F_GETLK, &l) == 0);
            held = l.l_type != F_UNLCK;
            MUST(!held || l.l_pid == child);
        }
        wrong += held != (byte == 'l');
        strange += byte == '?';
        MUST(write(answer[1], "a", 1) == 1 && read(ask[0], &byte, 1) == 1);
    }
    MUST(waitpid(child, NULL, 0) == child);
    printf("%s: %d wrong, %d strange\n", whole ? "flock" : "fcntl", wrong, strange);
    for (int i = 0; i < 2; i++) {
        close(ask[i]);
        close(answer[i]);
        close(go[i]);
    }
    close(fd);
    unlink("locked");
}

// Operations by name are not interrupted.
static void named(int there) {
    static const char *const names[] = {"mkdir", "chdir", "open", "stat", "rename", "list", "unlink", "up", "rmdir"};
    int failed[sizeof names / sizeof *names] = {0}, interrupted = 0;
    move_to(there);
    pthread_t other = begin(0);
    for (int i = 0; i < 40; i++) {
        struct stat about;
        char entries[512];
        for (size_t step = 0; step < sizeof names / sizeof *names; step++) {
            int fd = -1, done = 0;
            errno = 0;
            switch (step) {
            case 0: done = mkdir("named", 0755); break;
            case 1: done = chdir("named"); break;
            case 2: done = fd = open("file", O_CREAT | O_TRUNC | O_WRONLY, 0644); break;
            case 3: done = stat("file", &about); break;
            case 4: done = rename("file", "other"); break;
            case 5: done = (fd = open(".", O_RDONLY | O_DIRECTORY)) < 0 ? -1 : syscall(SYS_getdents64, fd, entries, sizeof entries); break;
            case 6: done = unlink("other"); break;
            case 7: done = chdir(".."); break;
            case 8: done = rmdir("named"); break;
            }
            failed[step] += done < 0;
            interrupted += errno == EINTR;
            if (fd >= 0)
                close(fd);
        }
    }
    end(other);
    for (size_t step = 0; step < sizeof names / sizeof *names; step++)
        printf("%s: %d failed\n", names[step], failed[step]);
    printf("%d interrupted\n", interrupted);
}

// But the wait for a fifo's other side is, and leaves nothing open.
static void fifo(int there) {
    MUST(mkfifo("fifo", 0644) == 0);
    move_to(there);
    pthread_t other = begin(0);
    SHOW(open("fifo", O_RDONLY));
    SHOW(open("fifo", O_WRONLY));
    end(other);
    SHOW(open("fifo", O_WRONLY | O_NONBLOCK));
    fflush(stdout);
    pid_t reader = fork();
    MUST(reader >= 0);
    if (reader == 0) {
        char bytes[4];
        move_to(0);
        int fd = open("fifo", O_RDONLY);
        MUST(fd >= 0 && read(fd, bytes, 4) == 3);
        printf("fifo: %.3s\n", bytes);
        fflush(stdout);
        _exit(0);
    }
    other = begin(SA_RESTART);
    int fd = open("fifo", O_WRONLY);
    end(other);
    MUST(fd >= 0 && write(fd, "met", 3) == 3);
    MUST(waitpid(reader, NULL, 0) == reader);
    close(fd);
    unlink("fifo");
}

static void all(int flags, int here, int there) {
    int ends[2];
    printf("%s\n", flags ? "SA_RESTART" : "no SA_RESTART");
    move_to(here);
    MUST(pipe(ends) == 0);
    written("pipe", flags, here, there, ends[0], ends[1], put);
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    written("stream", flags, here, there, ends[0], ends[1], put);
    MUST(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
    written("packets", flags, here, there, ends[0], ends[1], give);
    MUST(pipe(ends) == 0);
    taken("pipe", flags, here, there, ends[0], ends[1], take);
    MUST(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
    taken("packets", flags, here, there, ends[0], ends[1], receive);
    counted(flags, here, there);
    accepted(flags, here, there);
    connected(flags, here, there);
}

int main(void) {
    last_cpu = cpu_count() - 1;
    all(SA_RESTART, 0, last_cpu);
    all(0, last_cpu, 0);
    locked(0, 0, last_cpu);
    locked(1, 0, last_cpu);
    named(last_cpu);
    fifo(last_cpu);
}
