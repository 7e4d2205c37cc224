// A process that was born on one kernel and opens files on another: its descriptor table follows it, and nobody notices.
// cob: link=static,dynamic compare=host
#define _GNU_SOURCE
#include "test.h"
#include <sched.h>

enum { MANY = 24 };

static int opened[MANY];

static void open_many(const char *when) {
    printf("%s:", when);
    for (int i = 0; i < MANY; i++) {
        opened[i] = open("file", O_RDWR | (i % 3 == 0 ? O_CLOEXEC : 0));
        MUST(opened[i] >= 0);
        printf(" %d", opened[i]);
    }
    printf("\n");
}

static void close_many(int step) {
    for (int i = 0; i < MANY; i += step)
        if (opened[i] >= 0) {
            MUST(close(opened[i]) == 0);
            opened[i] = -1;
        }
}

static void alone(int here, int there) {
    move_to(here);
    int ends[2], kept = open("file", O_RDWR), moved = open("file", O_RDWR | O_CLOEXEC);
    MUST(pipe(ends) == 0 && kept >= 0 && moved >= 0);
    IN_CHILD("child", {
        move_to(there);
        MUST(lseek(kept, 3, SEEK_SET) == 3);
        open_many("there");
        SHOW(lseek(kept, 0, SEEK_CUR));
        SHOW(fcntl(moved, F_GETFD));
        SHOW(fcntl(opened[3], F_GETFD));
        SHOW(fcntl(opened[4], F_GETFD));
        close_many(2);
        SHOW(open("file", O_RDONLY) == opened[1] - 1);
        SHOW(dup2(kept, opened[1]) == opened[1]);
        move_to(here);
        close_many(1);
        open_many("back");
        SHOW(write(ends[1], "x", 1));
        close_many(1);
        // A child of its own has them all, too.
        IN_CHILD("grandchild", {
            move_to(there);
            open_many("grandchild");
            SHOW(fcntl(kept, F_GETFD));
        });
        char number[16];
        sprintf(number, "%d", moved);
        SHOW(close(ends[0]));
        execl("/bin/sh", "sh", "-c", "test -e /proc/self/fd/$1 && echo open || echo closed", "sh", number, NULL);
    });
    char byte = 0;
    SHOW(read(ends[0], &byte, 1));
    // The position is one.
    SHOW(lseek(kept, 0, SEEK_CUR));
    SHOW(fcntl(opened[0] > 0 ? opened[0] : 40, F_GETFD));
    close(ends[0]);
    close(ends[1]);
    close(kept);
    close(moved);
}

static int far, told[2];

static int opens_for_both(void *unused) {
    (void)unused;
    move_to(far);
    open_many("shared");
    MUST(write(told[1], opened, sizeof opened) == sizeof opened);
    return 0;
}

// Two processes with one table: it stays theirs.
static void shared(int here, int there) {
    static char stack[65536] __attribute__((aligned(16)));
    move_to(here);
    MUST(pipe(told) == 0);
    far = there;
    fflush(stdout);
    pid_t child = clone(opens_for_both, stack + sizeof stack, CLONE_FILES | SIGCHLD, NULL);
    MUST(child > 0);
    int numbers[MANY], valid = 0;
    MUST(read(told[0], numbers, sizeof numbers) == sizeof numbers);
    MUST(waitpid(child, NULL, 0) == child);
    for (int i = 0; i < MANY; i++)
        valid += fcntl(numbers[i], F_GETFD) >= 0 && close(numbers[i]) == 0;
    SHOW(valid);
    close(told[0]);
    close(told[1]);
}

int main(void) {
    int last = cpu_count() - 1;
    // Whatever was inherited.
    MUST(close_range(3, ~0U, 0) == 0);
    int fd = open("file", O_RDWR | O_CREAT, 0644);
    MUST(fd >= 0 && write(fd, "contents", 8) == 8);
    alone(0, last);
    alone(last, 0);
    shared(0, last);
    shared(last, last / 2);
    SHOW(unlink("file"));
    return 0;
}
