// /proc/PID/mem: the memory of a process, wherever its threads and pages are, also where it may not go itself; whose it is, and
// what is left of it after execve and the end.
// cob: link=static,dynamic kernels=1,2,4 compare=host
#include "test.h"
#include <sys/prctl.h>

enum { RW = PROT_READ | PROT_WRITE, ANON = MAP_PRIVATE | MAP_ANONYMOUS, PAGES = 8 };

static char *memory;
static int orders[2], answers[2];
static char *volatile nowhere = (char *)8;

static int open_mem(pid_t pid, int flags) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", pid);
    return open(path, flags);
}

// The first byte of each page: '!' where it can't be read.
static void show(const char *what, int mem) {
    char text[PAGES + 1] = "", byte;
    for (int page = 0; page < PAGES; page++) {
        long got = pread(mem, &byte, 1, (long)memory + page * PAGE);
        text[page] = got == 1 ? byte ? byte : '.' : got == 0 ? '0' : '!';
    }
    printf("%s: %s\n", what, text);
}

static void order(char what) {
    char byte;
    fflush(stdout);
    MUST(write(orders[1], &what, 1) == 1 && read(answers[0], &byte, 1) == 1);
}

__attribute__((noinline, aligned(4096))) static int answer(void) { return 1; }

static void target(void) {
    char what;
    close(orders[1]);
    MUST(write(answers[1], "", 1) == 1);
    while (read(orders[0], &what, 1) == 1) {
        if (what == 'm')
            move_to(cpu_count() - 1);
        if (what == 't')
            for (int page = 0; page < 4; page++)
                memory[page * PAGE] = 'T';
        if (what == 'n')
            MUST(mprotect(memory, 2 * PAGE, PROT_NONE) == 0 && mprotect(memory + 2 * PAGE, 2 * PAGE, PROT_READ) == 0);
        if (what == 'r')
            MUST(mprotect(memory, 4 * PAGE, RW) == 0);
        if (what == 's') {
            char text[PAGES + 1] = "";
            for (int page = 0; page < PAGES; page++)
                text[page] = memory[page * PAGE] ? memory[page * PAGE] : '.';
            printf("  it sees %s, answers %d\n", text, answer());
            fflush(stdout);
        }
        if (what == 'e')
            execl("/bin/sleep", "sleep", "1000", NULL);
        if (what == 'u')
            prctl(PR_SET_DUMPABLE, 0);
        MUST(write(answers[1], "", 1) == 1);
    }
    _exit(0);
}

static pid_t start(void) {
    char byte;
    fflush(stdout);
    MUST(pipe2(orders, O_CLOEXEC) == 0 && pipe2(answers, O_CLOEXEC) == 0);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0)
        target();
    close(orders[0]), close(answers[1]);
    MUST(read(answers[0], &byte, 1) == 1);
    return child;
}

static void end(pid_t child) {
    int status;
    close(orders[1]), close(answers[0]);
    MUST(waitpid(child, &status, 0) == child);
    show_status("it", status);
}

static void as_user(const char *what, pid_t pid) {
    IN_CHILD(what, MUST(setresgid(1000, 1000, 1000) == 0 && setresuid(1000, 1000, 1000) == 0); SHOW(open_mem(pid, O_RDONLY) == -1 ? -1 : 0));
}

