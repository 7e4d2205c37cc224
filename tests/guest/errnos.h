// Bad input to system calls: each row of a table is a call with good arguments. Then one argument after the other is made
// bad in every way of its kind, flags bit by bit, and any two arguments at once (which shows the order of the checks). Every
// attempt is made a second time by a thread that has moved to the last CPU, and with it to another kernel than its
// process's home: a different answer is a line of its own. The host's answers are the expected ones.
#pragma once
#include "test.h"
#include <ftw.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>

// What an argument is: f descriptor, g one of a file with a name, d directory that a path starts from, r memory that is read, w memory that is
// written, t a time (never missing, or the call would wait), s a path, m another string, n a length, l one of a mapping, x flags,
// e one of a list (no single bits are tried: they could do harm), p a process, P the same but good is the caller, a an
// address of a mapping, o an object that has an id, c as it is.
struct argument {
    char kind;
    long good;
};

struct row {
    const char *name;
    long number;
    // The result differs from run to run: only whether it worked is shown.
    int varies;
    struct argument arguments[6];
    // What is done in the child right before; such a row's attempts have a child each.
    void (*before)(void);
};

// Something that exists, with an id, and the id of one that existed.
struct object {
    long id, removed;
};

// Memory at fixed places, far from the end of the address space, so that long lengths are looked at; nothing lies behind it.
#define GOOD 0x1000000000
#define ZERO 0x1100000000
#define READ_ONLY 0x1200000000
#define BORDER 0x1300000000
#define MAPPING 0x1400000000
#define SEGMENT 0x1500000000
#define MAPPED_PAGES 512

enum {
    FILE_FD = 50,
    PIPE_READ,
    PIPE_WRITE,
    DIRECTORY,
    SOCKET,
    EVENT,
    EPOLL,
    TIMER,
    PIDFD,
    OTHER_SOCKET,
    PATH,
    READABLE,
    WRITABLE,
    INOTIFY,
    SIGNALS,
    DEVICE,
    SPARE = 70,
    LISTENER,
    MEMFD,
    MISSING = 777
};

#define R {'r', GOOD}
#define Z {'r', ZERO}
#define AT(object) {'r', (long)(object)}
#define INTO(object) {'w', (long)(object)}
#define W {'w', GOOD}
#define C(value) {'c', (long)(value)}
#define F(fd) {'f', fd}
#define G(fd) {'g', fd}
#define D {'d', DIRECTORY}
#define N(length) {'n', length}
#define X(flags) {'x', flags}
#define E(value) {'e', value}
#define P(pid) {'p', pid}
#define SELF {'P', 0}
#define S(path) {'s', (long)(path)}
#define M(string) {'m', (long)(string)}
#define A {'a', MAPPING}
#define T {'t', ZERO}
#define L(length) {'l', length}
#define O(object) {'o', (long)(object)}
#define ROW(name, ...) {#name, SYS_##name, 0, {__VA_ARGS__}}
// After that has been done in the child.
#define AFTER(done, name, ...) {#name, SYS_##name, 0, {__VA_ARGS__}, done}
// Its result varies.
#define ANY(name, ...) {#name, SYS_##name, 1, {__VA_ARGS__}}

// A process that has been waited for.
static long dead;
static char long_path[3 * 4096], long_component[300];

// Newer than the C library.
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

struct bad {
    const char *name;
    long value;
    // Also tried together with another argument's.
    int paired;
};

#define MOST_BAD 24

