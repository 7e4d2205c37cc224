// Memory that is only read takes none, whoever maps it and whoever reads it; and is what was written as soon as somebody has.
// cob: link=static flags=-pthread kernels=1,2,4 compare=host
#include "hands.h"
#include <inttypes.h>

enum { PAGES = 4096, RW = PROT_READ | PROT_WRITE };

static volatile char *memory;
static int first, step, sum;

// KiB that smaps shows as resident of the mapping.
static long resident(void) {
    FILE *smaps = fopen("/proc/self/smaps", "r");
    MUST(smaps);
    char text[512];
    uintptr_t start, end, wanted = (uintptr_t)memory + PAGE;
    long kib = -1;
    int inside = 0;
    while (fgets(text, sizeof text, smaps)) {
        if (sscanf(text, "%" SCNxPTR "-%" SCNxPTR " ", &start, &end) == 2)
            inside = start <= wanted && wanted < end;
        else if (inside)
            sscanf(text, "Rss: %ld", &kib);
    }
    fclose(smaps);
    return kib;
}

static void look(void) {
    sum = 0;
    for (int page = first; page < PAGES; page += step)
        sum += memory[page * PAGE];
}

static void put(void) {
    for (int page = first; page < PAGES; page += step)
        memory[page * PAGE]++;
}

static void show(const char *what, int who, int from, int by) {
    long before = resident();
    first = from, step = by;
    on(who, look);
    printf("%s: sum %d, %ld KiB more\n", what, sum, resident() - before);
}

int main(void) {
    start_hands();
    for (int owner = 0; owner < HANDS; owner++) {
        int second = (owner + 1) % HANDS, third = (owner + 2) % HANDS;
        ON(0, memory = mmap(NULL, (PAGES + 2) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        MUST(memory != MAP_FAILED);
        memory += PAGE;
        BEGIN(owner, MUST(mprotect((void *)memory, PAGES * PAGE, RW) == 0);
              MUST(madvise((void *)memory, PAGES * PAGE, MADV_NOHUGEPAGE) == 0));
        finish(owner);
        first = 0, step = PAGES / 4;
        on(owner, put);
        MUST(resident() <= 32 * PAGE / 1024);
        show("the owner", owner, 1, 64);
        show("far apart", second, 2, 509);
        show("in order", second, 0, 1);
        show("backwards", third, 3, 7);
        first = 5, step = 8;
        on(second, put);
        MUST(resident() >= PAGES / 8 * PAGE / 1024);
        show("written by who read", third, 0, 1);
        first = 6, step = 256;
        on(owner, put);
        show("written by the owner", second, 0, 1);
        first = 5, step = 16;
        on(third, put);
        show("written again", owner, 0, 1);
        ON(second, MUST(madvise((void *)memory, PAGES / 2 * PAGE, MADV_DONTNEED) == 0));
        show("given up", third, 0, 1);
        IN_CHILD("child", move_to(cpu_count() - 1); first = 7; step = 512; put(); first = 0; step = 1; look(); SHOW(sum));
        show("the parent", second, 0, 1);
        MUST(munmap((void *)(memory - PAGE), (PAGES + 2) * PAGE) == 0);
    }
    return 0;
}
