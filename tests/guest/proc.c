// /proc as programs read it: the fields are there, they parse, and they agree with the system calls.
// cob: link=static,dynamic flags=-pthread compare=self
#include "test.h"
#include <dirent.h>
#include <pthread.h>
#include <sys/prctl.h>

static char text[1 << 20];

static char *slurp(const char *path) {
    int fd = open(path, O_RDONLY);
    if (fd < 0) {
        printf("%s: %s\n", path, error_name(errno));
        exit(99);
    }
    long length = 0, more;
    while ((more = read(fd, text + length, 700)) > 0) // in pieces, on purpose
        length += more;
    MUST(more == 0);
    text[length] = 0;
    close(fd);
    return text;
}

static long field(const char *path, const char *name) {
    char *at = strstr(slurp(path), name);
    if (!at) {
        printf("%s has no %s\n", path, name);
        exit(99);
    }
    return strtol(at + strlen(name), NULL, 10);
}

static int occurrences(const char *where, const char *what) {
    int count = 0;
    for (const char *at = where; (at = strstr(at, what)); at++)
        count++;
    return count;
}

static _Atomic int phase;
static void *sleeper(void *argument) {
    prctl(PR_SET_NAME, "sleeper");
    phase = (int)syscall(SYS_gettid);
    for (;;)
        pause();
    return argument;
}

int main(int argc, char **argv) {
    char path[256], link[4096];
    MUST(occurrences(slurp("/proc/cpuinfo"), "processor\t:") == cpu_count());
    MUST(strstr(text, "flags\t\t:") && strstr(text, "model name"));
    MUST(field("/proc/meminfo", "MemTotal:") > 50000);
    MUST(field("/proc/meminfo", "MemFree:") > 0 && field("/proc/meminfo", "MemAvailable:") > 0);
    slurp("/proc/stat");
    MUST(strncmp(text, "cpu ", 4) == 0 && strstr(text, "btime ") && strstr(text, "ctxt "));
    MUST(occurrences(text, "\ncpu") == cpu_count());
    double up, idle;
    MUST(sscanf(slurp("/proc/uptime"), "%lf %lf", &up, &idle) == 2 && up > 0);
    int runnable, total, last;
    double load[3];
    MUST(sscanf(slurp("/proc/loadavg"), "%lf %lf %lf %d/%d %d", load, load + 1, load + 2, &runnable, &total, &last) == 6);
    MUST(strncmp(slurp("/proc/version"), "Linux version ", 14) == 0);
    MUST(strstr(slurp("/proc/filesystems"), "proc"));
    MUST(strstr(slurp("/proc/mounts"), " / "));
    MUST(strstr(slurp("/proc/self/mounts"), " /proc proc "));
    int pid, parent;
    char name[64], state;
    MUST(sscanf(slurp("/proc/self/stat"), "%d (%63[^)]) %c %d", &pid, name, &state, &parent) == 4);
    MUST(pid == getpid() && parent == getppid() && state == 'R');
    MUST(occurrences(text, " ") >= 51);
    MUST(field("/proc/self/status", "\nPid:\t") == getpid());
    MUST(field("/proc/self/status", "\nPPid:\t") == getppid());
    MUST(field("/proc/self/status", "\nUid:\t") == getuid());
    MUST(field("/proc/self/status", "\nVmRSS:") > 0 && field("/proc/self/status", "\nVmSize:") > 0);
    MUST(field("/proc/self/status", "\nThreads:\t") == 1);
    MUST(strstr(text, "\nSigBlk:\t") && strstr(text, "\nCpus_allowed_list:\t"));
    slurp("/proc/self/cmdline");
    MUST(strcmp(text, argv[0]) == 0);
    MUST(strstr(slurp("/proc/self/comm"), "proc."));
    long length = readlink("/proc/self/exe", link, sizeof link - 1);
    MUST(length > 0 && (link[length] = 0, strstr(link, "proc.")));
    length = readlink("/proc/self/cwd", link, sizeof link - 1);
    char cwd[4096];
    MUST(getcwd(cwd, sizeof cwd));
    MUST(length > 0 && (link[length] = 0, strcmp(link, cwd) == 0));
    length = readlink("/proc/self", link, sizeof link - 1);
    MUST(length > 0 && (link[length] = 0, atoi(link) == getpid()));
    // Descriptors.
    int fd = open("file", O_CREAT | O_RDWR, 0600);
    MUST(write(fd, "hello", 5) == 5);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    MUST((length = readlink(path, link, sizeof link - 1)) > 0);
    link[length] = 0;
    MUST(strcmp(strrchr(link, '/'), "/file") == 0);
    int again = open(path, O_RDONLY);
    char byte;
    MUST(again >= 0 && read(again, &byte, 1) == 1 && byte == 'h');
    int ends[2];
    MUST(pipe(ends) == 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", ends[0]);
    MUST(readlink(path, link, sizeof link) > 0 && strncmp(link, "pipe:[", 6) == 0);
    MUST(open("/proc/self/fd/99", O_RDONLY) == -1 && errno == ENOENT);
    // Maps: this function, the stack, the heap.
    int on_stack = 0, found = 0;
    char *volatile in_heap = malloc(10);
    free(in_heap);
    char *line = slurp("/proc/self/maps"), *rest;
    MUST(strstr(text, "[stack]") && strstr(text, "[heap]"));
    for (line = strtok_r(line, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        unsigned long from, to;
        char protection[5];
        MUST(sscanf(line, "%lx-%lx %4s", &from, &to, protection) == 3);
        if ((unsigned long)&on_stack >= from && (unsigned long)&on_stack < to)
            found += strcmp(protection, "rw-p") == 0;
        if ((unsigned long)main >= from && (unsigned long)main < to)
            found += strcmp(protection, "r-xp") == 0 && strstr(line, "proc.") != NULL;
    }
    MUST(found == 2);
    // Another thread.
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, sleeper, NULL) == 0);
    while (!phase)
        sched_yield();
    MUST(field("/proc/self/status", "\nThreads:\t") == 2);
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", phase);
    MUST(strcmp(slurp(path), "sleeper\n") == 0);
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", phase);
    do {
        MUST(sscanf(slurp(path), "%d (%63[^)]) %c", &pid, name, &state) == 3 && pid == phase);
    } while (state != 'S');
    // A child in its states.
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    snprintf(path, sizeof path, "/proc/%d/stat", child);
    do {
        MUST(sscanf(slurp(path), "%d (%63[^)]) %c", &pid, name, &state) == 3);
    } while (state != 'Z');
    MUST(waitpid(child, NULL, 0) == child);
    MUST(open(path, O_RDONLY) == -1 && errno == ENOENT);
    int processes = 0;
    DIR *proc = opendir("/proc");
    for (struct dirent *entry; (entry = readdir(proc));)
        processes += atoi(entry->d_name) == getpid();
    MUST(processes == 1);
    MUST(open("/proc/cpuinfo", O_WRONLY) == -1 || getuid() == 0);
    MUST(mkdir("/proc/x", 0700) == -1);
    MUST(strtol(slurp("/sys/devices/system/cpu/online") + 0, NULL, 10) == 0);
    snprintf(path, sizeof path, cpu_count() > 1 ? "0-%d\n" : "0\n", cpu_count() - 1);
    MUST(strcmp(text, path) == 0);
    (void)argc;
    printf("ok\n");
}
