// A thousand processes that sleep a moment and try to create what exists, again and again, want more than the machine has; their parent, which
// sleeps, kills and reaps them, gets its share all the same. Ends, or the test's time is over.
// cob: link=static kernels=1,4 compare=host timeout=480 shake=no options=--memory,4G
#include "test.h"

enum { CHILDREN = 1000, NAMES = 16 };

static void name_of(char *name, int index, int parent) { sprintf(name, "/dev/shm/overload.%d.%d", parent, index); }

static void child(int seed, int parent, int begin) {
    unsigned random = seed * 2654435761u + 1;
    char name[64];
    // All begin together: those that are born would keep their parent from bearing the others, here as on Linux, which shares a CPU evenly.
    MUST(read(begin, name, 1) == 0);
    for (;;) {
        random = random * 1664525 + 1013904223;
        struct timespec moment = {0, random % 20000000};
        nanosleep(&moment, NULL);
        name_of(name, random >> 8 & (NAMES - 1), parent);
        if (open(name, O_RDWR | O_CREAT | O_EXCL, 0600) >= 0)
            _exit(1);
    }
}

int main(void) {
    static pid_t children[CHILDREN];
    char name[64];
    int parent = getpid(), killed = 0, begin[2];
    for (int index = 0; index < NAMES; index++) {
        name_of(name, index, parent);
        MUST(open(name, O_RDWR | O_CREAT | O_EXCL, 0600) >= 0);
    }
    MUST(pipe(begin) == 0);
    for (int index = 0; index < CHILDREN; index++) {
        children[index] = fork();
        MUST(children[index] >= 0);
        if (children[index] == 0) {
            close(begin[1]);
            child(index, parent, begin[0]);
        }
    }
    close(begin[1]);
    struct timespec while_they_run = {3, 0};
    nanosleep(&while_they_run, NULL);
    for (int index = 0; index < CHILDREN; index++)
        MUST(kill(children[index], SIGKILL) == 0);
    for (int index = 0; index < CHILDREN; index++) {
        int status;
        MUST(waitpid(children[index], &status, 0) == children[index]);
        killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    }
    for (int index = 0; index < NAMES; index++) {
        name_of(name, index, parent);
        MUST(unlink(name) == 0);
    }
    printf("killed %d\n", killed);
    return 0;
}
