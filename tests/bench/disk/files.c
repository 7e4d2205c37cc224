// Many small files, tar, and one file that is written again and again.
#include "disk.h"

#define DIRECTORIES 200
#define FILES 100
// tar takes a part of the tree.
#define PACKED 25
#define TREE DISK "/tree"

static char block[8192];

static char *name_of(char *name, int directory, int file) {
    sprintf(name, TREE "/%03d/%03d", directory, file);
    return name;
}

static size_t size_of(int directory, int file) { return (directory * 37 + file * 101) % 4000 + 100; }

static void write_tree(void) {
    char name[64];
    MUST(!mkdir(TREE, 0755));
    for (int directory = 0; directory < DIRECTORIES; directory++) {
        sprintf(name, TREE "/%03d", directory);
        MUST(!mkdir(name, 0755));
        for (int file = 0; file < FILES; file++) {
            int fd = open(name_of(name, directory, file), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
            size_t size = size_of(directory, file);
            MUST(fd >= 0);
            MUST(write(fd, block, size) == (ssize_t)size);
            close(fd);
        }
    }
}

static void remove_tree(void) {
    char name[64];
    for (int directory = 0; directory < DIRECTORIES; directory++) {
        for (int file = 0; file < FILES; file++)
            MUST(!unlink(name_of(name, directory, file)));
        sprintf(name, TREE "/%03d", directory);
        MUST(!rmdir(name));
    }
    MUST(!rmdir(TREE));
}

static void need_tree(const struct row *row) {
    (void)row;
    if (access(TREE, F_OK))
        write_tree();
}

static void need_none(const struct row *row) {
    (void)row;
    if (!access(TREE, F_OK))
        remove_tree();
}

static void create(const struct row *row, struct result *result) {
    (void)row;
    write_tree();
    sync();
    result->operations = DIRECTORIES * FILES;
}

static void read_all(const struct row *row, struct result *result) {
    (void)row;
    char name[64];
    for (int directory = 0; directory < DIRECTORIES; directory++) {
        for (int file = 0; file < FILES; file++) {
            int fd = open(name_of(name, directory, file), O_RDONLY | O_CLOEXEC);
            MUST(fd >= 0);
            MUST(read(fd, block, sizeof block) == (ssize_t)size_of(directory, file));
            close(fd);
        }
    }
    result->operations = DIRECTORIES * FILES;
}

static void delete_all(const struct row *row, struct result *result) {
    (void)row;
    remove_tree();
    sync();
    result->operations = DIRECTORIES * FILES;
}

static void pack(const struct row *row, struct result *result) {
    (void)row;
    char list[PACKED][8];
    char *arguments[PACKED + 6] = {"/usr/bin/tar", "-cf", DISK "/tree.tar", "-C", TREE};
    for (int directory = 0; directory < PACKED; directory++) {
        sprintf(list[directory], "%03d", directory);
        arguments[5 + directory] = list[directory];
    }
    output_of(arguments);
    sync();
    result->operations = PACKED * FILES;
}

static void need_archive(const struct row *row) {
    struct result result;
    need_tree(row);
    pack(row, &result);
    char *clean[] = {"/usr/bin/rm", "-rf", DISK "/unpacked", NULL};
    output_of(clean);
    MUST(!mkdir(DISK "/unpacked", 0755));
}

static void unpack(const struct row *row, struct result *result) {
    (void)row;
    char *arguments[] = {"/usr/bin/tar", "-xf", DISK "/tree.tar", "-C", DISK "/unpacked", NULL};
    output_of(arguments);
    sync();
    result->operations = PACKED * FILES;
}

#define REWRITTEN DISK "/rewritten"

static void three_pages(const struct row *row) {
    (void)row;
    int fd = open(REWRITTEN, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    MUST(fd >= 0);
    MUST(pwrite(fd, block, 4096, 0) == 4096 && pwrite(fd, block, 4096, 4096) == 4096 && pwrite(fd, block, 4096, 8192) == 4096);
    close(fd);
}

// Ten writes into the three pages, and one fdatasync.
static void rewrite(const struct row *row, struct result *result) {
    (void)row;
    int fd = open(REWRITTEN, O_WRONLY | O_CLOEXEC);
    MUST(fd >= 0);
    for (int at = 0; at < 10; at++)
        MUST(pwrite(fd, block, 1000, at * 1100) == 1000);
    MUST(!fdatasync(fd));
    close(fd);
    result->operations = 10;
}

const struct row file_rows[] = {
    {"tree-create", need_none, create},
    {"tree-read", need_tree, read_all},
    {"tar-create", need_tree, pack},
    {"tar-extract", need_archive, unpack},
    {"tree-delete", need_tree, delete_all},
    {"rewrite", three_pages, rewrite},
    {},
};
