// What moves bytes between files without copying meets full and empty pipes: who may not wait is told so at once, who may is interrupted by a
// signal, and vmsplice returns what fits.
// cob: link=static kernels=1,4 compare=host
#include "test.h"
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

static char *buffer, *bottom;
static int full[2], empty[2], file;

static int held(const int *pipe) {
    int bytes = -1;
    MUST(ioctl(pipe[0], FIONREAD, &bytes) == 0);
    return bytes;
}

static void renew(int *ends) {
    if (ends[0])
        close(ends[0]), close(ends[1]);
    MUST(pipe(ends) == 0);
}

static void nothing(int number) { (void)number; }

// A call that waits until the alarm comes, again and again: one may come before the call begins.
#define WAITS(expression)                                                                                            \
    do {                                                                                                             \
        struct timespec often = {0, 50000000};                                                                       \
        struct itimerspec setting = {often, often}, off = {0};                                                       \
        MUST(timer_settime(alarm_clock, 0, &setting, NULL) == 0);                                                    \
        SHOW(expression);                                                                                            \
        MUST(timer_settime(alarm_clock, 0, &off, NULL) == 0);                                                        \
    } while (0)

static timer_t alarm_clock;

static void fills(void) {
    struct iovec all = {buffer, 200000}, tail = {buffer + 100, 200000};
    renew(full);
    SHOW(vmsplice(full[1], &all, 1, 0));
    SHOW(vmsplice(full[1], &all, 1, SPLICE_F_NONBLOCK));
    WAITS(vmsplice(full[1], &all, 1, 0));
    MUST(fcntl(full[1], F_SETFL, O_NONBLOCK) == 0);
    SHOW(vmsplice(full[1], &all, 1, SPLICE_F_NONBLOCK));
    WAITS(vmsplice(full[1], &all, 1, 0));
    MUST(fcntl(full[1], F_SETFL, 0) == 0);
    MUST(read(full[0], bottom, PAGE) == PAGE);
    SHOW(vmsplice(full[1], &all, 1, 0));
    MUST(read(full[0], bottom, 100) == 100);
    SHOW(vmsplice(full[1], &all, 1, SPLICE_F_NONBLOCK));
    printf("held %d\n", held(full));
    renew(full);
    SHOW(vmsplice(full[1], &tail, 1, 0));
    printf("held %d\n", held(full));
    renew(full);
    MUST(write(full[1], buffer, 100) == 100);
    SHOW(vmsplice(full[1], &all, 1, 0));
    struct iovec bad[3] = {{buffer, 100}, {(void *)8, 100}, {buffer, 100}};
    renew(full);
    SHOW(vmsplice(full[1], bad, 3, 0));
    SHOW(vmsplice(full[1], bad + 1, 2, 0));
    SHOW(vmsplice(full[1], bad + 1, 2, SPLICE_F_NONBLOCK));
    struct iovec pieces[3] = {{buffer, 60000}, {buffer, 60000}, {buffer, 60000}};
    renew(full);
    SHOW(vmsplice(full[1], pieces, 3, SPLICE_F_NONBLOCK) > 0);
    renew(full);
    MUST(fcntl(full[1], F_SETFL, O_NONBLOCK) == 0);
    SHOW(writev(full[1], pieces, 3));
    SHOW(writev(full[1], pieces, 3));
    MUST(read(full[0], bottom, PAGE) == PAGE);
    SHOW(writev(full[1], pieces, 3));
    close(full[0]);
    SHOW(vmsplice(full[1], &all, 1, 0));
    SHOW(vmsplice(full[1], &all, 1, SPLICE_F_NONBLOCK));
    SHOW(vmsplice(full[1], bad + 1, 1, 0));
    MUST(pipe(full) == 0);
}

