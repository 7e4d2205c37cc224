// membarrier(2) between kernels: who has registered for what; the slow side of Dekker's handshake between processes; code that
// another thread has just written; and restartable sequences, which nobody is in any more that was in one before.
// cob: link=static,dynamic flags=-pthread compare=host timeout=240
#include "hands.h"
#include <linux/membarrier.h>
#include <sys/rseq.h>

static long barrier(int command) { return syscall(SYS_membarrier, command, 0, 0); }

static long barrier_on(int cpu) {
    return syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, MEMBARRIER_CMD_FLAG_CPU, cpu);
}

enum { ROUNDS = 400, SPINS = 2000, GET_REGISTRATIONS = 512 };

// Both sides look without giving up the CPU for a while, so that they start at the same moment.
static void wait_for(_Atomic int *at, int least) {
    for (int i = 0; *at < least; i++)
        if (i >= SPINS)
            sched_yield();
}

// -- registering -----------------------------------------------------------------------------------------------------------

static const struct {
    int command, registers;
    const char *name;
} commands[] = {
    {MEMBARRIER_CMD_GLOBAL, 0, "global"},
    {MEMBARRIER_CMD_GLOBAL_EXPEDITED, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, "global, expedited"},
    {MEMBARRIER_CMD_PRIVATE_EXPEDITED, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, "private, expedited"},
    {MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE, "private, code"},
    {MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ, "private, sequences"},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void show_all(const char *where) {
    printf("%s:", where);
    for (int i = 0; i < COMMANDS; i++)
        printf(" %s", barrier(commands[i].command) == 0 ? "fine" : error_name(errno));
    printf(", registered %ld\n", barrier(GET_REGISTRATIONS));
}

static void registering(void) {
    printf("known: %ld\n", barrier(MEMBARRIER_CMD_QUERY) & 1023);
    for (int i = 0; i < COMMANDS; i++)
        IN_CHILD(commands[i].name, {
            start_hands();
            show_all("at first");
            static int number;
            number = commands[i].registers;
            // By one thread, for all.
            if (number)
                ON(2, MUST(barrier(number) == 0));
            show_all("registered");
            ON(1, show_all("elsewhere"));
            ON(2, show_all("where it was"));
            IN_CHILD("a child has it, too", move_to(cpu_count() - 1); show_all("child"));
        });
    SHOW(syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 1, 0));
    SHOW(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, 1, 0));
    SHOW(syscall(SYS_membarrier, GET_REGISTRATIONS, 1, 0));
    IN_CHILD("one CPU", {
        SHOW(barrier_on(0));
        MUST(barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ) == 0);
        SHOW(barrier_on(0));
        SHOW(barrier_on(cpu_count() - 1));
        SHOW(barrier_on(-1));
        SHOW(barrier_on(99999));
        SHOW(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, 2, 0));
    });
    SHOW(syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ, 1, 0));
    SHOW(barrier(3));
    SHOW(barrier(1 << 11));
    SHOW(barrier(-1));
}

// -- two processes, one of which has no fence --------------------------------------------------------------------------------

static struct area {
    _Atomic int round, done;
    volatile int fast __attribute__((aligned(64))), slow __attribute__((aligned(64)));
    int seen[ROUNDS + 1] __attribute__((aligned(64)));
} *area;

static void fast_side(int rounds) {
    for (int round = 1; round <= rounds; round++) {
        wait_for(&area->round, round);
        area->fast = round;
        __asm__ volatile("" ::: "memory");
        area->seen[round] = area->slow;
        area->done = round;
    }
}

static void two_processes(int command, int registers, int rounds) {
    area = mmap(NULL, sizeof *area, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(area != MAP_FAILED);
    fflush(stdout);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        move_to(cpu_count() - 1);
        MUST(registers == 0 || barrier(registers) == 0);
        area->done = -1;
        fast_side(rounds);
        _exit(0);
    }
    while (area->done != -1)
        sched_yield();
    int missed = 0, failed = 0;
    for (int round = 1; round <= rounds; round++) {
        area->round = round;
        for (volatile int delay = round % 64; delay > 0; delay--)
            ;
        area->slow = round;
        failed += barrier(command) != 0;
        int found = area->fast;
        wait_for(&area->done, round);
        missed += found != round && area->seen[round] != round;
    }
    MUST(waitpid(child, NULL, 0) == child);
    printf("failed %d, missed %d\n", failed, missed);
    munmap(area, sizeof *area);
}

// -- code ------------------------------------------------------------------------------------------------------------------

// mov $NUMBER, %eax; ret.
static unsigned char *code;
static _Atomic int written, ran[HANDS];
static int wrong[HANDS];

static void write_code(int number) {
    code[0] = 0xb8;
    memcpy(code + 1, &number, sizeof number);
    code[5] = 0xc3;
}

