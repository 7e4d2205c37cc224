// /dev: null, zero, full, random, urandom, tty, and getrandom.
// cob: link=static,dynamic compare=host
#include "test.h"
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/sysmacros.h>

int main(void) {
    char buffer[64], other[64];
    const char *names[] = {"null", "zero", "full", "random", "urandom"};
    for (int i = 0; i < 5; i++) {
        char path[32];
        snprintf(path, sizeof path, "/dev/%s", names[i]);
        int fd = open(path, O_RDWR);
        memset(buffer, 'x', 64);
        long got = read(fd, buffer, 64);
        printf("%s: read %ld first %s\n", names[i], got,
               i > 2 ? "random" : buffer[0] == 'x' ? "untouched" : buffer[0] == 0 ? "zero" : "?");
        struct stat status;
        fstat(fd, &status);
        printf("character device %d: %d %d\n", S_ISCHR(status.st_mode), major(status.st_rdev), minor(status.st_rdev));
        SHOW(write(fd, buffer, 10));
        SHOW(lseek(fd, 5, SEEK_SET) >= 0);
        close(fd);
    }
    SHOW(getrandom(buffer, 64, 0));
    SHOW(getrandom(other, 64, GRND_NONBLOCK));
    printf("differ %d\n", memcmp(buffer, other, 64) != 0);
    SHOW(getrandom(buffer, 1, 0x77));
    SHOW(open("/dev/missing", O_RDONLY));
    int fd = open("/dev/null", O_RDWR);
    SHOW(isatty(fd));
    int size;
    SHOW(ioctl(fd, TIOCGWINSZ, &size));
    SHOW(ioctl(fd, 0x12345678, &size));
    SHOW(ioctl(99, 0, 0));
    SHOW(ftruncate(fd, 10));
    int zero = open("/dev/zero", O_RDWR);
    char *memory = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, zero, 0);
    printf("mapped %d\n", memory != MAP_FAILED && memory[100] == 0);
    printf("/dev/fd %d\n", access("/dev/fd/0", F_OK));
    printf("/dev/stdin %d\n", access("/dev/stdin", F_OK));
}