// The bad values of a kind.
static int bad_values(const struct argument *argument, struct bad *bad) {
    int count = 0;
#define BAD(name, value) bad[count++] = (struct bad){name, (long)(value), 0}
#define PAIR(name, value) bad[count++] = (struct bad){name, (long)(value), 1}
    switch (argument->kind) {
    case 'f':
        PAIR("closed", MISSING);
        PAIR("directory", DIRECTORY);
        PAIR("O_PATH", PATH);
        BAD("-1", -1);
        BAD("high", 0x7fffffff);
        BAD("beyond int", 1L << 32 | MISSING);
        BAD("file", FILE_FD);
        BAD("readable", READABLE);
        BAD("writable", WRITABLE);
        BAD("pipe's read end", PIPE_READ);
        BAD("pipe's write end", PIPE_WRITE);
        BAD("socket", SOCKET);
        BAD("listener", LISTENER);
        BAD("memfd", MEMFD);
        BAD("event", EVENT);
        BAD("epoll", EPOLL);
        BAD("timer", TIMER);
        BAD("signals", SIGNALS);
        // No pidfd: newer Linux gives it a file system of its own, where it looks like a regular file.
        BAD("inotify", INOTIFY);
        BAD("device", DEVICE);
        break;
    case 'g':
        PAIR("closed", MISSING);
        PAIR("directory", DIRECTORY);
        PAIR("O_PATH", PATH);
        BAD("-1", -1);
        BAD("readable", READABLE);
        BAD("writable", WRITABLE);
        break;
    case 'd':
        PAIR("closed", MISSING);
        PAIR("file", FILE_FD);
        BAD("-1", -1);
        BAD("here", AT_FDCWD);
        BAD("pipe", PIPE_READ);
        BAD("O_PATH of a file", PATH);
        break;
    case 'w':
        PAIR("read-only", READ_ONLY);
        // Fall through.
    case 'r':
        BAD("null", 0);
        // Fall through.
    case 't':
        PAIR("low", 8);
        PAIR("kernel", 0xffff888000000000);
        BAD("not canonical", 0x8000000000000000);
        BAD("last page", 0x7ffffffff000);
        BAD("border", BORDER + PAGE - 1);
        BAD("border - 1", BORDER + PAGE - 2);
        BAD("-1", -1);
        break;
    case 's':
        BAD("null", 0);
        PAIR("low", 8);
        BAD("kernel", 0xffff888000000000);
        PAIR("empty", ZERO);
        BAD("long", long_path);
        BAD("long component", long_component);
        PAIR("border", BORDER + PAGE - 2);
        BAD("file", "file");
        BAD("below a file", "file/x");
        BAD("file and slash", "file/");
        BAD("loop", "loop");
        BAD("below a loop", "loop/x");
        BAD("dangling", "dangling");
        BAD("missing", "missing");
        BAD("below the missing", "missing/x");
        BAD("directory", "directory");
        BAD("hollow", "hollow");
        BAD("hollow and slash", "hollow/");
        BAD("here", ".");
        BAD("ends in a dot", "hollow/.");
        BAD("ends in dots", "hollow/..");
        break;
    case 'm':
        BAD("null", 0);
        PAIR("low", 8);
        BAD("kernel", 0xffff888000000000);
        PAIR("empty", ZERO);
        BAD("long", long_path);
        BAD("component", long_component);
        BAD("border", BORDER + PAGE - 2);
        break;
    case 'l':
        PAIR("0", 0);
        PAIR("-1", -1);
        BAD("1", 1);
        BAD("wraps", -MAPPING);
        BAD("2^47", 1L << 47);
        BAD("2^62", 1L << 62);
        BAD("long max", 0x7fffffffffffffff);
        break;
    case 'n':
        PAIR("0", 0);
        PAIR("-1", -1);
        BAD("1", 1);
        BAD("1025", 1025);
        BAD("int max", 0x7fffffff);
        BAD("2^31", 0x80000000);
        BAD("2^32", 1L << 32);
        BAD("2^62", 1L << 62);
        BAD("long max", 0x7fffffffffffffff);
        BAD("long min", 1UL << 63);
        break;
    case 'x':
    case 'e':
        PAIR("-1", -1);
        PAIR("1000", 1000);
        BAD("int min", 0x80000000);
        BAD("beyond int", 1L << 32);
        break;
    case 'P':
        BAD("0", 0);
        // Fall through.
    case 'p':
        PAIR("-1", -1);
        BAD("dead", dead);
        PAIR("nobody", 4194303);
        BAD("-nobody", -4194303L);
        BAD("int min", 0x80000000);
        BAD("huge", 0x7fffffff);
        break;
    case 'o':
        PAIR("removed", ((const struct object *)argument->good)->removed);
        PAIR("-1", -1);
        BAD("another", ((const struct object *)argument->good)->id + 12345678);
        BAD("int max", 0x7fffffff);
        BAD("int min", 0x80000000);
        BAD("beyond int", ((const struct object *)argument->good)->id | 1L << 32);
        break;
    case 'a':
        PAIR("odd", MAPPING + 1);
        PAIR("not mapped", MAPPING + MAPPED_PAGES * PAGE);
        BAD("null", 0);
        BAD("kernel", 0xffff888000000000);
        BAD("wrapping", -4096);
        BAD("last page", 0x7ffffffff000);
        BAD("beyond the last", 0x800000000000);
        BAD("last of the mapping", MAPPING + (MAPPED_PAGES - 1) * PAGE);
        break;
    }
    return count;
}

