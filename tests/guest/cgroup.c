// Control groups (cgroups(7), cgroup v2): the tree, who is in it, moving, cgroup.events, cgroup.kill, CLONE_INTO_CGROUP; beside forks, threads,
// ends and moves on all CPUs. No controllers: other tests have those. For who may mount.
// cob: link=static,dynamic flags=-pthread kernels=1,2,4 compare=host timeout=240
#include "cgroup.h"
#include <pthread.h>
#include <sys/inotify.h>

static void show_own_path(void) {
    const char *text = strstr(get("/proc/self/cgroup"), "0::");
    MUST(text != NULL);
    char path[256], own[64];
    snprintf(path, sizeof path, "%.*s", (int)strcspn(text, "\n"), text);
    snprintf(own, sizeof own, "/test-%s", strrchr(top, '-') + 1);
    char *at = strstr(path, own);
    if (at)
        printf("in %.*s/TOP%s\n", (int)(at - path), path, at + strlen(own));
    else
        printf("in %s\n", path);
}

static void show_tree(void) {
    struct statfs info;
    MUST(statfs("groups", &info) == 0);
    printf("magic %lx name %ld\n", (long)info.f_type, (long)info.f_namelen);
    static const char *const names[] = {
        "cgroup.controllers", "cgroup.events", "cgroup.kill", "cgroup.max.depth", "cgroup.max.descendants", "cgroup.procs",
        "cgroup.stat", "cgroup.subtree_control", "cgroup.threads", "cgroup.type",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct stat status;
        char path[128];
        snprintf(path, sizeof path, "groups/%s", names[i]);
        printf("%s: %s in the root", names[i], stat(path, &status) == 0 ? "is" : error_name(errno));
        MUST(stat(in("%s", names[i]), &status) == 0);
        printf(", %o %d %ld below\n", status.st_mode, (int)status.st_nlink, (long)status.st_size);
    }
    struct stat status;
    MUST(stat(top, &status) == 0);
    printf("directory %o links %d\n", status.st_mode, (int)status.st_nlink);
    printf("events %stype %ssubtree %sdepth %sdescendants %s", get(in("cgroup.events")), get(in("cgroup.type")),
           get(in("cgroup.subtree_control")), get(in("cgroup.max.depth")), get(in("cgroup.max.descendants")));
    printf("procs \"%s\" threads \"%s\"\n", get(in("cgroup.procs")), get(in("cgroup.threads")));
}

static void show_errors(void) {
    SHOW(mkdir(top, 0755));
    SHOW(mkdir(in("cgroup.procs"), 0755));
    SHOW(mkdir(in("a\nb"), 0755));
    SHOW(open(in("new"), O_CREAT | O_WRONLY, 0644));
    SHOW(mknod(in("new"), S_IFIFO | 0644, 0));
    SHOW(symlink("x", in("new")));
    SHOW(unlink(in("cgroup.procs")));
    SHOW(rmdir(in("cgroup.procs")));
    SHOW(rmdir(in("none")));
    SHOW(rmdir("groups"));
    PUT(in("cgroup.events"), "1");
    PUT(in("cgroup.controllers"), "1");
    PUT(in("cgroup.kill"), "0");
    PUT(in("cgroup.kill"), "2");
    PUT(in("cgroup.kill"), "yes");
    PUT(in("cgroup.type"), "domain");
    PUT(in("cgroup.procs"), "-1");
    PUT(in("cgroup.procs"), "one");
    PUT(in("cgroup.procs"), "4194303");
    PUT(in("cgroup.subtree_control"), "+nothing");
    PUT(in("cgroup.subtree_control"), "pids");
    PUT(in("cgroup.max.depth"), "-1");
    PUT(in("cgroup.max.depth"), "deep");
    PUT(in("cgroup.max.depth"), "1");
    SHOW(mkdir(in("a"), 0755));
    SHOW(mkdir(in("a/b"), 0755));
    PUT(in("cgroup.max.depth"), "max");
    PUT(in("cgroup.max.descendants"), "2");
    SHOW(mkdir(in("a/b"), 0755));
    SHOW(mkdir(in("c"), 0755));
    printf("descendants %ld\n", value(in("cgroup.stat"), "nr_descendants"));
    struct stat status;
    MUST(stat(top, &status) == 0);
    printf("links %d\n", (int)status.st_nlink);
    SHOW(rmdir(in("a")));
    SHOW(rmdir(in("a/b")));
    SHOW(rmdir(in("a")));
    PUT(in("cgroup.max.descendants"), "max");
}

