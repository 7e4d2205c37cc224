// Extended attributes and ACLs of a tmpfs: what may be called how, who may do what, and that each kernel sees what another has changed.
// cob: link=static,dynamic flags=-pthread kernels=1,2,4 compare=host
#include "hands.h"
#include <dirent.h>
#include <ftw.h>
#include <grp.h>
#include <linux/capability.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/xattr.h>

#define DIRECTORY "/dev/shm/xattr"
#define ACCESS "system.posix_acl_access"
#define DEFAULT "system.posix_acl_default"

static char big[70000], list[70000], long_name[300];
static void *volatile wild = (void *)8;
static int fd;

// Names in the order in which they are listed.
static void show_list(const char *path) {
    ssize_t got = llistxattr(path, list, sizeof list);
    printf("%s:", path);
    if (got < 0)
        printf(" %s", error_name(errno));
    for (char *name = list; name < list + got; name += strlen(name) + 1)
        printf(" %s", strlen(name) > 40 ? "(long)" : name);
    printf("\n");
}

static void show_value(const char *path, const char *name) {
    char value[64];
    ssize_t got = lgetxattr(path, name, value, sizeof value);
    if (got < 0)
        printf("%s of %s: %s\n", name, path, error_name(errno));
    else
        printf("%s of %s: %zd bytes \"%.*s\"\n", name, path, got, (int)got, value);
}

static void show_mode(const char *path) {
    struct stat status;
    MUST(lstat(path, &status) == 0);
    printf("%s: mode %o\n", path, status.st_mode);
}

static int set(const char *path, const char *name, const char *value) {
    return setxattr(path, name, value, strlen(value), 0);
}

static void arguments(void) {
    SHOW(setxattr("f", "user.a", "1234", 4, 0));
    SHOW(setxattr("f", "user.a", "12", 2, XATTR_CREATE));
    SHOW(setxattr("f", "user.b", "12", 2, XATTR_REPLACE));
    SHOW(setxattr("f", "user.a", "12345", 5, XATTR_REPLACE));
    SHOW(setxattr("f", "user.a", "1", 1, XATTR_CREATE | XATTR_REPLACE));
    SHOW(setxattr("f", "user.c", "1", 1, XATTR_CREATE | XATTR_REPLACE));
    SHOW(setxattr("f", "user.a", "1", 1, 4));
    SHOW(setxattr("f", "user.empty", NULL, 0, 0));
    SHOW(setxattr("f", "user.wild", wild, 1, 0));
    SHOW(setxattr("missing", "user.wild", wild, 1, 0));
    SHOW(setxattr("f", "user.big", big, 65536, 0));
    SHOW(setxattr("f", "user.big", big, 65537, 0));
    SHOW(setxattr("missing", "user.big", big, 65537, 0));
    SHOW(setxattr("missing", "", big, 65537, 0));
    SHOW(setxattr("missing", "user.x", "1", 1, 0));
    SHOW(setxattr("f", "", "1", 1, 0));
    SHOW(setxattr("f", wild, "1", 1, 0));
    memset(long_name, 'n', 256), memcpy(long_name, "user.", 5);
    SHOW(setxattr("f", long_name, "1", 1, 0));
    long_name[255] = 0;
    SHOW(setxattr("f", long_name, "long", 4, 0));
    SHOW(getxattr("f", long_name, list, 4));
    for (const char *const *name = (const char *const[]){"user.", "user", "trusted.", "security.", "other.x", "system.x", "x", NULL};
         *name; name++) {
        printf("%s: ", *name); SHOW(setxattr("f", *name, "1", 1, 0));
        printf("%s: ", *name); SHOW(getxattr("f", *name, NULL, 0));
        printf("%s: ", *name); SHOW(removexattr("f", *name));
    }
    show_list("f");
    SHOW(getxattr("f", "user.a", NULL, 0));
    SHOW(getxattr("f", "user.a", list, 4));
    SHOW(getxattr("f", "user.a", list, 5));
    SHOW(getxattr("f", "user.a", wild, 5));
    SHOW(getxattr("f", "user.a", wild, 0));
    SHOW(getxattr("f", "user.empty", wild, 5));
    SHOW(getxattr("f", "user.empty", NULL, 0));
    SHOW(getxattr("f", "user.big", list, 65536));
    SHOW(getxattr("f", "user.big", list, 65535));
    SHOW(getxattr("f", "user.big", list, sizeof list));
    SHOW(getxattr("f", "user.none", list, 1));
    SHOW(listxattr("f", NULL, 0));
    SHOW(listxattr("f", list, 10));
    SHOW(listxattr("f", wild, 1000));
    SHOW(listxattr("missing", list, 10));
    SHOW(removexattr("f", "user.none"));
    SHOW(removexattr("f", "user.big"));
    SHOW(removexattr("f", long_name));
    SHOW(removexattr("f", "user.big"));
    SHOW(fsetxattr(fd, "user.fd", "by descriptor", 13, 0));
    show_value("f", "user.fd");
    SHOW(fgetxattr(fd, "user.a", list, 100));
    SHOW(fremovexattr(fd, "user.a"));
    SHOW(flistxattr(fd, list, 100));
    SHOW(fgetxattr(-1, "user.a", list, 100));
    SHOW(fsetxattr(-1, "", "1", 1, 0));
    int by_path = open("f", O_PATH), reader = open("f", O_RDONLY);
    SHOW(fgetxattr(by_path, "user.fd", list, 100));
    SHOW(flistxattr(by_path, list, 100));
    SHOW(fsetxattr(reader, "user.reader", "1", 1, 0));
    SHOW(fremovexattr(reader, "user.reader"));
    close(by_path), close(reader);
}

