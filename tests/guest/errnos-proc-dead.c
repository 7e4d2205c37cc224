// Bad input to the files of /proc, continued: of a process that dies after they were opened, names that could be taken for
// others, and what is written to the few that take something (see errnos-each.h).
// cob: link=static flags=-pthread kernels=1,4 compare=host timeout=600
#include "errnos-proc.h"
#include <sys/prctl.h>

// Opened while their process lives.
static const char *const files_of_the_dead[] = {
    "stat", "statm", "status", "cmdline", "environ", "auxv", "limits", "io", "oom_score", "personality", "mounts", "maps", "smaps",
    "comm", "clear_refs", "fdinfo/50", ".", "fd", "task", "fdinfo", "THREAD", "THREAD/stat", "THREAD/comm", "exe", "cwd", "fd/50",
};
enum { FIRST_OF_THE_DEAD = 200 };

// What is below the directory of the peer.
static const char *of_the_dead(int thing) {
    static char name[40];
    int of_thread = strncmp(things[thing], "THREAD", 6) == 0;
    snprintf(name, sizeof name, "%s%s", of_thread ? "thread" : "peer/", things[thing] + (of_thread ? 6 : 0));
    return at(name);
}

#define THE_DEAD (FIRST_OF_THE_DEAD + thing)

static long text(int fd, long offset) {
    char bytes[64];
    if (lseek(fd, offset, SEEK_SET) < 0)
        return -1;
    long got = read(fd, bytes, sizeof bytes);
    return got > 0 ? 1 : got;
}

static void about_the_dead(void) {
    // What was left of a text that had been read in part.
    EACH_DONE(read(THE_DEAD, good, 1));
    EACH(text(THE_DEAD, 0));
    EACH(text(THE_DEAD, 1));
    EACH(read(THE_DEAD, low, 1));
    EACH(write(THE_DEAD, "x", 1));
    EACH(write(THE_DEAD, low, 1));
    EACH_DONE(entries(THE_DEAD, good, 4096));
    EACH(fstat(THE_DEAD, good));
    EACH(polled(THE_DEAD));
    EACH_DONE(openat(THE_DEAD, "stat", O_RDONLY));
    EACH_DONE(openat(THE_DEAD, ".", O_RDONLY));
    EACH_DONE(openat(THE_DEAD, "nothing", O_RDONLY));
    EACH_DONE(readlinkat(THE_DEAD, "exe", good, 100));
    EACH_DONE(readlinkat(THE_DEAD, "50", good, 100));
    EACH(fchdir(THE_DEAD) ? -1 : chdir("/tmp"));
    EACH_DONE(open(of_the_dead(thing), O_RDONLY));
    EACH(lstat(of_the_dead(thing), good));
    EACH_DONE(readlink(of_the_dead(thing), good, 100));
    EACH(text(opened(of_the_dead(thing)), 0));
}

static void dying(void) {
    int count = sizeof files_of_the_dead / sizeof files_of_the_dead[0];
    ask_about(files_of_the_dead, count);
    *peer = begin_peer();
    for (int thing = 0; thing < count; thing++) {
        int fd = opened(of_the_dead(thing));
        if (fd >= 0)
            put(fd, FIRST_OF_THE_DEAD + thing);
        char bytes[3];
        (void)!read(FIRST_OF_THE_DEAD + thing, bytes, sizeof bytes);
    }
    siginfo_t info;
    printf("alive\n");
    about_the_dead();
    kill(*peer, SIGKILL);
    MUST(waitid(P_PID, *peer, &info, WEXITED | WNOWAIT) == 0);
    show_due();
    printf("zombie\n");
    about_the_dead();
    MUST(waitid(P_PID, *peer, &info, WEXITED) == 0);
    show_due();
    printf("gone\n");
    about_the_dead();
}

// What names the machine is written by nobody who has not the right to, or the bytes.
static void settings(void) {
    static const char *const names[] = {"sys/kernel/hostname", "sys/kernel/domainname"};
    ask_about(names, 2);
    EACH(write(opened(at(names[thing])), low, 5));
    EACH(write(opened(at(names[thing])), null, 1));
    EACH(write(opened(at(names[thing])), good, 0));
    EACH(pwrite(opened(at(names[thing])), low, 5, 1));
    EACH(pwrite(opened(at(names[thing])), low, 5, -1));
    EACH(truncate(at(names[thing]), 0));
    EACH(ftruncate(opened(at(names[thing])), 5));
    EACH(lseek(opened(at(names[thing])), 1L << 40, SEEK_SET));
    EACH(lseek(opened(at(names[thing])), 0, SEEK_END));
    EACH(read(opened(at(names[thing])), low, 5));
    EACH(fallocate(opened(at(names[thing])), 0, 0, 1));
    EACH_DONE(open(at(names[thing]), O_WRONLY | O_DIRECT));
    EACH_DONE(open(at(names[thing]), O_WRONLY | O_TRUNC));
    EACH(access(at(names[thing]), X_OK));
    EACH(setresuid(1000, 1000, 1000) ? -1 : open(at(names[thing]), O_WRONLY));
}

