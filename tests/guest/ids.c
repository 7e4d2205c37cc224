// Ids, groups, sessions, names, limits, usage, uname, prctl.
// cob: link=static,dynamic compare=host
#include "test.h"
#include <grp.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

int main(void) {
    printf("%d %d %d %d\n", getuid(), geteuid(), getgid(), getegid());
    gid_t groups[100];
    printf("groups %d\n", getgroups(100, groups));
    SHOW(getgroups(-1, groups));
    printf("tid %d\n", syscall(SYS_gettid) == getpid());
    SHOW(getpgid(1 << 29));
    SHOW(getsid(0) > 0);
    SHOW(setpgid(0, -1));
    SHOW(setpgid(1 << 29, 0));
    IN_CHILD("session", {
        SHOW(setsid() == getpid());
        SHOW(setsid());
        SHOW(getsid(0) == getpid());
        SHOW(getpgrp() == getpid());
        SHOW(setpgid(0, 0));
        SHOW(open("/dev/tty", O_RDWR));
    });
    IN_CHILD("group", {
        SHOW(setpgid(0, 0));
        SHOW(getpgrp() == getpid());
        SHOW(setsid());
        SHOW(setpgid(0, 1 << 29));
    });
    IN_CHILD("another user", {
        if (getuid() == 0) {
            MUST(setgroups(0, NULL) == 0 && setgid(1234) == 0 && setuid(1234) == 0);
            printf("%d %d\n", getuid(), getgid());
            SHOW(setuid(0));
            SHOW(kill(1, 0));
            SHOW(open("/etc/shadow", O_RDONLY));
            SHOW(setpriority(PRIO_PROCESS, 0, -5));
        }
    });
    IN_CHILD("saved ids", {
        uid_t real;
        uid_t effective;
        uid_t saved;
        if (getuid() == 0) {
            SHOW(setresuid(-1, 77, -1));
            SHOW(getresuid(&real, &effective, &saved));
            printf("%d %d %d\n", real, effective, saved);
            SHOW(setuid(0));
            SHOW(setreuid(5, 6));
        }
    });
    struct utsname name;
    SHOW(uname(&name));
    printf("%s %s\n", name.sysname, name.machine);
    char comm[17] = {0};
    SHOW(prctl(PR_SET_NAME, "a name that is too long"));
    SHOW(prctl(PR_GET_NAME, comm));
    printf("%s\n", comm);
    SHOW(prctl(PR_GET_DUMPABLE));
    SHOW(prctl(PR_SET_PDEATHSIG, 77));
    SHOW(prctl(9999));
    IN_CHILD("no new privileges", {
        SHOW(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
        SHOW(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
        SHOW(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    });
    struct rlimit limit = {100, 50};
    SHOW(setrlimit(RLIMIT_CORE, &limit));
    SHOW(getrlimit(99, &limit));
    SHOW(prlimit(1 << 29, RLIMIT_CORE, NULL, &limit));
    limit = (struct rlimit){0, 0};
    SHOW(setrlimit(RLIMIT_CORE, &limit));
    SHOW(prlimit(0, RLIMIT_CORE, NULL, &limit));
    printf("%ld %ld\n", (long)limit.rlim_cur, (long)limit.rlim_max);
    struct rusage usage;
    SHOW(getrusage(RUSAGE_SELF, &usage));
    SHOW(getrusage(RUSAGE_CHILDREN, &usage));
    SHOW(getrusage(77, &usage));
    struct sysinfo info;
    SHOW(sysinfo(&info));
    printf("memory %d processes %d\n", info.totalram * info.mem_unit > 50 << 20, info.procs > 0);
    SHOW(getpriority(PRIO_PROCESS, 0));
    SHOW(nice(3));
    SHOW(personality(0xffffffff));
    IN_CHILD("file size limit", {
        struct rlimit size = {1000, 1000};
        SHOW(setrlimit(RLIMIT_FSIZE, &size));
        signal(SIGXFSZ, SIG_IGN);
        int fd = open("big", O_CREAT | O_RDWR, 0600);
        char buffer[2000] = {0};
        SHOW(write(fd, buffer, 2000));
        SHOW(write(fd, buffer, 1));
    });
}
