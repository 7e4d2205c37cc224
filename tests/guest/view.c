// What /proc/self/cob says of a process: which kernel runs which thread, in whose memory its pages lie, who owns which addresses,
// and what faults it had. In numbers: they are compared with what the program did.
// cob: link=static,dynamic flags=-pthread kernels=1,2,4 compare=self shake=shaken
#include "test.h"
#include <pthread.h>

enum { PAGES = 512, NEAR = 256, FAR = 128, FEW = 16, KIB = PAGE / 1024, MOST = 64 };

static struct row {
    long kernel, threads, memory, owned, mapped, exported, local, remote;
} rows[MOST];
static int row_count;
static struct thread {
    int thread, kernel, cpu;
} threads[MOST];
static int thread_count;
static struct range {
    unsigned long start, end;
    int owner, slice;
} ranges[2 * MOST];
static int range_count;

static char text[1 << 16];

static char *slurp(const char *path) {
    int fd = open(path, O_RDONLY);
    MUST(fd >= 0);
    size_t got = 0;
    for (ssize_t more; (more = read(fd, text + got, sizeof text - 1 - got)) > 0;)
        got += more;
    close(fd);
    text[got] = 0;
    return text;
}

static void look(void) {
    enum { THREADS, KERNELS, ADDRESSES } part = THREADS;
    thread_count = row_count = range_count = 0;
    char *rest, *line = strtok_r(slurp("/proc/self/cob"), "\n", &rest);
    for (; line; line = strtok_r(NULL, "\n", &rest)) {
        struct row *row = &rows[row_count];
        struct thread *thread = &threads[thread_count];
        struct range *range = &ranges[range_count];
        char slice[16];
        if (strncmp(line, "thread", 6) == 0) {
            part = THREADS;
        } else if (strncmp(line, "kernel", 6) == 0) {
            part = KERNELS;
        } else if (strncmp(line, "addresses", 9) == 0) {
            part = ADDRESSES;
        } else if (part == THREADS) {
            MUST(sscanf(line, "%d %d %d", &thread->thread, &thread->kernel, &thread->cpu) == 3);
            thread_count++;
        } else if (part == KERNELS) {
            MUST(sscanf(line, "%ld %ld %ld %ld %ld %ld %ld %ld", &row->kernel, &row->threads, &row->memory, &row->owned,
                        &row->mapped, &row->exported, &row->local, &row->remote) == 8);
            row_count++;
        } else {
            MUST(sscanf(line, "%lx-%lx %d %15s", &range->start, &range->end, &range->owner, slice) == 4);
            range->slice = *slice == '-' ? -1 : atoi(slice);
            range_count++;
        }
    }
    MUST(thread_count > 0 && row_count > 0 && range_count > 0);
    MUST(ranges[0].start == 0 && ranges[range_count - 1].end == (1UL << 47) - PAGE);
    for (int i = 1; i < range_count; i++)
        MUST(ranges[i].start == ranges[i - 1].end);
}

static struct row row_of(int kernel) {
    for (int i = 0; i < row_count; i++)
        if (rows[i].kernel == kernel)
            return rows[i];
    return (struct row){.kernel = kernel};
}

static struct range range_of(void *address) {
    int i = 0;
    while ((unsigned long)address >= ranges[i].end)
        i++;
    return ranges[i];
}

static struct thread self(void) {
    int i = 0;
    while (i < thread_count && threads[i].thread != gettid())
        i++;
    MUST(i < thread_count);
    return threads[i];
}

// By /proc/cob/kernels, whose fourth column is a list of CPUs.
static int kernel_of(int cpu) {
    char *rest, *line = strtok_r(slurp("/proc/cob/kernels"), "\n", &rest);
    while ((line = strtok_r(NULL, "\n", &rest))) {
        int kernel;
        char cpus[256];
        MUST(sscanf(line, "%d %*s %*s %255s", &kernel, cpus) == 2);
        char *more, *part = strtok_r(cpus, ",", &more);
        for (; part; part = strtok_r(NULL, ",", &more)) {
            int from, to, ends = sscanf(part, "%d-%d", &from, &to);
            if (cpu >= from && cpu <= (ends == 2 ? to : from))
                return kernel;
        }
    }
    MUST(!"a kernel has the CPU");
    return -1;
}

