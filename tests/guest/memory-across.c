// What a thread does to memory that another one mapped and a third one uses, each on a CPU of its own: growing stacks, moves
// that leave the mapping, advice, locks, files written back, /proc/self/mem, maps and smaps.
// cob: link=static,dynamic flags=-pthread kernels=1,2,4 compare=host
#include "hands.h"
#include <setjmp.h>
#include <sys/uio.h>

enum { RW = PROT_READ | PROT_WRITE, ANON = MAP_PRIVATE | MAP_ANONYMOUS, PAGES = 12 };

static __thread sigjmp_buf back;

static void segv(int number) { siglongjmp(back, number); }

// -- what they look at -------------------------------------------------------------------------------------------------

static char *memory, *other;
static int fd, orders, answers;

// Between two pages of no access, or maps might show it as one with a neighbour.
static char *map(long pages, int prot, int flags) {
    char *room = mmap(NULL, (pages + 2) * PAGE, PROT_NONE, ANON, -1, 0);
    MUST(room != MAP_FAILED);
    char *at = mmap(room + PAGE, pages * PAGE, prot, flags | MAP_FIXED, flags & MAP_ANONYMOUS ? -1 : fd, 0);
    MUST(at == room + PAGE);
    return at;
}

// What reading the first byte of each page gives: its letter, '.' for 0, '!' for SIGSEGV or SIGBUS.
static void show(const char *what, char *at) {
    char text[PAGES + 1] = "";
    for (volatile int page = 0; page < PAGES; page++) {
        volatile char *byte = at + page * PAGE;
        text[page] = sigsetjmp(back, 1) ? '!' : *byte ? *byte : '.';
    }
    printf("%s: %s\n", what, text);
}

static void show_memory(void) { show("  memory", memory); }
static void show_other(void) { show("  other", other); }

static void everybody_shows(void) {
    for (int who = 0; who < HANDS; who++)
        on(who, show_memory);
}

static void fill(char first) {
    for (int page = 0; page < PAGES; page++)
        memory[page * PAGE] = first + page;
}

static void fill_lower(void) { fill('a'); }
static void fill_upper(void) { fill('A'); }
static void fill_even(void) {
    for (int page = 0; page < PAGES; page += 2)
        memory[page * PAGE] = 'e';
}
static void touch_third(void) {
    for (int page = 0; page < PAGES; page += 3)
        memory[page * PAGE] = 't';
}

static void map_private(void) { memory = map(PAGES, RW, ANON); }
static void unmap(void) { MUST(munmap(memory, PAGES * PAGE) == 0); }

static int resident(char *at, long pages) {
    unsigned char present[PAGES];
    MUST(mincore(at, pages * PAGE, present) == 0);
    int count = 0;
    for (long page = 0; page < pages; page++)
        count += present[page] & 1;
    return count;
}
static void show_resident(void) { printf("  resident %d\n", resident(memory, PAGES)); }

static pid_t child;

static FILE *open_proc(pid_t pid, const char *name) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    FILE *file = fopen(path, "r");
    MUST(file);
    return file;
}

// The permissions and the sizes that smaps shows for what lies in memory's pages.
static void show_maps_of(pid_t pid) {
    char line[256], name[64];
    FILE *file = open_proc(pid, "smaps");
    int there = 0;
    while (fgets(line, sizeof line, file)) {
        unsigned long start, end;
        char access[8];
        long kib;
        if (sscanf(line, "%lx-%lx %7s", &start, &end, access) == 3) {
            there = end > (unsigned long)memory && start < (unsigned long)memory + PAGES * PAGE;
            if (there)
                printf("  %ld+%ld %s", ((long)start - (long)memory) / PAGE, (long)(end - start) / PAGE, access);
        } else if (there && sscanf(line, "%63[^:]: %ld kB", name, &kib) == 2) {
            const char *shown[] = {"Rss", "Pss", "Shared_Dirty", "Private_Dirty", "Anonymous", "Locked"};
            for (unsigned i = 0; i < sizeof shown / sizeof shown[0]; i++)
                if (strcmp(name, shown[i]) == 0)
                    printf(" %s %ld", name, kib);
        } else if (there && strncmp(line, "VmFlags:", 8) == 0)
            printf("\n");
    }
    fclose(file);
}
static void show_maps(void) { show_maps_of(getpid()); }
static void show_maps_of_both(void) { show_maps_of(getpid()), show_maps_of(child); }

