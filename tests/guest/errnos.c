// Bad input to every system call: each row of the table is a call with good arguments; then one argument after the
// other is made bad in the ways of its kind, and the answer is shown. The host's answers are the expected ones.
// cob: link=static compare=host timeout=240
#include "test.h"
#include <linux/futex.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

// What an argument is: f descriptor, r memory that is read, t a time in it (never missing, or the call would wait), w memory
// that is written, s a string, n a length, l one of a mapping, x flags, y those
// among which 2^30 is a namespace, p a process, a an address of a mapping, c as it is.
struct argument {
    char kind;
    long good;
};

struct row {
    const char *name;
    long number;
    struct argument arguments[6];
};

enum { MEMORY_FD = 50, PIPE_READ, PIPE_WRITE, DIRECTORY, SOCKET, EVENT, EPOLL, TIMER_FD, PIDFD, MISSING = 777 };

static char *good_buffer, *zero_buffer, *read_only, *border, *long_name;
static char *mapping;

#define R {'r', 1}
#define Z {'r', 2}
#define W {'w', 1}
#define C(value) {'c', value}
#define F(fd) {'f', fd}
#define N(length) {'n', length}
#define X(flags) {'x', flags}
#define Y(flags) {'y', flags}
#define P(pid) {'p', pid}
#define S(index) {'s', index}
#define A {'a', 1}
#define T {'t', 2}
#define L(length) {'l', length}
#define ROW(name, ...) {#name, SYS_##name, {__VA_ARGS__}}

static const char *const strings[] = {"no-such-directory/name", ".", "no-such-name", "user.name"};

