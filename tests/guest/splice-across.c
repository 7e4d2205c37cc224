// splice, tee, vmsplice, sendfile and copy_file_range by a thread on one kernel, between pipes and files made on a second and read on
// a third: what arrives is what was sent, all of it, also where the pipes fill up, and once, also where others read the same pipe on
// other kernels meanwhile. Nothing is printed of how much one call moves.
// cob: link=static,dynamic flags=-pthread kernels=1,2,4 compare=host
#include "hands.h"
#include <sys/sendfile.h>
#include <sys/socket.h>
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

// Bytes that are numbers, so that each can be told from all others; everybody moves whole ones.
enum { NUMBERS = 40000, MOST = 500 };

static int d[2], e[2], sockets[2];
static unsigned char by_read[NUMBERS], by_splice[NUMBERS];
static long moved_on;

static void write_numbers(void) {
    long numbers[MOST];
    for (long next = 0; next < NUMBERS;) {
        long count = 1 + next % MOST;
        if (count > NUMBERS - next)
            count = NUMBERS - next;
        for (long at = 0; at < count; at++)
            numbers[at] = next + at;
        // At most PIPE_BUF bytes: all of them or none.
        MUST(write(d[1], numbers, count * sizeof *numbers) == count * (long)sizeof *numbers);
        next += count;
    }
    close(d[1]);
}

static void read_numbers(int fd, unsigned char *seen) {
    long numbers[MOST], part;
    while ((part = read(fd, numbers, sizeof numbers)) > 0) {
        MUST(part % sizeof *numbers == 0);
        for (long at = 0; at < part / (long)sizeof *numbers; at++) {
            MUST(numbers[at] >= 0 && numbers[at] < NUMBERS);
            seen[numbers[at]]++;
        }
    }
    MUST(part == 0);
}

static void splice_numbers(int to) {
    long moved;
    for (moved_on = 0; (moved = splice(d[0], NULL, to, NULL, 3200, 0)) > 0; moved_on += moved)
        MUST(moved % sizeof(long) == 0);
    MUST(moved == 0);
}

// Each number has come to one of the readers, once.
static void check_numbers(const char *what) {
    long lost = 0, twice = 0, spliced = 0;
    for (long at = 0; at < NUMBERS; at++) {
        lost += by_read[at] + by_splice[at] == 0;
        twice += by_read[at] + by_splice[at] > 1;
        spliced += by_splice[at];
    }
    printf("%s beside a reader: %ld lost, %ld twice, %ld too many\n", what, lost, twice, spliced - moved_on / (long)sizeof(long));
    memset(by_read, 0, sizeof by_read);
    memset(by_splice, 0, sizeof by_splice);
    close(d[0]);
}

// What tee copies is what was at the front at one moment, whoever reads it then.
static void tee_numbers(void) {
    long numbers[MOST], doubled, wrong = 0;
    while ((doubled = tee(d[0], e[1], sizeof numbers, 0)) > 0) {
        long got = 0;
        for (long part; got < doubled; got += part)
            MUST((part = read(e[0], (char *)numbers + got, doubled - got)) > 0);
        for (long at = 1; at < doubled / (long)sizeof *numbers; at++)
            wrong += numbers[at] != numbers[at - 1] + 1;
    }
    MUST(doubled == 0);
    printf("tee beside a reader: %ld wrong\n", wrong);
}

static void beside_a_reader(void) {
    ON(0, MUST(pipe(d) == 0));
    ON(2, MUST(pipe(e) == 0));
    BEGIN(0, write_numbers());
    BEGIN(1, splice_numbers(e[1]); close(e[1]));
    BEGIN(2, read_numbers(d[0], by_read));
    read_numbers(e[0], by_splice);
    finish(0), finish(1), finish(2);
    check_numbers("splice to a pipe");
    close(e[0]);

    ON(1, MUST(pipe(d) == 0));
    BEGIN(1, write_numbers());
    BEGIN(2, splice_numbers(target));
    BEGIN(0, read_numbers(d[0], by_read));
    finish(0), finish(1), finish(2);
    MUST(lseek(target, 0, SEEK_SET) == 0);
    ON(0, read_numbers(target, by_splice));
    check_numbers("splice to a file");
    empty(target);

    ON(2, MUST(pipe(d) == 0));
    ON(0, MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0));
    BEGIN(2, write_numbers());
    BEGIN(0, splice_numbers(sockets[0]); close(sockets[0]));
    BEGIN(1, read_numbers(d[0], by_read));
    read_numbers(sockets[1], by_splice);
    finish(0), finish(1), finish(2);
    check_numbers("splice to a socket");
    close(sockets[1]);

    // Two that splice, and nobody who reads.
    ON(0, MUST(pipe(d) == 0));
    ON(2, MUST(pipe(e) == 0));
    static long first, second, moved;
    BEGIN(0, write_numbers());
    BEGIN(1, while ((moved = splice(d[0], NULL, e[1], NULL, 2400, 0)) > 0) first += moved; MUST(moved == 0));
    BEGIN(2, long moved; while ((moved = splice(d[0], NULL, e[1], NULL, 800, 0)) > 0) second += moved; MUST(moved == 0));
    for (long left = NUMBERS * sizeof(long), part; left > 0; left -= part) {
        long numbers[MOST];
        MUST((part = read(e[0], numbers, sizeof numbers)) > 0 && part % sizeof(long) == 0);
        for (long at = 0; at < part / (long)sizeof(long); at++)
            by_splice[numbers[at]]++;
    }
    finish(0), finish(1), finish(2);
    moved_on = first + second;
    check_numbers("splice twice");
    close(e[0]), close(e[1]);

    ON(0, MUST(pipe(d) == 0));
    ON(2, MUST(pipe(e) == 0));
    BEGIN(0, write_numbers());
    BEGIN(1, tee_numbers());
    BEGIN(2, read_numbers(d[0], by_read));
    finish(0), finish(1), finish(2);
    close(e[1]);
    read_numbers(e[0], by_splice);
    moved_on = 0;
    check_numbers("tee");
    close(e[0]);
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

    beside_a_reader();
}
