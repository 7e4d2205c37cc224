// Bad input to ioctl: every request on every kind of descriptor, with bad and good arguments (see errnos-each.h).
// cob: link=static kernels=1,4 compare=host net=lo timeout=600
#include "errnos-each.h"
#include <asm/termbits.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/random.h>
#include <linux/sockios.h>

enum { MASTER = 80, SLAVE, OWN_MASTER, OWN_SLAVE, HUNG_UP, ZEROS, FULL, RANDOM, PATH_OF_DIRECTORY, DATAGRAMS };

static const struct {
    const char *name;
    int fd;
} descriptors[] = {
    {"file", FILE_FD},
    {"writable", WRITABLE},
    {"directory", DIRECTORY},
    {"memfd", MEMFD},
    {"read-end", PIPE_READ},
    {"write-end", PIPE_WRITE},
    {"socket", SOCKET},
    {"listener", LISTENER},
    {"datagrams", DATAGRAMS},
    {"eventfd", EVENT},
    {"epoll", EPOLL},
    {"timerfd", TIMER},
    {"signalfd", SIGNALS},
    {"inotify", INOTIFY},
    {"master", MASTER},
    {"slave", SLAVE},
    {"hung-up", HUNG_UP},
    {"null", DEVICE},
    {"zero", ZEROS},
    {"full", FULL},
    {"urandom", RANDOM},
    {"O_PATH", PATH},
    {"O_PATH-directory", PATH_OF_DIRECTORY},
    {"closed", MISSING},
    {"-1", -1},
    // Last: these are asked by the leader of a session whose terminal it is.
    {"own-master", OWN_MASTER},
    {"own-slave", OWN_SLAVE},
};

// What the argument is: v a number, i an address that is read, o one that is written, n the same and what is written there is an
// int that is the same everywhere; f a descriptor, s the address of one.
struct request {
    const char *name;
    unsigned number;
    char argument;
};

#define Q(name, argument) {#name, (unsigned)name, argument}