static const struct row rows[] = {
    ROW(read, F(MEMORY_FD), W, N(10)),
    ROW(write, F(MEMORY_FD), R, N(10)),
    ROW(pread64, F(MEMORY_FD), W, N(10), N(0)),
    ROW(pwrite64, F(MEMORY_FD), R, N(10), N(0)),
    ROW(readv, F(MEMORY_FD), Z, N(1)),
    ROW(writev, F(MEMORY_FD), Z, N(1)),
    ROW(preadv, F(MEMORY_FD), Z, N(1), N(0)),
    ROW(pwritev, F(MEMORY_FD), Z, N(1), N(0)),
    ROW(open, S(0), X(0), X(0)),
    ROW(openat, F(DIRECTORY), S(2), X(0), X(0)),
    ROW(close, F(MEMORY_FD)),
    ROW(stat, S(1), W),
    ROW(lstat, S(1), W),
    ROW(fstat, F(MEMORY_FD), W),
    ROW(newfstatat, F(DIRECTORY), S(1), W, X(0)),
    ROW(statx, F(DIRECTORY), S(1), X(0), X(0x7ff), W),
    ROW(statfs, S(1), W),
    ROW(fstatfs, F(MEMORY_FD), W),
    ROW(poll, Z, N(1), C(0)),
    ROW(ppoll, Z, N(1), T, C(0), C(8)),
    ROW(select, C(1), W, C(0), C(0), T),
    ROW(pselect6, C(1), W, C(0), C(0), T, C(0)),
    ROW(lseek, F(MEMORY_FD), N(0), X(0)),
    ROW(ftruncate, F(MEMORY_FD), N(100)),
    ROW(truncate, S(0), N(100)),
    ROW(fallocate, F(MEMORY_FD), X(0), N(0), C(100)),
    ROW(dup, F(MEMORY_FD)),
    ROW(dup2, F(MEMORY_FD), F(60)),
    ROW(dup3, F(MEMORY_FD), F(60), X(0)),
    ROW(fcntl, F(MEMORY_FD), X(1), C(0)),
    ROW(fcntl, F(MEMORY_FD), C(5), W),
    ROW(flock, F(MEMORY_FD), X(8)),
    ROW(fsync, F(MEMORY_FD)),
    ROW(fdatasync, F(MEMORY_FD)),
    ROW(getdents64, F(DIRECTORY), W, N(4096)),
    ROW(getcwd, W, N(4096)),
    ROW(chdir, S(0)),
    ROW(fchdir, F(DIRECTORY)),
    ROW(rename, S(0), S(0)),
    ROW(renameat2, F(DIRECTORY), S(0), F(DIRECTORY), S(0), X(0)),
    ROW(mkdir, S(0), C(0755)),
    ROW(rmdir, S(0)),
    ROW(link, S(0), S(0)),
    ROW(linkat, F(DIRECTORY), S(0), F(DIRECTORY), S(0), X(0)),
    ROW(unlink, S(0)),
    ROW(unlinkat, F(DIRECTORY), S(0), X(0)),
    ROW(symlink, S(2), S(0)),
    ROW(readlink, S(0), W, N(100)),
    ROW(readlinkat, F(DIRECTORY), S(0), W, N(100)),
    ROW(chmod, S(0), C(0)),
    ROW(fchmod, F(MEMORY_FD), C(0600)),
    ROW(chown, S(0), C(0), C(0)),
    ROW(fchown, F(MEMORY_FD), C(-1), C(-1)),
    ROW(utimensat, F(DIRECTORY), S(0), Z, X(0)),
    ROW(mknod, S(0), C(S_IFIFO | 0600), C(0)),
    ROW(access, S(0), X(0)),
    ROW(faccessat, F(DIRECTORY), S(0), X(0)),
    ROW(pipe, W),
    ROW(pipe2, W, X(0)),
    ROW(memfd_create, S(2), X(0)),
    ROW(eventfd2, C(0), X(0)),
    ROW(epoll_create1, X(0)),
    ROW(epoll_create, C(0)),
    ROW(epoll_ctl, F(EPOLL), X(1), F(PIPE_READ), R),
    ROW(epoll_wait, F(EPOLL), W, N(1), C(0)),
    ROW(timerfd_create, X(1), X(0)),
    ROW(timerfd_settime, F(TIMER_FD), X(0), Z, W),
    ROW(timerfd_gettime, F(TIMER_FD), W),
    ROW(signalfd4, C(-1), Z, N(8), X(0)),
    ROW(sendfile, F(PIPE_WRITE), F(MEMORY_FD), Z, N(10)),
    ROW(splice, F(MEMORY_FD), Z, F(PIPE_WRITE), C(0), N(10), X(0)),
    ROW(tee, F(PIPE_READ), F(PIPE_WRITE), N(10), X(2)),
    ROW(copy_file_range, F(MEMORY_FD), Z, F(MEMORY_FD), W, N(10), X(0)),
    ROW(close_range, C(900), C(901), X(0)),
    ROW(socket, X(1), X(1), X(0)),
    ROW(socketpair, X(1), X(1), X(0), W),
    ROW(bind, F(SOCKET), R, N(16)),
    ROW(connect, F(SOCKET), R, N(16)),
    ROW(listen, F(SOCKET), C(1)),
    ROW(accept4, F(SOCKET), W, W, X(0)),
    ROW(getsockname, F(SOCKET), W, R),
    ROW(getpeername, F(SOCKET), W, R),
    ROW(sendto, F(SOCKET), R, N(10), C(0x4000), C(0), C(0)),
    ROW(recvfrom, F(SOCKET), W, N(10), C(0x40), C(0), C(0)),
    ROW(sendmsg, F(SOCKET), Z, C(0x4000)),
    ROW(recvmsg, F(SOCKET), Z, C(0x40)),
    ROW(shutdown, F(SOCKET), X(0)),
    ROW(setsockopt, F(SOCKET), X(1), X(7), R, N(4)),
    ROW(getsockopt, F(SOCKET), X(1), X(7), W, R),
    ROW(mmap, C(0), L(4096), X(3), X(0x22), C(-1), N(0)),
    ROW(mmap, C(0), N(4096), X(1), X(1), F(MEMORY_FD), N(0)),
    ROW(mmap, A, L(4096), C(3), C(0x32), C(-1), C(0)),
    ROW(munmap, A, L(4096)),
    ROW(mprotect, A, L(4096), X(1)),
    ROW(mremap, A, L(4096), L(8192), X(1), C(0)),
    ROW(mremap, A, L(4096), L(4096), C(3), A),
    ROW(madvise, A, L(4096), C(0)),
    ROW(madvise, A, C(4096), X(4)),
    ROW(msync, A, N(4096), X(4)),
    ROW(mincore, A, N(4096), W),
    ROW(mlock, A, N(4096)),
    ROW(munlock, A, N(4096)),
    ROW(mlock2, A, N(4096), X(0)),
    ROW(mlockall, X(1)),
    ROW(brk, C(0)),
    ROW(process_vm_readv, P(0), Z, N(1), Z, N(1), X(0)),
    ROW(process_vm_writev, P(0), Z, N(1), Z, N(1), X(0)),
    ROW(rt_sigaction, X(10), Z, W, N(8)),
    ROW(rt_sigprocmask, X(0), Z, W, N(8)),
    ROW(rt_sigpending, W, N(8)),
    ROW(rt_sigtimedwait, Z, W, T, N(8)),
    ROW(rt_sigqueueinfo, P(0), X(0), R),
    ROW(rt_tgsigqueueinfo, P(0), P(0), X(0), R),
    ROW(sigaltstack, Z, W),
    ROW(kill, P(0), X(0)),
    ROW(tkill, P(0), X(0)),
    ROW(tgkill, P(0), P(0), X(0)),
    ROW(nanosleep, Z, W),
    ROW(clock_nanosleep, X(1), X(0), Z, W),
    ROW(clock_gettime, X(0), W),
    ROW(clock_getres, X(0), W),
    ROW(clock_settime, X(1), R),
    ROW(gettimeofday, W, W),
    ROW(time, W),
    ROW(times, W),
    ROW(getitimer, X(0), W),
    ROW(setitimer, X(0), Z, W),
    ROW(timer_create, X(1), C(0), W),
    ROW(timer_settime, X(99), X(0), Z, W),
    ROW(timer_gettime, X(99), W),
    ROW(timer_getoverrun, X(99)),
    ROW(timer_delete, X(99)),
    ROW(futex, Z, X(0), C(1), C(0), C(0), C(0)),
    ROW(futex, Z, X(1), C(1), C(0), C(0), C(0)),
    ROW(futex, Z, C(3), N(1), N(1), W, C(0)),
    ROW(futex, Z, C(5), N(1), N(1), W, X(0)),
    ROW(futex, Z, C(9), C(0), Z, C(0), X(0)),
    ROW(set_robust_list, C(0), N(24)),
    ROW(get_robust_list, P(0), W, W),
    ROW(set_tid_address, C(0)),
    ROW(wait4, P(0), W, X(1), W),
    ROW(waitid, X(0), P(0), W, X(5), W),
    ROW(getpgid, P(0)),
    ROW(getsid, P(0)),
    ROW(setpgid, P(0), P(0)),
    ROW(getpriority, X(0), P(0)),
    ROW(setpriority, X(0), P(0), C(0)),
    ROW(sched_getaffinity, P(0), N(128), W),
    ROW(sched_setaffinity, P(0), N(128), R),
    ROW(sched_getscheduler, P(0)),
    ROW(sched_setscheduler, P(0), X(0), Z),
    ROW(sched_getparam, P(0), W),
    ROW(sched_setparam, P(0), Z),
    ROW(sched_get_priority_max, X(0)),
    ROW(sched_get_priority_min, X(0)),
    ROW(sched_rr_get_interval, P(0), W),
    ROW(sched_getattr, P(0), W, N(56), X(0)),
    ROW(sched_setattr, P(0), R, X(0)),
    ROW(getrlimit, X(0), W),
    ROW(setrlimit, X(0), R),
    ROW(prlimit64, P(0), X(0), C(0), W),
    ROW(getrusage, X(0), W),
    ROW(getgroups, N(100), W),
    ROW(setgroups, N(0), R),
    ROW(getresuid, W, W, W),
    ROW(getresgid, W, W, W),
    ROW(setuid, C(-1)),
    ROW(setresuid, C(-1), C(-1), C(-1)),
    ROW(uname, W),
    ROW(sysinfo, W),
    ROW(sethostname, R, N(-1)),
    ROW(getrandom, W, N(10), X(0)),
    ROW(getcpu, W, W, C(0)),
    ROW(prctl, X(16), W),
    ROW(prctl, X(1), C(0), C(0), C(0), C(0)),
    ROW(arch_prctl, X(0x1003), W),
    ROW(personality, C(-1)),
    ROW(membarrier, X(0), X(0)),
    ROW(pidfd_open, P(0), X(0)),
    ROW(pidfd_send_signal, F(PIDFD), X(0), C(0), X(0)),
    ROW(execve, S(0), C(0), C(0)),
    ROW(execveat, F(DIRECTORY), S(2), C(0), C(0), X(0)),
    ROW(unshare, Y(0)),
    ROW(clone3, Z, N(88)),
    ROW(rseq, A, N(32), X(7), C(0)),
    ROW(setxattr, S(0), S(3), R, N(4), X(0)),
    ROW(getxattr, S(0), S(3), W, N(4)),
    ROW(fgetxattr, F(PIPE_READ), S(3), W, N(4)),
    ROW(listxattr, S(0), W, N(4)),
    ROW(umask, C(022)),
    ROW(chroot, S(0)),
    ROW(mount, C(0), S(0), C(0), X(0), C(0)),
    ROW(umount2, S(0), X(0)),
    ROW(readahead, F(MEMORY_FD), N(0), N(10)),
    ROW(fadvise64, F(MEMORY_FD), N(0), N(10), X(0)),
    ROW(sync_file_range, F(MEMORY_FD), N(0), N(10), X(0)),
    ROW(shmget, C(0), L(0), X(0600)),
    ROW(shmat, X(-1), A, X(0)),
    ROW(shmdt, A),
    ROW(shmctl, X(-1), X(2), W),
    ROW(semget, C(0), N(0), X(0600)),
    ROW(semop, X(-1), R, N(1)),
    ROW(semctl, X(-1), C(0), X(12), C(0)),
    ROW(msgsnd, X(-1), R, N(1), X(04000)),
    ROW(msgrcv, X(-1), W, N(1), C(0), X(04000)),
    ROW(msgctl, X(-1), X(2), W),
};

