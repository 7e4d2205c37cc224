// The mmap family: what works, what it leaves behind, and every errno.
// cob: link=static,dynamic compare=host
#include "test.h"

#define MAP(...) ((long)mmap(__VA_ARGS__) == -1 ? -1 : 0)
enum { RW = PROT_READ | PROT_WRITE, ANON = MAP_PRIVATE | MAP_ANONYMOUS };

static int mapped(void *address) {
    unsigned char vector;
    return mincore(address, 1, &vector) == 0;
}

int main(void) {
    SHOW(MAP(NULL, 0, RW, ANON, -1, 0));
    SHOW(MAP(NULL, PAGE, RW, MAP_ANONYMOUS, -1, 0));
    SHOW(MAP(NULL, PAGE, RW, MAP_PRIVATE, -1, 0));
    SHOW(MAP(NULL, PAGE, RW, MAP_PRIVATE, 77, 0));
    SHOW(MAP(NULL, -PAGE, RW, ANON, -1, 0));
    SHOW(MAP((void *)1, PAGE, RW, ANON | MAP_FIXED, -1, 0));
    SHOW(MAP((void *)0x7ffffffff000, 2 * PAGE, RW, ANON | MAP_FIXED, -1, 0));
    SHOW(MAP((void *)0xffff800000000000, PAGE, RW, ANON | MAP_FIXED, -1, 0));
    SHOW(MAP(NULL, 1L << 47, RW, ANON | MAP_NORESERVE, -1, 0));
    int fd = open("file", O_CREAT | O_RDWR, 0600);
    MUST(write(fd, "0123456789", 10) == 10);
    SHOW(MAP(NULL, PAGE, RW, MAP_PRIVATE, fd, 100));
    int reader = open("file", O_RDONLY), writer = open("file", O_WRONLY);
    SHOW(MAP(NULL, PAGE, RW, MAP_SHARED, reader, 0));
    SHOW(MAP(NULL, PAGE, RW, MAP_PRIVATE, reader, 0));
    SHOW(MAP(NULL, PAGE, PROT_READ, MAP_SHARED, writer, 0));
    int directory = open(".", O_RDONLY);
    SHOW(MAP(NULL, PAGE, PROT_READ, MAP_PRIVATE, directory, 0));

    char *area = mmap(NULL, 16 * PAGE, RW, ANON, -1, 0);
    for (int page = 0; page < 16; page++)
        area[page * PAGE] = 'a' + page;
    SHOW(munmap(area + 1, PAGE));
    SHOW(munmap(area, 0));
    SHOW(munmap(area + 4 * PAGE, 2 * PAGE));
    SHOW(munmap(area + 4 * PAGE, 2 * PAGE));
    printf("%d %d %d %d\n", mapped(area + 3 * PAGE), mapped(area + 4 * PAGE), mapped(area + 5 * PAGE),
           mapped(area + 6 * PAGE));
    printf("%c %c\n", area[3 * PAGE], area[6 * PAGE]);
    SHOW(mprotect(area + 3 * PAGE, 4 * PAGE, PROT_READ));
    printf("%d\n", mapped(area + 3 * PAGE));
    IN_CHILD("before the hole", area[3 * PAGE] = 1);
    IN_CHILD("after the hole", area[6 * PAGE] = 1);
    SHOW(mprotect(area + 1, PAGE, PROT_READ));
    SHOW(mprotect(area, PAGE, 0x100));
    SHOW(mprotect(area, 0, PROT_READ));
    SHOW(mprotect(area, PAGE, PROT_NONE));
    IN_CHILD("PROT_NONE", (void)*(volatile char *)area);
    SHOW(mprotect(area, PAGE, RW));
    printf("%c\n", area[0]);
    SHOW(MAP(area + PAGE, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0));
    SHOW(MAP(area + 4 * PAGE, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0));
    SHOW(MAP(area + PAGE, PAGE, RW, ANON | MAP_FIXED, -1, 0));
    printf("%d %c\n", area[PAGE], area[2 * PAGE]);

    char *moved = mremap(area + 8 * PAGE, 4 * PAGE, 2 * PAGE, 0);
    printf("shrunk in place %d, tail %d\n", moved == area + 8 * PAGE, mapped(area + 10 * PAGE));
    moved = mremap(area + 8 * PAGE, 2 * PAGE, 4 * PAGE, 0);
    printf("grown in place %d %c %d\n", moved == area + 8 * PAGE, moved == MAP_FAILED ? '-' : moved[PAGE],
           moved == MAP_FAILED ? -1 : moved[2 * PAGE]);
    SHOW((long)mremap(area + 8 * PAGE, 4 * PAGE, 8 * PAGE, 0) == -1 ? -1 : 0);
    moved = mremap(area + 8 * PAGE, 4 * PAGE, 64 * PAGE, MREMAP_MAYMOVE);
    MUST(moved != MAP_FAILED);
    printf("moved %c %c %d, old %d\n", moved[0], moved[PAGE], moved[60 * PAGE], mapped(area + 8 * PAGE));
    SHOW((long)mremap(moved + 1, PAGE, PAGE, 0) == -1 ? -1 : 0);
    SHOW((long)mremap(moved, PAGE, 0, 0) == -1 ? -1 : 0);
    SHOW((long)mremap(moved, PAGE, PAGE, 0x80) == -1 ? -1 : 0);
    SHOW((long)mremap(moved, PAGE, PAGE, MREMAP_FIXED, area) == -1 ? -1 : 0);
    SHOW((long)mremap((void *)PAGE, PAGE, 2 * PAGE, MREMAP_MAYMOVE) == -1 ? -1 : 0);
    SHOW((long)mremap(moved, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, moved + PAGE) == -1 ? -1 : 0);
    SHOW((long)mremap(moved, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, moved + PAGE) == -1 ? -1 : 0);
    SHOW((long)mremap(moved, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, area + 1) == -1 ? -1 : 0);
    char *target = mremap(moved, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, area + 4 * PAGE);
    printf("fixed %d %c %c\n", target == area + 4 * PAGE, target[0], target[PAGE]);

    char *shared = mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0), *private = mmap(NULL, PAGE, RW, MAP_PRIVATE, fd, 0);
    shared[0] = 'S';
    private[1] = 'P';
    char text[11] = {0};
    pread(fd, text, 10, 0);
    printf("file %s, private %.10s\n", text, private);
    MUST(pwrite(fd, "WW", 2, 4) == 2);
    printf("shared %.10s, beyond %d\n", shared, shared[10]);
    SHOW(msync(shared, PAGE, MS_SYNC));
    SHOW(msync(shared + 1, PAGE, MS_SYNC));
    SHOW(msync(shared, PAGE, MS_SYNC | MS_ASYNC));
    SHOW(mprotect(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, reader, 0), PAGE, RW));
    IN_CHILD("child writes", shared[2] = 'C'; private[2] = 'X');
    printf("shared %.10s, private %.10s\n", shared, private);

    SHOW(madvise(area, PAGE, MADV_DONTNEED));
    printf("dropped %d\n", area[0]);
    SHOW(madvise(area + 1, PAGE, MADV_DONTNEED));
    SHOW(madvise(area, PAGE, 9999));
    SHOW(madvise(private, PAGE, MADV_DONTNEED));
    printf("private again %.10s\n", private);
    SHOW(madvise((void *)PAGE, PAGE, MADV_WILLNEED));
    SHOW(mlock(area, PAGE));
    SHOW(munlock(area, PAGE));
    unsigned char vector[2];
    SHOW(mincore(area + 1, PAGE, vector));
    char *growing = mmap(NULL, 64 << 20, RW, ANON | MAP_NORESERVE, -1, 0);
    growing[40 << 20] = 1;
    printf("large %d %d\n", growing[0], growing[40 << 20]);
    SHOW(munmap(growing, 64 << 20));
}