static const struct request requests[] = {
    Q(FIOCLEX, 'v'), Q(FIONCLEX, 'v'), Q(FIONBIO, 'i'), Q(FIOASYNC, 'i'), Q(FIONREAD, 'n'), Q(FIOQSIZE, 'o'), Q(FIGETBSZ, 'o'),
    Q(FIBMAP, 'i'), Q(FS_IOC_FIEMAP, 'i'), Q(FS_IOC_GETFLAGS, 'o'), Q(FS_IOC_SETFLAGS, 'i'), Q(FS_IOC_GETVERSION, 'o'),
    Q(FS_IOC_FSGETXATTR, 'o'), Q(FICLONE, 'f'), Q(FICLONERANGE, 's'), Q(FIDEDUPERANGE, 'i'), Q(BLKGETSIZE, 'o'), Q(BLKGETSIZE64, 'o'),
    Q(BLKROSET, 'i'), Q(BLKFLSBUF, 'v'),
    // Modes.
    Q(TCGETS, 'o'), Q(TCGETS2, 'o'), Q(TCGETA, 'o'), Q(TCSETS, 'i'), Q(TCSETSW, 'i'), Q(TCSETSF, 'i'), Q(TCSETS2, 'i'), Q(TCSETA, 'i'),
    Q(TCSETAW, 'i'), Q(TCSETAF, 'i'), Q(TIOCGETD, 'n'), Q(TIOCSETD, 'i'),
    Q(TIOCGSOFTCAR, 'o'), Q(TIOCSSOFTCAR, 'i'),
    // What else a terminal does.
    Q(TIOCGWINSZ, 'n'), Q(TIOCSWINSZ, 'i'), Q(TCFLSH, 'v'), Q(TCSBRK, 'v'), Q(TCSBRKP, 'v'), Q(TIOCSBRK, 'v'), Q(TIOCCBRK, 'v'),
    Q(TCXONC, 'v'), Q(TIOCOUTQ, 'n'), Q(TIOCSTI, 'i'), Q(TIOCEXCL, 'v'), Q(TIOCNXCL, 'v'), Q(TIOCGEXCL, 'n'), Q(TIOCVHANGUP, 'v'),
    Q(TIOCMGET, 'o'), Q(TIOCMSET, 'i'), Q(TIOCMBIS, 'i'), Q(TIOCGSERIAL, 'o'), Q(TIOCGICOUNT, 'o'), Q(TIOCGDEV, 'o'),
    Q(TIOCMIWAIT, 'v'), Q(TIOCLINUX, 'i'),
    // Jobs.
    Q(TIOCGPGRP, 'o'), Q(TIOCSPGRP, 'i'), Q(TIOCGSID, 'o'), Q(TIOCSCTTY, 'v'), Q(TIOCNOTTY, 'v'),
    // Pseudoterminals.
    Q(TIOCGPTN, 'o'), Q(TIOCSPTLCK, 'i'), Q(TIOCGPTLCK, 'n'), Q(TIOCPKT, 'i'), Q(TIOCGPKT, 'n'), Q(TIOCSIG, 'v'), Q(TIOCGPTPEER, 'v'),
    // Sockets.
    Q(SIOCATMARK, 'n'), Q(SIOCGPGRP, 'o'), Q(FIOGETOWN, 'o'), Q(SIOCGSTAMP_OLD, 'o'), Q(SIOCGIFCONF, 'i'), Q(SIOCGIFNAME, 'i'),
    Q(SIOCGIFINDEX, 'i'), Q(SIOCGIFFLAGS, 'i'), Q(SIOCGIFADDR, 'i'), Q(SIOCGIFHWADDR, 'i'), Q(SIOCGIFMTU, 'i'),
    Q(SIOCDELRT, 'i'),
    // Random numbers.
    Q(RNDGETENTCNT, 'n'), Q(RNDADDTOENTCNT, 'i'), Q(RNDADDENTROPY, 'i'), Q(RNDGETPOOL, 'o'), Q(RNDZAPENTCNT, 'v'), Q(RNDCLEARPOOL, 'v'),
    Q(RNDRESEEDCRNG, 'v'),
    // Nobody's.
    {"0", 0, 'i'}, {"0x12345678", 0x12345678, 'v'}, {"-1", -1, 'i'}, {"_IOR", _IOR('q', 9, long), 'o'},
    {"_IOW", _IOW('q', 9, long), 'i'}, {"_IOWR of 16383 bytes", _IOC(3, 'q', 9, 16383), 'i'},
};

static const struct argument_of {
    const char *name;
    long value;
    // Of these kinds of requests.
    const char *of;
} arguments[] = {
    {"null", 0, "ison"}, {"kernel", 0xffff888000000000, "ison"}, {"read-only", READ_ONLY, "on"},
    {"border", BORDER + PAGE - 2, "ison"}, {"good", GOOD, "ison"}, {"0", 0, "v"}, {"1", 1, "v"}, {"2", 2, "v"}, {"4", 4, "v"},
    {"-1", -1, "vf"}, {"beyond int", 1L << 32, "v"}, {"file", FILE_FD, "f"},
    {"read end", PIPE_READ, "f"}, {"directory", DIRECTORY, "f"}, {"O_PATH", PATH, "f"}, {"closed", MISSING, "f"},
};

// What stands at a good address.
static const int contents[] = {1, -1, 0x80000000};
// What FICLONERANGE clones.
static const int sources[] = {FILE_FD, DIRECTORY, PIPE_READ, READABLE, MISSING};

#define WITH_BLOCKS " file writable directory memfd "
#define ANY_SOCKET " socket listener datagrams "

static const struct exception not_shown[] = {
    // What a file system knows of its blocks and flags is its own.
    {"FIBMAP[good", " file writable "},
    {"FS_IOC_FIEMAP", WITH_BLOCKS},
    {"FS_IOC_GETFLAGS", WITH_BLOCKS},
    {"FS_IOC_SETFLAGS[good", WITH_BLOCKS},
    {"FS_IOC_GETVERSION", WITH_BLOCKS},
    {"FS_IOC_FSGETXATTR", WITH_BLOCKS},
    // Files without a name are all on one device in Cob.
    {"FICLONE[read end]", " socket listener datagrams eventfd epoll timerfd signalfd inotify "},
    {"FICLONERANGE[good: 51]", " socket listener datagrams eventfd epoll timerfd signalfd inotify "},
    // A hang-up asked of the master: see docs/limits.md.
    {"TIOCVHANGUP", " master own-master "},
    // Which session process group 1 is of depends on how the test is started.
    {"TIOCSPGRP[good: 1]", " own-master own-slave "},
    {NULL, NULL},
};

