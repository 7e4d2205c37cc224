// Signals that wait, blocked, and are then ignored: sigaction forgets them for the process and for all its threads, from any kernel.
// cob: link=static,dynamic flags=-pthread compare=host timeout=120
#include "test.h"
#include <pthread.h>
#include <sys/signalfd.h>

#define THREADS 4
static pthread_barrier_t step;
static long tids[THREADS];
static _Atomic int pending[THREADS], handled;
static const int numbers[] = {SIGUSR1, SIGURG, SIGTERM};
#define NUMBERS (sizeof numbers / sizeof *numbers)

static void wait_for_all(void) {
    int result = pthread_barrier_wait(&step);
    MUST(result == 0 || result == PTHREAD_BARRIER_SERIAL_THREAD);
}

static void look(int me) {
    sigset_t set;
    MUST(sigpending(&set) == 0);
    int seen = 0;
    for (size_t i = 0; i < NUMBERS; i++)
        seen |= sigismember(&set, numbers[i]) << i;
    seen |= sigismember(&set, SIGRTMIN + 3) << NUMBERS;
    pending[me] = seen;
}

static void show(const char *when) {
    printf("%s:", when);
    for (int i = 0; i < THREADS; i++)
        printf(" %x", pending[i]);
    printf(", %d handled\n", handled);
}

static void *worker(void *argument) {
    int me = (int)(long)argument;
    tids[me] = syscall(SYS_gettid);
    for (int round = 0; round < cpu_count(); round++) {
        wait_for_all();
        move_to((me + round) % cpu_count());
        wait_for_all(); // main sends
        wait_for_all();
        look(me);
        wait_for_all(); // main ignores
        wait_for_all();
        look(me);
        wait_for_all(); // main handles them again
        wait_for_all();
    }
    return NULL;
}

static void handler(int number) {
    (void)number;
    handled++;
}

static void act(int number, void (*with)(int)) {
    struct sigaction action = {.sa_handler = with};
    MUST(sigaction(number, &action, NULL) == 0);
}

int main(void) {
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < NUMBERS; i++)
        sigaddset(&set, numbers[i]);
    sigaddset(&set, SIGRTMIN + 3);
    MUST(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    int fd = signalfd(-1, &set, SFD_NONBLOCK);
    MUST(fd >= 0);
    MUST(pthread_barrier_init(&step, NULL, THREADS + 1) == 0);
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        MUST(pthread_create(&threads[i], NULL, worker, (void *)i) == 0);
    int all_shown = 1;
    for (int round = 0; round < cpu_count(); round++) {
        move_to(round);
        for (size_t i = 0; i < NUMBERS; i++)
            act(numbers[i], handler);
        act(SIGRTMIN + 3, handler);
        wait_for_all();
        wait_for_all(); // all are where they belong
        MUST(kill(getpid(), SIGUSR1) == 0);
        MUST(kill(getpid(), SIGURG) == 0);
        for (int i = 0; i < 3; i++)
            MUST(sigqueue(getpid(), SIGRTMIN + 3, (union sigval){.sival_int = i}) == 0);
        for (int i = 0; i < THREADS; i++)
            MUST(syscall(SYS_tgkill, getpid(), tids[i], i % 2 ? SIGUSR1 : SIGTERM) == 0);
        wait_for_all();
        wait_for_all(); // all have looked
        if (round == 0)
            show("sent");
        for (int i = 0; i < THREADS; i++)
            all_shown &= pending[i] == (i % 2 ? 0xb : 0xf);
        act(SIGUSR1, SIG_IGN);
        act(SIGURG, SIG_DFL); // is to ignore
        act(SIGTERM, SIG_DFL); // is not
        act(SIGRTMIN + 3, SIG_IGN);
        wait_for_all();
        wait_for_all();
        if (round == 0)
            show("ignored");
        for (int i = 0; i < THREADS; i++)
            all_shown &= pending[i] == (i % 2 ? 0 : 4);
        act(SIGTERM, SIG_IGN);
        struct signalfd_siginfo info;
        all_shown &= read(fd, &info, sizeof info) == -1 && errno == EAGAIN;
        for (size_t i = 0; i < NUMBERS; i++)
            act(numbers[i], handler);
        act(SIGRTMIN + 3, handler);
        MUST(sigprocmask(SIG_UNBLOCK, &set, NULL) == 0);
        MUST(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
        wait_for_all();
    }
    for (int i = 0; i < THREADS; i++)
        MUST(pthread_join(threads[i], NULL) == 0);
    printf("in every round: %s, %d handled\n", all_shown ? "yes" : "no", handled);
}
