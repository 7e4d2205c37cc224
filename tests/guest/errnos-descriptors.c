// Bad input to the calls about descriptors and readiness (see errnos.h).
// cob: link=static kernels=1,4 compare=host timeout=600
#include "errnos.h"
#include <limits.h>
#include <poll.h>

static struct pollfd polled[2] = {{FILE_FD, POLLIN, 0}, {MISSING, POLLIN, 0}}, path_polled = {PATH, POLLIN, 0};
static struct pollfd nobody[1100] = {[0 ... 1099] = {-1, POLLIN, 0}};
// FILE_FD.
static uint64_t watched[1 << 10] = {1UL << FILE_FD};
static struct flock lock = {.l_type = F_RDLCK}, bad_type = {.l_type = 9}, bad_whence = {.l_whence = 9},
                    before_zero = {.l_start = -1}, overflowing = {.l_start = LONG_MAX, .l_len = 2}, writes = {.l_type = F_WRLCK},
                    backwards = {.l_start = 10, .l_len = -11}, with_pid = {.l_pid = 1}, unlock = {.l_type = F_UNLCK};
static struct f_owner_ex owner = {9, 1}, no_owner = {F_OWNER_PGRP, 0};
static struct epoll_event event = {EPOLLIN, {0}}, exclusive = {EPOLLEXCLUSIVE | EPOLLIN, {0}}, exclusive_wrong = {EPOLLEXCLUSIVE | EPOLLONESHOT, {0}},
                          wakeup = {EPOLLWAKEUP | EPOLLIN, {0}};
static struct timespec past_second = {0, 1000000000}, before = {-1, 0}, negative_part = {0, -1};
static struct timeval past_micros = {0, 1000000}, tv_before = {-1, 0};
static struct itimerspec bad_value = {{0, 0}, {0, 1000000000}}, bad_interval = {{0, 1000000000}, {1, 0}},
                         negative_value = {{0, 0}, {-1, 0}}, interval_only = {{-1, 0}, {0, 0}};
static struct {
    void *mask;
    size_t size;
} pselect_mask = {(void *)GOOD, 8}, pselect_odd = {(void *)GOOD, 7}, pselect_wild = {(void *)8, 8}, pselect_none = {NULL, 7};

