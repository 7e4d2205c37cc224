// Directories are listed while names come and go: of the root, of a tmpfs, and those of /proc that stand for descriptors, threads and processes.
// Also from another kernel than the directory's.
// cob: link=static flags=-pthread kernels=1,4 compare=host timeout=300
#include "listing.h"

// Of the descriptors that are made: those below are who knows whose.
enum { FIRST = 300 };

static int named_by_number(const struct entry *entry) {
    int which = atoi(entry->name);
    if (which >= FIRST && which < FIRST + NAMES)
        times[which - FIRST]++;
    return 1;
}

static int close_it(const struct entry *entry) {
    named_by_number(entry);
    if (atoi(entry->name) >= FIRST)
        MUST(close(atoi(entry->name)) == 0);
    return 1;
}

static void descriptors(void) {
    printf("-- descriptors\n");
    for (int fd = FIRST; fd < FIRST + 700; fd++)
        MUST(dup2(0, fd) == fd);
    directory = open("/proc/self/fd", O_RDONLY | O_DIRECTORY);
    int info = open("/proc/self/fdinfo", O_RDONLY | O_DIRECTORY);
    MUST(directory >= 0 && info >= 0);
    scan(info, named_by_number);
    show_times("listed", -1);
    show_positions();
    rewind_it();
    scan(directory, close_it);
    show_times("closed while listed", -1);
    rewind_it();
    scan(directory, close_it);
    show_times("afterwards", -1);
    SHOW(lseek(directory, 1L << 31, SEEK_SET));
    close(info);
    close(directory);
}

static pid_t mine[64];
static int of_mine[64], last, ordered;

static int find_mine(const struct entry *entry) {
    int id = atoi(entry->name);
    for (int i = 0; i < 64; i++)
        of_mine[i] += id != 0 && mine[i] == id;
    if (id != 0)
        ordered &= id > last, last = id;
    return 1;
}

static void show_mine(const char *what) {
    int once = 0;
    last = 0, ordered = 1;
    memset(of_mine, 0, sizeof of_mine);
    rewind_it();
    scan(directory, find_mine);
    for (int i = 0; i < 64; i++)
        once += of_mine[i] == 1;
    printf("%s: %d of 64 once, %s\n", what, once, ordered ? "ascending" : "in disorder");
}

static void processes(void) {
    printf("-- processes\n");
    for (int i = 0; i < 64; i++) {
        mine[i] = fork();
        MUST(mine[i] >= 0);
        if (mine[i] == 0) {
            pause();
            _exit(0);
        }
    }
    directory = open("/proc", O_RDONLY | O_DIRECTORY);
    MUST(directory >= 0);
    show_mine("/proc");
    for (int i = 0; i < 64; i++) {
        kill(mine[i], SIGKILL);
        MUST(waitpid(mine[i], NULL, 0) == mine[i]);
    }
    show_mine("afterwards");
    close(directory);
}

static pthread_barrier_t started, done;

static void *thread(void *slot) {
    *(pid_t *)slot = gettid();
    pthread_barrier_wait(&started);
    pthread_barrier_wait(&done);
    return NULL;
}

static void threads(void) {
    printf("-- threads\n");
    pthread_t all[64];
    MUST(!pthread_barrier_init(&started, NULL, 65) && !pthread_barrier_init(&done, NULL, 65));
    for (int i = 0; i < 64; i++)
        MUST(!pthread_create(&all[i], NULL, thread, &mine[i]));
    pthread_barrier_wait(&started);
    directory = open("/proc/self/task", O_RDONLY | O_DIRECTORY);
    MUST(directory >= 0);
    show_mine("/proc/self/task");
    pthread_barrier_wait(&done);
    for (int i = 0; i < 64; i++)
        pthread_join(all[i], NULL);
    close(directory);
}

static void one_that_is_there(const char *path) {
    printf("-- %s\n", path);
    directory = open(path, O_RDONLY | O_DIRECTORY);
    MUST(directory >= 0);
    int count = scan(directory, count_it);
    show_times("listed", count);
    show_positions();
    close(directory);
}

int main(void) {
    one_that_is_there("/usr/bin");
    in_directory("root", ".", 1);
    in_directory("tmpfs", "/dev/shm", 0);
    descriptors();
    threads();
    processes();
    move_to(cpu_count() - 1);
    printf("-- elsewhere\n");
    in_directory("root", ".", 1);
    descriptors();
    threads();
    return 0;
}
