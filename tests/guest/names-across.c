// Names, attributes and contents that one kernel changes and another has looked at before: what was changed first is seen.
// cob: link=static,dynamic compare=host
#define _GNU_SOURCE
#include "test.h"
#include <poll.h>
#include <sys/inotify.h>

// A process on another CPU that does what it is told, one letter at a time, and answers with a line.
static int tell, hear, watcher;
static int kept = -1, kept_rw = -1;

static void attributes(char *line, int result, const struct stat *st) {
    if (result != 0)
        sprintf(line, "%s", error_name(errno));
    else
        sprintf(line, "mode %o size %ld links %ld modified %ld", st->st_mode, S_ISDIR(st->st_mode) ? 0 : (long)st->st_size,
                (long)st->st_nlink, st->st_mtime < 1000000 ? (long)st->st_mtime : -1);
}

static void contents(char *line, int fd) {
    char data[64];
    ssize_t got = fd < 0 ? -1 : pread(fd, data, sizeof data - 1, 0);
    if (got < 0)
        sprintf(line, "%s", error_name(errno));
    else
        sprintf(line, "%zd bytes: %.*s", got, (int)got, data);
}

static void act(char what, char *line) {
    struct stat st;
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    int fd;
    strcpy(line, "done");
    switch (what) {
    case 's': return attributes(line, stat("d/f", &st), &st);
    case 'g': return attributes(line, stat("d/g", &st), &st);
    case 'e': return attributes(line, stat("e/f", &st), &st);
    case 'D': return attributes(line, stat("d", &st), &st);
    case 'l': return attributes(line, stat("link", &st), &st);
    case 'L': {
        char target[64];
        ssize_t got = readlink("link", target, sizeof target);
        sprintf(line, "%.*s", (int)(got < 0 ? 0 : got), target);
        return;
    }
    case 'x': sprintf(line, "%s", access("d/f", X_OK) == 0 ? "may run" : error_name(errno)); return;
    case 'r':
        fd = open("d/f", O_RDONLY);
        contents(line, fd);
        if (fd >= 0)
            close(fd);
        return;
    case 'o': kept = open("d/f", O_RDONLY); sprintf(line, "%s", kept < 0 ? error_name(errno) : "open"); return;
    case 'c': sprintf(line, "%d", close(kept)); return;
    case 'p': return contents(line, kept);
    case 'f': return attributes(line, fstat(kept, &st), &st);
    case 'n': {
        // On from where it is.
        char data[4];
        ssize_t got = read(kept, data, 3);
        sprintf(line, "%.*s at %ld", (int)(got < 0 ? 0 : got), data, (long)lseek(kept, 0, SEEK_CUR));
        return;
    }
    case 'O': kept_rw = open("d/f", O_RDWR); sprintf(line, "%s", kept_rw < 0 ? error_name(errno) : "open"); return;
    case 'C': sprintf(line, "%d", close(kept_rw)); return;
    case 'P': return contents(line, kept_rw);
    case 'w': sprintf(line, "wrote %zd", pwrite(kept_rw, "WORKER", 6, 0)); return;
    case 'k': sprintf(line, "%d", fcntl(kept_rw, F_SETLK, &lock)); return;
    case 'u': sprintf(line, "%d", chdir("d/sub")); return;
    case 'U': return attributes(line, stat("../f", &st), &st);
    case 'h': sprintf(line, "%d", chdir("../..")); return;
    }
    strcpy(line, "?");
}

static const char *ask(char what) {
    static char line[256];
    MUST(write(tell, &what, 1) == 1);
    ssize_t got = read(hear, line, sizeof line - 1);
    MUST(got > 0);
    line[got] = 0;
    return line;
}

// Twice: the second answer may come from what was kept of the first.
static void look(const char *when, const char *acts) {
    for (; *acts; acts++) {
        char first[256];
        strcpy(first, ask(*acts));
        const char *second = strchr("oOcCwkuhn", *acts) ? first : ask(*acts);
        printf("%s: %c: %s%s%s\n", when, *acts, first, strcmp(first, second) ? ", then " : "", strcmp(first, second) ? second : "");
    }
}

