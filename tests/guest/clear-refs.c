// /proc/PID/clear_refs and smaps' Referenced: what was touched since, by any thread, wherever it runs. Not shaken: the shake forgets pages that were touched, and with them the mark.
// cob: link=static kernels=1,2,4 compare=host timeout=60 shake=no
#define _GNU_SOURCE
#include "test.h"

enum { PAGES = 16 };
static char *anonymous, *file;

// The KiB that smaps of `pid` shows under `name` for the mapping at `at`; -1 without such a mapping.
static long field(pid_t pid, void *at, const char *name) {
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/%d/smaps", pid);
    FILE *smaps = fopen(path, "r");
    MUST(smaps);
    long value = -1;
    int there = 0;
    while (fgets(text, sizeof text, smaps)) {
        unsigned long start, end;
        if (sscanf(text, "%lx-%lx ", &start, &end) == 2)
            there = start <= (unsigned long)at && (unsigned long)at < end;
        else if (there && strncmp(text, name, strlen(name)) == 0)
            sscanf(text + strlen(name), ": %ld", &value);
    }
    fclose(smaps);
    return value;
}

static void show(const char *what, pid_t pid) {
    printf("%s: anonymous %ld, file %ld\n", what, field(pid, anonymous, "Referenced"), field(pid, file, "Referenced"));
}

static void clear(pid_t pid, const char *how) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/clear_refs", pid);
    int fd = open(path, O_WRONLY);
    MUST(fd >= 0);
    errno = 0;
    long written = write(fd, how, strlen(how));
    printf("clear \"%.*s\": %ld %s\n", (int)strcspn(how, "\n"), how, written, written < 0 ? error_name(errno) : "");
    close(fd);
}

// Touches `pages` pages of each mapping on a CPU each.
static void touch(int pages) {
    int cpus = cpu_count();
    // Linux leaves translations in the TLBs when it clears the marks; a change of protection does not.
    for (int i = 0; i < 2; i++) {
        char *at = i ? file : anonymous;
        MUST(mprotect(at, PAGES * PAGE, PROT_READ) == 0 && mprotect(at, PAGES * PAGE, PROT_READ | PROT_WRITE) == 0);
    }
    for (int page = 0; page < pages; page++) {
        move_to(page * (cpus - 1) / (pages > 1 ? pages - 1 : 1));
        anonymous[page * PAGE]++;
        (void)*(volatile char *)(file + page * PAGE);
    }
}

int main(void) {
    int fd = memfd_create("refs", 0);
    MUST(fd >= 0 && ftruncate(fd, PAGES * PAGE) == 0);
    // Not neighbours, or smaps may show them as one mapping.
    char *room = mmap(NULL, 4 * PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    anonymous = room + PAGES * PAGE / 2;
    file = room + 2 * PAGES * PAGE;
    int fixed = MAP_FIXED;
    MUST(mmap(anonymous, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0) == anonymous);
    MUST(mmap(file, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | fixed, fd, 0) == file);
    int go[2], done[2];
    MUST(pipe(go) == 0 && pipe(done) == 0);
    fflush(stdout);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        char pages;
        for (int i = 0; i < PAGES; i++)
            anonymous[i * PAGE] = file[i * PAGE] = 1;
        touch(4);
        MUST(write(done[1], "", 1) == 1);
        while (read(go[0], &pages, 1) == 1 && pages) {
            touch(pages);
            MUST(write(done[1], "", 1) == 1);
        }
        _exit(0);
    }
    char byte;
    MUST(read(done[0], &byte, 1) == 1);
    show("at first", child);
    clear(child, "1\n");
    show("cleared", child);
    for (int pages = 1; pages <= 4; pages++) {
        byte = pages;
        MUST(write(go[1], &byte, 1) == 1 && read(done[0], &byte, 1) == 1);
        show("touched", child);
        clear(child, pages == 2 ? "2" : pages == 3 ? "3" : "1");
        show("cleared", child);
    }
    printf("resident %ld %ld\n", field(child, anonymous, "Rss"), field(child, file, "Rss"));
    clear(child, "4");
    clear(child, "0");
    clear(child, "6");
    clear(child, "x");
    clear(child, " 3 ");
    byte = 0;
    MUST(write(go[1], &byte, 1) == 1);
    int status;
    MUST(waitpid(child, &status, 0) == child);
    show_status("child", status);
    struct stat mode;
    MUST(stat("/proc/self/clear_refs", &mode) == 0);
    printf("mode %o\n", mode.st_mode);
}
