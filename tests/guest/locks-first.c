// Which lock F_GETLK tells of where several are in the way, and whether a wait status says that a core was dumped where none is.
// cob: link=static,dynamic compare=host
#include "test.h"
#include <sys/resource.h>

static int file;
static pid_t holders[3];

static void held(int from, int type, off_t start, off_t len) {
    struct flock lock = {.l_type = (short)type, .l_start = start, .l_len = len};
    MUST(fcntl(from, F_SETLK, &lock) == 0);
}

static void first(const char *what, int type, off_t start, off_t len) {
    struct flock lock = {.l_type = (short)type, .l_start = start, .l_len = len};
    MUST(fcntl(file, F_GETLK, &lock) == 0);
    int who = -1;
    for (int i = 0; i < 3; i++)
        if (lock.l_pid == holders[i])
            who = i;
    printf("%s: type %d, %ld to %ld, of %d\n", what, lock.l_type, (long)lock.l_start, (long)(lock.l_start + lock.l_len), lock.l_type == F_UNLCK ? -1 : who);
}

// Lets a holder make the next step of its own.
static int go[3][2], done[2];

static void steps(int who, int (*step)(int who, int number)) {
    char c;
    for (int number = 0; read(go[who][0], &c, 1) == 1; number++) {
        step(who, number);
        write(done[1], "", 1);
    }
    _exit(0);
}

static int step(int who, int number) {
    static const struct { int type; off_t start, len; } all[3][4] = {
        {{F_WRLCK, 50, 10}, {F_RDLCK, 10, 10}, {F_UNLCK, 52, 2}, {F_WRLCK, 0, 100}},
        {{F_RDLCK, 20, 10}, {F_RDLCK, 2, 3}, {F_RDLCK, 15, 10}, {F_UNLCK, 0, 200}},
        {{F_WRLCK, 0, 1}, {F_WRLCK, 110, 10}, {F_WRLCK, 105, 3}, {F_UNLCK, 0, 1}},
    };
    held(file, all[who][number].type, all[who][number].start, all[who][number].len);
    return 0;
}

static void let(int who) {
    char c;
    write(go[who][1], "", 1);
    MUST(read(done[0], &c, 1) == 1);
}

static void look(const char *what) {
    printf("-- %s\n", what);
    first("write, all", F_WRLCK, 0, 0);
    first("read, all", F_RDLCK, 0, 0);
    first("write from 12", F_WRLCK, 12, 0);
    first("write 16 to 56", F_WRLCK, 16, 40);
    first("write 53", F_WRLCK, 53, 1);
    first("write from 100", F_WRLCK, 100, 0);
}

int main(void) {
    MUST((file = open("locked", O_RDWR | O_CREAT, 0600)) >= 0 && pipe(done) == 0);
    for (int i = 0; i < 3; i++)
        MUST(pipe(go[i]) == 0);
    for (int i = 0; i < 3; i++) {
        fflush(stdout);
        if ((holders[i] = fork()) == 0) {
            for (int other = 0; other < 3; other++)
                close(go[other][1]);
            steps(i, step);
        }
    }
    look("nothing");
    let(0);
    look("0: writes 50");
    let(1);
    look("1: reads 20");
    let(0);
    look("0: reads 10");
    let(1);
    look("1: reads 2");
    let(2);
    look("2: writes 0");
    let(0);
    look("0: unlocks 52");
    let(1);
    look("1: reads 15");
    let(2);
    let(2);
    look("2: writes 110 and 105");
    let(1);
    look("1: nothing");
    let(2);
    let(0);
    look("0: writes all");
    for (int i = 0; i < 3; i++) {
        close(go[i][1]);
        MUST(waitpid(holders[i], NULL, 0) == holders[i]);
    }
    look("all gone");

    struct rlimit none = {0, 0};
    MUST(setrlimit(RLIMIT_CORE, &none) == 0);
    static const int deadly[] = {SIGABRT, SIGSEGV, SIGQUIT, SIGTERM, SIGKILL, SIGXCPU};
    for (int i = 0; i < 6; i++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            raise(deadly[i]);
            _exit(0);
        }
        siginfo_t info;
        int status;
        MUST(waitid(P_PID, child, &info, WEXITED | WNOWAIT) == 0 && waitpid(child, &status, 0) == child);
        printf("%s: code %d, core %d\n", sigabbrev_np(WTERMSIG(status)), info.si_code, WCOREDUMP(status) != 0);
    }
    return 0;
}
