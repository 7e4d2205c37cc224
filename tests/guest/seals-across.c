// Seals that say whether a file may be written, and the mappings of it, wherever the file is, who maps it, and who seals it.
// cob: link=static,dynamic flags=-pthread kernels=1,2,4 compare=host
#include "hands.h"

enum { RW = PROT_READ | PROT_WRITE };

static int fd, reader;
static char *memory, *fixed, *other;
static int result;

static void make(void) {
    char path[64];
    MUST((fd = memfd_create("sealed", MFD_ALLOW_SEALING)) >= 0 && ftruncate(fd, 4 * PAGE) == 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    MUST((reader = open(path, O_RDONLY)) >= 0);
}

static void done(void) { MUST(close(fd) == 0 && close(reader) == 0); }

static const char *seal(int what) {
    errno = 0;
    return fcntl(fd, F_ADD_SEALS, what) == 0 ? "sealed" : error_name(errno);
}

static char *map(int from, int prot, int flags, char *at) {
    errno = 0;
    return mmap(at, PAGE, prot, flags, from, PAGE);
}

static const char *mapped(const char *at) { return at == MAP_FAILED ? error_name(errno) : "mapped"; }

static const char *protect(char *at, int prot) {
    errno = 0;
    return mprotect(at, PAGE, prot) == 0 ? "done" : error_name(errno);
}

static char *room(void) {
    char *at = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(at != MAP_FAILED);
    return at;
}

// A mapping that is, or may become, writable forbids the seal; others don't.
static void refused(int maker, int mapper, int sealer) {
    ON(maker, make());
    ON(sealer, printf("before: %s", seal(F_SEAL_GROW)));
    ON(mapper, memory = map(fd, RW, MAP_SHARED, NULL));
    ON(sealer, printf(", written: %s", seal(F_SEAL_WRITE | F_SEAL_SHRINK)));
    ON(mapper, MUST(mprotect(memory, PAGE, PROT_READ) == 0));
    ON(sealer, printf(", may be: %s", seal(F_SEAL_WRITE)); printf(", %x", fcntl(fd, F_GET_SEALS)));
    // At an address that another kernel may answer for.
    ON(maker, fixed = room());
    ON(mapper, MUST(map(fd, PROT_READ, MAP_SHARED | MAP_FIXED, fixed) == fixed && munmap(memory, PAGE) == 0));
    ON(sealer, printf(", at an address: %s", seal(F_SEAL_WRITE)));
    ON(maker, MUST(munmap(fixed, PAGE) == 0));
    ON(mapper, memory = map(fd, RW, MAP_PRIVATE, NULL); other = map(reader, PROT_READ, MAP_SHARED, NULL);
       MUST(memory != MAP_FAILED && other != MAP_FAILED); memory[1] = 7);
    ON(sealer, printf(", private, or of a reader: %s", seal(F_SEAL_WRITE)); printf(", %x\n", fcntl(fd, F_GET_SEALS)));
    ON(mapper, printf("%d %d, ", memory[1], other[1]); MUST(munmap(memory, PAGE) == 0 && munmap(other, PAGE) == 0));
    ON(sealer, errno = 0; result = pwrite(fd, "x", 1, 0); printf("%d %s, ", result, error_name(errno)));
    ON(maker, errno = 0; result = pwrite(fd, "x", 1, 0); printf("%d %s\n", result, error_name(errno)));
    ON(maker, done());
}

// What is mapped of a sealed file can't be written, now or later.
static int how;

static void sealed(int maker, int mapper, int sealer, int seals, const char *name) {
    how = seals;
    printf("%s: ", name);
    fflush(stdout);
    ON(maker, make());
    ON(sealer, printf("%s", seal(how)));
    ON(mapper, memory = map(fd, RW, MAP_SHARED, NULL); printf(", %s", mapped(memory)));
    ON(mapper, memory = map(fd, PROT_READ, MAP_SHARED, NULL); printf(", to read: %s", mapped(memory)));
    ON(mapper, printf(", %s", protect(memory, RW)); printf(", %s", protect(memory, PROT_READ | PROT_EXEC)));
    ON(maker, printf(", %s", protect(memory, RW)));
    ON(sealer, printf(", %s", protect(memory, RW)); MUST(munmap(memory, PAGE) == 0));
    ON(maker, fixed = room());
    ON(mapper, memory = map(fd, PROT_READ, MAP_SHARED | MAP_FIXED, fixed); printf(", at an address: %s", mapped(memory)));
    ON(sealer, printf(", %s", protect(memory, PROT_WRITE)));
    ON(mapper, memory = map(fd, PROT_WRITE, MAP_SHARED | MAP_FIXED, fixed); printf(", %s", mapped(memory)));
    ON(mapper, memory = map(fd, RW, MAP_PRIVATE, NULL); printf(", private: %s", mapped(memory)); memory[0] = 3);
    ON(sealer, printf(", %d", memory[0]); MUST(munmap(memory, PAGE) == 0));
    ON(mapper, printf(", %s\n", seal(F_SEAL_WRITE)));
    ON(maker, done());
}

// F_SEAL_FUTURE_WRITE leaves what there is.
static void future(int maker, int mapper, int sealer) {
    ON(maker, make());
    ON(mapper, MUST((memory = map(fd, RW, MAP_SHARED, NULL)) != MAP_FAILED));
    ON(sealer, printf("future: %s", seal(F_SEAL_FUTURE_WRITE)));
    ON(mapper, memory[0] = 5);
    ON(maker, char byte; MUST(pread(fd, &byte, 1, PAGE) == 1); printf(", %d", byte));
    ON(sealer, printf(", %s", protect(memory, PROT_READ)); printf(", %s", protect(memory, RW)); memory[0] = 6);
    ON(maker, char byte; MUST(pread(fd, &byte, 1, PAGE) == 1); printf(", %d", byte));
    ON(mapper, errno = 0; result = pwrite(fd, "x", 1, 0); printf(", %d %s", result, error_name(errno)));
    ON(sealer, printf(", more: %s", seal(F_SEAL_WRITE)));
    // A child's mapping counts like any other.
    int ready[2], go[2];
    MUST(pipe(ready) == 0 && pipe(go) == 0);
    fflush(stdout);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        char byte;
        move_to(hands[mapper].cpu);
        memory[0] = 8;
        MUST(write(ready[1], "r", 1) == 1 && read(go[0], &byte, 1) == 1);
        _exit(0);
    }
    char byte;
    int status;
    MUST(read(ready[0], &byte, 1) == 1);
    ON(mapper, MUST(munmap(memory, PAGE) == 0));
    ON(sealer, printf(", a child's: %s", seal(F_SEAL_WRITE)));
    MUST(write(go[1], "g", 1) == 1 && waitpid(child, &status, 0) == child);
    ON(sealer, printf(", afterwards: %s\n", seal(F_SEAL_WRITE | F_SEAL_SEAL)));
    ON(mapper, printf("no more: %s", seal(F_SEAL_GROW)); printf(", %x\n", fcntl(fd, F_GET_SEALS)));
    ON(maker, done());
    close(ready[0]), close(ready[1]), close(go[0]), close(go[1]);
}