static void many(void) {
    char name[32];
    for (int i = 0; i < 3000; i++) {
        sprintf(name, "user.%024d", i);
        MUST(set("many", name, "") == 0);
    }
    SHOW(listxattr("many", NULL, 0));
    SHOW(listxattr("many", list, 65535));
    SHOW(listxattr("many", list, 65536));
    SHOW(listxattr("many", list, sizeof list));
    SHOW(unlink("many"));
}

static void kinds(void) {
    MUST(symlink("f", "link") == 0 && symlink("nowhere", "dangling") == 0 && mkfifo("fifo", 0666) == 0 && mkdir("d", 0755) == 0);
    struct sockaddr_un address = {AF_UNIX, "socket"};
    int bound = socket(AF_UNIX, SOCK_STREAM, 0), ends[2];
    MUST(bind(bound, (struct sockaddr *)&address, sizeof address) == 0 && pipe(ends) == 0);
    const char *const names[] = {"user.k", "trusted.k", "security.k", NULL};
    const char *const files[] = {"link", "dangling", "fifo", "d", "f", NULL};
    for (const char *const *file = files; *file; file++) {
        for (const char *const *name = names; *name; name++) {
            printf("%s %s: ", *file, *name); SHOW(lsetxattr(*file, *name, "k", 1, 0));
            show_value(*file, *name);
        }
        show_list(*file);
        for (const char *const *name = names; *name; name++) {
            printf("%s %s: ", *file, *name); SHOW(lremovexattr(*file, *name));
        }
    }
    SHOW(setxattr("link", "user.through", "1", 1, 0));
    SHOW(setxattr("dangling", "user.through", "1", 1, 0));
    show_value("f", "user.through");
    SHOW(fsetxattr(ends[0], "user.p", "1", 1, 0));
    SHOW(fgetxattr(ends[0], "user.p", list, 1));
    SHOW(fsetxattr(ends[0], "trusted.p", "1", 1, 0));
    SHOW(flistxattr(ends[0], list, 100));
    int memory = memfd_create("m", MFD_ALLOW_SEALING);
    SHOW(fsetxattr(memory, "user.m", "of memory", 9, 0));
    SHOW(fgetxattr(memory, "user.m", list, 100));
    SHOW(flistxattr(memory, list, 100));
    SHOW(setxattr("/proc/self/status", "user.x", "1", 1, 0));
    SHOW(getxattr("/proc/self/status", "user.x", list, 100));
    SHOW(getxattr("/proc/self/status", "system.posix_acl_access", list, 100));
    SHOW(setxattr("/proc/self/fd/0", "", "1", 1, 0));
    close(bound), close(ends[0]), close(ends[1]), close(memory);
}

