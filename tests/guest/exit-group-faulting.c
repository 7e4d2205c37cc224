// exit_group from a thread on one CPU while the others are in the middle of page faults, system calls and moves.
// cob: link=static,dynamic flags=-pthread kernels=1,2,4 compare=self timeout=180
#include "test.h"
#include <pthread.h>

static _Atomic int running;

static void *fault(void *argument) {
    long me = (long)argument;
    move_to((int)(me % cpu_count()));
    running++;
    for (unsigned round = 0;; round++) {
        volatile char *memory = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        MUST(memory != MAP_FAILED);
        for (int page = 0; page < 64; page++)
            memory[page * PAGE] = 1;
        if (me % 3 == 1)
            move_to((int)((me + round) % cpu_count()));
        if (me % 3 == 2)
            usleep(10);
        munmap((void *)memory, 64 * PAGE);
    }
}

static void *leave(void *argument) {
    move_to(cpu_count() - 1);
    while (running < 8)
        sched_yield();
    syscall(SYS_exit_group, (int)(long)argument);
    return NULL;
}

int main(void) {
    for (long round = 0; round < 20; round++) {
        pid_t child = fork();
        MUST(child >= 0);
        if (child == 0) {
            pthread_t thread;
            for (long i = 0; i < 8; i++)
                MUST(pthread_create(&thread, NULL, fault, (void *)i) == 0);
            MUST(pthread_create(&thread, NULL, leave, (void *)(round + 7)) == 0);
            for (;;)
                pause();
        }
        int status;
        MUST(waitpid(child, &status, 0) == child);
        MUST(WIFEXITED(status) && WEXITSTATUS(status) == round + 7);
    }
    printf("ok\n");
}
