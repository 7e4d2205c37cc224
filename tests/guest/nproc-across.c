// RLIMIT_NPROC counts a user's threads wherever they are: processes and threads that each make the next one on another CPU; one that has ended
// counts until it is waited for; the real user 0 has no limit.
// cob: link=static,dynamic flags=-pthread compare=host
#include "test.h"
#include <pthread.h>
#include <sys/resource.h>

enum { USER = 64321, MOST = 6 };

static void become_limited(int most) {
    struct rlimit both = {(rlim_t)most, (rlim_t)most};
    MUST(setrlimit(RLIMIT_NPROC, &both) == 0 && setuid(USER) == 0);
}

static const char *forked(void) {
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    if (child < 0)
        return error_name(errno);
    MUST(waitpid(child, NULL, 0) == child);
    return "forked";
}

static void next_process(int number) {
    move_to(number % cpu_count());
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        next_process(number + 1);
        fflush(stdout);
        _exit(0);
    }
    if (child < 0) {
        printf("process %d: %s\n", number, error_name(errno));
        return;
    }
    // Still there, though it has ended.
    MUST(waitid(P_PID, (id_t)child, NULL, WEXITED | WNOWAIT) == 0);
    if (number == MOST - 1)
        printf("beside a zombie: %s\n", forked());
    MUST(waitpid(child, NULL, 0) == child);
    if (number == MOST - 1)
        printf("after it: %s\n", forked());
}

static void processes(void) {
    become_limited(MOST);
    next_process(1);
}

static void *next_thread(void *argument) {
    int number = (int)(intptr_t)argument;
    pthread_t thread;
    move_to(number % cpu_count());
    int error = pthread_create(&thread, NULL, next_thread, (void *)(intptr_t)(number + 1));
    if (error)
        printf("thread %d: %s, %s\n", number, error_name(error), forked());
    else
        MUST(pthread_join(thread, NULL) == 0);
    return NULL;
}

static void threads(void) {
    become_limited(MOST);
    next_thread((void *)1);
}

static void exempt(void) {
    struct rlimit both = {1, 1};
    MUST(setrlimit(RLIMIT_NPROC, &both) == 0);
    printf("as user 0: %s\n", forked());
    MUST(seteuid(USER) == 0);
    printf("with its rights put aside: %s\n", forked());
}

int main(void) {
    IN_CHILD("processes", processes());
    IN_CHILD("threads", threads());
    IN_CHILD("exempt", exempt());
    return 0;
}
