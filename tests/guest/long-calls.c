// Calls whose length the caller decides leave the CPU to others on the way, and end when their process is killed.
// cob: link=static kernels=1,2,4 compare=host timeout=120
#define _GNU_SOURCE
#include "test.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

#define HUGE_LENGTH (1L << 40)
#define LONGEST 0x7ffff000L
#define PIECE (1L << 20)

// Memory of any length that takes hardly any: the same pages again and again.
static char *much(long length) {
    int fd = memfd_create("piece", 0);
    MUST(fd >= 0 && ftruncate(fd, PIECE) == 0);
    char *all = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    MUST(all != MAP_FAILED);
    for (long at = 0; at < length; at += PIECE)
        MUST(mmap(all + at, PIECE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, 0) == all + at);
    return all;
}

static char *memory;
static int zero, null, endless;

static void prepare(void) {
    memory = much(64 << 20);
    zero = open("/dev/zero", O_RDWR);
    null = open("/dev/null", O_RDWR);
    endless = memfd_create("endless", 0);
    MUST(zero >= 0 && null >= 0 && endless >= 0 && ftruncate(endless, 1L << 62) == 0);
}

static void populate(void) {
    void *at = mmap(NULL, HUGE_LENGTH, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    MUST(at != MAP_FAILED);
    madvise(at, HUGE_LENGTH, MADV_POPULATE_READ);
    munmap(at, HUGE_LENGTH);
}

static void map_populated(void) {
    void *at = mmap(NULL, HUGE_LENGTH, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_POPULATE, -1, 0);
    munmap(at, HUGE_LENGTH);
}

static void send_zeros(void) { MUST(sendfile(null, zero, NULL, LONGEST) == LONGEST); }

static void read_zeros(void) {
    struct iovec parts[32];
    for (int i = 0; i < 32; i++)
        parts[i] = (struct iovec){memory, 64 << 20};
    MUST(readv(zero, parts, 32) > 0);
}

static void write_nothing(void) { MUST(write(null, memory, 64 << 20) == 64 << 20); }

static void read_a_hole(void) { MUST(pread(endless, memory, 64 << 20, 12345) == 64 << 20); }

static void random_bytes(void) { MUST(getrandom(memory, 64 << 20, 0) > 0); }

static void copy_from_itself(void) {
    struct iovec here = {memory, 32 << 20}, there = {memory + (32 << 20), 32 << 20};
    MUST(process_vm_readv(getpid(), &here, 1, &there, 1, 0) > 0);
}

static void look_ahead(void) { readahead(endless, 0, 1L << 61); }

// Until there is no room left; the hole comes back.
static void reserve(void) {
    fallocate(endless, FALLOC_FL_KEEP_SIZE, 0, 32 << 20);
    fallocate(endless, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, 0, 32 << 20);
}

static void residents(void) {
    static unsigned char seen[1 << 20];
    void *at = mmap(NULL, (long)sizeof seen << 12, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    MUST(at != MAP_FAILED && mincore(at, (long)sizeof seen << 12, seen) == 0);
    munmap(at, (long)sizeof seen << 12);
}

static const struct {
    const char *name;
    void (*call)(void);
} LONG[] = {
    {"madvise", populate},       {"mmap", map_populated},      {"sendfile", send_zeros},  {"readv", read_zeros},
    {"write", write_nothing},    {"pread", read_a_hole},       {"getrandom", random_bytes}, {"process_vm_readv", copy_from_itself},
    {"readahead", look_ahead},   {"fallocate", reserve},       {"mincore", residents},
};

// The child says that it begins and does nothing else until it is killed.
static void killed_in(int index) {
    int begun[2], status;
    MUST(pipe(begun) == 0);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        prepare();
        MUST(write(begun[1], "", 1) == 1);
        for (;;)
            LONG[index].call();
    }
    char byte;
    MUST(read(begun[0], &byte, 1) == 1);
    close(begun[0]), close(begun[1]);
    // Its call is under way when this has slept.
    struct timespec moment = {.tv_nsec = 5000000};
    nanosleep(&moment, NULL);
    MUST(kill(child, SIGKILL) == 0);
    MUST(waitpid(child, &status, 0) == child);
    printf("%s: %s\n", LONG[index].name, WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL ? "killed" : "ended");
}

int main(void) {
    for (unsigned i = 0; i < sizeof LONG / sizeof LONG[0]; i++)
        killed_in(i);
    return 0;
}
