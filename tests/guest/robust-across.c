// Robust mutexes whose holder ends on one kernel while others wait on others: its thread ends, its process is killed, exits or
// executes; who gets it next may repair it or not. Private ones, and ones that processes share. And whose list is where.
// cob: link=static,dynamic flags=-pthread compare=host timeout=120
#include "hands.h"

static const char *name(int error) { return error ? error_name(error) : "fine"; }

// In memory that children share, or not.
static struct area {
    pthread_mutex_t mutex, other;
    _Atomic int held, counter, refused;
} *area;

static void make(int shared, int type) {
    area = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS, -1, 0);
    MUST(area != MAP_FAILED);
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    MUST(pthread_mutexattr_setpshared(&attributes, shared ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE) == 0);
    MUST(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0);
    MUST(pthread_mutexattr_settype(&attributes, type) == 0);
    MUST(pthread_mutex_init(&area->mutex, &attributes) == 0 && pthread_mutex_init(&area->other, &attributes) == 0);
}

static void wait_for(_Atomic int *what, int least) {
    while (*what < least)
        usleep(500);
}

// The mark that somebody waits: glibc's word has it, and nobody sets it but a waiter.
static void wait_for_waiters(pthread_mutex_t *mutex) {
    while (!(*(volatile uint32_t *)&mutex->__data.__lock & 0x80000000))
        usleep(500);
}

static int held(void) {
    int error = pthread_mutex_lock(&area->mutex);
    MUST(error == 0 || error == EOWNERDEAD);
    area->held = 1;
    return error;
}

static void *ends(void *cpu) {
    move_to((int)(intptr_t)cpu);
    held();
    wait_for_waiters(&area->mutex);
    return NULL;
}

// -- one after the other waits, and all see the same ---------------------------------------------------------------------

static int answers[HANDS];

static void repair(int who) {
    answers[who] = pthread_mutex_lock(&area->mutex);
    if (answers[who] == EOWNERDEAD)
        MUST(pthread_mutex_consistent(&area->mutex) == 0);
    area->counter++;
    MUST(pthread_mutex_unlock(&area->mutex) == 0);
}

// glibc wakes one waiter of a lost mutex, and that one no other: the last hand comes when it is lost.
static void do_not_repair(int who) {
    if (who == HANDS - 1)
        wait_for(&area->refused, 1);
    answers[who] = pthread_mutex_lock(&area->mutex);
    if (answers[who] == EOWNERDEAD)
        MUST(pthread_mutex_unlock(&area->mutex) == 0);
    area->refused += answers[who] == ENOTRECOVERABLE;
}

static void show_taken(void) {
    int taken = pthread_mutex_trylock(&area->mutex);
    printf("  taken: %s\n", name(taken));
    if (taken == 0)
        MUST(pthread_mutex_unlock(&area->mutex) == 0);
}

static void begin_all(void (*job)(int)) {
    static void (*all)(int);
    all = job;
    area->held = 0;
    BEGIN(0, wait_for(&area->held, 1); all(0));
    BEGIN(1, wait_for(&area->held, 1); all(1));
    BEGIN(2, wait_for(&area->held, 1); all(2));
}

// Whoever was first: one has heard of the death.
static void finish_all(const char *what) {
    int dead = 0, lost = 0;
    for (int who = 0; who < HANDS; who++)
        finish(who);
    for (int who = 0; who < HANDS; who++) {
        dead += answers[who] == EOWNERDEAD;
        lost += answers[who] == ENOTRECOVERABLE;
        MUST(answers[who] == 0 || answers[who] == EOWNERDEAD || answers[who] == ENOTRECOVERABLE);
    }
    printf("%s: %d heard of the death, %d can't have it\n", what, dead, lost);
}

static void threads_end(int shared) {
    for (int cpu = 0; cpu < 4; cpu++) {
        make(shared, cpu % 2 ? PTHREAD_MUTEX_RECURSIVE : PTHREAD_MUTEX_ERRORCHECK);
        pthread_t thread;
        begin_all(repair);
        MUST(pthread_create(&thread, NULL, ends, (void *)(intptr_t)(cpu % cpu_count())) == 0 && pthread_join(thread, NULL) == 0);
        finish_all("a thread");
        printf("  counted %d", area->counter);
        show_taken();
        begin_all(do_not_repair);
        MUST(pthread_create(&thread, NULL, ends, (void *)(intptr_t)(cpu % cpu_count())) == 0 && pthread_join(thread, NULL) == 0);
        finish_all("a thread, not repaired");
        ON(1, show_taken());
        ON(2, printf("  consistent: %s\n", name(pthread_mutex_consistent(&area->mutex))));
        // Destroyed and made anew it is as good as new.
        MUST(pthread_mutex_destroy(&area->mutex) == 0);
        make(shared, PTHREAD_MUTEX_NORMAL);
        ON(2, show_taken());
    }
}

// -- processes -----------------------------------------------------------------------------------------------------------

// No execve by another thread than the first: Linux gives that thread another id before it looks at what it holds.
enum how { KILLED, EXITS, EXECUTES, SEGFAULTS, HOWS };
static const char *const hows[] = {"killed", "exits", "executes", "segfaults"};
static int lives[2], how;

__attribute__((noreturn)) static void child_ends(void) {
    move_to(cpu_count() - 1);
    held();
    // One that nobody waits for, too.
    MUST(pthread_mutex_lock(&area->other) == 0);
    wait_for_waiters(&area->mutex);
    switch (how) {
    case KILLED:
        for (;;)
            pause();
    case EXITS:
        _exit(7);
    case SEGFAULTS:
        raise(SIGSEGV);
        _exit(1);
    default:
        MUST(dup2(lives[0], 0) == 0);
        execl("/proc/self/exe", "robust-across", "lives", NULL);
        _exit(1);
    }
}

