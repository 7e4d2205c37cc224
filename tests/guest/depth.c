// Trees of directories and sockets in sockets as deep as a program likes; sockets that hold each other.
// cob: compare=host
#include "test.h"
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define DIRECTORIES 3000
#define NAMES 40000
#define SOCKETS 20000

static void directories(void) {
    char root[] = "/dev/shm/depth-XXXXXX";
    MUST(mkdtemp(root) && chdir(root) == 0);
    int top = open(".", O_RDONLY | O_DIRECTORY);
    for (int i = 0; i < DIRECTORIES; i++) {
        MUST(mkdir("d", 0755) == 0);
        MUST(chdir("d") == 0);
    }
    char name[32], path[8192];
    int found = 0;
    for (int i = 0; i < NAMES; i++) {
        struct stat status;
        snprintf(name, sizeof name, "nothing-%d", i);
        found += stat(name, &status) == 0;
    }
    printf("found %d\n", found);
    SHOW(syscall(SYS_getcwd, path, sizeof path));
    SHOW(readlink("/proc/self/cwd", path, sizeof path));
    // The names above go first, the working directory last.
    for (int i = 0; i < DIRECTORIES; i++) {
        MUST(chdir("..") == 0);
        MUST(rmdir("d") == 0);
    }
    for (int i = 0; i < 300; i++) {
        MUST(mkdir("e", 0755) == 0);
        MUST(chdir("e") == 0);
    }
    int at = open("..", O_RDONLY | O_DIRECTORY);
    for (int i = 0; i < 300; i++) {
        MUST(unlinkat(at, "e", AT_REMOVEDIR) == 0);
        int above = openat(at, "..", O_RDONLY | O_DIRECTORY);
        close(at);
        at = above;
    }
    SHOW(mkdir("here", 0755));
    MUST(fchdir(top) == 0);
    SHOW(rmdir(root));
}

static int pass(int through, int fd) {
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr header;
    } control = {.header = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
    struct iovec one = {"x", 1};
    struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    return sendmsg(through, &message, 0);
}

static void sockets_in_sockets(void) {
    int inner[2], outer[2], end[2];
    MUST(pipe(end) == 0);
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, inner) == 0);
    MUST(pass(inner[0], end[1]) == 1);
    close(end[1]);
    close(inner[0]);
    for (int i = 0; i < SOCKETS; i++) {
        MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, outer) == 0);
        MUST(pass(outer[0], inner[1]) == 1);
        close(inner[1]);
        close(outer[0]);
        inner[1] = outer[1];
    }
    close(inner[1]);
    char byte;
    // All are gone, down to the pipe's writing end.
    SHOW(read(end[0], &byte, 1));
    close(end[0]);
}

static void circles(void) {
    int pair[2], end[2];
    MUST(pipe(end) == 0);
    for (int i = 0; i < 100; i++) {
        MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        MUST(pass(pair[0], pair[0]) == 1);
        MUST(pass(pair[1], pair[1]) == 1);
        MUST(pass(pair[0], end[1]) == 1);
        close(pair[0]);
        close(pair[1]);
    }
    close(end[1]);
    // The end of some socket is when circles are looked for.
    for (int i = 0; i < 1000; i++) {
        MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        close(pair[0]);
        close(pair[1]);
    }
    char byte;
    SHOW(read(end[0], &byte, 1));
}

// Of an unprivileged user so many descriptors may be in messages as it may have open.
static void too_many(void) {
    if (fork() == 0) {
        MUST(setrlimit(RLIMIT_NOFILE, &(struct rlimit){64, 64}) == 0);
        MUST(setgid(65534) == 0 && setuid(65534) == 0);
        int pair[2], sent = 0;
        MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        while (sent < 1000 && pass(pair[0], 0) == 1)
            sent++;
        printf("sent %s, %s\n", sent >= 60 && sent <= 70 ? "some 64" : "others", strerror(errno));
        fflush(stdout);
        _exit(0);
    }
    wait(NULL);
}

int main(void) {
    directories();
    sockets_in_sockets();
    circles();
    fflush(stdout);
    too_many();
    return 0;
}
