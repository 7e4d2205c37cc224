// Bad input to system calls: each row of a table is a call with good arguments. Then one argument after the other is made
// bad in every way of its kind, flags bit by bit, and any two arguments at once (which shows the order of the checks). Every
// attempt is made a second time by a thread that has moved to the last CPU, and with it to another kernel than its
// process's home: a different answer is a line of its own. The host's answers are the expected ones.
#pragma once
#include "test.h"
#include <ftw.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

// What an argument is: f descriptor, g one of a file with a name, d directory that a path starts from, r memory that is read, w memory that is
// written, t a time (never missing, or the call would wait), s a path, m another string, n a length, l one of a mapping, x flags,
// e one of a list (no single bits are tried: they could do harm), p a process, P the same but good is the caller, a an
// address of a mapping, c as it is.
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
};

// Memory at fixed places, far from the end of the address space, so that long lengths are looked at; nothing lies behind it.
#define GOOD 0x1000000000
#define ZERO 0x1100000000
#define READ_ONLY 0x1200000000
#define BORDER 0x1300000000
#define MAPPING 0x1400000000
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
#define ROW(name, ...) {#name, SYS_##name, 0, {__VA_ARGS__}}
// Its result varies.
#define ANY(name, ...) {#name, SYS_##name, 1, {__VA_ARGS__}}

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
static int bad_values(char kind, struct bad *bad) {
    int count = 0;
#define BAD(name, value) bad[count++] = (struct bad){name, (long)(value), 0}
#define PAIR(name, value) bad[count++] = (struct bad){name, (long)(value), 1}
    switch (kind) {
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
        PAIR("nobody", 4194303);
        BAD("-nobody", -4194303L);
        BAD("int min", 0x80000000);
        BAD("huge", 0x7fffffff);
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
    char here[] = "errnos-XXXXXX";
    MUST(mkdtemp(here) && chdir(here) == 0);
    make_names();
    put(open("/dev/null", O_RDWR), DEVICE);
    put(open(".", O_RDONLY | O_DIRECTORY), DIRECTORY);
    put(syscall(SYS_pidfd_open, getpid(), 0), PIDFD);
}

// Open files are shared with the children: what one left behind must not be seen by the next.
static void restore(int names) {
    unlink("nobody");
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
    lseek(FILE_FD, 0, SEEK_SET);
    lseek(READABLE, 0, SEEK_SET);
    lseek(WRITABLE, 0, SEEK_SET);
    lseek(DIRECTORY, 0, SEEK_SET);
}

struct answer {
    // 0 when it has none.
    int made, error;
    long result;
};

static volatile struct answer *answer;

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

static long good_value(const struct argument *argument) {
    return argument->kind == 'P' ? getpid() : argument->good;
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

// One call, in a child of its own: whatever it does is gone with it. What came of it, in words.
static void attempt(const struct row *row, const long *values, int away, char *words, size_t room) {
    // This also runs on a machine that is in use: never a signal to everybody.
    MUST(row->number != SYS_kill || (int)values[0] != -1 || values[1] <= 0 || values[1] > 64);
    // A call that failed has changed nothing.
    if (!answer->made || !answer->error)
        restore(table_changes_names);
    fflush(stdout);
    answer->made = 0;
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        // Nobody else hears of kill(0).
        setpgid(0, 0);
        alarm(4);
        long made[6];
        for (int i = 0; i < 6; i++)
            made[i] = row->arguments[i].kind == 'P' && values[i] == getppid() ? getpid() : values[i];
        if (away)
            move_to(cpu_count() - 1);
        errno = 0;
        long result = syscall(row->number, made[0], made[1], made[2], made[3], made[4], made[5]);
        answer->error = result == -1 ? errno : 0;
        answer->result = result;
        if (result >= 0)
            remove_ipc(row->number, (int)result);
        answer->made = 1;
        _exit(0);
    }
    int status;
    MUST(waitpid(child, &status, __WALL) == child);
    if (WIFSIGNALED(status))
        snprintf(words, room, "%s", sigabbrev_np(WTERMSIG(status)));
    else if (!answer->made)
        snprintf(words, room, "no answer");
    else if (answer->result == -1 && answer->error)
        snprintf(words, room, "%s", error_name(answer->error));
    else if (row->varies || answer->result > 1 << 20 || answer->result < -1 << 20)
        snprintf(words, room, "done");
    else
        snprintf(words, room, "%ld", answer->result);
}

static void show(const struct row *row, const char *what, const long *values, int both) {
    char here[40], there[40];
    if (is_left_out(row->name, what))
        return;
    attempt(row, values, 0, here, sizeof here);
    printf("%s[%s]: %s\n", row->name, what, here);
    if (!both)
        return;
    attempt(row, values, 1, there, sizeof there);
    if (strcmp(here, there) != 0)
        printf("%s[%s] elsewhere: %s\n", row->name, what, there);
}

// Neighbouring bits with the same answer are one line.
static void show_bits(const struct row *row, int index, long *values) {
    char last[40] = "", now[40];
    int first = 0;
    snprintf(now, sizeof now, "%d bits", index);
    if (is_left_out(row->name, now))
        return;
    for (int bit = 0; bit <= 34; bit++) {
        values[index] = row->arguments[index].good ^ 1L << bit;
        if (bit < 34)
            attempt(row, values, 0, now, sizeof now);
        if (bit > 0 && (bit == 34 || strcmp(last, now) != 0)) {
            printf("%s[%d bits %d-%d]: %s\n", row->name, index, first, bit - 1, last);
            first = bit;
        }
        strcpy(last, now);
    }
}

static void show_pairs(const struct row *row, long *values) {
    struct bad bad[2][MOST_BAD];
    char what[80];
    for (int i = 0; i < 6; i++) {
        int count = bad_values(row->arguments[i].kind, bad[0]);
        for (int j = i + 1; j < 6; j++) {
            int others = bad_values(row->arguments[j].kind, bad[1]);
            for (int one = 0; one < count; one++)
                for (int other = 0; other < others; other++) {
                    if (!bad[0][one].paired || !bad[1][other].paired)
                        continue;
                    values[i] = bad[0][one].value;
                    values[j] = bad[1][other].value;
                    snprintf(what, sizeof what, "%d %s, %d %s", i, bad[0][one].name, j, bad[1][other].name);
                    show(row, what, values, 0);
                    values[j] = good_value(&row->arguments[j]);
                }
            values[i] = good_value(&row->arguments[i]);
        }
    }
}

static void show_row(const struct row *row) {
    long values[6];
    struct bad bad[MOST_BAD];
    char what[80];
    for (int i = 0; i < 6; i++)
        values[i] = good_value(&row->arguments[i]);
    show(row, "good", values, 1);
    for (int i = 0; i < 6; i++) {
        int count = bad_values(row->arguments[i].kind, bad);
        for (int which = 0; which < count; which++) {
            values[i] = bad[which].value;
            snprintf(what, sizeof what, "%d %s", i, bad[which].name);
            show(row, what, values, 1);
        }
        if (row->arguments[i].kind == 'x')
            show_bits(row, i, values);
        values[i] = good_value(&row->arguments[i]);
    }
    show_pairs(row, values);
}

// All rows, or those of the named calls.
static inline int show_table(const struct row *rows, size_t count, char **names) {
    prepare();
    answer = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < count; i++) {
        int named = names[0] == NULL;
        for (char **name = names; *name; name++)
            named |= strcmp(*name, rows[i].name) == 0;
        if (named)
            show_row(&rows[i]);
    }
    return 0;
}
