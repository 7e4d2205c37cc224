// Modes, owners, times, umask, statfs, access.
// cob: link=static,dynamic compare=host
#include "test.h"
#include <sys/statfs.h>
#include <sys/statvfs.h>

static void show(const char *path) {
    struct stat status;
    MUST(lstat(path, &status) == 0);
    printf("%s: mode %o uid %d gid %d size %ld mtime %ld.%09ld atime %ld\n", path, status.st_mode,
           status.st_uid == getuid(), status.st_gid == getgid(), S_ISDIR(status.st_mode) ? 0 : (long)status.st_size,
           status.st_mtim.tv_sec, status.st_mtim.tv_nsec, status.st_atim.tv_sec);
}

int main(void) {
    umask(027);
    printf("umask %o\n", umask(022));
    close(open("a", O_CREAT | O_RDWR, 0777));
    mkdir("d", 0777);
    struct timespec times[2] = {{1000, 5}, {2000000000, 123456789}};
    SHOW(utimensat(AT_FDCWD, "a", times, 0));
    SHOW(utimensat(AT_FDCWD, "d", times, 0));
    SHOW(utimensat(AT_FDCWD, "missing", times, 0));
    times[0].tv_nsec = 2000000000;
    SHOW(utimensat(AT_FDCWD, "a", times, 0));
    times[0].tv_nsec = UTIME_OMIT, times[1].tv_nsec = UTIME_OMIT;
    SHOW(utimensat(AT_FDCWD, "a", times, 0));
    show("a");
    SHOW(chmod("a", 04711));
    show("a");
    SHOW(chmod("missing", 0));
    SHOW(fchmodat(AT_FDCWD, "a", 0640, 0));
    int fd = open("a", O_RDWR);
    SHOW(fchmod(fd, 0600));
    SHOW(chown("a", -1, -1));
    SHOW(fchown(fd, getuid(), getgid()));
    SHOW(lchown("a", getuid(), -1));
    show("a");
    show("d");
    time_t before = time(NULL);
    SHOW(write(fd, "x", 1));
    struct stat status;
    fstat(fd, &status);
    printf("written now: %d\n", status.st_mtime >= before && status.st_mtime <= time(NULL) + 1);
    SHOW(futimens(fd, NULL));
    struct statx extended;
    SHOW(statx(AT_FDCWD, "a", 0, STATX_BASIC_STATS, &extended));
    printf("statx mode %o size %llu nlink %u\n", extended.stx_mode, extended.stx_size, extended.stx_nlink);
    SHOW(statx(AT_FDCWD, "missing", 0, STATX_BASIC_STATS, &extended));
    SHOW(statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &extended));
    struct statfs system;
    SHOW(statfs(".", &system));
    printf("names up to %ld\n", (long)system.f_namelen);
    SHOW(fstatfs(99, &system));
    SHOW(statfs("/proc", &system));
    printf("proc %lx\n", (long)system.f_type);
    SHOW(access("a", 8));
    SHOW(faccessat(AT_FDCWD, "a", W_OK, 0));
    SHOW(mknod("fifo", S_IFIFO | 0600, 0));
    show("d");
    lstat("fifo", &status);
    printf("fifo %o\n", status.st_mode);
    SHOW(pathconf("/", _PC_NAME_MAX));
}