// The sum of what one of the files says under `name`.
static long sum(const char *file_name, const char *name) {
    char line[256];
    long sum = 0, kib;
    FILE *file = open_proc(child, file_name);
    while (fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0 && sscanf(line + strlen(name), ": %ld kB", &kib) == 1)
            sum += kib;
    fclose(file);
    return sum;
}
static void show_sums(void) {
    const char *names[] = {"Rss", "Shared_Clean", "Shared_Dirty", "Private_Clean", "Private_Dirty", "Anonymous", "Swap"};
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
        printf("  %s: %s\n", names[i], sum("smaps", names[i]) == sum("smaps_rollup", names[i]) ? "agree" : "differ");
    long kinds = sum("smaps", "Shared_Clean") + sum("smaps", "Shared_Dirty") + sum("smaps", "Private_Clean") + sum("smaps", "Private_Dirty");
    printf("  kinds add up: %d\n", kinds == sum("smaps", "Rss"));
}

// -- what is done ------------------------------------------------------------------------------------------------------

static void map_growing(void) {
    char *room = map(1024 + PAGES, PROT_NONE, ANON);
    other = room + 1024 * PAGE;
    MUST(mmap(other, PAGES * PAGE, RW, ANON | MAP_GROWSDOWN | MAP_FIXED, -1, 0) == other);
    MUST(munmap(room, 1024 * PAGE) == 0);
    memory = other;
}
static void touch_below(void) {
    other -= 4 * PAGE;
    if (sigsetjmp(back, 1))
        printf("  no page below\n");
    else
        *other = 'g';
}
static void unmap_growing(void) { MUST(munmap(other, 4 * PAGE + PAGES * PAGE) == 0); }

static void map_populated(void) { memory = map(PAGES, RW, ANON | MAP_POPULATE); }
static void map_unreserved(void) { memory = map(PAGES, RW, ANON | MAP_NORESERVE); }

