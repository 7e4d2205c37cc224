// Mapped files are the file, wherever file, mapping and change are: writes, holes and truncations show in every mapping.
// cob: link=static kernels=1,2,4 compare=host timeout=120
#define _GNU_SOURCE
#include "test.h"
#include <setjmp.h>

enum { PAGES = 8, PLACES = 4, KINDS = 5 };
enum { SHARED, SHARED_READ, PRIVATE, PRIVATE_WRITTEN, SHARED_FIXED };
static const char *const names[] = {"shared", "shared, read-only", "private", "private, written", "shared, fixed"};
static volatile char *maps[PLACES][KINDS];
static sigjmp_buf back;

static void handler(int number) { siglongjmp(back, number); }

// The byte there, or minus the signal.
static int look(volatile char *at) {
    int number = sigsetjmp(back, 1);
    return number ? -number : *at;
}

// Each place is a CPU; with one CPU all are the same.
static void go(int place) { move_to(place * cpu_count() / PLACES); }

// One line for each kind of mapping: what every place sees at `offset`, mostly from another CPU than it was made on.
static void show(const char *what, long offset) {
    int seen[KINDS][PLACES];
    for (int here = 0; here < PLACES; here++) {
        go(here);
        for (int kind = 0; kind < KINDS; kind++) {
            int place = (here + kind) % PLACES;
            seen[kind][place] = look(maps[place][kind] + offset);
        }
    }
    printf("%s:", what);
    for (int kind = 0; kind < KINDS; kind++) {
        int same = 1;
        for (int place = 1; place < PLACES; place++)
            same &= seen[kind][place] == seen[kind][0];
        printf(" %s %d%s;", names[kind], seen[kind][0], same ? "" : " (not everywhere)");
    }
    printf("\n");
}

