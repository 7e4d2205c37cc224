// getrusage and wait4: the peak of the resident size, and who lost the CPU of his own accord and who did not.
// cob: link=static,dynamic flags=-pthread kernels=1,2,4 compare=host shake=shaken
#include "test.h"
#include <pthread.h>
#include <sys/resource.h>

enum { MIB = 1024, MUCH = 16 * MIB };

static struct rusage usage(int who) {
    struct rusage usage;
    MUST(getrusage(who, &usage) == 0);
    return usage;
}

static char *touched(void) {
    char *memory = mmap(NULL, MUCH * 1024L, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    for (long at = 0; at < MUCH * 1024L; at += PAGE)
        memory[at] = 1;
    return memory;
}

static void forget(char *memory) { MUST(munmap(memory, MUCH * 1024L) == 0); }

// Memory is handed to other kernels at random: peaks that these had one after the other are added up.
static int shaken;

// Linux counts some pages late.
static void expect(const char *what, long is, long least, long most) {
    if (is < least - MIB || (is > most + MIB && !shaken))
        printf("%s: %ld, not from %ld to %ld\n", what, is, least, most);
}

static struct rusage waited(pid_t child) {
    int status;
    struct rusage usage;
    MUST(wait4(child, &status, 0, &usage) == child);
    MUST(status == 0);
    return usage;
}

static void peaks(int cpu) {
    move_to(cpu);
    long resident = status_field("\nVmRSS:"), size = status_field("\nVmSize:");
    forget(touched());
    expect("resident", status_field("\nVmRSS:"), 0, resident + MIB);
    expect("most resident", status_field("\nVmHWM:"), MUCH, MUCH + resident + MIB);
    expect("most mapped", status_field("\nVmPeak:"), size + MUCH, size + MUCH + MIB);
    expect("of the process", usage(RUSAGE_SELF).ru_maxrss, MUCH, MUCH + resident + MIB);
    expect("of the thread", usage(RUSAGE_THREAD).ru_maxrss, MUCH, MUCH + resident + MIB);
}

// Of two that spin beside each other: which of them have lost the CPU three times.
static volatile int *lost_it;

static double cpu_time(void) {
    struct timespec used;
    MUST(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used) == 0);
    return used.tv_sec + used.tv_nsec / 1e9;
}

// Until both have. After a time of its own one may have been alone: the CPU of a busy host stands still for long. Looks rarely: who asks
// another kernel waits, and gives the CPU away.
static void *spin(void *number) {
    while (!lost_it[0] || !lost_it[1]) {
        for (double until = cpu_time() + 0.2; cpu_time() < until;)
            for (volatile int i = 0; i < 100000; i++)
                ;
        if (usage(RUSAGE_THREAD).ru_nivcsw >= 3)
            lost_it[(long)number] = 1;
    }
    return NULL;
}

int main(int argc, char **argv) {
    shaken = argc > 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (strcmp(argv[0], "nothing") == 0)
        return 0;
    int last = cpu_count() - 1;
    long small = usage(RUSAGE_SELF).ru_maxrss;
    expect("at first", small, 1, 8 * MIB);
    for (int cpu = 0; cpu <= last; cpu++) {
        pid_t child = fork();
        if (child == 0) {
            peaks(cpu);
            fflush(stdout);
            _exit(0);
        }
        expect("of a child", waited(child).ru_maxrss, MUCH, MUCH + small + MIB);
    }
    expect("of children", usage(RUSAGE_CHILDREN).ru_maxrss, MUCH, MUCH + small + MIB);
    printf("peaks\n");

    // Two in a row are no more than one; two at a time are.
    pid_t child = fork();
    if (child == 0) {
        forget(touched());
        forget(touched());
        _exit(0);
    }
    expect("one after the other", waited(child).ru_maxrss, MUCH, MUCH + small + MIB);
    child = fork();
    if (child == 0) {
        move_to(0);
        touched();
        move_to(last);
        touched();
        _exit(0);
    }
    expect("one beside the other", waited(child).ru_maxrss, 2 * MUCH, 2 * MUCH + small + MIB);
    child = fork();
    if (child == 0) {
        touched();
        execl("/proc/self/exe", "nothing", NULL);
        _exit(1);
    }
    expect("before execve", waited(child).ru_maxrss, MUCH, MUCH + small + MIB);
    expect("of children", usage(RUSAGE_CHILDREN).ru_maxrss, 2 * MUCH, 2 * MUCH + small + MIB);
    expect("of the parent", usage(RUSAGE_SELF).ru_maxrss, small, small + 4 * MIB);
    printf("spread, and replaced\n");

    // Who sleeps gives the CPU away.
    for (int cpu = 0; cpu <= last; cpu++) {
        move_to(cpu);
        long before = usage(RUSAGE_SELF).ru_nvcsw, own = usage(RUSAGE_THREAD).ru_nvcsw;
        for (int i = 0; i < 10; i++)
            usleep(1000);
        MUST(usage(RUSAGE_SELF).ru_nvcsw >= before + 10 && usage(RUSAGE_THREAD).ru_nvcsw >= own + 10);
        MUST(status_field("\nvoluntary_ctxt_switches:") >= own + 10);
    }
    printf("slept\n");

    // Two that never sleep lose it to each other.
    lost_it = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(lost_it != MAP_FAILED);
    for (int cpu = 0;; cpu = last) {
        move_to(cpu);
        pid_t children[2];
        lost_it[0] = lost_it[1] = 0;
        for (int i = 0; i < 2; i++) {
            children[i] = fork();
            if (children[i] == 0) {
                spin((void *)(long)i);
                MUST(status_field("\nnonvoluntary_ctxt_switches:") >= 3);
                _exit(0);
            }
        }
        long before = usage(RUSAGE_CHILDREN).ru_nivcsw, sum = 0;
        for (int i = 0; i < 2; i++) {
            struct rusage usage = waited(children[i]);
            MUST(usage.ru_nivcsw >= 3);
            sum += usage.ru_nivcsw;
        }
        MUST(usage(RUSAGE_CHILDREN).ru_nivcsw >= before + sum);
        pthread_t threads[2];
        lost_it[0] = lost_it[1] = 0;
        for (int i = 0; i < 2; i++)
            MUST(pthread_create(&threads[i], NULL, spin, (void *)(long)i) == 0);
        for (int i = 0; i < 2; i++)
            MUST(pthread_join(threads[i], NULL) == 0);
        MUST(usage(RUSAGE_SELF).ru_nivcsw >= 6);
        if (cpu == last)
            break;
    }
    printf("preempted\n");
    return 0;
}
