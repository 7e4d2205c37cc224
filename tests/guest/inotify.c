// inotify: what each operation tells, in which order, to whom; also when the one who does it is on another kernel.
// cob: link=static,dynamic compare=host timeout=120
#define _GNU_SOURCE
#include "test.h"
#include <dirent.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>

static int in;
static uint32_t cookies[16];
static int cookie_count;

static int short_cookie(uint32_t cookie) {
    if (!cookie)
        return 0;
    for (int i = 0; i < cookie_count; i++)
        if (cookies[i] == cookie)
            return i + 1;
    if (cookie_count == 16)
        cookie_count = 0;
    cookies[cookie_count++] = cookie;
    return cookie_count;
}

static void show_mask(uint32_t mask) {
    static const char *names[] = {"ACCESS", "MODIFY", "ATTRIB",      "CLOSE_WRITE", "CLOSE_NOWRITE", "OPEN",    "MOVED_FROM", "MOVED_TO",
                                  "CREATE", "DELETE", "DELETE_SELF", "MOVE_SELF",   "12",            "UNMOUNT", "OVERFLOW",   "IGNORED"};
    for (int bit = 0; bit < 16; bit++)
        if (mask & 1u << bit)
            printf(" %s", names[bit]);
    if (mask & IN_ISDIR)
        printf(" ISDIR");
}

static void events(const char *after) {
    char buf[8192] __attribute__((aligned(8)));
    printf("%s:\n", after);
    ssize_t got;
    while ((got = read(in, buf, sizeof buf)) > 0) {
        for (char *at = buf; at < buf + got;) {
            struct inotify_event *e = (struct inotify_event *)at;
            printf("  %d", e->wd);
            show_mask(e->mask);
            if (e->cookie)
                printf(" cookie %d", short_cookie(e->cookie));
            if (e->len)
                printf(" %s (%u)", e->name, e->len);
            printf("\n");
            at += sizeof *e + e->len;
        }
    }
    if (got != -1 || errno != EAGAIN)
        printf("  then %zd %s\n", got, error_name(errno));
}

static void make_file(const char *name) {
    int fd = open(name, O_CREAT | O_WRONLY | O_TRUNC, 0644);
    MUST(fd >= 0);
    close(fd);
}