static void run_code(int who) {
    int (*function)(void) = (int (*)(void))code;
    for (int round = 1; round <= ROUNDS; round++) {
        wait_for(&written, round);
        wrong[who] += function() != round;
        ran[who] = round;
    }
}

static void new_code(void) {
    code = mmap(NULL, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(code != MAP_FAILED);
    MUST(barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE) == 0);
    write_code(0);
    BEGIN(0, run_code(0));
    BEGIN(1, run_code(1));
    BEGIN(2, run_code(2));
    int failed = 0;
    for (int round = 1; round <= ROUNDS; round++) {
        write_code(round);
        failed += barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE) != 0;
        written = round;
        for (int who = 0; who < HANDS; who++)
            wait_for(&ran[who], round);
    }
    for (int who = 0; who < HANDS; who++)
        finish(who);
    printf("failed %d, old code run %d times\n", failed, wrong[0] + wrong[1] + wrong[2]);
}

// -- restartable sequences ---------------------------------------------------------------------------------------------------

// Who looks which side is the valid one, and writes there, all in one sequence.
static struct side {
    volatile long written[HANDS][8];
} *sides[2];
static struct side *volatile valid;
// In a page that is dropped again and again: a fault inside of the sequence, which goes on after it.
static volatile char *faulting;
static volatile int enough;

// 1 if it came to its end, 0 if it was aborted.
static int write_valid(int who, long value) {
    struct rseq *rseq = (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
    int done = 0;
    __asm__ volatile(
        ".pushsection __rseq_cs, \"aw\"\n\t"
        ".balign 32\n"
        "3: .long 0, 0\n\t"
        ".quad 1f, 2f - 1f, 4f\n\t"
        ".popsection\n\t"
        "leaq 3b(%%rip), %%rax\n\t"
        "movq %%rax, %[section]\n"
        "1: movq %[valid], %%rax\n\t"
        "movl $200, %%ecx\n"
        "5: decl %%ecx\n\t"
        "jnz 5b\n\t"
        "movb (%[faulting]), %%cl\n\t"
        "movq %[value], (%%rax, %[at])\n"
        "2: movl $1, %[done]\n\t"
        "jmp 6f\n\t"
        ".byte 0x0f, 0xb9, 0x3d\n\t"
        ".long 0x53053053\n"
        "4: movl $0, %[done]\n"
        "6:\n\t"
        : [done] "+r"(done), [section] "=m"(rseq->rseq_cs)
        : [valid] "m"(valid), [faulting] "r"(faulting), [value] "r"(value), [at] "r"((long)who * sizeof sides[0]->written[0])
        : "rax", "rcx", "memory", "cc");
    return done;
}

static void write_on(int who) {
    for (long value = 1; !enough; value++)
        while (!write_valid(who, value))
            ;
}

static long sum_of(struct side *side) {
    long sum = 0;
    for (int who = 0; who < HANDS; who++)
        sum += side->written[who][0];
    return sum;
}

static void sequences(int one_by_one) {
    for (int i = 0; i < 2; i++) {
        sides[i] = mmap(NULL, sizeof *sides[i], PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        MUST(sides[i] != MAP_FAILED);
    }
    faulting = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(faulting != MAP_FAILED);
    MUST(barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ) == 0);
    enough = 0;
    valid = sides[0];
    BEGIN(0, write_on(0));
    BEGIN(1, write_on(1));
    BEGIN(2, write_on(2));
    int failed = 0;
    int late = 0;
    for (int round = 1; round <= ROUNDS / 10; round++) {
        struct side *old = valid;
        long before = sum_of(old);
        // Until somebody has come to the end of a sequence here.
        for (int i = 0; sum_of(old) == before; i++)
            if (i >= SPINS)
                sched_yield();
        MUST(madvise((void *)faulting, PAGE, MADV_DONTNEED) == 0);
        valid = sides[round % 2];
        if (one_by_one)
            for (int cpu = 0; cpu < cpu_count(); cpu++)
                failed += barrier_on(cpu) != 0;
        else
            failed += barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ) != 0;
        long then = sum_of(old);
        for (volatile int delay = 2000; delay > 0; delay--)
            ;
        late += sum_of(old) != then;
    }
    enough = 1;
    for (int who = 0; who < HANDS; who++)
        finish(who);
    printf("failed %d, written late %d times\n", failed, late);
}

int main(void) {
    registering();
    printf("global: ");
    // It takes its time on Linux.
    two_processes(MEMBARRIER_CMD_GLOBAL, 0, ROUNDS / 10);
    printf("global, expedited: ");
    two_processes(MEMBARRIER_CMD_GLOBAL_EXPEDITED, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, ROUNDS);
    start_hands();
    new_code();
    sequences(0);
    sequences(1);
    return 0;
}
