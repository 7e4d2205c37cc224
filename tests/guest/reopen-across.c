// Open files that are opened anew by their links in /proc, wherever the file is and whoever opens it: memfds, files without a
// name, pipes. The new descriptor has rights, flags and a position of its own; what was opened with O_PATH can do nothing else.
// cob: link=static,dynamic flags=-pthread kernels=1,2,4 compare=host
#include "hands.h"

static int fd, again, one, two;
static char path[64], text[64];

static const char *first(int from) {
    memset(text, 0, sizeof text);
    errno = 0;
    return read(from, text, 5) < 0 ? error_name(errno) : text;
}

static int open_as(const char *how, int flags) {
    snprintf(path, sizeof path, how, fd);
    return again = open(path, flags, 0600);
}

#define AGAIN(flags) open_as(how, flags)

static const char *how;

static void made(const char *from) {
    how = from;
    struct stat before, after;
    MUST(ftruncate(fd, 0) == 0 && pwrite(fd, "hello, world", 12, 0) == 12 && lseek(fd, 5, SEEK_SET) == 5);
    // A position and an access mode of its own.
    MUST(AGAIN(O_RDONLY) >= 0);
    printf("read only: %s", first(again));
    printf(", then %s", first(fd));
    printf(", %ld and %ld\n", (long)lseek(again, 0, SEEK_CUR), (long)lseek(fd, 0, SEEK_CUR));
    printf("flags %x, was %x\n", fcntl(again, F_GETFL), fcntl(fd, F_GETFL));
    printf("the same file: %d\n", fstat(fd, &before) == 0 && fstat(again, &after) == 0 && before.st_ino == after.st_ino &&
                                      before.st_dev == after.st_dev);
    SHOW(write(again, "x", 1));
    SHOW(ftruncate(again, 1));
    TRY(mmap(NULL, PAGE, PROT_WRITE, MAP_SHARED, again, 0));
    // The description a descriptor came from does not matter: rights are the file's.
    int reader = again;
    snprintf(path, sizeof path, how, reader);
    MUST((again = open(path, O_WRONLY | O_APPEND)) >= 0);
    close(reader);
    SHOW(write(again, "!", 1));
    printf("write only: %s\n", first(again));
    printf("flags %x\n", fcntl(again, F_GETFL));
    close(again);
    // Its own lock, as any open(2): the first still has its.
    MUST(AGAIN(O_RDWR | O_CLOEXEC) >= 0);
    SHOW(fcntl(again, F_GETFD));
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    MUST(fcntl(fd, F_OFD_SETLK, &lock) == 0);
    SHOW(fcntl(again, F_OFD_SETLK, &lock));
    lock.l_type = F_UNLCK;
    MUST(fcntl(fd, F_OFD_SETLK, &lock) == 0);
    lock.l_type = F_WRLCK;
    SHOW(fcntl(again, F_OFD_SETLK, &lock));
    // One memory.
    char *memory = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0);
    MUST(memory != MAP_FAILED);
    memory[0] = 'j';
    lseek(fd, 0, SEEK_SET);
    printf("mapped: %s\n", first(fd));
    munmap(memory, PAGE);
    close(again);
    // A place, nothing else; but from there on everything.
    MUST(AGAIN(O_PATH) >= 0);
    printf("place: %s, %x", first(again), fcntl(again, F_GETFL) & O_PATH);
    printf(", %d", fstat(again, &after) == 0 && before.st_ino == after.st_ino);
    int place = again;
    snprintf(path, sizeof path, how, place);
    MUST((again = open(path, O_RDONLY)) >= 0);
    close(place);
    printf(", %s\n", first(again));
    close(again);
    snprintf(path, sizeof path, how, fd);
    SHOW(open(path, O_RDWR | O_DIRECTORY));
    SHOW(open(path, O_RDWR | O_NOFOLLOW));
    SHOW(open(path, O_RDWR | O_CREAT | O_EXCL, 0600));
    // What has a path can be changed by it.
    SHOW(truncate(path, 3));
    SHOW(chmod(path, 0640));
    SHOW(fstat(fd, &after));
    printf("%ld %o\n", (long)after.st_size, after.st_mode & 0777);
    MUST(AGAIN(O_RDWR | O_TRUNC) >= 0);
    SHOW(fstat(fd, &after));
    printf("%ld\n", (long)after.st_size);
    close(again);
    SHOW(chmod(path, 0));
}