static void into_a_full_pipe(int flags) {
    loff_t at = 0;
    MUST(fcntl(full[1], F_SETFL, flags) == 0);
    if (flags) {
        SHOW(sendfile(full[1], file, NULL, 100));
        SHOW(splice(file, &at, full[1], NULL, 100, 0));
        SHOW(tee(empty[0], full[1], 100, 0));
        SHOW(splice(empty[0], NULL, full[1], NULL, 100, 0));
    } else {
        WAITS(sendfile(full[1], file, NULL, 100));
        WAITS(splice(file, &at, full[1], NULL, 100, 0));
        WAITS(tee(empty[0], full[1], 100, 0));
        WAITS(splice(empty[0], NULL, full[1], NULL, 100, 0));
    }
    SHOW(splice(file, &at, full[1], NULL, 100, SPLICE_F_NONBLOCK));
    SHOW(tee(empty[0], full[1], 100, SPLICE_F_NONBLOCK));
    SHOW(splice(empty[0], NULL, full[1], NULL, 100, SPLICE_F_NONBLOCK));
}

static void from_an_empty_pipe(int flags) {
    int other[2], null = open("/dev/null", O_WRONLY);
    MUST(pipe(other) == 0 && null >= 0);
    struct iovec into = {bottom, 100};
    MUST(fcntl(empty[0], F_SETFL, flags) == 0);
    SHOW(splice(empty[0], NULL, other[1], NULL, 100, SPLICE_F_NONBLOCK));
    SHOW(splice(empty[0], NULL, null, NULL, 100, SPLICE_F_NONBLOCK));
    SHOW(tee(empty[0], other[1], 100, SPLICE_F_NONBLOCK));
    SHOW(vmsplice(empty[0], &into, 1, SPLICE_F_NONBLOCK));
    WAITS(vmsplice(empty[0], &into, 1, 0));
    WAITS(splice(empty[0], NULL, null, NULL, 100, 0));
    if (flags) {
        SHOW(splice(empty[0], NULL, other[1], NULL, 100, 0));
        SHOW(tee(empty[0], other[1], 100, 0));
    } else {
        WAITS(splice(empty[0], NULL, other[1], NULL, 100, 0));
        WAITS(tee(empty[0], other[1], 100, 0));
    }
    MUST(write(empty[1], buffer, 50) == 50);
    struct iovec parts[2] = {{bottom, 20}, {bottom + 1000, 20}}, bad[2] = {{bottom, 5}, {(void *)8, 5}};
    SHOW(vmsplice(empty[0], parts, 2, 0));
    printf("the bytes %d %d\n", bottom[19] == buffer[19], bottom[1000] == buffer[20]);
    SHOW(vmsplice(empty[0], bad + 1, 1, 0));
    SHOW(vmsplice(empty[0], bad, 2, 0));
    printf("held %d\n", held(empty));
    SHOW(vmsplice(empty[0], &into, 1, SPLICE_F_NONBLOCK));
    close(other[0]), close(other[1]), close(null);
}

static void all(void) {
    fills();
    struct iovec much = {buffer, 200000};
    MUST(vmsplice(full[1], &much, 1, 0) == 65536);
    renew(empty);
    MUST(write(empty[1], buffer, 100) == 100);
    into_a_full_pipe(0);
    into_a_full_pipe(O_NONBLOCK);
    renew(empty);
    from_an_empty_pipe(0);
    from_an_empty_pipe(O_NONBLOCK);
}

int main(void) {
    struct sigaction action = {.sa_handler = nothing};
    sigaction(SIGALRM, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    MUST(timer_create(CLOCK_MONOTONIC, &(struct sigevent){.sigev_signo = SIGALRM}, &alarm_clock) == 0);
    buffer = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bottom = buffer + (1 << 19);
    for (int at = 0; at < 1 << 19; at++)
        buffer[at] = (char)(at * 7);
    file = open("/proc/self/exe", O_RDONLY);
    all();
    // Pipes that stay on another kernel than the thread.
    move_to(0);
    renew(full), renew(empty);
    move_to(cpu_count() - 1);
    struct iovec much = {buffer, 200000};
    SHOW(vmsplice(full[1], &much, 1, 0));
    MUST(write(empty[1], buffer, 100) == 100);
    into_a_full_pipe(0);
    into_a_full_pipe(O_NONBLOCK);
    MUST(read(empty[0], bottom, 100) == 100);
    from_an_empty_pipe(0);
    from_an_empty_pipe(O_NONBLOCK);
    return 0;
}
