// What is left of a signal's action after its handler has begun (SA_RESETHAND), and frames that cannot be written.
// cob: link=static,dynamic compare=host
#include "test.h"
#include <sys/resource.h>
#include <sys/ucontext.h>

static volatile int calls;
static void count(int signal) { calls++; }

static void show(const char *what, int signal) {
    struct {
        void *handler;
        unsigned long flags;
        void *restorer;
        unsigned long mask;
    } now;
    MUST(syscall(SYS_rt_sigaction, signal, NULL, &now, 8) == 0);
    printf("%s: %s, flags %lx, restorer %s, mask %lx\n", what,
           now.handler == (void *)SIG_DFL ? "default" : now.handler == (void *)SIG_IGN ? "ignored" : "handler", now.flags,
           now.restorer ? "yes" : "no", now.mask);
}

static void once(const char *what, int flags) {
    struct sigaction action = {.sa_handler = count, .sa_flags = flags};
    sigaddset(&action.sa_mask, SIGUSR2);
    MUST(sigaction(SIGUSR1, &action, NULL) == 0);
    calls = 0;
    show(what, SIGUSR1);
    raise(SIGUSR1);
    printf("calls %d\n", calls);
    show("afterwards", SIGUSR1);
}

static volatile int seen_signal, seen_code, seen_inside;
static char *volatile seen_at;
static char alternate[1 << 16] __attribute__((aligned(4096)));

static void overflow(int signal, siginfo_t *info, void *context) {
    seen_signal = signal;
    seen_code = info->si_code;
    seen_at = info->si_addr;
    char here;
    seen_inside = &here >= alternate && &here < alternate + sizeof alternate;
    sigset_t blocked;
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    char text[200];
    int len = snprintf(text, sizeof text, "SIGSEGV: code %d at %ld, on the other stack: %d, blocked: USR1 %d SEGV %d, rip is the handler's: %d\n",
                       info->si_code, (long)info->si_addr, seen_inside, sigismember(&blocked, SIGUSR1), sigismember(&blocked, SIGSEGV),
                       ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] == (long)count);
    write(1, text, (size_t)len);
    _exit(7);
}

// Raises a signal whose handler has no stack: below rsp is nothing.
static void without_stack(int signal, int flags, int segv_flags, int blocks_segv) {
    stack_t stack = {alternate, 0, sizeof alternate};
    MUST(sigaltstack(&stack, NULL) == 0);
    struct sigaction on_other = {.sa_sigaction = overflow, .sa_flags = SA_SIGINFO | segv_flags}, action = {.sa_handler = count, .sa_flags = flags};
    if (segv_flags != -1)
        MUST(sigaction(SIGSEGV, &on_other, NULL) == 0);
    MUST(sigaction(signal, &action, NULL) == 0);
    if (blocks_segv) {
        sigset_t one;
        sigemptyset(&one);
        sigaddset(&one, SIGSEGV);
        sigprocmask(SIG_BLOCK, &one, NULL);
    }
    char *tiny = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(tiny, PAGE, PROT_NONE);
    long pid = getpid();
    register long rax asm("rax");
    asm volatile("mov %%rsp, %%r12\n\tmov %[stack], %%rsp\n\tsyscall\n\tmov %%r12, %%rsp"
                 : "=a"(rax)
                 : "a"((long)SYS_kill), "D"(pid), "S"((long)signal), [stack] "r"(tiny + PAGE + 64)
                 : "rcx", "r11", "r12", "memory");
    printf("kill: %ld, calls %d\n", rax, calls);
}

static void no_core(void) {
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
}

int main(void) {
    no_core();
    once("SA_RESETHAND", SA_RESETHAND);
    once("SA_RESETHAND | SA_NODEFER | SA_RESTART", SA_RESETHAND | SA_NODEFER | SA_RESTART);
    once("SA_RESETHAND | SA_ONSTACK", SA_RESETHAND | SA_ONSTACK);
    once("none", 0);
    struct sigaction again = {.sa_handler = SIG_DFL, .sa_flags = SA_RESETHAND | SA_SIGINFO};
    MUST(sigaction(SIGUSR1, &again, NULL) == 0);
    show("set by hand", SIGUSR1);
    IN_CHILD("fork", show("in a child", SIGUSR1));
    struct sigaction handled = {.sa_handler = count, .sa_flags = SA_RESTART};
    MUST(sigaction(SIGUSR2, &handled, NULL) == 0);

    IN_CHILD("SIGUSR1 without a stack", without_stack(SIGUSR1, 0, SA_ONSTACK, 0));
    IN_CHILD("SIGUSR1 without a stack, SIGSEGV on the same", without_stack(SIGUSR1, 0, 0, 0));
    IN_CHILD("SIGUSR1 without a stack, no handler", without_stack(SIGUSR1, 0, -1, 0));
    IN_CHILD("SIGUSR1 without a stack, SIGSEGV blocked", without_stack(SIGUSR1, 0, SA_ONSTACK, 1));
    IN_CHILD("SIGUSR1 on the other stack", without_stack(SIGUSR1, SA_ONSTACK, SA_ONSTACK, 0));
    IN_CHILD("SA_RESETHAND without a stack", without_stack(SIGUSR1, SA_RESETHAND, SA_ONSTACK | SA_RESETHAND, 0));
    IN_CHILD("SIGSEGV without a stack", {
        stack_t stack = {alternate, 0, sizeof alternate};
        MUST(sigaltstack(&stack, NULL) == 0);
        without_stack(SIGSEGV, 0, -1, 0);
    });
    // Deep recursion that a handler on another stack survives.
    IN_CHILD("bad rsp", {
        stack_t stack = {alternate, 0, sizeof alternate};
        MUST(sigaltstack(&stack, NULL) == 0);
        struct sigaction on_other = {.sa_sigaction = overflow, .sa_flags = SA_SIGINFO | SA_ONSTACK};
        MUST(sigaction(SIGSEGV, &on_other, NULL) == 0);
        asm volatile("mov $16, %%rsp\n\tpush %%rax" ::: "memory");
    });
    // A small alternate stack that the frame does not fit on.
    IN_CHILD("too small", {
        stack_t stack = {alternate, 0, 2048};
        SHOW(sigaltstack(&stack, NULL));
    });
    return 0;
}