static void *map(long at, size_t pages, int protection) {
    void *got = mmap((void *)at, pages * PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    MUST(got == (void *)at);
    return got;
}

static void put(int fd, int wanted) {
    MUST(fd >= 0 && dup3(fd, wanted, 0) == wanted);
    close(fd);
}

// Calls that change names need these names again afterwards.
static void make_names(void) {
    mkdir("directory", 0755);
    mkdir("hollow", 0755);
    close(open("directory/inner", O_CREAT | O_RDWR, 0644));
    symlink("loop", "loop");
    symlink("nothing", "dangling");
    int fd = open("file", O_CREAT | O_RDWR, 0644);
    MUST(fd >= 0 && ftruncate(fd, 100) == 0);
    put(fd, FILE_FD);
    put(open("file", O_RDONLY), READABLE);
    put(open("file", O_WRONLY), WRITABLE);
    put(open("file", O_PATH), PATH);
}

static int delete(const char *path, const struct stat *status, int kind, struct FTW *where) {
    return where->level == 0 ? 0 : remove(path);
}

static void prepare(void) {
    memset(map(GOOD, 4, PROT_READ | PROT_WRITE), 0, 4 * PAGE);
    map(ZERO, 4, PROT_READ | PROT_WRITE);
    map(READ_ONLY, 4, PROT_READ);
    memset(map(BORDER, 1, PROT_READ | PROT_WRITE), 'b', PAGE);
    map(MAPPING, MAPPED_PAGES, PROT_READ | PROT_WRITE);
    memset(long_path, 'n', sizeof long_path - 1);
    memset(long_component, 'n', sizeof long_component - 1);
    *(int *)GOOD = 1;
    dead = fork();
    if (dead == 0)
        _exit(0);
    MUST(dead > 0 && waitpid(dead, NULL, 0) == dead);
    char here[] = "errnos-XXXXXX";
    MUST(mkdtemp(here) && chdir(here) == 0);
    make_names();
    put(open("/dev/null", O_RDWR), DEVICE);
    put(open(".", O_RDONLY | O_DIRECTORY), DIRECTORY);
    put(syscall(SYS_pidfd_open, getpid(), 0), PIDFD);
}

// What a table needs besides: made whenever the rest is made anew, and in each child.
static void (*make_more)(void), (*begin_child)(void);

// Whose bytes do not matter, but their length and positions do.
static const int files[] = {FILE_FD, READABLE, WRITABLE, DIRECTORY, DEVICE, MEMFD};

static int is_file(int fd) {
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (files[i] == fd)
            return 1;
    return 0;
}

// Open files are shared with the children: what one left behind must not be seen by the next.
static void restore(int names) {
    unlink("nobody");
    if (make_more)
        make_more();
    if (names) {
        MUST(nftw(".", delete, 20, FTW_DEPTH | FTW_PHYS) == 0);
        make_names();
    }
    int pipes[2], sockets[2];
    MUST(pipe2(pipes, O_NONBLOCK) == 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets) == 0);
    put(pipes[0], PIPE_READ);
    put(pipes[1], PIPE_WRITE);
    put(sockets[0], SOCKET);
    put(sockets[1], OTHER_SOCKET);
    put(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0), LISTENER);
    MUST(bind(LISTENER, &(struct sockaddr){.sa_family = AF_UNIX}, sizeof(sa_family_t)) == 0 && listen(LISTENER, 1) == 0);
    uint64_t none = 0;
    put(syscall(SYS_signalfd4, -1, &none, 8, O_NONBLOCK), SIGNALS);
    put(syscall(SYS_eventfd2, 0, O_NONBLOCK), EVENT);
    put(epoll_create1(0), EPOLL);
    put(syscall(SYS_timerfd_create, 1, O_NONBLOCK), TIMER);
    put(inotify_init1(O_NONBLOCK), INOTIFY);
    put(syscall(SYS_memfd_create, "memory", MFD_ALLOW_SEALING), MEMFD);
    MUST(ftruncate(FILE_FD, 100) == 0 && ftruncate(MEMFD, 100) == 0);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        lseek(files[i], 0, SEEK_SET);
        MUST(fcntl(files[i], F_SETFL, 0) == 0);
        flock(files[i], LOCK_UN);
        fcntl(files[i], F_OFD_SETLK, &(struct flock){.l_type = F_UNLCK});
    }
}

