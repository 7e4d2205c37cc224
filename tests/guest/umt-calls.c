// umt_enable and umt_control (docs/umt.md): what they refuse, and what a program does with the descriptors: epoll, mmap, fork, execve.
// cob: link=static,dynamic flags=-pthread compare=self timeout=120
#include "umt.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>

// -- a leader that sleeps on all of them

static void epolled(void) {
    forget();
    int leader = epoll_create1(0);
    for (int i = 0; i < cpus; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &fds[i]};
        MUST(epoll_ctl(leader, EPOLL_CTL_ADD, fds[i], &event) == 0);
    }
    struct epoll_event events[MOST];
    MUST(epoll_wait(leader, events, MOST, 0) == 0 && epoll_wait(leader, events, MOST, 1) == 0);
    for (int cpu = 0; cpu < 4; cpu++) {
        struct worker *worker = start(0, cpu, waits);
        while (!is(cpu, 1, 1)) {
            int count = epoll_wait(leader, events, MOST, -1);
            CHECK(count == 1 && events[0].data.ptr == &fds[cpu]);
        }
        tell(worker);
        join(worker);
        CHECK(is(cpu, 2, 2));
        forget();
    }
    close(leader);
}

// -- what can be mapped, and how

static void *reads_from_afar(void *unused) {
    (void)unused;
    move_to(cpus - 1); // of the last kernel
    // Through the same mapping, and a new one.
    const struct umt_sums *own = umt_map(fds[0], 0);
    MUST(own);
    CHECK(umt_look(own) == umt_look(maps[0]));
    for (int i = 0; i < cpus; i++)
        CHECK(umt_ready(umt_look(maps[i])) == 0);
    return NULL;
}

static void mappings(void) {
    size_t bytes = sizeof(struct umt_sums) * cpus;
    MUST(mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0) == MAP_FAILED && errno == EPERM);
    void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fds[0], 0);
    MUST(map != MAP_FAILED && mprotect(map, bytes, PROT_READ | PROT_WRITE) == -1 && errno == EACCES);
    MUST(munmap(map, bytes) == 0);
    int plain = eventfd(0, 0);
    MUST(plain >= 0 && mmap(NULL, PAGE, PROT_READ, MAP_SHARED, plain, 0) == MAP_FAILED && errno == ENODEV);
    close(plain);
    for (int i = 0; i < cpus; i++)
        CHECK(maps[i]->reserved[0] == 0 && ((uintptr_t)maps[i] & 63) == 0);
    join(start(0, 0, sleeper));
    pthread_t far;
    MUST(pthread_create(&far, NULL, reads_from_afar, NULL) == 0 && pthread_join(far, NULL) == 0);
    // A child sees what its parent's threads do, and counts nothing itself.
    uint64_t before = umt_look(maps[0]);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        MUST(umt_control(UMT_SET, 1, NULL) == -1 && errno == ENXIO);
        _exit(umt_look(maps[0]) == before ? 0 : 1);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child && status == 0);
}

// -- what is refused

static void errors(void) {
    unsigned char was = 9;
    MUST(umt_control(UMT_SET, 1, NULL) == -1 && errno == ENXIO);
    MUST(umt_control(UMT_GET, 0, &was) == -1 && errno == ENXIO && was == 9);
    MUST(umt_control(0, 1, NULL) == -1 && errno == EINVAL);
    MUST(umt_control(4 | UMT_SET, 1, NULL) == -1 && errno == EINVAL);
    MUST(umt_control(UMT_SET, 2, NULL) == -1 && errno == EINVAL);
    MUST(umt_enable(fds, MOST, 2) == -1 && errno == EINVAL);
    MUST(umt_enable(fds, 1, 0) == -1 && errno == EINVAL);
    int next = dup(0);
    close(next);
    MUST(umt_enable((int *)8, MOST, 0) == -1 && errno == EFAULT);
    struct rlimit limit, low;
    MUST(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    low = limit, low.rlim_cur = next + 2;
    MUST(setrlimit(RLIMIT_NOFILE, &low) == 0);
    MUST(umt_enable(fds, MOST, 0) == -1 && errno == EMFILE);
    MUST(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    int again = dup(0);
    CHECK(again == next); // all that was opened is closed
    close(again);
    MUST(umt_control(UMT_SET, 1, NULL) == -1 && errno == ENXIO);
}

static void control(void) {
    unsigned char was = 9;
    MUST(umt_enable(fds, MOST, 0) == -1 && errno == EBUSY);
    MUST(umt_control(UMT_GET, 0, &was) == 0 && was == 0);
    MUST(umt_control(UMT_GET | UMT_SET, 1, (unsigned char *)8) == -1 && errno == EFAULT);
    MUST(umt_control(UMT_GET, 7, &was) == 0 && was == 0);
    MUST(umt_control(UMT_GET | UMT_SET, 1, &was) == 0 && was == 0);
    MUST(umt_control(UMT_GET | UMT_SET, 1, &was) == 0 && was == 1);
    MUST(umt_control(UMT_GET | UMT_SET, 0, &was) == 0 && was == 1);
    MUST(umt_control(UMT_GET | UMT_SET, 0, &was) == 0 && was == 0);
    for (int i = 0; i < cpus; i++) {
        MUST(fcntl(fds[i], F_GETFL) & O_NONBLOCK && fcntl(fds[i], F_GETFD) == FD_CLOEXEC);
        CHECK(ready(i) == 0);
    }
}

static void all(void) {
    epolled();
    mappings();
}

int main(int argc, char **argv) {
    if (argc > 1) { // executed: there are no counters, and new ones can be made
        MUST(umt_control(UMT_SET, 1, NULL) == -1 && errno == ENXIO);
        MUST(fcntl(atoi(argv[1]), F_GETFD) == -1 && errno == EBADF);
        MUST(umt_enable(fds, MOST, 0) == cpu_count());
        puts("ok");
        return 0;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    move_to(0);
    errors();
    enable_all();
    control();
    twice(all);
    begin(); // still monitored as it executes a program
    char fd[16];
    snprintf(fd, sizeof fd, "%d", fds[0]);
    execl("/proc/self/exe", argv[0], fd, NULL);
    MUST(0);
}
