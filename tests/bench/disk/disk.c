// `cob bench disk`: programs that read and write files of an ext4 file system on /dev/vda. The same static binary is /init of the same
// initramfs on Cob and on Linux, with programs of Debian's packages beside it.
//
// Its words are `row:place`, with the place `apart` (programs are pinned to the last CPU, where there are several kernels so that the disk is
// another's) or `free`. Before and after what is measured, when nothing of the disk is in memory or everything is on the disk, it prints
// `MARK n` and waits until the first bytes of /dev/vdb are n: meanwhile the host looks at QEMU's counts of requests to /dev/vda. Prints for each row
// `RUN row:place seconds operations messages`, - for messages where there are no kernels that send any, then `BENCH-END`. What fails is
// `FAILED ...`. With `count` as the first word the plugin of QEMU counts instructions between the marks.
#include "../scale/marks.h"
#include "disk.h"
#include <sys/mman.h>
#include <sys/mount.h>

#define CONTROL "/dev/vdb"
#define SECTOR 512

bool apart;
// Shared with the processes of the rows.
static int *marks;

// Tells the host that the next thing begins, and waits until it has seen that.
static void mark(void) {
    int fd = open(CONTROL, O_RDONLY | O_DIRECT | O_CLOEXEC), seen = -1;
    char *sector = NULL;
    MUST(fd >= 0 && !posix_memalign((void **)&sector, 4096, SECTOR));
    printf("MARK %d\n", *marks);
    fflush(stdout);
    while (seen != *marks) {
        usleep(20000);
        drop_caches();
        MUST(pread(fd, sector, SECTOR, 0) == SECTOR);
        seen = sector[0] ? atoi(sector) : -1;
    }
    ++*marks;
    free(sector);
    close(fd);
}

char *output_of(char *const arguments[]) {
    static char text[1 << 16];
    run_program(arguments, apart, true, 0, text, sizeof text);
    return text;
}

static void measure(const struct row *row, const char *word, bool counts) {
    struct result result = {.operations = 1};
    if (row->prepare)
        row->prepare(row);
    // A new mount has nothing in memory, also of what drop_caches does not drop. But programs that `prepare` has started have files open.
    sync();
    if (!row->end)
        MUST(!umount(DISK) && !mount("/dev/vda", DISK, "ext4", 0, NULL));
    drop_caches();
    mark();
    count_begin(&result);
    if (counts)
        MARK(MARK_BEGIN);
    MARK(MARK_START_ALL);
    double begin = seconds();
    row->run(row, &result);
    double whole = seconds() - begin;
    MARK(MARK_STOP_ALL);
    if (counts)
        MARK(MARK_END);
    count_end(&result);
    sync();
    mark();
    printf("RUN %s %.6f %.0f ", word, result.seconds ? result.seconds : whole, result.operations);
    printf(result.messages < 0 ? "-\n" : "%.0f\n", result.messages);
    fflush(stdout);
    if (row->end)
        row->end();
}

static const struct row *find(const char *name) {
    const struct row *const all[] = {fio_rows, file_rows, database_rows};
    for (size_t at = 0; at < LENGTH(all); at++)
        for (const struct row *row = all[at]; row->name; row++)
            if (!strcmp(row->name, name))
                return row;
    return NULL;
}

static void run(const char *word, bool counts) {
    char name[64], place[8];
    MUST(sscanf(word, "%63[^:]:%7s", name, place) == 2);
    const struct row *row = find(name);
    MUST(row);
    int next = *marks + 2;
    fflush(stdout);
    pid_t pid = fork();
    MUST(pid >= 0);
    if (!pid) {
        // In a process of its own: what it fails to do keeps no other row from running.
        apart = !strcmp(place, "apart");
        pin(apart, true);
        measure(row, word, counts);
        _exit(0);
    }
    int status;
    MUST(waitpid(pid, &status, 0) == pid);
    if (status)
        printf("FAILED %s ended with status %#x\n", word, status);
    *marks = next;
}

int main(int argc, char **argv) {
    mount_all();
    load_disk_modules(CONTROL);
    MUST((marks = mmap(NULL, sizeof *marks, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) != MAP_FAILED);
    MUST((!mkdir(DISK, 0755) || errno == EEXIST) && !mount("/dev/vda", DISK, "ext4", 0, NULL));
    bool counts = argc > 1 && !strcmp(argv[1], "count");
    for (int at = 1 + counts; at < argc; at++)
        run(argv[at], counts);
    // The host checks what is then on the disk.
    MUST(!umount(DISK));
    printf("BENCH-END\n");
    fflush(stdout);
    // Linux panics when its init ends.
    for (;;)
        pause();
}
