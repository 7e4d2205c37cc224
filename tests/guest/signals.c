// Handlers, masks, pending signals, SA_RESTART, SA_NODEFER, SA_RESETHAND, default actions.
// cob: link=static,dynamic compare=host
#include "test.h"

static volatile int count, depth, deepest;

static void handler(int number) {
    count++;
    if (++depth > deepest)
        deepest = depth;
    if (count < 3)
        raise(number);
    depth--;
}

/// Shared with the child, which must not stop too early on a slow machine.
static volatile struct { int handled, read; } *seen;

static void nothing(int number) {
    (void)number;
    seen->handled++;
}

static void install(int number, void (*what)(int), int flags) {
    struct sigaction action = {.sa_handler = what, .sa_flags = flags};
    sigemptyset(&action.sa_mask);
    SHOW(sigaction(number, &action, NULL));
}

static void read_interrupted(int flags) {
    int ends[2];
    char byte;
    MUST(pipe(ends) == 0);
    install(SIGUSR1, nothing, flags);
    fflush(stdout);
    seen->read = 0;
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        // Until one has interrupted the read, or if they don't, until some have tried.
        int before = seen->handled;
        while (flags & SA_RESTART ? seen->handled - before < 5 : !seen->read) {
            usleep(20000);
            kill(parent, SIGUSR1);
        }
        write(ends[1], "x", 1);
        _exit(0);
    }
    SHOW(read(ends[0], &byte, 1));
    seen->read = 1;
    while (waitpid(child, NULL, 0) != child)
        ;
    close(ends[0]), close(ends[1]);
}

int main(void) {
    seen = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(seen != MAP_FAILED);
    install(SIGUSR1, handler, 0);
    raise(SIGUSR1);
    printf("count %d deepest %d\n", count, deepest);
    count = deepest = 0;
    install(SIGUSR1, handler, SA_NODEFER);
    raise(SIGUSR1);
    printf("count %d deepest %d\n", count, deepest);
    count = 3;
    install(SIGUSR1, handler, SA_RESETHAND);
    raise(SIGUSR1);
    struct sigaction old;
    SHOW(sigaction(SIGUSR1, NULL, &old));
    printf("reset %d count %d\n", old.sa_handler == SIG_DFL, count);
    SHOW(sigaction(SIGKILL, &old, NULL));
    SHOW(sigaction(SIGSTOP, &old, NULL));
    SHOW(sigaction(0, NULL, &old));
    SHOW(sigaction(65, NULL, &old));
    SHOW(kill(getpid(), 0));
    SHOW(kill(getpid(), 65));
    SHOW(kill(getpid(), -1));
    SHOW(kill(2000000000, 0));
    read_interrupted(SA_RESTART);
    read_interrupted(0);
    // Standard signals do not queue; real-time ones do, in order.
    sigset_t mask, pending;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR2);
    sigaddset(&mask, SIGRTMIN);
    sigaddset(&mask, SIGRTMIN + 1);
    SHOW(sigprocmask(SIG_BLOCK, &mask, NULL));
    SHOW(sigprocmask(77, &mask, NULL));
    for (int i = 0; i < 3; i++) {
        raise(SIGUSR2);
        union sigval value = {.sival_int = i};
        SHOW(sigqueue(getpid(), SIGRTMIN + 1, value));
        value.sival_int += 10;
        SHOW(sigqueue(getpid(), SIGRTMIN, value));
    }
    sigpending(&pending);
    printf("pending %d %d\n", sigismember(&pending, SIGUSR2), sigismember(&pending, SIGUSR1));
    for (;;) {
        siginfo_t info;
        struct timespec zero = {0};
        int number = sigtimedwait(&mask, &info, &zero);
        if (number < 0)
            break;
        printf("signal %d code %d value %d mine %d\n", number - (number > 31 ? SIGRTMIN : 0), info.si_code,
               number == SIGUSR2 ? 0 : info.si_value.sival_int, info.si_pid == getpid());
    }
    printf("then %s\n", error_name(errno));
    install(SIGUSR2, nothing, 0);
    raise(SIGUSR2);
    sigemptyset(&mask);
    SHOW(sigsuspend(&mask));
    IN_CHILD("abort", abort());
    IN_CHILD("term", kill(getpid(), SIGTERM); pause());
    IN_CHILD("kill", kill(getpid(), SIGKILL));
    IN_CHILD("segv", *(volatile int *)8 = 1);
    IN_CHILD("segv ignored", signal(SIGSEGV, SIG_IGN); *(volatile int *)8 = 1);
    IN_CHILD("fpe", volatile int one = 100, zero = 0; printf("%d", one / zero));
    IN_CHILD("ill", __builtin_trap());
    IN_CHILD("trap", __asm__ volatile("int3"));
    IN_CHILD("privileged", __asm__ volatile("hlt"));
    IN_CHILD("non-canonical", *(volatile int *)0x8000000000000000 = 1);
    IN_CHILD("kernel address", *(volatile int *)0xffffffff80000000 = 1);
    IN_CHILD("jump to nothing", ((void (*)(void))16)());
    IN_CHILD("alarm", alarm(1); pause());
    IN_CHILD("urg is ignored", raise(SIGURG); raise(SIGCHLD); raise(SIGWINCH));
    IN_CHILD("real-time", raise(SIGRTMIN + 4));
    IN_CHILD("usr1", raise(SIGUSR1));
}
