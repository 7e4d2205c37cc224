// Record locks whose holders wait for each other on different kernels (EDEADLK), and flags of preadv2 and pwritev2.
// cob: link=static,dynamic compare=host
#define _GNU_SOURCE
#include "test.h"
#include <sys/file.h>
#include <sys/uio.h>

static int lock(int fd, int command, short kind, off_t start, off_t len) {
    struct flock l = {.l_type = kind, .l_whence = SEEK_SET, .l_start = start, .l_len = len};
    return fcntl(fd, command, &l);
}

// Each of three processes holds one byte and wants the next one's; the circle is closed exactly once.
static void circle(int here, int there) {
    int cpus[] = {here, there, (here + there) / 2};
    int fd = open("locked", O_RDWR | O_CREAT, 0644), ready[2], results[2], go[2];
    MUST(fd >= 0 && pipe(ready) == 0 && pipe(results) == 0 && pipe(go) == 0);
    fflush(stdout);
    pid_t children[3];
    for (int i = 0; i < 3; i++)
        if ((children[i] = fork()) == 0) {
            char byte = 'r';
            move_to(cpus[i]);
            MUST(lock(fd, F_SETLK, F_WRLCK, i, 1) == 0);
            MUST(write(ready[1], &byte, 1) == 1 && read(go[0], &byte, 1) == 1);
            int done = lock(fd, F_SETLKW, F_WRLCK, (i + 1) % 3, 1);
            byte = done == 0 ? 'l' : errno == EDEADLK ? 'd' : '?';
            MUST(write(results[1], &byte, 1) == 1);
            _exit(0);
        }
    char bytes[3];
    for (int i = 0; i < 3; i++)
        MUST(read(ready[0], bytes, 1) == 1);
    MUST(write(go[1], "ggg", 3) == 3);
    int deadlocks = 0, locked = 0;
    for (int i = 0; i < 3; i++) {
        MUST(read(results[0], bytes, 1) == 1);
        deadlocks += bytes[0] == 'd';
        locked += bytes[0] == 'l';
    }
    for (int i = 0; i < 3; i++)
        MUST(waitpid(children[i], NULL, 0) == children[i]);
    printf("circle: %d heard EDEADLK, %d got the lock\n", deadlocks, locked);
    close(fd);
    for (int i = 0; i < 2; i++) {
        close(ready[i]);
        close(results[i]);
        close(go[i]);
    }
    SHOW(unlink("locked"));
}

static void descriptions(int here, int there) {
    move_to(here);
    int a = open("locked", O_RDWR | O_CREAT, 0644), b = open("locked", O_RDWR), copy = dup(a);
    MUST(a >= 0 && b >= 0);
    move_to(there);
    SHOW(lock(a, F_OFD_SETLK, F_WRLCK, 0, 10));
    SHOW(lock(copy, F_OFD_SETLK, F_WRLCK, 5, 10));
    SHOW(lock(b, F_OFD_SETLK, F_RDLCK, 12, 1));
    SHOW(lock(b, F_SETLK, F_RDLCK, 12, 1));
    SHOW(flock(a, LOCK_EX));
    SHOW(flock(b, LOCK_SH | LOCK_NB));
    move_to(here);
    SHOW(flock(copy, LOCK_UN));
    SHOW(flock(b, LOCK_SH | LOCK_NB));
    struct flock l = {.l_type = F_WRLCK, .l_len = 0};
    SHOW(fcntl(b, F_OFD_GETLK, &l));
    printf("in the way: type %d, %ld+%ld, pid %d\n", l.l_type, (long)l.l_start, (long)l.l_len, l.l_pid);
    close(a);
    SHOW(lock(b, F_OFD_SETLK, F_RDLCK, 12, 1));
    close(copy);
    SHOW(lock(b, F_OFD_SETLK, F_RDLCK, 12, 1));
    close(b);
    SHOW(unlink("locked"));
}

static void flags(int here, int there) {
    move_to(here);
    int fd = open("flags", O_RDWR | O_CREAT, 0644), ends[2];
    MUST(fd >= 0 && pipe(ends) == 0);
    move_to(there);
    char data[16] = "0123456789";
    struct iovec v = {data, 10}, two = {data, 2};
    SHOW(pwritev2(fd, &v, 1, 0, RWF_DSYNC));
    SHOW(pwritev2(fd, &two, 1, 0, RWF_APPEND));
    SHOW(lseek(fd, 0, SEEK_CUR));
    SHOW(pwritev2(fd, &two, 1, -1, RWF_APPEND));
    SHOW(lseek(fd, 0, SEEK_CUR));
    SHOW(pwritev2(fd, &two, 1, -1, RWF_SYNC | RWF_HIPRI));
    SHOW(lseek(fd, 0, SEEK_CUR));
    SHOW(preadv2(fd, &v, 1, 10, RWF_NOWAIT));
    printf("%.6s\n", data);
    SHOW(preadv2(fd, &v, 1, -1, 0));
    SHOW(preadv2(ends[0], &v, 1, -1, RWF_NOWAIT));
    SHOW(preadv2(fd, &v, 1, 0, 1 << 20));
    SHOW(pwritev2(fd, &v, 1, 0, 1 << 20));
    MUST(write(ends[1], "abc", 3) == 3);
    SHOW(preadv2(ends[0], &v, 1, -1, RWF_NOWAIT));
    close(ends[0]);
    close(ends[1]);
    close(fd);
    SHOW(unlink("flags"));
}

// What close(2) has answered is closed for everybody: the end of a pipe, and the last writer of a fifo.
static void closing(int here, int there) {
    for (int i = 0; i < 20; i++) {
        int ends[2];
        move_to(here);
        MUST(pipe2(ends, O_NONBLOCK) == 0);
        move_to(there);
        MUST(write(ends[1], "x", 1) == 1);
        MUST(close(ends[1]) == 0);
        move_to(here);
        char bytes[4];
        MUST(read(ends[0], bytes, 4) == 1);
        MUST(read(ends[0], bytes, 4) == 0);
        close(ends[0]);
    }
    printf("closed is closed\n");
}

int main(void) {
    int last = cpu_count() - 1;
    circle(0, last);
    circle(last, 0);
    descriptions(0, last);
    descriptions(last, 0);
    flags(0, last);
    flags(last, 0);
    closing(0, last);
    closing(last, 0);
}
