// Capabilities: dropped, bounded, kept over setuid, ambient over execve; what they are needed for is refused without them.
// cob: link=static compare=host
#include "test.h"
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#ifndef PR_CAP_AMBIENT
#define PR_CAP_AMBIENT 47
#endif

static void show(const char *what) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    MUST(syscall(SYS_capget, &header, data) == 0);
    // The container may have fewer than all: compared with what there is at first.
    printf("%s: effective %d chown %d permitted %d chown %d inheritable %d\n", what, data[0].effective != 0,
           data[0].effective & 1, data[0].permitted != 0, data[0].permitted & 1, data[0].inheritable);
    fflush(stdout);
}

static int drop(unsigned keep_effective, unsigned keep_permitted, unsigned inheritable) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    MUST(syscall(SYS_capget, &header, data) == 0);
    data[0].effective &= keep_effective;
    data[0].permitted &= keep_permitted;
    data[0].inheritable = inheritable;
    return syscall(SYS_capset, &header, data);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        show(argv[1]);
        printf("ambient %d bound %d\n", prctl(PR_CAP_AMBIENT, 1, 0, 0, 0), prctl(PR_CAPBSET_READ, 0));
        return 0;
    }
    struct __user_cap_header_struct header = {1, 0};
    struct __user_cap_data_struct data[2];
    SHOW(syscall(SYS_capget, &header, NULL));
    printf("version %d\n", header.version == _LINUX_CAPABILITY_VERSION_3);
    header.version = 1;
    SHOW(syscall(SYS_capget, &header, data));
    header = (struct __user_cap_header_struct){_LINUX_CAPABILITY_VERSION_3, -1};
    SHOW(syscall(SYS_capget, &header, data));
    header.pid = 4194303;
    SHOW(syscall(SYS_capget, &header, data));
    SHOW(syscall(SYS_capset, &header, data));
    header.pid = 0;
    SHOW(syscall(SYS_capget, &header, (void *)8));
    SHOW(syscall(SYS_capset, &header, (void *)8));
    SHOW(prctl(PR_CAPBSET_READ, 500));
    SHOW(prctl(PR_CAPBSET_DROP, 500));
    SHOW(prctl(PR_SET_KEEPCAPS, 2));
    SHOW(prctl(PR_CAP_AMBIENT, 9, 0, 0, 0));
    SHOW(prctl(PR_CAP_AMBIENT, 1, 500, 0, 0));
    SHOW(prctl(PR_CAP_AMBIENT, 2, 0, 0, 0));
    int file = open("file", O_CREAT | O_RDWR, 0600);
    IN_CHILD("dropped from effective", {
        SHOW(drop(~1u, ~0u, 0));
        show("without");
        SHOW(fchown(file, 5, 5));
        SHOW(drop(~0u, ~0u, 0));
        struct __user_cap_header_struct mine = {_LINUX_CAPABILITY_VERSION_3, 0};
        MUST(syscall(SYS_capget, &mine, data) == 0);
        data[0].effective |= 1;
        SHOW(syscall(SYS_capset, &mine, data));
        SHOW(fchown(file, 0, 0));
    });
    IN_CHILD("dropped for good", {
        SHOW(drop(~1u, ~1u, 0));
        struct __user_cap_header_struct mine = {_LINUX_CAPABILITY_VERSION_3, 0};
        MUST(syscall(SYS_capget, &mine, data) == 0);
        data[0].effective |= 1;
        SHOW(syscall(SYS_capset, &mine, data));
        data[0].permitted |= 1;
        SHOW(syscall(SYS_capset, &mine, data));
        execl("/proc/self/exe", argv[0], "root again", NULL);
    });
    IN_CHILD("bounded", {
        SHOW(prctl(PR_CAPBSET_DROP, 0));
        SHOW(prctl(PR_CAPBSET_READ, 0));
        show("still there");
        execl("/proc/self/exe", argv[0], "bounded", NULL);
    });
    IN_CHILD("setuid", {
        MUST(setuid(1000) == 0);
        show("user");
        SHOW(drop(~0u, ~0u, 1));
        SHOW(prctl(PR_CAPBSET_DROP, 0));
        SHOW(setuid(0));
    });
    IN_CHILD("kept", {
        SHOW(prctl(PR_SET_KEEPCAPS, 1));
        SHOW(prctl(PR_GET_KEEPCAPS));
        MUST(setresuid(1000, 1000, 1000) == 0);
        show("user");
        SHOW(drop(~0u, ~0u, 1));
        SHOW(prctl(PR_CAP_AMBIENT, 2, 0, 0, 0));
        SHOW(prctl(PR_CAP_AMBIENT, 1, 0, 0, 0));
        execl("/proc/self/exe", argv[0], "ambient", NULL);
    });
    IN_CHILD("there and back", {
        MUST(seteuid(1000) == 0);
        show("away");
        SHOW(fchown(file, 5, 5));
        MUST(seteuid(0) == 0);
        show("back");
    });
    IN_CHILD("kill and nice", {
        int ends[2];
        MUST(pipe(ends) == 0);
        pid_t child = fork();
        if (child == 0) {
            char none;
            setuid(1000);
            close(ends[1]);
            // Not for ever: nobody here may kill it.
            MUST(read(ends[0], &none, 1) == 0);
            _exit(0);
        }
        // KILL, SYS_NICE, SYS_RESOURCE, SETUID, SYS_CHROOT, DAC_OVERRIDE.
        SHOW(drop(~(1u << 5 | 1u << 23 | 1u << 24 | 1u << 7 | 1u << 18 | 2u | 4u), ~0u, 0));
        SHOW(setpriority(PRIO_PROCESS, 0, -5));
        SHOW(setuid(1000) == 0 ? 0 : -1);
        SHOW(chroot("/"));
        struct rlimit limit;
        getrlimit(RLIMIT_CORE, &limit);
        if (limit.rlim_max != RLIM_INFINITY)
            limit.rlim_max++;
        fchmod(file, 0);
        printf("opens %d\n", open("file", O_RDONLY) >= 0);
        kill(child, SIGKILL);
    });
    unlink("file");
    return 0;
}
