// What posix_fadvise and madvise say about reads: which pages of a file are in memory afterwards, as mincore sees it, and what /proc shows of it.
// cob: link=static kernels=1,2,4 compare=host
#include "test.h"

#define PAGES 8
#define NAME "/usr/share/common-licenses/GPL-3"

static int file;
static char *map;
static unsigned char seen[PAGES];

// How many of the file's pages are in memory.
static int resident(void) {
    MUST(mincore(map, PAGES * PAGE, seen) == 0);
    int count = 0;
    for (int page = 0; page < PAGES; page++)
        count += seen[page] & 1;
    return count;
}

static void forget(void) {
    MUST(madvise(map, PAGES * PAGE, MADV_DONTNEED) == 0);
    MUST(posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0);
}

// The two flags that advice sets, of the mapping.
static void flags(void) {
    char line[256], start[32];
    snprintf(start, sizeof start, "%lx-", (unsigned long)map);
    FILE *smaps = fopen("/proc/self/smaps", "r");
    MUST(smaps != NULL);
    int ours = 0;
    while (fgets(line, sizeof line, smaps)) {
        if (strncmp(line, start, strlen(start)) == 0)
            ours = 1;
        if (ours && strncmp(line, "VmFlags:", 8) == 0) {
            printf("sr %d, rr %d\n", strstr(line, " sr") != NULL, strstr(line, " rr") != NULL);
            break;
        }
    }
    fclose(smaps);
}

int main(void) {
    static char page[PAGES * PAGE];
    file = open(NAME, O_RDONLY);
    MUST(file >= 0);
    map = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_SHARED, file, 0);
    MUST(map != MAP_FAILED);
    MUST(read(file, page, sizeof page) == sizeof page);
    printf("read: %d\n", resident());
    forget();
    printf("not needed: %d\n", resident());
    MUST(madvise(map, PAGES * PAGE, MADV_RANDOM) == 0);
    flags();
    SHOW(map[6 * PAGE] == page[6 * PAGE]);
    SHOW(map[2 * PAGE] == page[2 * PAGE]);
    printf("two faults here and there: %d\n", resident());
    MUST(madvise(map, PAGES * PAGE, MADV_SEQUENTIAL) == 0);
    flags();
    MUST(madvise(map, PAGES * PAGE, MADV_NORMAL) == 0);
    flags();
    SHOW(map[3 * PAGE] == page[3 * PAGE]);
    printf("more comes with a fault: %d\n", resident() > 3);
    forget();
    MUST(posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM) == 0);
    MUST(pread(file, page, 10, 5 * PAGE) == 10);
    MUST(pread(file, page, 10, 6 * PAGE) == 10);
    MUST(pread(file, page, 10, 0) == 10);
    printf("three reads here and there: %d\n", resident());
    SHOW(fcntl(file, F_GETFL) & ~0100000);
    // Of the first and last page a part is still needed.
    MUST(posix_fadvise(file, 5 * PAGE + 1, 2 * PAGE - 2, POSIX_FADV_DONTNEED) == 0);
    printf("parts stay: %d\n", resident());
    // Nobody sees a page go that a mapping shows.
    SHOW(map[6 * PAGE] == page[6 * PAGE]);
    MUST(posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0);
    resident();
    printf("mapped: %d\n", seen[6] & 1);
    MUST(posix_fadvise(file, 0, 0, POSIX_FADV_NOREUSE) == 0);
    MUST(madvise(map, PAGES * PAGE, MADV_WILLNEED) == 0);
    while (resident() < PAGES)
        usleep(1000);
    forget();
    MUST(posix_fadvise(file, 2 * PAGE, 3 * PAGE, POSIX_FADV_WILLNEED) == 0);
    while (resident() < 3)
        usleep(1000);
    printf("needed: %d\n", resident());
    return 0;
}
