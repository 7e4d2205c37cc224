// The vDSO tells the time as system calls do, wherever a thread is, and is found as on Linux.
// cob: link=static,dynamic flags=-pthread kernels=1,2,4 compare=host timeout=60
#define _GNU_SOURCE
#include "test.h"
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/time.h>

// What AT_SYSINFO_EHDR leads to, looked up as a C library does it.
static void *function(const char *name) {
    const char *base = (const char *)getauxval(AT_SYSINFO_EHDR);
    MUST(base && memcmp(base, ELFMAG, SELFMAG) == 0);
    const ElfW(Ehdr) *header = (const void *)base;
    const ElfW(Phdr) *segments = (const void *)(base + header->e_phoff);
    const ElfW(Dyn) *dynamic = NULL;
    const char *load = NULL;
    for (int i = 0; i < header->e_phnum; i++) {
        if (segments[i].p_type == PT_LOAD && !load)
            load = base + segments[i].p_offset - segments[i].p_vaddr;
        if (segments[i].p_type == PT_DYNAMIC)
            dynamic = (const void *)(base + segments[i].p_offset);
    }
    MUST(load && dynamic);
    const ElfW(Sym) *symbols = NULL;
    const char *names = NULL;
    const ElfW(Word) *hash = NULL;
    for (; dynamic->d_tag != DT_NULL; dynamic++) {
        const void *at = load + dynamic->d_un.d_ptr;
        switch (dynamic->d_tag) {
        case DT_SYMTAB: symbols = at; break;
        case DT_STRTAB: names = at; break;
        case DT_HASH: hash = at; break;
        }
    }
    MUST(symbols && names);
    // Kernels of today may have DT_GNU_HASH only: then symbols end where their names begin.
    size_t count = hash ? hash[1] : (size_t)((const char *)names - (const char *)symbols) / sizeof *symbols;
    for (size_t i = 0; i < count; i++)
        if (strcmp(names + symbols[i].st_name, name) == 0 && symbols[i].st_shndx != SHN_UNDEF)
            return (void *)(load + symbols[i].st_value);
    printf("no %s\n", name);
    exit(1);
}

static long ns(const struct timespec *at) { return at->tv_sec * 1000000000L + at->tv_nsec; }

static int (*read_clock)(clockid_t, struct timespec *);
static int (*resolution)(clockid_t, struct timespec *);
static int (*time_of_day)(struct timeval *, struct timezone *);
static time_t (*seconds)(time_t *);
static long (*place)(unsigned *, unsigned *, void *);

// Between two system calls.
static void check_clock(clockid_t clock) {
    struct timespec before, inside, after;
    for (int i = 0; i < 100; i++) {
        MUST(syscall(SYS_clock_gettime, clock, &before) == 0);
        MUST(read_clock(clock, &inside) == 0);
        MUST(syscall(SYS_clock_gettime, clock, &after) == 0);
        MUST(inside.tv_nsec >= 0 && inside.tv_nsec < 1000000000);
        MUST(ns(&before) <= ns(&inside) && ns(&inside) <= ns(&after));
    }
}

static void check_all(void) {
    check_clock(CLOCK_REALTIME);
    check_clock(CLOCK_MONOTONIC);
    check_clock(CLOCK_MONOTONIC_RAW);
    check_clock(CLOCK_BOOTTIME);
    check_clock(CLOCK_PROCESS_CPUTIME_ID);
    check_clock(CLOCK_THREAD_CPUTIME_ID);
    check_clock(CLOCK_TAI);
    struct timespec before, after;
    struct timeval inside;
    struct timezone zone = {1, 1};
    MUST(syscall(SYS_clock_gettime, CLOCK_REALTIME, &before) == 0);
    MUST(time_of_day(&inside, &zone) == 0);
    MUST(syscall(SYS_clock_gettime, CLOCK_REALTIME, &after) == 0);
    long us = inside.tv_sec * 1000000L + inside.tv_usec;
    MUST(ns(&before) / 1000 <= us && us <= ns(&after) / 1000 && zone.tz_minuteswest == 0);
    // CLOCK_REALTIME_COARSE may lag behind on Linux, and time() with it.
    time_t kept, now = seconds(&kept);
    MUST(now == kept && now >= before.tv_sec - 1 && now <= after.tv_sec + 1 && seconds(NULL) >= now);
    MUST(time_of_day(NULL, NULL) == 0);
}

static _Atomic long latest;

// Nobody reads a time earlier than what anybody has read before.
static void *visit(void *argument) {
    long first = (long)argument, cpus = cpu_count();
    for (int round = 0; round < 3; round++) {
        for (long cpu = 0; cpu < cpus; cpu++) {
            move_to((first + cpu) % cpus);
            for (int i = 0; i < 200; i++) {
                long seen = latest;
                struct timespec now;
                MUST(read_clock(CLOCK_MONOTONIC, &now) == 0);
                MUST(ns(&now) >= seen);
                while (seen < ns(&now) && !__atomic_compare_exchange_n((long *)&latest, &seen, ns(&now), 0, 5, 5))
                    ;
            }
            unsigned here, node;
            MUST(place(&here, &node, NULL) == 0 && here == (unsigned)((first + cpu) % cpus) && place(NULL, NULL, NULL) == 0);
        }
    }
    return NULL;
}

int main(void) {
    read_clock = function("__vdso_clock_gettime");
    resolution = function("__vdso_clock_getres");
    time_of_day = function("__vdso_gettimeofday");
    seconds = function("__vdso_time");
    place = function("__vdso_getcpu");
    check_all();
    struct timespec answer;
    for (clockid_t clock = -3; clock < 14; clock++) {
        // CLOCK_SGI_CYCLE and the alarm clocks depend on the machine.
        if (clock == 8 || clock == 9 || clock == 10)
            continue;
        int vdso = read_clock(clock, &answer);
        long call = syscall(SYS_clock_gettime, clock, &answer);
        printf("clock %d: %d %s\n", clock, vdso, vdso == (call ? -errno : 0) ? "as the system call" : "but not the system call");
    }
    MUST(resolution(CLOCK_MONOTONIC, &answer) == 0);
    printf("resolution: %ld ns, %d\n", answer.tv_nsec, resolution(CLOCK_REALTIME, NULL));
    printf("resolution of no clock: %d\n", resolution(99, &answer));
    pthread_t threads[4];
    for (long i = 0; i < 4; i++)
        MUST(pthread_create(&threads[i], NULL, visit, (void *)i) == 0);
    for (int i = 0; i < 4; i++)
        MUST(pthread_join(threads[i], NULL) == 0);
    pid_t child = fork();
    if (child == 0) {
        move_to(cpu_count() - 1);
        check_all();
        _exit(0);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child);
    show_status("child", status);
    char line[256];
    int found = 0;
    unsigned long at = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    MUST(maps);
    while (fgets(line, sizeof line, maps))
        if (strstr(line, "[vdso]")) {
            found++;
            at = strtoul(line, NULL, 16);
            printf("[vdso] %.4s %s", strchr(line, ' ') + 1, strstr(line, "00000000 00:00 0") ? "no file\n" : line);
        }
    printf("%d mapping, %s\n", found, at == getauxval(AT_SYSINFO_EHDR) ? "where the vector says" : "elsewhere");
}
