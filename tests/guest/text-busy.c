// Text file busy both ways, on all kernels: a program that runs is not opened to be written nor truncated, and what somebody has open to write it is not
// executed.
// cob: link=static,dynamic compare=host
#define _GNU_SOURCE
#include "test.h"
#include <sys/stat.h>

static int to[2], from[2];

static void copy(const char *name) {
    char data[65536];
    int source = open("/proc/self/exe", O_RDONLY), target = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0755);
    MUST(source >= 0 && target >= 0);
    ssize_t got;
    while ((got = read(source, data, sizeof data)) > 0)
        MUST(write(target, data, got) == got);
    MUST(got == 0 && close(source) == 0 && close(target) == 0);
}

static void attempt(const char *what, int result) {
    printf("  %s: %s\n", what, result < 0 ? error_name(errno) : "done");
    if (result > 2)
        close(result);
}

static void attempts(const char *when, const char *name) {
    printf("%s\n", when);
    attempt("to read", open(name, O_RDONLY));
    attempt("to write", open(name, O_WRONLY));
    attempt("for both", open(name, O_RDWR));
    attempt("O_TRUNC", open(name, O_RDONLY | O_TRUNC));
    attempt("truncate", truncate(name, 5000));
    attempt("chmod", chmod(name, 0755));
    attempt("rename", rename(name, "other"));
    attempt("and back", rename("other", name));
}

// A child that executes `name` on this CPU and goes on until it is told to end.
static pid_t start(const char *name, const char *mode, int cpu) {
    fflush(stdout);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        move_to(cpu);
        char in[16], out[16];
        sprintf(in, "%d", to[0]);
        sprintf(out, "%d", from[1]);
        execl(name, name, mode, in, out, NULL);
        char answer = errno == ETXTBSY ? 'b' : '?';
        MUST(write(from[1], &answer, 1) == 1);
        _exit(1);
    }
    return child;
}

static char answer(void) {
    char letter;
    MUST(read(from[0], &letter, 1) == 1);
    return letter;
}

static void end(pid_t child) {
    MUST(write(to[1], "e", 1) == 1);
    MUST(waitpid(child, NULL, 0) == child);
}

static void here_and_there(int here, int there) {
    move_to(here);
    copy("program");
    attempts("not yet", "program");
    copy("program");
    pid_t child = start("./program", "waits", there);
    printf("runs: %c\n", answer());
    attempts("it runs", "program");
    end(child);
    // Its child goes on alone.
    child = start("./program", "forks", there);
    printf("runs: %c\n", answer());
    MUST(waitpid(child, NULL, 0) == child);
    attempt("its child runs, to write", open("program", O_WRONLY));
    MUST(write(to[1], "e", 1) == 1);
    printf("ended: %c\n", answer());
    // The child has written before it ended, so it may still be on its way.
    int fd;
    while ((fd = open("program", O_WRONLY)) < 0)
        MUST(errno == ETXTBSY);
    printf("ended, to write: done\n");
    child = start("./program", "waits", there);
    printf("while it may be written: %c\n", answer());
    MUST(waitpid(child, NULL, 0) == child);
    close(fd);
    child = start("./program", "waits", there);
    printf("no more: %c\n", answer());
    end(child);
    MUST(unlink("program") == 0);
}

int main(int argc, char **argv) {
    if (argc == 4) {
        int in = atoi(argv[2]), out = atoi(argv[3]);
        char letter;
        if (strcmp(argv[1], "forks") == 0 && fork() != 0)
            _exit(0);
        MUST(write(out, "r", 1) == 1 && read(in, &letter, 1) == 1);
        if (strcmp(argv[1], "forks") == 0)
            MUST(write(out, "e", 1) == 1);
        return 0;
    }
    MUST(pipe(to) == 0 && pipe(from) == 0);
    int last = cpu_count() - 1;
    here_and_there(0, 0);
    here_and_there(0, last);
    here_and_there(last, 0);
    here_and_there(last, last);
    return 0;
}
