// Pipes and FIFOs: end of file, EPIPE, capacity, non-blocking, atomic writes.
// cob: link=static,dynamic compare=host
#include "test.h"
#include <sys/ioctl.h>

static int signals;
static void count(int number) { signals += number == SIGPIPE; }

int main(void) {
    int ends[2];
    char buffer[70000];
    SHOW(pipe(ends));
    printf("%d %d\n", ends[0], ends[1]);
    SHOW(write(ends[1], "abc", 3));
    int available;
    SHOW(ioctl(ends[0], FIONREAD, &available));
    printf("available %d\n", available);
    SHOW(read(ends[0], buffer, 2));
    SHOW(read(ends[0], buffer, 10));
    SHOW(read(ends[1], buffer, 1));
    SHOW(write(ends[0], buffer, 1));
    SHOW(lseek(ends[0], 0, SEEK_SET));
    SHOW(fcntl(ends[1], F_GETPIPE_SZ));
    SHOW(fcntl(ends[0], F_SETFL, O_NONBLOCK));
    SHOW(read(ends[0], buffer, 1));
    SHOW(fcntl(ends[1], F_SETFL, O_NONBLOCK));
    SHOW(write(ends[1], buffer, 70000));
    SHOW(write(ends[1], buffer, 1));
    SHOW(read(ends[0], buffer, 4096));
    SHOW(write(ends[1], buffer, 5000));
    SHOW(write(ends[1], buffer, 4096));
    SHOW(close(ends[1]));
    long rest = 0, length;
    while ((length = read(ends[0], buffer, sizeof buffer)) > 0)
        rest += length;
    printf("rest %ld, then %ld\n", rest, length);
    SHOW(close(ends[0]));
    SHOW(pipe2(ends, O_CLOEXEC | O_NONBLOCK));
    SHOW(fcntl(ends[0], F_GETFD));
    SHOW(fcntl(ends[0], F_GETFL));
    SHOW(pipe2(ends + 0, 0x7));
    signal(SIGPIPE, count);
    close(ends[0]);
    SHOW(write(ends[1], "x", 1));
    printf("signals %d\n", signals);
    close(ends[1]);
    IN_CHILD("default SIGPIPE", {
        signal(SIGPIPE, SIG_DFL);
        MUST(pipe(ends) == 0);
        close(ends[0]);
        write(ends[1], "x", 1);
    });
    // A writer blocked on a full pipe goes on when it is read.
    MUST(pipe(ends) == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        memset(buffer, 'y', sizeof buffer);
        for (int i = 0; i < 10; i++)
            MUST(write(ends[1], buffer, sizeof buffer) == sizeof buffer);
        _exit(0);
    }
    close(ends[1]);
    rest = 0;
    while ((length = read(ends[0], buffer, 1000)) > 0) {
        for (long i = 0; i < length; i++)
            MUST(buffer[i] == 'y');
        rest += length;
    }
    printf("through the pipe %ld\n", rest);
    waitpid(child, NULL, 0);
    SHOW(mkfifo("fifo", 0600));
    SHOW(mkfifo("fifo", 0600));
    SHOW(open("fifo", O_WRONLY | O_NONBLOCK));
    fflush(stdout);
    child = fork();
    if (child == 0) {
        int fd = open("fifo", O_WRONLY);
        _exit(write(fd, "through", 7) == 7 ? 0 : 1);
    }
    int fd = open("fifo", O_RDONLY);
    memset(buffer, 0, 16);
    SHOW(read(fd, buffer, 16));
    printf("%s\n", buffer);
    SHOW(read(fd, buffer, 16));
    int status;
    waitpid(child, &status, 0);
    show_status("fifo writer", status);
}