// A user without capabilities, whose files are `own` and `shared` (a sticky directory that everybody may write).
static void as_user(void) {
    MUST(setgroups(0, NULL) == 0 && setgid(1000) == 0 && setuid(1000) == 0);
    SHOW(set("own", "user.a", "mine"));
    SHOW(set("own", "trusted.a", "1"));
    SHOW(set("own", "security.a", "1"));
    SHOW(removexattr("own", "security.by-root"));
    SHOW(removexattr("own", "trusted.by-root"));
    show_value("own", "security.by-root");
    show_value("own", "trusted.by-root");
    show_value("own", "trusted.none");
    show_list("own");
    SHOW(set("readable", "user.a", "1"));
    show_value("readable", "user.of-root");
    SHOW(removexattr("readable", "user.of-root"));
    SHOW(set("closed", "user.a", "1"));
    show_value("closed", "user.of-root");
    show_list("closed");
    SHOW(set("open", "user.a", "written"));
    show_value("open", "user.of-root");
    SHOW(set("sticky", "user.a", "1"));
    show_value("sticky", "user.of-root");
    SHOW(set("shared", "user.a", "1"));
    SHOW(set("own", "other.x", "1"));
    SHOW(set("closed", "other.x", "1"));
    SHOW(getxattr("closed", "other.x", NULL, 0));
    SHOW(set("fifo", "user.a", "1"));
    struct vfs_cap_data capabilities = {.magic_etc = VFS_CAP_REVISION_2};
    SHOW(setxattr("own", "security.capability", &capabilities, sizeof capabilities, 0));
    SHOW(setxattr("own", "security.capability", "x", 1, 0));
    SHOW(removexattr("own", "security.capability"));
    SHOW(getxattr("own", "security.capability", list, 100));
}

static void users(void) {
    const char *const files[] = {"own", "readable", "closed", "open", NULL};
    for (const char *const *file = files; *file; file++) {
        close(open(*file, O_CREAT | O_RDWR, 0600));
        MUST(set(*file, "user.of-root", "root") == 0 && set(*file, "trusted.by-root", "t") == 0);
        MUST(set(*file, "security.by-root", "s") == 0);
    }
    MUST(mkdir("sticky", 0) == 0 && chmod("sticky", 01777) == 0 && set("sticky", "user.of-root", "root") == 0);
    MUST(mkdir("shared", 0) == 0 && chmod("shared", 01777) == 0 && chown("shared", 1000, 1000) == 0);
    MUST(chown("own", 1000, 1000) == 0 && chmod("readable", 0644) == 0 && chmod("open", 0622) == 0);
    IN_CHILD("a user", as_user());
    show_value("open", "user.a");
}

static void capabilities(void) {
    struct vfs_ns_cap_data value = {.magic_etc = VFS_CAP_REVISION_3 | VFS_CAP_FLAGS_EFFECTIVE};
    value.data[0].permitted = 1 << CAP_NET_RAW;
    uint32_t first;
    close(open("program", O_CREAT | O_RDWR, 0755));
    SHOW(setxattr("program", "security.capability", "x", 1, 0));
    SHOW(setxattr("program", "security.capability", &value, 20, 0));
    SHOW(setxattr("program", "security.capability", &value, 24, 0));
    SHOW(getxattr("program", "security.capability", NULL, 0));
    SHOW(getxattr("program", "security.capability", list, 100));
    memcpy(&first, list, 4), printf("%x\n", first);
    value.rootid = 1000;
    SHOW(setxattr("program", "security.capability", &value, 24, 0));
    SHOW(getxattr("program", "security.capability", list, 100));
    show_list("program");
    value.magic_etc = VFS_CAP_REVISION_2;
    SHOW(setxattr("program", "security.capability", &value, 20, 0));
    SHOW(getxattr("program", "security.capability", list, 100));
    // Who writes the file takes them away, and who gives it away.
    int writer = open("program", O_WRONLY);
    show_list("program");
    SHOW(write(writer, "x", 1));
    show_list("program");
    MUST(setxattr("program", "security.capability", &value, 20, 0) == 0);
    SHOW(ftruncate(writer, 0));
    show_list("program");
    MUST(setxattr("program", "security.capability", &value, 20, 0) == 0);
    SHOW(chmod("program", 0700));
    show_list("program");
    SHOW(chown("program", 1, 1));
    show_list("program");
    MUST(setxattr("program", "security.capability", &value, 20, 0) == 0);
    close(open("program", O_WRONLY | O_TRUNC));
    show_list("program");
    close(writer);
}