// Answers that are the host's own affair (its file system, its missing privileges), or where docs/limits.md says that Cob
// differs: the attempts of a row whose name contains `what`. Each table has its own list, which ends with NULL.
struct left_out {
    const char *row, *what;
};

static const struct left_out *left_out;

static int is_left_out(const char *row, const char *what) {
    for (const struct left_out *entry = left_out; entry && entry->row; entry++)
        if (strcmp(entry->row, row) == 0 && strstr(what, entry->what))
            return 1;
    return 0;
}
static int table_changes_names;

// One call that is made: a row's, with bad values in the place of at most two arguments.
struct attempt {
    short row;
    // The arguments, or -1; for a flag that is turned over, `bit` says which.
    signed char first, second, bit;
    unsigned char bad[2];
};

#define MOST_ATTEMPTS 8192

// What came of an attempt.
struct answer {
    // 0 when there is none; a signal, or an exit status, of the child that it ended.
    char made, signal, ended;
    short error, status;
    long result;
};

// Shared with the children: the attempt that is next, whether its call has begun, whether the last one may have changed
// something, and the answers here and elsewhere.
static struct {
    int at, calling, changed;
    struct answer answers[2][MOST_ATTEMPTS];
} *made;

static struct attempt *attempts;
static int attempt_count;

static long good_value(const struct argument *argument) {
    if (argument->kind == 'P')
        return getpid();
    return argument->kind == 'o' ? ((const struct object *)argument->good)->id : argument->good;
}

static void attempt_values(const struct row *row, const struct attempt *attempt, long *values) {
    struct bad bad[MOST_BAD];
    for (int i = 0; i < 6; i++) {
        values[i] = good_value(&row->arguments[i]);
        if (i != attempt->first && i != attempt->second)
            continue;
        if (attempt->bit >= 0) {
            values[i] ^= 1L << attempt->bit;
        } else {
            bad_values(&row->arguments[i], bad);
            values[i] = bad[attempt->bad[i == attempt->second]].value;
        }
    }
}

static void attempt_words(const struct row *row, const struct attempt *attempt, char *words, size_t room) {
    struct bad bad[2][MOST_BAD];
    if (attempt->bit >= 0) {
        snprintf(words, room, "%d bits", attempt->first);
    } else if (attempt->first < 0) {
        snprintf(words, room, "good");
    } else {
        bad_values(&row->arguments[attempt->first], bad[0]);
        const char *one = bad[0][attempt->bad[0]].name;
        if (attempt->second < 0) {
            snprintf(words, room, "%d %s", attempt->first, one);
        } else {
            bad_values(&row->arguments[attempt->second], bad[1]);
            snprintf(words, room, "%d %s, %d %s", attempt->first, one, attempt->second, bad[1][attempt->bad[1]].name);
        }
    }
}