static void open_terminal(int master, int slave) {
    int fd = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
    MUST(unlockpt(fd) == 0);
    put(open(ptsname(fd), O_RDWR | O_NOCTTY | O_NONBLOCK), slave);
    put(fd, master);
}

// The terminal of a session ends with its leader.
static void before_each(void) { open_terminal(OWN_MASTER, OWN_SLAVE); }

static void before_request(void) {
    int ends[2];
    restore(0);
    open_terminal(MASTER, SLAVE);
    open_terminal(SPARE, HUNG_UP);
    close(SPARE);
    MUST(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, ends) == 0);
    put(ends[0], DATAGRAMS);
    close(ends[1]);
}

static long try(int thing, const struct request *request, long argument) {
    int fd = descriptors[thing].fd;
    if (fd == OWN_MASTER)
        MUST(setsid() > 0 && ioctl(OWN_SLAVE, TIOCSCTTY, 0) == 0);
    // What the terminal sends ends nobody. Once in each child.
    static int ignored;
    for (int number = 1; number < 32 && !ignored; number++)
        if (number != SIGALRM)
            signal(number, SIG_IGN);
    ignored = 1;
    errno = 0;
    long result = syscall(SYS_ioctl, fd, request->number, argument);
    // A descriptor.
    return request->number == TIOCGPTPEER && result > 0 ? 1 : result;
}

static const char *written(const struct request *request, long argument) {
    static char number[20];
    if (request->argument == 'n' && argument == GOOD)
        snprintf(number, sizeof number, "%d", *(int *)GOOD);
    return number;
}

static void ask(const struct request *request, const char *what, long argument) {
    char question[80];
    snprintf(question, sizeof question, "%s[%s]", request->name, what);
    EACH_TELLS(question, written(request, argument), try(thing, request, argument));
}

static void fill(int value) {
    for (int i = 0; i < 16384 / 4; i++)
        ((int *)GOOD)[i] = value;
}

static void ask_with(const struct request *request, const int *values, int count) {
    for (int i = 0; i < count; i++) {
        char what[20];
        fill(values[i]);
        snprintf(what, sizeof what, "good: %d", values[i]);
        ask(request, what, GOOD);
    }
}

int main(int argc, char **argv) {
    exceptions = not_shown;
    prepare_each();
    map(GOOD + 4 * PAGE, 4, PROT_READ | PROT_WRITE);
    put(open("/dev/zero", O_RDWR), ZEROS);
    put(open("/dev/full", O_RDWR), FULL);
    put(open("/dev/urandom", O_RDWR), RANDOM);
    put(open(".", O_PATH), PATH_OF_DIRECTORY);
    const char *names[MOST_THINGS];
    int count = sizeof descriptors / sizeof descriptors[0];
    for (int i = 0; i < count; i++)
        names[i] = descriptors[i].name;
    ask_about(names, count);
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        const struct request *request = &requests[i];
        if (argv[1] && strcmp(argv[1], request->name) != 0)
            continue;
        before_request();
        int of_descriptors = request->argument == 's';
        fill(of_descriptors ? MISSING : 0);
        for (size_t j = 0; j < sizeof arguments / sizeof arguments[0]; j++)
            if (strchr(arguments[j].of, request->argument))
                ask(request, arguments[j].name, arguments[j].value);
        if (request->argument == 'i')
            ask_with(request, contents, sizeof contents / sizeof contents[0]);
        if (request->number == TIOCSPGRP) {
            fill(getpgrp());
            ask(request, "of another session", GOOD);
        }
        if (of_descriptors)
            ask_with(request, sources, sizeof sources / sizeof sources[0]);
    }
    show_due();
    return 0;
}