// Who owns a directory makes groups in it; who owns cgroup.procs of it and below moves processes, but not out of it.
static void show_delegation(void) {
    MUST(mkdir(in("own"), 0755) == 0 && chown(in("own"), 1234, 5678) == 0);
    MUST(chown(in("own/cgroup.procs"), 1234, 5678) == 0);
    MUST(chmod("groups", 0555) == 0);
    struct stat status;
    MUST(stat(in("own"), &status) == 0);
    printf("own %o %d %d\n", status.st_mode, (int)status.st_uid, (int)status.st_gid);
    MUST(stat(in("own/cgroup.procs"), &status) == 0);
    printf("procs %o %d %d\n", status.st_mode, (int)status.st_uid, (int)status.st_gid);
    enter("own");
    IN_CHILD("delegated", {
        MUST(setgid(5678) == 0 && setuid(1234) == 0);
        SHOW(mkdir(in("own/sub"), 0755));
        MUST(stat(in("own/sub/cgroup.procs"), &status) == 0);
        printf("sub %o %d %d\n", status.st_mode, (int)status.st_uid, (int)status.st_gid);
        PUT(in("own/sub/cgroup.procs"), "0");
        show_own_path();
        PUT(in("own/cgroup.procs"), "0");
        PUT(in("cgroup.procs"), "0");
        PUT(in("own/cgroup.max.depth"), "1");
        SHOW(mkdir(in("other"), 0755));
        SHOW(rmdir(in("own/sub")));
    });
    enter("");
    IN_CHILD("from above", {
        MUST(setgid(5678) == 0 && setuid(1234) == 0);
        PUT(in("own/cgroup.procs"), "0");
    });
    leave();
    MUST(rmdir(in("own")) == 0);
}

static int gate[2];

static void *waits(void *argument) {
    move_to((long)argument % cpu_count());
    char byte;
    MUST(read(gate[0], &byte, 1) == 0);
    return NULL;
}

static void show_moves(void) {
    show_own_path();
    MUST(mkdir(in("a"), 0755) == 0 && mkdir(in("a/b"), 0755) == 0);
    enter("a/b");
    show_own_path();
    printf("populated %ld %ld\n", value(in("cgroup.events"), "populated"), value(in("a/b/cgroup.events"), "populated"));
    printf("listed %d %d %d\n", lists(in("cgroup.procs"), getpid()), lists(in("a/b/cgroup.procs"), getpid()),
           lists("groups/cgroup.procs", getpid()));
    SHOW(rmdir(in("a/b")));
    IN_CHILD("child", show_own_path());
    MUST(pipe(gate) == 0);
    pthread_t threads[3];
    for (long i = 0; i < 3; i++)
        MUST(pthread_create(&threads[i], NULL, waits, (void *)(i + 1)) == 0);
    while (lines(in("a/b/cgroup.threads")) < 4)
        usleep(1000);
    printf("%d processes, %d threads\n", lines(in("a/b/cgroup.procs")), lines(in("a/b/cgroup.threads")));
    PUT(in("a/cgroup.threads"), "0");
    enter("a");
    show_own_path();
    printf("%d processes, %d threads\n", lines(in("a/cgroup.procs")), lines(in("a/cgroup.threads")));
    close(gate[1]);
    for (int i = 0; i < 3; i++)
        MUST(pthread_join(threads[i], NULL) == 0);
    close(gate[0]);
    leave();
    show_own_path();
    printf("populated %ld\n", value(in("cgroup.events"), "populated"));
    // One that has ended is in its group, which may be removed all the same, until it is waited for.
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        enter("a/b");
        _exit(0);
    }
    siginfo_t info;
    MUST(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT) == 0);
    until_empty(in("a/b/cgroup.events"));
    printf("listed %d\n", lines(in("a/b/cgroup.procs")));
    SHOW(rmdir(in("a/b")));
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/cgroup", child);
    printf("deleted %d\n", strstr(get(path), "/a/b (deleted)\n") != NULL);
    PUT(in("a/cgroup.procs"), "0");
    leave();
    MUST(put_number(in("a/cgroup.procs"), child) == 0);
    MUST(waitpid(child, NULL, 0) == child);
    printf("then %s\n", result_of(put_number(in("a/cgroup.procs"), child)));
    // What is open of a group that is no more.
    MUST(mkdir(in("gone"), 0755) == 0);
    int procs = open(in("gone/cgroup.procs"), O_RDWR), directory = open(in("gone"), O_RDONLY);
    MUST(procs >= 0 && directory >= 0 && rmdir(in("gone")) == 0);
    char byte;
    SHOW(read(procs, &byte, 1));
    SHOW(write(procs, "0", 1));
    SHOW(openat(directory, "cgroup.procs", O_RDONLY));
    SHOW(mkdirat(directory, "x", 0755));
    close(procs), close(directory);
    MUST(rmdir(in("a")) == 0);
}

