// The interface lo by ioctl (man 7 netdevice): asked of sockets of three families, with rights to change it and without.
// cob: compare=host net=lo kernels=1,4
#include "test.h"
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

static const struct {
    const char *name;
    unsigned long number;
} requests[] = {
#define R(name) {#name, name}
    R(SIOCADDRT), R(SIOCDELRT), R(SIOCRTMSG), R(SIOCGIFNAME), R(SIOCSIFLINK), R(SIOCGIFFLAGS), R(SIOCSIFFLAGS), R(SIOCGIFADDR),
    R(SIOCSIFADDR), R(SIOCGIFDSTADDR), R(SIOCSIFDSTADDR), R(SIOCGIFBRDADDR), R(SIOCSIFBRDADDR), R(SIOCGIFNETMASK),
    R(SIOCSIFNETMASK), R(SIOCGIFMETRIC), R(SIOCSIFMETRIC), R(SIOCGIFMEM), R(SIOCSIFMEM), R(SIOCGIFMTU), R(SIOCSIFMTU),
    R(SIOCSIFNAME), R(SIOCSIFHWADDR), R(SIOCGIFENCAP), R(SIOCSIFENCAP), R(SIOCGIFHWADDR), R(SIOCGIFSLAVE), R(SIOCSIFSLAVE),
    R(SIOCADDMULTI), R(SIOCDELMULTI), R(SIOCGIFINDEX), R(SIOCSIFPFLAGS), R(SIOCGIFPFLAGS), R(SIOCDIFADDR),
    R(SIOCSIFHWBROADCAST), R(SIOCGIFCOUNT), R(SIOCGIFTXQLEN), R(SIOCSIFTXQLEN), R(SIOCGMIIPHY), R(SIOCGMIIREG),
    R(SIOCSMIIREG), R(SIOCWANDEV), R(SIOCDARP), R(SIOCGARP), R(SIOCSARP), R(SIOCDRARP), R(SIOCGRARP), R(SIOCSRARP),
    R(SIOCGIFMAP), R(SIOCSIFMAP), R(SIOCGIFVLAN), R(SIOCSIFVLAN), R(SIOCBONDENSLAVE), R(SIOCBONDINFOQUERY), R(SIOCBRADDIF),
    R(SIOCBRDELIF), R(SIOCGHWTSTAMP), R(SIOCDEVPRIVATE), {"the last private one", SIOCDEVPRIVATE + 15},
};

static void show(const char *what, const char *request, int result, const struct ifreq *now) {
    const unsigned char *bytes = (const unsigned char *)now;
    printf("%s %s: ", what, request);
    if (result < 0) {
        printf("%s\n", error_name(errno));
        return;
    }
    printf("%d %.16s ", result, now->ifr_name);
    for (size_t at = 16; at < sizeof *now; at++)
        printf("%02x", bytes[at]);
    puts("");
}

// What the union holds is nothing's value, so that nothing changes where it may.
static void try_all(int fd, const char *what, const char *name, int only_get) {
    for (size_t at = 0; at < sizeof requests / sizeof *requests; at++) {
        int sets = requests[at].number == SIOCSIFFLAGS || requests[at].number == SIOCSIFMTU ||
                   requests[at].number == SIOCSIFTXQLEN || requests[at].number == SIOCADDRT ||
                   requests[at].number == SIOCDELRT || requests[at].number == SIOCDARP || requests[at].number == SIOCSARP ||
                   requests[at].number == SIOCSIFADDR || requests[at].number == SIOCSIFDSTADDR || requests[at].number == SIOCDIFADDR ||
                   requests[at].number == SIOCSIFNAME || requests[at].number == SIOCSIFMAP;
        if (sets && only_get)
            continue;
        struct ifreq asked;
        memset(&asked, 0, sizeof asked);
        strncpy(asked.ifr_name, name, IFNAMSIZ);
        int result = ioctl(fd, requests[at].number, &asked);
        show(what, requests[at].name, result, &asked);
        result = ioctl(fd, requests[at].number, (void *)8);
        printf("%s %s without an argument: %s\n", what, requests[at].name, result < 0 ? error_name(errno) : "done");
    }
}

static void lists(int fd) {
    struct ifreq entries[3];
    for (int room = 0; room <= 3; room++) {
        memset(entries, 0, sizeof entries);
        struct ifconf list = {.ifc_len = room * sizeof *entries - (room == 3), .ifc_req = entries};
        SHOW(ioctl(fd, SIOCGIFCONF, &list));
        printf("%d of %d: %s %x\n", list.ifc_len, room, entries[0].ifr_name,
               ntohl(((struct sockaddr_in *)&entries[0].ifr_addr)->sin_addr.s_addr));
    }
    struct ifconf length = {.ifc_len = 5, .ifc_req = NULL};
    SHOW(ioctl(fd, SIOCGIFCONF, &length));
    printf("%d in all\n", length.ifc_len);
    struct ifconf nowhere = {.ifc_len = 400, .ifc_req = (void *)8};
    SHOW(ioctl(fd, SIOCGIFCONF, &nowhere));
    SHOW(ioctl(fd, SIOCGIFCONF, (void *)8));
}