// Calls that change nothing but memory when they work, and that no later one can tell.
static int only_looks(const struct row *row, const long *values) {
    static const short calls[] = {
        SYS_stat, SYS_fstat, SYS_lstat, SYS_newfstatat, SYS_statx, SYS_statfs, SYS_fstatfs, SYS_access, SYS_faccessat, SYS_faccessat2,
        SYS_readlink, SYS_readlinkat, SYS_getcwd, SYS_poll, SYS_ppoll, SYS_select, SYS_pselect6, SYS_epoll_wait, SYS_epoll_pwait,
        SYS_epoll_pwait2, SYS_pread64, SYS_preadv, SYS_readahead, SYS_fadvise64, SYS_sync_file_range, SYS_fsync, SYS_fdatasync, SYS_syncfs,
        SYS_sync, SYS_clock_gettime, SYS_clock_getres, SYS_gettimeofday, SYS_time, SYS_times, SYS_getitimer, SYS_timerfd_gettime,
        SYS_timer_gettime, SYS_timer_getoverrun, SYS_nanosleep, SYS_clock_nanosleep, SYS_sched_getaffinity, SYS_sched_getscheduler,
        SYS_sched_getparam, SYS_sched_getattr, SYS_sched_get_priority_max, SYS_sched_get_priority_min, SYS_sched_rr_get_interval,
        SYS_sched_yield, SYS_getrlimit, SYS_getrusage, SYS_getgroups, SYS_getresuid, SYS_getresgid, SYS_getuid, SYS_getgid, SYS_geteuid,
        SYS_getegid, SYS_capget, SYS_uname, SYS_sysinfo, SYS_getrandom, SYS_getcpu, SYS_getpid, SYS_getppid, SYS_gettid, SYS_getpgrp,
        SYS_getpgid, SYS_getsid, SYS_getpriority, SYS_rt_sigpending, SYS_get_robust_list, SYS_process_vm_readv, SYS_getsockname,
        SYS_getpeername, SYS_getsockopt, SYS_mincore, SYS_utime, SYS_utimes, SYS_futimesat, SYS_utimensat,
    };
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        if (calls[i] == row->number)
            return 1;
    int futex = values[1] & 127;
    return row->number == SYS_futex && (futex < 6 || futex == 9 || futex == 10);
}

static int makes_descriptor(const struct row *row, const long *values) {
    switch (row->number) {
    case SYS_open:
        return (values[1] & (O_CREAT | O_TRUNC)) == 0;
    case SYS_openat:
        return (values[2] & (O_CREAT | O_TRUNC)) == 0;
    case SYS_signalfd:
    case SYS_signalfd4:
        return (int)values[0] == -1;
    case SYS_fcntl:
        return (int)values[1] == F_DUPFD || (int)values[1] == F_DUPFD_CLOEXEC;
    case SYS_openat2:
    case SYS_dup:
    case SYS_eventfd:
    case SYS_eventfd2:
    case SYS_epoll_create:
    case SYS_epoll_create1:
    case SYS_timerfd_create:
    case SYS_inotify_init:
    case SYS_inotify_init1:
    case SYS_memfd_create:
    case SYS_pidfd_open:
    case SYS_pidfd_getfd:
    case SYS_socket:
        return 1;
    }
    return 0;
}

// What System V's calls make outlives the child.
static void remove_ipc(long number, int id) {
    if (number == SYS_shmget)
        syscall(SYS_shmctl, id, 0, NULL);
    if (number == SYS_semget)
        syscall(SYS_semctl, id, 0, 0);
    if (number == SYS_msgget)
        syscall(SYS_msgctl, id, 0, NULL);
}

static int take_back_fcntl(int fd, int command) {
    switch (command) {
    case F_GETFL:
    case F_GETFD:
    case F_GETLK:
    case F_OFD_GETLK:
    case F_GETPIPE_SZ:
    case F_GETOWN:
    case F_GETOWN_EX:
    case F_GETSIG:
    case F_GET_SEALS:
        return 1;
    case F_SETFD:
        return fcntl(fd, F_SETFD, 0) == 0;
    case F_SETFL:
        return fcntl(fd, F_SETFL, is_file(fd) ? 0 : O_NONBLOCK) == 0;
    case F_SETLK:
    case F_SETLKW:
    case F_OFD_SETLK:
        return fcntl(fd, command, &(struct flock){.l_type = F_UNLCK}) == 0;
    }
    return 0;
}