int main(void) {
    int file = open("file", O_CREAT | O_RDWR | O_TRUNC, 0600), only = open("file", O_RDONLY);
    for (int page = 0; page < PAGES; page++)
        MUST(pwrite(file, &"abcdefgh"[page], 1, page * PAGE) == 1);
    // Anonymous, of a file, of a file read-only, shared read-only.
    memory = mmap(NULL, PAGES * PAGE, RW, ANON, -1, 0);
    MUST(mmap(memory + 4 * PAGE, PAGE, RW, MAP_PRIVATE | MAP_FIXED, file, 4 * PAGE) == memory + 4 * PAGE);
    MUST(mmap(memory + 5 * PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, only, 5 * PAGE) == memory + 5 * PAGE);
    MUST(mmap(memory + 6 * PAGE, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, file, 6 * PAGE) == memory + 6 * PAGE);
    MUST(mmap(memory + 7 * PAGE, PAGE, RW, MAP_SHARED | MAP_FIXED, file, 7 * PAGE) == memory + 7 * PAGE);
    memory[0] = 'P';

    for (int moved = 0; moved < 2; moved++) {
        pid_t child = start();
        if (moved)
            order('m');
        int mem = open_mem(child, O_RDWR);
        MUST(mem >= 0);
        show("at first", mem);
        order('t');
        show("touched", mem);
        order('n');
        show("protected", mem);
        for (int page = 0; page < PAGES; page++)
            printf("  written %zd\n", pwrite(mem, "m", 1, (long)memory + page * PAGE));
        show("written", mem);
        order('r');
        order('s');
        printf("  own %c %c %c %c %c\n", memory[0], memory[4 * PAGE], memory[5 * PAGE], memory[6 * PAGE], memory[7 * PAGE]);
        char text[9] = "";
        for (int page = 0; page < PAGES; page++)
            MUST(pread(file, text + page, 1, page * PAGE) == 1);
        printf("  file %s\n", text);

        // Over the borders of pages, into a hole, from nowhere.
        static char buffer[3 * 4096];
        memset(buffer, 'x', sizeof buffer);
        SHOW(pwrite(mem, buffer, 5000, (long)memory + PAGE - 100));
        memset(buffer, 0, sizeof buffer);
        SHOW(pread(mem, buffer, 2 * PAGE, (long)memory + PAGE - 200));
        int there = 0;
        for (int i = 0; i < 2 * PAGE; i++)
            there += buffer[i] == 'x';
        printf("  there %d, first %d, last %d\n", there, buffer[99] == 'x', buffer[100 + 4999] == 'x');
        SHOW(pread(mem, buffer, 10, 4096));
        SHOW(pwrite(mem, buffer, 10, 4096));
        SHOW(pread(mem, buffer, 0, 4096));
        SHOW(pread(mem, nowhere, 10, (long)memory));
        SHOW(pread(mem, buffer, 10, -4096));
        SHOW(lseek(mem, 0, SEEK_END));
        SHOW(lseek(mem, 4096, SEEK_SET));
        SHOW(lseek(mem, 96, SEEK_CUR));
        SHOW(read(mem, buffer, 10));
        SHOW(lseek(mem, (long)memory, SEEK_SET) == (long)memory);
        SHOW(read(mem, buffer, 10));
        SHOW(write(mem, "yz", 2));
        SHOW(lseek(mem, 0, SEEK_CUR) - (long)memory);
        SHOW(lseek(mem, -10000L, SEEK_SET) == -10000L);
        SHOW(read(mem, buffer, 10));
        SHOW((long)mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, mem, 0) == -1 ? -1 : 0);
        SHOW(ftruncate(mem, 0));
        struct stat status;
        MUST(fstat(mem, &status) == 0);
        printf("  mode %o, size %ld\n", status.st_mode, status.st_size);

        // A breakpoint's way: its text is changed, and nobody else's. The number is behind mov eax (SDM 2B, MOV).
        unsigned char code[16];
        MUST(pread(mem, code, sizeof code, (long)answer) == sizeof code);
        for (unsigned i = 0; i + 4 < sizeof code; i++)
            if (code[i] == 0xb8 && code[i + 1] == 1) {
                SHOW(pwrite(mem, "\2", 1, (long)answer + i + 1));
                break;
            }
        order('s');
        printf("  own answer %d\n", answer());

        int reader = open_mem(child, O_RDONLY), writer = open_mem(child, O_WRONLY);
        SHOW(pwrite(reader, "x", 1, (long)memory));
        SHOW(pread(writer, buffer, 1, (long)memory));
        order('u');
        as_user("a user", child);
        close(reader), close(writer);

        // The descriptor stays the old memory's.
        char byte = 'e', name[8] = "";
        MUST(write(orders[1], &byte, 1) == 1 && read(answers[0], &byte, 1) == 0);
        show("executed something else", mem);
        SHOW(pwrite(mem, "x", 1, (long)memory));
        int again = open_mem(child, O_RDONLY);
        MUST(again >= 0);
        SHOW(pread(again, name, 4, 4096));
        MUST(kill(child, SIGKILL) == 0);
        siginfo_t info;
        MUST(waitid(P_PID, child, &info, WEXITED | WNOWAIT) == 0);
        show("a zombie", again);
        TRY(open_mem(child, O_RDONLY));
        end(child);
        show("gone", again);
        TRY(open_mem(child, O_RDONLY));
        close(mem), close(again);
    }

    int self = open("/proc/self/mem", O_RDWR);
    MUST(mprotect(memory, PAGE, PROT_NONE) == 0);
    SHOW(pwrite(self, "S", 1, (long)memory));
    show("self", self);
    move_to(cpu_count() - 1);
    show("self, moved", self);
    MUST(mprotect(memory, PAGE, PROT_READ) == 0);
    printf("%c\n", memory[0]);
    prctl(PR_SET_DUMPABLE, 0);
    TRY(open("/proc/self/mem", O_RDONLY));
}
