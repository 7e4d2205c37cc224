// Programs that may be executed but not read, and execveat by descriptors of every kind (man 2 execve, execveat).
// cob: link=static compare=host
#include "test.h"
#include <sys/prctl.h>

#define NOBODY 54321
static char *const none[] = {NULL};

static int at(int fd, const char *path, int flags) {
    char *const arguments[] = {"again", "said", NULL};
    return (int)syscall(SYS_execveat, fd, path, arguments, none, flags);
}

// Executes in a child; says how it failed.
#define RUN(what, fd, path, flags) IN_CHILD(what, SHOW(at(fd, path, flags)))

static void copy_self(const char *to, mode_t mode) {
    int from = open("/proc/self/exe", O_RDONLY), into = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0700);
    MUST(from >= 0 && into >= 0);
    static char bytes[1 << 16];
    ssize_t got;
    while ((got = read(from, bytes, sizeof bytes)) > 0)
        MUST(write(into, bytes, (size_t)got) == got);
    close(from), close(into);
    MUST(chmod(to, mode) == 0);
}

static void write_script(const char *to, const char *text, mode_t mode) {
    int into = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0700);
    MUST(into >= 0 && write(into, text, strlen(text)) == (ssize_t)strlen(text));
    close(into);
    MUST(chmod(to, mode) == 0);
}

// ETXTBSY: what is open for writing, anywhere, is not executed.
static void busy(int directory) {
    printf("-- busy\n");
    int cpus[2] = {0, cpu_count() - 1};
    for (int moved = 0; moved < 2; moved++) {
        move_to(cpus[moved]);
        copy_self("fresh", 0755);
        RUN("closed", directory, "fresh", 0);
        int writes = open("fresh", O_WRONLY);
        RUN("open to write", directory, "fresh", 0);
        IN_CHILD("elsewhere", move_to(cpus[!moved]); SHOW(at(directory, "fresh", 0)); SHOW(at(directory, "fresh", 0x10000)));
        int other = dup(writes), reads = open("fresh", O_RDONLY), path = open("fresh", O_PATH);
        close(writes);
        RUN("a copy is open", reads, "", AT_EMPTY_PATH);
        RUN("by O_PATH", path, "", AT_EMPTY_PATH);
        close(other);
        RUN("closed again", directory, "fresh", 0);
        IN_CHILD("closed, elsewhere", move_to(cpus[!moved]); SHOW(at(directory, "fresh", 0)));
        int both = open("fresh", O_RDWR | O_APPEND);
        RUN("open to read and write", reads, "", AT_EMPTY_PATH);
        close(both), close(reads), close(path);
        int script = open("script", O_WRONLY);
        RUN("script", directory, "script", 0);
        close(script);
        RUN("script, closed", directory, "script", 0);
        // Held by a child on the other kernel, which is told to close it.
        int held[2];
        MUST(pipe(held) == 0);
        fflush(stdout);
        pid_t holder = fork();
        if (holder == 0) {
            close(held[1]);
            move_to(cpus[!moved]);
            int fd = open("fresh", O_RDWR);
            char c;
            kill(getpid(), SIGSTOP);
            read(held[0], &c, 1);
            close(fd);
            kill(getpid(), SIGSTOP);
            _exit(0);
        }
        MUST(waitpid(holder, NULL, WUNTRACED) == holder);
        RUN("open in another process", directory, "fresh", 0);
        kill(holder, SIGCONT);
        MUST(write(held[1], "", 1) == 1 && waitpid(holder, NULL, WUNTRACED) == holder);
        RUN("closed there", directory, "fresh", 0);
        kill(holder, SIGKILL);
        MUST(waitpid(holder, NULL, 0) == holder);
        close(held[0]), close(held[1]);
    }
    move_to(0);
    int memory = memfd_create("program", 0), from = open("both", O_RDONLY);
    static char bytes[1 << 16];
    ssize_t got;
    while ((got = read(from, bytes, sizeof bytes)) > 0)
        MUST(write(memory, bytes, (size_t)got) == got);
    RUN("memory", memory, "", AT_EMPTY_PATH);
    close(memory), close(from);
}

static void seen_by_another(pid_t pid) {
    char path[64], byte;
    static const char *const files[] = {"maps", "environ", "mem", "auxv", "status", "cmdline", "stat"};
    for (int i = 0; i < 7; i++) {
        snprintf(path, sizeof path, "/proc/%d/%s", pid, files[i]);
        int fd = open(path, O_RDONLY);
        printf("%s: %s\n", files[i], fd < 0 ? error_name(errno) : "open");
        if (fd >= 0)
            close(fd);
    }
    snprintf(path, sizeof path, "/proc/%d/exe", pid);
    printf("exe: %s\n", readlink(path, &byte, 1) < 0 ? error_name(errno) : "read");
}

