// Bad input to the files of /proc: opened, read, written and named in ways they are not made for, of processes that are here,
// elsewhere, dead or not there at all (see errnos-each.h).
// cob: link=static flags=-pthread kernels=1,4 compare=host timeout=600
#include "errnos-proc.h"
#include <sys/inotify.h>
#include <sys/uio.h>
#include <sys/xattr.h>

// Below /proc. `peer` is a process that lives on the last CPU, `thread` another thread of it.
static const char *const paths[] = {
    "self/stat", "self/statm", "self/status", "self/schedstat", "self/cmdline", "self/environ", "self/auxv", "self/limits",
    "self/io", "self/cgroup", "self/oom_score", "self/sessionid", "self/personality",
    "self/mounts", "self/mountinfo", "self/maps", "self/smaps", "self/comm", "self/clear_refs", "self/cwd", "self/exe",
    "self/fd", "self/fdinfo", "self/task", "self/net", "self/fdinfo/50", "peer", "peer/stat", "peer/status", "peer/cmdline",
    "peer/environ", "peer/auxv", "peer/limits", "peer/maps", "peer/comm", "peer/cwd", "peer/exe", "peer/fd", "peer/task",
    "peer/fdinfo/50", "thread", "thread/stat", "thread/status", "thread/comm", "thread/maps", "thread/fd", "self", "thread-self",
    "cpuinfo", "meminfo", "stat", "uptime", "loadavg", "version", "filesystems", "mounts", "sys", "sys/kernel", "sys/kernel/osrelease",
    "sys/kernel/version", "sys/kernel/cap_last_cap", "sys/kernel/random", "sys/kernel/random/uuid",
    "sys/kernel/random/boot_id", "sysvipc", "sysvipc/shm",
};

#define THE_PATH at(paths[thing])

static const char *below(const char *path, const char *name) {
    static char longer[400];
    snprintf(longer, sizeof longer, "%s%s", path, name);
    return longer;
}

#define THE_FILE opened(THE_PATH)

static int by_a_user(const char *path, int flags) {
    MUST(syscall(SYS_setresuid, 1000, 1000, 1000) == 0);
    return open(path, flags);
}

