// `cob bench npb`: the workloads of the multikernel papers, one after another, each in a process of its own. The same binary is /init of
// the same initramfs on Cob and on Linux, and runs by hand as well: `papers is.S.1 ft.W.4` (workload, size, threads).
//
// Prints for each `RUN workload.size.threads seconds whole moved local remote messages`: the time of what the specification times, and
// of the whole process; how often threads moved between kernels, faults that kernels answered alone and with another's help, and
// messages that kernels sent (- where there are no such kernels). Then `BENCH-END`. A wrong result: `WRONG ...`, and status 1.
#include "papers.h"
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/resource.h>
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

static int in_child(const struct workload *workload, char size, int threads, double *time) {
    int ends[2];
    if (pipe(ends))
        return -1;
    fflush(stdout);
    pid_t child = fork();
    if (child < 0)
        return -1;
    if (!child) {
        omp_set_num_threads(threads);
        double time = workload->run(size);
        fflush(stdout);
        _exit(time < 0 || write(ends[1], &time, sizeof time) != sizeof time);
    }
    close(ends[1]);
    int status;
    if (read(ends[0], time, sizeof *time) != sizeof *time)
        *time = -1;
    close(ends[0]);
    return waitpid(child, &status, 0) == child ? status : -1;
}

static bool run(const char *word) {
    char name[8], size;
    int threads;
    const struct workload *workload = workloads;
    if (sscanf(word, "%7[a-z].%c.%d", name, &size, &threads) != 3 || threads < 1 || !strchr("SWA", size)) {
        printf("WRONG %s: expected workload.size.threads\n", word);
        return false;
    }
    while (workload->name && strcmp(workload->name, name))
        workload++;
    if (!workload->name) {
        printf("WRONG %s: no such workload\n", word);
        return false;
    }
    struct counts before, after;
    bool counted = count(&before);
    double time, start = seconds();
    int status = in_child(workload, size, threads, &time);
    double whole = seconds() - start;
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

int main(int argc, char **argv) {
    // Started by hand in a system that runs already, it must not mount over what is there.
    bool first = getpid() <= 2 && access("/proc/self", F_OK), right = true;
    if (first && (mount("proc", "/proc", "proc", 0, NULL) || mount("tmp", "/tmp", "tmpfs", 0, NULL)))
        printf("WRONG cannot mount\n");
    for (int at = 1; at < argc; at++)
        right = run(argv[at]) && right;
    printf("BENCH-END\n");
    fflush(stdout);
    // Linux panics when its init ends.
    while (first)
        pause();
    return !right;
}
