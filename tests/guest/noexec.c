// A mount with noexec (man 2 mount, mmap, mprotect): its files are not mapped to be executed, whoever asks, nor made so afterwards; what is
// mapped so stays. Checked where the program may mount.
// cob: link=static,dynamic compare=host
#include "test.h"
#include <sys/mount.h>
#include <sys/personality.h>

#define TWO (2 * PAGE)

static const char *at = "mounted", *name = "mounted/file";

static int opened(int flags) {
    int fd = open(name, flags, 0755);
    MUST(fd >= 0);
    return fd;
}

static void *map(int fd, int protection, int flags) { return mmap(NULL, TWO, protection, flags, fd, 0); }

static void refused(int fd, int flags) {
    for (int protection = PROT_EXEC; protection <= (PROT_EXEC | PROT_READ | PROT_WRITE); protection++)
        if (protection & PROT_EXEC) {
            errno = 0;
            MUST(map(fd, protection, flags) == MAP_FAILED && errno == EPERM);
        }
    char *plain = map(fd, PROT_READ, flags);
    MUST(plain != MAP_FAILED && plain[0] == 'x');
    errno = 0;
    MUST(mprotect(plain, PAGE, PROT_READ | PROT_EXEC) == -1 && errno == EACCES);
    errno = 0;
    MUST(mprotect(plain, TWO, PROT_EXEC) == -1 && errno == EACCES);
    MUST(mprotect(plain, TWO, PROT_READ | PROT_WRITE) == 0 && mprotect(plain, TWO, PROT_READ) == 0);
    // A child's is not, either.
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0)
        _exit(mprotect(plain, PAGE, PROT_EXEC) == -1 && errno == EACCES ? 0 : 1);
    int status;
    MUST(waitpid(child, &status, 0) == child && status == 0);
    MUST(munmap(plain, TWO) == 0);
}

static void *maps_elsewhere(int flags) {
    int fd = opened(O_RDWR);
    refused(fd, flags);
    close(fd);
    return NULL;
}

static void mounts(void) {
    int fd = opened(O_RDWR | O_CREAT);
    MUST(pwrite(fd, "x", 1, 0) == 1 && ftruncate(fd, TWO) == 0);
    for (int moved = 0; moved < 2; moved++) {
        move_to(moved ? cpu_count() - 1 : 0);
        refused(fd, MAP_PRIVATE);
        refused(fd, MAP_SHARED);
        maps_elsewhere(MAP_PRIVATE);
        maps_elsewhere(MAP_SHARED);
        int flags = fcntl(fd, F_GETFL);
        MUST((flags & ~0100000) == O_RDWR);
        // To be readable means to be executable, but not there.
        MUST(personality(READ_IMPLIES_EXEC) >= 0);
        char *plain = map(fd, PROT_READ, MAP_PRIVATE);
        MUST(plain != MAP_FAILED && munmap(plain, TWO) == 0);
        MUST(personality(0) == READ_IMPLIES_EXEC);
        errno = 0;
        MUST(execl(name, name, NULL) == -1 && errno == EACCES);
        // Memory that is nobody's file may be executed.
        char *memory = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        MUST(memory != MAP_FAILED && munmap(memory, PAGE) == 0);
    }
    move_to(0);
    MUST(mount(NULL, at, NULL, MS_REMOUNT, NULL) == 0);
    char *program = map(fd, PROT_READ | PROT_EXEC, MAP_PRIVATE), *plain = map(fd, PROT_READ, MAP_SHARED);
    MUST(program != MAP_FAILED && plain != MAP_FAILED);
    MUST(mount(NULL, at, NULL, MS_REMOUNT | MS_NOEXEC, NULL) == 0);
    MUST(mprotect(program, TWO, PROT_READ) == 0 && mprotect(program, TWO, PROT_EXEC) == 0 && mprotect(plain, TWO, PROT_EXEC) == 0);
    refused(fd, MAP_SHARED);
    munmap(program, TWO), munmap(plain, TWO);
    close(fd);
}

int main(void) {
    MUST(mkdir(at, 0755) == 0);
    if (mount("none", at, "tmpfs", MS_NOEXEC, "size=64k") == 0) {
        mounts();
        MUST(umount(at) == 0);
    } else {
        MUST(errno == EPERM);
    }
    MUST(rmdir(at) == 0);
    printf("ok\n");
    return 0;
}
