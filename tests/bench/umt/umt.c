// `cob bench umt`: programs of the task runtime (runtime/examples) on a slow disk with ext4, /dev/vda. The same static binary is /init of the same initramfs on Cob and on
// Linux, with the programs in /umt.
//
// Its words are `row:mode`, with the mode `umt`, `umt-idle`, `baseline`, `bpf` (Linux) or `tN` (N threads a CPU). Prints for each `RUN row:mode JSON`, with the line of JSON that the program printed, then `BENCH-END`. What fails is
// `FAILED ...`.
#include "../common/program.h"
#include <sys/mount.h>

#define DISK "/mnt"

// Sizes are made for a disk that takes 40 ms for a request, for S2 18, for the server 24, and for fwi 5: the baseline takes some ten seconds for a row, thirty for S1 with the tasks of the thesis, two minutes for S3-2000 and six for S3-6000.
static const struct row {
    const char *name, *words[8];
    // MiB that the program may have, with its pages of files; 0: any.
    long group;
} rows[] = {
    {"S1", {"/umt/synthetic", DISK "/file", "S1", "bytes=33554432"}},
    {"S2", {"/umt/synthetic", DISK "/file", "S2", "tasks=60", "operations=450", "bytes=33554432"}},
    {"S3-60", {"/umt/synthetic", DISK "/file", "S3", "tasks=60", "bytes=33554432"}},
    {"S3-240", {"/umt/synthetic", DISK "/file", "S3", "tasks=240", "bytes=33554432"}},
    {"S3-720", {"/umt/synthetic", DISK "/file", "S3", "tasks=720", "bytes=33554432"}},
    {"S3-2000", {"/umt/synthetic", DISK "/file", "S3", "tasks=2000", "bytes=33554432"}},
    {"S3-6000", {"/umt/synthetic", DISK "/file", "S3", "tasks=6000", "bytes=33554432"}},
    {"fwi-none", {"/umt/fwi", DISK "/fwi", "version=none", "scale=0.06"}},
    {"fwi-fdatasync", {"/umt/fwi", DISK "/fwi", "version=fdatasync", "scale=0.06"}},
    {"fwi-multifile", {"/umt/fwi", DISK "/fwi", "version=multifile", "scale=0.06"}},
    {"fwi-mmap", {"/umt/fwi", DISK "/fwi", "version=mmap", "scale=0.06"}},
    {"fwi-nocache", {"/umt/fwi", DISK "/fwi", "version=nocache", "scale=0.06"}},
    {"fwi-none-sequential", {"/umt/fwi", DISK "/fwi", "version=none", "scale=0.06", "io=sequential"}},
    {"fwi-mmap-sequential", {"/umt/fwi", DISK "/fwi", "version=mmap", "scale=0.06", "io=sequential"}},
    // As in the thesis, where 34 GB of snapshots go through a group of 2 GiB, and the volume has a third of that: 29 MB of snapshots and a volume of 4.5 MB. Linux's stacks of 100 threads count, too.
    {"fwi-none-group", {"/umt/fwi", DISK "/fwi", "version=none", "scale=0.12"}, 16},
    {"fwi-fdatasync-group", {"/umt/fwi", DISK "/fwi", "version=fdatasync", "scale=0.12"}, 16},
    {"fwi-multifile-group", {"/umt/fwi", DISK "/fwi", "version=multifile", "scale=0.12"}, 16},
    {"fwi-mmap-group", {"/umt/fwi", DISK "/fwi", "version=mmap", "scale=0.12"}, 16},
    {"kvserver", {"/umt/kvserver", DISK "/keys", "keys=98304", "connections=64", "requests=20", "writes=5"}},
};

static void environment(const char *mode) {
    setenv("UMT_SAMPLE", "1", 1);
    setenv("COB_TASKS", mode[0] == 'u' || mode[0] == 'b' ? mode : "baseline", 1);
    setenv("COB_TASKS_THREADS_PER_CPU", mode[0] == 't' ? mode + 1 : "1", 1);
}

