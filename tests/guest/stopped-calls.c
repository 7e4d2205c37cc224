// Which calls a stop and a continuation interrupt, though no handler runs (man 7 signal, "Interruption of system calls and
// library functions by stop signals").
// cob: link=static,dynamic compare=host timeout=120 flags=-pthread
#include "test.h"
#include <linux/futex.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

static int ends[2], full[2], sockets[2], events, inotify, timer, semaphores, queue, signals, listener;
static char small[16];

static long for_epoll(void) { struct epoll_event event; return epoll_wait(epoll_create1(0), &event, 1, -1); }
static long for_epoll_timed(void) { struct epoll_event event; return epoll_wait(epoll_create1(0), &event, 1, 1000000); }
static long for_epoll_masked(void) { struct epoll_event event; sigset_t none; sigemptyset(&none); return epoll_pwait(epoll_create1(0), &event, 1, -1, &none); }
static long for_semop(void) { struct sembuf down = {0, -1, 0}; return semop(semaphores, &down, 1); }
static long for_semtimedop(void) { struct sembuf down = {0, -1, 0}; struct timespec long_time = {1000, 0}; return semtimedop(semaphores, &down, 1, &long_time); }
static long for_message(void) { struct { long type; char text[8]; } one; return msgrcv(queue, &one, 8, 0, 0); }
static long for_word(void) { int word = 0; return syscall(SYS_futex, &word, FUTEX_WAIT, 0, NULL, NULL, 0); }
static long for_word_timed(void) { int word = 0; struct timespec long_time = {1000, 0}; return syscall(SYS_futex, &word, FUTEX_WAIT, 0, &long_time, NULL, 0); }
static long for_word_bits(void) { int word = 0; return syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, 0, NULL, NULL, -1); }
static long for_signal(void) { sigset_t one; sigemptyset(&one); sigaddset(&one, SIGUSR1); return sigwaitinfo(&one, NULL); }
static long for_signal_timed(void) { sigset_t one; sigemptyset(&one); sigaddset(&one, SIGUSR1); struct timespec long_time = {1000, 0}; return sigtimedwait(&one, NULL, &long_time); }
static long for_pause(void) { return pause(); }
static long for_suspend(void) { sigset_t none; sigemptyset(&none); return sigsuspend(&none); }
static long for_sleep(void) { struct timespec long_time = {1000, 0}; return nanosleep(&long_time, NULL); }
static long for_clock(void) { struct timespec when = {1L << 40, 0}; return -clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL); }
static long for_poll(void) { struct pollfd one = {ends[0], POLLIN, 0}; return poll(&one, 1, -1); }
static long for_poll_timed(void) { struct pollfd one = {ends[0], POLLIN, 0}; return poll(&one, 1, 1000000); }
static long for_ppoll(void) { struct pollfd one = {ends[0], POLLIN, 0}; struct timespec long_time = {1000, 0}; return ppoll(&one, 1, &long_time, NULL); }
static long for_select(void) { fd_set set; FD_ZERO(&set); FD_SET(ends[0], &set); struct timeval long_time = {1000, 0}; return select(ends[0] + 1, &set, NULL, NULL, &long_time); }
static long for_pipe(void) { return read(ends[0], small, 1); }
static long for_room(void) { return write(full[1], small, 1); }
static long for_socket(void) { return recv(sockets[0], small, 1, 0); }
static long for_connection(void) { return accept(listener, NULL, NULL); }
static long for_eventfd(void) { return read(events, small, 8); }
static long for_inotify(void) { static char much[1000]; return read(inotify, much, sizeof much); }
static long for_timerfd(void) { return read(timer, small, 8); }
static long for_signalfd(void) { static char much[128]; return read(signals, much, sizeof much); }
static long for_child(void) { idle_child(); return waitpid(-1, NULL, 0); }
static long for_lock(void) { int fd = open("locked", O_RDWR); return flock(fd, LOCK_EX); }
static long for_region(void) { struct flock all = {.l_type = F_WRLCK}; int fd = open("locked", O_RDWR); return fcntl(fd, F_SETLKW, &all); }
static long for_fifo(void) { return open("fifo", O_RDONLY); }