int main(int count, char **arguments) {
    if (count > 1 && strcmp(arguments[1], "said") == 0) {
        printf("executed, dumpable %d\n", prctl(PR_GET_DUMPABLE));
        return 5;
    }
    if (count > 1 && strcmp(arguments[1], "waits") == 0) {
        printf("executed, dumpable %d\n", prctl(PR_GET_DUMPABLE));
        fflush(stdout);
        write(7, "", 1);
        for (;;)
            pause();
    }
    MUST(chmod(".", 0755) == 0);
    copy_self("both", 0755);
    copy_self("executes", 0711);
    copy_self("reads", 0744);
    copy_self("none", 0600);
    write_script("script", "#!/bin/sh\necho script $0\n", 0755);
    write_script("hidden", "#!/bin/sh\necho hidden $0\n", 0711);
    MUST(mkdir("directory", 0755) == 0 && symlink("both", "link") == 0 && mkfifo("fifo", 0777) == 0);
    int directory = open(".", O_RDONLY | O_DIRECTORY), file = open("both", O_RDONLY), path = open("both", O_PATH);
    int link = open("link", O_PATH | O_NOFOLLOW), fifo = open("fifo", O_RDWR), hidden = open("executes", O_PATH);
    int script = open("script", O_RDONLY | O_CLOEXEC), kept = dup2(open("script", O_RDONLY), 60), secret = open("none", O_PATH);
    int memory = memfd_create("program", 0), closed = 200;
    char absolute[512], link_path[600], self[64];
    MUST(getcwd(absolute, sizeof absolute));
    snprintf(link_path, sizeof link_path, "%s/link", absolute);
    strcat(absolute, "/both");
    int exe = open("/proc/self/exe", O_RDONLY);
    static char bytes[1 << 16];
    ssize_t got;
    while ((got = read(exe, bytes, sizeof bytes)) > 0)
        MUST(write(memory, bytes, (size_t)got) == got);
    snprintf(self, sizeof self, "/proc/self/fd/%d", memory);
    int program = open(self, O_RDONLY), named = open(self, O_PATH);
    close(memory);
    for (int user = 0; user < 2; user++) {
        printf("-- %s\n", user ? "a user" : "root");
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            if (user)
                MUST(setresgid(NOBODY, NOBODY, NOBODY) == 0 && setresuid(NOBODY, NOBODY, NOBODY) == 0);
            RUN("absolute, bad descriptor", closed, absolute, 0);
            RUN("absolute, descriptor -5", -5, absolute, AT_EMPTY_PATH);
            RUN("relative, bad descriptor", closed, "both", 0);
            RUN("relative, a file", file, "both", 0);
            RUN("relative", directory, "both", 0);
            RUN("empty, bad descriptor", closed, "", AT_EMPTY_PATH);
            RUN("empty without the flag", file, "", 0);
            RUN("empty", file, "", AT_EMPTY_PATH);
            RUN("empty, O_PATH", path, "", AT_EMPTY_PATH);
            RUN("empty, O_PATH of a link", link, "", AT_EMPTY_PATH);
            RUN("empty, a directory", directory, "", AT_EMPTY_PATH);
            RUN("empty, the current directory", AT_FDCWD, "", AT_EMPTY_PATH);
            RUN("empty, a fifo", fifo, "", AT_EMPTY_PATH);
            RUN("empty, O_PATH of what executes only", hidden, "", AT_EMPTY_PATH);
            RUN("empty, O_PATH of what does not execute", secret, "", AT_EMPTY_PATH);
            RUN("empty, memory", program, "", AT_EMPTY_PATH);
            RUN("empty, O_PATH of memory", named, "", AT_EMPTY_PATH);
            RUN("memory by path", AT_FDCWD, self, 0);
            RUN("script that stays open", kept, "", AT_EMPTY_PATH);
            RUN("script that closes", script, "", AT_EMPTY_PATH);
            RUN("script by name", directory, "script", 0);
            RUN("link", directory, "link", 0);
            RUN("link not followed", directory, "link", AT_SYMLINK_NOFOLLOW);
            RUN("absolute link not followed", closed, link_path, AT_SYMLINK_NOFOLLOW);
            RUN("executes only", directory, "executes", 0);
            RUN("reads only", directory, "reads", 0);
            RUN("nothing", directory, "none", 0);
            RUN("script that executes only", directory, "hidden", 0);
            RUN("unknown flag", directory, "both", 1);
            IN_CHILD("open to read", TRY(open("executes", O_RDONLY)));
            fflush(stdout);
            _exit(0);
        }
        MUST(waitpid(child, NULL, 0) == child);
    }
    busy(directory);
    // Who may look into a program that cannot be read?
    for (int which = 0; which < 2; which++) {
        int ready[2];
        MUST(pipe(ready) == 0);
        fflush(stdout);
        pid_t watched = fork();
        if (watched == 0) {
            dup2(ready[1], 7);
            MUST(setresgid(NOBODY, NOBODY, NOBODY) == 0 && setresuid(NOBODY, NOBODY, NOBODY) == 0);
            execl(which ? "./executes" : "./both", "again", "waits", NULL);
            _exit(1);
        }
        char c;
        MUST(read(ready[0], &c, 1) == 1);
        IN_CHILD("another process of the user", {
            MUST(setresgid(NOBODY, NOBODY, NOBODY) == 0 && setresuid(NOBODY, NOBODY, NOBODY) == 0);
            // This one is dumpable again.
            prctl(PR_SET_DUMPABLE, 1);
            seen_by_another(watched);
        });
        kill(watched, SIGKILL);
        MUST(waitpid(watched, NULL, 0) == watched);
    }
    return 0;
}
