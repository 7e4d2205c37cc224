// sqlite, PostgreSQL and git.
#include "disk.h"

#define ROWS 300
#define TRANSACTIONS 300
#define CLUSTER DISK "/pgdata"
#define BIN "/usr/lib/postgresql/15/bin/"

static char *const sqlite = "/usr/bin/sqlite3";

static char *database(const struct row *row) { return !strcmp(row->what, "wal") ? DISK "/wal.db" : DISK "/delete.db"; }

static void make_table(const struct row *row) {
    char text[128];
    snprintf(text, sizeof text, "PRAGMA journal_mode=%s; DROP TABLE IF EXISTS t; CREATE TABLE t(n INTEGER PRIMARY KEY, s TEXT);", row->what);
    output_of((char *[]){sqlite, database(row), text, NULL});
}

// A transaction for each line.
static void insert(const struct row *row, struct result *result) {
    static char text[ROWS * 80];
    size_t length = 0;
    for (int at = 0; at < ROWS; at++)
        length += sprintf(text + length, "INSERT INTO t VALUES(%d, hex(zeroblob(%d)));", at, at % 60);
    output_of((char *[]){sqlite, database(row), text, NULL});
    result->operations = ROWS;
}

static pid_t server;
static uid_t owner;

static void start_server(const struct row *row) {
    (void)row;
    struct stat status;
    MUST(!stat(CLUSTER, &status));
    owner = status.st_uid;
    char *arguments[] = {BIN "postgres", "-D", CLUSTER, "-k", "/tmp", "-c", "timezone=GMT", "-c", "log_timezone=GMT", "-c", "autovacuum=off",
                         "-c", "shared_buffers=16MB", "-c", "jit=off", "-c", "checkpoint_timeout=1h", "-c", "listen_addresses=", NULL};
    server = start(arguments, apart, true, -1, owner);
    wait_for((char *[]){BIN "pgbench", "-h", "/tmp", "-U", "bench", "-i", "-I", "dtGvp", "postgres", NULL}, owner);
    // What comes later must not be a checkpoint of this.
    wait_for((char *[]){BIN "psql", "-h", "/tmp", "-U", "bench", "-c", "CHECKPOINT", "postgres", NULL}, owner);
}

// Transactions like TPC-B, of one client.
static void pgbench(const struct row *row, struct result *result) {
    (void)row;
    static char text[1 << 14];
    char number[16];
    snprintf(number, sizeof number, "%d", TRANSACTIONS);
    char *arguments[] = {BIN "pgbench", "-h", "/tmp", "-U", "bench", "-n", "-M", "prepared", "-c", "1", "-t", number, "postgres", NULL};
    run_program(arguments, apart, true, owner, text, sizeof text);
    char *line = strstr(text, "tps = ");
    MUST(line);
    result->operations = TRANSACTIONS;
    result->seconds = TRANSACTIONS / atof(line + strlen("tps = "));
}

static void stop_server(void) { stop(server, SIGINT); }

static void collect(const struct row *row, struct result *result) {
    (void)row, (void)result;
    setenv("HOME", "/tmp", 1);
    output_of((char *[]){"/usr/bin/git", "-c", "safe.directory=*", "-c", "pack.threads=1", "-C", DISK "/repo", "gc", "--quiet", NULL});
}

const struct row database_rows[] = {
    {"sqlite-delete", make_table, insert, "delete"},
    {"sqlite-wal", make_table, insert, "wal"},
    {"pgbench", start_server, pgbench, .end = stop_server},
    {"git-gc", NULL, collect},
    {},
};
