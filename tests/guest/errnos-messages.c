// Bad input to the calls about sockets and System V IPC (see errnos.h).
// cob: link=static kernels=1,4 compare=host timeout=600
#include "errnos.h"
#include <limits.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/uio.h>
#include <sys/un.h>

static struct iovec one = {(void *)GOOD, 10}, wild = {(void *)8, 10}, second_wild[2] = {{(void *)GOOD, 10}, {(void *)8, 10}},
                    negative = {(void *)GOOD, -1};
static struct msghdr simple = {.msg_iov = &one, .msg_iovlen = 1}, wild_vector = {.msg_iov = (void *)8, .msg_iovlen = 1},
                     many = {.msg_iov = &one, .msg_iovlen = 1025}, wild_data = {.msg_iov = &wild, .msg_iovlen = 1},
                     half = {.msg_iov = second_wild, .msg_iovlen = 2}, negative_data = {.msg_iov = &negative, .msg_iovlen = 1},
                     wild_name = {.msg_name = (void *)8, .msg_namelen = 16, .msg_iov = &one, .msg_iovlen = 1},
                     negative_name = {.msg_name = (void *)GOOD, .msg_namelen = -1, .msg_iov = &one, .msg_iovlen = 1},
                     wild_control = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = (void *)8, .msg_controllen = 24},
                     huge_control = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = (void *)GOOD, .msg_controllen = LONG_MAX},
                     short_control = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = (void *)GOOD, .msg_controllen = 8},
                     zero_control = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = (void *)ZERO, .msg_controllen = 24};
static struct {
    struct cmsghdr header;
    int fd;
    int padding;
} bad_rights = {{20, SOL_SOCKET, SCM_RIGHTS}, MISSING, 0}, unknown_kind = {{20, SOL_SOCKET, 99}, 0, 0}, other_level = {{20, 99, SCM_RIGHTS}, 0, 0},
  bad_credentials = {{20, SOL_SOCKET, SCM_CREDENTIALS}, 0, 0}, path_rights = {{20, SOL_SOCKET, SCM_RIGHTS}, PATH, 0};
static struct msghdr rights = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = &bad_rights, .msg_controllen = 24},
                     kind = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = &unknown_kind, .msg_controllen = 24},
                     level = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = &other_level, .msg_controllen = 24},
                     credentials = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = &bad_credentials, .msg_controllen = 24},
                     path = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = &path_rights, .msg_controllen = 24};
static struct mmsghdr several[2] = {{{.msg_iov = &one, .msg_iovlen = 1}, 0}, {{.msg_iov = (void *)8, .msg_iovlen = 1}, 0}};
static struct sockaddr_un nobody = {AF_UNIX, "nobody"}, plain = {AF_UNIX, "file"}, taken = {AF_UNIX, "file"}, none = {AF_UNIX, ""},
                          below = {AF_UNIX, "file/x"}, missing = {AF_UNIX, "missing/x"}, inet = {AF_INET, ""}, unspecified = {AF_UNSPEC, ""};
static struct timespec past_second = {0, 1000000000}, before = {-1, 0};
static int on = 1;
static struct sembuf up = {0, 1, 0}, far = {30000, 1, 0};
static struct {
    long type;
    char text[8];
} typed = {1, "text"}, untyped = {0, "text"}, negative_type = {-1, "text"};

static struct sembuf down_now = {0, -1, IPC_NOWAIT}, down_far = {0, -32768, IPC_NOWAIT}, zero_now = {1, 0, IPC_NOWAIT},
                     too_much[2] = {{0, 32767, 0}, {0, 1, 0}}, last_bad[2] = {{0, 1, 0}, {3, 1, 0}}, negative_number = {-1, 1, 0},
                     undone_too_much[2] = {{0, 32767, SEM_UNDO}, {1, 32767, SEM_UNDO}};
static unsigned short too_high[3] = {0, 32768, 0};
static struct msqid_ds no_bytes;

// What exists of System V's objects, and the ids of what has been removed. A set of three semaphores, the first of which is 1; a queue with
// one message; a segment of two pages, which children have at SEGMENT.
static struct object set, queue, segment;

