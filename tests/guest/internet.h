// Addresses of AF_INET and, where `six` says so, AF_INET6, on this machine alone.
#pragma once
#include "test.h"
#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

static int six;
static struct sockaddr_storage where;

static const char *local(void) { return six ? "::1" : "127.0.0.1"; }
static socklen_t length(void) { return six ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in); }
static void set_address(const char *text, int port) {
    memset(&where, 0, sizeof where);
    where.ss_family = six ? AF_INET6 : AF_INET;
    void *at = six ? (void *)&((struct sockaddr_in6 *)&where)->sin6_addr : (void *)&((struct sockaddr_in *)&where)->sin_addr;
    MUST(inet_pton(where.ss_family, text, at) == 1);
    ((struct sockaddr_in *)&where)->sin_port = htons(port);
}
static int port_of(int fd) {
    struct sockaddr_storage name;
    socklen_t size = sizeof name;
    MUST(getsockname(fd, (void *)&name, &size) == 0);
    return ntohs(((struct sockaddr_in *)&name)->sin_port);
}
static void show_poll(const char *what, int fd) {
    struct pollfd poll_fd = {fd, POLLIN | POLLOUT | POLLPRI | POLLRDHUP | POLLRDNORM | POLLWRNORM | POLLWRBAND, 0};
    MUST(poll(&poll_fd, 1, 0) >= 0);
    printf("  poll %s: %x\n", what, poll_fd.revents);
}
