// Process 1, which adopts orphans: it is there for who looks at it, and no signal ends it.
// cob: link=static,dynamic compare=host
#include "test.h"
#include <dirent.h>
#include <sys/resource.h>

static void show_stat(const char *path) {
    FILE *file = fopen(path, "r");
    MUST(file);
    int pid, parent;
    char name[64], state;
    MUST(fscanf(file, "%d (%63[^)]) %c %d", &pid, name, &state, &parent) == 4);
    fclose(file);
    printf("%s: %d, child of %d, state %c, has a name: %d\n", path, pid, parent, state, name[0] != 0);
}

static int is_listed(const char *directory, const char *name) {
    DIR *open = opendir(directory);
    MUST(open);
    int found = 0;
    for (struct dirent *entry; (entry = readdir(open));)
        found += strcmp(entry->d_name, name) == 0;
    closedir(open);
    return found;
}

static void look(void) {
    show_stat("/proc/1/stat");
    show_stat("/proc/1/task/1/stat");
    printf("listed %d %d\n", is_listed("/proc", "1"), is_listed("/proc/1/task", "1"));
    SHOW(kill(1, 0));
    SHOW(syscall(SYS_tkill, 1, 0));
    SHOW(syscall(SYS_tgkill, 1, 1, 0));
    SHOW(kill(1, SIGKILL));
    SHOW(syscall(SYS_tkill, 1, SIGKILL));
    SHOW(syscall(SYS_tgkill, 1, 2, 0));
    SHOW(getpgid(1) >= 0);
    SHOW(getsid(1) >= 0);
    SHOW(setpgid(1, 0));
    SHOW(waitpid(1, NULL, 0));
    errno = 0;
    SHOW(getpriority(PRIO_PROCESS, 1) >= -20 && errno == 0);
    SHOW(sched_getscheduler(1) >= 0);
    cpu_set_t set;
    SHOW(sched_getaffinity(1, sizeof set, &set));
    struct rlimit limit;
    SHOW(prlimit(1, RLIMIT_CORE, NULL, &limit));
    int fd = (int)syscall(SYS_pidfd_open, 1, 0);
    MUST(fd >= 0);
    SHOW(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0));
    show_stat("/proc/1/stat");
}

int main(void) {
    look();
    IN_CHILD("on the last CPU", move_to(cpu_count() - 1); look());
    IN_CHILD("another user", {
        MUST(setresuid(1234, 1234, 1234) == 0);
        SHOW(kill(1, 0));
        SHOW(kill(1, SIGKILL));
        SHOW(syscall(SYS_tkill, 1, SIGKILL));
        show_stat("/proc/1/stat");
    });
    // An orphan has it, or a subreaper, for a parent, which can be looked at.
    int gone[2], done[2];
    MUST(pipe(gone) == 0 && pipe(done) == 0);
    pid_t child = fork();
    if (child == 0) {
        child = getpid();
        if (fork() == 0) {
            char byte;
            MUST(read(gone[0], &byte, 1) == 1);
            printf("the parent is another one: %d\n", getppid() != child);
            SHOW(kill(getppid(), 0));
            fflush(stdout);
            _exit(0);
        }
        _exit(0);
    }
    close(done[1]);
    MUST(waitpid(child, NULL, 0) == child && write(gone[1], "x", 1) == 1);
    char byte;
    MUST(read(done[0], &byte, 1) == 0);
    return 0;
}