static void remove_objects(void) {
    semctl(set.id, 0, IPC_RMID);
    msgctl(queue.id, IPC_RMID, NULL);
    shmctl(segment.id, IPC_RMID, NULL);
}

static void make_objects(void) {
    static int made;
    if (made)
        remove_objects();
    made = 1;
    set = (struct object){semget(IPC_PRIVATE, 3, 0600), semget(IPC_PRIVATE, 1, 0600)};
    queue = (struct object){msgget(IPC_PRIVATE, 0600), msgget(IPC_PRIVATE, 0600)};
    segment = (struct object){shmget(IPC_PRIVATE, 2 * PAGE, 0600), shmget(IPC_PRIVATE, PAGE, 0600)};
    MUST(set.removed >= 0 && queue.removed >= 0 && segment.removed >= 0);
    MUST(semop(set.id, &up, 1) == 0 && msgsnd(queue.id, &typed, 4, 0) == 0);
    MUST(semctl(set.removed, 0, IPC_RMID) == 0 && msgctl(queue.removed, IPC_RMID, NULL) == 0);
    MUST(shmctl(segment.removed, IPC_RMID, NULL) == 0);
}

static void attach(void) { MUST(shmat(segment.id, (void *)SEGMENT, 0) == (void *)SEGMENT); }

