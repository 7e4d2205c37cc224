// What the rows of `cob bench streams` share.
#pragma once
#include "../common/program.h"

enum transport { PIPE, UNIX, TCP };

struct row {
    const char *name;
    enum transport transport;
    // Does the row and fills in its time and operations, and its counts unless `counted` does that.
    void (*run)(const struct row *row, bool apart, struct result *result);
    // For the function: bytes of a message (0: bandwidth), or connections.
    int size;
    // Requests under way on each connection.
    int pipelined;
};

extern const struct row talk_rows[], program_rows[];

// The ends of a pair, each a program of its own, so that they are placed as programs are: `init end WORDS...`.
int talk_end(char **words);
