// execve from a thread that is not the first, on another CPU, while others run: one thread is left, with the
// process's id; and a failing execve ends nobody.
// cob: link=static,dynamic flags=-pthread compare=self
#include "test.h"
#include <dirent.h>
#include <pthread.h>

static _Atomic int running;

static void *spin(void *argument) {
    move_to((int)(long)argument % cpu_count());
    running++;
    for (;;)
        getppid();
}

static void *leave(void *argument) {
    move_to(cpu_count() - 1);
    while (running < 5)
        sched_yield();
    char pid[20];
    snprintf(pid, sizeof pid, "%d", getpid());
    MUST(execl("/nonexistent", "x", NULL) == -1 && errno == ENOENT);
    execl("/proc/self/exe", argument, "again", pid, NULL);
    MUST(!"execl");
    return NULL;
}

int main(int argc, char **argv) {
    if (argc == 3) {
        MUST(getpid() == atoi(argv[2]));
        MUST(syscall(SYS_gettid) == getpid());
        int threads = 0;
        DIR *tasks = opendir("/proc/self/task");
        for (struct dirent *entry; (entry = readdir(tasks));)
            threads += entry->d_name[0] != '.';
        MUST(threads == 1);
        _exit(23);
    }
    for (int round = 0; round < 5; round++) {
        pid_t child = fork();
        if (child == 0) {
            pthread_t thread;
            for (long i = 0; i < 5; i++)
                MUST(pthread_create(&thread, NULL, spin, (void *)i) == 0);
            MUST(pthread_create(&thread, NULL, leave, argv[0]) == 0);
            for (;;)
                pause();
        }
        int status;
        MUST(waitpid(child, &status, 0) == child);
        MUST(WIFEXITED(status) && WEXITSTATUS(status) == 23);
    }
    printf("ok\n");
}
