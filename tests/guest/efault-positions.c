// A read into memory that can't be written, or ends too early, has read only what arrived: the position stays where that ends.
// Also from another kernel than the file's.
// cob: link=static kernels=1,4 compare=host
#include "test.h"
#include <sys/uio.h>

// More than is read at once, or kept of another kernel's file.
static char bytes[400000];
static char *edge, *volatile low = (char *)8;

static void show_reads(int fd) {
    struct iovec wild[2] = {{low, 10}, {edge, 10}}, half[2] = {{edge, 10}, {low, 10}};
    MUST(lseek(fd, 0, SEEK_SET) == 0);
    SHOW(read(fd, low, 10));
    SHOW(lseek(fd, 0, SEEK_CUR));
    SHOW(readv(fd, wild, 2));
    SHOW(lseek(fd, 0, SEEK_CUR));
    SHOW(readv(fd, half, 2));
    SHOW(lseek(fd, 0, SEEK_CUR));
    SHOW(read(fd, edge + PAGE - 5, 10));
    SHOW(lseek(fd, 0, SEEK_CUR));
    SHOW(preadv2(fd, half, 2, -1, 0));
    SHOW(lseek(fd, 0, SEEK_CUR));
    MUST(lseek(fd, 0, SEEK_SET) == 0);
    SHOW(read(fd, edge + PAGE - 5, sizeof bytes));
    SHOW(lseek(fd, 0, SEEK_CUR));
    SHOW(pread(fd, low, 10, 3));
    SHOW(lseek(fd, 0, SEEK_CUR));
}

static void show_entries(void) {
    int fd = open(".", O_RDONLY | O_DIRECTORY);
    MUST(fd >= 0);
    SHOW(syscall(SYS_getdents64, fd, low, 4096));
    SHOW(syscall(SYS_getdents, fd, low, 4096));
    SHOW(syscall(SYS_getdents64, fd, edge, 4096) > 0);
    SHOW(syscall(SYS_getdents64, fd, edge, 4096));
    close(fd);
}

int main(void) {
    edge = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(edge != MAP_FAILED && mprotect(edge + PAGE, PAGE, PROT_NONE) == 0);
    int file = open("file", O_CREAT | O_RDWR, 0600), memory = syscall(SYS_memfd_create, "memory", 0);
    MUST(write(file, bytes, sizeof bytes) == sizeof bytes && write(memory, bytes, 1000) == 1000);
    for (int away = 0; away < 2; away++) {
        if (away)
            move_to(cpu_count() - 1);
        printf("-- %s\n", away ? "elsewhere" : "here");
        show_reads(file);
        show_reads(memory);
        int other = open("file", O_RDONLY);
        show_reads(other);
        close(other);
        show_entries();
    }
    return 0;
}
