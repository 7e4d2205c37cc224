// A control group that is full of pages of a file which its program maps: they go, dirty ones when they are written back, and the program does not end.
// (On this machine's Linux the memory controller may be of version 1, so there is nothing to compare with.)
// cob: link=static flags=-pthread kernels=1,4 compare=self timeout=300
#include "cgroup.h"

#define MIB (1L << 20)
#define BYTES (32 * MIB)
#define MOST (8 * MIB)

static unsigned char of_page(long page, int round) { return (unsigned char)(page * 7 + page / 256 + round * 31 + 1); }

// All of the file through one mapping, from all CPUs in turn: each page holds what `round` wrote, and gets what the next one does.
static void go_through(unsigned char *map, int round, int writes) {
    for (long page = 0; page < BYTES / PAGE; page++) {
        if (page % 1024 == 0)
            move_to((int)(page / 1024) % cpu_count());
        MUST(map[page * PAGE] == of_page(page, round) && map[page * PAGE + PAGE - 1] == of_page(page, round));
        if (writes)
            map[page * PAGE] = map[page * PAGE + PAGE - 1] = of_page(page, round + 1);
    }
}

static void in_group(const char *path) {
    enter("a");
    int fd = open(path, O_RDWR);
    MUST(fd >= 0);
    unsigned char *map = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    MUST(map != MAP_FAILED);
    go_through(map, 0, 0);
    go_through(map, 0, 1);
    go_through(map, 1, 0);
    MUST(msync(map, BYTES, MS_SYNC) == 0);
    // Here and there, so that what is used again and what is not lie side by side.
    unsigned long random = 1;
    for (int i = 0; i < 4000; i++) {
        random = random * 6364136223846793005UL + 1442695040888963407UL;
        long page = (long)(random >> 33) % (BYTES / PAGE);
        MUST(map[page * PAGE] == of_page(page, 1));
    }
    unsigned char *private = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    MUST(private != MAP_FAILED);
    go_through(private, 1, 0);
    // What is locked stays.
    MUST(mlock(map, MIB) == 0);
    go_through(private, 1, 0);
    unsigned char in_core[MIB / PAGE];
    MUST(mincore(map, MIB, in_core) == 0);
    for (long page = 0; page < MIB / PAGE; page++)
        MUST(in_core[page] & 1);
    close(fd);
    _exit(0);
}

static void test(void) {
    mount_groups();
    PUT("groups/cgroup.subtree_control", "+memory +pids");
    PUT(in("cgroup.subtree_control"), "+memory +pids");
    MUST(mkdir(in("a"), 0755) == 0);
    PUT(in("a/memory.max"), "8M");
    const char *path = "mapped-file";
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    MUST(fd >= 0);
    static unsigned char block[PAGE];
    for (long page = 0; page < BYTES / PAGE; page++) {
        memset(block, of_page(page, 0), sizeof block);
        MUST(write(fd, block, sizeof block) == (ssize_t)sizeof block);
    }
    // Nobody has its pages when it is mapped.
    MUST(fsync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
    fflush(stdout);
    pid_t one = fork();
    MUST(one >= 0);
    if (one == 0)
        in_group(path);
    int status;
    MUST(waitpid(one, &status, 0) == one);
    printf("%s %d\n", WIFEXITED(status) ? "exited" : "killed", WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    printf("kills %ld\n", value(in("a/memory.events"), "oom_kill"));
    long peak = value(in("a/memory.peak"), NULL);
    MUST(peak > MOST / 2 && peak <= MOST + 64 * 1024);
    // What it wrote is in the file.
    for (long page = 0; page < BYTES / PAGE; page++) {
        MUST(pread(fd, block, sizeof block, page * PAGE) == (ssize_t)sizeof block);
        MUST(block[0] == of_page(page, 1) && block[PAGE - 1] == of_page(page, 1) && block[1] == of_page(page, 0));
    }
    MUST(close(fd) == 0 && unlink(path) == 0);
    MUST(rmdir(in("a")) == 0);
    unmount_groups();
}

static const char expected[] =
    "cgroup.subtree_control < +memory +pids: done\n"
    "cgroup.subtree_control < +memory +pids: done\n"
    "memory.max < 8M: done\n"
    "exited 0\n"
    "kills 0\n";

int main(void) { return check(test, expected); }
