// cob: link=static
// Where thread-local storage may lie: arch_prctl, clone and clone3 refuse a base outside user space, and the child does not run.
#include "test.h"
#include <asm/prctl.h>
#include <linux/sched.h>

// No errno, no stack protector: they live where fs points.
static inline long raw(long number, long a, long b, long c, long d, long e) {
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    return result;
}

static void show(const char *what, long result) {
    int status = 0;
    if (result > 0) waitpid(result, &status, 0);
    printf(" %s %s %d", what, result < 0 ? strerror(-result) : "child", WEXITSTATUS(status));
}

int main(void) {
    static const uint64_t bases[] = {0, 0x1000, 0x7fffffffefff, 0x7ffffffff000, 0x7fffffffffff, 0x800000000000,
                                     0xffff7fffffffffff, 0xffff800000000000, 0xffffffff80000000, 0xffffffffffffffff};
    setvbuf(stdout, NULL, _IONBF, 0);
    for (unsigned i = 0; i < sizeof bases / sizeof *bases; i++) {
        uint64_t base = bases[i];
        printf("%lx:", base);
        for (int call = ARCH_SET_GS; call <= ARCH_SET_FS; call++) {
            pid_t child = fork();
            if (child == 0) {
                long result = raw(SYS_arch_prctl, call, base, 0, 0, 0);
                raw(SYS_exit, -result, 0, 0, 0, 0);
            }
            show(call == ARCH_SET_GS ? "gs" : "fs", child);
        }
        long child = raw(SYS_clone, CLONE_SETTLS | SIGCHLD, 0, 0, 0, base);
        if (child == 0) raw(SYS_exit, 5, 0, 0, 0, 0);
        show("clone", child);
        struct clone_args args = {.flags = CLONE_SETTLS, .exit_signal = SIGCHLD, .tls = base};
        child = raw(SYS_clone3, (long)&args, sizeof args, 0, 0, 0);
        if (child == 0) raw(SYS_exit, 6, 0, 0, 0, 0);
        show("clone3", child);
        // What is wrong with the flags comes first.
        show("flags", raw(SYS_clone, CLONE_SETTLS | CLONE_THREAD | SIGCHLD, 0, 0, 0, base));
        printf("\n");
    }
    return 0;
}