struct bad {
    const char *name;
    long value;
};

#define MOST_BAD 8

// The bad values of a kind; the pointers are known at run time only.
static int bad_values(char kind, struct bad *bad) {
    int count = 0;
#define BAD(name, value) bad[count++] = (struct bad){name, (long)(value)}
    switch (kind) {
    case 'f':
        BAD("-1", -1);
        BAD("closed", MISSING);
        BAD("high", 0x7fffffff);
        break;
    case 'w':
        BAD("read-only", read_only);
        // Fall through.
    case 'r':
        BAD("null", 0);
        // Fall through.
    case 't':
        BAD("low", 8);
        BAD("kernel", 0xffff888000000000);
        BAD("not canonical", 0x8000000000000000);
        BAD("last page", 0x7ffffffff000);
        BAD("border", border + PAGE - 2);
        break;
    case 's':
        BAD("null", 0);
        BAD("low", 8);
        BAD("kernel", 0xffff888000000000);
        BAD("empty", zero_buffer);
        BAD("long", long_name);
        BAD("border", border + PAGE - 2);
        break;
    case 'l':
        BAD("0", 0);
        BAD("-1", -1);
        BAD("2^62", 1L << 62);
        BAD("long max", 0x7fffffffffffffff);
        break;
    case 'n':
        BAD("0", 0);
        BAD("-1", -1);
        BAD("int max", 0x7fffffff);
        BAD("2^31", 0x80000000);
        BAD("2^62", 1L << 62);
        BAD("long max", 0x7fffffffffffffff);
        break;
    case 'x':
        BAD("-1", -1);
        BAD("2^30", 1 << 30);
        BAD("1000", 1000);
        break;
    case 'y':
        BAD("-1", -1);
        BAD("1000", 1000);
        break;
    case 'p':
        BAD("-1", -1);
        BAD("nobody", 4194303);
        BAD("int min", 0x80000000);
        BAD("huge", 0x7fffffff);
        break;
    case 'a':
        BAD("odd", mapping + 1);
        BAD("null", 0);
        BAD("kernel", 0xffff888000000000);
        BAD("wrapping", -4096);
        BAD("last page", 0x7ffffffff000);
        BAD("not mapped", mapping + 512 * PAGE);
        break;
    }
    return count;
}

