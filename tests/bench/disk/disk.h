// What the rows of `cob bench disk` share.
#pragma once
#include "../common/program.h"

// Where the disk that is measured is mounted. It has /repo, a git repository, and /pgdata, a cluster of PostgreSQL.
#define DISK "/mnt"
#define LENGTH(array) (sizeof(array) / sizeof *(array))

struct row {
    const char *name;
    // Makes what the row needs on the disk. Nothing of that is counted; it is written and out of the caches when the row begins.
    void (*prepare)(const struct row *row);
    // Does the row and fills in its operations, and its time where that is not all of what passes.
    void (*run)(const struct row *row, struct result *result);
    // For the functions.
    const char *what;
    int jobs;
    bool direct;
    // Ends what `prepare` has started.
    void (*end)(void);
};

extern const struct row fio_rows[], file_rows[], database_rows[];

// Whether a program of the row is pinned to the last CPU, and so on another kernel than the disk.
extern bool apart;
// Runs a program to its end, which must be good, and returns what it printed.
char *output_of(char *const arguments[]);