static void *map(int fd, int prot, int flags) {
    void *at = NULL;
    if (flags & MAP_FIXED) {
        at = mmap(NULL, PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        MUST(at != MAP_FAILED);
    }
    at = mmap(at, PAGES * PAGE, prot, flags, fd, 0);
    MUST(at != MAP_FAILED);
    return at;
}

static void look_at_all(void) {
    for (int place = 0; place < PLACES; place++) {
        go(place);
        for (int kind = 0; kind < KINDS; kind++)
            for (int page = 0; page < PAGES; page++)
                MUST(look(maps[place][kind] + page * PAGE) >= 0);
    }
}

static void story(const char *title, int fd, int read_only) {
    printf("-- %s\n", title);
    char page[PAGE];
    for (int i = 0; i < PAGES; i++) {
        memset(page, 10 + i, sizeof page);
        MUST(pwrite(fd, page, PAGE, i * PAGE) == PAGE);
    }
    for (int place = 0; place < PLACES; place++) {
        go(place);
        maps[place][SHARED] = map(fd, PROT_READ | PROT_WRITE, MAP_SHARED);
        maps[place][SHARED_READ] = map(read_only, PROT_READ, MAP_SHARED);
        maps[place][PRIVATE] = map(fd, PROT_READ, MAP_PRIVATE);
        maps[place][PRIVATE_WRITTEN] = map(fd, PROT_READ | PROT_WRITE, MAP_PRIVATE);
        maps[place][SHARED_FIXED] = map(fd, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED);
        for (int i = 0; i < PAGES; i += 2)
            maps[place][PRIVATE_WRITTEN][i * PAGE] = 50 + i;
    }
    look_at_all();
    show("page 1 at first", PAGE);

    for (int place = 0; place < PLACES; place++) {
        go(place);
        char byte = 60 + place;
        MUST(pwrite(fd, &byte, 1, PAGE + 5) == 1);
        show("written by pwrite", PAGE + 5);
        MUST(pwrite(fd, &byte, 1, 2 * PAGE + 5) == 1);
        show("beside a private page", 2 * PAGE + 5);
        go(place);
        maps[place][SHARED][3 * PAGE + 7] = 70 + place;
        show("stored through shared", 3 * PAGE + 7);
        go(place);
        maps[PLACES - 1 - place][SHARED_FIXED][3 * PAGE + 7] = 80 + place;
        show("stored through shared, fixed", 3 * PAGE + 7);
        MUST(pread(fd, &byte, 1, 3 * PAGE + 7) == 1);
        printf("the file has %d\n", byte);
    }

    for (int place = 0; place < PLACES; place++) {
        go(place);
        MUST(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, PAGE / 2, 2 * PAGE) == 0);
        show("punched: before the hole", PAGE / 2 - 1);
        show("punched: the hole's first part", PAGE / 2);
        show("punched: a whole page", PAGE + 5);
        show("punched: its end", 2 * PAGE + 5);
        show("punched: after it", 2 * PAGE + PAGE / 2);
        memset(page, 90 + place, sizeof page);
        MUST(pwrite(fd, page, PAGE, 0) == PAGE && pwrite(fd, page, PAGE, PAGE) == PAGE && pwrite(fd, page, PAGE, 2 * PAGE) == PAGE);
        show("filled again", PAGE + 5);
        show("and its neighbour", 2 * PAGE + 5);
        go(place);
        MUST(madvise((void *)(maps[PLACES - 1 - place][SHARED] + PAGE), PAGE, MADV_REMOVE) == 0);
        show("MADV_REMOVE", PAGE + 5);
        go(place);
        MUST(madvise((void *)(maps[place][SHARED_FIXED] + 2 * PAGE), PAGE, MADV_REMOVE) == 0);
        show("MADV_REMOVE, fixed", 2 * PAGE + 5);
        MUST(pread(fd, page, 2, 2 * PAGE + 5) == 2);
        printf("the file has %d\n", page[0]);
    }

    for (int place = 0; place < PLACES; place++) {
        go(place);
        MUST(ftruncate(fd, 3 * PAGE + 100) == 0);
        show("truncated: the last page", 3 * PAGE + 99);
        show("truncated: its rest", 3 * PAGE + 100);
        show("truncated: the next", 4 * PAGE);
        show("truncated: far off", 7 * PAGE);
        go((place + 1) % PLACES);
        MUST(ftruncate(fd, PAGES * PAGE) == 0);
        show("longer again: the rest", 3 * PAGE + 100);
        show("longer again: the next", 4 * PAGE);
        show("longer again: far off", 7 * PAGE + 1);
        go(place);
        maps[place][SHARED][4 * PAGE] = 30;
        maps[place][SHARED][7 * PAGE + 1] = 31;
        show("written: the next", 4 * PAGE);
        show("written: far off", 7 * PAGE + 1);
        for (int other = 0; other < PLACES; other++)
            maps[other][PRIVATE_WRITTEN][6 * PAGE] = 33;
        show("private pages anew", 6 * PAGE);
    }
    for (int place = 0; place < PLACES; place++)
        for (int kind = 0; kind < KINDS; kind++)
            MUST(munmap((void *)maps[place][kind], PAGES * PAGE) == 0);
}

