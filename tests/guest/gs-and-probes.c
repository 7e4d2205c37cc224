// cob: link=static kernels=2,4 compare=self shake=no timeout=120
// A program may put any address into gs (wrgsbase), also one of the kernel's. Non-maskable interrupts come between its last instruction and the
// kernel's first, where gs is still the program's: the kernel must not take it for its own.
#include "test.h"
#include <sys/auxv.h>

static void put_gs(unsigned long base) { __asm__ volatile("wrgsbase %0" ::"r"(base)); }

static unsigned long get_gs(void) {
    unsigned long base;
    __asm__ volatile("rdgsbase %0" : "=r"(base));
    return base;
}

// System calls with kernel addresses in gs, until killed.
static void child(void) {
    static const unsigned long bases[] = {0xffff800000000000, 0xffffffff80000000, 0xffff800000201000, 0x1000};
    for (unsigned round = 0;; round++) {
        unsigned long base = bases[round % 4];
        put_gs(base);
        for (int i = 0; i < 50; i++) syscall(SYS_getppid);
        if (get_gs() != base) _exit(3);
    }
}

int main(void) {
    // HWCAP2_FSGSBASE
    if (!(getauxval(AT_HWCAP2) & 2)) {
        printf("no wrgsbase here\nok\n");
        return 0;
    }
    int cpus = sysconf(_SC_NPROCESSORS_ONLN);
    pid_t children[64];
    for (int cpu = 1; cpu < cpus; cpu++) {
        children[cpu] = fork();
        if (children[cpu] == 0) {
            move_to(cpu);
            child();
        }
    }
    move_to(0);
    // Kernel 0 probes all others.
    int probe = open("/proc/cob/probe", O_WRONLY);
    if (probe < 0) {
        perror("/proc/cob/probe");
        return 1;
    }
    for (int i = 0; i < 20000; i++)
        if (write(probe, "0", 1) != 1) {
            perror("probe");
            return 1;
        }
    for (int cpu = 1; cpu < cpus; cpu++) {
        int status;
        kill(children[cpu], SIGKILL);
        waitpid(children[cpu], &status, 0);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
            printf("child %d: %x\n", cpu, status);
            return 1;
        }
    }
    printf("ok\n");
    return 0;
}