// Takes back what a call did that worked, where a child of its own would cost more.
static int take_back(const struct row *row, const long *values, long result) {
    if (makes_descriptor(row, values))
        return close((int)result) == 0;
    int position = 0, bytes = 0, chown = 1;
    switch (row->number) {
    case SYS_dup2:
    case SYS_dup3:
        return values[0] == values[1] || (values[1] == SPARE && close(SPARE) == 0);
    case SYS_pipe:
    case SYS_pipe2:
        return close(((int *)values[0])[0]) == 0 && close(((int *)values[0])[1]) == 0;
    case SYS_fchownat:
        chown++;
        // Fall through.
    case SYS_chown:
    case SYS_lchown:
    case SYS_fchown:
        return (int)values[chown] == -1 && (int)values[chown + 1] == -1;
    case SYS_fcntl:
        return take_back_fcntl((int)values[0], (int)values[1]);
    case SYS_ioctl:
        switch ((unsigned)values[1]) {
        case FIONREAD:
            return 1;
        case FIONBIO:
            return take_back_fcntl((int)values[0], F_SETFL);
        case FIOCLEX:
        case FIONCLEX:
            return take_back_fcntl((int)values[0], F_SETFD);
        }
        return 0;
    case SYS_fchmod:
        return fchmod((int)values[0], 0755) == 0;
    case SYS_flock:
        return flock((int)values[0], LOCK_UN) == 0;
    case SYS_epoll_ctl:
        return (int)values[1] == EPOLL_CTL_ADD && epoll_ctl((int)values[0], EPOLL_CTL_DEL, (int)values[2], NULL) == 0;
    case SYS_semget:
    case SYS_msgget:
    case SYS_shmget:
        remove_ipc(row->number, (int)result);
        return 1;
    case SYS_semctl:
        return (int)values[2] == IPC_STAT || (int)values[2] == IPC_INFO || ((int)values[2] >= GETPID && (int)values[2] <= GETZCNT);
    case SYS_msgctl:
    case SYS_shmctl:
        return (int)values[1] == IPC_STAT || (int)values[1] == IPC_INFO;
    case SYS_shmat:
        return (values[2] & SHM_REMAP) == 0 && shmdt((void *)result) == 0;
    case SYS_close_range:
        // Nothing is open there.
        return values[0] >= 900;
    case SYS_write:
    case SYS_writev:
    case SYS_pwrite64:
    case SYS_pwritev:
    case SYS_pwritev2:
        bytes = 1;
        // Fall through.
    case SYS_read:
    case SYS_readv:
    case SYS_preadv2:
    case SYS_lseek:
    case SYS_getdents:
    case SYS_getdents64:
        position = is_file(values[0]);
    }
    return position && lseek(values[0], 0, SEEK_SET) == 0 && (!bytes || (ftruncate(FILE_FD, 100) == 0 && ftruncate(MEMFD, 100) == 0));
}

// Where a call that fails may have changed mappings before it did.
static int may_half_work(const struct row *row, int error) {
    switch (row->number) {
    case SYS_mremap:
        return 1;
    case SYS_munmap:
    case SYS_mprotect:
    case SYS_madvise:
    case SYS_mlock:
    case SYS_mlock2:
        return error == ENOMEM;
    }
    return 0;
}

// The program's variables as they were when the first child was made. What calls write there must not be seen by the next.
extern char __data_start[], _end[];
static char *variables;

static void keep_variables(void) {
    size_t length = _end - __data_start;
    variables = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(variables != MAP_FAILED);
    memcpy(variables, __data_start, length);
}

// Only what differs is written: a write would copy the page.
static void reset(char *to, const char *from, size_t length) {
    for (size_t at = 0; at < length; at += PAGE) {
        size_t part = length - at < PAGE ? length - at : PAGE;
        if (memcmp(to + at, from + at, part) != 0)
            memcpy(to + at, from + at, part);
    }
}

static void reset_memory(const char *zeros) {
    char *border = (char *)BORDER;
    for (int i = 0; i < PAGE; i++)
        if (border[i] != 'b')
            border[i] = 'b';
    reset(__data_start, variables, _end - __data_start);
    reset((char *)ZERO, zeros, 4 * PAGE);
    reset((char *)GOOD + PAGE, zeros, 3 * PAGE);
    int one = 1;
    if (*(int *)GOOD != one || memcmp((char *)GOOD + sizeof one, zeros, PAGE - sizeof one) != 0) {
        memset((char *)GOOD, 0, PAGE);
        *(int *)GOOD = one;
    }
}