// A child that has copies of private pages, some of them shared with its parent copy-on-write.
static void forked(int fd) {
    printf("-- fork\n");
    MUST(ftruncate(fd, PAGES * PAGE) == 0);
    go(0);
    volatile char *mine = map(fd, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    go(PLACES - 1);
    volatile char *other = map(fd, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    mine[5 * PAGE] = other[5 * PAGE] = 1;
    mine[0] = other[0] = 2;
    int to_child[2], to_parent[2];
    MUST(pipe(to_child) == 0 && pipe(to_parent) == 0);
    fflush(stdout);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        char byte;
        go(1);
        mine[6 * PAGE] = other[6 * PAGE] = 3;
        MUST(look(mine + 5 * PAGE) == 1 && write(to_parent[1], "", 1) == 1 && read(to_child[0], &byte, 1) == 1);
        printf("the child sees %d %d %d, %d %d %d\n", look(mine), look(mine + 5 * PAGE), look(mine + 6 * PAGE), look(other),
               look(other + 5 * PAGE), look(other + 6 * PAGE));
        fflush(stdout);
        _exit(0);
    }
    char byte;
    MUST(read(to_parent[0], &byte, 1) == 1);
    go(2);
    MUST(ftruncate(fd, PAGE) == 0);
    MUST(write(to_child[1], "", 1) == 1);
    int status;
    MUST(waitpid(child, &status, 0) == child);
    show_status("child", status);
    printf("the parent sees %d %d, %d %d\n", look(mine), look(mine + 5 * PAGE), look(other), look(other + 5 * PAGE));
}

static void errors(int fd, int read_only) {
    printf("-- MADV_REMOVE\n");
    MUST(ftruncate(fd, PAGES * PAGE) == 0);
    for (int place = 0; place < PLACES; place += PLACES - 1) {
        go(place);
        char *anonymous = map(-1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
        char *shared_anonymous = map(-1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS);
        char *private = map(fd, PROT_READ | PROT_WRITE, MAP_PRIVATE), *reading = read_only < 0 ? NULL : map(read_only, PROT_READ, MAP_SHARED);
        char *shared = map(fd, PROT_READ | PROT_WRITE, MAP_SHARED), *protected = map(fd, PROT_READ, MAP_SHARED);
        SHOW(madvise(anonymous, PAGE, MADV_REMOVE));
        SHOW(madvise(private, PAGE, MADV_REMOVE));
        if (reading)
            SHOW(madvise(reading, PAGE, MADV_REMOVE));
        SHOW(madvise(protected, PAGE, MADV_REMOVE));
        SHOW(madvise(shared + 1, PAGE, MADV_REMOVE));
        SHOW(madvise(shared, 0, MADV_REMOVE));
        memset(shared_anonymous, 7, PAGES * PAGE);
        go(PLACES - 1 - place);
        MUST(shared_anonymous[2 * PAGE] == 7);
        SHOW(madvise(shared_anonymous + PAGE, 2 * PAGE, MADV_REMOVE));
        printf("left: %d %d %d %d\n", shared_anonymous[0], shared_anonymous[PAGE], shared_anonymous[2 * PAGE],
               shared_anonymous[3 * PAGE]);
        SHOW(munmap(shared + 2 * PAGE, PAGE));
        memset(shared, 9, 2 * PAGE);
        memset(shared + 3 * PAGE, 9, PAGE);
        SHOW(madvise(shared + PAGE, 3 * PAGE, MADV_REMOVE));
        printf("left: %d %d %d\n", shared[0], shared[PAGE], shared[3 * PAGE]);
        SHOW(mlock(shared, PAGE));
        SHOW(madvise(shared, PAGE, MADV_REMOVE));
        SHOW(munlock(shared, PAGE));
    }
    int sealed = memfd_create("sealed", MFD_ALLOW_SEALING);
    MUST(sealed >= 0 && ftruncate(sealed, PAGES * PAGE) == 0);
    char *writable = map(sealed, PROT_READ | PROT_WRITE, MAP_SHARED);
    MUST(fcntl(sealed, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0);
    SHOW(madvise(writable, PAGE, MADV_REMOVE));
    SHOW(fallocate(sealed, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE));
}

int main(void) {
    struct sigaction action = {.sa_handler = handler};
    MUST(sigaction(SIGBUS, &action, NULL) == 0 && sigaction(SIGSEGV, &action, NULL) == 0);
    for (int place = 0; place < PLACES; place += PLACES - 1) {
        go(place);
        char path[64];
        int fd = memfd_create("story", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        int read_only = open(path, O_RDONLY);
        MUST(fd >= 0 && read_only >= 0);
        story("memfd", fd, read_only);
        errors(fd, read_only);
        forked(fd);
        close(fd), close(read_only);
    }
    char path[] = "/dev/shm/cob-mapped-XXXXXX";
    int fd = mkstemp(path), read_only = open(path, O_RDONLY);
    MUST(fd >= 0 && read_only >= 0 && unlink(path) == 0);
    story("tmpfs", fd, read_only);
}
