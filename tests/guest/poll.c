// poll, ppoll, select, pselect: readiness of pipes and files, timeouts, bad descriptors, interruption.
// cob: link=static,dynamic compare=host
#include "test.h"
#include <poll.h>
#include <sys/select.h>

static void nothing(int number) { (void)number; }

int main(void) {
    int ends[2];
    MUST(pipe(ends) == 0);
    int file = open("file", O_CREAT | O_RDWR, 0600);
    struct pollfd set[4] = {{ends[0], POLLIN}, {ends[1], POLLOUT}, {file, POLLIN | POLLOUT}, {-1, POLLIN}};
    SHOW(poll(set, 4, 0));
    printf("%x %x %x %x\n", set[0].revents, set[1].revents, set[2].revents, set[3].revents);
    SHOW(poll(set, 1, 10));
    write(ends[1], "x", 1);
    SHOW(poll(set, 1, 1000));
    printf("%x\n", set[0].revents);
    set[3].fd = 99;
    SHOW(poll(set, 4, -1));
    printf("%x\n", set[3].revents);
    SHOW(poll(NULL, 0, 1));
    SHOW(poll((void *)8, 1, 0));
    SHOW(poll(set, 1 << 30, 0));
    fd_set readers, writers;
    FD_ZERO(&readers);
    FD_ZERO(&writers);
    FD_SET(ends[0], &readers);
    FD_SET(ends[1], &writers);
    FD_SET(file, &readers);
    struct timeval zero = {0};
    SHOW(select(10, &readers, &writers, NULL, &zero));
    printf("%d %d %d\n", FD_ISSET(ends[0], &readers), FD_ISSET(ends[1], &writers), FD_ISSET(file, &readers));
    FD_ZERO(&readers);
    FD_SET(60, &readers);
    SHOW(select(61, &readers, NULL, NULL, &zero));
    SHOW(select(-1, NULL, NULL, NULL, &zero));
    struct timeval bad = {-1, 0};
    SHOW(select(0, NULL, NULL, NULL, &bad));
    char byte;
    read(ends[0], &byte, 1);
    FD_ZERO(&readers);
    FD_SET(ends[0], &readers);
    struct timeval soon = {0, 2000};
    SHOW(select(10, &readers, NULL, NULL, &soon));
    printf("%d, left %ld\n", FD_ISSET(ends[0], &readers), (long)soon.tv_usec);
    close(ends[1]);
    SHOW(poll(set, 1, -1));
    printf("%x\n", set[0].revents);
    MUST(pipe(ends) == 0);
    struct pollfd writer = {ends[1], POLLOUT};
    close(ends[0]);
    SHOW(poll(&writer, 1, -1));
    printf("%x\n", writer.revents);
    // A signal that is only let through while waiting.
    signal(SIGUSR1, nothing);
    sigset_t blocked, open;
    sigemptyset(&blocked), sigemptyset(&open);
    sigaddset(&blocked, SIGUSR1);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    raise(SIGUSR1);
    SHOW(poll(NULL, 0, 5));
    SHOW(ppoll(NULL, 0, NULL, &open));
    raise(SIGUSR1);
    SHOW(pselect(0, NULL, NULL, NULL, NULL, &open));
    // Someone writes while we wait.
    MUST(pipe(ends) == 0);
    fflush(stdout);
    if (fork() == 0) {
        usleep(30000);
        write(ends[1], "y", 1);
        _exit(0);
    }
    struct pollfd waiting = {ends[0], POLLIN};
    SHOW(poll(&waiting, 1, -1));
    wait(NULL);
}
