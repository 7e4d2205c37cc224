// Programs of Debian's packages: redis, PostgreSQL with pgbench, hackbench, make with gcc.
#include "streams.h"
#include <ftw.h>

#define USER 1000
#define DATA "/pgdata"

static char text[1 << 16];

// The text of a program as a word for another.
static char *word(char *buffer, size_t size, const char *format, long value) {
    snprintf(buffer, size, format, value);
    return buffer;
}

static char number[4][24];

// Who comes together must first have talked for a while, so they talk longer where they may.
static long long_enough(long count, bool apart) { return apart ? count : 4 * count; }

// GET of redis-benchmark; an operation is a request. Apart the start and the end of the program are not counted: what it counts for a few requests is
// taken off what it counts for so many more.
static void redis(const struct row *row, bool apart, struct result *result) {
    long requests = long_enough(row->pipelined > 1 ? 40000 : 5000, apart), few = apart ? requests / 5 : 0;
    bool tcp = row->transport == TCP;
    char *server[] = {"/usr/bin/redis-server", "--save", "", "--appendonly", "no", "--logfile", "/dev/null", "--port",
                      tcp ? "6379" : "0", "--unixsocket", "/tmp/redis.sock", NULL};
    char *asks[] = {"/usr/bin/redis-benchmark", tcp ? "-h" : "-s", tcp ? "127.0.0.1" : "/tmp/redis.sock", "-t", "get", "--csv", "-c",
                    word(number[0], sizeof number[0], "%ld", row->size), "-P",
                    word(number[1], sizeof number[1], "%ld", row->pipelined), "-n", number[2], NULL};
    char *cli[] = {"/usr/bin/redis-cli", tcp ? "-h" : "-s", tcp ? "127.0.0.1" : "/tmp/redis.sock", "ping", NULL};
    pid_t pid = start(server, apart, false, -1, 0);
    wait_for(cli, 0);
    struct result begun = {};
    if (few) {
        word(number[2], sizeof number[2], "%ld", few);
        count_begin(&begun);
        run_program(asks, apart, true, 0, text, sizeof text);
        count_end(&begun);
    }
    word(number[2], sizeof number[2], "%ld", few + requests);
    count_begin(result);
    run_program(asks, apart, true, 0, text, sizeof text);
    count_end(result);
    if (result->messages >= 0) {
        result->messages -= begun.messages;
        result->doorbells -= begun.doorbells;
        result->moves -= begun.moves;
    }
    // "GET","12345.67",...
    char *line = strstr(text, "\"GET\",\"");
    MUST(line);
    result->operations = requests;
    result->seconds = requests / atof(line + strlen("\"GET\",\""));
    stop(pid, SIGKILL);
}

static int give_to_user(const char *name, const struct stat *status, int type, struct FTW *place) {
    (void)place;
    return chown(name, USER, USER) || (type != FTW_D ? chmod(name, 0600) : chmod(name, 0700)) || !status;
}

// pgbench, SELECTs by one client; an operation is a transaction.
static void pgbench(const struct row *row, bool apart, struct result *result) {
    long transactions = long_enough(1000, apart);
    char *host = row->transport == TCP ? "127.0.0.1" : "/tmp";
    static bool ready;
    if (!ready)
        MUST(!nftw(DATA, give_to_user, 16, FTW_PHYS));
    ready = true;
    char *server[] = {"/usr/lib/postgresql/15/bin/postgres", "-D", DATA, "-k", "/tmp", "-c", "timezone=GMT", "-c", "log_timezone=GMT",
                      "-c", "fsync=off", "-c", "autovacuum=off", "-c", "shared_buffers=16MB", "-c", "jit=off", "-c",
                      row->transport == TCP ? "listen_addresses=127.0.0.1" : "listen_addresses=", NULL};
    char *fill[] = {"/usr/lib/postgresql/15/bin/pgbench", "-h", host, "-U", "bench", "-i", "-I", "dtGp", "postgres", NULL};
    char *asks[] = {"/usr/lib/postgresql/15/bin/pgbench", "-h", host, "-U", "bench", "-S", "-n", "-M", "prepared", "-c",
                    word(number[0], sizeof number[0], "%ld", row->size), "-t",
                    word(number[1], sizeof number[1], "%ld", transactions), "postgres", NULL};
    pid_t pid = start(server, apart, false, -1, USER);
    wait_for(fill, USER);
    count_begin(result);
    run_program(asks, apart, true, USER, text, sizeof text);
    count_end(result);
    char *line = strstr(text, "tps = ");
    MUST(line);
    result->operations = (double)transactions * row->size;
    result->seconds = result->operations / atof(line + strlen("tps = "));
    stop(pid, SIGINT);
}

// Times a program as a whole; an operation is the program.
static void whole(char *const arguments[], struct result *result) {
    count_begin(result);
    double begin = seconds();
    run_program(arguments, false, false, 0, text, sizeof text);
    result->seconds = seconds() - begin;
    count_end(result);
}

// Groups of 20 senders and 20 receivers.
static void hackbench(const struct row *row, bool apart, struct result *result) {
    (void)apart;
    char *arguments[] = {"/usr/bin/hackbench", row->size ? "-T" : "-P", "-g", "1", "-l", "100", NULL};
    whole(arguments, result);
}

static void make(const struct row *row, bool apart, struct result *result) {
    (void)apart;
    char *clean[] = {"/usr/bin/make", "-C", "/src", "clean", NULL};
    char *build[] = {"/usr/bin/make", "-C", "/src", word(number[0], sizeof number[0], "-j%ld", row->size), NULL};
    run_program(clean, false, false, 0, text, sizeof text);
    whole(build, result);
}

const struct row program_rows[] = {
    {"redis-unix-1", UNIX, redis, 1, 1},
    {"redis-unix-20", UNIX, redis, 20, 1},
    {"redis-unix-1-pipelined", UNIX, redis, 1, 16},
    {"redis-unix-20-pipelined", UNIX, redis, 20, 16},
    {"redis-tcp-1", TCP, redis, 1, 1},
    {"redis-tcp-20", TCP, redis, 20, 1},
    {"redis-tcp-1-pipelined", TCP, redis, 1, 16},
    {"redis-tcp-20-pipelined", TCP, redis, 20, 16},
    {"pgbench-unix", UNIX, pgbench, 1, 1},
    {"pgbench-tcp", TCP, pgbench, 1, 1},
    {"hackbench-processes", UNIX, hackbench, 0, 1},
    {"hackbench-threads", UNIX, hackbench, 1, 1},
    {"make-j4", PIPE, make, 4, 1},
    {},
};