struct acl_entry {
    uint16_t tag, permissions;
    uint32_t id;
};

static struct acl {
    uint32_t version;
    struct acl_entry entries[8];
} acl;

static size_t acl_size;

// In the letters of setfacl: u, u7, g, g7, m, o, each with its permissions.
static void build(const char *text) {
    static const uint16_t named[] = {['u'] = 0x02, ['g'] = 0x08}, unnamed[] = {['u'] = 0x01, ['g'] = 0x04, ['m'] = 0x10, ['o'] = 0x20};
    int count = 0;
    acl.version = 2;
    while (*text) {
        char who = *text++;
        struct acl_entry *entry = &acl.entries[count++];
        *entry = (struct acl_entry){unnamed[(int)who], 0, -1};
        if (*text != '=')
            entry->tag = named[(int)who], entry->id = strtoul(text, (char **)&text, 10);
        entry->permissions = strtoul(text + 1, (char **)&text, 8);
        text += *text == ' ';
    }
    acl_size = 4 + 8 * count;
}

static int set_acl(const char *path, const char *name, const char *text) {
    build(text);
    return setxattr(path, name, &acl, acl_size, 0);
}

static void show_acl(const char *path, const char *name) {
    ssize_t got = getxattr(path, name, &acl, sizeof acl);
    printf("%s of %s:", name, path);
    if (got < 0)
        printf(" %s", error_name(errno));
    for (int i = 0; i < (got - 4) / 8; i++)
        printf(" %x.%d=%o", acl.entries[i].tag, acl.entries[i].id, acl.entries[i].permissions);
    printf("\n");
}

static void acl_forms(void) {
    close(open("a", O_CREAT | O_RDWR, 0600));
    MUST(chmod("a", 04644) == 0);
    SHOW(getxattr("a", ACCESS, NULL, 0));
    SHOW(removexattr("a", ACCESS));
    SHOW(removexattr("a", DEFAULT));
    SHOW(set_acl("a", ACCESS, "u=6 g=4 o=0"));
    show_acl("a", ACCESS), show_mode("a");
    SHOW(set_acl("a", ACCESS, "u=6 u7=5 u8=7 g=1 g9=7 m=6 o=1"));
    show_acl("a", ACCESS), show_mode("a"), show_list("a");
    SHOW(getxattr("a", ACCESS, NULL, 0));
    SHOW(getxattr("a", ACCESS, list, 10));
    SHOW(chmod("a", 0752));
    show_acl("a", ACCESS), show_mode("a");
    SHOW(set_acl("a", ACCESS, "u=6 g=1 m=7 o=1"));
    show_acl("a", ACCESS), show_mode("a");
    SHOW(chmod("a", 0640));
    show_acl("a", ACCESS), show_mode("a");
    SHOW(removexattr("a", ACCESS));
    show_acl("a", ACCESS), show_mode("a");
    SHOW(set_acl("a", DEFAULT, "u=6 g=4 o=0"));
    SHOW(set_acl("link", ACCESS, "u=6 g=4 o=0"));
    build("u=6 g=4 o=0");
    SHOW(lsetxattr("link", ACCESS, &acl, acl_size, 0));
    SHOW(lgetxattr("link", ACCESS, list, 100));
    SHOW(lremovexattr("link", ACCESS));
    const char *const wrong[] = {"g=4 o=0", "u=6 g=4", "u=6 o=0 g=4", "u=6 u7=4 g=4 o=0", "u=6 g=4 m=7 g7=4 o=0", "u=6 u=6 g=4 o=0",
                                 "u=17 g=4 o=0", "m=7", NULL};
    for (const char *const *text = wrong; *text; text++) {
        printf("%s: ", *text); SHOW(set_acl("a", ACCESS, *text));
    }
    build("u=6 g=4 o=0");
    SHOW(setxattr("a", ACCESS, &acl, 3, 0));
    SHOW(setxattr("a", ACCESS, &acl, 4, 0));
    SHOW(setxattr("a", ACCESS, &acl, 0, 0));
    SHOW(setxattr("a", ACCESS, &acl, 15, 0));
    acl.entries[0].tag = 3;
    SHOW(setxattr("a", ACCESS, &acl, acl_size, 0));
    acl.version = 1;
    SHOW(setxattr("a", ACCESS, &acl, acl_size, 0));
    SHOW(setxattr("missing", ACCESS, &acl, acl_size, 0));
    SHOW(setxattr("a", "system.posix_acl_other", &acl, acl_size, 0));
    show_acl("a", ACCESS);
}

