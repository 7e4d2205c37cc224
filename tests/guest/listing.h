// Scans of directories that change between two calls, with small buffers: what stays comes once, and positions lead back.
#pragma once
#include "test.h"
#include <dirent.h>
#include <pthread.h>

enum { NAMES = 5000, BUFFER = 512 };

struct entry {
    uint64_t ino;
    int64_t next;
    unsigned short size;
    unsigned char type;
    char name[];
};

// Calls `visit` for each entry but the dots, until it answers 0; gives how many.
static int scan(int fd, int (*visit)(const struct entry *)) {
    char buffer[BUFFER] __attribute__((aligned(8)));
    int count = 0;
    for (long size; (size = syscall(SYS_getdents64, fd, buffer, sizeof buffer)) != 0;) {
        MUST(size > 0);
        for (long at = 0; at < size;) {
            struct entry *entry = (void *)(buffer + at);
            at += entry->size;
            if (!strcmp(entry->name, ".") || !strcmp(entry->name, ".."))
                continue;
            count++;
            if (!visit(entry))
                return count;
        }
    }
    return count;
}

static int times[NAMES], others, directory, replaces;

// A name is n and a number.
static int number(const struct entry *entry) {
    int number;
    char more;
    if (sscanf(entry->name, "n%d%c", &number, &more) == 1 && number < NAMES)
        return number;
    others++;
    return -1;
}

static int count_it(const struct entry *entry) {
    int which = number(entry);
    if (which >= 0)
        times[which]++;
    return 1;
}

static int remove_it(const struct entry *entry) {
    count_it(entry);
    MUST(unlinkat(directory, entry->name, 0) == 0);
    return 1;
}

static void make(const char *name) {
    int fd = openat(directory, name, O_CREAT | O_WRONLY, 0600);
    MUST(fd >= 0);
    close(fd);
}

// For each name that was there a new one is made, and some are renamed over others that come sooner or later. (Linux's tmpfs leaves
// those out that were to come: its case does not ask for them.)
static int add_some(const struct entry *entry) {
    char name[300], from[300];
    int which = number(entry);
    if (which < 0)
        return 1;
    times[which]++;
    snprintf(name, sizeof name, "new%d", which);
    make(name);
    if (replaces && which % 10 == 0) {
        snprintf(from, sizeof from, "n%d", (which + 1234) % NAMES);
        MUST(renameat(directory, name, directory, from) == 0);
    }
    return 1;
}

static void show_times(const char *what, int count) {
    int once = 0, never = 0, often = 0;
    for (int i = 0; i < NAMES; i++)
        *(times[i] == 0 ? &never : times[i] == 1 ? &once : &often) += 1;
    printf("%s: %d once, %d never, %d more often", what, once, never, often);
    if (count >= 0)
        printf(", %d in all", count);
    printf("\n");
    memset(times, 0, sizeof times);
    others = 0;
}

static void rewind_it(void) { MUST(lseek(directory, 0, SEEK_SET) == 0); }

// Every 97th position leads back to the entry that followed it.
static int sought, positions;
static int64_t told[NAMES];
static char following[NAMES][64];

static int tell(const struct entry *entry) {
    if (sought % 97 == 0 && sought > 0 && positions < NAMES)
        snprintf(following[positions++], sizeof *following, "%s", entry->name);
    if (sought % 97 == 96 && positions < NAMES)
        told[positions] = entry->next;
    sought++;
    return 1;
}

static char found[64];
static int find_it(const struct entry *entry) {
    snprintf(found, sizeof found, "%s", entry->name);
    return 0;
}

static void show_positions(void) {
    int right = 0;
    sought = positions = 0;
    rewind_it();
    scan(directory, tell);
    for (int i = positions - 1; i >= 0; i--) {
        MUST(lseek(directory, told[i], SEEK_SET) == told[i]);
        found[0] = 0;
        scan(directory, find_it);
        right += !strcmp(found, following[i]);
    }
    printf("%d of %d positions lead back\n", right, positions);
}

// By the C library: seekdir, rewinddir.
static void show_library(const char *path) {
    DIR *dir = opendir(path);
    MUST(dir);
    for (int i = 0; i < 100; i++)
        MUST(readdir(dir));
    long at = telldir(dir);
    char next[300];
    snprintf(next, sizeof next, "%s", readdir(dir)->d_name);
    for (int i = 0; i < 1000; i++)
        MUST(readdir(dir));
    seekdir(dir, at);
    printf("seekdir: %s\n", strcmp(readdir(dir)->d_name, next) ? "another name" : "the same name");
    make("late");
    rewinddir(dir);
    int late = 0, names = 0;
    for (struct dirent *entry; (entry = readdir(dir)); names++)
        late += !strcmp(entry->d_name, "late");
    printf("rewinddir: %d names, the new one %d times\n", names, late);
    unlinkat(directory, "late", 0);
    closedir(dir);
}

static void in_directory(const char *what, const char *parent, int with_replaced) {
    char path[300], name[64];
    snprintf(path, sizeof path, "%s/listing-%d", parent, (int)getpid());
    printf("-- %s\n", what);
    replaces = with_replaced;
    MUST(mkdir(path, 0700) == 0);
    directory = open(path, O_RDONLY | O_DIRECTORY);
    MUST(directory >= 0);
    SHOW(syscall(SYS_getdents64, directory, name, 20));
    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof name, "n%d", i);
        make(name);
    }
    // ext4 has begun its scan with the call above, and does not see all of what came since.
    rewind_it();
    int count = scan(directory, count_it);
    show_times("listed", count);
    SHOW(scan(directory, count_it));
    show_positions();
    show_library(path);
    rewind_it();
    scan(directory, add_some);
    show_times("listed while others are added", -1);
    rewind_it();
    scan(directory, count_it);
    printf("%d new ones\n", others);
    show_times("listed again", -1);
    rewind_it();
    scan(directory, remove_it);
    show_times("removed while listed", -1);
    SHOW(lseek(directory, -1, SEEK_SET));
    rewind_it();
    SHOW(scan(directory, count_it));
    SHOW(rmdir(path));
    SHOW(syscall(SYS_getdents64, directory, name, sizeof name));
    close(directory);
}
