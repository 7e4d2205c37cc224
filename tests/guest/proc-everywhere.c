// Processes that live on every CPU, each with a second thread: from each CPU all of them are found in /proc, read there, asked
// and signalled; those that have ended are gone for everybody.
// cob: link=static,dynamic flags=-pthread compare=host timeout=120
#include "hands.h"
#include <dirent.h>
#include <sys/resource.h>

enum { PEERS = 4 };

static struct {
    pid_t pid, tid;
    _Atomic int told, quit;
} *peers;

// -- the peers -----------------------------------------------------------------------------------------------------------

static __thread int second;
static int me;

static void told(int number) { peers[me].told += second ? 100 : 1; }

static void *second_thread(void *unused) {
    second = 1;
    MUST(syscall(SYS_prctl, 15 /* PR_SET_NAME */, "second", 0, 0, 0) == 0);
    move_to((me + 1) % cpu_count());
    peers[me].tid = (pid_t)syscall(SYS_gettid);
    while (!peers[me].quit)
        usleep(2000);
    return unused;
}

static void live(int number) {
    me = number;
    char name[16];
    snprintf(name, sizeof name, "peer) %d", me);
    MUST(syscall(SYS_prctl, 15, name, 0, 0, 0) == 0);
    signal(SIGUSR1, told);
    // Should nobody end it.
    alarm(100);
    if (me % 2)
        setpgid(0, 0);
    if (me == 2)
        setsid();
    MUST(setpriority(PRIO_PROCESS, 0, me) == 0);
    struct rlimit limit = {100 + me, 200};
    MUST(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    move_to(me % cpu_count());
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, second_thread, NULL) == 0);
    MUST(syscall(SYS_tgkill, getpid(), getpid(), 0) == 0);
    pthread_join(thread, NULL);
    _exit(40 + me);
}

// -- who looks at them ---------------------------------------------------------------------------------------------------

static char text[8192];

// What is in a file of /proc, or what is wrong.
static const char *content(const char *format, pid_t pid, pid_t tid) {
    char path[100];
    snprintf(path, sizeof path, format, pid, tid);
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        return error_name(errno);
    ssize_t length = read(fd, text, sizeof text - 1);
    int error = errno;
    close(fd);
    if (length < 0)
        return error_name(error);
    text[length] = 0;
    return text;
}

// The value of a line of "status", with its numbers checked.
static void show_line(const char *key) {
    char *line = strstr(text, key);
    MUST(line);
    printf(" %.*s", (int)strcspn(line, "\n"), line);
}

static int number_in(const char *key) {
    char *line = strstr(text, key);
    return line ? atoi(line + strlen(key)) : -1;
}

static int is_in(const char *directory, pid_t wanted, int *entries) {
    DIR *open = opendir(directory);
    if (!open)
        return -errno;
    int found = 0;
    *entries = 0;
    for (struct dirent *entry; (entry = readdir(open));) {
        *entries += entry->d_name[0] != '.';
        found += atoi(entry->d_name) == wanted;
    }
    closedir(open);
    return found;
}

static void look(int number) {
    pid_t pid = peers[number].pid, tid = peers[number].tid;
    int entries, fields, ppid, group, session, threads, nice;
    char path[64], name[32], state;
    printf("peer %d: in /proc %d, its thread %d", number, is_in("/proc", pid, &entries), is_in("/proc", tid, &entries));
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    printf("; in task %d %d", is_in(path, pid, &entries), is_in(path, tid, &entries));
    printf(" of %d\n", entries);
    fields = sscanf(content("/proc/%d/stat", pid, 0), "%*d (%31[^0-9]%*d) %c %d %d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %d %d",
                    name, &state, &ppid, &group, &session, &nice, &threads);
    printf("  stat: %d fields, %s, state %d, parent %d, group %d, session %d, nice %d, threads %d\n", fields, name,
           strchr("SRD", state) != NULL, ppid == getpid(), group == getpgid(pid), session == getsid(pid), nice, threads);
    printf("  status:");
    MUST(strlen(content("/proc/%d/status", pid, 0)) > 100);
    show_line("Name:"), show_line("Threads:"), show_line("SigCgt:");
    printf(" %d %d %d\n", number_in("Tgid:") == pid, number_in("\nPid:") == pid, number_in("PPid:") == getpid());
    printf("  status of the thread:");
    MUST(strlen(content("/proc/%d/task/%d/status", pid, tid)) > 100);
    show_line("Name:");
    printf(" %d %d", number_in("Tgid:") == pid, number_in("\nPid:") == tid);
    MUST(strlen(content("/proc/%2$d/status", pid, tid)) > 100);
    show_line("Name:");
    printf(" %d %d\n", number_in("Tgid:") == pid, number_in("\nPid:") == tid);
    printf("  cmdline %d", strcmp(content("/proc/%d/cmdline", pid, 0), content("/proc/self/cmdline", 0, 0)) == 0);
    printf(" comm %s", content("/proc/%d/comm", pid, 0));
    printf("  thread's comm %s", content("/proc/%d/task/%d/comm", pid, tid));
    fields = sscanf(content("/proc/%2$d/stat", pid, tid), "%*d (%31[^)]) %c %d", name, &state, &ppid);
    printf("  thread's stat: %d fields, %s, parent %d\n", fields, name, ppid == getpid());
    printf("  as a thread of another: %s\n", content("/proc/%d/task/%d/stat", getpid(), tid));

    cpu_set_t set;
    struct rlimit limit;
    printf("  kill %d, of its thread %d\n", kill(pid, 0), kill(tid, 0));
    MUST(sched_getaffinity(pid, sizeof set, &set) == 0);
    printf("  affinity: %d, the right one %d", CPU_COUNT(&set), CPU_ISSET(number % cpu_count(), &set) != 0);
    MUST(sched_getaffinity(tid, sizeof set, &set) == 0);
    printf(", thread: %d, the right one %d\n", CPU_COUNT(&set), CPU_ISSET((number + 1) % cpu_count(), &set) != 0);
    MUST(prlimit(pid, RLIMIT_NOFILE, NULL, &limit) == 0);
    printf("  limit %lu, group %d %d, session %d %d, priority %d, policy %d\n", limit.rlim_cur, getpgid(pid) == pid,
           getpgid(pid) == getpgid(0), getsid(pid) == pid, getsid(pid) == getsid(0), getpriority(PRIO_PROCESS, pid),
           sched_getscheduler(pid));
    SHOW(getpgid(tid) == getpgid(pid));
    SHOW(syscall(SYS_tgkill, getpid(), tid, 0));
    SHOW(syscall(SYS_tgkill, pid, tid, 0));
}