static void may(const char *what, uid_t user, gid_t group) {
    printf("%s: ", what);
    IN_CHILD("tries", {
        MUST(setgroups(0, NULL) == 0 && setgid(group) == 0 && setuid(user) == 0);
        const char *const paths[] = {"a", "in/b", NULL};
        for (const char *const *path = paths; *path; path++) {
            int reads = open(*path, O_RDONLY), writes = open(*path, O_WRONLY);
            printf("%s %s%s%s ", *path, reads < 0 ? "-" : "r", writes < 0 ? "-" : "w", access(*path, X_OK) ? "-" : "x");
        }
        struct stat status;
        printf("makes %d lists %d\n", mkdir("in/new", 0700) == 0 && rmdir("in/new") == 0, opendir("in") != NULL);
        SHOW(stat("in/b", &status));
    });
}

// The owner of `a` is 30.
static void change_acl(uid_t user) {
    MUST(setgroups(0, NULL) == 0 && setgid(1000) == 0 && setuid(user) == 0);
    SHOW(set_acl("a", ACCESS, "u=6 u9=6 g=4 m=6 o=0"));
    SHOW(removexattr("a", ACCESS));
    SHOW(getxattr("a", ACCESS, NULL, 0));
    SHOW(set_acl("a", ACCESS, "g=4 o=0"));
}

static void acl_rights(void) {
    MUST(mkdir("in", 0750) == 0 && chown("in", 30, 40) == 0 && chown("a", 30, 40) == 0);
    close(open("in/b", O_CREAT | O_RDWR, 0666));
    MUST(set_acl("a", ACCESS, "u=4 u7=7 u8=0 g=2 g9=4 m=6 o=1") == 0);
    MUST(set_acl("in", ACCESS, "u=7 u7=1 u8=7 g=5 g9=7 m=5 o=0") == 0);
    may("owner", 30, 40);
    may("in the list", 7, 1000);
    may("in the list without rights", 8, 9);
    may("in the file's group", 1000, 40);
    may("in the list's group", 1000, 9);
    may("other", 1000, 1000);
    MUST(chmod("a", 0604) == 0 && chmod("in", 0704) == 0);
    may("in the list, without a mask", 7, 1000);
    may("in the group, without a mask", 1000, 40);
    IN_CHILD("another user", change_acl(7));
    IN_CHILD("the owner", { change_acl(30); });
    show_mode("a");
    // The owner is not in the group.
    MUST(chmod("a", 02755) == 0);
    IN_CHILD("the owner", { change_acl(30); });
    show_mode("a");
}

static void made(const char *path) {
    show_mode(path);
    show_acl(path, ACCESS);
    struct stat status;
    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode))
        show_acl(path, DEFAULT);
}