static const struct row rows[] = {
    ROW(close, F(FILE_FD)),
    ROW(fstat, F(FILE_FD), W),
    ROW(fstatfs, F(FILE_FD), W),
    ROW(poll, AT(polled), C(2), C(0)),
    ROW(poll, AT(nobody), N(2), C(0)),
    ROW(poll, AT(&path_polled), C(1), C(0)),
    ROW(ppoll, AT(nobody), N(2), T, C(0), C(8)),
    ROW(ppoll, AT(nobody), C(1), T, R, N(8)),
    ROW(ppoll, C(0), C(0), C(&past_second), C(0), C(8)),
    ROW(ppoll, C(0), C(0), C(&before), C(0), C(8)),
    ROW(ppoll, C(0), C(0), C(&negative_part), C(8), C(7)),
    ROW(select, C(64), INTO(watched), C(0), C(0), T),
    ROW(select, N(64), C(0), INTO(watched), INTO(watched), T),
    ROW(select, C(-1), C(8), C(8), C(8), C(8)),
    ROW(select, C(0), C(0), C(0), C(0), C(&past_micros)),
    ROW(select, C(0), C(0), C(0), C(0), C(&tv_before)),
    ROW(pselect6, C(64), INTO(watched), C(0), C(0), T, C(0)),
    ROW(pselect6, N(0), C(0), C(0), C(0), T, AT(&pselect_mask)),
    ROW(pselect6, C(64), INTO(watched), C(0), C(0), T, C(&pselect_odd)),
    ROW(pselect6, C(64), INTO(watched), C(0), C(0), T, C(&pselect_wild)),
    ROW(pselect6, C(64), INTO(watched), C(0), C(0), T, C(&pselect_none)),
    ROW(pselect6, C(0), C(0), C(0), C(0), C(&past_second), C(0)),
    ROW(pselect6, C(0), C(0), C(0), C(0), C(&before), C(&pselect_odd)),
    ROW(dup, F(FILE_FD)),
    ROW(dup2, F(FILE_FD), C(SPARE)),
    ROW(dup2, F(FILE_FD), C(-1)),
    ROW(dup2, F(MISSING), C(MISSING)),
    ROW(dup2, F(FILE_FD), C(FILE_FD)),
    ROW(dup2, F(FILE_FD), C(1 << 20)),
    ROW(dup3, F(FILE_FD), C(SPARE), X(0)),
    ROW(dup3, F(FILE_FD), C(FILE_FD), X(0)),
    ROW(dup3, F(FILE_FD), C(-1), X(0)),
    ROW(fcntl, F(FILE_FD), X(1), C(0)),
    ROW(fcntl, F(FILE_FD), C(F_DUPFD), C(-1)),
    ROW(fcntl, F(FILE_FD), C(F_DUPFD), C(1 << 20)),
    ROW(fcntl, F(FILE_FD), C(F_DUPFD_CLOEXEC), C(INT_MAX)),
    ROW(fcntl, F(FILE_FD), C(F_GETFL), C(0)),
    ROW(fcntl, F(FILE_FD), C(F_SETFL), X(0)),
    ROW(fcntl, F(FILE_FD), C(F_SETFD), X(0)),
    ROW(fcntl, G(FILE_FD), C(F_GETLK), INTO(&lock)),
    ROW(fcntl, G(FILE_FD), C(F_SETLK), AT(&lock)),
    ROW(fcntl, G(FILE_FD), C(F_SETLK), AT(&writes)),
    ROW(fcntl, G(FILE_FD), C(F_SETLK), C(&bad_type)),
    ROW(fcntl, G(FILE_FD), C(F_SETLK), C(&bad_whence)),
    ROW(fcntl, G(FILE_FD), C(F_SETLK), C(&before_zero)),
    ROW(fcntl, G(FILE_FD), C(F_SETLK), C(&overflowing)),
    ROW(fcntl, G(FILE_FD), C(F_SETLK), C(&backwards)),
    ROW(fcntl, G(FILE_FD), C(F_GETLK), C(&unlock)),
    ROW(fcntl, G(FILE_FD), C(F_SETLKW), AT(&lock)),
    ROW(fcntl, G(FILE_FD), C(F_OFD_SETLK), AT(&lock)),
    ROW(fcntl, G(FILE_FD), C(F_OFD_SETLK), C(&with_pid)),
    ROW(fcntl, G(FILE_FD), C(F_OFD_GETLK), INTO(&lock)),
    ROW(fcntl, F(MEMFD), C(F_GET_SEALS), C(0)),
    ROW(fcntl, F(MEMFD), C(F_ADD_SEALS), X(0)),
    ROW(fcntl, F(PIPE_WRITE), C(F_SETPIPE_SZ), N(4096)),
    ROW(fcntl, F(PIPE_WRITE), C(F_GETPIPE_SZ), C(0)),
    ROW(fcntl, F(FILE_FD), C(F_GETOWN), C(0)),
    ROW(fcntl, F(FILE_FD), C(F_GETSIG), C(0)),
    ROW(fcntl, F(FILE_FD), C(F_GETOWN_EX), INTO(&owner)),
    ROW(fcntl, F(PIPE_READ), C(F_SETOWN), C(0)),
    ROW(fcntl, F(PIPE_READ), C(F_SETOWN_EX), AT(&no_owner)),
    ROW(fcntl, F(PIPE_READ), C(F_SETOWN_EX), AT(&owner)),
    ROW(fcntl, F(PIPE_READ), C(F_SETSIG), N(SIGIO)),
    ROW(flock, G(FILE_FD), X(8)),
    ROW(flock, G(FILE_FD), C(1)),
    ROW(flock, G(FILE_FD), C(3)),
    ROW(fchdir, F(DIRECTORY)),
    ROW(fchmod, F(FILE_FD), X(0600)),
    ROW(fchown, F(FILE_FD), C(-1), C(-1)),
    ROW(ioctl, F(FILE_FD), C(FIONREAD), W),
    ROW(ioctl, F(PIPE_READ), C(FIONREAD), W),
    ROW(ioctl, F(FILE_FD), C(TIOCGWINSZ), W),
    ROW(ioctl, F(FILE_FD), C(0x5401), W),
    ROW(ioctl, F(FILE_FD), C(FIONBIO), R),
    ROW(ioctl, F(FILE_FD), C(FIOCLEX), C(0)),
    ROW(ioctl, F(FILE_FD), C(FIONCLEX), C(0)),
    ROW(ioctl, F(FILE_FD), C(0x12345678), W),
    ROW(pipe, W),
    ROW(pipe2, W, X(0)),
    ROW(memfd_create, M("name"), E(0)),
    ROW(eventfd, C(0)),
    ROW(eventfd2, C(0), X(0)),
    ROW(eventfd2, C(-1), C(1)),
    ROW(epoll_create1, X(0)),
    ROW(epoll_create, C(0)),
    ROW(epoll_create, C(-1)),
    ROW(epoll_ctl, F(EPOLL), X(EPOLL_CTL_ADD), F(PIPE_READ), AT(&event)),
    ROW(epoll_ctl, F(EPOLL), C(EPOLL_CTL_MOD), F(PIPE_READ), AT(&event)),
    ROW(epoll_ctl, F(EPOLL), C(EPOLL_CTL_DEL), F(PIPE_READ), AT(&event)),
    ROW(epoll_ctl, F(EPOLL), C(EPOLL_CTL_ADD), F(PIPE_READ), C(&exclusive)),
    ROW(epoll_ctl, F(EPOLL), C(EPOLL_CTL_ADD), F(EVENT), C(&exclusive_wrong)),
    ROW(epoll_ctl, F(EPOLL), C(EPOLL_CTL_MOD), C(EVENT), C(&exclusive)),
    ROW(epoll_ctl, F(EPOLL), C(EPOLL_CTL_ADD), F(EVENT), C(&wakeup)),
    ROW(epoll_wait, F(EPOLL), W, N(1), C(0)),
    ROW(epoll_wait, F(EPOLL), C(8), C(INT_MAX / 12), C(0)),
    ROW(epoll_wait, F(EPOLL), C(8), C(INT_MAX / 12 + 1), C(0)),
    ROW(epoll_pwait, F(EPOLL), W, N(1), C(0), R, N(8)),
    ROW(epoll_pwait, F(EPOLL), W, N(1), C(0), C(0), N(7)),
    ROW(epoll_pwait2, F(EPOLL), W, N(1), T, R, N(8)),
    ROW(epoll_pwait2, F(EPOLL), W, N(1), C(&past_second), C(8), C(8)),
    ROW(epoll_pwait2, F(EPOLL), W, N(1), C(&before), C(0), C(8)),
    ROW(timerfd_create, E(1), X(0)),
    ROW(timerfd_create, E(0), C(0)),
    ROW(timerfd_create, C(2), C(0)),
    ROW(timerfd_create, C(4), C(0)),
    ROW(timerfd_create, C(7), C(0)),
    ROW(timerfd_create, C(8), C(0)),
    ROW(timerfd_settime, F(TIMER), X(0), Z, W),
    ROW(timerfd_settime, F(TIMER), C(0), C(&bad_value), W),
    ROW(timerfd_settime, F(TIMER), C(0), C(&bad_interval), W),
    ROW(timerfd_settime, F(TIMER), C(0), C(&negative_value), W),
    ROW(timerfd_settime, F(TIMER), C(0), C(&interval_only), W),
    ROW(timerfd_gettime, F(TIMER), W),
    ROW(signalfd, F(SIGNALS), R, N(8)),
    ROW(signalfd4, C(-1), R, N(8), X(0)),
    ROW(signalfd4, F(SIGNALS), R, N(8), X(0)),
    ROW(inotify_init, C(0)),
    ROW(inotify_init1, X(0)),
    ROW(inotify_add_watch, F(INOTIFY), S("file"), X(IN_MODIFY)),
    ROW(inotify_add_watch, F(INOTIFY), S("file"), C(0)),
    ROW(inotify_add_watch, F(INOTIFY), S("file"), C(IN_ONLYDIR | IN_MODIFY)),
    ROW(inotify_add_watch, F(INOTIFY), S("file"), C(IN_MASK_ADD | IN_MASK_CREATE | IN_MODIFY)),
    ROW(inotify_rm_watch, F(INOTIFY), C(-1)),
    ROW(inotify_rm_watch, F(INOTIFY), C(77)),
    ROW(close_range, C(900), C(901), X(0)),
    ROW(close_range, C(901), C(900), X(0)),
    ROW(close_range, C(-1), C(-1), X(0)),
    ROW(pidfd_getfd, F(PIDFD), F(FILE_FD), X(0)),
    // What file systems have of attributes is their own: a pipe has none.
    ROW(fgetxattr, C(PIPE_READ), M("user.name"), W, N(4)),
    ROW(fsetxattr, C(PIPE_READ), M("user.name"), R, N(4), X(0)),
    ROW(flistxattr, C(MISSING), W, N(4)),
    ROW(fremovexattr, C(PATH), M("user.name")),
};

static const struct left_out not_shown[] = {
    // CAP_SYS_RESOURCE may be missing.
    {"fcntl", "2 int max"},
    {"fcntl", "2 2^31"},
    // Pipes of packets: see docs/limits.md.
    {"pipe2", "1 bits"},
    // Linux knows before it reads the path that the descriptor is no inotify's.
    {"inotify_add_watch", "0 directory, 1"},
    {NULL, NULL},
};

int main(int argc, char **argv) {
    left_out = not_shown;
    return show_table(rows, sizeof rows / sizeof rows[0], argv + 1);
}
