// cob: link=static compare=self root=initramfs kernels=1,4
// The first program of an initramfs finds the archive's files, mounts what Linux lets it mount, and starts programs.
// (`cob test` packs it as /init, with /etc/text, mode 0640, and the link /etc/link that leads to it.)
#include "test.h"
#include <sys/mount.h>
#include <sys/sysmacros.h>
#include <dirent.h>

#define CHECK(expression)                                                                                            \
    do {                                                                                                             \
        if (!(expression)) {                                                                                         \
            printf("line %d: %s (%s)\n", __LINE__, #expression, error_name(errno));                                  \
            exit(1);                                                                                                 \
        }                                                                                                            \
    } while (0)

static void read_text(const char *path, char *text, size_t size) {
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    ssize_t length = read(fd, text, size - 1);
    CHECK(length >= 0);
    text[length] = 0;
    close(fd);
}

int main(int argc, char **argv) {
    struct stat st;
    char text[4096];
    if (argc == 2 && !strcmp(argv[1], "child"))
        return 42;
    // The archive's files, with their attributes.
    CHECK(!lstat("/etc/text", &st) && st.st_mode == (S_IFREG | 0640) && st.st_size == 6 && st.st_uid == 0);
    read_text("/etc/text", text, sizeof text);
    CHECK(!strcmp(text, "hello\n"));
    CHECK(!lstat("/etc/link", &st) && S_ISLNK(st.st_mode));
    read_text("/etc/link", text, sizeof text);
    CHECK(!strcmp(text, "hello\n"));
    CHECK(!stat("/dev/console", &st) && S_ISCHR(st.st_mode) && st.st_rdev == makedev(5, 1));
    CHECK(!stat("/root", &st) && st.st_mode == (S_IFDIR | 0700));
    CHECK(getuid() == 0 && getgid() == 0);
    // Nothing is mounted yet, and the root can be written.
    CHECK(stat("/proc/self", &st) == -1 && errno == ENOENT);
    CHECK(stat("/dev/null", &st) == -1 && errno == ENOENT);
    int fd = open("/etc/new", O_CREAT | O_RDWR, 0600);
    CHECK(fd >= 0 && write(fd, "x", 1) == 1 && !fstat(fd, &st) && st.st_size == 1);
    CHECK(!mount("proc", "/proc", "proc", 0, NULL));
    CHECK(!mount("sys", "/sys", "sysfs", 0, NULL));
    CHECK(!mount("dev", "/dev", "devtmpfs", 0, NULL));
    CHECK(!mount("tmp", "/tmp", "tmpfs", 0, "mode=0755"));
    CHECK(mount("x", "/tmp", "nosuchfs", 0, NULL) == -1 && errno == ENODEV);
    CHECK(!stat("/dev/null", &st) && st.st_rdev == makedev(1, 3));
    CHECK(!stat("/tmp", &st) && st.st_mode == (S_IFDIR | 0755));
    ssize_t length = readlink("/proc/self/exe", text, sizeof text);
    CHECK(length == 5 && !memcmp(text, "/init", 5));
    read_text("/proc/self/mounts", text, sizeof text);
    CHECK(strstr(text, "proc /proc proc") && strstr(text, "/sys sysfs"));
    DIR *cpus = opendir("/sys/devices/system/cpu");
    CHECK(cpus);
    closedir(cpus);
    // And it is a system like any other.
    pid_t child = fork();
    if (!child) {
        execl("/init", "/init", "child", NULL);
        _exit(1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 42);
    puts("ok");
    return 0;
}