static void opening(void) {
    EACH_DONE(open(THE_PATH, O_RDONLY));
    EACH_DONE(open(THE_PATH, O_WRONLY | O_NOFOLLOW));
    EACH_DONE(open(THE_PATH, O_RDWR | O_NOFOLLOW));
    EACH_DONE(open(THE_PATH, O_ACCMODE | O_NOFOLLOW));
    EACH_DONE(open(THE_PATH, O_RDONLY | O_TRUNC | O_NOFOLLOW));
    EACH_DONE(open(THE_PATH, O_RDONLY | O_CREAT | O_NOFOLLOW, 0600));
    EACH_DONE(open(THE_PATH, O_RDONLY | O_CREAT | O_EXCL, 0600));
    EACH_DONE(open(THE_PATH, O_RDONLY | O_CREAT | O_DIRECTORY, 0600));
    EACH_DONE(open(THE_PATH, O_RDONLY | O_DIRECTORY));
    EACH_DONE(open(THE_PATH, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    EACH_DONE(open(THE_PATH, O_RDONLY | O_APPEND | O_NOATIME | O_NONBLOCK | O_SYNC));
    EACH_DONE(open(THE_PATH, O_RDONLY | O_DIRECT | O_NOFOLLOW));
    EACH_DONE(open(THE_PATH, O_RDWR | O_TMPFILE, 0600));
    EACH_DONE(open(THE_PATH, O_PATH | O_NOFOLLOW));
    EACH_DONE(open(below(THE_PATH, "/"), O_RDONLY));
    EACH_DONE(open(below(THE_PATH, "/nothing"), O_RDONLY));
    EACH_DONE(open(below(THE_PATH, "/nothing"), O_RDWR | O_CREAT, 0600));
    EACH_DONE(by_a_user(THE_PATH, O_RDONLY | O_NOFOLLOW));
    EACH_DONE(by_a_user(THE_PATH, O_WRONLY | O_NOFOLLOW));
}

static long execute(const char *path) {
    char *arguments[] = {"x", NULL};
    return execve(path, arguments, arguments + 1);
}

static void naming(void) {
    char value[8];
    EACH(unlink(THE_PATH));
    EACH(unlink(below(THE_PATH, "/nothing")));
    EACH(rmdir(below(THE_PATH, "/nothing")));
    EACH(mkdir(THE_PATH, 0700));
    EACH(mkdir(below(THE_PATH, "/nothing"), 0700));
    EACH(mknod(THE_PATH, S_IFIFO | 0600, 0));
    EACH(mknod(below(THE_PATH, "/nothing"), S_IFIFO | 0600, 0));
    EACH(symlink("x", THE_PATH));
    EACH(symlink("x", below(THE_PATH, "/nothing")));
    EACH(link(THE_PATH, "/proc/nothing"));
    EACH(link(THE_PATH, "here"));
    EACH(link("file", THE_PATH));
    EACH(rename(THE_PATH, "/proc/nothing"));
    EACH(rename(THE_PATH, "here"));
    EACH(rename("file", THE_PATH));
    EACH(rename(THE_PATH, THE_PATH));
    EACH(truncate(THE_PATH, 0));
    EACH(truncate(THE_PATH, 1));
    EACH(truncate(THE_PATH, -1));
    EACH(access(THE_PATH, X_OK));
    EACH(access(THE_PATH, W_OK));
    EACH(lchown(THE_PATH, -1, -1));
    EACH(execute(THE_PATH));
    EACH_DONE(readlink(THE_PATH, good, 100));
    EACH(readlink(THE_PATH, good, 0));
    EACH(readlink(THE_PATH, low, 100));
    EACH(readlink(THE_PATH, read_only, 100));
    EACH(readlink(below(THE_PATH, "/nothing"), good, 100));
    EACH(lstat(THE_PATH, low));
    EACH(lgetxattr(THE_PATH, "user.x", value, sizeof value));
    EACH(lsetxattr(THE_PATH, "user.x", "v", 1, 0));
    EACH(lremovexattr(THE_PATH, "user.x"));
    EACH(llistxattr(THE_PATH, NULL, 0));
}

static long reads_twice(int fd, const struct iovec *vector, int count) {
    MUST(lseek(fd, 0, SEEK_SET) == 0 || errno);
    return readv(fd, vector, count);
}

static void reading(void) {
    struct iovec second_wild[2] = {{good, 1}, {low, 10}}, first_wild[2] = {{low, 10}, {good, 10}},
                 nothing[2] = {{NULL, 0}, {low, 0}};
    EACH_DONE(read(THE_FILE, good, 4096));
    EACH(read(THE_FILE, good, 0));
    EACH(read(THE_FILE, low, 0));
    EACH(read(THE_FILE, null, 1));
    EACH(read(THE_FILE, read_only, 10));
    EACH(read(THE_FILE, kernel, 10));
    EACH(read(THE_FILE, good, huge));
    // Two bytes have room.
    EACH_DONE(read(THE_FILE, border, 10));
    EACH(reads_twice(THE_FILE, nothing, 2));
    EACH(reads_twice(THE_FILE, first_wild, 2));
    EACH_DONE(reads_twice(THE_FILE, second_wild, 2));
    EACH_DONE(pread(THE_FILE, good, 10, 1));
    EACH(pread(THE_FILE, good, 10, 1L << 40));
    EACH(pread(THE_FILE, good, 10, INT64_MAX - 10));
    EACH(pread(THE_FILE, good, 10, INT64_MAX - 5));
    EACH(pread(THE_FILE, good, 10, -1));
    EACH(pread(THE_FILE, low, 10, 0));
    EACH_DONE(entries(THE_FILE, good, 4096));
    EACH(entries(THE_FILE, good, 1));
    EACH(entries(THE_FILE, low, 4096));
    EACH(copy_file_range(THE_FILE, NULL, FILE_FD, NULL, 10, 0));
}

static void writing(void) {
    EACH(write(THE_FILE, good, 0));
    EACH(write(THE_FILE, null, 1));
    EACH(write(THE_FILE, low, 10));
    EACH(write(THE_FILE, good, 1));
    EACH(pwrite(THE_FILE, good, 1, -1));
    EACH(pwrite(THE_FILE, low, 1, 1L << 40));
    EACH(ftruncate(THE_FILE, 0));
    EACH(ftruncate(THE_FILE, -1));
    EACH(fallocate(THE_FILE, 0, 0, 1));
    EACH(fallocate(THE_FILE, 0, 0, 0));
    EACH(fsync(THE_FILE));
    EACH(fdatasync(THE_FILE));
    EACH(copy_file_range(FILE_FD, NULL, THE_FILE, NULL, 10, 0));
}

static void seeking(void) {
    EACH(lseek(THE_FILE, 0, SEEK_SET));
    EACH(lseek(THE_FILE, 5, SEEK_SET));
    EACH(lseek(THE_FILE, -1, SEEK_SET));
    EACH(lseek(THE_FILE, 1L << 40, SEEK_SET));
    EACH(lseek(THE_FILE, INT64_MAX, SEEK_SET));
    EACH(lseek(THE_FILE, 5, SEEK_CUR));
    EACH(lseek(THE_FILE, -1, SEEK_CUR));
    EACH(lseek(THE_FILE, 0, SEEK_END));
    EACH(lseek(THE_FILE, -1, SEEK_END));
    EACH(lseek(THE_FILE, 0, SEEK_DATA));
    EACH(lseek(THE_FILE, 0, SEEK_HOLE));
    EACH(lseek(THE_FILE, 0, 5));
}

static long maps(int fd, int protection, int flags) {
    return mmap(NULL, PAGE, protection, flags, fd, 0) == MAP_FAILED ? -1 : 0;
}

// Those of the machine could be changed for everybody.
static long changes_mode(int thing) {
    static const char *const kinds[] = {"self/", "peer", "thread/", "sys/"};
    for (int i = 0; i < 4; i++)
        if (strncmp(paths[thing], kinds[i], strlen(kinds[i])) == 0)
            return fchmod(THE_FILE, 0777);
    return 0;
}

static long watched(int fd) {
    struct epoll_event event = {EPOLLIN, {0}};
    return epoll_ctl(EPOLL, EPOLL_CTL_ADD, fd, &event);
}

static void otherwise(void) {
    EACH(maps(THE_FILE, PROT_READ, MAP_PRIVATE));
    EACH(maps(THE_FILE, PROT_READ | PROT_WRITE, MAP_SHARED));
    EACH(polled(THE_FILE));
    EACH(watched(THE_FILE));
    EACH(ioctl(THE_FILE, FIONREAD, 8));
    EACH(ioctl(THE_FILE, FIONREAD, GOOD));
    EACH(ioctl(THE_FILE, TIOCGWINSZ, 8));
    EACH(ioctl(THE_FILE, 0x12345678, 8));
    EACH(fchdir(THE_FILE) ? -1 : chdir("/tmp"));
    EACH(changes_mode(thing));
    EACH(posix_fadvise(THE_FILE, 0, 0, 77));
    EACH(readahead(THE_FILE, 0, 10));
    EACH(fcntl(THE_FILE, F_GETPIPE_SZ));
    EACH(fcntl(THE_FILE, F_GET_SEALS));
    EACH(fcntl(THE_FILE, F_SETFL, O_DIRECT));
    EACH(fstat(THE_FILE, low));
    EACH(inotify_add_watch(INOTIFY, THE_PATH, 0));
    EACH(syscall(SYS_execveat, THE_FILE, "", NULL, NULL, AT_EMPTY_PATH));
}

#define SETTINGS                                                                                                     \
    " sys/kernel/osrelease sys/kernel/version sys/kernel/cap_last_cap sys/kernel/random/uuid sys/kernel/random/boot_id "
#define MACHINE " cpuinfo meminfo stat uptime loadavg version filesystems sysvipc/shm "

static const struct exception not_shown[] = {
    // Memory that ends too early: some of Linux's files fill what there is, others nothing (docs/limits.md).
    {"border", " self/environ peer/environ " SETTINGS},
    {"second_wild", SETTINGS},
    // /proc can't be watched for changes (docs/limits.md).
    {"polled", " self/mounts self/mountinfo mounts "},
    {"watched", " self/mounts self/mountinfo " MACHINE SETTINGS},
    // These lead to files of the host, or to this program.
    {"execute", " self/exe peer/exe "},
    {"below", " self/cwd peer/cwd "},
    {"truncate", " self/exe peer/exe "},
    // What a process that was root has in /proc is not closed (docs/limits.md).
    {"by_a_user", " self/environ self/auxv self/io self/personality self/clear_refs self/comm "},
    // Linux knows that it can't be read before it looks at the memory.
    {"read(THE_FILE, kernel", " self/clear_refs "},
    {"read(THE_FILE, good, huge", " self/clear_refs "},
    {"nothing, 2", " self/clear_refs "},
    {NULL, NULL},
};

int main(int argc, char **argv) {
    exceptions = not_shown;
    prepare_proc();
    *peer = begin_peer();
    ask_about(paths, sizeof paths / sizeof paths[0]);
    opening();
    naming();
    reading();
    writing();
    seeking();
    otherwise();
    show_due();
    kill(*peer, SIGKILL);
    return 0;
}