// cgroup.events tells who polls it and who watches it.
static void show_events(void) {
    MUST(mkdir(in("e"), 0755) == 0);
    int events = open(in("e/cgroup.events"), O_RDONLY), watch = inotify_init1(IN_NONBLOCK);
    MUST(events >= 0 && inotify_add_watch(watch, in("e/cgroup.events"), IN_MODIFY) >= 0);
    struct pollfd both[2] = {{.fd = events, .events = POLLPRI}, {.fd = watch, .events = POLLIN}};
    printf("unread: %d", poll(both, 1, 0));
    printf(" %x\n", both[0].revents);
    char text[256];
    MUST(read(events, text, sizeof text) > 0);
    printf("read: %d\n", poll(both, 2, 0));
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        move_to(cpu_count() - 1);
        enter("e");
        pause();
    }
    for (int i = 0; i < 2; i++) {
        while (poll(both, 2, -1) < 2)
            usleep(1000);
        printf("told: %x %x\n", both[0].revents, both[1].revents);
        MUST(pread(events, text, sizeof text, 0) > 0 && read(watch, text + 100, 100) == sizeof(struct inotify_event));
        printf("%.12s mask %x\n", text, ((struct inotify_event *)(text + 100))->mask);
        if (i == 0)
            MUST(kill(child, SIGKILL) == 0);
    }
    MUST(waitpid(child, NULL, 0) == child);
    close(events), close(watch);
    MUST(rmdir(in("e")) == 0);
}

static pid_t clone_into(int fd, uint64_t flags) {
    struct clone_args arguments = {.flags = flags, .exit_signal = SIGCHLD, .cgroup = (uint64_t)fd};
    fflush(stdout);
    return (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments);
}

static void show_clone_into(void) {
    MUST(mkdir(in("into"), 0755) == 0);
    int fd = open(in("into"), O_RDONLY | O_DIRECTORY), other = open(".", O_RDONLY), file = open(in("cgroup.procs"), O_RDONLY);
    MUST(fd >= 0 && other >= 0 && file >= 0);
    pid_t child = clone_into(fd, CLONE_INTO_CGROUP);
    MUST(child >= 0);
    if (child == 0) {
        show_own_path();
        fflush(stdout);
        _exit(0);
    }
    MUST(waitpid(child, NULL, 0) == child);
    show_own_path();
    SHOW(clone_into(other, CLONE_INTO_CGROUP));
    SHOW(clone_into(file, CLONE_INTO_CGROUP));
    SHOW(clone_into(-1, CLONE_INTO_CGROUP));
    SHOW(clone_into(999, CLONE_INTO_CGROUP));
    MUST(rmdir(in("into")) == 0);
    SHOW(clone_into(fd, CLONE_INTO_CGROUP));
    close(fd), close(other), close(file);
}

