// Restartable sequences: glibc's registration, the numbers it keeps, errnos, the abort of a section.
// cob: link=static,dynamic flags=-pthread compare=host
#include "test.h"
#include <stddef.h>
#include <sys/rseq.h>

static struct rseq *area(void) { return (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset); }

// Spins inside a section until it is aborted; -1 if that is what happened.
static int section(struct rseq *rseq) {
    int result = 0;
    __asm__ volatile(
        ".pushsection __rseq_cs, \"aw\"\n\t"
        ".balign 32\n"
        "3: .long 0, 0\n\t"
        ".quad 1f, 2f - 1f, 4f\n\t"
        ".popsection\n\t"
        "leaq 3b(%%rip), %%rax\n\t"
        "movq %%rax, %1\n"
        "1: pause\n\t"
        "jmp 1b\n"
        "2:\n\t"
        ".byte 0x0f, 0xb9, 0x3d\n\t"
        ".long 0x53053053\n"
        "4: movl $-1, %0\n\t"
        : "+r"(result), "=m"(rseq->rseq_cs)
        :
        : "rax", "memory", "cc");
    return result;
}

static volatile int handled;
static void handler(int number) { (void)number, handled++; }

int main(void) {
    struct rseq *rseq = area();
    printf("registered %d\n", __rseq_size > 0);
    SHOW(syscall(SYS_rseq, rseq, 32, 2, RSEQ_SIG));
    static struct rseq mine __attribute__((aligned(64)));
    SHOW(syscall(SYS_rseq, &mine, 32, 0, RSEQ_SIG));
    SHOW(syscall(SYS_rseq, &mine, 32, 1, RSEQ_SIG));
    int same = 1;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(cpu, &set);
        if (sched_setaffinity(0, sizeof set, &set) != 0)
            continue;
        unsigned real = 0;
        for (int i = 0; i < 50; i++) {
            syscall(SYS_getcpu, &real, NULL, NULL);
            same &= rseq->cpu_id == real && rseq->cpu_id_start == real && (int)real == cpu && sched_getcpu() == cpu;
            sched_yield();
        }
    }
    printf("same %d\n", same);
    fflush(stdout);
    signal(SIGALRM, handler);
    ualarm(20000, 0);
    // Being preempted aborts it, too; on a quiet machine only the signal does.
    printf("aborted %d\n", section(rseq));
    while (!handled)
        usleep(1000);
    printf("cleared %d\n", rseq->rseq_cs == 0);
    IN_CHILD("after fork", printf("same %d\n", sched_getcpu() == (int)area()->cpu_id););
    static struct { uint32_t version, flags; uint64_t start, length, abort; } bad __attribute__((aligned(32))) = {1, 0, 0, 0, 0};
    IN_CHILD("a broken section", {
        rseq->rseq_cs = (uintptr_t)&bad;
        for (;;)
            sched_yield(), usleep(1000);
    });
}