static void move_leaving(void) {
    // The last argument is a hint with DONTUNMAP, and glibc passes on whatever is there.
    other = mremap(memory, PAGES * PAGE, PAGES * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    MUST(other != MAP_FAILED);
}
static void move_back(void) {
    MUST(mremap(other, PAGES * PAGE, PAGES * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, memory) == memory);
}
static void shrink(void) { MUST(mremap(memory, PAGES * PAGE, PAGES / 2 * PAGE, 0) == memory); }
static void grow_moving(void) {
    char *moved = mremap(memory, PAGES / 2 * PAGE, 8 * PAGES * PAGE, MREMAP_MAYMOVE);
    MUST(moved != MAP_FAILED);
    memory = moved;
    MUST(munmap(memory + PAGES * PAGE, 7 * PAGES * PAGE) == 0);
}

static void drop_half(void) { SHOW(madvise(memory, PAGES / 2 * PAGE, MADV_DONTNEED)); }
static void advise_willneed(void) { SHOW(madvise(memory, PAGES * PAGE, MADV_WILLNEED)); }
static void free_all(void) { SHOW(madvise(memory, PAGES * PAGE, MADV_FREE)); }
// What was freed is as it was or gone; what was written since stays.
static void show_freed(void) {
    int wrong = 0;
    for (int page = 0; page < PAGES; page++)
        wrong += memory[page * PAGE] != (page % 2 ? memory[page * PAGE] ? 'A' + page : 0 : 'e');
    printf("  wrong %d\n", wrong);
}
static void no_fork(void) { SHOW(madvise(memory + 2 * PAGE, 3 * PAGE, MADV_DONTFORK)); }
static void wipe_on_fork(void) { SHOW(madvise(memory + 6 * PAGE, 3 * PAGE, MADV_WIPEONFORK)); }
static void fork_again(void) { SHOW(madvise(memory, PAGES * PAGE, MADV_DOFORK)); }
static void keep_again(void) { SHOW(madvise(memory, PAGES * PAGE, MADV_KEEPONFORK)); }
static void fork_shows(void) { IN_CHILD("  child", show("  in the child", memory); memory[11 * PAGE] = 'C'); }
static void fork_waits(void) {
    int go[2], told[2];
    char byte;
    MUST(pipe(go) == 0 && pipe(told) == 0);
    fflush(stdout);
    child = fork();
    MUST(child >= 0);
    if (child == 0) {
        move_to(hands[2].cpu);
        close(go[1]);
        for (;;) {
            MUST(write(told[1], "", 1) == 1);
            if (read(go[0], &byte, 1) != 1)
                _exit(0);
            memory[PAGE] = memory[5 * PAGE] = 'C';
        }
    }
    orders = go[1], answers = told[0];
    close(go[0]), close(told[1]);
    MUST(read(answers, &byte, 1) == 1);
}
static void child_writes(void) {
    char byte;
    MUST(write(orders, "", 1) == 1 && read(answers, &byte, 1) == 1);
}
static void child_ends(void) {
    int status;
    close(orders), close(answers);
    MUST(waitpid(child, &status, 0) == child);
    show_status("  child", status);
}
static void populate_read(void) { SHOW(madvise(memory, PAGES * PAGE, 22)); }
static void populate_write(void) { SHOW(madvise(memory, PAGES * PAGE, 23)); }

static void protect_middle(void) { SHOW(mprotect(memory + 3 * PAGE, 4 * PAGE, PROT_READ)); }
static void protect_none(void) { SHOW(mprotect(memory + 8 * PAGE, 2 * PAGE, PROT_NONE)); }
static void write_middle(void) {
    if (sigsetjmp(back, 1))
        printf("  may not be written\n");
    else
        *(volatile char *)(memory + 5 * PAGE) = 'w', printf("  written\n");
}
static void map_over(void) {
    MUST(mmap(memory + 4 * PAGE, 3 * PAGE, RW, ANON | MAP_FIXED, -1, 0) == memory + 4 * PAGE);
}
static void map_beside(void) {
    SHOW((long)mmap(memory + 5 * PAGE, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == -1 ? -1 : 0);
    MUST(munmap(memory + 5 * PAGE, PAGE) == 0);
    SHOW((long)mmap(memory + 5 * PAGE, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == -1 ? -1 : 0);
}

static void lock(void) { SHOW(mlock(memory, 5 * PAGE)); }
static void lock_on_fault(void) { SHOW(mlock2(memory, PAGES * PAGE, MLOCK_ONFAULT)); }
static void unlock(void) { SHOW(munlock(memory + 2 * PAGE, 2 * PAGE)); }
static void lock_all(void) { SHOW(mlockall(MCL_CURRENT)); }
static void unlock_all(void) { SHOW(munlockall()); }
static void invalidate(void) { SHOW(msync(memory, PAGES * PAGE, MS_INVALIDATE | MS_ASYNC)); }

static void map_file(void) { memory = map(PAGES, RW, MAP_SHARED); }
static void open_file(void) { MUST((fd = open("file", O_CREAT | O_RDWR | O_TRUNC, 0600)) >= 0 && ftruncate(fd, PAGES * PAGE) == 0); }
static void open_memfd(void) { MUST((fd = memfd_create("across", MFD_ALLOW_SEALING)) >= 0 && ftruncate(fd, PAGES * PAGE) == 0); }
static void open_shm(void) {
    char name[32];
    snprintf(name, sizeof name, "/across-%d", getpid());
    MUST((fd = shm_open(name, O_CREAT | O_EXCL | O_RDWR, 0600)) >= 0 && ftruncate(fd, PAGES * PAGE) == 0);
    MUST(shm_unlink(name) == 0);
}
static void sync_file(void) { SHOW(msync(memory, PAGES * PAGE, MS_SYNC)); }
static void read_file(void) {
    char text[PAGES + 1] = "", byte;
    for (int page = 0; page < PAGES; page++) {
        MUST(pread(fd, &byte, 1, page * PAGE) == 1);
        text[page] = byte ? byte : '.';
    }
    printf("  file: %s\n", text);
}
static void write_file(void) {
    for (int page = 1; page < PAGES; page += 2)
        MUST(pwrite(fd, "f", 1, page * PAGE) == 1);
}
static void cut_file(void) { MUST(ftruncate(fd, 5 * PAGE) == 0); }
static void lengthen_file(void) { MUST(ftruncate(fd, PAGES * PAGE) == 0); }
static void punch(void) { SHOW(madvise(memory + PAGE, 2 * PAGE, MADV_REMOVE)); }
static void seal(void) {
    SHOW(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW));
    SHOW(ftruncate(fd, PAGE));
}
static void close_file(void) { MUST(close(fd) == 0); }

static void write_mem(void) {
    int mem = open("/proc/self/mem", O_RDWR);
    MUST(mem >= 0);
    // Also what is only readable: it becomes a page of the process's own.
    for (int page = 0; page < PAGES; page += 5)
        SHOW(pwrite(mem, "m", 1, (long)memory + page * PAGE));
    SHOW(pwrite(mem, "m", 1, 4096));
    SHOW(lseek(mem, 16, SEEK_SET));
    close(mem);
}
static void read_mem(void) {
    int mem = open("/proc/self/mem", O_RDONLY);
    MUST(mem >= 0);
    char text[PAGES + 1] = "", byte;
    for (int page = 0; page < PAGES; page++)
        text[page] = pread(mem, &byte, 1, (long)memory + page * PAGE) == 1 ? byte ? byte : '.' : '!';
    printf("  mem: %s\n", text);
    close(mem);
}
static void read_process(void) {
    static char buffer[PAGES * 4096];
    struct iovec here = {buffer, sizeof buffer}, there = {memory, sizeof buffer};
    SHOW(process_vm_readv(getpid(), &here, 1, &there, 1, 0));
}

static char *heap;
static void grow_heap(void) {
    heap = sbrk(0);
    MUST(brk(heap + (2 * PAGES + 1) * PAGE) == 0);
    memory = (char *)(((long)heap + 2 * PAGE - 1) & -PAGE);
}
static void cut_heap(void) { MUST(brk(memory + 4 * PAGE) == 0); }
static void grow_heap_again(void) { MUST(brk(memory + PAGES * PAGE) == 0); }
static void give_heap_back(void) { MUST(brk(heap) == 0); }

// -- the story ---------------------------------------------------------------------------------------------------------

#define SECTION(name) printf("%s\n", name), fflush(stdout)

static void files(const char *what, void (*open_it)(void)) {
    SECTION(what);
    on(1, open_it);
    on(0, map_file);
    on(2, fill_lower);
    on(1, sync_file);
    on(0, read_file);
    on(1, write_file);
    everybody_shows();
    on(0, touch_third);
    on(2, read_file);
    on(1, fork_shows);
    on(2, show_memory);
    on(2, punch);
    everybody_shows();
    on(1, cut_file);
    everybody_shows();
    on(0, lengthen_file);
    everybody_shows();
    on(2, fill_upper);
    on(0, free_all);
    on(1, read_file);
    on(0, unmap);
    on(1, show_memory);
    on(2, read_file);
}

int main(void) {
    struct sigaction action = {.sa_handler = segv};
    MUST(sigaction(SIGSEGV, &action, NULL) == 0 && sigaction(SIGBUS, &action, NULL) == 0);
    start_hands();

    SECTION("a mapping that grows downwards");
    on(0, map_growing);
    on(1, fill_lower);
    on(2, touch_below);
    everybody_shows();
    memory = other;
    everybody_shows();
    on(0, unmap_growing);
    everybody_shows();

    SECTION("populated");
    on(0, map_populated);
    on(2, show_resident);
    on(1, fill_upper);
    on(2, drop_half);
    everybody_shows();
    on(0, show_resident);
    on(1, populate_write);
    on(2, show_resident);
    on(2, show_maps);
    on(1, unmap);
    everybody_shows();

    SECTION("without reserve, protected in parts, mapped over");
    on(1, map_unreserved);
    on(0, fill_lower);
    on(2, protect_middle);
    for (int who = 0; who < HANDS; who++)
        on(who, write_middle);
    on(0, protect_none);
    everybody_shows();
    on(1, show_maps);
    on(2, populate_read);
    on(2, populate_write);
    on(1, write_mem);
    on(0, read_mem);
    on(2, read_process);
    everybody_shows();
    on(1, map_over);
    everybody_shows();
    on(0, map_beside);
    everybody_shows();
    on(2, advise_willneed);
    on(2, unmap);
    on(0, read_process);

    SECTION("moved, and left mapped");
    on(0, map_private);
    on(0, touch_third);
    on(1, fill_even);
    on(2, touch_third);
    on(1, move_leaving);
    everybody_shows();
    for (int who = 0; who < HANDS; who++)
        on(who, show_other);
    on(2, fill_lower);
    on(0, move_back);
    everybody_shows();
    on(1, show_other);
    on(2, shrink);
    everybody_shows();
    on(1, grow_moving);
    everybody_shows();
    on(2, fill_upper);
    on(0, show_maps);
    on(0, unmap);

    SECTION("advice");
    on(2, map_private);
    on(1, fill_upper);
    on(0, free_all);
    on(2, fill_even);
    for (int who = 0; who < HANDS; who++)
        on(who, show_freed);
    on(0, fill_lower);
    on(1, no_fork);
    on(2, wipe_on_fork);
    for (int who = 0; who < HANDS; who++)
        on(who, fork_shows);
    on(2, fork_again);
    on(0, keep_again);
    on(1, fork_shows);
    everybody_shows();
    on(1, unmap);

    SECTION("locked");
    on(0, map_private);
    on(2, fill_lower);
    on(1, lock);
    on(2, show_maps);
    on(0, drop_half);
    on(2, invalidate);
    on(2, unlock);
    on(0, show_maps);
    on(1, lock_on_fault);
    on(0, show_maps);
    on(2, unlock_all);
    on(1, drop_half);
    on(0, show_resident);
    on(2, lock_all);
    on(1, show_resident);
    on(0, unlock_all);
    on(2, show_maps);
    on(1, unmap);

    SECTION("seen with a child");
    for (int shared = 0; shared < 2; shared++) {
        if (shared)
            on(1, open_memfd), on(0, map_file);
        else
            on(0, map_private);
        on(2, fill_lower);
        on(1, fork_waits);
        on(0, show_maps_of_both);
        on(2, child_writes);
        on(1, touch_third);
        for (int who = 0; who < HANDS; who++)
            on(who, show_maps_of_both);
        on(2, show_sums);
        everybody_shows();
        on(0, child_ends);
        on(1, show_maps);
        on(2, unmap);
    }
    on(0, close_file);

    files("a file", open_file);
    on(2, close_file);
    files("a memfd", open_memfd);
    on(0, seal);
    on(1, close_file);
    files("POSIX shared memory", open_shm);
    on(0, close_file);

    SECTION("the heap");
    on(0, grow_heap);
    on(2, fill_lower);
    everybody_shows();
    on(1, cut_heap);
    everybody_shows();
    on(2, grow_heap_again);
    everybody_shows();
    on(0, fill_upper);
    on(2, give_heap_back);
    everybody_shows();
}