static void acl_defaults(void) {
    MUST(mkdir("above", 0755) == 0);
    SHOW(set_acl("above", DEFAULT, "u=7 u7=7 g=5 m=7 o=0"));
    made("above"), show_list("above");
    umask(077);
    close(open("above/file", O_CREAT | O_RDWR, 0666));
    MUST(mkdir("above/below", 0777) == 0 && mkfifo("above/fifo", 0604) == 0 && symlink("x", "above/link") == 0);
    made("above/file"), made("above/below"), made("above/fifo"), show_mode("above/link");
    close(open("above/below/deep", O_CREAT | O_RDWR, 0640));
    made("above/below/deep");
    SHOW(set_acl("above", DEFAULT, "u=7 g=5 o=4"));
    close(open("above/plain", O_CREAT | O_RDWR, 0666));
    made("above/plain");
    int unnamed = open("above", O_TMPFILE | O_RDWR, 0666);
    struct stat status;
    MUST(fstat(unnamed, &status) == 0);
    printf("unnamed: mode %o\n", status.st_mode);
    SHOW(removexattr("above", DEFAULT));
    close(open("above/masked", O_CREAT | O_RDWR, 0666));
    made("above/masked");
    umask(022);
}

// One kernel changes what another has looked at before.
static void across(void) {
    close(open("x", O_CREAT | O_RDWR, 0644));
    int watch = inotify_init1(IN_NONBLOCK);
    MUST(inotify_add_watch(watch, "x", IN_ATTRIB) == 1);
    static struct stat before, after;
    for (int i = 0; i < HANDS; i++) {
        static char value[2];
        static int next;
        value[0] = 'a' + i, next = (i + 1) % HANDS;
        ON(next, MUST(stat("x", &before) == 0); show_list("x"));
        usleep(20000);
        ON(i, SHOW(set("x", "user.value", value)); SHOW(setxattr("x", "user.big", big, 60000, 0)));
        ON(next, MUST(stat("x", &after) == 0); show_value("x", "user.value"); show_list("x"));
        printf("changed: %d\n", before.st_ctim.tv_sec != after.st_ctim.tv_sec || before.st_ctim.tv_nsec != after.st_ctim.tv_nsec);
        ON(next, SHOW(getxattr("x", "user.big", list, 60000)); SHOW(fgetxattr(fd, "user.fd", list, 100)));
        ON(i, SHOW(set_acl("x", ACCESS, "u=6 u7=6 g=4 m=6 o=4")));
        ON(next, show_mode("x"); show_acl("x", ACCESS); SHOW(removexattr("x", ACCESS)));
        ON(i, show_mode("x"); show_acl("x", ACCESS); SHOW(removexattr("x", "user.value")));
        ON(next, show_value("x", "user.value"); SHOW(removexattr("x", "user.big")));
    }
    struct inotify_event events[64];
    printf("told: %d\n", read(watch, events, sizeof events) > 0);
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place) {
    (void)status, (void)kind, (void)place;
    return remove(path);
}

static void remove_all(void) {
    MUST(chdir("/") == 0);
    nftw(DIRECTORY, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void everything(void) {
    umask(022);
    MUST(mkdir(DIRECTORY, 0755) == 0 && chdir(DIRECTORY) == 0);
    MUST((fd = open("f", O_CREAT | O_RDWR, 0644)) >= 0);
    close(open("many", O_CREAT | O_RDWR, 0644));
    arguments();
    many();
    kinds();
    users();
    capabilities();
    acl_forms();
    acl_rights();
    acl_defaults();
    close(fd);
    remove_all();
}

int main(void) {
    memset(big, 'b', sizeof big);
    remove_all();
    everything();
    start_hands();
    // The last kernel does not have the files.
    ON(HANDS - 1, everything());
    MUST(mkdir(DIRECTORY, 0755) == 0 && chdir(DIRECTORY) == 0 && (fd = open("f", O_CREAT | O_RDWR, 0644)) >= 0);
    MUST(set("f", "user.fd", "by descriptor") == 0);
    across();
    remove_all();
    return 0;
}
