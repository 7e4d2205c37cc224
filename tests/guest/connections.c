// Ten thousand connections at once, by AF_UNIX and by TCP, of processes that are on any kernels: a byte there and back on each.
// cob: link=static kernels=1,4 compare=host net=lo timeout=600
#define _GNU_SOURCE
#include "test.h"
#include <netinet/in.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#define PAIRS 4
#define EACH 2500

static int fds[EACH];

static int listener(int by_tcp, int pair) {
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    size_t length = (size_t)snprintf(path.sun_path + 1, sizeof path.sun_path - 1, "connections %d", pair);
    struct sockaddr_in port = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = by_tcp ? sizeof port : (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    struct sockaddr *at = by_tcp ? (struct sockaddr *)&port : (struct sockaddr *)&path;
    int fd = socket(by_tcp ? AF_INET : AF_UNIX, SOCK_STREAM, 0);
    MUST(fd >= 0 && bind(fd, at, size) == 0 && listen(fd, 100) == 0);
    return fd;
}

static void server(int fd) {
    char byte;
    for (int i = 0; i < EACH; i++)
        MUST((fds[i] = accept(fd, NULL, NULL)) >= 0);
    for (int i = 0; i < EACH; i++) {
        MUST(read(fds[i], &byte, 1) == 1);
        byte++;
        MUST(write(fds[i], &byte, 1) == 1);
    }
    // The clients end first.
    for (int i = 0; i < EACH; i++) {
        MUST(read(fds[i], &byte, 1) == 0);
        close(fds[i]);
    }
}

static void client(int fd, int ready, int go) {
    char byte = 0;
    struct sockaddr_storage where;
    socklen_t size = sizeof where;
    MUST(getsockname(fd, (struct sockaddr *)&where, &size) == 0);
    int family = where.ss_family;
    close(fd);
    for (int i = 0; i < EACH; i++) {
        fds[i] = socket(family, SOCK_STREAM, 0);
        MUST(fds[i] >= 0 && connect(fds[i], (struct sockaddr *)&where, size) == 0);
    }
    for (int i = 0; i < EACH; i++) {
        byte = (char)i;
        MUST(write(fds[i], &byte, 1) == 1);
    }
    for (int i = 0; i < EACH; i++)
        MUST(read(fds[i], &byte, 1) == 1 && byte == (char)(i + 1));
    MUST(write(ready, &byte, 1) == 1);
    MUST(read(go, &byte, 1) == 0);
}

int main(void) {
    struct rlimit most;
    MUST(getrlimit(RLIMIT_NOFILE, &most) == 0);
    most.rlim_cur = most.rlim_max;
    MUST(setrlimit(RLIMIT_NOFILE, &most) == 0 && most.rlim_max > EACH + 10);
    int last = cpu_count() - 1;
    int places[PAIRS][2] = {{0, last}, {last, 0}, {last / 2, last}, {0, last / 2}};
    for (int by_tcp = 0; by_tcp < 2; by_tcp++) {
        int ready[2], go[2];
        char byte;
        MUST(pipe(ready) == 0 && pipe(go) == 0);
        fflush(stdout);
        for (int pair = 0; pair < PAIRS; pair++) {
            int fd = listener(by_tcp, pair);
            for (int side = 0; side < 2; side++) {
                pid_t child = fork();
                MUST(child >= 0);
                if (child > 0)
                    continue;
                close(go[1]);
                move_to(places[pair][side]);
                if (side == 0)
                    server(fd);
                else
                    client(fd, ready[1], go[0]);
                _exit(0);
            }
            close(fd);
        }
        for (int pair = 0; pair < PAIRS; pair++)
            MUST(read(ready[0], &byte, 1) == 1);
        printf("%s: %d connections at once\n", by_tcp ? "TCP" : "AF_UNIX", PAIRS * EACH);
        close(go[1]);
        int bad = 0, status;
        for (int child = 0; child < 2 * PAIRS; child++)
            bad += wait(&status) < 0 || status != 0;
        printf("%d ended badly\n", bad);
        close(ready[0]);
        close(ready[1]);
        close(go[0]);
    }
    return 0;
}
