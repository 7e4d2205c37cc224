// What siginfo and ucontext say about faults, kills and children; sigaltstack; returning into changed registers.
// cob: link=static,dynamic compare=host
#include "test.h"
#include <setjmp.h>
#include <ucontext.h>

static sigjmp_buf back;
static char *stack;
static siginfo_t last;
static int on_stack;
static long trap;

static void record(int number, siginfo_t *info, void *context) {
    char here;
    last = *info;
    on_stack = &here >= stack && &here < stack + 65536;
    trap = ((ucontext_t *)context)->uc_mcontext.gregs[REG_TRAPNO];
    (void)number;
    siglongjmp(back, 1);
}

static void show(const char *what, void *address) {
    printf("%s: signal %s code %d address %s trap %ld on stack %d\n", what, sigabbrev_np(last.si_signo), last.si_code,
           last.si_addr == address ? "right" : "wrong", trap, on_stack);
}

#define FAULT(what, address, body)                                                                                   \
    do {                                                                                                             \
        if (sigsetjmp(back, 1) == 0) {                                                                               \
            body;                                                                                                    \
            printf("%s: no fault\n", what);                                                                          \
        } else                                                                                                       \
            show(what, (void *)(address));                                                                           \
    } while (0)

static void skip(int number, siginfo_t *info, void *context) {
    // Steps over `ud2` and leaves a value in rax.
    ucontext_t *user = context;
    user->uc_mcontext.gregs[REG_RIP] += 2;
    user->uc_mcontext.gregs[REG_RAX] = 4711;
    (void)number, (void)info;
}

static void from(int number, siginfo_t *info, void *context) {
    printf("signal %s code %d pid %d uid %d\n", sigabbrev_np(number), info->si_code, info->si_pid == getpid(),
           info->si_uid == getuid());
    (void)context;
}

static void install(int number, void (*what)(int, siginfo_t *, void *)) {
    struct sigaction action = {.sa_sigaction = what, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaction(number, &action, NULL);
}

int main(void) {
    stack = malloc(65536);
    stack_t new = {.ss_sp = stack, .ss_size = 65536}, old;
    SHOW(sigaltstack(&new, NULL));
    SHOW(sigaltstack(NULL, &old));
    printf("set %d flags %d\n", old.ss_sp == stack, old.ss_flags);
    new.ss_size = 100;
    SHOW(sigaltstack(&new, NULL));
    new.ss_flags = 0x77;
    SHOW(sigaltstack(&new, NULL));
    install(SIGSEGV, record), install(SIGBUS, record), install(SIGFPE, record), install(SIGILL, record);
    install(SIGTRAP, record);
    char *read_only = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FAULT("unmapped", 24, (void)*(volatile char *)24);
    FAULT("read only", read_only + 5, *(volatile char *)(read_only + 5) = 1);
    FAULT("not executable", read_only, ((void (*)(void))read_only)());
    int fd = open("short", O_CREAT | O_RDWR, 0600);
    MUST(ftruncate(fd, 100) == 0);
    char *file = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    FAULT("inside the last page", 0, file[200] = 1);
    FAULT("beyond the file", file + PAGE + 7, (void)*(volatile char *)(file + PAGE + 7));
    FAULT("breakpoint", 0, __asm__ volatile("int3"));
    FAULT("general protection", 0, (void)*(volatile char *)0x1234567890abcdef);
    if (sigsetjmp(back, 1) == 0) {
        volatile int one = 100, zero = 0;
        printf("%d\n", one / zero);
    } else
        printf("division: signal %s code %d\n", sigabbrev_np(last.si_signo), last.si_code);
    install(SIGILL, skip);
    long value = 1;
    __asm__ volatile("ud2" : "+a"(value));
    printf("after the handler %ld\n", value);
    install(SIGUSR1, from);
    SHOW(raise(SIGUSR1));
    SHOW(kill(getpid(), SIGUSR1));
    SHOW(syscall(SYS_tgkill, getpid(), 999999, SIGUSR1));
    SHOW(syscall(SYS_tgkill, -1, getpid(), SIGUSR1));
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (int how = 0; how < 2; how++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            if (how)
                raise(SIGKILL);
            _exit(9);
        }
        siginfo_t info;
        MUST(sigwaitinfo(&set, &info) == SIGCHLD);
        printf("child: code %d status %d pid %d\n", info.si_code, info.si_status, info.si_pid == child);
        waitpid(child, NULL, 0);
    }
}
