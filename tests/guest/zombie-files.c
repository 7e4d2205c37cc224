// A process that has ended has no file open any more, before anybody waits for it and whatever kernel its descriptors were on.
// cob: link=static,dynamic kernels=1,2,4
#include "test.h"

// Goes to one CPU, executes a program there, and on another one writes and ends.
static void child(int from, int to, int out) {
    char number[16], back[16];
    move_to(from);
    snprintf(number, sizeof number, "%d", out);
    snprintf(back, sizeof back, "%d", to);
    char *arguments[] = {"zombie-files", number, back, NULL};
    execv("/proc/self/exe", arguments);
    _exit(99);
}

int main(int count, char **arguments) {
    if (count > 1) {
        move_to(atoi(arguments[2]));
        MUST(write(atoi(arguments[1]), "x", 1) == 1);
        return 7;
    }
    for (int from = 0; from < 4; from++)
        for (int to = 0; to < 4; to++) {
            int ends[2];
            move_to(0);
            MUST(!pipe(ends));
            pid_t pid = fork();
            MUST(pid >= 0);
            if (pid == 0)
                child(from % cpu_count(), to % cpu_count(), ends[1]);
            MUST(!close(ends[1]));
            char byte[2];
            MUST(read(ends[0], byte, 2) == 1);
            // The end of the file, while the child is a zombie.
            MUST(read(ends[0], byte, 2) == 0);
            int status;
            MUST(waitpid(pid, &status, 0) == pid);
            MUST(!close(ends[0]));
            printf("%d %d: %d\n", from, to, WEXITSTATUS(status));
        }
    return 0;
}
