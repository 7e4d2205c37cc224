// The memory controller of cgroup v2: memory.max for pages of programs and files on all kernels together; what is dropped first, and who ends
// when that is not enough. (On this machine's Linux the controller may be of version 1, so there is nothing to compare with.)
// cob: link=static,dynamic flags=-pthread kernels=1,2,4 compare=self timeout=300
#include "cgroup.h"

#define MIB (1L << 20)
// Pages of this program itself, which a process in the group may have been the first to read.
#define LITTLE (MIB / 2)

static long current(void) { return value(in("a/memory.current"), NULL); }

// Touches `bytes` of new memory; some of it from each CPU, if `spread`.
static char *touch(long bytes, int flags, int spread) {
    char *memory = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | flags, -1, 0);
    MUST(memory != MAP_FAILED);
    for (long at = 0; at < bytes; at += PAGE) {
        if (spread && at % (bytes / 8) == 0)
            move_to((int)(at / (bytes / 8)) % cpu_count());
        memory[at] = 1;
    }
    return memory;
}

// What becomes of a process in group `a` that does something: the parent is not in it.
#define IN_GROUP(what, ...)                                                                                          \
    do {                                                                                                             \
        fflush(stdout);                                                                                              \
        pid_t one_ = fork();                                                                                         \
        MUST(one_ >= 0);                                                                                             \
        if (one_ == 0) {                                                                                             \
            enter("a");                                                                                              \
            __VA_ARGS__;                                                                                             \
            fflush(stdout);                                                                                          \
            _exit(0);                                                                                                \
        }                                                                                                            \
        int status_;                                                                                                 \
        MUST(waitpid(one_, &status_, 0) == one_);                                                                    \
        show_status(what, status_);                                                                                  \
        MUST(value(in("a/memory.peak"), NULL) <= 4 * MIB + 64 * 1024);                                                           \
    } while (0)

static void show_events(void) {
    printf("  oom_kill %ld group %ld\n", value(in("a/memory.events"), "oom_kill"), value(in("a/memory.events"), "oom_group_kill"));
}

static void write_file(const char *path, long bytes, int *result) {
    static char block[65536];
    memset(block, 7, sizeof block);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    MUST(fd >= 0);
    for (long at = 0; at < bytes; at += (long)sizeof block)
        if (write(fd, block, sizeof block) != (ssize_t)sizeof block) {
            *result = errno;
            break;
        }
    close(fd);
}

static long read_file(const char *path) {
    static char block[65536];
    int fd = open(path, O_RDONLY);
    MUST(fd >= 0);
    long sum = 0, all = 0;
    for (ssize_t got; all < 12 * MIB && (got = read(fd, block, sizeof block)) > 0; all += got)
        for (ssize_t at = 0; at < got; at++)
            sum += block[at];
    close(fd);
    return sum;
}

// A file of the host that nobody has read here yet, of more than 8 MiB.
static const char *big_file(void) {
    static const char *const files[] = {
        "/usr/lib/gcc/x86_64-linux-gnu/12/cc1", "/usr/bin/qemu-system-x86_64", "/usr/lib/gcc/x86_64-linux-gnu/12/lto1",
        "/usr/lib/gcc/x86_64-linux-gnu/14/cc1",
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct stat status;
        if (stat(files[i], &status) == 0 && status.st_size > 8 * MIB)
            return files[i];
    }
    MUST(!"a large file");
    return NULL;
}

static void until_below(long bytes) {
    while (current() > bytes)
        usleep(1000);
}