// A control group of this word, which may have so much memory, and the calling process in it.
#define GROUPS "/sys/fs/cgroup"
static char group[128];

static char *in_group(const char *file) {
    static char path[160];
    snprintf(path, sizeof path, "%s/%s", group, file);
    return path;
}

static void put(const char *path, const char *format, long value) {
    int fd = open(path, O_WRONLY);
    MUST(fd >= 0 && dprintf(fd, format, value) > 0 && !close(fd));
}

static void enter_group(const char *word, long mebibytes) {
    for (const char *const *at = (const char *const[]){"/sys", "/sys/fs", GROUPS, NULL}; *at; at++)
        MUST(!mkdir(*at, 0755) || errno == EEXIST);
    // An earlier word has mounted it.
    if (access(GROUPS "/cgroup.procs", F_OK))
        MUST(!mount("cgroup2", GROUPS, "cgroup2", 0, NULL));
    put(GROUPS "/cgroup.subtree_control", "+memory%.0ld", 0);
    snprintf(group, sizeof group, GROUPS "/%s", word);
    MUST(!mkdir(group, 0755));
    put(in_group("memory.max"), "%ldM", mebibytes);
    put(in_group("cgroup.procs"), "%ld", getpid());
}

// It has had what it might, and no more.
static void check_group(long mebibytes) {
    char text[32] = "";
    int fd = open(in_group("memory.peak"), O_RDONLY);
    MUST(fd >= 0 && read(fd, text, sizeof text - 1) > 0 && !close(fd));
    long peak = atol(text);
    MUST(peak <= (mebibytes << 20) + (1 << 20) && peak >= mebibytes << 19);
}

static void run(const struct row *row, const char *mode, const char *word) {
    static char text[1 << 16];
    char *arguments[9] = {};
    for (int at = 0; at < 8; at++)
        arguments[at] = (char *)row->words[at];
    environment(mode);
    sync();
    MUST(!umount(DISK) && !mount("/dev/vda", DISK, "ext4", 0, NULL));
    drop_caches();
    if (row->group)
        enter_group(word, row->group);
    run_program(arguments, false, false, 0, text, sizeof text);
    if (row->group)
        check_group(row->group);
    char *json = strchr(text, '{');
    MUST(json);
    json[strcspn(json, "\r\n")] = 0;
    printf("RUN %s %s\n", word, json);
    fflush(stdout);
}

static void word(const char *word) {
    char name[64], mode[16];
    MUST(sscanf(word, "%63[^:]:%15s", name, mode) == 2);
    fflush(stdout);
    pid_t pid = fork();
    MUST(pid >= 0);
    if (!pid) {
        // In a process of its own: what it fails to do keeps no other row from running.
        for (size_t at = 0; at < sizeof rows / sizeof *rows; at++)
            if (!strcmp(rows[at].name, name)) {
                run(&rows[at], mode, word);
                _exit(0);
            }
        printf("FAILED %s: no such row\n", word);
        fflush(stdout);
        _exit(1);
    }
    int status;
    MUST(waitpid(pid, &status, 0) == pid);
    if (status)
        printf("FAILED %s ended with status %#x\n", word, status);
    fflush(stdout);
}

int main(int argc, char **argv) {
    mount_all();
    load_disk_modules("/dev/vda");
    // For `bpf`.
    if (access("/proc/cob", F_OK)) {
        // They may be there.
        mkdir("/sys", 0755);
        mkdir("/sys/kernel", 0755);
        mkdir("/sys/kernel/tracing", 0755);
        MUST(!mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, NULL));
    }
    MUST((!mkdir(DISK, 0755) || errno == EEXIST) && !mount("/dev/vda", DISK, "ext4", 0, NULL));
    for (int at = 1; at < argc; at++)
        word(argv[at]);
    MUST(!umount(DISK));
    printf("BENCH-END\n");
    fflush(stdout);
    // Linux panics when its init ends.
    for (;;)
        pause();
}
