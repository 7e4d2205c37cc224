// `cob bench npb`: the workloads of the multikernel papers, one after another, each in a process of its own. The same binary is /init of
// the same initramfs on Cob and on Linux, and runs by hand as well: `papers is.S.1 ft.W.4` (workload, size, threads). Those with MPI
// (`cg-mpi.S.4`, `cg-mpich.S.4`: so many ranks) are a program /ranks, started by the mpirun of Open MPI or MPICH, all in the initramfs.
//
// Prints for each `RUN workload.size.threads seconds whole moved local remote messages`: the time of what the specification times, and
// of the whole process; how often threads moved between kernels, faults that kernels answered alone and with another's help, and
// messages that kernels sent (- where there are no such kernels). Then `BENCH-END`. A wrong result: `WRONG ...`, and status 1.
#include "papers.h"
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct workload workloads[] = {
    {"is", run_is}, {"ft", run_ft}, {"cg", run_cg}, {"bfs", run_bfs}, {"lud", run_lud}, {},
};

struct counts {
    long moved, local, remote, messages;
};

// Calls `line` with every line of a file after its heading; false if there is no such file.
static bool lines(const char *name, bool (*line)(const char *, struct counts *), struct counts *counts) {
    FILE *file = fopen(name, "r");
    char text[4096];
    if (!file)
        return false;
    for (bool more = fgets(text, sizeof text, file) != NULL; more && fgets(text, sizeof text, file);)
        more = line(text, counts);
    fclose(file);
    return true;
}

static bool kernel_line(const char *text, struct counts *counts) {
    long moved, local, remote;
    if (sscanf(text, "%*s %*s %*s %*s %*s %*s %*s %*s %ld %*s %ld %ld", &moved, &local, &remote) != 3)
        return true; // one that is not running
    counts->moved += moved, counts->local += local, counts->remote += remote;
    return true;
}

static bool message_line(const char *text, struct counts *counts) {
    long kernel, sent;
    // The table of kernels ends with the first line that is none of it.
    if (sscanf(text, "%ld %ld", &kernel, &sent) != 2)
        return false;
    counts->messages += sent;
    return true;
}

static bool count(struct counts *counts) {
    *counts = (struct counts){};
    return lines("/proc/cob/kernels", kernel_line, counts) && lines("/proc/cob/messages", message_line, counts);
}

// Makes a process whose output the caller reads. In that process it gives NULL, and `*child` is 0.
static FILE *start(pid_t *child) {
    int ends[2];
    *child = -1;
    fflush(stdout);
    if (pipe(ends) || (*child = fork()) < 0)
        return NULL;
    if (!*child)
        dup2(ends[1], STDOUT_FILENO);
    close(ends[1]);
    return *child ? fdopen(ends[0], "r") : NULL;
}

static void run_threads(const struct workload *workload, char size, int threads) {
    omp_set_num_threads(threads);
    double time = workload->run(size);
    if (time >= 0)
        printf("TIME %.6f\n", time);
    fflush(stdout);
    _exit(time < 0);
}

// Nothing but shared memory is used between ranks, and no daemon of another machine is asked for. Open MPI's ranks that wait yield where they are more than
// CPUs; MPICH's spin.
static void run_ranks(const char *name, char size, int ranks, bool mpich) {
    char size_word[] = {size, 0}, number[12];
    snprintf(number, sizeof number, "%d", ranks);
    if (mpich)
        execl("/usr/bin/mpirun.mpich", "mpirun", "-launcher", "fork", "-np", number, "/ranks.mpich", name, size_word, NULL);
    else
        execl("/usr/bin/mpirun.openmpi", "mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "plm", "isolated", "--mca", "pml", "ob1",
          "--mca", "btl", "self,vader", "-np", number, "/ranks.openmpi", name, size_word, NULL);
    printf("WRONG no mpirun: %s\n", strerror(errno));
    fflush(stdout);
    _exit(1);
}

static bool run(const char *word) {
    char name[12], size, *ranks;
    int workers;
    const struct workload *workload = workloads;
    if (sscanf(word, "%11[a-z-].%c.%d", name, &size, &workers) != 3 || workers < 1 || !strchr("SWA", size)) {
        printf("WRONG %s: expected workload.size.threads\n", word);
        return false;
    }
    if ((ranks = strchr(name, '-')))
        *ranks++ = 0;
    while (workload->name && strcmp(workload->name, name))
        workload++;
    if (!workload->name) {
        printf("WRONG %s: no such workload\n", word);
        return false;
    }
    struct counts before, after;
    bool counted = count(&before);
    double time = -1, begun = seconds();
    int status = -1;
    pid_t child;
    FILE *output = start(&child);
    if (!child)
        ranks ? run_ranks(name, size, workers, !strcmp(ranks, "mpich")) : run_threads(workload, size, workers);
    char line[200];
    // All but the time is a complaint.
    while (output && fgets(line, sizeof line, output))
        if (sscanf(line, "TIME %lf", &time) != 1)
            fputs(line, stdout);
    if (output && !fclose(output))
        waitpid(child, &status, 0);
    double whole = seconds() - begun;
    if (status || time < 0) {
        printf("WRONG %s ended with status %#x\n", word, status);
        return false;
    }
    printf("RUN %s %.6f %.6f ", word, time, whole);
    if (counted && count(&after)) {
        printf("%ld %ld %ld %ld\n", after.moved - before.moved, after.local - before.local, after.remote - before.remote,
               after.messages - before.messages);
    } else {
        // Elsewhere all faults are the one kernel's. They are those of the children so far, and each is asked for once.
        static long faults;
        struct rusage usage;
        getrusage(RUSAGE_CHILDREN, &usage);
        printf("- %ld - -\n", usage.ru_minflt - faults);
        faults = usage.ru_minflt;
    }
    fflush(stdout);
    return true;
}

static bool mounted(const char *kind, const char *place) {
    return (!mkdir(place, 01777) || errno == EEXIST) && !mount(kind, place, kind, 0, NULL);
}

// Nobody else raises it where this is init, but on Cob it is up.
static bool raise_lo(void) {
    struct ifreq request = {.ifr_name = "lo"};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    bool up = fd >= 0 && !ioctl(fd, SIOCGIFFLAGS, &request);
    if (up && !(request.ifr_flags & IFF_UP)) {
        request.ifr_flags |= IFF_UP;
        up = !ioctl(fd, SIOCSIFFLAGS, &request);
    }
    close(fd);
    return up;
}

// What mpirun wants of a machine: a name, an address, a place for shared memory.
static bool ready_for_ranks(void) {
    return mounted("sysfs", "/sys") && mounted("devtmpfs", "/dev") && mounted("tmpfs", "/dev/shm") && !sethostname("localhost", 9) &&
           !setenv("PATH", "/usr/bin", 1) && raise_lo();
}

int main(int argc, char **argv) {
    // Started by hand in a system that runs already, it must not mount over what is there.
    bool first = getpid() <= 2 && access("/proc/self", F_OK), right = true;
    if (first && !(mounted("proc", "/proc") && mounted("tmpfs", "/tmp") && (access("/ranks.openmpi", F_OK) || ready_for_ranks())))
        printf("WRONG cannot prepare: %s\n", strerror(errno));
    for (int at = 1; at < argc; at++)
        right = run(argv[at]) && right;
    printf("BENCH-END\n");
    fflush(stdout);
    // Linux panics when its init ends.
    while (first)
        pause();
    return !right;
}