// Every page lies in one kernel's memory.
static void compare_sum(void) {
    char *line = strstr(slurp("/proc/self/status"), "\nVmRSS:");
    MUST(line);
    long resident = atol(line + 7), sum = 0;
    look();
    for (int i = 0; i < row_count; i++)
        sum += rows[i].memory;
    if (labs(sum - resident) > 32 * KIB)
        printf("%ld kB in all kernels' memory, %ld kB resident\n", sum, resident);
}

static void touch(char *at, int pages) {
    for (int page = 0; page < pages; page++)
        ((volatile char *)at)[page * PAGE] = 1;
}

static int leave[2];

static void *stay(void *cpu) {
    move_to((int)(long)cpu);
    char byte;
    MUST(read(leave[0], &byte, 1) == 1);
    return NULL;
}

int main(int argc, char **argv) {
    (void)argv;
    int last = cpu_count() - 1, near = kernel_of(0), far = kernel_of(last);
    // Then ranges are handed to anybody who asks, pages made ahead elsewhere, and borrowed ones dropped.
    int shaken = argc > 1;
    move_to(0);
    look();
    MUST(self().kernel == near && self().cpu == 0);
    MUST(row_of(near).threads == 1);
    struct row before = row_of(near);
    char *memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    touch(memory, NEAR);
    look();
    struct row after = row_of(near);
    MUST(after.memory >= before.memory + NEAR * KIB);
    MUST(shaken || (after.local > before.local && after.owned >= before.owned + PAGES * KIB));
    MUST(shaken || range_of(memory).owner == near);
    compare_sum();

    move_to(last);
    look();
    MUST(self().kernel == far && self().cpu == last);
    MUST(row_of(far).threads == 1);
    if (far == near) {
        MUST(row_count == 1 && row_of(near).remote == 0 && range_count == 1);
    } else {
        MUST(row_of(near).threads == 0);
        // Theirs, read here: they stay where they are, and windows bring many at a time.
        before = row_of(far);
        long sum = 0;
        for (int page = 0; page < NEAR; page++)
            sum += memory[page * PAGE];
        MUST(sum == NEAR);
        look();
        after = row_of(far);
        MUST(after.remote > before.remote);
        MUST(shaken || (after.remote - before.remote <= NEAR && after.mapped >= before.mapped + NEAR * KIB));
        MUST(after.memory < before.memory + NEAR * KIB / 2);
        MUST(shaken || row_of(near).exported >= NEAR * KIB);
        MUST(row_of(near).memory >= NEAR * KIB);
        // Nobody has touched these: the rest of the mapping is handed over, and its pages are this kernel's.
        before = row_of(far);
        touch(memory + NEAR * PAGE, FAR);
        look();
        after = row_of(far);
        // But for a few that their owner, which still is the near one, makes of its own memory before that: up to three have been seen.
        MUST(shaken || after.memory >= before.memory + (FAR - FEW) * KIB);
        MUST(shaken || (after.remote > before.remote && after.local > before.local));
        MUST(shaken || range_of(memory).owner == near);
        struct range handed = range_of(memory + (PAGES - 1) * PAGE);
        MUST(shaken || (handed.owner == far && handed.slice == near));
    }
    // What is mapped here is here.
    before = row_of(far);
    char *own = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(own != MAP_FAILED);
    touch(own, NEAR);
    look();
    after = row_of(far);
    MUST(after.memory >= before.memory + NEAR * KIB);
    MUST(shaken || (after.local > before.local && range_of(own).owner == far));
    MUST(shaken || far == near || range_of(own).slice == far);
    compare_sum();
    MUST(munmap(memory, PAGES * PAGE) == 0);
    compare_sum();

    // A thread on either side.
    pthread_t other;
    MUST(pipe(leave) == 0);
    MUST(pthread_create(&other, NULL, stay, (void *)0L) == 0);
    do {
        look();
    } while (thread_count != 2 || row_of(near).threads != 1 + (near == far));
    MUST(row_of(far).threads == 1 + (near == far));
    MUST(write(leave[1], "", 1) == 1);
    MUST(pthread_join(other, NULL) == 0);
    printf("ok\n");
    return 0;
}
