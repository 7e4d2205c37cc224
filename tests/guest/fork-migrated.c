// fork from a thread that has moved: the child sees the memory of all CPUs as it was, and writes of each side
// stay on that side.
// cob: link=static,dynamic flags=-pthread kernels=1,2,4 compare=self timeout=120
#include "test.h"
#include <pthread.h>

enum { PAGES = 64 };
static unsigned char *memory;

static void fill(int cpu, int cpus, unsigned char value) {
    move_to(cpu);
    for (int page = cpu; page < PAGES; page += cpus)
        memset(memory + page * PAGE, value + page, PAGE);
}

static void check(unsigned char value) {
    for (int page = 0; page < PAGES; page++)
        for (long at = 0; at < PAGE; at += 512)
            MUST(memory[page * PAGE + at] == (unsigned char)(value + page));
}

static void *worker(void *argument) {
    int cpus = cpu_count();
    for (int round = 0; round < 10; round++) {
        unsigned char value = round * 7 + 1;
        for (int cpu = 0; cpu < cpus; cpu++)
            fill(cpu, cpus, value);
        move_to((round + 1) % cpus);
        int pipes[2];
        MUST(pipe(pipes) == 0);
        pid_t child = fork();
        MUST(child >= 0);
        if (child == 0) {
            check(value);
            for (int cpu = 0; cpu < cpus; cpu++)
                fill(cpu, cpus, value + 100);
            check(value + 100);
            // The parent writes meanwhile; wait until it has, then look again.
            char byte;
            MUST(read(pipes[0], &byte, 1) == 1);
            check(value + 100);
            // And a child of the child, from another CPU again.
            move_to(round % cpus);
            pid_t grandchild = fork();
            if (grandchild == 0) {
                check(value + 100);
                _exit(5);
            }
            int status;
            MUST(waitpid(grandchild, &status, 0) == grandchild && WEXITSTATUS(status) == 5);
            _exit(40 + round);
        }
        for (int cpu = 0; cpu < cpus; cpu++)
            fill(cpu, cpus, value + 50);
        MUST(write(pipes[1], "x", 1) == 1);
        check(value + 50);
        int status;
        MUST(waitpid(child, &status, 0) == child);
        MUST(WIFEXITED(status) && WEXITSTATUS(status) == 40 + round);
        check(value + 50);
        close(pipes[0]), close(pipes[1]);
    }
    return argument;
}

int main(void) {
    memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, worker, NULL) == 0);
    MUST(pthread_join(thread, NULL) == 0);
    printf("ok\n");
}
