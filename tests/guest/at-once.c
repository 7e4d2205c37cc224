// Reads and writes that can be done at once, and those that begin so and must then wait for the rest.
// cob: link=static flags=-pthread compare=host
#include "test.h"
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

static char bytes[300000];

// Reads `wanted` bytes, a few at a time; how many were as written.
static void *drain(void *of) {
    int *ends = of, right = 0;
    char got[1000];
    for (int done = 0; done < ends[1];) {
        int count = read(ends[0], got, done + (int)sizeof got > ends[1] ? ends[1] - done : (int)sizeof got);
        if (count <= 0)
            break;
        for (int i = 0; i < count; i++)
            right += got[i] == bytes[done + i];
        done += count;
    }
    return (void *)(long)right;
}

// A write of more than there is room for waits for the rest.
static void waits_for_the_rest(const char *name, int from, int to, int before) {
    int ends[2] = {from, sizeof bytes};
    int first = before > 0 ? write(to, bytes, before) : 0;
    pthread_t reader;
    pthread_create(&reader, NULL, drain, ends);
    int rest = write(to, bytes + first, sizeof bytes - first);
    void *right;
    pthread_join(reader, &right);
    printf("%s: %d and %d, right %ld\n", name, first, rest, (long)right);
}

static void *sends_more(void *of) {
    int end = *(int *)of;
    for (int i = 0; i < 6; i++)
        usleep(2000), write(end, "x", 1);
    return NULL;
}

int main(void) {
    for (int i = 0; i < (int)sizeof bytes; i++)
        bytes[i] = i * 7 + i / 251;
    int ends[2];
    pipe(ends);
    waits_for_the_rest("pipe", ends[0], ends[1], 60000);
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    waits_for_the_rest("socket", ends[0], ends[1], 0);

    uint64_t numbers[2] = {5, 6};
    int event = eventfd(0, 0);
    SHOW(write(event, numbers, 16));
    SHOW(write(event, numbers, 8));
    SHOW(read(event, numbers, 16));
    printf("number %d %d\n", (int)numbers[0], (int)numbers[1]);
    fcntl(event, F_SETFL, O_NONBLOCK);
    SHOW(read(event, numbers, 8));

    // Four bytes are not enough for who wants ten.
    int least = 10;
    setsockopt(ends[0], SOL_SOCKET, SO_RCVLOWAT, &least, sizeof least);
    write(ends[1], "1234", 4);
    pthread_t sender;
    pthread_create(&sender, NULL, sends_more, &ends[1]);
    SHOW(read(ends[0], bytes, 100));
    pthread_join(sender, NULL);
    SHOW(recv(ends[0], bytes, 100, MSG_DONTWAIT));

    const char *name = "read-and-written";
    int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600), reader = open(name, O_RDONLY), writer = open(name, O_WRONLY);
    SHOW(write(file, bytes, 5000));
    SHOW(read(file, bytes, 10));
    SHOW(pread(file, bytes, 6000, 1000));
    SHOW(pread(file, bytes, 10, -1));
    SHOW(pwrite(file, bytes, 10, INT64_MAX - 5));
    SHOW(write(reader, bytes, 1));
    SHOW(read(writer, bytes, 1));
    SHOW(write(reader, bytes, 0));
    // The second page of the buffer is not there.
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(page + 4096, 4096);
    memset(page, 'p', 4096);
    SHOW(pwrite(file, page + 4000, 200, 0));
    SHOW(read(reader, page + 4090, 4) == 4 && lseek(reader, 0, SEEK_CUR) == 4);
    SHOW(read(reader, page + 4096, 4));
    SHOW(lseek(reader, 0, SEEK_CUR));
    struct rlimit limit = {5004, RLIM_INFINITY};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    SHOW(write(file, bytes, 10));
    SHOW(write(file, bytes, 10));
    // A socket tells an error once: its peer has gone without reading what was sent.
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    write(ends[0], "unread", 6);
    close(ends[1]);
    SHOW(read(ends[0], bytes, 10));
    SHOW(read(ends[0], bytes, 10));
    pipe(ends);
    SHOW(pread(ends[0], bytes, 1, 0));
    SHOW(pwrite(ends[1], bytes, 1, 0));
    close(ends[0]);
    signal(SIGPIPE, SIG_IGN);
    SHOW(write(ends[1], bytes, 1));
    unlink(name);
}
