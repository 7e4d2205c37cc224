// `cob bench streams`: what talks through pipes and sockets. The same static binary is /init of the same initramfs on Cob and on Linux,
// with programs of Debian's packages beside it.
//
// Its words are `row:place`, with the place `apart` (one end is pinned to the first CPU, the other to the last) or `free` (nobody is
// pinned). Prints for each `RUN row:place seconds operations messages doorbells moves` (- where there are no such kernels), then `BENCH-END`.
// What fails is `FAILED ...`.
#include "streams.h"
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

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
        mount_all();
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