// Forks as fast as it can, and so do its children.
__attribute__((noreturn)) static void breed(int depth) {
    for (int i = 0;; i++) {
        pid_t child = fork();
        if (child == 0 && depth > 0)
            breed(depth - 1);
        if (child == 0)
            _exit(0);
        if (depth == 0 || i % 4 == 3 || child < 0)
            wait(NULL);
    }
}

// All in the group die by one write, also those that are being born, on whatever CPU.
static void kill_bombs(void) {
    for (int round = 0; round < 6; round++) {
        MUST(mkdir(in("bomb"), 0755) == 0 && mkdir(in("bomb/below"), 0755) == 0);
        pid_t bombs[3];
        for (int i = 0; i < 3; i++) {
            bombs[i] = fork();
            MUST(bombs[i] >= 0);
            if (bombs[i] == 0) {
                enter(i == 2 ? "bomb/below" : "bomb");
                move_to((round + i) % cpu_count());
                breed(2);
            }
        }
        while (lines(in("bomb/cgroup.procs")) < 8 || lines(in("bomb/below/cgroup.procs")) < 3)
            usleep(1000);
        MUST(put(in("bomb/cgroup.kill"), "1") == 0);
        until_empty(in("bomb/cgroup.events"));
        MUST(lines(in("bomb/cgroup.procs")) == 0);
        for (int i = 0; i < 3; i++) {
            int status;
            MUST(waitpid(bombs[i], &status, 0) == bombs[i] && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        }
        // The children of the dead are this process's (it is a subreaper).
        int status;
        while (wait(&status) > 0)
            ;
        MUST(rmdir(in("bomb/below")) == 0 && rmdir(in("bomb")) == 0);
    }
    printf("no bomb is left\n");
}

static void *nothing(void *argument) { return argument; }

// A process that forks, makes threads and ends, while it is moved to and fro: it is in one group or the other, and nothing is left.
static void move_what_changes(void) {
    MUST(mkdir(in("one"), 0755) == 0 && mkdir(in("two"), 0755) == 0);
    for (int round = 0; round < 8; round++) {
        pid_t child = fork();
        MUST(child >= 0);
        if (child == 0) {
            enter("one");
            move_to(round % cpu_count());
            for (int i = 0; i < 10; i++) {
                pthread_t thread;
                if (pthread_create(&thread, NULL, nothing, NULL) == 0)
                    pthread_join(thread, NULL);
                pid_t grandchild = fork();
                if (grandchild == 0)
                    _exit(0);
                MUST(grandchild > 0 && waitpid(grandchild, NULL, 0) == grandchild);
            }
            _exit(0);
        }
        for (int i = 0, error = 0; error != ESRCH && i < 20; i++) {
            error = put_number(in(i % 2 ? "one/cgroup.procs" : "two/cgroup.procs"), child);
            MUST(error == 0 || error == ESRCH);
            MUST(lists(in("one/cgroup.procs"), child) + lists(in("two/cgroup.procs"), child) <= 1);
        }
        int status;
        MUST(waitpid(child, &status, 0) == child && status == 0);
    }
    until_empty(in("cgroup.events"));
    MUST(lines(in("one/cgroup.threads")) + lines(in("two/cgroup.threads")) == 0);
    MUST(rmdir(in("one")) == 0 && rmdir(in("two")) == 0);
    printf("all moved\n");
}

int main(void) {
    if (geteuid() != 0) {
        printf("needs root\n");
        return 0;
    }
    MUST(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    mount_groups();
    show_tree();
    show_errors();
    show_delegation();
    show_moves();
    show_events();
    show_clone_into();
    kill_bombs();
    move_what_changes();
    unmount_groups();
    return 0;
}