static void driver(int fd) {
    static const unsigned commands[] = {ETHTOOL_GLINK, ETHTOOL_GSET, ETHTOOL_SSET, ETHTOOL_GDRVINFO, ETHTOOL_GTSO, ETHTOOL_GGSO,
                                        ETHTOOL_GGRO, ETHTOOL_GFLAGS, ETHTOOL_GPERMADDR, ETHTOOL_GET_TS_INFO, ETHTOOL_GLINKSETTINGS,
                                        ETHTOOL_GRINGPARAM, ETHTOOL_GCHANNELS, ETHTOOL_NWAY_RST, 0x7777};
    for (size_t at = 0; at < sizeof commands / sizeof *commands; at++) {
        unsigned words[64] = {commands[at], commands[at] == ETHTOOL_GPERMADDR ? 32 : 0};
        struct ifreq asked = {.ifr_name = "lo", .ifr_data = (void *)words};
        int result = ioctl(fd, SIOCETHTOOL, &asked);
        printf("ethtool %#x: %d %s %u %u\n", commands[at], result, result ? error_name(errno) : "", words[1], words[2]);
    }
    unsigned link[2] = {ETHTOOL_GLINK, 0};
    struct ifreq asked = {.ifr_name = "no", .ifr_data = (void *)link};
    SHOW(ioctl(fd, SIOCETHTOOL, &asked));
    asked.ifr_data = (void *)8;
    SHOW(ioctl(fd, SIOCETHTOOL, &asked));
    SHOW(ioctl(fd, SIOCETHTOOL, (void *)8));
}

// What is so already can be set, by whoever may.
static void set_again(int fd) {
    struct ifreq asked = {.ifr_name = "lo"};
    SHOW(ioctl(fd, SIOCGIFFLAGS, &asked));
    SHOW(ioctl(fd, SIOCSIFFLAGS, &asked));
    asked.ifr_flags = IFF_UP;
    SHOW(ioctl(fd, SIOCSIFFLAGS, &asked));
    SHOW(ioctl(fd, SIOCGIFMTU, &asked));
    SHOW(ioctl(fd, SIOCSIFMTU, &asked));
    SHOW(ioctl(fd, SIOCGIFTXQLEN, &asked));
    SHOW(ioctl(fd, SIOCSIFTXQLEN, &asked));
}

static void names(int fd) {
    for (int index = -1; index < 4; index++) {
        struct ifreq asked = {.ifr_name = "junk", .ifr_ifindex = index};
        show("index", "SIOCGIFNAME", ioctl(fd, SIOCGIFNAME, &asked), &asked);
    }
    static const char *const labels[] = {"lo:", "lo:1", "lo:lo", ":", "", "lo ", "l", "abcdefghijklmnop"};
    for (size_t at = 0; at < sizeof labels / sizeof *labels; at++) {
        struct ifreq asked = {0};
        memcpy(asked.ifr_name, labels[at], strnlen(labels[at], IFNAMSIZ));
        show(labels[at], "SIOCGIFINDEX", ioctl(fd, SIOCGIFINDEX, &asked), &asked);
        memcpy(asked.ifr_name, labels[at], strnlen(labels[at], IFNAMSIZ));
        show(labels[at], "SIOCGIFADDR", ioctl(fd, SIOCGIFADDR, &asked), &asked);
    }
    char name[IF_NAMESIZE];
    printf("%u %s\n", if_nametoindex("lo"), if_indextoname(1, name));
    struct if_nameindex *all = if_nameindex();
    for (struct if_nameindex *each = all; each && each->if_index; each++)
        printf("%u=%s\n", each->if_index, each->if_name);
    if_freenameindex(all);
}

int main(void) {
    static const int families[] = {AF_UNIX, AF_INET, AF_INET6};
    static const char *const called[] = {"unix", "inet", "inet6"};
    int fds[3];
    for (int at = 0; at < 3; at++)
        MUST((fds[at] = socket(families[at], SOCK_DGRAM, 0)) >= 0);
    names(fds[1]);
    set_again(fds[0]);
    for (int at = 0; at < 3; at++) {
        printf("root, %s\n", called[at]);
        try_all(fds[at], called[at], "lo", 1);
        try_all(fds[at], called[at], "no", 1);
        lists(fds[at]);
        driver(fds[at]);
    }
    MUST(setresuid(1000, 1000, 1000) == 0);
    for (int at = 0; at < 3; at++) {
        printf("anybody, %s\n", called[at]);
        try_all(fds[at], called[at], "lo", 0);
        try_all(fds[at], called[at], "no", 0);
        driver(fds[at]);
    }
    set_again(fds[0]);
    SHOW(ioctl(0, SIOCGIFINDEX, NULL));
    return 0;
}
