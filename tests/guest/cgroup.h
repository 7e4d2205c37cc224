// What tests of control groups share: a mount of cgroup2, and groups in it that no other test has.
#pragma once
#include "test.h"
#include <dirent.h>
#include <linux/sched.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/mount.h>
#include <sys/vfs.h>

static char top[64];

// The path of a file or group below this test's own group.
static inline const char *in(const char *format, ...) {
    static char paths[8][512];
    static int next;
    char *path = paths[next++ % 8];
    int length = snprintf(path, sizeof paths[0], "%s", top);
    va_list arguments;
    va_start(arguments, format);
    if (*format)
        path[length++] = '/';
    vsnprintf(path + length, sizeof paths[0] - (size_t)length, format, arguments);
    va_end(arguments);
    return path;
}

// Writes `text` into a file: 0, or the error.
static inline int put(const char *path, const char *text) {
    int fd = open(path, O_WRONLY);
    if (fd < 0)
        return errno;
    int error = write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : errno;
    close(fd);
    return error;
}

// What a file says.
static inline const char *get(const char *path) {
    static char texts[8][65536];
    static int next;
    char *text = texts[next++ % 8];
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        return error_name(errno);
    ssize_t length, all = 0;
    while ((length = read(fd, text + all, sizeof texts[0] - 1 - (size_t)all)) > 0)
        all += length;
    text[length < 0 ? 0 : all] = 0;
    close(fd);
    return text;
}

// The number behind `key` in a file of keys; with no key, the number that is all of it.
static inline long value(const char *path, const char *key) {
    const char *text = get(path);
    if (key) {
        char with_space[64];
        snprintf(with_space, sizeof with_space, "%s ", key);
        for (text = get(path); text && strncmp(text, with_space, strlen(with_space)) != 0;)
            text = strchr(text, '\n') ? strchr(text, '\n') + 1 : NULL;
        MUST(text != NULL);
        text += strlen(with_space);
    }
    return atol(text);
}

static inline int put_number(const char *path, long number) {
    char text[32];
    snprintf(text, sizeof text, "%ld", number);
    return put(path, text);
}

#define PUT(path, text) printf("%s < %s: %s\n", strrchr(path, '/') + 1, text, result_of(put(path, text)))

static inline const char *result_of(int error) { return error ? error_name(error) : "done"; }

// Waits until nobody is in a group or below it.
static inline void until_empty(const char *events) {
    while (value(events, "populated"))
        usleep(1000);
}

// Whether a line of a file is `number`.
static inline int lists(const char *path, long number) {
    char line[32];
    snprintf(line, sizeof line, "%ld\n", number);
    const char *text = get(path), *found = text;
    while ((found = strstr(found, line)) && found != text && found[-1] != '\n')
        found++;
    return found != NULL;
}

static inline int lines(const char *path) {
    int count = 0;
    for (const char *text = get(path); *text; text++)
        count += *text == '\n';
    return count;
}

// Mounts cgroup2 and makes this test's group.
static inline void mount_groups(void) {
    // So that no child has what its parent has not written yet.
    setvbuf(stdout, NULL, _IOLBF, 0);
    MUST(mkdir("groups", 0755) == 0 || errno == EEXIST);
    MUST(mount("none", "groups", "cgroup2", 0, NULL) == 0);
    snprintf(top, sizeof top, "groups/test-%d", getpid());
    MUST(mkdir(top, 0755) == 0);
}

static inline void unmount_groups(void) {
    MUST(rmdir(top) == 0);
    MUST(umount("groups") == 0);
    MUST(rmdir("groups") == 0);
}

// The caller goes into a group; "" is this test's own.
static inline void enter(const char *group) { MUST(put(in("%s%scgroup.procs", group, *group ? "/" : ""), "0") == 0); }

static inline void leave(void) { MUST(put("groups/cgroup.procs", "0") == 0); }

// Runs a test that has nothing to be compared with: it must say what is expected.
static inline int check(void (*test)(void), const char *expected) {
    static char said[65536];
    int out[2], status;
    size_t length = 0;
    MUST(pipe(out) == 0);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        MUST(dup2(out[1], 1) == 1 && close(out[0]) == 0 && close(out[1]) == 0);
        test();
        exit(0);
    }
    close(out[1]);
    for (ssize_t got; (got = read(out[0], said + length, sizeof said - 1 - length)) > 0; length += (size_t)got)
        MUST(write(1, said + length, (size_t)got) == got);
    MUST(waitpid(child, &status, 0) == child && status == 0);
    if (strcmp(said, expected) != 0) {
        printf("that is not what was expected:\n%s", expected);
        return 1;
    }
    printf("ok\n");
    return 0;
}