static long good_value(const struct argument *argument) {
    switch (argument->kind) {
    case 'r':
    case 't':
    case 'w':
        return (long)(argument->good == 2 ? zero_buffer : good_buffer);
    case 's':
        return (long)strings[argument->good];
    case 'a':
        return (long)mapping;
    default:
        return argument->good;
    }
}

// Far from the end of the address space, so that long lengths are looked at; each with nothing behind it.
static void *map(size_t pages, int protection) {
    static char *next = (char *)0x1000000000;
    void *at = mmap(next, pages * PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    MUST(at == next);
    next += 1L << 32;
    return at;
}

static void prepare(void) {
    good_buffer = map(4, PROT_READ | PROT_WRITE);
    zero_buffer = map(4, PROT_READ | PROT_WRITE);
    read_only = map(4, PROT_READ);
    border = map(2, PROT_READ | PROT_WRITE);
    long_name = map(4, PROT_READ | PROT_WRITE);
    mapping = map(1024, PROT_NONE);
    munmap(mapping + 512 * PAGE, 512 * PAGE);
    mprotect(mapping, 512 * PAGE, PROT_READ | PROT_WRITE);
    munmap(border + PAGE, PAGE);
    memset(border, 'b', PAGE);
    memset(long_name, 'n', 3 * PAGE);
    *(int *)good_buffer = 1;
    int pipes[2], sockets[2];
    MUST(pipe2(pipes, O_NONBLOCK) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    dup2(pipes[0], PIPE_READ);
    dup2(pipes[1], PIPE_WRITE);
    dup2(sockets[0], SOCKET);
    dup2(sockets[1], 61);
    dup2(syscall(SYS_memfd_create, "memory", 0), MEMORY_FD);
    MUST(write(MEMORY_FD, good_buffer, 100) == 100);
    dup2(open(".", O_RDONLY | O_DIRECTORY), DIRECTORY);
    dup2(syscall(SYS_eventfd2, 0, 0), EVENT);
    dup2(epoll_create1(0), EPOLL);
    dup2(syscall(SYS_timerfd_create, 1, 0), TIMER_FD);
    dup2(syscall(SYS_pidfd_open, getpid(), 0), PIDFD);
    for (int fd = 3; fd < 20; fd++)
        close(fd);
}

static volatile long *answer;

// Files are shared with the children: what one left behind must not be seen by the next.
static void restore(void) {
    char bytes[4096];
    lseek(MEMORY_FD, 0, SEEK_SET);
    MUST(ftruncate(MEMORY_FD, 0) == 0 && write(MEMORY_FD, good_buffer, 100) == 100);
    lseek(MEMORY_FD, 0, SEEK_SET);
    lseek(DIRECTORY, 0, SEEK_SET);
    while (read(PIPE_READ, bytes, sizeof bytes) > 0)
        ;
    while (recv(SOCKET, bytes, sizeof bytes, MSG_DONTWAIT) > 0 || recv(61, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        ;
}

// In a child of its own: whatever it does is gone with it.
static void attempt(const struct row *row, const char *what, int index, long value) {
    restore();
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        alarm(10);
        long values[6];
        for (int i = 0; i < 6; i++)
            values[i] = i == index ? value : good_value(&row->arguments[i]);
        *answer = -1;
        long result = syscall(row->number, values[0], values[1], values[2], values[3], values[4], values[5]);
        *answer = result == -1 ? errno : 0;
        _exit(0);
    }
    int status;
    MUST(waitpid(child, &status, __WALL) == child);
    const char *name = *answer < 0 ? "no answer" : *answer == 0 ? "done" : error_name((int)*answer);
    if (WIFSIGNALED(status))
        printf("%s[%d %s]: %s\n", row->name, index, what, sigabbrev_np(WTERMSIG(status)));
    else
        printf("%s[%d %s]: %s\n", row->name, index, what, name);
}

int main(int argc, char **argv) {
    prepare();
    answer = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    // A shell's group would hear of kill(0).
    setpgid(0, 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (argc > 1 && strcmp(argv[1], rows[i].name) != 0)
            continue;
        fflush(stdout);
        attempt(&rows[i], "good", -1, 0);
        for (int index = 0; index < 6; index++) {
            struct bad bad[MOST_BAD];
            int count = bad_values(rows[i].arguments[index].kind, bad);
            for (int which = 0; which < count; which++) {
                fflush(stdout);
                attempt(&rows[i], bad[which].name, index, bad[which].value);
            }
        }
    }
    return 0;
}