// The call itself, in line: what vfork returns to twice must still be there.
static inline __attribute__((always_inline)) long call(long number, const long *values) {
    long result;
    register long fourth __asm__("r10") = values[3];
    register long fifth __asm__("r8") = values[4];
    register long sixth __asm__("r9") = values[5];
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"(number), "D"(values[0]), "S"(values[1]), "d"(values[2]), "r"(fourth), "r"(fifth), "r"(sixth)
                     : "rcx", "r11", "memory");
    return result;
}

// Returns from a signal whose frame is there. Whatever lies there, it is not this.
static long return_from(long stack) {
    long result = SYS_rt_sigreturn;
    __asm__ volatile("mov %%rsp, %%rbx; mov %1, %%rsp; syscall; mov %%rbx, %%rsp" : "+a"(result) : "r"(stack) : "rbx", "rcx", "r11", "memory");
    return result;
}

static int makes_processes(long number) {
    return number == SYS_fork || number == SYS_vfork || number == SYS_clone || number == SYS_clone3;
}

// Makes attempts from made->at on, until one may have changed something: a call that failed has changed nothing.
static void make_attempts(const struct row *rows, int away) {
    const struct row *row = NULL;
    // Not one of the variables, and not on the heap.
    static char *zeros;
    zeros = mmap(NULL, 4 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST((void *)zeros != MAP_FAILED);
    char *const none = zeros;
    // Nobody else hears of kill(0).
    setpgid(0, 0);
    if (begin_child)
        begin_child();
    if (away)
        move_to(cpu_count() - 1);
    keep_variables();
    for (int at = made->at; at < attempt_count; at++) {
        const struct attempt *attempt = &attempts[at];
        if (away && (attempt->bit >= 0 || attempt->second >= 0)) {
            made->at = at + 1;
            continue;
        }
        if (row != &rows[attempt->row])
            alarm(4);
        row = &rows[attempt->row];
        long values[6];
        attempt_values(row, attempt, values);
        // This also runs on a machine that is in use: never a signal to everybody.
        MUST(row->number != SYS_kill || (int)values[0] != -1 || values[1] <= 0 || values[1] > 64);
        struct answer *answer = &made->answers[away][at];
        int process = makes_processes(row->number);
        made->changed = made->calling = 1;
        if (row->before)
            row->before();
        long result = row->number == SYS_rt_sigreturn ? return_from(values[0]) : call(row->number, values);
        if (process && result == 0)
            call(SYS_exit_group, (long[6]){0});
        int failed = result < 0 && result > -4096;
        answer->error = failed ? -result : 0;
        answer->result = failed ? -1 : result;
        answer->made = 1;
        made->calling = 0;
        if (process && result > 0)
            waitpid(result, NULL, __WALL);
        // What was received is lost, even if there was no place for it.
        int lost = row->number == SYS_msgrcv && answer->error == EFAULT;
        made->changed = lost || (!failed && !only_looks(row, values) && !take_back(row, values, result));
        made->at = at + 1;
        if (made->changed || row->before || may_half_work(row, answer->error))
            return;
        reset_memory(none);
    }
}

// A child goes as far as it can; whatever it has done to itself is gone with it.
static void run_attempts(const struct row *rows, int away) {
    for (made->at = 0; made->at < attempt_count;) {
        if (made->changed)
            restore(table_changes_names);
        made->changed = 0;
        int before = made->at;
        fflush(stdout);
        pid_t child = fork();
        MUST(child >= 0);
        if (child == 0) {
            make_attempts(rows, away);
            _exit(0);
        }
        int status;
        MUST(waitpid(child, &status, __WALL) == child);
        if (made->calling) {
            struct answer *answer = &made->answers[away][made->at++];
            answer->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
            answer->ended = !answer->signal;
            answer->status = WEXITSTATUS(status);
            made->calling = 0;
        }
        MUST(made->at > before);
    }
}

// What came of it, in words.
static void answer_words(const struct row *row, const struct answer *answer, char *words, size_t room) {
    if (answer->signal)
        snprintf(words, room, "%s", sigabbrev_np(answer->signal));
    else if (answer->ended)
        snprintf(words, room, "exits with %d", answer->status);
    else if (!answer->made)
        snprintf(words, room, "no answer");
    else if (answer->error)
        snprintf(words, room, "%s", error_name(answer->error));
    else if (row->varies || answer->result > 1 << 20 || answer->result < -1 << 20)
        snprintf(words, room, "done");
    else
        snprintf(words, room, "%ld", answer->result);
}

static void add(const struct row *rows, struct attempt attempt) {
    char what[80];
    const struct row *row = &rows[attempt.row];
    attempt_words(row, &attempt, what, sizeof what);
    MUST(attempt_count < MOST_ATTEMPTS);
    if (!is_left_out(row->name, what))
        attempts[attempt_count++] = attempt;
}

static void add_pairs(const struct row *rows, int index) {
    struct bad bad[2][MOST_BAD];
    const struct row *row = &rows[index];
    for (int i = 0; i < 6; i++) {
        int count = bad_values(&row->arguments[i], bad[0]);
        for (int j = i + 1; j < 6; j++) {
            int others = bad_values(&row->arguments[j], bad[1]);
            for (int one = 0; one < count; one++)
                for (int other = 0; other < others; other++)
                    if (bad[0][one].paired && bad[1][other].paired)
                        add(rows, (struct attempt){index, i, j, -1, {one, other}});
        }
    }
}

static void add_row(const struct row *rows, int index) {
    struct bad bad[MOST_BAD];
    const struct row *row = &rows[index];
    add(rows, (struct attempt){index, -1, -1, -1, {0, 0}});
    for (int i = 0; i < 6; i++) {
        int count = bad_values(&row->arguments[i], bad);
        for (int which = 0; which < count; which++)
            add(rows, (struct attempt){index, i, -1, -1, {which, 0}});
        for (int bit = 0; row->arguments[i].kind == 'x' && bit < 34; bit++)
            add(rows, (struct attempt){index, i, -1, bit, {0, 0}});
    }
    add_pairs(rows, index);
}

// Neighbouring bits with the same answer are one line. Returns the attempt behind them.
static int show_bits(const struct row *row, int at) {
    char last[40], now[40];
    int index = attempts[at].first, first = 0;
    answer_words(row, &made->answers[0][at], last, sizeof last);
    for (int bit = 0; bit <= 34; bit++) {
        if (bit < 34)
            answer_words(row, &made->answers[0][at + bit], now, sizeof now);
        if (bit == 34 || strcmp(last, now) != 0) {
            printf("%s[%d bits %d-%d]: %s\n", row->name, index, first, bit - 1, last);
            first = bit;
        }
        strcpy(last, now);
    }
    return at + 34;
}

// Makes what has been gathered, here and elsewhere, and shows it.
static void flush_attempts(const struct row *rows) {
    memset(made->answers, 0, sizeof made->answers);
    run_attempts(rows, 0);
    run_attempts(rows, 1);
    for (int at = 0; at < attempt_count;) {
        const struct row *row = &rows[attempts[at].row];
        char what[80], here[40], there[40];
        if (attempts[at].bit >= 0) {
            at = show_bits(row, at);
            continue;
        }
        attempt_words(row, &attempts[at], what, sizeof what);
        answer_words(row, &made->answers[0][at], here, sizeof here);
        printf("%s[%s]: %s\n", row->name, what, here);
        answer_words(row, &made->answers[1][at], there, sizeof there);
        if (attempts[at].second < 0 && strcmp(here, there) != 0)
            printf("%s[%s] elsewhere: %s\n", row->name, what, there);
        at++;
    }
    attempt_count = 0;
}

static void *shared(size_t length) {
    void *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    return memory;
}

// All rows, or those of the named calls.
static inline int show_table(const struct row *rows, size_t count, char **names) {
    prepare();
    made = shared(sizeof *made);
    attempts = shared(MOST_ATTEMPTS * sizeof *attempts);
    made->changed = 1;
    for (size_t i = 0; i < count; i++) {
        int named = names[0] == NULL;
        for (char **name = names; *name; name++)
            named |= strcmp(*name, rows[i].name) == 0;
        if (!named)
            continue;
        add_row(rows, i);
        if (attempt_count > MOST_ATTEMPTS / 2)
            flush_attempts(rows);
    }
    flush_attempts(rows);
    return 0;
}