// Each signal comes to the one it is for.
static void tell(int number) {
    pid_t pid = peers[number].pid, tid = peers[number].tid;
    int before = peers[number].told;
    MUST(syscall(SYS_tgkill, pid, tid, SIGUSR1) == 0);
    while (peers[number].told == before)
        usleep(1000);
    MUST(syscall(SYS_tgkill, pid, pid, SIGUSR1) == 0);
    while (peers[number].told == before + 100)
        usleep(1000);
    printf("peer %d was told: thread %d, main %d\n", number, peers[number].told / 100, peers[number].told % 100);
}

static void look_at_the_dead(int number, int waited) {
    pid_t pid = peers[number].pid, tid = peers[number].tid;
    cpu_set_t set;
    struct rlimit limit;
    char path[64];
    int entries;
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    int threads = is_in(path, pid, &entries);
    printf("dead %d: in /proc %d, threads %s %d\n", number, is_in("/proc", pid, &entries), threads < 0 ? error_name(-threads) : "",
           threads > 0);
    char name[32] = "", state = '-';
    const char *stat = content("/proc/%d/stat", pid, 0);
    if (sscanf(stat, "%*d (%31[^0-9]%*d) %c", name, &state) < 2)
        printf("  %s\n", stat);
    else
        printf("  name %s, state %c, cmdline '%s'\n", name, state, content("/proc/%d/cmdline", pid, 0));
    printf("  %s %s\n", content("/proc/%d/task/%d/stat", pid, tid), content("/proc/%2$d/status", pid, tid));
    SHOW(kill(pid, 0));
    SHOW(kill(tid, 0));
    SHOW(syscall(SYS_tgkill, pid, tid, 0));
    SHOW(syscall(SYS_tgkill, pid, pid, 0));
    SHOW(syscall(SYS_tkill, tid, SIGUSR1));
    SHOW(sched_getaffinity(tid, sizeof set, &set));
    SHOW(prlimit(tid, RLIMIT_NOFILE, NULL, &limit));
    SHOW(getpriority(PRIO_PROCESS, tid));
    if (!waited) {
        SHOW(getpgid(pid) > 0);
        SHOW(getsid(pid) > 0);
        return;
    }
    SHOW(sched_getaffinity(pid, sizeof set, &set));
    SHOW(sched_getscheduler(pid));
    SHOW(prlimit(pid, RLIMIT_NOFILE, NULL, &limit));
    SHOW(getpgid(pid));
    SHOW(getsid(pid));
    SHOW(getpriority(PRIO_PROCESS, pid));
    SHOW(setpgid(pid, pid));
    SHOW(syscall(SYS_pidfd_open, pid, 0));
}

int main(void) {
    peers = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(peers != MAP_FAILED);
    for (int i = 0; i < PEERS; i++) {
        fflush(stdout);
        pid_t child = fork();
        MUST(child >= 0);
        if (child == 0)
            live(i);
        peers[i].pid = child;
    }
    for (int i = 0; i < PEERS; i++)
        while (!*(volatile pid_t *)&peers[i].tid)
            usleep(1000);
    start_hands();
    static int peer;
    for (int who = 0; who < HANDS; who++)
        for (peer = 0; peer < PEERS; peer++)
            ON(who, look(peer); tell(peer));
    // Half of them end by themselves, half are killed; they are zombies until they are waited for.
    for (peer = 0; peer < PEERS; peer++) {
        if (peer < 2)
            peers[peer].quit = 1;
        else
            ON(peer % HANDS, MUST(kill(peers[peer].pid, SIGKILL) == 0));
        siginfo_t info;
        MUST(waitid(P_PID, peers[peer].pid, &info, WEXITED | WNOWAIT) == 0);
        for (int who = 0; who < HANDS; who++)
            ON(who, look_at_the_dead(peer, 0));
        int status;
        MUST(waitpid(peers[peer].pid, &status, 0) == peers[peer].pid);
        show_status("ended", status);
        for (int who = 0; who < HANDS; who++)
            ON(who, look_at_the_dead(peer, 1));
    }
    return 0;
}
