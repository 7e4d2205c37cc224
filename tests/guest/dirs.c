// Directories: mkdir, rmdir, readdir, chdir, getcwd, the *at calls, symbolic links and their loops.
// cob: link=static,dynamic compare=host
#include "test.h"
#include <dirent.h>
#include <libgen.h>

static int by_name(const void *a, const void *b) { return strcmp(*(char **)a, *(char **)b); }

static void list(const char *path) {
    DIR *dir = opendir(path);
    MUST(dir);
    char *names[400];
    int count = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        char line[300];
        snprintf(line, sizeof line, "%s:%d", entry->d_name, entry->d_type);
        names[count++] = strdup(line);
    }
    closedir(dir);
    qsort(names, count, sizeof *names, by_name);
    printf("%s: %d entries:", path, count);
    for (int i = 0; i < count && i < 12; i++)
        printf(" %s", names[i]);
    printf("\n");
}

int main(void) {
    char path[4096];
    SHOW(mkdir("d", 0755));
    SHOW(mkdir("d", 0755));
    SHOW(mkdir("missing/d", 0755));
    SHOW(mkdir("d/e", 0700));
    SHOW(rmdir("d"));
    SHOW(rmdir("missing"));
    SHOW(close(creat("d/f", 0640)));
    SHOW(rmdir("d/f"));
    SHOW(rmdir("d/."));
    SHOW(unlink("d/e"));
    SHOW(symlink("f", "d/link"));
    SHOW(symlink("f", "d/link"));
    SHOW(symlink("loop", "loop"));
    SHOW(symlink("nowhere", "dangling"));
    SHOW(open("loop", O_RDONLY));
    SHOW(open("dangling", O_RDONLY));
    SHOW(open("d/link", O_RDONLY | O_NOFOLLOW));
    SHOW(readlink("d/link", path, sizeof path));
    SHOW(readlink("d/f", path, sizeof path));
    SHOW(readlink("d/link", path, 0));
    struct stat status;
    SHOW(lstat("d/link", &status));
    printf("mode %o size %ld\n", status.st_mode, (long)status.st_size);
    SHOW(stat("loop", &status));
    list("d");
    for (int i = 0; i < 300; i++) {
        snprintf(path, sizeof path, "d/e/file-with-a-longer-name-%03d", i);
        close(creat(path, 0600));
    }
    list("d/e");
    SHOW(chdir("d/e"));
    MUST(getcwd(path, sizeof path));
    printf("%s", basename(path));
    MUST(getcwd(path, sizeof path));
    printf(" in %s\n", basename(dirname(path)));
    SHOW(syscall(SYS_getcwd, path, 2));
    SHOW(chdir("file-with-a-longer-name-000"));
    SHOW(chdir(".."));
    SHOW(access("f", F_OK));
    int directory = open(".", O_RDONLY | O_DIRECTORY);
    SHOW(directory);
    SHOW(openat(directory, "f", O_RDONLY));
    SHOW(openat(-5, "f", O_RDONLY));
    SHOW(openat(4, "f", O_RDONLY));
    SHOW(mkdirat(directory, "g", 0711));
    SHOW(fstatat(directory, "g", &status, 0));
    printf("mode %o\n", status.st_mode);
    SHOW(fstatat(directory, "", &status, 0));
    SHOW(fstatat(directory, "", &status, AT_EMPTY_PATH));
    SHOW(renameat(directory, "g", directory, "h"));
    SHOW(rename("e", "h"));
    SHOW(rename("h", "h/inside"));
    SHOW(rename("f", "h"));
    SHOW(rename("h", "f"));
    SHOW(renameat2(directory, "f", directory, "link", RENAME_NOREPLACE));
    SHOW(unlinkat(directory, "h", 0));
    SHOW(unlinkat(directory, "h", AT_REMOVEDIR));
    SHOW(read(directory, path, 10));
    SHOW(fchdir(directory));
    SHOW(fchdir(4));
    SHOW(rmdir("h"));
    list(".");
    SHOW(mkdir("gone", 0755));
    SHOW(chdir("gone"));
    SHOW(rmdir("../gone"));
    SHOW(open("x", O_CREAT | O_RDWR, 0600));
    SHOW(syscall(SYS_getcwd, path, sizeof path));
    SHOW(chdir("/"));
    SHOW(chdir("/../.."));
    MUST(getcwd(path, sizeof path));
    printf("%s\n", path);
}
