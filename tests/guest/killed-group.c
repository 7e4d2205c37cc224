// kill of a whole group beside fork, execve beside clone, children handed to a subreaper: nobody escapes, nobody is lost.
// cob: link=static,dynamic flags=-pthread kernels=1,2,4 compare=host timeout=120
#define _GNU_SOURCE
#include "test.h"
#include <pthread.h>
#include <sys/prctl.h>

enum { ROUNDS = 12 };

// Forks as fast as it can; so do its children, to some depth.
__attribute__((noreturn)) static void breed(int depth, int ready) {
    for (;;) {
        pid_t child = fork();
        if (child == 0 && depth > 0)
            breed(depth - 1, -1);
        if (child == 0)
            _exit(0);
        if (ready >= 0)
            MUST(write(ready, "", 1) == 1);
        if (child > 0 && depth == 0)
            waitpid(child, NULL, 0);
        if (child < 0 || depth > 0)
            while (waitpid(-1, NULL, WNOHANG) > 0)
                ;
        ready = -1;
    }
}

// All of the group, also those that are being born, end; and the subreaper sees the end of each.
static void kill_group(int round) {
    int ready[2];
    MUST(pipe(ready) == 0);
    pid_t leader = fork();
    MUST(leader >= 0);
    if (leader == 0) {
        setpgid(0, 0);
        move_to(round % cpu_count());
        breed(1, ready[1]);
    }
    setpgid(leader, leader);
    char byte;
    MUST(read(ready[0], &byte, 1) == 1);
    MUST(kill(-leader, SIGKILL) == 0);
    int status, ended = 0, killed = 0;
    for (pid_t child; (child = wait(&status)) > 0; ended++)
        killed += child == leader && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    MUST(errno == ECHILD && ended >= 1 && killed == 1);
    errno = 0;
    MUST(kill(-leader, 0) == -1 && errno == ESRCH);
    close(ready[0]), close(ready[1]);
}

static void *nothing(void *argument) { return argument; }

__attribute__((noreturn)) static void *make_threads(void *argument) {
    move_to((long)argument % cpu_count());
    for (;;) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, nothing, NULL) == 0)
            pthread_join(thread, NULL);
    }
}

// execve ends all other threads, also those that are being born.
static void execute(int round, char *self) {
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        pthread_t threads[3];
        for (long i = 0; i < 3; i++)
            MUST(pthread_create(&threads[i], NULL, make_threads, (void *)(i + round)) == 0);
        for (int i = 0; i < round; i++)
            sched_yield();
        execl(self, self, "done", NULL);
        _exit(99);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child);
    MUST(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

// A process-shared robust mutex that a program holds over execve is its next holder's to repair.
static void robust(char *self) {
    pthread_mutex_t *mutex = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(mutex != MAP_FAILED);
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    MUST(pthread_mutex_init(mutex, &attributes) == 0);
    pid_t child = fork();
    if (child == 0) {
        move_to(cpu_count() - 1);
        MUST(pthread_mutex_lock(mutex) == 0);
        execl(self, self, "done", NULL);
        _exit(99);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child);
    show_status("executed", status);
    int answer = pthread_mutex_lock(mutex);
    printf("the lock: %s\n", answer ? error_name(answer) : "free");
}

int main(int count, char **arguments) {
    if (count > 1)
        return 7;
    MUST(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    for (int round = 0; round < ROUNDS; round++)
        kill_group(round);
    printf("%d groups killed\n", ROUNDS);
    for (int round = 0; round < ROUNDS; round++)
        execute(round, arguments[0]);
    printf("%d programs executed\n", ROUNDS);
    robust(arguments[0]);
}