// Names that could be taken for others.
static void wrong_names(void) {
    static const char *const names[] = {
        "self/fd/777", "self/fd/050", "self/fd/+50", "self/fd/-1", "self/fd/4294967346", "self/fd/50/", "self/fd/50/x", "self/fd/x",
        "self/fdinfo/777", "self/fdinfo/050", "self/task/1", "self/task/0", "self/task/x", "self/task/4194303", "thread-self/task",
        "thread/task", "peer/task/1", "0", "01", "-1", "+1", "4194303", "4194305", "99999999999", "18446744073709551617", "1x",
        "self/", "self/stat/", "self/stat/x", "self/../self/stat", "self/fd/../stat", "self/nothing", "nothing", "sys/nothing",
        "sys/kernel/nothing", "SELF", "self/exe/", "self/exe/x", "self/cwd/file", "self/cwd/nothing", "self/cwd/../nothing/x", "thread-self/stat",
        "self/fd/52", "self/fd/57", "peer/cwd/file", "peer/cwd/nothing", "peer/cwd/../nothing/x", "peer/fd/50", "peer/fd/50/x",
        "peer/exe/x",
    };
    ask_about(names, sizeof names / sizeof names[0]);
    EACH_DONE(open(at(things[thing]), O_RDONLY));
    EACH_DONE(open(at(things[thing]), O_RDONLY | O_NOFOLLOW));
    EACH_DONE(open(at(things[thing]), O_WRONLY));
    EACH_DONE(open(at(things[thing]), O_RDONLY | O_DIRECTORY));
    EACH_DONE(open(at(things[thing]), O_PATH | O_NOFOLLOW));
    EACH_DONE(readlink(at(things[thing]), good, 100));
    EACH(access(at(things[thing]), F_OK));
    EACH_DONE(chdir(at(things[thing])) ? -1 : chdir("/tmp"));
    EACH_DONE(truncate(at(things[thing]), -1));
}

static const char *name_now(void) {
    static char name[17];
    MUST(prctl(PR_GET_NAME, name) == 0);
    for (char *at = name; (at = strchr(at, '\n'));)
        *at = 'n';
    return name;
}

static long puts_at(const char *path, const char *quoted, long offset) {
    int fd = open(at(path), O_WRONLY);
    char bytes[MOST_WORDS];
    long length = strlen(quoted) - 2;
    for (int i = 0; i < length; i++)
        bytes[i] = quoted[1 + i] == 'n' ? '\n' : quoted[1 + i];
    long written = offset < 0 ? write(fd, bytes, length) : pwrite(fd, bytes, length, offset);
    close(fd);
    return written;
}

// What is written to the few that take something; an n stands for a new line.
static void contents(void) {
    static const char *const texts[] = {
        "''", "'n'", "'0'", "'1'", "'1n'", "'1nn'", "' 1'", "'1 '", "'+1'", "'01'", "'0x1'", "'1x'", "'1 2'", "'2'", "'3'", "'4'", "'6'",
        "'-1'", "'x'", "'xny'", "'4294967297'", "'99999999999999999999'", "'123456789012345'", "'1234567890123456'", "'           1'",
        "'            1'", "'1           n'",
    };
    ask_about(texts, sizeof texts / sizeof texts[0]);
    EACH(puts_at("self/clear_refs", things[thing], -1));
    EACH(puts_at("self/clear_refs", things[thing], 5));
    EACH(puts_at("peer/clear_refs", things[thing], -1));
    EACH_TELLS("self/comm", name_now(), puts_at("self/comm", things[thing], -1));
    EACH_TELLS("self/comm at 5", name_now(), puts_at("self/comm", things[thing], 5));
    EACH(puts_at("peer/comm", things[thing], -1));
    EACH(puts_at("thread/comm", things[thing], -1));
    EACH(puts_at("self/stat", things[thing], -1));
    EACH(puts_at("version", things[thing], -1));
}

static const struct exception not_shown[] = {
    {"\"self/clear_refs\", things[thing], 5", " '' "},
    // Linux keeps the auxiliary vector of who is dead, forgets who saw what is mounted, and makes maps anew with each read.
    {"text(", " auxv mounts "},
    {"read(THE_DEAD", " auxv mounts maps smaps "},
    {"open(of_the_dead", " mounts "},
    // /proc can't be watched for changes (docs/limits.md).
    {"polled", " mounts "},
    // Its directories can be looked at, but not entered.
    {"fstat(THE_DEAD", " fd "},
    {"openat(THE_DEAD, \".\"", " . fd fdinfo task THREAD "},
    {"fchdir(THE_DEAD", " . fd fdinfo task THREAD "},
    {NULL, NULL},
};

int main(int argc, char **argv) {
    exceptions = not_shown;
    prepare_proc();
    *peer = begin_peer();
    wrong_names();
    contents();
    settings();
    kill(*peer, SIGKILL);
    dying();
    show_due();
    return 0;
}