// Sees whether the child stays in its call (S at many looks and no answer), or comes back.
static void try(const char *what, long (*body)(void)) {
    int answer[2];
    MUST(pipe(answer) == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        errno = 0;
        long result = body();
        int error = result == -1 ? errno : result < 0 ? (int)-result : 0;
        write(answer[1], &error, sizeof error);
        _exit(0);
    }
    close(answer[1]);
    while (state_letter(child, 0) != 'S')
        sched_yield();
    kill(child, SIGSTOP);
    MUST(waitpid(child, NULL, WUNTRACED) == child);
    kill(child, SIGCONT);
    // Either it waits again, or it ends.
    char state;
    while ((state = state_letter(child, 0)) != 'S' && state != 'Z')
        sched_yield();
    for (int look = 0; look < 100 && state == 'S'; look++)
        state = state_letter(child, 0);
    if (state == 'S') {
        printf("%s: goes on\n", what);
        kill(child, SIGKILL);
    } else {
        int error;
        while ((state = state_letter(child, 0)) != 'Z')
            sched_yield();
        MUST(read(answer[0], &error, sizeof error) == sizeof error);
        printf("%s: %s\n", what, error ? error_name(error) : "answered");
    }
    MUST(waitpid(child, NULL, 0) == child);
    close(answer[0]);
}

int main(void) {
    sigset_t user;
    sigemptyset(&user);
    sigaddset(&user, SIGUSR1);
    sigprocmask(SIG_BLOCK, &user, NULL);
    MUST(pipe(ends) == 0 && pipe(full) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    fcntl(full[1], F_SETFL, O_NONBLOCK);
    static char much[1 << 16];
    while (write(full[1], much, sizeof much) > 0)
        ;
    fcntl(full[1], F_SETFL, 0);
    MUST((events = eventfd(0, 0)) >= 0 && (inotify = inotify_init()) >= 0 && (timer = timerfd_create(CLOCK_MONOTONIC, 0)) >= 0);
    MUST((signals = signalfd(-1, &user, 0)) >= 0);
    MUST((semaphores = semget(IPC_PRIVATE, 1, 0600)) >= 0 && (queue = msgget(IPC_PRIVATE, 0600)) >= 0);
    MUST((listener = socket(AF_UNIX, SOCK_STREAM, 0)) >= 0 && listen(listener, 1) == -1);
    sa_family_t nameless = AF_UNIX;
    MUST(bind(listener, (void *)&nameless, sizeof nameless) == 0 && listen(listener, 1) == 0);
    int locked = open("locked", O_RDWR | O_CREAT, 0600);
    struct flock all = {.l_type = F_WRLCK};
    MUST(locked >= 0 && flock(locked, LOCK_EX) == 0 && fcntl(locked, F_SETLK, &all) == 0 && mkfifo("fifo", 0600) == 0);
    try("epoll_wait", for_epoll);
    try("epoll_wait with a timeout", for_epoll_timed);
    try("epoll_pwait", for_epoll_masked);
    try("semop", for_semop);
    try("semtimedop", for_semtimedop);
    try("msgrcv", for_message);
    try("futex", for_word);
    try("futex with a timeout", for_word_timed);
    try("futex bits", for_word_bits);
    try("sigwaitinfo", for_signal);
    try("sigtimedwait", for_signal_timed);
    try("pause", for_pause);
    try("sigsuspend", for_suspend);
    try("nanosleep", for_sleep);
    try("clock_nanosleep", for_clock);
    try("poll", for_poll);
    try("poll with a timeout", for_poll_timed);
    try("ppoll", for_ppoll);
    try("select", for_select);
    try("read of a pipe", for_pipe);
    try("write to a full pipe", for_room);
    try("recv", for_socket);
    try("accept", for_connection);
    try("eventfd", for_eventfd);
    try("inotify", for_inotify);
    try("timerfd", for_timerfd);
    try("signalfd", for_signalfd);
    try("wait", for_child);
    try("flock", for_lock);
    try("F_SETLKW", for_region);
    try("open of a fifo", for_fifo);
    MUST(semctl(semaphores, 0, IPC_RMID) == 0 && msgctl(queue, IPC_RMID, NULL) == 0);
    return 0;
}
