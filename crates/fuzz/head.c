#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ARENA 0x100000000
#define AREA 0x10000
#define ACTORS 8
#define STACKS (ARENA + 0x100000)
#define NOBODY 65534

// What calls have made, for all threads and processes.
static volatile long *slot;
static volatile char *is_born;

// The signal handler and its restorer, where descriptions of rt_sigaction expect them.
__asm__(".pushsection .fuzz,\"ax\"\n"
        "ret\n.balign 16\nmov $15, %eax\nsyscall\n.popsection\n");

// Nobody is made of a call that returns 0 in a child without a part in the program.
static void nobody(void) {}

// A call that may return twice. The child has a stack of its own, whatever the call said, runs its part and exits.
static __attribute__((noinline)) long born(int actor, void (*part)(void), long number, long a, long b, long c, long d,
                                           long e, long f) {
    long answer;
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    register char *stack __asm__("r12") = (char *)STACKS + (actor + 1) * 0x10000 - 64;
    register void (*run)(void) __asm__("r13") = part;
    register volatile char *mark __asm__("r14") = is_born + actor;
    __asm__ volatile("syscall\n"
                     "test %%rax, %%rax\n"
                     "jnz 1f\n"
                     "mov %%r12, %%rsp\n"
                     "mov $1, %%al\n"
                     "xchg %%al, (%%r14)\n"
                     "test %%al, %%al\n"
                     "jnz 2f\n"
                     "call *%%r13\n"
                     "2: mov $60, %%eax\n"
                     "xor %%edi, %%edi\n"
                     "syscall\n"
                     "1:"
                     : "=a"(answer)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9), "r"(stack), "r"(run), "r"(mark)
                     : "rcx", "r11", "memory");
    if (answer < 0 && answer > -4096) {
        errno = (int)-answer;
        return -1;
    }
    return answer;
}

static char directory[] = "/tmp/fuzz-XXXXXX";

// An empty directory for everybody.
static void make_directory(void) {
    if (!mkdtemp(directory) || chmod(directory, 0777))
        exit(99);
}

static void share(void) {
    char *shared = mmap(0, 0x4000, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    slot = (volatile long *)shared;
    is_born = shared + 0x1000;
}

// Memory, and no privileges.
static void prepare(void) {
    for (int i = 0; i < 256; i++)
        slot[i] = -1;
    for (int actor = 0; actor < ACTORS; actor++)
        is_born[actor] = actor == 0;
    for (long actor = 0; actor < ACTORS; actor++)
        mmap((void *)(ARENA + actor * AREA), AREA - 0x1000, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    mmap((void *)STACKS, (ACTORS + 1) * 0x10000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (chdir(directory))
        exit(99);
    struct rlimit files = {64, 64}, core = {0, 0};
    setrlimit(RLIMIT_NOFILE, &files);
    setrlimit(RLIMIT_CORE, &core);
    close_range(3, ~0U, 0);
    for (int fd = 0; fd < 3; fd++) {
        close(fd);
        open("/dev/null", O_RDWR);
    }
    if (geteuid() == 0 && (setgroups(0, 0) || setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY)))
        exit(99);
}