static void processes_end(void) {
    for (how = 0; how < HOWS; how++) {
        for (int repaired = 1; repaired >= 0; repaired--) {
            make(1, PTHREAD_MUTEX_NORMAL);
            MUST(pipe2(lives, O_CLOEXEC) == 0);
            begin_all(repaired ? repair : do_not_repair);
            fflush(stdout);
            pid_t child = fork();
            MUST(child >= 0);
            if (child == 0) {
                close(lives[1]);
                child_ends();
            }
            close(lives[0]);
            if (how == KILLED) {
                wait_for(&area->held, 1);
                wait_for_waiters(&area->mutex);
                MUST(kill(child, SIGKILL) == 0);
            }
            finish_all(hows[how]);
            // A program that is executed lives on when its mutexes are lost; the mutex that nobody waits for is marked, too.
            int status;
            MUST(how != EXECUTES || waitpid(child, &status, WNOHANG) == 0);
            int other = pthread_mutex_lock(&area->other);
            close(lives[1]);
            MUST(waitpid(child, &status, 0) == child);
            printf("  the other: %s\n", name(other));
            show_status("  it", status);
            ON(1, show_taken());
        }
    }
}

// -- many deaths -----------------------------------------------------------------------------------------------------------

enum { LIVES = 24 };

static void *short_life(void *number) {
    move_to((int)(intptr_t)number % cpu_count());
    int error = pthread_mutex_lock(&area->mutex);
    MUST(error == 0 || error == EOWNERDEAD);
    if (error)
        MUST(pthread_mutex_consistent(&area->mutex) == 0);
    area->counter++;
    area->refused += error != 0;
    return NULL;
}

static void many(int shared) {
    make(shared, PTHREAD_MUTEX_NORMAL);
    pthread_t threads[LIVES];
    // Each ends with it: each but the first hears of a death.
    for (intptr_t i = 0; i < LIVES; i++)
        MUST(pthread_create(&threads[i], NULL, short_life, (void *)i) == 0);
    for (int i = 0; i < LIVES; i++)
        pthread_join(threads[i], NULL);
    printf("%d lives, %d deaths heard of\n", area->counter, area->refused);
    if (!shared)
        return;
    pid_t children[LIVES];
    fflush(stdout);
    for (intptr_t i = 0; i < LIVES; i++)
        if ((children[i] = fork()) == 0) {
            short_life((void *)i);
            i % 2 ? (void)kill(getpid(), SIGKILL) : _exit(0);
        }
    for (int i = 0; i < LIVES; i++)
        MUST(waitpid(children[i], NULL, 0) == children[i]);
    printf("%d lives, %d deaths heard of\n", area->counter, area->refused);
    int error = pthread_mutex_lock(&area->mutex);
    printf("at the end: %s\n", name(error));
}

// -- whose list is where -------------------------------------------------------------------------------------------------

static void *lists[HANDS], *own;
static size_t length;

static void *list_of(pid_t who) {
    void *head = &length;
    length = 0;
    long error = syscall(SYS_get_robust_list, who, &head, &length);
    printf("  %s, %zu bytes\n", name(error ? errno : 0), length);
    return head;
}

static void told_of_each_other(void) {
    ON(0, lists[0] = list_of(0));
    ON(1, lists[1] = list_of(0));
    ON(2, lists[2] = list_of(0));
    for (int who = 0; who < HANDS; who++)
        MUST(list_of(hands[who].tid) == lists[who]);
    ON(1, MUST(list_of(hands[2].tid) == lists[2]));
    ON(2, MUST(list_of(hands[0].tid) == lists[0]));
    own = list_of(0);
    ON(2, MUST(list_of(getpid()) == own));
    // Nobody has it any more who has ended; nobody has the id of a thread that was waited for.
    fflush(stdout);
    int pair[2];
    MUST(pipe(pair) == 0);
    static pid_t child;
    child = fork();
    MUST(child >= 0);
    if (child == 0) {
        move_to(cpu_count() - 1);
        close(pair[1]);
        printf("a child finds\n");
        MUST(list_of(0) == own);
        MUST(list_of(getppid()) == own);
        printf("another user finds\n");
        MUST(setresuid(1000, 1000, 1000) == 0);
        MUST(list_of(0) == own && list_of(getpid()) == own);
        list_of(getppid());
        fflush(stdout);
        char byte;
        _exit((int)read(pair[0], &byte, 1));
    }
    close(pair[0]);
    close(pair[1]);
    siginfo_t info;
    MUST(waitid(P_PID, child, &info, WEXITED | WNOWAIT) == 0);
    printf("a zombie has %s\n", list_of(child) ? "one" : "none");
    ON(2, printf("from afar: %s\n", list_of(child) ? "one" : "none"));
    MUST(waitpid(child, NULL, 0) == child);
    list_of(child);
    list_of(-1);
    ON(1, SHOW(syscall(SYS_get_robust_list, hands[2].tid, NULL, &length)); SHOW(syscall(SYS_get_robust_list, hands[2].tid, &own, NULL)));
}

int main(int count, char **arguments) {
    if (count > 1) {
        char byte;
        return read(0, &byte, 1) == 0 ? 7 : 1;
    }
    start_hands();
    told_of_each_other();
    threads_end(0);
    threads_end(1);
    processes_end();
    many(0);
    many(1);
    return 0;
}