// Mapping and sealing at the same moment: either there is a mapping, and the file is not sealed, or there is none.
static int meets[2];

static void meet(int maker, int mapper, int sealer) {
    int wrong = 0;
    for (int round = 0; round < 40; round++) {
        ON(maker, make());
        BEGIN(mapper, memory = map(fd, RW, MAP_SHARED, NULL); meets[0] = memory != MAP_FAILED);
        BEGIN(sealer, meets[1] = fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0);
        finish(mapper);
        finish(sealer);
        wrong += meets[0] == meets[1];
        if (meets[0])
            MUST(munmap(memory, PAGE) == 0);
        ON(maker, done());
    }
    printf("both or neither: %d\n", wrong);
}

int main(void) {
    start_hands();
    static const int places[][3] = {{0, 0, 0}, {0, 1, 2}, {1, 0, 2}, {2, 1, 0}, {1, 2, 1}, {2, 2, 0}, {0, 0, 2}};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const int *at = places[i];
        printf("-- made by %d, mapped by %d, sealed by %d\n", at[0], at[1], at[2]);
        refused(at[0], at[1], at[2]);
        sealed(at[0], at[1], at[2], F_SEAL_WRITE, "write");
        sealed(at[0], at[1], at[2], F_SEAL_FUTURE_WRITE, "future write");
        future(at[0], at[1], at[2]);
        if (at[1] != at[2])
            meet(at[0], at[1], at[2]);
        fflush(stdout);
    }
    return 0;
}