static void start(int cpu) {
    int to[2], from[2];
    MUST(pipe(to) == 0 && pipe(from) == 0);
    fflush(stdout);
    watcher = fork();
    MUST(watcher >= 0);
    if (watcher == 0) {
        close(to[1]);
        move_to(cpu);
        char what, line[256];
        while (read(to[0], &what, 1) == 1) {
            act(what, line);
            MUST(write(from[1], line, strlen(line)) > 0);
        }
        _exit(0);
    }
    close(to[0]);
    close(from[1]);
    tell = to[1];
    hear = from[0];
}

static void stop(void) {
    close(tell);
    close(hear);
    MUST(waitpid(watcher, NULL, 0) == watcher);
}

static void put(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CREAT, 0644);
    MUST(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    struct timespec times[2] = {{.tv_sec = 2000}, {.tv_sec = 1000}};
    MUST(futimens(fd, times) == 0 && close(fd) == 0);
}

static void locks(void) {
    // The process has a lock; that it closes another descriptor of the file, opened before, ends it.
    look("before locks", "OCOCOo");
    look("locks", "k");
    int fd = open("d/f", O_RDWR);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    MUST(fcntl(fd, F_GETLK, &lock) == 0);
    printf("locked: %d\n", lock.l_type != F_UNLCK);
    look("unlocks", "c");
    lock.l_type = F_WRLCK;
    MUST(fcntl(fd, F_GETLK, &lock) == 0);
    printf("locked: %d\n", lock.l_type != F_UNLCK);
    close(fd);
    look("after locks", "C");
}

static void told(int inotify, const char *when) {
    char buffer[4096] __attribute__((aligned(8)));
    struct pollfd waits = {.fd = inotify, .events = POLLIN};
    unsigned opened = 0, read_from = 0, closed = 0;
    while (poll(&waits, 1, 0) == 1) {
        ssize_t got = read(inotify, buffer, sizeof buffer);
        MUST(got > 0);
        for (char *at = buffer; at < buffer + got; at += sizeof(struct inotify_event) + ((struct inotify_event *)at)->len) {
            unsigned mask = ((struct inotify_event *)at)->mask;
            opened += (mask & IN_OPEN) != 0;
            read_from += (mask & IN_ACCESS) != 0;
            closed += (mask & (IN_CLOSE_NOWRITE | IN_CLOSE_WRITE)) != 0;
        }
    }
    printf("%s: told of %u opens, %s, %u closes\n", when, opened, read_from ? "reads" : "no reads", closed);
}

static void watched(const char *path) {
    look("unwatched", "rro");
    int inotify = inotify_init1(IN_NONBLOCK);
    MUST(inotify >= 0 && inotify_add_watch(inotify, path, IN_OPEN | IN_ACCESS | IN_CLOSE) >= 0);
    told(inotify, "nothing yet");
    look("watched", "p");
    told(inotify, "read");
    look("watched", "c");
    told(inotify, "closed");
    look("watched", "r");
    told(inotify, "opened");
    close(inotify);
}

static void changes(int here, int there) {
    start(there);
    move_to(here);
    look("nothing there", "seDl");
    MUST(mkdir("d", 0755) == 0);
    look("a directory", "sDr");
    put("d/f", "first");
    look("a file", "srxoOCOCOpfnP");
    MUST(chmod("d/f", 0755) == 0);
    look("may be run", "sxf");
    put("d/f", "again, and longer");
    look("written", "srpfnP");
    MUST(truncate("d/f", 2) == 0);
    look("cut off", "srpfP");
    put("d/f", "third");
    look("own write", "wrpPs");
    put("d/f", "fourth");
    MUST(link("d/f", "d/g") == 0);
    look("two names", "sgf");
    MUST(unlink("d/f") == 0);
    look("one name", "sgrfpP");
    MUST(rename("d/g", "d/f") == 0);
    look("moved", "sgrfpCc");
    MUST(symlink("d/f", "link") == 0);
    look("a link", "lL");
    put("other", "the other file");
    MUST(unlink("link") == 0 && symlink("other", "link") == 0);
    look("another link", "lL");
    MUST(mkdir("d/sub", 0755) == 0 && mkdir("e", 0755) == 0);
    put("e/f", "in e");
    look("in a directory", "ueUhu");
    // Relative to the watcher's directory, the way up is another one.
    MUST(rename("d/sub", "e/sub") == 0);
    look("moved with it", "U");
    look("back", "hsre");
    MUST(rename("e", "z") == 0 && rename("d", "e") == 0);
    look("directories moved", "sre");
    MUST(rename("e", "d") == 0);
    look("and back", "sreo");
    locks();
    watched("d/f");
    watched("d");
    look("kept", "ro");
    MUST(unlink("d/f") == 0);
    look("removed", "srpf");
    MUST(rmdir("d") == 0);
    look("without directory", "srDpfc");
    MUST(unlink("link") == 0 && unlink("other") == 0 && unlink("z/f") == 0 && rmdir("z/sub") == 0 && rmdir("z") == 0);
    stop();
}

