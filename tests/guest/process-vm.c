// process_vm_readv and process_vm_writev of other processes, wherever they are: what arrives, what is cut, and who may.
// cob: link=static,dynamic compare=host
#include "test.h"
#include <sys/prctl.h>
#include <sys/uio.h>

static char *memory;

static ssize_t get(pid_t pid, void *to, void *from, size_t length) {
    struct iovec here = {to, length}, there = {from, length};
    return process_vm_readv(pid, &here, 1, &there, 1, 0);
}

static ssize_t put(pid_t pid, void *from, void *to, size_t length) {
    struct iovec here = {from, length}, there = {to, length};
    return process_vm_writev(pid, &here, 1, &there, 1, 0);
}

static char reply(int fd) {
    char byte = 0;
    MUST(read(fd, &byte, 1) == 1);
    return byte;
}

static void as_user(const char *what, uid_t user, pid_t target) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        MUST(setresuid(user, user, user) == 0);
        char byte;
        ssize_t moved = get(target, &byte, memory, 1);
        printf("%s: %zd %s\n", what, moved, moved < 0 ? error_name(errno) : "");
        fflush(stdout);
        _exit(0);
    }
    MUST(waitpid(child, NULL, 0) == child);
}

int main(void) {
    memory = mmap(NULL, 40 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED && munmap(memory + 30 * PAGE, PAGE) == 0);
    int orders[2], replies[2];
    MUST(pipe(orders) == 0 && pipe(replies) == 0);
    pid_t target = fork();
    if (target == 0) {
        memset(memory, 't', 30 * PAGE);
        for (;;) {
            char order = reply(orders[0]);
            if (order == 'u')
                MUST(setresgid(1000, 1000, 1000) == 0 && setresuid(1000, 1000, 1000) == 0);
            if (order == 'u' || order == 'd')
                prctl(PR_SET_DUMPABLE, order == 'u');
            if (order == 'e')
                _exit(0);
            MUST(write(replies[1], memory + PAGE - 1, 1) == 1);
        }
    }
    MUST(write(orders[1], "x", 1) == 1);
    reply(replies[0]);
    static char buffer[40 * 4096];
    SHOW(get(target, buffer, memory + 100, 20 * PAGE));
    printf("%c %c, mine %d\n", buffer[0], buffer[20 * PAGE - 1], memory[100]);
    SHOW(get(target, buffer, memory + 20 * PAGE, 20 * PAGE));
    SHOW(get(target, buffer, memory + 30 * PAGE, 10));
    SHOW(get(target, memory + 29 * PAGE, memory, 2 * PAGE));
    SHOW(put(target, "new", memory + PAGE - 2, 3));
    MUST(write(orders[1], "x", 1) == 1);
    printf("there %c\n", reply(replies[0]));
    SHOW(put(target, "read only", main, 4));
    struct iovec here[3] = {{buffer, 3}, {buffer + 10, 0}, {buffer + 20, 5}}, there[2] = {{memory, 4}, {memory + PAGE - 2, 3}};
    SHOW(process_vm_readv(target, here, 3, there, 2, 0));
    printf("%.3s %.4s\n", buffer, buffer + 20);
    SHOW(process_vm_readv(target, here, 3, there, 2, 1));
    SHOW(process_vm_readv(target, here, 0, there, 2, 0));
    SHOW(process_vm_readv(target, here, 3, there, 0, 0));
    SHOW(process_vm_readv(target, here, 3, (void *)8, 1, 0));
    SHOW(process_vm_readv(target, here, 3, there, 2000, 0));
    SHOW(get(getpid(), buffer, memory, 3));
    SHOW(get(4194303, buffer, memory, 3));
    as_user("another user of root", 1000, target);
    MUST(write(orders[1], "u", 1) == 1);
    reply(replies[0]);
    SHOW(get(target, buffer, memory, 3));
    as_user("the same user, another group", 1000, target);
    MUST(setresgid(1000, 1000, 1000) == 0);
    as_user("the same user", 1000, target);
    as_user("another user", 1001, target);
    MUST(write(orders[1], "d", 1) == 1);
    reply(replies[0]);
    as_user("not dumpable", 1000, target);
    SHOW(get(target, buffer, memory, 3));
    MUST(write(orders[1], "e", 1) == 1);
    MUST(waitid(P_PID, target, NULL, WEXITED | WNOWAIT) == 0);
    SHOW(get(target, buffer, memory, 3));
    return 0;
}
