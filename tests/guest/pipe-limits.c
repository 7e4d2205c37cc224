// How much a user may make the kernel keep in pipes (man 7 pipe: pipe-user-pages-soft, pipe-max-size). Not shaken: limits count what a user keeps on each kernel (docs/limits.md), and a shaken program is on several.
// cob: link=static,dynamic compare=host timeout=120 shake=no
#include "test.h"
#include <sys/resource.h>

#define NOBODY 54321
#define OTHER 54322
#define MOST 1500

static int ends[MOST][2], of_root[2];

static void as(uid_t uid) { MUST(setresuid(uid, uid, uid) == 0); }

static int made(int wanted) {
    for (int at = 0; at < wanted; at++)
        if (pipe(ends[at]) != 0) {
            printf("pipe: %s\n", error_name(errno));
            return at;
        }
    return wanted;
}

// Pipes up to the soft limit have their usual size, those beyond the least.
static void many(void) {
    int count = made(MOST), full = 0;
    while (full < count && fcntl(ends[full][0], F_GETPIPE_SZ) == 65536)
        full++;
    printf("%d of the usual size\n", full);
    SHOW(fcntl(ends[full][0], F_GETPIPE_SZ));
    SHOW(fcntl(ends[count - 1][0], F_GETPIPE_SZ));
    // The small one holds so much, and does not grow.
    static char bytes[65536];
    MUST(fcntl(ends[full][1], F_SETFL, O_NONBLOCK) == 0);
    SHOW(write(ends[full][1], bytes, sizeof bytes));
    SHOW(fcntl(ends[full][0], F_SETPIPE_SZ, 4096));
    SHOW(read(ends[full][0], bytes, sizeof bytes));
    SHOW(fcntl(ends[full][0], F_SETPIPE_SZ, 16384));
    SHOW(fcntl(ends[full][0], F_SETPIPE_SZ, 8192));
    SHOW(fcntl(ends[full][0], F_SETPIPE_SZ, 4096));
    SHOW(fcntl(ends[full][0], F_SETPIPE_SZ, 8192));
    SHOW(fcntl(ends[full][0], F_GETPIPE_SZ));
    // One that is closed leaves its room.
    for (int at = 0; at < 600; at++)
        close(ends[at][0]), close(ends[at][1]);
    SHOW(fcntl(ends[full][0], F_SETPIPE_SZ, 65536));
    SHOW(fcntl(ends[full][0], F_SETPIPE_SZ, 1 << 20));
    SHOW(fcntl(ends[full][0], F_SETPIPE_SZ, (1 << 20) + 1));
    int more[2];
    MUST(pipe(more) == 0);
    SHOW(fcntl(more[0], F_GETPIPE_SZ));
}

// A fifo that nobody has open takes nothing.
static void fifos(void) {
    char name[32];
    for (int at = 0; at < MOST; at++) {
        snprintf(name, sizeof name, "fifo%d", at);
        MUST(mkfifo(name, 0600) == 0);
        int fd = open(name, O_RDWR);
        MUST(fd >= 0 && fcntl(fd, F_GETPIPE_SZ) == 65536);
        if (at == 0)
            SHOW(fcntl(fd, F_SETPIPE_SZ, 1 << 20));
        close(fd);
    }
    int fd = open("fifo0", O_RDWR);
    SHOW(fcntl(fd, F_GETPIPE_SZ));
    for (int at = 0; at < MOST; at++) {
        snprintf(name, sizeof name, "fifo%d", at);
        MUST(unlink(name) == 0);
    }
}

static void large(void) {
    int count = made(100), grown = 0;
    while (grown < count && fcntl(ends[grown][0], F_SETPIPE_SZ, 1 << 20) == 1 << 20)
        grown++;
    printf("%d of the greatest size\n", grown);
    SHOW(fcntl(ends[grown][0], F_SETPIPE_SZ, 1 << 20));
    SHOW(fcntl(ends[grown][0], F_GETPIPE_SZ));
    int more[2];
    MUST(pipe(more) == 0);
    SHOW(fcntl(more[0], F_GETPIPE_SZ));
    // Who has made it pays.
    SHOW(fcntl(of_root[0], F_SETPIPE_SZ, 1 << 20));
}

int main(void) {
    struct rlimit files = {2 * MOST + 100, 2 * MOST + 100};
    MUST(setrlimit(RLIMIT_NOFILE, &files) == 0);
    MUST(mkdir("fifos", 0777) == 0 && chmod("fifos", 0777) == 0 && chdir("fifos") == 0);
    IN_CHILD("fifos", as(OTHER + 1); fifos());
    for (int moved = 0; moved < 2; moved++) {
        if (moved)
            move_to(cpu_count() - 1);
        MUST(pipe(of_root) == 0);
        IN_CHILD("many", as(NOBODY); many());
        IN_CHILD("large", as(OTHER); large());
        close(of_root[0]), close(of_root[1]);
        IN_CHILD("root", {
            int count = made(1100);
            SHOW(fcntl(ends[count - 1][0], F_GETPIPE_SZ));
            SHOW(fcntl(ends[count - 1][0], F_SETPIPE_SZ, 1 << 20));
        });
    }
    return 0;
}