static void operations(int here, int there) {
    move_to(here);
    in = inotify_init1(IN_NONBLOCK);
    MUST(in >= 0);
    MUST(mkdir("d", 0755) == 0 && mkdir("other", 0755) == 0);
    SHOW(inotify_add_watch(in, "d", IN_ALL_EVENTS));
    SHOW(inotify_add_watch(in, "other", IN_ALL_EVENTS));
    move_to(there);
    int fd = open("d/file", O_CREAT | O_RDWR, 0644);
    events("create");
    MUST(write(fd, "hello", 5) == 5);
    MUST(write(fd, "again", 5) == 5);
    events("write twice is told once");
    char data[16];
    MUST(pread(fd, data, 3, 0) == 3);
    MUST(pread(fd, data, 3, 100) == 0);
    events("read");
    MUST(fchmod(fd, 0600) == 0 && chmod("d/file", 0644) == 0);
    events("chmod");
    MUST(ftruncate(fd, 2) == 0 && truncate("d/file", 1) == 0);
    events("truncate");
    struct timespec times[2] = {{1, 0}, {2, 0}}, omit[2] = {{1, 0}, {0, UTIME_OMIT}};
    MUST(utimensat(AT_FDCWD, "d/file", times, 0) == 0);
    MUST(utimensat(AT_FDCWD, "d/file", omit, 0) == 0);
    events("times");
    MUST(close(fd) == 0);
    events("close");
    SHOW(inotify_add_watch(in, "d/file", IN_ALL_EVENTS));
    fd = open("d/file", O_RDONLY);
    close(fd);
    events("both watched");
    fd = open("d/file", O_WRONLY | O_TRUNC);
    close(fd);
    events("truncating open");
    MUST(link("d/file", "d/second") == 0);
    events("link");
    MUST(unlink("d/second") == 0);
    events("unlink one of two");
    MUST(rename("d/file", "d/new") == 0);
    events("rename");
    MUST(rename("d/new", "other/moved") == 0);
    events("rename to another directory");
    make_file("other/victim");
    SHOW(inotify_add_watch(in, "other/victim", IN_DELETE_SELF | IN_ATTRIB | IN_MOVE_SELF));
    events("made a victim");
    MUST(rename("other/moved", "other/victim") == 0);
    events("rename over");
    make_file("d/x");
    MUST(syscall(SYS_renameat2, AT_FDCWD, "d/x", AT_FDCWD, "other/victim", 2) == 0);
    events("exchange");
    fd = open("d/x", O_RDONLY);
    MUST(unlink("d/x") == 0);
    events("unlink while open");
    close(fd);
    events("last close");
    MUST(symlink("nowhere", "d/link") == 0 && mkdir("d/sub", 0700) == 0 && mkfifo("d/fifo", 0600) == 0);
    events("other kinds");
    SHOW(inotify_add_watch(in, "d/sub", IN_ALL_EVENTS | IN_ONLYDIR));
    make_file("d/sub/inner");
    DIR *directory = opendir("d/sub");
    while (readdir(directory))
        ;
    closedir(directory);
    events("in a directory below");
    MUST(rename("d/sub", "other/sub") == 0 && rename("other/sub", "d/sub") == 0);
    events("moved below another and back");
    MUST(unlink("d/sub/inner") == 0 && rmdir("d/sub") == 0);
    events("rmdir");
    MUST(unlink("d/link") == 0 && unlink("d/fifo") == 0);
    events("unlink others");
    move_to(here);
    SHOW(inotify_add_watch(in, "d", IN_CREATE | IN_ONESHOT));
    make_file("d/one");
    make_file("d/two");
    events("one shot");
    int d = inotify_add_watch(in, "d", IN_CREATE);
    SHOW(inotify_add_watch(in, "d", IN_DELETE | IN_MASK_ADD) == d);
    MUST(unlink("d/one") == 0);
    make_file("d/one");
    events("mask added");
    SHOW(inotify_add_watch(in, "d", IN_DELETE) == d);
    SHOW(inotify_add_watch(in, "d", IN_DELETE | IN_MASK_CREATE));
    SHOW(inotify_add_watch(in, "d", IN_DELETE | IN_MASK_CREATE | IN_MASK_ADD));
    make_file("d/three");
    events("mask replaced");
    SHOW(inotify_rm_watch(in, d));
    SHOW(inotify_rm_watch(in, d));
    events("removed");
    SHOW(inotify_add_watch(in, "d/one", IN_ALL_EVENTS | IN_ONLYDIR));
    SHOW(inotify_add_watch(in, "d/none", IN_ALL_EVENTS));
    SHOW(inotify_add_watch(in, "d", 0));
    SHOW(inotify_add_watch(0, "d", IN_ALL_EVENTS));
    SHOW(inotify_add_watch(99, "d", IN_ALL_EVENTS));
    SHOW(inotify_add_watch(in, NULL, IN_ALL_EVENTS));
    SHOW(inotify_rm_watch(0, 1));
    SHOW(inotify_init1(1));
    // Excluded once unlinked.
    d = inotify_add_watch(in, "d", IN_MODIFY | IN_EXCL_UNLINK);
    fd = open("d/one", O_WRONLY);
    MUST(write(fd, "x", 1) == 1 && unlink("d/one") == 0 && write(fd, "x", 1) == 1);
    close(fd);
    events("excluded once unlinked");
    // Too small a buffer, readiness, bytes.
    MUST(inotify_add_watch(in, "d", IN_CREATE) == d);
    struct pollfd p = {.fd = in, .events = POLLIN};
    printf("poll %d\n", poll(&p, 1, 0));
    make_file("d/a-name-that-is-longer-than-sixteen");
    printf("poll %d\n", poll(&p, 1, 0));
    int bytes;
    MUST(ioctl(in, FIONREAD, &bytes) == 0);
    printf("bytes %d\n", bytes);
    SHOW(read(in, data, sizeof data));
    events("long name");
    MUST(unlink("d/a-name-that-is-longer-than-sixteen") == 0 && unlink("d/two") == 0 && unlink("d/three") == 0);
    MUST(unlink("other/victim") == 0 && rmdir("d") == 0 && rmdir("other") == 0);
    events("all gone");
    close(in);
}

