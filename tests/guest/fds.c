// Descriptors: dup, dup2, dup3, fcntl, close-on-exec, limits, close_range, sharing of offsets.
// cob: link=static,dynamic compare=host
#include "test.h"
#include <sys/resource.h>

int main(void) {
    char buffer[8];
    int fd = open("file", O_CREAT | O_RDWR, 0600);
    SHOW(fd);
    SHOW(write(fd, "0123456789", 10));
    SHOW(dup(fd));
    SHOW(lseek(4, 3, SEEK_SET));
    SHOW(lseek(fd, 0, SEEK_CUR));
    SHOW(dup2(fd, 10));
    SHOW(dup2(fd, fd));
    SHOW(dup2(77, 11));
    SHOW(dup2(77, 77));
    SHOW(dup2(fd, -1));
    SHOW(dup3(fd, fd, 0));
    SHOW(dup3(fd, 12, O_CLOEXEC));
    SHOW(dup3(fd, 12, O_APPEND));
    SHOW(fcntl(12, F_GETFD));
    SHOW(fcntl(10, F_GETFD));
    SHOW(fcntl(10, F_SETFD, FD_CLOEXEC));
    SHOW(fcntl(fd, F_DUPFD, 20));
    SHOW(fcntl(fd, F_DUPFD_CLOEXEC, 20));
    SHOW(fcntl(fd, F_DUPFD, -1));
    SHOW(fcntl(fd, F_GETFL) & ~O_LARGEFILE);
    SHOW(fcntl(fd, F_SETFL, O_APPEND));
    SHOW(fcntl(4, F_GETFL) & O_APPEND);
    SHOW(fcntl(fd, 9999));
    SHOW(fcntl(88, F_GETFD));
    struct rlimit limit;
    SHOW(getrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = 25;
    SHOW(setrlimit(RLIMIT_NOFILE, &limit));
    SHOW(fcntl(fd, F_DUPFD, 25));
    SHOW(dup2(fd, 25));
    int opened = 0;
    while (dup(fd) >= 0)
        opened++;
    printf("opened %d, then %s\n", opened, error_name(errno));
    SHOW(pipe((int[2]){0}));
    limit.rlim_cur = limit.rlim_max + (limit.rlim_max != RLIM_INFINITY);
    limit.rlim_cur = 30, limit.rlim_max = 29;
    SHOW(setrlimit(RLIMIT_NOFILE, &limit));
    SHOW(close_range(6, 30, 0));
    SHOW(close_range(9, 5, 0));
    SHOW(read(10, buffer, 1));
    SHOW(dup(fd));
    // The offset is shared with a child.
    SHOW(fcntl(fd, F_SETFL, 0));
    SHOW(lseek(fd, 0, SEEK_SET));
    IN_CHILD("reader", MUST(read(fd, buffer, 4) == 4));
    SHOW(lseek(fd, 0, SEEK_CUR));
    // Locks.
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 5};
    SHOW(fcntl(fd, F_SETLK, &lock));
    IN_CHILD("locker", {
        struct flock other = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 2, .l_len = 1};
        SHOW(fcntl(fd, F_SETLK, &other));
        SHOW(fcntl(fd, F_GETLK, &other));
        printf("type %d start %ld length %ld mine %d\n", other.l_type, (long)other.l_start, (long)other.l_len,
               other.l_pid == getppid());
        other = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 7, .l_len = 1};
        SHOW(fcntl(fd, F_SETLK, &other));
    });
}
