// A SIGSEGV handler that runs on its own stack in a thread that has moved, repairs the page and goes on.
// cob: link=static,dynamic flags=-pthread kernels=1,2,4 compare=self timeout=120
#include "test.h"
#include <pthread.h>
#include <ucontext.h>

static __thread volatile char *expected;
static __thread int faults;
static __thread char *stack;

static void handler(int number, siginfo_t *info, void *context) {
    char here;
    MUST(number == SIGSEGV);
    MUST(info->si_addr == (void *)expected);
    MUST(info->si_code == SEGV_ACCERR);
    MUST(&here >= stack && &here < stack + SIGSTKSZ);
    MUST(((ucontext_t *)context)->uc_mcontext.gregs[REG_CR2] == (greg_t)(uintptr_t)expected);
    faults++;
    char *page = (char *)((uintptr_t)info->si_addr & ~(PAGE - 1));
    MUST(mprotect(page, PAGE, PROT_READ | PROT_WRITE) == 0);
}

static void *worker(void *argument) {
    stack = malloc(SIGSTKSZ);
    stack_t alternative = {.ss_sp = stack, .ss_size = SIGSTKSZ};
    MUST(sigaltstack(&alternative, NULL) == 0);
    char *memory = mmap(NULL, 16 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    int cpus = cpu_count(), count = 0;
    for (int round = 0; round < 10; round++) {
        for (int page = 0; page < 16; page++) {
            move_to((page + round + (int)(long)argument) % cpus);
            expected = memory + page * PAGE + round * 8 + 3;
            *expected = 'a' + round;
            count++;
            MUST(faults == count);
            MUST(*expected == 'a' + round);
        }
        move_to(round % cpus);
        MUST(mprotect(memory, 16 * PAGE, PROT_READ) == 0);
    }
    return NULL;
}

int main(void) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    MUST(sigaction(SIGSEGV, &action, NULL) == 0);
    pthread_t threads[6];
    for (long i = 0; i < 6; i++)
        MUST(pthread_create(&threads[i], NULL, worker, (void *)i) == 0);
    for (int i = 0; i < 6; i++)
        MUST(pthread_join(threads[i], NULL) == 0);
    printf("ok\n");
}
