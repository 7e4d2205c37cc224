// What a thread carries when it moves: registers, SSE and AVX state, x87 control words, TLS, signal mask, pending
// signals, name, ids, working directory, open files.
// cob: link=static,dynamic flags=-pthread kernels=1,2,4 compare=self timeout=60
#include "test.h"
#include <fenv.h>
#include <pthread.h>
#include <sys/prctl.h>

static __thread long local = 42;
static _Atomic int received;

static void on_signal(int number) { received += number; }

// Fills vector registers, moves by the raw system call, and looks whether they are still there.
static void vectors(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    uint64_t in[8], out[8];
    for (int i = 0; i < 8; i++)
        in[i] = 0x0123456789abcdefu * (i + 1) ^ (uint64_t)cpu << 50;
    long result = SYS_sched_setaffinity;
    long saved_rbx, saved_r12;
    __asm__ volatile("movdqu (%[in]), %%xmm5\n movdqu 16(%[in]), %%xmm12\n"
                     "mov $0x1122334455667788, %%rbx\n mov $0x99aabbccddeeff00, %%r12\n"
                     "syscall\n"
                     "movdqu %%xmm5, (%[out])\n movdqu %%xmm12, 16(%[out])\n"
                     "mov %%rbx, %[b]\n mov %%r12, %[c]\n"
                     : "+a"(result), [b] "=&r"(saved_rbx), [c] "=&r"(saved_r12)
                     : "D"(0L), "S"(sizeof set), "d"(&set), [in] "r"(in), [out] "r"(out)
                     : "rcx", "r11", "rbx", "r12", "xmm5", "xmm12", "memory");
    MUST(result == 0);
    MUST(memcmp(in, out, 32) == 0);
    MUST(saved_rbx == 0x1122334455667788 && (uint64_t)saved_r12 == 0x99aabbccddeeff00u);
    if (__builtin_cpu_supports("avx")) {
        CPU_ZERO(&set);
        CPU_SET((cpu + 1) % cpu_count(), &set);
        result = SYS_sched_setaffinity;
        __asm__ volatile("vmovdqu (%[in]), %%ymm7\n syscall\n vmovdqu %%ymm7, (%[out])\n vzeroupper\n"
                         : "+a"(result)
                         : "D"(0L), "S"(sizeof set), "d"(&set), [in] "r"(in), [out] "r"(out)
                         : "rcx", "r11", "xmm7", "memory");
        MUST(result == 0 && memcmp(in, out, 32) == 0);
    }
}

static void *worker(void *argument) {
    long tid = syscall(SYS_gettid);
    pid_t pid = getpid();
    char name[16], cwd[4096], cwd_now[4096];
    MUST(prctl(PR_SET_NAME, "traveller") == 0);
    MUST(getcwd(cwd, sizeof cwd));
    sigset_t mask, now;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    sigaddset(&mask, SIGRTMIN + 3);
    MUST(pthread_sigmask(SIG_BLOCK, &mask, NULL) == 0);
    fesetround(FE_UPWARD);
    int fd = open("/proc/self/status", O_RDONLY);
    MUST(fd >= 0);
    for (int round = 0; round < 25; round++)
        for (int cpu = 0; cpu < cpu_count(); cpu++) {
            received = 0;
            MUST(syscall(SYS_tgkill, pid, tid, SIGUSR1) == 0); // stays pending across the move
            move_to(cpu);
            vectors(cpu);
            MUST(received == 0);
            MUST(sigpending(&now) == 0 && sigismember(&now, SIGUSR1) == 1);
            MUST(pthread_sigmask(SIG_UNBLOCK, &mask, NULL) == 0);
            MUST(received == SIGUSR1);
            MUST(pthread_sigmask(SIG_BLOCK, &mask, &now) == 0 && !sigismember(&now, SIGUSR1));
            MUST(syscall(SYS_gettid) == tid && getpid() == pid);
            MUST(fegetround() == FE_UPWARD);
            MUST(prctl(PR_GET_NAME, name) == 0 && strcmp(name, "traveller") == 0);
            MUST(getcwd(cwd_now, sizeof cwd_now) && strcmp(cwd, cwd_now) == 0);
            MUST(local == 42 + round * cpu_count() + cpu);
            local++;
            char byte;
            MUST(pread(fd, &byte, 1, 0) == 1 && byte == 'N');
        }
    return argument;
}

int main(void) {
    struct sigaction action = {.sa_handler = on_signal};
    MUST(sigaction(SIGUSR1, &action, NULL) == 0);
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, worker, NULL) == 0);
    MUST(pthread_join(thread, NULL) == 0);
    worker(NULL);
    printf("ok\n");
}