static void pipes(void) {
    snprintf(path, sizeof path, "/proc/self/fd/%d", one);
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    snprintf(path, sizeof path, "/dev/fd/%d", two);
    int writer = open(path, O_WRONLY);
    MUST(reader >= 0 && writer >= 0);
    MUST(write(writer, "wrote", 5) == 5);
    close(two);
    printf("pipe: %s", first(one));
    printf(", %x, %s", fcntl(reader, F_GETFL), first(reader));
    close(writer);
    printf(", end: '%s'", first(reader));
    snprintf(path, sizeof path, "/proc/self/fd/%d", reader);
    int place = open(path, O_PATH);
    printf(", %s", first(place));
    printf(", %s\n", truncate(path, 0) == 0 ? "truncated" : error_name(errno));
    close(place), close(reader), close(one);
}

static void unnamed(void) {
    fd = open("gone", O_RDWR | O_CREAT | O_EXCL, 0600);
    MUST(fd >= 0 && unlink("gone") == 0);
}

static void program(void) {
    // /proc/self/exe's like, as a memfd: what runs from there.
    int from = open("/proc/self/exe", O_RDONLY), got;
    static char piece[65536];
    MUST(from >= 0 && (fd = memfd_create("program", 0)) >= 0);
    while ((got = (int)read(from, piece, sizeof piece)) > 0)
        MUST(write(fd, piece, got) == got);
    close(from);
}

static void executed(void) {
    fflush(stdout);
    pid_t pid = vfork();
    if (pid == 0) {
        // The link, not the descriptor: opened anew to be executed.
        execl(path, "program", "child", NULL);
        _exit(errno);
    }
    int status;
    MUST(waitpid(pid, &status, 0) == pid);
    show_status("program", status);
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "child")) {
        puts("runs");
        return 7;
    }
    start_hands();
    for (int maker = 0; maker < HANDS; maker++)
        for (int opener = 0; opener < HANDS; opener++) {
            printf("-- made by %d, opened by %d\n", maker, opener);
            fflush(stdout);
            ON(maker, MUST((fd = memfd_create("again", MFD_ALLOW_SEALING)) >= 0));
            ON(opener, made("/proc/self/fd/%d"));
            SHOW(close(fd));
            ON(maker, unnamed());
            ON(opener, made("/dev/fd/%d"));
            SHOW(close(fd));
            ON(maker, int ends[2]; MUST(pipe(ends) == 0); one = ends[0]; two = ends[1]);
            ON(opener, pipes());
            ON(maker, program());
            snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
            ON(opener, executed());
            close(fd);
        }
    // By another process's directory, and for one who may not.
    ON(1, MUST((fd = memfd_create("again", 0)) >= 0 && fchmod(fd, 0600) == 0 && write(fd, "other", 5) == 5));
    snprintf(path, sizeof path, "/proc/%d/fd/%d", getpid(), fd);
    IN_CHILD("another", {
        move_to(hands[2].cpu);
        close(fd);
        printf("%s\n", first(open(path, O_RDONLY)));
    });
    IN_CHILD("a stranger", {
        move_to(hands[2].cpu);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        MUST(setuid(1000) == 0);
        SHOW(open(path, O_RDONLY));
        printf("%s\n", pread(fd, text, 5, 0) == 5 ? "has what it has" : "lost");
    });
    close(fd);
    return 0;
}
