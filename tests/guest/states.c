// The state letter of a process and of each of its threads (man 5 proc): R also in a call, in a fault and waiting for a CPU,
// S in a wait that a signal ends, D in one that none does, T stopped, Z over.
// cob: link=static,dynamic compare=host timeout=240 flags=-pthread
#include "test.h"
#include <poll.h>
#include <sys/prctl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <linux/futex.h>

// The word of /proc/PID/status.
static const char *word(pid_t pid) {
    static char text[4096];
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    int fd = open(path, O_RDONLY);
    MUST(fd >= 0);
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    MUST(got > 0);
    text[got] = 0;
    char *state = strstr(text, "State:");
    MUST(state);
    *strchr(state, '\n') = 0;
    return state;
}

// Waits until it is so: a sleeper has to get there first.
static void becomes(const char *what, pid_t pid, pid_t thread, char wanted) {
    while (state_letter(pid, thread) != wanted)
        sched_yield();
    printf("%s: %c\n", what, wanted);
}

// At every one of many looks.
static void stays(const char *what, pid_t pid, pid_t thread, char wanted) {
    for (int look = 0; look < 300; look++) {
        char seen = state_letter(pid, thread);
        if (seen != wanted) {
            printf("%s: %c at look %d\n", what, seen, look);
            return;
        }
    }
    printf("%s: always %c\n", what, wanted);
}

static void finish(pid_t child) {
    kill(child, SIGKILL);
    MUST(waitpid(child, NULL, 0) == child);
}

static void asleep(const char *what, void (*body)(void)) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        body();
        _exit(0);
    }
    becomes(what, child, 0, 'S');
    stays(what, child, 0, 'S');
    printf("%s\n", word(child));
    finish(child);
}

static int ends[2], sockets[2], locked;

static void reads(void) { char c; read(ends[0], &c, 1); }
static void writes(void) { static char much[1 << 20]; write(ends[1], much, sizeof much); }
static void receives(void) { char c; recv(sockets[0], &c, 1, 0); }
static void pauses(void) { pause(); }
static void sleeps(void) { sleep(1000); }
static void polls(void) { struct pollfd one = {ends[0], POLLIN, 0}; poll(&one, 1, -1); }
static void selects(void) { select(0, NULL, NULL, NULL, NULL); }
static void suspends(void) { sigset_t none; sigemptyset(&none); sigsuspend(&none); }
static void waits_for_signal(void) { sigset_t one; sigemptyset(&one); sigaddset(&one, SIGUSR1); sigwaitinfo(&one, NULL); }
static void waits_for_child(void) { idle_child(); waitpid(-1, NULL, 0); }
static void waits_for_word(void) { int word = 0; syscall(SYS_futex, &word, FUTEX_WAIT, 0, NULL, NULL, 0); }
static void waits_for_events(void) { struct epoll_event event; epoll_wait(epoll_create1(0), &event, 1, -1); }
static void locks(void) { int fd = open("locked", O_RDWR); flock(fd, LOCK_EX); }
static void locks_region(void) { struct flock all = {.l_type = F_WRLCK}; int fd = open("locked", O_RDWR); fcntl(fd, F_SETLKW, &all); }
static void opens_fifo(void) { open("fifo", O_RDONLY); }
static int set;
static void takes(void) { struct sembuf down = {0, -1, 0}; semop(set, &down, 1); }

static pid_t awake(void (*body)(void)) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        for (;;)
            body();
    return child;
}

static void spins(void) { for (volatile int i = 0; i < 1000; i++); }
static void calls(void) { syscall(SYS_getppid); }
static void yields(void) { sched_yield(); }
static void touches(void) {
    char *some = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 16; i++)
        some[i * PAGE] = 1;
    munmap(some, 16 * PAGE);
}
static void stats(void) { struct stat about; stat("locked", &about); }

static volatile int worker_sleeps;
static pid_t volatile worker_id;
static void *work(void *nothing) {
    worker_id = (pid_t)syscall(SYS_gettid);
    for (;;)
        if (worker_sleeps)
            pause();
    return nothing;
}

