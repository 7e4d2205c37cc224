// ICMP echo sockets (man 7 icmp): who may have one (net.ipv4.ping_group_range), and that this machine answers, on any kernel.
// cob: link=static,dynamic flags=-pthread kernels=1,4 compare=host net=lo timeout=60
#include "hands.h"
#include "internet.h"
#include <linux/errqueue.h>
#include <sys/socket.h>

static int fd;
static unsigned char buffer[2000];

static void range(const char *text) {
    char now[100] = "";
    int file = open("/proc/sys/net/ipv4/ping_group_range", O_RDWR);
    MUST(file >= 0);
    int error = write(file, text, strlen(text)) < 0 ? errno : 0;
    MUST(pread(file, now, sizeof now - 1, 0) > 0);
    close(file);
    printf("range '%s': %s, is %s", text, error ? error_name(error) : "done", now);
}
static void make(void) {
    fd = socket(six ? AF_INET6 : AF_INET, SOCK_DGRAM, six ? IPPROTO_ICMPV6 : IPPROTO_ICMP);
    printf("  an echo socket: %s\n", fd < 0 ? error_name(errno) : "done");
}
static void make_and_close(void) { make(), close(fd); }
static void others(void) {
    SHOW(socket(AF_INET6, SOCK_DGRAM, IPPROTO_ICMP)); SHOW(socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMPV6)); SHOW(socket(AF_INET, SOCK_STREAM, IPPROTO_ICMP));
}
static void request(const char *address, int kind, int code, size_t length_) {
    memset(buffer, 0, sizeof buffer);
    buffer[0] = kind, buffer[1] = code, buffer[4] = 0xaa, buffer[7] = 5;
    for (size_t i = 8; i < length_; i++)
        buffer[i] = (unsigned char)i;
    set_address(address, 0);
    errno = 0;
    ssize_t sent = sendto(fd, buffer, length_, 0, (void *)&where, length());
    printf("  to %s, type %d, %zu bytes: %zd %s\n", address, kind, length_, sent, sent < 0 ? error_name(errno) : "");
}
static unsigned sum(const unsigned char *at, ssize_t count) {
    unsigned total = 0;
    for (ssize_t i = 0; i < count; i++)
        total += at[i] << (i & 1 ? 0 : 8);
    while (total >> 16)
        total = (total & 0xffff) + (total >> 16);
    return total;
}
static void receive(int flags) {
    char control[300], text[100] = "";
    struct sockaddr_storage name;
    struct iovec part = {buffer, sizeof buffer};
    struct msghdr header = {.msg_name = &name, .msg_namelen = sizeof name, .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t count = recvmsg(fd, &header, flags | MSG_DONTWAIT);
    if (count < 0) {
        printf("  received: %s\n", error_name(errno));
        return;
    }
    void *at = six ? (void *)&((struct sockaddr_in6 *)&name)->sin6_addr : (void *)&((struct sockaddr_in *)&name)->sin_addr;
    inet_ntop(name.ss_family, at, text, sizeof text);
    printf("  received %zd from %s port %d flags %x: type %d code %d, %s, sequence %d, last %d\n", count, text, ntohs(((struct sockaddr_in *)&name)->sin_port),
           header.msg_flags, buffer[0], buffer[1], (buffer[4] << 8 | buffer[5]) == port_of(fd) ? "our identifier" : "another identifier",
           buffer[6] << 8 | buffer[7], buffer[count - 1]);
    if (!six)
        printf("  sum %x\n", sum(buffer, count));
    for (struct cmsghdr *next = CMSG_FIRSTHDR(&header); next; next = CMSG_NXTHDR(&header, next)) {
        printf("    level %d type %d:", next->cmsg_level, next->cmsg_type);
        for (size_t i = 0; next->cmsg_type != SO_TIMESTAMP && i < next->cmsg_len - sizeof *next; i++)
            printf(" %02x", CMSG_DATA(next)[i]);
        printf("\n");
    }
}
static void use(void) {
    int one = 1, number = -1;
    socklen_t size = sizeof number;
    SHOW(getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &number, &size)); SHOW(number);
    SHOW(getsockopt(fd, SOL_SOCKET, SO_TYPE, &number, &size)); SHOW(number);
    const char *here = six ? "::1" : "127.0.0.1";
    request(here, six ? 128 : 8, 0, 64), receive(MSG_PEEK), receive(0), receive(0);
    MUST(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMP, &one, sizeof one) == 0);
    MUST(setsockopt(fd, six ? IPPROTO_IPV6 : IPPROTO_IP, six ? IPV6_RECVHOPLIMIT : IP_RECVTTL, &one, sizeof one) == 0);
    MUST(setsockopt(fd, six ? IPPROTO_IPV6 : IPPROTO_IP, six ? IPV6_RECVPKTINFO : IP_PKTINFO, &one, sizeof one) == 0);
    MUST(setsockopt(fd, six ? IPPROTO_IPV6 : IPPROTO_IP, six ? IPV6_UNICAST_HOPS : IP_TTL, &(int){9}, sizeof one) == 0);
    request(here, six ? 128 : 8, 0, 9), show_poll("answered", fd), receive(0);
    if (!six)
        request("127.9.8.7", 8, 0, 8), receive(0);
    request(here, six ? 129 : 0, 0, 64), request(here, six ? 128 : 8, 1, 64), request(here, six ? 128 : 8, 0, 7), request(six ? "2001:db8::1" : "10.1.2.3", six ? 128 : 8, 0, 64);
    receive(0);
    SHOW(send(fd, buffer, 64, 0));
    set_address(here, 0);
    SHOW(connect(fd, (void *)&where, length()));
    buffer[0] = six ? 128 : 8, buffer[1] = 0;
    SHOW(send(fd, buffer, 64, 0));
    receive(0);
    SHOW(listen(fd, 1)); SHOW(accept(fd, NULL, NULL));
    close(fd);
    make();
    set_address(here, 77);
    SHOW(bind(fd, (void *)&where, length())); SHOW(port_of(fd));
    request(here, six ? 128 : 8, 0, 10), receive(0);
    close(fd);
}

int main(void) {
    start_hands();
    others(), range("1 0");
    on(2, make_and_close);
    range("5 3\n"), range("7\n"), range("x"), range("-1 2"), range("1 0");
    on(0, make_and_close), on(2, make_and_close);
    range("0 2147483647");
    for (six = 0; six < 2; six++)
        for (int who = 0; who < HANDS; who += 2) {
            printf("-- %s on %d\n", six ? "ICMPv6" : "ICMP", who);
            on(who, make), on(who, use);
        }
    return 0;
}
