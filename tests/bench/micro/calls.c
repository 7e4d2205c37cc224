// System calls of one thread.
#include "micro.h"

#define ROW(name, prepare, operation, finish)                                                                        \
    static uint64_t name(long n) {                                                                                   \
        prepare;                                                                                                     \
        uint64_t start = now();                                                                                      \
        for (long i = 0; i < n; i++)                                                                                 \
            { operation; }                                                                                           \
        uint64_t time = now() - start;                                                                               \
        finish;                                                                                                      \
        return time;                                                                                                 \
    }

static char buffer[65536];

ROW(null_call, , syscall(SYS_getppid), )
ROW(get_pid, , syscall(SYS_getpid), )
ROW(clock_call, struct timespec time_, clock_gettime(CLOCK_MONOTONIC, &time_), )
ROW(read_zero, int fd = open("/dev/zero", O_RDONLY), MUST(read(fd, buffer, 1) == 1), close(fd))
ROW(write_null, int fd = open("/dev/null", O_WRONLY), MUST(write(fd, buffer, 1) == 1), close(fd))
ROW(yield, , sched_yield(), )

static int file(void) {
    int fd = open("/tmp/file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    MUST(fd >= 0 && write(fd, buffer, sizeof buffer) == sizeof buffer);
    return fd;
}

static void gone(int fd) {
    close(fd);
    unlink("/tmp/file");
}

ROW(open_close, gone(file()); int made = file(), close(open("/tmp/file", O_RDONLY)), gone(made))
ROW(stat_path, struct stat st; int fd = file(), MUST(!stat("/tmp/file", &st)), gone(fd))
ROW(stat_open, struct stat st; int fd = file(), MUST(!fstat(fd, &st)), gone(fd))
ROW(read_4k, int fd = file(), MUST(pread(fd, buffer, 4096, 4096) == 4096), gone(fd))
ROW(read_64k, int fd = file(), MUST(pread(fd, buffer, 65536, 0) == 65536), gone(fd))
ROW(write_4k, int fd = file(), MUST(pwrite(fd, buffer, 4096, 4096) == 4096), gone(fd))
ROW(create_unlink, , close(open("/tmp/new", O_CREAT | O_RDWR, 0600)); unlink("/tmp/new"), )
ROW(pipe_byte, int ends[2]; MUST(!pipe(ends)), MUST(write(ends[1], buffer, 1) == 1 && read(ends[0], buffer, 1) == 1),
    close(ends[0]); close(ends[1]))
ROW(pipe_4k, int ends[2]; MUST(!pipe(ends)), MUST(write(ends[1], buffer, 4096) == 4096 && read(ends[0], buffer, 4096) == 4096),
    close(ends[0]); close(ends[1]))

static void on_signal(int number) { (void)number; }

ROW(signal_self, signal(SIGUSR1, on_signal), raise(SIGUSR1), )

static char *guarded;

static void on_fault(int number) {
    (void)number;
    MUST(!mprotect(guarded, PAGE, PROT_READ | PROT_WRITE));
}

ROW(signal_fault, guarded = fresh_pages(1); signal(SIGSEGV, on_fault),
    MUST(!mprotect(guarded, PAGE, PROT_READ)); write_pages(guarded, 1), munmap(guarded, PAGE))

const struct row call_rows[] = {
    {"null call (getppid)", null_call, 1},
    {"getpid", get_pid, 1},
    {"clock_gettime (vDSO where there is one)", clock_call, 1},
    {"sched_yield", yield, 1},
    {"read a byte of /dev/zero", read_zero, 1},
    {"write a byte to /dev/null", write_null, 1},
    {"open and close a file", open_close, 1},
    {"stat a path", stat_path, 1},
    {"fstat", stat_open, 1},
    {"read 4 KiB of a file", read_4k, 1},
    {"read 64 KiB of a file", read_64k, 1},
    {"write 4 KiB of a file", write_4k, 1},
    {"create, close, unlink a file", create_unlink, 1},
    {"pipe, a byte in and out", pipe_byte, 1},
    {"pipe, 4 KiB in and out", pipe_4k, 1},
    {"signal to itself, handled", signal_self, 1},
    {"SIGSEGV handled, with two mprotect", signal_fault, 1},
    {0},
};
