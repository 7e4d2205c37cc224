// `cob bench streams`: what talks through pipes and sockets. The same static binary is /init of the same initramfs on Cob and on Linux,
// with programs of Debian's packages beside it.
//
// Its words are `row:place`, with the place `apart` (one end is pinned to the first CPU, the other to the last) or `free` (nobody is
// pinned). Prints for each `RUN row:place seconds operations messages doorbells moves` (- where there are no such kernels), then `BENCH-END`.
// What fails is `FAILED ...`.
#include "streams.h"
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>

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

// Nobody else does it where this is init.
static void raise_lo(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    MUST(fd >= 0 && !ioctl(fd, SIOCSIFFLAGS, &request));
    close(fd);
}

static const struct row *find(const struct row *row, const char *name) {
    while (row->name && strcmp(row->name, name))
        row++;
    return row->name ? row : NULL;
}

static void run(const char *word) {
    char name[64], place[8];
    MUST(sscanf(word, "%63[^:]:%7s", name, place) == 2);
    const struct row *row = find(talk_rows, name);
    MUST(row || (row = find(program_rows, name)));
    // In a process of its own: what it fails to do keeps no other row from running.
    fflush(stdout);
    pid_t pid = fork();
    MUST(pid >= 0);
    if (!pid) {
        struct result result = {.operations = 1};
        row->run(row, !strcmp(place, "apart"), &result);
        printf("RUN %s %.6f %.0f ", word, result.seconds, result.operations);
        if (result.messages < 0)
            printf("- - -\n");
        else
            printf("%.0f %.0f %.0f\n", result.messages, result.doorbells, result.moves);
        fflush(stdout);
        _exit(0);
    }
    int status;
    MUST(waitpid(pid, &status, 0) == pid);
    if (status)
        printf("FAILED %s ended with status %#x\n", word, status);
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "end"))
        return talk_end(argv + 2);
    // Started by hand in a system that runs already, it must not mount over what is there.
    bool first = getpid() <= 2 && access("/proc/self", F_OK);
    if (first) {
        MUST(!mount("proc", "/proc", "proc", 0, NULL));
        MUST(!mount("dev", "/dev", "devtmpfs", 0, NULL));
        MUST(!mount("tmp", "/tmp", "tmpfs", 0, NULL));
        // Cob has it already.
        MUST((!mkdir("/dev/shm", 01777) || errno == EEXIST) && !mount("shm", "/dev/shm", "tmpfs", 0, NULL));
        setenv("PATH", "/usr/bin:/bin", 1);
        raise_lo();
    }
    for (int at = 1; at < argc; at++)
        run(argv[at]);
    printf("BENCH-END\n");
    fflush(stdout);
    // Linux panics when its init ends.
    while (first)
        pause();
    return 0;
}
