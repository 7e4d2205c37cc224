// Files used by a thread far from where they live: reading to the end, positions, descriptors that come and go, directories.
// cob: link=static,dynamic compare=host
#include "test.h"
#include <dirent.h>
#include <sys/uio.h>

static void work(int cpu) {
    move_to(cpu);
    int fd = open("moved", O_RDWR | O_CREAT | O_TRUNC, 0644);
    MUST(fd >= 0);
    char data[10000], back[10000];
    for (unsigned i = 0; i < sizeof data; i++)
        data[i] = (char)(i * 7 + (unsigned)cpu);
    SHOW(write(fd, data, sizeof data) == sizeof data);
    move_to(0);
    SHOW(lseek(fd, 0, SEEK_SET));
    move_to(cpu);
    size_t total = 0;
    ssize_t got;
    while ((got = read(fd, back + total, 4096)) > 0)
        total += (size_t)got;
    printf("read %zu, end %zd, same %d\n", total, got, memcmp(data, back, sizeof data) == 0);
    SHOW(pread(fd, back, 10, 9995));
    SHOW(pread(fd, back, 10, 10000));
    int copy = dup(fd);
    move_to(0);
    SHOW(lseek(copy, 5, SEEK_SET));
    move_to(cpu);
    SHOW(read(fd, back, 3));
    SHOW(lseek(copy, 0, SEEK_CUR));
    SHOW(close(fd));
    SHOW(read(fd, back, 1));
    SHOW(close(copy));
    int ends[2];
    MUST(pipe(ends) == 0);
    move_to(0);
    SHOW(write(ends[1], "hello", 5));
    move_to(cpu);
    SHOW(read(ends[0], back, sizeof back));
    close(ends[1]);
    SHOW(read(ends[0], back, sizeof back));
    close(ends[0]);
    MUST(mkdir("directory", 0755) == 0);
    for (int i = 0; i < 5; i++) {
        char name[32];
        snprintf(name, sizeof name, "directory/%d", i);
        MUST((fd = open(name, O_CREAT | O_WRONLY, 0600)) >= 0);
        close(fd);
    }
    DIR *directory = opendir("directory");
    int count = 0;
    while (readdir(directory))
        count++;
    closedir(directory);
    printf("entries %d\n", count);
    for (int i = 0; i < 5; i++) {
        char name[32];
        snprintf(name, sizeof name, "directory/%d", i);
        MUST(unlink(name) == 0);
    }
    SHOW(rmdir("directory"));
    SHOW(unlink("moved"));
}

int main(void) {
    work(1);
    work(cpu_count() - 1);
}