static const struct row rows[] = {
    ROW(socket, C(1), X(1), C(0)),
    ROW(socket, C(1), C(1), E(0)),
    ROW(socket, C(-1), C(1), C(0)),
    ROW(socket, C(46), C(1), C(0)),
    ROW(socket, C(1), C(0), C(0)),
    ROW(socket, C(1), C(4), C(0)),
    ROW(socket, C(1), C(11), C(0)),
    ROW(socketpair, C(1), X(1), C(0), W),
    ROW(socketpair, C(1), C(1), E(0), W),
    ROW(socketpair, C(0), C(1), C(0), W),
    ROW(socketpair, C(46), C(1), C(0), C(8)),
    ROW(bind, F(LISTENER), AT(&nobody), N(10)),
    ROW(bind, F(SOCKET), C(&taken), C(7)),
    ROW(bind, F(SOCKET), C(&below), C(9)),
    ROW(bind, F(SOCKET), C(&missing), C(12)),
    ROW(bind, F(SOCKET), C(&inet), C(16)),
    ROW(bind, F(SOCKET), C(&none), C(1)),
    ROW(bind, F(SOCKET), C(&none), C(111)),
    ROW(bind, F(SOCKET), C(&none), C(129)),
    ROW(connect, F(LISTENER), AT(&nobody), N(10)),
    ROW(connect, F(SOCKET), AT(&nobody), C(10)),
    ROW(connect, F(SOCKET), C(&plain), C(7)),
    ROW(connect, F(LISTENER), C(&below), C(9)),
    ROW(connect, F(LISTENER), C(&inet), C(16)),
    ROW(connect, F(LISTENER), C(&unspecified), C(16)),
    ROW(connect, F(SOCKET), C(&none), C(2)),
    ROW(listen, F(LISTENER), C(1)),
    ROW(listen, F(LISTENER), C(-1)),
    ROW(accept, F(LISTENER), W, W),
    ROW(accept4, F(LISTENER), W, W, X(0)),
    ROW(getsockname, F(SOCKET), W, R),
    ROW(getsockname, F(SOCKET), W, C(0)),
    ROW(getsockname, F(SOCKET), W, C(&negative.iov_len)),
    ROW(getpeername, F(SOCKET), W, R),
    ROW(getpeername, F(LISTENER), W, R),
    ROW(sendto, F(SOCKET), R, N(10), E(0x4040), C(0), C(0)),
    ROW(sendto, F(SOCKET), R, C(10), C(0x4040), AT(&nobody), N(10)),
    ROW(sendto, F(LISTENER), R, N(10), C(0x4040), C(0), C(0)),
    ROW(recvfrom, F(SOCKET), W, N(10), X(0x40), C(0), C(0)),
    ROW(recvfrom, F(SOCKET), W, N(10), C(0x40), W, W),
    ROW(recvfrom, F(LISTENER), W, N(10), C(0x40), C(0), C(0)),
    ROW(sendmsg, F(SOCKET), AT(&simple), E(0x4040)),
    ROW(sendmsg, F(SOCKET), C(&wild_vector), C(0x4040)),
    ROW(sendmsg, F(SOCKET), C(&many), C(0x4040)),
    ROW(sendmsg, F(SOCKET), C(&wild_data), C(0x4040)),
    ROW(sendmsg, F(SOCKET), C(&half), C(0x4040)),
    ROW(sendmsg, F(SOCKET), C(&negative_data), C(0x4040)),
    ROW(sendmsg, F(SOCKET), C(&wild_name), C(0x4040)),
    ROW(sendmsg, F(SOCKET), C(&negative_name), C(0x4040)),
    ROW(sendmsg, F(SOCKET), C(&wild_control), C(0x4040)),
    ROW(sendmsg, F(SOCKET), C(&huge_control), C(0x4040)),
    ROW(sendmsg, F(SOCKET), C(&short_control), C(0x4040)),
    ROW(sendmsg, F(SOCKET), C(&zero_control), C(0x4040)),
    ROW(sendmsg, F(SOCKET), C(&rights), C(0x4040)),
    ROW(sendmsg, F(SOCKET), C(&kind), C(0x4040)),
    ROW(sendmsg, F(SOCKET), C(&level), C(0x4040)),
    ROW(sendmsg, F(SOCKET), C(&credentials), C(0x4040)),
    ROW(sendmsg, F(SOCKET), C(&path), C(0x4040)),
    ROW(recvmsg, F(SOCKET), INTO(&simple), X(0x40)),
    ROW(recvmsg, F(SOCKET), C(&wild_vector), C(0x40)),
    ROW(recvmsg, F(SOCKET), C(&many), C(0x40)),
    ROW(recvmsg, F(SOCKET), C(&negative_name), C(0x40)),
    ROW(sendmmsg, F(SOCKET), AT(several), N(1), E(0x4040)),
    ROW(sendmmsg, F(SOCKET), AT(several), C(2), C(0x4040)),
    ROW(recvmmsg, F(SOCKET), AT(several), N(1), X(0x40), T),
    ROW(recvmmsg, F(SOCKET), AT(several), C(1), C(0x40), C(&past_second)),
    ROW(recvmmsg, F(SOCKET), AT(several), C(1), C(0x40), C(&before)),
    ROW(shutdown, F(SOCKET), X(0)),
    ROW(shutdown, F(SOCKET), C(3)),
    ROW(shutdown, F(LISTENER), C(3)),
    ROW(setsockopt, F(SOCKET), X(1), C(9), AT(&on), C(4)),
    ROW(setsockopt, F(SOCKET), C(1), C(9), AT(&on), N(4)),
    ROW(setsockopt, F(SOCKET), C(1), C(9999), C(8), C(4)),
    ROW(setsockopt, F(SOCKET), C(1), C(SO_TYPE), AT(&on), C(4)),
    ROW(setsockopt, F(SOCKET), C(1), C(SO_PASSCRED), AT(&on), C(4)),
    ROW(getsockopt, F(SOCKET), X(1), C(SO_TYPE), W, R),
    ROW(getsockopt, F(SOCKET), C(1), C(9999), W, R),
    ROW(getsockopt, F(SOCKET), C(1), C(SO_PEERCRED), W, R),
    ROW(getsockopt, F(SOCKET), C(1), C(SO_TYPE), W, C(&negative.iov_len)),
    ANY(semget, C(0), N(1), C(0600)),
    ANY(semget, C(0), C(1), X(0600)),
    ANY(semget, C(12345), C(1), C(0)),
    ROW(semop, E(-1), AT(&up), N(1)),
    ROW(semop, C(12345678), AT(&up), N(1)),
    ROW(semop, C(12345678), AT(&far), C(1)),
    ROW(semtimedop, E(-1), AT(&up), N(1), T),
    ROW(semtimedop, C(-1), AT(&up), C(1), C(&past_second)),
    ROW(semtimedop, C(-1), AT(&up), C(1), C(&before)),
    ROW(semctl, E(-1), C(0), C(GETVAL), C(0)),
    ROW(semctl, C(-1), C(0), X(12), C(0)),
    ROW(semctl, C(-1), C(0), C(IPC_STAT), W),
    ROW(semctl, C(-1), C(0), C(IPC_SET), R),
    ROW(semctl, C(-1), C(0), C(GETALL), W),
    ROW(semctl, C(-1), C(0), C(IPC_RMID), C(0)),
    ROW(semop, O(&set), AT(&up), N(1)),
    ROW(semop, O(&set), C(&far), C(1)),
    ROW(semop, O(&set), C(&negative_number), C(1)),
    ROW(semop, O(&set), C(&down_now), C(1)),
    ROW(semop, O(&set), C(&down_far), C(1)),
    ROW(semop, O(&set), C(&zero_now), C(1)),
    ROW(semop, O(&set), C(too_much), C(2)),
    ROW(semop, O(&set), C(last_bad), C(2)),
    ROW(semop, O(&set), C(undone_too_much), C(2)),
    ROW(semtimedop, O(&set), AT(&up), N(1), T),
    ROW(semtimedop, O(&set), C(&down_now), C(1), T),
    ROW(semtimedop, O(&set), C(&down_far), C(1), T),
    ROW(semtimedop, O(&set), C(&down_now), C(1), C(&past_second)),
    ROW(semtimedop, O(&set), C(&down_now), C(1), C(&before)),
    ROW(semctl, O(&set), N(0), C(GETVAL), C(0)),
    ROW(semctl, O(&set), C(3), C(GETVAL), C(0)),
    ROW(semctl, O(&set), C(0), X(GETVAL), W),
    ROW(semctl, O(&set), N(0), C(SETVAL), C(1)),
    ROW(semctl, O(&set), C(0), C(SETVAL), N(32767)),
    ROW(semctl, O(&set), C(0), C(SETVAL), C(32768)),
    ROW(semctl, O(&set), C(3), C(SETVAL), C(-1)),
    ROW(semctl, O(&set), N(0), C(GETNCNT), C(0)),
    ROW(semctl, O(&set), N(0), C(GETZCNT), C(0)),
    ANY(semctl, O(&set), N(1), C(GETPID), C(0)),
    ROW(semctl, O(&set), C(0), C(GETALL), W),
    ROW(semctl, O(&set), C(77), C(GETALL), W),
    ROW(semctl, O(&set), C(0), C(SETALL), R),
    ROW(semctl, O(&set), C(0), C(SETALL), C(too_high)),
    ROW(semctl, O(&set), C(0), C(IPC_STAT), W),
    ROW(semctl, O(&set), C(0), C(IPC_SET), R),
    ROW(semctl, O(&set), C(-1), C(IPC_RMID), C(8)),
    ANY(semctl, C(-1), C(0), C(IPC_INFO), W),
    ANY(semctl, C(-1), C(0), C(SEM_INFO), W),
    ANY(semctl, O(&set), C(0), C(IPC_INFO), W),
    ANY(msgget, C(0), X(0600)),
    ANY(msgget, C(12345), C(0)),
    ROW(msgsnd, E(-1), AT(&typed), N(1), C(04000)),
    ROW(msgsnd, C(12345678), AT(&typed), N(1), X(04000)),
    ROW(msgsnd, C(12345678), C(&untyped), C(1), C(04000)),
    ROW(msgsnd, C(12345678), C(&negative_type), C(1), C(04000)),
    ROW(msgsnd, C(12345678), C(&typed), C(8193), C(04000)),
    ROW(msgrcv, E(-1), W, N(1), C(0), C(04000)),
    ROW(msgrcv, C(12345678), W, N(1), C(0), X(04000)),
    ROW(msgrcv, C(-1), W, C(1), C(0), C(040000)),
    ROW(msgrcv, C(-1), W, C(1), C(0), C(044000)),
    ROW(msgrcv, C(-1), W, C(1), C(0), C(064000)),
    ROW(msgctl, E(-1), C(2), W),
    ROW(msgctl, C(-1), X(2), W),
    ROW(msgctl, C(12345678), C(2), W),
    ROW(msgctl, C(-1), C(1), R),
    ROW(msgctl, C(-1), C(0), C(0)),
    ROW(msgsnd, O(&queue), AT(&typed), N(4), X(04000)),
    ROW(msgsnd, O(&queue), C(&typed), C(8192), C(04000)),
    ROW(msgsnd, O(&queue), C(&typed), C(8193), C(04000)),
    ROW(msgsnd, O(&queue), C(&untyped), N(4), C(04000)),
    ROW(msgsnd, O(&queue), C(&negative_type), C(4), C(04000)),
    ROW(msgsnd, O(&queue), C(BORDER + PAGE - 8), C(0), C(04000)),
    ROW(msgsnd, O(&queue), C(BORDER + PAGE - 12), C(4), C(04000)),
    ROW(msgsnd, O(&queue), C(BORDER + PAGE - 12), C(5), C(04000)),
    ROW(msgrcv, O(&queue), W, N(10), N(0), C(04000)),
    ROW(msgrcv, O(&queue), W, N(4), C(1), X(04000)),
    ROW(msgrcv, O(&queue), W, C(3), C(0), C(04000)),
    ROW(msgrcv, O(&queue), W, C(3), C(0), C(014000)),
    ROW(msgrcv, O(&queue), W, C(10), C(2), C(04000)),
    ROW(msgrcv, O(&queue), W, C(10), C(1), C(024000)),
    ROW(msgrcv, O(&queue), W, C(10), C(2), C(024000)),
    ROW(msgrcv, O(&queue), C(BORDER + PAGE - 11), C(10), C(0), C(04000)),
    ROW(msgrcv, O(&queue), C(BORDER + PAGE - 12), C(10), C(0), C(04000)),
    ROW(msgrcv, O(&queue), W, C(10), N(0), C(044000)),
    ROW(msgrcv, O(&queue), W, C(10), C(0), C(040000)),
    ANY(msgctl, O(&queue), X(IPC_STAT), W),
    ROW(msgctl, O(&queue), C(IPC_SET), R),
    ROW(msgctl, O(&queue), C(IPC_SET), C(&no_bytes)),
    ROW(msgctl, O(&queue), C(IPC_RMID), C(8)),
    ANY(msgctl, C(-1), C(IPC_INFO), W),
    ANY(msgctl, O(&queue), C(MSG_INFO), W),
    ANY(shmat, O(&segment), C(0), X(0)),
    ANY(shmat, O(&segment), A, C(0)),
    ANY(shmat, O(&segment), A, C(SHM_RND)),
    ANY(shmat, O(&segment), A, C(SHM_REMAP)),
    ANY(shmat, O(&segment), A, C(SHM_REMAP | SHM_RND)),
    ANY(shmat, O(&segment), C(SEGMENT), C(0)),
    ANY(shmat, O(&segment), C(SEGMENT + PAGE), C(0)),
    ANY(shmat, O(&segment), C(SEGMENT - PAGE), C(0)),
    ANY(shmat, O(&segment), C(SEGMENT - 2 * PAGE), C(0)),
    ANY(shmat, O(&segment), C(0), C(SHM_REMAP)),
    ANY(shmat, O(&segment), C(1), C(SHM_RND)),
    ANY(shmat, O(&segment), C(1), C(SHM_RND | SHM_REMAP)),
    ANY(shmat, O(&segment), C(-2 * PAGE), C(0)),
    ROW(shmdt, C(SEGMENT)),
    ROW(shmdt, C(SEGMENT + 1)),
    ROW(shmdt, C(SEGMENT + PAGE)),
    ROW(shmdt, C(SEGMENT - PAGE)),
    ANY(shmctl, O(&segment), X(IPC_STAT), W),
    ROW(shmctl, O(&segment), C(IPC_SET), R),
    ROW(shmctl, O(&segment), C(SHM_LOCK), C(8)),
    ROW(shmctl, O(&segment), C(SHM_UNLOCK), C(8)),
    ROW(shmctl, O(&segment), C(IPC_RMID), C(8)),
    ANY(shmctl, C(-1), C(IPC_INFO), W),
    ANY(shmctl, O(&segment), C(SHM_INFO), W),
};

int main(int argc, char **argv) {
    make_more = make_objects;
    begin_child = attach;
    int status = show_table(rows, sizeof rows / sizeof rows[0], argv + 1);
    remove_objects();
    return status;
}