// A process on another kernel makes files while this one sleeps in read, poll and epoll.
static void waiting(int here, int there) {
    MUST(mkdir("w", 0755) == 0);
    move_to(here);
    in = inotify_init1(0);
    MUST(inotify_add_watch(in, "w", IN_CREATE) == 1);
    fflush(stdout);
    int go[2];
    MUST(pipe(go) == 0);
    pid_t child = fork();
    if (child == 0) {
        move_to(there);
        char byte;
        for (int i = 0; i < 3; i++) {
            MUST(read(go[0], &byte, 1) == 1);
            char name[8];
            snprintf(name, sizeof name, "w/%d", i);
            make_file(name);
        }
        _exit(0);
    }
    char buf[256] __attribute__((aligned(8)));
    MUST(write(go[1], "g", 1) == 1);
    printf("read %zd\n", read(in, buf, sizeof buf));
    MUST(write(go[1], "g", 1) == 1);
    struct pollfd p = {.fd = in, .events = POLLIN};
    printf("poll %d", poll(&p, 1, -1));
    printf(" read %zd\n", read(in, buf, sizeof buf));
    int watch = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    MUST(epoll_ctl(watch, EPOLL_CTL_ADD, in, &event) == 0);
    MUST(write(go[1], "g", 1) == 1);
    printf("epoll %d", epoll_wait(watch, &event, 1, -1));
    printf(" read %zd\n", read(in, buf, sizeof buf));
    int status;
    MUST(waitpid(child, &status, 0) == child);
    show_status("child", status);
    MUST(unlink("w/0") == 0 && unlink("w/1") == 0 && unlink("w/2") == 0 && rmdir("w") == 0);
    close(in);
    close(watch);
}

static void overflow(void) {
    char limit[32] = "";
    int fd = open("/proc/sys/fs/inotify/max_queued_events", O_RDONLY);
    MUST(fd >= 0 && read(fd, limit, sizeof limit - 1) > 0);
    close(fd);
    int most = atoi(limit), seen = 0, over = 0;
    MUST(mkdir("o", 0755) == 0);
    in = inotify_init1(IN_NONBLOCK);
    MUST(inotify_add_watch(in, "o", IN_OPEN | IN_CLOSE) == 1);
    for (int i = 0; i < most / 2 + 10; i++) {
        fd = open("o", O_RDONLY);
        MUST(fd >= 0);
        close(fd);
    }
    char buf[65536] __attribute__((aligned(8)));
    ssize_t got;
    struct inotify_event *e = NULL;
    while ((got = read(in, buf, sizeof buf)) > 0)
        for (char *at = buf; at < buf + got; at += sizeof *e + e->len) {
            e = (struct inotify_event *)at;
            seen++;
            over += e->mask == IN_Q_OVERFLOW && e->wd == -1;
        }
    printf("overflow: %d more than the limit, %d of them the word of it\n", seen - most, over);
    close(in);
    MUST(rmdir("o") == 0);
}

int main(void) {
    int last = cpu_count() - 1;
    operations(0, last);
    operations(last, 0);
    waiting(0, last);
    waiting(last, last / 2);
    // Where the files are: elsewhere these are 16,000 calls to another kernel, a minute on a busy machine.
    move_to(0);
    overflow();
}
