// Memory of one thread on one CPU.
#include "micro.h"

static uint64_t map_touch_unmap(long n, long pages) {
    uint64_t start = now();
    for (long i = 0; i < n; i++) {
        char *at = fresh_pages(pages);
        write_pages(at, pages);
        MUST(!munmap(at, pages * PAGE));
    }
    return now() - start;
}

static uint64_t map_4k(long n) { return map_touch_unmap(n, 1); }
static uint64_t map_1m(long n) { return map_touch_unmap(n, 256); }

static uint64_t protect(long n) {
    char *at = fresh_pages(1);
    write_pages(at, 1);
    uint64_t start = now();
    for (long i = 0; i < n; i++) {
        MUST(!mprotect(at, PAGE, PROT_READ));
        MUST(!mprotect(at, PAGE, PROT_READ | PROT_WRITE));
        write_pages(at, 1);
    }
    uint64_t time = now() - start;
    munmap(at, PAGE);
    return time;
}

// A page at a time, in regions of 1 MiB whose making is not counted.
#define CHUNK 256L

static uint64_t fault_anonymous(long n) {
    uint64_t sum = 0;
    for (long done = 0; done < n; done += CHUNK) {
        long pages = n - done < CHUNK ? n - done : CHUNK;
        char *at = fresh_pages(CHUNK);
        uint64_t start = now();
        write_pages(at, pages);
        sum += now() - start;
        munmap(at, CHUNK * PAGE);
    }
    return sum;
}

static int file_of(const char *path, long pages) {
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    MUST(fd >= 0 && !ftruncate(fd, pages * PAGE));
    for (long page = 0; page < pages; page++)
        MUST(pwrite(fd, "x", 1, page * PAGE) == 1);
    return fd;
}

static uint64_t fault_file(long n) {
    uint64_t sum = 0;
    int fd = file_of("/tmp/mapped", CHUNK);
    for (long done = 0; done < n; done += CHUNK) {
        long pages = n - done < CHUNK ? n - done : CHUNK;
        char *at = mmap(NULL, CHUNK * PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
        MUST(at != MAP_FAILED);
        uint64_t start = now();
        read_pages(at, pages);
        sum += now() - start;
        munmap(at, CHUNK * PAGE);
    }
    close(fd);
    unlink("/tmp/mapped");
    return sum;
}

// Copy on write: a child writes what its parent has.
static uint64_t fault_cow(long n) {
    uint64_t sum = 0;
    char *at = fresh_pages(CHUNK);
    write_pages(at, CHUNK);
    for (long done = 0; done < n; done += CHUNK) {
        long pages = n - done < CHUNK ? n - done : CHUNK;
        int ends[2];
        MUST(!pipe(ends));
        pid_t child = fork();
        MUST(child >= 0);
        if (!child) {
            uint64_t start = now();
            write_pages(at, pages);
            uint64_t time = now() - start;
            MUST(write(ends[1], &time, sizeof time) == sizeof time);
            _exit(0);
        }
        uint64_t time;
        MUST(read(ends[0], &time, sizeof time) == sizeof time && waitpid(child, NULL, 0) == child);
        close(ends[0]);
        close(ends[1]);
        sum += time;
    }
    munmap(at, CHUNK * PAGE);
    return sum;
}

const struct row memory_rows[] = {
    {"mmap, touch, munmap 4 KiB", map_4k, 1},
    {"mmap, touch, munmap 1 MiB", map_1m, 1},
    {"mprotect twice and write", protect, 1},
    {"page fault, anonymous", fault_anonymous, 1},
    {"page fault, file", fault_file, 1},
    {"page fault, copy on write", fault_cow, 1},
    {0},
};
