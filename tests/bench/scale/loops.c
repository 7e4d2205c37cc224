// Loops as those of will-it-scale, written anew: nothing that a worker uses is another's, but in the last.
#include "scale.h"

#define PAGE 4096
#define PAGES 16

static char *map(void) {
    char *at = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(at != MAP_FAILED);
    return at;
}

// One operation: 16 fresh pages.
static void page_fault(struct worker *worker) {
    (void)worker;
    char *at = map();
    for (int page = 0; page < PAGES; page++)
        ((volatile char *)at)[page * PAGE] = 1;
    MUST(!munmap(at, PAGES * PAGE));
}

static void map_unmap(struct worker *worker) {
    (void)worker;
    MUST(!munmap(map(), PAGES * PAGE));
}

// In a directory of its own.
static void own_file(struct worker *worker) {
    snprintf(worker->path, sizeof worker->path, "/tmp/%d", worker->number);
    MUST(!mkdir(worker->path, 0700) || errno == EEXIST);
    snprintf(worker->path, sizeof worker->path, "/tmp/%d/file", worker->number);
    int fd = open(worker->path, O_CREAT | O_RDWR, 0600);
    MUST(fd >= 0 && !close(fd));
}

static void open_close(struct worker *worker) {
    int fd = open(worker->path, O_RDWR);
    MUST(fd >= 0 && !close(fd));
}

static void own_pipe(struct worker *worker) { MUST(!pipe(worker->ends)); }

static void in_and_out(struct worker *worker) {
    char byte = 1;
    MUST(write(worker->ends[1], &byte, 1) == 1 && read(worker->ends[0], &byte, 1) == 1);
}

static void own_word(struct worker *worker) {
    worker->word = (unsigned *)map();
    *worker->word = 1;
}

// Nobody waits.
static void wake(struct worker *worker) { MUST(!syscall(SYS_futex, worker->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0)); }

static void spawn(struct worker *worker) {
    (void)worker;
    char *words[] = {"/init", "exit", NULL}, *none[] = {NULL};
    pid_t child;
    int status;
    MUST(!posix_spawn(&child, "/init", NULL, NULL, words, none));
    MUST(waitpid(child, &status, 0) == child && !status);
}

static void parent(struct worker *worker) {
    (void)worker;
    syscall(SYS_getppid);
}

static void handle(int signal) { (void)signal; }

static void catch(struct worker *worker) {
    (void)worker;
    MUST(!sigaction(SIGUSR1, &(struct sigaction){.sa_handler = handle}, NULL));
}

static void signal_self(struct worker *worker) {
    (void)worker;
    MUST(!raise(SIGUSR1));
}

// The one loop whose answer is known: a line of the user's travels for every operation.
static void count(struct worker *worker) { __atomic_fetch_add(worker->common, 1, __ATOMIC_RELAXED); }

static void nothing(struct worker *worker) { (void)worker; }

const struct loop loops[] = {
    {"page_fault", nothing, page_fault, 32, 32},
    {"mmap", nothing, map_unmap, 32, 64},
    {"open_close", own_file, open_close, 64, 128},
    {"pipe", own_pipe, in_and_out, 64, 128},
    {"futex", own_word, wake, 64, 128},
    {"spawn", nothing, spawn, 4, 8},
    {"getppid", nothing, parent, 64, 128},
    {"signal", catch, signal_self, 64, 128},
    {"one_line", nothing, count, 64, 128},
    {},
};
