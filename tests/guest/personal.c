// What a thread says of itself and others read: personality and its file, timer slack, kept by a move and handed on to threads,
// children and programs as on Linux.
// cob: link=static,dynamic flags=-pthread kernels=1,2,4 compare=host
#include "test.h"
#include <pthread.h>
#include <sys/personality.h>
#include <sys/prctl.h>

static void show(const char *what) {
    char path[64], text[16] = "";
    snprintf(path, sizeof path, "/proc/self/task/%ld/personality", syscall(SYS_gettid));
    int fd = open(path, O_RDONLY);
    MUST(fd >= 0 && read(fd, text, sizeof text - 1) == 9);
    close(fd);
    printf("%s: personality %x, file %.8s, slack %d\n", what, personality(0xffffffff), text, prctl(PR_GET_TIMERSLACK));
    fflush(stdout);
}

static void *thread(void *argument) {
    (void)argument;
    move_to(cpu_count() - 1);
    show("a thread");
    MUST(prctl(PR_SET_TIMERSLACK, 0) == 0);
    show("  its default");
    MUST(prctl(PR_SET_TIMERSLACK, 12345) == 0);
    personality(ADDR_NO_RANDOMIZE);
    move_to(0);
    show("  back");
    return NULL;
}

int main(int argc, char **argv) {
    if (argc > 1) {
        show("a program");
        return 0;
    }
    show("at first");
    MUST(prctl(PR_SET_TIMERSLACK, 777) == 0);
    personality(ADDR_NO_RANDOMIZE | READ_IMPLIES_EXEC);
    show("set");
    move_to(cpu_count() - 1);
    show("moved");
    pthread_t other;
    MUST(pthread_create(&other, NULL, thread, NULL) == 0 && pthread_join(other, NULL) == 0);
    show("untouched");
    IN_CHILD("a child", move_to(0); show("  child"); prctl(PR_SET_TIMERSLACK, 0); show("  its default"); execl(argv[0], argv[0], "again", NULL));
    MUST(prctl(PR_SET_TIMERSLACK, 0) == 0);
    show("the default again");
}
