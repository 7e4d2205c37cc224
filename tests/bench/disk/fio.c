// fio with the engine psync, which is pread and pwrite, or mmap. Sizes are for all jobs together.
#include "disk.h"

#define SEQUENTIAL (64 << 20)
#define RANDOM (8 << 20)
#define FILES (64 << 20)
#define SYNCED (400 * 4096)

// One program with `jobs` jobs on a file each; of mappings all on the same one.
static char *fio(const struct row *row, bool only_make) {
    bool random = !strncmp(row->what, "rand", 4), mapped = !strcmp(row->what, "mapped"), synced = !strcmp(row->what, "synced");
    bool writes = strstr(row->what, "write") || synced;
    long size = synced ? SYNCED : random || mapped ? FILES : SEQUENTIAL, much = random || mapped ? RANDOM : size;
    long files = mapped ? 1 : row->jobs;
    char text[16][96];
    char *arguments[20] = {"/usr/bin/fio", "--name=f", "--directory=" DISK, "--thread", "--fallocate=none", "--group_reporting",
                           "--output-format=terse", "--terse-version=3"};
    int at = 8, next = 0;
#define ADD(...) (snprintf(text[next], sizeof text[next], __VA_ARGS__), arguments[at++] = text[next++])
    ADD("--filename_format=%s%d.$jobnum", synced ? "synced" : random || mapped ? "random" : "file", row->jobs);
    if (mapped)
        arguments[at - 1] = "--filename=mapped";
    ADD("--rw=%s", mapped ? "randread" : synced ? "write" : row->what);
    ADD("--bs=%s", random || mapped || synced ? "4k" : "64k");
    ADD("--ioengine=%s", mapped ? "mmap" : "psync");
    ADD("--direct=%d", row->direct);
    ADD("--numjobs=%d", row->jobs);
    ADD("--size=%ld", size / files);
    ADD("--io_size=%ld", much / row->jobs);
    if (synced)
        arguments[at++] = "--fsync=1";
    else if (writes)
        arguments[at++] = "--end_fsync=1";
    if (random && writes)
        // The file's blocks are there.
        arguments[at++] = "--overwrite=1";
    if (only_make)
        arguments[at++] = "--create_only=1";
    return output_of(arguments);
}

// Reads and random writes find files; other writes make them anew.
static void prepare(const struct row *row) {
    char name[64];
    if (!strcmp(row->what, "write") || !strcmp(row->what, "synced")) {
        for (int job = 0; job < row->jobs; job++) {
            snprintf(name, sizeof name, DISK "/%s%d.%d", row->what[0] == 's' ? "synced" : "file", row->jobs, job);
            unlink(name);
        }
    } else {
        fio(row, true);
    }
}

// A field of the line that fio prints, counted from 1.
static double field(const char *line, int which) {
    for (; which > 1 && (line = strchr(line, ';')); which--)
        line++;
    return line ? atof(line) : 0;
}

static void run(const struct row *row, struct result *result) {
    char *line = strstr(fio(row, false), "3;fio");
    MUST(line);
    MUST(field(line, 5) == 0);
    // KiB and milliseconds of reads and of writes.
    double kib = field(line, 6) + field(line, 47), ms = field(line, 9) + field(line, 50);
    MUST(kib > 0);
    result->operations = kib / (!strcmp(row->what, "read") || !strcmp(row->what, "write") ? 64 : 4);
    result->seconds = ms > 0 ? ms / 1000 : 0.001;
}

const struct row fio_rows[] = {
    {"read-1", prepare, run, "read", 1, false},
    {"read-32", prepare, run, "read", 32, false},
    {"write-1", prepare, run, "write", 1, false},
    {"write-32", prepare, run, "write", 32, false},
    {"random-read-1", prepare, run, "randread", 1, false},
    {"random-read-32", prepare, run, "randread", 32, false},
    {"random-write-1", prepare, run, "randwrite", 1, false},
    {"random-write-32", prepare, run, "randwrite", 32, false},
    {"direct-read-1", prepare, run, "read", 1, true},
    {"direct-read-32", prepare, run, "read", 32, true},
    {"direct-write-1", prepare, run, "write", 1, true},
    {"direct-write-32", prepare, run, "write", 32, true},
    {"direct-random-read-1", prepare, run, "randread", 1, true},
    {"direct-random-read-32", prepare, run, "randread", 32, true},
    {"direct-random-write-1", prepare, run, "randwrite", 1, true},
    {"direct-random-write-32", prepare, run, "randwrite", 32, true},
    {"fsync-4k", prepare, run, "synced", 1, false},
    {"mapped-read-64", prepare, run, "mapped", 64, false},
    {},
};
