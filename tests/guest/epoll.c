// epoll: level and edge, one-shot, modification, nesting, and what it refuses; eventfd in all its modes.
// cob: link=static,dynamic compare=host
#include "test.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>

static int epoll;

static void wait_once(const char *what) {
    struct epoll_event events[8];
    int count = epoll_wait(epoll, events, 8, 20);
    printf("%s: %d", what, count);
    uint64_t seen = 0;
    for (int i = 0; i < count; i++)
        seen |= (uint64_t)events[i].events << (events[i].data.u32 * 16);
    printf(" %llx\n", (unsigned long long)seen);
}

static int control(int operation, int fd, uint32_t events, uint32_t tag) {
    struct epoll_event event = {.events = events, .data.u32 = tag};
    return epoll_ctl(epoll, operation, fd, &event);
}

int main(void) {
    uint64_t value = 0;
    SHOW(epoll_create(0));
    SHOW(epoll_create1(0x77));
    epoll = epoll_create1(EPOLL_CLOEXEC);
    SHOW(epoll);
    int event = eventfd(0, EFD_NONBLOCK), ends[2];
    MUST(pipe(ends) == 0);
    int file = open("file", O_CREAT | O_RDWR, 0600);
    SHOW(control(EPOLL_CTL_ADD, event, EPOLLIN, 0));
    SHOW(control(EPOLL_CTL_ADD, event, EPOLLIN, 0));
    SHOW(control(EPOLL_CTL_ADD, file, EPOLLIN, 0));
    SHOW(control(EPOLL_CTL_ADD, 99, EPOLLIN, 0));
    SHOW(control(EPOLL_CTL_ADD, epoll, EPOLLIN, 0));
    SHOW(control(EPOLL_CTL_MOD, ends[0], EPOLLIN, 0));
    SHOW(control(EPOLL_CTL_DEL, ends[0], 0, 0));
    SHOW(control(77, event, EPOLLIN, 0));
    SHOW(epoll_ctl(event, EPOLL_CTL_ADD, ends[0], &(struct epoll_event){0}));
    SHOW(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], NULL));
    SHOW(epoll_wait(epoll, (void *)8, 0, 0));
    SHOW(epoll_wait(event, (void *)8, 1, 0));
    wait_once("nothing");
    SHOW(write(event, &(uint64_t){3}, 8));
    wait_once("level");
    wait_once("level again");
    SHOW(control(EPOLL_CTL_MOD, event, EPOLLIN | EPOLLET, 0));
    wait_once("edge");
    wait_once("edge again");
    SHOW(write(event, &(uint64_t){4}, 8));
    wait_once("edge after a write");
    SHOW(control(EPOLL_CTL_MOD, event, EPOLLIN | EPOLLONESHOT, 0));
    wait_once("one shot");
    wait_once("one shot again");
    SHOW(control(EPOLL_CTL_MOD, event, EPOLLIN | EPOLLOUT, 0));
    wait_once("in and out");
    SHOW(read(event, &value, 8));
    printf("value %llu\n", (unsigned long long)value);
    SHOW(read(event, &value, 8));
    SHOW(read(event, &value, 4));
    SHOW(write(event, &(uint64_t){-1}, 8));
    SHOW(write(event, &(uint64_t){-2}, 8));
    SHOW(write(event, &(uint64_t){1}, 8));
    wait_once("full");
    SHOW(control(EPOLL_CTL_ADD, ends[0], EPOLLIN | EPOLLRDHUP, 1));
    SHOW(control(EPOLL_CTL_ADD, ends[1], EPOLLOUT, 2));
    wait_once("pipe");
    write(ends[1], "x", 1);
    wait_once("pipe with data");
    close(ends[1]);
    wait_once("writer closed");
    close(ends[0]);
    wait_once("both closed");
    int semaphore = eventfd(2, EFD_SEMAPHORE | EFD_NONBLOCK);
    SHOW(read(semaphore, &value, 8));
    SHOW(read(semaphore, &value, 8));
    SHOW(read(semaphore, &value, 8));
    printf("value %llu\n", (unsigned long long)value);
    SHOW(eventfd(0, 0x77));
    int outer = epoll_create1(0);
    SHOW(epoll_ctl(outer, EPOLL_CTL_ADD, epoll, &(struct epoll_event){.events = EPOLLIN}));
    struct epoll_event got;
    SHOW(epoll_wait(outer, &got, 1, 100));
    SHOW(epoll_ctl(epoll, EPOLL_CTL_ADD, outer, &(struct epoll_event){.events = EPOLLIN}));
    int blocking = eventfd(0, 0);
    fflush(stdout);
    if (fork() == 0) {
        usleep(20000);
        write(blocking, &(uint64_t){7}, 8);
        _exit(0);
    }
    SHOW(read(blocking, &value, 8));
    printf("value %llu\n", (unsigned long long)value);
}