static void test(void) {
    mount_groups();
    MUST(mkdir("shm", 0755) == 0 || errno == EEXIST);
    MUST(mount("none", "shm", "tmpfs", 0, NULL) == 0);
    PUT("groups/cgroup.subtree_control", "+memory +pids");
    PUT(in("cgroup.subtree_control"), "+memory +pids");
    MUST(mkdir(in("a"), 0755) == 0);
    SHOW(access(in("a/memory.max"), F_OK));
    // No processes beside groups that have limits of memory.
    PUT(in("cgroup.procs"), "0");
    PUT(in("a/memory.max"), "-1");
    PUT(in("a/memory.max"), "much");
    PUT(in("a/memory.oom.group"), "2");
    printf("max %shigh %s", get(in("a/memory.max")), get(in("a/memory.high")));
    PUT(in("a/memory.max"), "4M");
    printf("max %s", get(in("a/memory.max")));

    // Memory of programs.
    IN_GROUP("2 MiB", touch(2 * MIB, MAP_PRIVATE, 0); MUST(current() >= 2 * MIB); MUST(value(in("a/memory.stat"), "anon") >= 2 * MIB));
    until_below(LITTLE);
    IN_GROUP("2 MiB on all CPUs", touch(2 * MIB, MAP_PRIVATE, 1); MUST(current() >= 2 * MIB));
    until_below(LITTLE);
    IN_GROUP("16 MiB", touch(16 * MIB, MAP_PRIVATE, 0));
    show_events();
    IN_GROUP("16 MiB on all CPUs", touch(16 * MIB, MAP_PRIVATE, 1));
    show_events();
    IN_GROUP("16 MiB shared", touch(16 * MIB, MAP_SHARED, 0));
    show_events();
    IN_GROUP("a copy", char *memory = touch(MIB, MAP_PRIVATE, 0); pid_t child = fork(); MUST(child >= 0); if (child == 0) {
        for (long at = 0; at < MIB; at += PAGE)
            memory[at] = 2;
        MUST(current() >= 2 * MIB);
        _exit(0);
    } int status;
             MUST(waitpid(child, &status, 0) == child); printf("  %s\n", WIFSIGNALED(status) ? "killed" : "done"));
    until_below(LITTLE);
    // Who is not in the group pays for itself.
    touch(16 * MIB, MAP_PRIVATE, 0);

    // Files: their pages go, and nobody ends.
    long kills = value(in("a/memory.events"), "oom_kill");
    const char *big = big_file();
    IN_GROUP("reads a file", MUST(read_file(big) != 0));
    MUST(current() <= 4 * MIB && value(in("a/memory.stat"), "file") > MIB);
    long before = current();
    PUT(in("a/memory.reclaim"), "1M");
    MUST(current() <= before - MIB);
    PUT(in("a/memory.reclaim"), "64M");
    PUT(in("a/memory.reclaim"), "max");
    PUT(in("a/memory.max"), "512K");
    MUST(current() <= LITTLE);
    PUT(in("a/memory.max"), "4M");
    IN_GROUP("reads it again", move_to(cpu_count() - 1); MUST(read_file(big) != 0));
    IN_GROUP("maps it", move_to(cpu_count() - 1); int fd = open(big, O_RDONLY);
             char *map = mmap(NULL, 8 * MIB, PROT_READ, MAP_PRIVATE, fd, 0); MUST(map != MAP_FAILED); long sum = 0;
             for (long at = 0; at < 8 * MIB; at += PAGE) {
                 sum += map[at];
                 MUST(madvise(map + (at & -65536), 65536, MADV_DONTNEED) == 0);
             } MUST(sum != 0));
    // Its own memory comes before the pages of files.
    IN_GROUP("3 MiB", touch(3 * MIB, MAP_PRIVATE, 0));
    printf("ended for that: %ld\n", value(in("a/memory.events"), "oom_kill") - kills);

    // A file in memory: it stays, and counts.
    IN_GROUP("tmpfs, 2 MiB", int error = 0; write_file("shm/file", 2 * MIB, &error); printf("  %s\n", result_of(error)));
    until_below(3 * MIB);
    MUST(current() >= 2 * MIB && value(in("a/memory.stat"), "shmem") == 2 * MIB);
    IN_GROUP("beside it 3 MiB", touch(3 * MIB, MAP_PRIVATE, 0));
    MUST(unlink("shm/file") == 0);
    until_below(LITTLE);
    IN_GROUP("tmpfs, 16 MiB", int error = 0; write_file("shm/file", 16 * MIB, &error); printf("  %s\n", result_of(error)));
    MUST(unlink("shm/file") == 0);
    until_below(LITTLE);

    // The limit of a group is one for those below it; the largest ends.
    MUST(put(in("a/cgroup.subtree_control"), "+memory") == 0 && mkdir(in("a/b"), 0755) == 0 && mkdir(in("a/c"), 0755) == 0);
    pid_t large = fork();
    MUST(large >= 0);
    if (large == 0) {
        enter("a/b");
        move_to(cpu_count() - 1);
        touch(3 * MIB, MAP_PRIVATE, 0);
        for (;;)
            pause();
    }
    while (value(in("a/b/memory.current"), NULL) < 3 * MIB)
        usleep(1000);
    pid_t small = fork();
    MUST(small >= 0);
    if (small == 0) {
        enter("a/c");
        touch(2 * MIB, MAP_PRIVATE, 0);
        _exit(0);
    }
    int status;
    MUST(waitpid(small, &status, 0) == small);
    show_status("small", status);
    MUST(waitpid(large, &status, 0) == large);
    show_status("large", status);
    printf("kills in b %ld c %ld\n", value(in("a/b/memory.events"), "oom_kill"), value(in("a/c/memory.events"), "oom_kill"));
    until_below(LITTLE);
    // All of a group end together.
    PUT(in("a/b/memory.oom.group"), "1");
    PUT(in("a/b/memory.max"), "2M");
    pid_t other = fork();
    MUST(other >= 0);
    if (other == 0) {
        enter("a/b");
        for (;;)
            pause();
    }
    while (!lists(in("a/b/cgroup.procs"), other))
        usleep(1000);
    pid_t eats = fork();
    MUST(eats >= 0);
    if (eats == 0) {
        enter("a/b");
        touch(16 * MIB, MAP_PRIVATE, 1);
        _exit(0);
    }
    MUST(waitpid(eats, &status, 0) == eats);
    show_status("eats", status);
    MUST(waitpid(other, &status, 0) == other);
    show_status("other", status);
    printf("group kills %ld\n", value(in("a/b/memory.events.local"), "oom_group_kill"));
    // More than memory.high is slow, and no more.
    PUT(in("a/b/memory.max"), "max");
    PUT(in("a/b/memory.high"), "1M");
    pid_t slow = fork();
    MUST(slow >= 0);
    if (slow == 0) {
        enter("a/b");
        touch(2 * MIB, MAP_PRIVATE, 0);
        _exit(0);
    }
    MUST(waitpid(slow, &status, 0) == slow);
    show_status("slow", status);
    printf("high: %s\n", value(in("a/b/memory.events"), "high") > 0 ? "told" : "not told");
    MUST(rmdir(in("a/b")) == 0 && rmdir(in("a/c")) == 0);
    // What a removed group has left its parent has.
    PUT(in("a/cgroup.subtree_control"), "-memory");
    IN_GROUP("leaves a file", int error = 0; write_file("shm/file", MIB, &error));
    long left = value(in("memory.current"), NULL);
    MUST(left >= MIB);
    MUST(rmdir(in("a")) == 0);
    MUST(value(in("memory.current"), NULL) >= MIB);
    MUST(unlink("shm/file") == 0);
    while (value(in("memory.current"), NULL) > LITTLE)
        usleep(1000);
    MUST(umount("shm") == 0 && rmdir("shm") == 0);
    unmount_groups();
}

