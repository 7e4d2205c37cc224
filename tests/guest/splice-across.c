// splice, tee, vmsplice, sendfile and copy_file_range by a thread on one kernel, between pipes and files made on a second and read on
// a third: what arrives is what was sent, all of it, also where the pipes fill up. Nothing is printed of how much one call moves.
// cob: link=static,dynamic flags=-pthread kernels=1,2,4 compare=host
#include "hands.h"
#include <sys/sendfile.h>
#include <sys/uio.h>

enum { SIZE = 400000 };

static int a[2], b[2], c[2], source, target;
static char sent[SIZE];

static void write_all(int fd) {
    for (long done = 0, put; done < SIZE; done += put)
        MUST((put = write(fd, sent + done, SIZE - done < 10000 ? SIZE - done : 10000)) > 0);
}

static void read_all(const char *what, int fd) {
    static __thread char got[SIZE];
    long done = 0, wrong = 0;
    for (long part; done < SIZE; done += part)
        MUST((part = read(fd, got + done, SIZE - done)) > 0);
    for (long at = 0; at < SIZE; at++)
        wrong += got[at] != sent[at];
    printf("%s: %ld bytes, %ld wrong\n", what, done, wrong);
}

static void splice_all(int from, int to) {
    for (long done = 0, moved; done < SIZE; done += moved)
        MUST((moved = splice(from, NULL, to, NULL, SIZE - done < 50000 ? SIZE - done : 50000, SPLICE_F_MOVE)) > 0);
}

// Each byte to `copy` first, then on.
static void tee_all(int from, int copy, int to) {
    for (long done = 0; done < SIZE;) {
        long doubled = tee(from, copy, SIZE - done, 0), moved;
        MUST(doubled > 0);
        for (; doubled > 0; doubled -= moved, done += moved)
            MUST((moved = splice(from, NULL, to, NULL, doubled, 0)) > 0);
    }
}

static void empty(int fd) { MUST(ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0); }

static void check_target(const char *what) {
    MUST(lseek(target, 0, SEEK_SET) == 0);
    read_all(what, target);
    char byte;
    MUST(read(target, &byte, 1) == 0);
    empty(target);
}

int main(void) {
    for (long at = 0; at < SIZE; at++)
        sent[at] = at * 7 + at / 4096;
    start_hands();
    ON(0, MUST(pipe(a) == 0));
    ON(2, MUST(pipe(b) == 0 && pipe(c) == 0));
    ON(1, source = open("source", O_CREAT | O_RDWR, 0600); target = open("target", O_CREAT | O_RDWR, 0600); MUST(source >= 0 && target >= 0); write_all(source));

    BEGIN(0, write_all(a[1]));
    BEGIN(1, splice_all(a[0], b[1]));
    ON(2, read_all("pipe to pipe", b[0]));
    finish(0), finish(1);

    BEGIN(0, write_all(a[1]));
    BEGIN(1, tee_all(a[0], c[1], b[1]));
    BEGIN(2, read_all("tee, passed on", b[0]));
    // The copy is read by the main thread meanwhile: either pipe may be the one that is full.
    static char copy[SIZE];
    long done = 0;
    for (long part; done < SIZE; done += part)
        MUST((part = read(c[0], copy + done, SIZE - done)) > 0);
    finish(0), finish(1), finish(2);
    printf("tee, the copy: %ld bytes, %d\n", done, memcmp(copy, sent, SIZE));

    MUST(lseek(source, 0, SEEK_SET) == 0);
    BEGIN(1, splice_all(source, b[1]));
    ON(2, read_all("file to pipe", b[0]));
    finish(1);

    BEGIN(0, write_all(a[1]));
    ON(2, splice_all(a[0], target));
    finish(0);
    ON(1, check_target("pipe to file"));

    MUST(lseek(source, 0, SEEK_SET) == 0);
    BEGIN(0, for (long done = 0, moved; done < SIZE; done += moved) MUST((moved = sendfile(b[1], source, NULL, SIZE - done)) > 0));
    ON(1, read_all("sendfile", b[0]));
    finish(0);

    static off_t from;
    ON(2, for (long done = 0, moved; done < SIZE; done += moved) MUST((moved = sendfile(target, source, &from, SIZE - done)) > 0));
    ON(0, check_target("sendfile to a file"));
    from = 0;
    ON(0, for (long done = 0, moved; done < SIZE; done += moved)
              MUST((moved = copy_file_range(source, &from, target, NULL, SIZE - done, 0)) > 0));
    ON(2, check_target("copy_file_range"));

    BEGIN(0, for (long done = 0, moved; done < SIZE; done += moved) {
        struct iovec part = {sent + done, SIZE - done};
        MUST((moved = vmsplice(b[1], &part, 1, 0)) > 0);
    });
    ON(1, read_all("vmsplice", b[0]));
    finish(0);

    // A full pipe: no room is EAGAIN for who may not wait, and room is made from elsewhere.
    ON(2, MUST(fcntl(b[1], F_SETFL, O_NONBLOCK) == 0); while (write(b[1], sent, 4096) > 0); MUST(errno == EAGAIN));
    ON(0, MUST(write(a[1], "x", 1) == 1));
    ON(1, SHOW(splice(a[0], NULL, b[1], NULL, 1, SPLICE_F_NONBLOCK)));
    ON(1, SHOW(tee(a[0], b[1], 1, SPLICE_F_NONBLOCK)));
    ON(0, char page[4096]; MUST(read(b[0], page, sizeof page) == sizeof page));
    ON(1, SHOW(tee(a[0], b[1], 1, SPLICE_F_NONBLOCK)));
    ON(2, SHOW(splice(a[0], NULL, b[1], NULL, 1, SPLICE_F_NONBLOCK)));
    ON(1, SHOW(splice(a[0], NULL, b[1], NULL, 1, SPLICE_F_NONBLOCK)));
    ON(0, close(a[1]));
    ON(1, SHOW(splice(a[0], NULL, b[1], NULL, 1, SPLICE_F_NONBLOCK)));
    ON(2, SHOW(tee(a[0], b[1], 1, 0)));
    ON(2, MUST(fcntl(b[1], F_SETFL, 0) == 0));
    ON(0, SHOW(tee(a[0], b[1], 1, SPLICE_F_NONBLOCK)));
    ON(1, SHOW(splice(a[0], NULL, c[1], NULL, 10, 0)));
    ON(2, SHOW(tee(a[0], c[1], 10, 0)));
    ON(0, SHOW(splice(a[0], NULL, c[1], NULL, 10, 0)));
}
