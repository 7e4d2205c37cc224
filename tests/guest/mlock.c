// mlock, mlock2, mlockall: what is locked, what is there afterwards, what later mappings are, and RLIMIT_MEMLOCK without
// the capability.
// cob: link=static kernels=1,2,4 compare=host
#include "test.h"
#include <sys/resource.h>

static long locked_kib(void) {
    char line[256];
    long kib = -1;
    FILE *status = fopen("/proc/self/status", "r");
    MUST(status != NULL);
    while (fgets(line, sizeof line, status))
        sscanf(line, "VmLck: %ld", &kib);
    fclose(status);
    return kib;
}

static int resident(char *at, long pages) {
    unsigned char present[64];
    MUST(mincore(at, pages * PAGE, present) == 0);
    int count = 0;
    for (long page = 0; page < pages; page++)
        count += present[page] & 1;
    return count;
}

static char *map(long pages, int flags) {
    return mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
}

static void with_capability(void) {
    char *memory = map(16, 0);
    SHOW(mlock(memory + 1, PAGE));
    printf("locked %ld KiB, resident %d\n", locked_kib(), resident(memory, 16));
    SHOW(madvise(memory, PAGE, MADV_DONTNEED));
    SHOW(msync(memory, PAGE, MS_INVALIDATE | MS_ASYNC));
    SHOW(munlock(memory, PAGE));
    SHOW(madvise(memory, PAGE, MADV_DONTNEED));
    printf("locked %ld KiB, resident %d\n", locked_kib(), resident(memory, 16));
    SHOW(syscall(SYS_mlock2, memory, 4 * PAGE, 1));
    printf("locked %ld KiB, resident %d\n", locked_kib(), resident(memory + 2 * PAGE, 14));
    SHOW(syscall(SYS_mlock2, memory, 4 * PAGE, 2));
    SHOW(munlockall());
    printf("locked %ld KiB\n", locked_kib());

    SHOW(mlockall(MCL_ONFAULT));
    SHOW(mlockall(MCL_CURRENT));
    SHOW(madvise(memory + 8 * PAGE, PAGE, MADV_DONTNEED));
    printf("resident %d\n", resident(memory, 16));
    char *later = map(4, 0);
    printf("later: resident %d\n", resident(later, 4));
    SHOW(munlockall());
    printf("locked %ld KiB\n", locked_kib());
    SHOW(madvise(memory + 8 * PAGE, PAGE, MADV_DONTNEED));

    SHOW(mlockall(MCL_FUTURE));
    later = map(4, 0);
    printf("later: resident %d, locked %ld KiB\n", resident(later, 4), locked_kib());
    pid_t child = fork();
    if (child == 0) {
        printf("a child: locked %ld KiB\n", locked_kib());
        later = map(4, 0);
        printf("a child, later: resident %d, locked %ld KiB\n", resident(later, 4), locked_kib());
        fflush(stdout);
        _exit(0);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child);
    SHOW(munmap(later, 4 * PAGE));
    SHOW(mlockall(MCL_FUTURE | MCL_ONFAULT));
    later = map(4, 0);
    printf("later: resident %d, locked %ld KiB\n", resident(later, 4), locked_kib());
    SHOW(munmap(later, 4 * PAGE));
    char *before = sbrk(0);
    MUST(sbrk(4 * PAGE) == before);
    printf("heap: locked %ld KiB\n", locked_kib());
    MUST(sbrk(-4 * PAGE) != (void *)-1);
    SHOW(munlockall());
    later = map(4, MAP_LOCKED);
    printf("MAP_LOCKED: resident %d, locked %ld KiB\n", resident(later, 4), locked_kib());
    SHOW(munmap(later, 4 * PAGE));
}

static void without_capability(void) {
    struct rlimit limit = {8 * PAGE, 8 * PAGE};
    MUST(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    MUST(setresuid(1000, 1000, 1000) == 0);
    char *memory = map(16, 0);
    SHOW(mlock(memory, 9 * PAGE));
    SHOW(mlock(memory, 6 * PAGE));
    SHOW(mlock(memory + 4 * PAGE, 4 * PAGE));
    printf("locked %ld KiB\n", locked_kib());
    SHOW(mlock(memory + 8 * PAGE, 1));
    TRY(map(1, MAP_LOCKED) == MAP_FAILED ? -1 : 0);
    SHOW(mlockall(MCL_CURRENT));
    SHOW(munlock(memory, 8 * PAGE));
    SHOW(mlockall(MCL_FUTURE));
    TRY(map(9, 0) == MAP_FAILED ? -1 : 0);
    TRY(map(8, 0) == MAP_FAILED ? -1 : 0);
    TRY(map(1, 0) == MAP_FAILED ? -1 : 0);
    SHOW(munlockall());
    limit.rlim_cur = 0;
    MUST(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    SHOW(mlock(memory, PAGE));
    SHOW(mlockall(MCL_FUTURE));
    TRY(map(1, MAP_LOCKED) == MAP_FAILED ? -1 : 0);
    SHOW(munlockall());
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    with_capability();
    move_to(cpu_count() - 1);
    with_capability();
    without_capability();
    return 0;
}
