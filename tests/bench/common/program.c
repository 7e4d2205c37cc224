#include "program.h"
#include <sys/mount.h>
#include <sys/syscall.h>

static bool lines(const char *name, bool (*line)(const char *, struct counts *), struct counts *counts) {
    FILE *file = fopen(name, "r");
    char text[4096];
    if (!file)
        return false;
    // Without its heading.
    for (bool more = fgets(text, sizeof text, file) != NULL; more && fgets(text, sizeof text, file);)
        more = line(text, counts);
    fclose(file);
    return true;
}

static bool message_line(const char *text, struct counts *counts) {
    long sent, doorbells;
    if (sscanf(text, "%*d %ld %*d %ld", &sent, &doorbells) != 2)
        return false;
    counts->messages += sent, counts->doorbells += doorbells;
    return true;
}

static bool kernel_line(const char *text, struct counts *counts) {
    long moved;
    // One that is not running has no such column.
    if (sscanf(text, "%*s %*s %*s %*s %*s %*s %*s %*s %ld", &moved) == 1)
        counts->moves += moved;
    return true;
}

bool count(struct counts *counts) {
    *counts = (struct counts){};
    return lines("/proc/cob/kernels", kernel_line, counts) && lines("/proc/cob/messages", message_line, counts);
}

static struct counts before, look;

void count_begin(struct result *result) {
    struct counts first;
    // The first look from a CPU or in a process costs more.
    if (!count(&first) || !count(&first) || !count(&before)) {
        result->messages = result->doorbells = result->moves = -1;
        return;
    }
    look = (struct counts){before.messages - first.messages, before.doorbells - first.doorbells, 0};
    result->messages = 0;
}

void count_end(struct result *result) {
    struct counts now;
    if (result->messages < 0)
        return;
    MUST(count(&now));
    result->messages = now.messages - before.messages - look.messages;
    result->doorbells = now.doorbells - before.doorbells - look.doorbells;
    result->moves = now.moves - before.moves;
}

void pin(bool apart, bool second) {
    if (!apart)
        return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(second ? sysconf(_SC_NPROCESSORS_ONLN) - 1 : 0, &set);
    MUST(!sched_setaffinity(0, sizeof set, &set));
}

pid_t start(char *const arguments[], bool apart, bool second, int output, uid_t user) {
    fflush(stdout);
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid)
        return pid;
    pin(apart, second);
    MUST(output < 0 || dup2(output, 1) == 1);
    MUST(!user || (!setgid(user) && !setuid(user)));
    execv(arguments[0], arguments);
    fprintf(stderr, "FAILED %s: %s\n", arguments[0], strerror(errno));
    _exit(127);
}

void finish(pid_t pid) {
    int status;
    MUST(waitpid(pid, &status, 0) == pid);
    if (status) {
        printf("FAILED program ended with status %#x\n", status);
        fflush(stdout);
        _exit(1);
    }
}

void run_program(char *const arguments[], bool apart, bool second, uid_t user, char *text, size_t size) {
    int ends[2];
    size_t length = 0;
    MUST(!pipe2(ends, O_CLOEXEC));
    pid_t pid = start(arguments, apart, second, ends[1], user);
    close(ends[1]);
    for (ssize_t got; (got = read(ends[0], text + length, size - 1 - length)) > 0;)
        length += got;
    text[length] = 0;
    close(ends[0]);
    finish(pid);
}

void stop(pid_t pid, int signal) {
    int status;
    MUST(!kill(pid, signal));
    MUST(waitpid(pid, &status, 0) == pid);
}

void wait_for(char *const arguments[], uid_t user) {
    int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC), status = 1;
    for (int attempt = 0; attempt < 600 && status; attempt++) {
        fflush(stdout);
        pid_t pid = fork();
        MUST(pid >= 0);
        if (!pid) {
            dup2(nowhere, 1), dup2(nowhere, 2);
            MUST(!user || (!setgid(user) && !setuid(user)));
            execv(arguments[0], arguments);
            _exit(127);
        }
        MUST(waitpid(pid, &status, 0) == pid);
        if (status)
            usleep(50000);
    }
    MUST(!status);
    close(nowhere);
}

void mount_all(void) {
    MUST(!mount("proc", "/proc", "proc", 0, NULL));
    MUST(!mount("dev", "/dev", "devtmpfs", 0, NULL));
    MUST(!mount("tmp", "/tmp", "tmpfs", 0, NULL));
    // Cob has it already.
    MUST((!mkdir("/dev/shm", 01777) || errno == EEXIST) && !mount("shm", "/dev/shm", "tmpfs", 0, NULL));
    setenv("PATH", "/usr/bin:/bin", 1);
}

// What Debian's cloud kernel does not have built in, in the order in which they need each other. Cob has no modules.
static char *const modules[] = {"virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "virtio_blk"};

void load_disk_modules(const char *other) {
    for (size_t at = 0; at < sizeof modules / sizeof *modules && access("/proc/cob", F_OK); at++) {
        char name[64];
        snprintf(name, sizeof name, "/modules/%s.ko", modules[at]);
        int fd = open(name, O_RDONLY | O_CLOEXEC);
        MUST(fd >= 0);
        MUST(!syscall(SYS_finit_module, fd, "", 0));
        close(fd);
    }
    for (int attempt = 0; attempt < 1000 && (access("/dev/vda", F_OK) || access(other, F_OK)); attempt++)
        usleep(10000);
}

void drop_caches(void) {
    int fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
    MUST(fd >= 0 && write(fd, "3", 1) == 1);
    close(fd);
}
