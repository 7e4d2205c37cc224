// oom_score_adj, oom_adj and oom_score of /proc/PID (man 5 proc): what may be written by whom, and what a child has of it.
// cob: link=static,dynamic compare=host
#include "test.h"

#include <linux/capability.h>

#define NOBODY 54321

// Root of a container may lack CAP_SYS_RESOURCE: here, too, then. Gives whether it was there.
static int give_up_right(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    MUST(syscall(SYS_capget, &header, data) == 0);
    int had = data[0].effective >> CAP_SYS_RESOURCE & 1;
    data[0].effective &= ~(1u << CAP_SYS_RESOURCE);
    data[0].permitted &= ~(1u << CAP_SYS_RESOURCE);
    MUST(syscall(SYS_capset, &header, data) == 0);
    return had;
}

static void show(const char *name) {
    char path[64], text[64];
    snprintf(path, sizeof path, "/proc/self/%s", name);
    int fd = open(path, O_RDONLY);
    MUST(fd >= 0);
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    MUST(got > 0);
    text[got] = 0;
    printf("%s: %s", name, text);
}

static void put_to(const char *path, const char *text) {
    int fd = open(path, O_WRONLY);
    if (fd < 0) {
        printf("open for \"%s\": %s\n", text, error_name(errno));
        return;
    }
    errno = 0;
    ssize_t put = write(fd, text, strlen(text));
    printf("write \"%s\": %zd %s\n", text, put, put < 0 ? error_name(errno) : "");
    close(fd);
}

static void put(const char *name, const char *text) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/%s", name);
    put_to(path, text);
}

// What a process of little memory has without an adjustment is 666 of 1333, give or take its memory.
static int score_now(void) {
    FILE *file = fopen("/proc/self/oom_score", "r");
    int score;
    MUST(file && fscanf(file, "%d", &score) == 1);
    fclose(file);
    return score;
}

static void score(void) { printf("score about %d\n", (score_now() + 10) / 33); }

static void forms(void) {
    static const char *all[] = {"500", "500\n", " 7 \n", "0x10", "010", "-3", "+4", "", "\n", "x", "5x", "1000", "1001", "-1001", "-1000",
                                "99999999999", "000000000000000007", "12 13", "5\n6\n"};
    for (unsigned at = 0; at < sizeof all / sizeof *all; at++) {
        put("oom_score_adj", all[at]);
        show("oom_score_adj");
    }
    int fd = open("/proc/self/oom_score_adj", O_RDWR);
    MUST(fd >= 0);
    SHOW(pwrite(fd, "12", 2, 5));
    SHOW(write(fd, "13", 2));
    SHOW(syscall(SYS_write, fd, 8L, 2L));
    close(fd);
    show("oom_score_adj");
    struct stat about;
    MUST(stat("/proc/self/oom_score_adj", &about) == 0);
    printf("%o\n", about.st_mode);
    MUST(stat("/proc/self/oom_adj", &about) == 0);
    printf("%o\n", about.st_mode);
}

static void old_file(void) {
    static const char *all[] = {"0", "15", "14", "-16", "-17", "-18", "16", "8", "1"};
    for (unsigned at = 0; at < sizeof all / sizeof *all; at++) {
        put("oom_adj", all[at]);
        show("oom_adj");
        show("oom_score_adj");
    }
    static const char *new[] = {"999", "-999", "17", "16", "-1000", "58", "59", "-60"};
    for (unsigned at = 0; at < sizeof new / sizeof *new; at++) {
        put("oom_score_adj", new[at]);
        show("oom_adj");
    }
}

static void scores(void) {
    static const char *all[] = {"0", "500", "1000", "-500", "-900", "-1000"};
    for (unsigned at = 0; at < sizeof all / sizeof *all; at++) {
        put("oom_score_adj", all[at]);
        score();
    }
}

static void *of_thread(void *nothing) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/oom_score_adj", gettid());
    put_to(path, "321");
    return nothing;
}

static void inherited(int moved) {
    static char *arguments[] = {"oom-adj", "after exec", NULL};
    put("oom_score_adj", "250");
    IN_CHILD("child", {
        show("oom_score_adj");
        put("oom_score_adj", "260");
        if (moved)
            move_to(cpu_count() - 1);
        fflush(stdout);
        execv("/proc/self/exe", arguments);
    });
    show("oom_score_adj");
    of_thread(NULL);
    show("oom_score_adj");
    pid_t child = vfork();
    if (child == 0) {
        execv("/proc/self/exe", arguments);
        _exit(99);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child);
}

static int orders[2], done[2], ended[2];

// Runs in the memory of the one who gives the orders, one letter each.
static int sharer(void *nothing) {
    char order;
    while (read(orders[0], &order, 1) == 1 && order != 'q') {
        if (order == 's')
            show("oom_score_adj");
        if (order == 'n')
            put("oom_score_adj", "350");
        if (order == 'o')
            put("oom_adj", "8");
        if (order == 'x') {
            static char answers[16], waits[16], *arguments[] = {"oom-adj", "alone", answers, waits, NULL};
            snprintf(answers, sizeof answers, "%d", done[1]);
            snprintf(waits, sizeof waits, "%d", ended[0]);
            fflush(stdout);
            execv("/proc/self/exe", arguments);
        }
        MUST(write(done[1], &order, 1) == 1);
    }
    return nothing != NULL;
}