int main(void) {
    MUST(pipe(ends) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    MUST((locked = open("locked", O_RDWR | O_CREAT, 0600)) >= 0 && flock(locked, LOCK_EX) == 0 && mkfifo("fifo", 0600) == 0);
    struct flock all = {.l_type = F_WRLCK};
    MUST(fcntl(locked, F_SETLK, &all) == 0);
    MUST((set = semget(IPC_PRIVATE, 1, 0600)) >= 0);
    printf("self %c, %s\n", state_letter(getpid(), 0), word(getpid()));
    asleep("read", reads);
    asleep("recv", receives);
    asleep("write", writes);
    char c;
    while (fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0 && read(ends[0], &c, 1) == 1)
        ;
    fcntl(ends[0], F_SETFL, 0);
    asleep("pause", pauses);
    asleep("sleep", sleeps);
    asleep("poll", polls);
    asleep("select", selects);
    asleep("sigsuspend", suspends);
    asleep("sigwaitinfo", waits_for_signal);
    asleep("wait", waits_for_child);
    asleep("futex", waits_for_word);
    asleep("epoll_wait", waits_for_events);
    asleep("flock", locks);
    asleep("F_SETLKW", locks_region);
    asleep("open of a fifo", opens_fifo);
    asleep("semop", takes);
    semctl(set, 0, IPC_RMID);

    static const struct { const char *name; void (*body)(void); } busy[] = {
        {"spin", spins}, {"getppid", calls}, {"sched_yield", yields}, {"faults", touches}, {"stat", stats},
    };
    for (int i = 0; i < 5; i++) {
        pid_t child = awake(busy[i].body);
        becomes(busy[i].name, child, 0, 'R');
        stays(busy[i].name, child, 0, 'R');
        printf("%s\n", word(child));
        finish(child);
    }
    // Many for each CPU: most of them wait for one.
    pid_t crowd[12];
    for (int i = 0; i < 12; i++)
        crowd[i] = awake(i % 2 ? spins : calls);
    for (int i = 0; i < 12; i++)
        becomes("crowd", crowd[i], 0, 'R');
    for (int look = 0, wrong = 0; look < 30 && !wrong; look++)
        for (int i = 0; i < 12; i++)
            if (state_letter(crowd[i], 0) != 'R')
                printf("crowd: wrong\n"), wrong = 1;
    for (int i = 0; i < 12; i++)
        finish(crowd[i]);

    // Which thread is it?
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        pthread_t worker;
        pthread_create(&worker, NULL, work, NULL);
        while (!worker_id)
            ;
        write(ends[1], (void *)&worker_id, sizeof worker_id);
        for (;;)
            pause();
    }
    pid_t worker;
    MUST(read(ends[0], &worker, sizeof worker) == sizeof worker);
    becomes("main thread", child, 0, 'S');
    stays("main thread that sleeps", child, 0, 'S');
    stays("as a thread", child, child, 'S');
    stays("beside one that works", child, worker, 'R');
    kill(child, SIGSTOP);
    MUST(waitpid(child, NULL, WUNTRACED) == child);
    becomes("stopped", child, 0, 'T');
    becomes("its thread", child, worker, 'T');
    printf("%s\n", word(child));
    kill(child, SIGCONT);
    becomes("continued", child, 0, 'S');
    becomes("its thread", child, worker, 'R');
    finish(child);
    child = fork();
    if (child == 0) {
        worker_sleeps = 1;
        pthread_t worker;
        pthread_create(&worker, NULL, work, NULL);
        while (!worker_id)
            ;
        write(ends[1], (void *)&worker_id, sizeof worker_id);
        for (;;)
            ;
    }
    MUST(read(ends[0], &worker, sizeof worker) == sizeof worker);
    becomes("thread", child, worker, 'S');
    stays("thread that sleeps", child, worker, 'S');
    stays("beside a main thread that works", child, 0, 'R');
    finish(child);
    // The main thread ends, the other one works on.
    child = fork();
    if (child == 0) {
        pthread_t worker;
        pthread_create(&worker, NULL, work, NULL);
        while (!worker_id)
            ;
        write(ends[1], (void *)&worker_id, sizeof worker_id);
        syscall(SYS_exit, 0);
    }
    MUST(read(ends[0], &worker, sizeof worker) == sizeof worker);
    becomes("main thread that ended", child, 0, 'Z');
    printf("%s\n", word(child));
    becomes("the one that lives", child, worker, 'R');
    finish(child);

    // The parent of a vfork waits so that no signal ends it.
    child = fork();
    if (child == 0) {
        pid_t grandchild = vfork();
        if (grandchild == 0) {
            pid_t self = getpid();
            write(ends[1], &self, sizeof self);
            char c;
            read(sockets[0], &c, 1);
            _exit(0);
        }
        for (;;)
            pause();
    }
    pid_t grandchild;
    MUST(read(ends[0], &grandchild, sizeof grandchild) == sizeof grandchild);
    becomes("vfork", child, 0, 'D');
    printf("%s\n", word(child));
    kill(child, SIGSTOP);
    becomes("vfork and SIGSTOP", child, 0, 'D');
    write(sockets[1], "", 1);
    becomes("afterwards", child, 0, 'T');
    finish(child);

    child = fork();
    if (child == 0)
        _exit(0);
    becomes("zombie", child, 0, 'Z');
    printf("%s\n", word(child));
    MUST(waitpid(child, NULL, 0) == child);
    SHOW(state_letter(child, 0));
    return 0;
}
