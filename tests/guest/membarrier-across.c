// membarrier(2) between kernels, each command that needs no restartable sequences: who has registered for what; the slow side of
// Dekker's handshake between processes; and code that another thread has just written.
// cob: link=static,dynamic flags=-pthread compare=host timeout=240
#include "hands.h"
#include <linux/membarrier.h>

static long barrier(int command) { return syscall(SYS_membarrier, command, 0, 0); }

enum { ROUNDS = 400, SPINS = 2000, NO_RSEQ = 127, GET_REGISTRATIONS = 512 };

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
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void show_all(const char *where) {
    printf("%s:", where);
    for (int i = 0; i < COMMANDS; i++)
        printf(" %s", barrier(commands[i].command) == 0 ? "fine" : error_name(errno));
    printf(", registered %ld\n", barrier(GET_REGISTRATIONS));
}

static void registering(void) {
    printf("known: %ld\n", barrier(MEMBARRIER_CMD_QUERY) & (NO_RSEQ | GET_REGISTRATIONS));
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

int main(void) {
    registering();
    printf("global: ");
    // It takes its time on Linux.
    two_processes(MEMBARRIER_CMD_GLOBAL, 0, ROUNDS / 10);
    printf("global, expedited: ");
    two_processes(MEMBARRIER_CMD_GLOBAL_EXPEDITED, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, ROUNDS);
    start_hands();
    new_code();
    return 0;
}
