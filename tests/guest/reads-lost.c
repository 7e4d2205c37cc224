// What a read can't put into memory: a pipe and a stream socket keep it, a datagram and the number of an eventfd are lost. Of files made here
// and read here, and from the last CPU; memory that is missing, read-only, or ends too early; by read, readv and recv.
// cob: link=static flags=-pthread kernels=1,2,4 compare=host
#include "test.h"
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>

static char *border; // The last page before a hole.
static char *read_only, *volatile nowhere;

static void tell(const char *what, long result, const char *bytes) {
    printf("  %s: ", what);
    if (result < 0)
        printf("%s\n", error_name(errno));
    else
        printf("%ld %.*s\n", result, (int)result, bytes ? bytes : "");
}

static ssize_t by_recv(int fd, void *to, size_t bytes) { return recv(fd, to, bytes, 0); }

static void every_way(const char *name, int source, int fd, ssize_t (*take)(int, void *, size_t)) {
    char good[64];
    printf(" %s\n", name);
    MUST(write(source, "abcdefgh", 8) == 8);
    tell("nowhere", take(fd, nowhere, 8), NULL);
    tell("what there is", take(fd, good, 8), good);
    MUST(write(source, "ijklmnop", 8) == 8);
    tell("read-only", take(fd, read_only, 8), NULL);
    tell("what there is", take(fd, good, 8), good);
    MUST(write(source, "qrstuvwx", 8) == 8);
    tell("too little memory", take(fd, border + PAGE - 3, 8), NULL);
    tell("what there is", take(fd, good, 8), good);
    MUST(write(source, "yz", 2) == 2);
    tell("just enough", take(fd, border + PAGE - 2, 100), border + PAGE - 2);
    MUST(write(source, "0123456789", 10) == 10);
    struct iovec parts[] = {{good, 4}, {NULL, 4}};
    tell("half of it", readv(fd, parts, 2), good);
    tell("what there is", take(fd, good, 10), good);
    MUST(write(source, "0123456789", 10) == 10);
    tell("what fits", take(fd, border + PAGE - 3, 3), border + PAGE - 3);
    tell("what there is", take(fd, good, 10), good);
    // Far more room than there is to read, none of which has been touched.
    char *large = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(large != MAP_FAILED && write(source, "large", 5) == 5);
    tell("large", take(fd, large, 64 * PAGE), large);
    MUST(munmap(large, 64 * PAGE) == 0);
    tell("nothing there, nowhere", take(fd, nowhere, 8), NULL);
}

static void *writes(void *fd) {
    move_to(0);
    // Only matters if the reader waits: either way it reads the same.
    MUST(write(*(int *)fd, "late", 4) == 4);
    return NULL;
}

static void waits(int source, int fd) {
    char good[8];
    pthread_t writer;
    MUST(fcntl(fd, F_SETFL, 0) == 0);
    MUST(pthread_create(&writer, NULL, writes, &source) == 0);
    tell("waited for, nowhere", read(fd, nowhere, 8), NULL);
    MUST(pthread_join(writer, NULL) == 0);
    tell("what there is", read(fd, good, 8), good);
    close(source);
    tell("the end, nowhere", read(fd, nowhere, 8), NULL);
    close(fd);
}

static void whole(const char *name, int source, int fd, const void *data, long bytes) {
    char good[64];
    printf(" %s\n", name);
    for (int way = 0; way < 3; way++) {
        char *to = way == 0 ? NULL : way == 1 ? read_only : border + PAGE - 3;
        MUST(write(source, data, bytes) == bytes);
        tell("bad memory", read(fd, to, 8), NULL);
        tell("what there is", read(fd, good, 8), NULL);
    }
}

static void all(int made, int used) {
    move_to(made);
    int pipe_[2], pair[2], again[2], datagrams[2], packets[2], event = eventfd(0, EFD_NONBLOCK);
    MUST(pipe2(pipe_, O_NONBLOCK) == 0);
    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0);
    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, again) == 0);
    MUST(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, datagrams) == 0);
    MUST(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, packets) == 0);
    move_to(used);
    every_way("pipe", pipe_[1], pipe_[0], read);
    waits(pipe_[1], pipe_[0]);
    every_way("stream", pair[1], pair[0], read);
    waits(pair[1], pair[0]);
    every_way("stream, by recv", again[1], again[0], by_recv);
    waits(again[1], again[0]);
    whole("datagrams", datagrams[1], datagrams[0], "abcdefgh", 8);
    whole("packets", packets[1], packets[0], "abcdefgh", 8);
    whole("eventfd", event, event, &(uint64_t){3}, 8);
    int fds[] = {datagrams[0], datagrams[1], packets[0], packets[1], event};
    for (int i = 0; i < 5; i++)
        close(fds[i]);
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    border = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    read_only = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(border != MAP_FAILED && read_only != MAP_FAILED && munmap(border + PAGE, PAGE) == 0);
    int last = cpu_count() - 1;
    printf("here\n");
    all(0, 0);
    printf("elsewhere\n");
    all(0, last);
    printf("away\n");
    all(last, last);
    return 0;
}