static const char expected[] =
    "cgroup.subtree_control < +memory +pids: done\n"
    "cgroup.subtree_control < +memory +pids: done\n"
    "access(in(\"a/memory.max\"), F_OK) = 0\n"
    "cgroup.procs < 0: EBUSY\n"
    "memory.max < -1: EINVAL\n"
    "memory.max < much: EINVAL\n"
    "memory.oom.group < 2: EINVAL\n"
    "max max\n"
    "high max\n"
    "memory.max < 4M: done\n"
    "max 4194304\n"
    "2 MiB: exited 0\n"
    "2 MiB on all CPUs: exited 0\n"
    "16 MiB: killed by KILL\n"
    "  oom_kill 1 group 0\n"
    "16 MiB on all CPUs: killed by KILL\n"
    "  oom_kill 2 group 0\n"
    "16 MiB shared: killed by KILL\n"
    "  oom_kill 3 group 0\n"
    "  done\n"
    "a copy: exited 0\n"
    "reads a file: exited 0\n"
    "memory.reclaim < 1M: done\n"
    "memory.reclaim < 64M: EAGAIN\n"
    "memory.reclaim < max: EINVAL\n"
    "memory.max < 512K: done\n"
    "memory.max < 4M: done\n"
    "reads it again: exited 0\n"
    "maps it: exited 0\n"
    "3 MiB: exited 0\n"
    "ended for that: 0\n"
    "  done\n"
    "tmpfs, 2 MiB: exited 0\n"
    "beside it 3 MiB: killed by KILL\n"
    "tmpfs, 16 MiB: killed by KILL\n"
    "small: exited 0\n"
    "large: killed by KILL\n"
    "kills in b 1 c 0\n"
    "memory.oom.group < 1: done\n"
    "memory.max < 2M: done\n"
    "eats: killed by KILL\n"
    "other: killed by KILL\n"
    "group kills 1\n"
    "memory.max < max: done\n"
    "memory.high < 1M: done\n"
    "slow: exited 0\n"
    "high: told\n"
    "cgroup.subtree_control < -memory: done\n"
    "leaves a file: exited 0\n";

int main(void) { return check(test, expected); }