// Each of the two may take it.
static void tell(const char *letters) {
    for (char got; *letters; letters++)
        MUST(write(orders[1], letters, 1) == 1 && read(done[0], &got, 1) == 1);
}

// Processes that share their memory have one adjustment, until one of them executes a program; a child in vfork has its own.
static void in_one_memory(void) {
    static char stack[2][1 << 16];
    MUST(pipe(orders) == 0 && pipe(done) == 0 && pipe(ended) == 0);
    put("oom_score_adj", "50");
    fflush(stdout);
    for (int at = 0; at < 2; at++)
        MUST(clone(sharer, stack[at] + sizeof stack[at], CLONE_VM | SIGCHLD, NULL) > 0);
    tell("ss");
    put("oom_score_adj", "450");
    tell("ss");
    tell("n");
    show("oom_score_adj");
    tell("o");
    show("oom_score_adj");
    put("oom_adj", "9");
    tell("ss");
    pid_t child = vfork();
    if (child == 0) {
        int fd = open("/proc/self/oom_score_adj", O_WRONLY);
        _exit(write(fd, "123", 3) == 3 ? 0 : 1);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child);
    show_status("in vfork", status);
    show("oom_score_adj");
    IN_CHILD("forked", put("oom_score_adj", "77"));
    tell("ss");
    // One of the two goes on by itself.
    tell("x");
    put("oom_score_adj", "60");
    tell("sn");
    show("oom_score_adj");
    MUST(write(orders[1], "q", 1) == 1 && wait(&status) > 0);
    show_status("the other", status);
    fflush(stdout);
    MUST(write(ended[1], "", 1) == 1 && wait(&status) > 0);
    show_status("alone", status);
}

static void user(void) {
    MUST(setresuid(NOBODY, NOBODY, NOBODY) == 0);
    // Its files are root's until it executes a program that it may read.
    static char *arguments[] = {"oom-adj", "user", NULL};
    fflush(stdout);
    execv("/proc/self/exe", arguments);
}

static void as_user(void) {
    put("oom_score_adj", "100");
    put("oom_score_adj", "99");
    put("oom_score_adj", "0");
    put("oom_score_adj", "-1");
    show("oom_score_adj");
    put("oom_adj", "5");
    put("oom_adj", "4");
    show("oom_score_adj");
    put("oom_score_adj", "0");
    show("oom_score_adj");
    IN_CHILD("child", {
        put("oom_score_adj", "-1");
        put("oom_score_adj", "700");
        put("oom_score_adj", "20");
        show("oom_score_adj");
    });
    put_to("/proc/1/oom_score_adj", "5");
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/oom_score_adj", getppid());
    put_to(path, "5");
}

static int adjust(const char *text) {
    int fd = open("/proc/self/oom_score_adj", O_WRONLY), put = write(fd, text, strlen(text));
    close(fd);
    return put == (int)strlen(text);
}

// Who has it goes below, and what it has set is the least from then on. Checked where it is there.
static void with_right(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    MUST(syscall(SYS_capget, &header, data) == 0);
    if (data[0].effective >> CAP_SYS_RESOURCE & 1) {
        MUST(adjust("-1000") && score_now() == 0);
        MUST(adjust("-900") && score_now() < 100 && adjust("500") && score_now() > 900 && adjust("-200"));
        MUST(give_up_right() && adjust("100") && adjust("-200") && !adjust("-201") && !adjust("-1000"));
    }
    printf("ok\n");
}

int main(int count, char **arguments) {
    if (count > 1 && strcmp(arguments[1], "user") == 0)
        return as_user(), 0;
    if (count > 1 && strcmp(arguments[1], "alone") == 0) {
        show("oom_score_adj");
        fflush(stdout);
        char order = 'x';
        MUST(write(atoi(arguments[2]), &order, 1) == 1 && read(atoi(arguments[3]), &order, 1) == 1);
        return show("oom_score_adj"), 0;
    }
    if (count > 1) {
        show("oom_score_adj");
        return 0;
    }
    IN_CHILD("with the right to it", with_right());
    give_up_right();
    put("oom_score_adj", "0");
    for (int moved = 0; moved < 2; moved++) {
        if (moved)
            move_to(cpu_count() - 1);
        IN_CHILD("forms", forms());
        IN_CHILD("old file", old_file());
        IN_CHILD("scores", scores());
        IN_CHILD("inherited", inherited(moved));
        IN_CHILD("in one memory", in_one_memory());
        IN_CHILD("user", user());
        IN_CHILD("lower bound", {
            put("oom_score_adj", "-300");
            user();
        });
        IN_CHILD("raised by root", {
            put("oom_score_adj", "300");
            user();
        });
    }
    put_to("/proc/4194303/oom_score_adj", "5");
    return 0;
}