// Beside all changes: what was done before a number was published is seen by whoever has read the number.
static struct {
    volatile int done[4];
    volatile int over;
} *shared;

static void before(const char *what, int seen, int expected) {
    if (seen < expected) {
        printf("%s: %d was done, but %d is seen\n", what, expected, seen);
        fflush(stdout);
        _exit(1);
    }
}

static void reader(int cpu) {
    move_to(cpu);
    char text[16], name[16];
    struct stat st;
    while (!shared->over) {
        int done = shared->done[0];
        int fd = open("counter", O_RDONLY);
        MUST(fd >= 0 && read(fd, text, 8) == 8 && fstat(fd, &st) == 0);
        close(fd);
        text[8] = 0;
        before("contents", atoi(text), done);
        done = shared->done[1];
        MUST(stat("grows", &st) == 0);
        before("size", (int)st.st_size, done);
        done = shared->done[2];
        sprintf(name, "made%d", done);
        before("name", done == 0 || stat(name, &st) == 0 ? done : -1, done);
        done = shared->done[3];
        sprintf(name, "gone%d", done);
        before("removal", done == 0 || stat(name, &st) != 0 ? done : -1, done);
    }
    _exit(0);
}

static void race(int writer) {
    int cpus = cpu_count() < 4 ? cpu_count() : 4;
    char text[16];
    move_to(writer);
    memset(shared, 0, sizeof *shared);
    int fd = open("counter", O_RDWR | O_CREAT, 0644);
    MUST(fd >= 0 && pwrite(fd, "00000000", 8, 0) == 8);
    int grows = open("grows", O_RDWR | O_CREAT, 0644);
    MUST(grows >= 0);
    pid_t readers[4];
    fflush(stdout);
    for (int i = 0; i < cpus; i++)
        if ((readers[i] = fork()) == 0)
            reader(i);
    for (int i = 1; i <= 60; i++) {
        sprintf(text, "%08d", i);
        MUST(pwrite(fd, text, 8, 0) == 8);
        shared->done[0] = i;
        MUST(ftruncate(grows, i) == 0);
        shared->done[1] = i;
        sprintf(text, "made%d", i);
        int made = open(text, O_RDWR | O_CREAT | O_EXCL, 0644);
        MUST(made >= 0 && close(made) == 0);
        shared->done[2] = i;
        sprintf(text, "gone%d", i);
        char old[16];
        sprintf(old, "made%d", i - 1);
        if (i > 1) {
            MUST(link(old, text) == 0 && unlink(text) == 0);
            shared->done[3] = i;
        }
    }
    shared->over = 1;
    int failed = 0;
    for (int i = 0; i < cpus; i++) {
        int status;
        MUST(waitpid(readers[i], &status, 0) == readers[i]);
        failed += status != 0;
    }
    printf("readers that saw the past: %d\n", failed);
    for (int i = 1; i <= 60; i++) {
        sprintf(text, "made%d", i);
        MUST(unlink(text) == 0);
    }
    MUST(close(fd) == 0 && unlink("counter") == 0 && close(grows) == 0 && unlink("grows") == 0);
}

int main(void) {
    int last = cpu_count() - 1;
    umask(022);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(shared != MAP_FAILED);
    changes(0, last);
    changes(last, 0);
    changes(last, last / 2);
    race(0);
    race(last);
    return 0;
}
