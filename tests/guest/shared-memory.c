// One address space seen from every CPU: what one writes the others read; unmap and protect reach them all.
// cob: link=static,dynamic flags=-pthread kernels=1,2,4 compare=self timeout=120
#include "test.h"
#include <pthread.h>
#include <setjmp.h>

enum { PAGES = 32 };
static volatile long *memory;
static pthread_barrier_t barrier;
static __thread sigjmp_buf back;

static void handler(int number) { siglongjmp(back, number); }

static int faults(volatile long *address, int write) {
    int number = sigsetjmp(back, 1);
    if (number)
        return number;
    if (write)
        *address = 1;
    else
        (void)*address;
    return 0;
}

static void *worker(void *argument) {
    int me = (int)(long)argument, cpus = cpu_count();
    move_to(me % cpus);
    for (int round = 1; round <= 20; round++) {
        if (me == 0) {
            memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            MUST(memory != MAP_FAILED);
        }
        pthread_barrier_wait(&barrier);
        for (int page = me; page < PAGES; page += cpus)
            memory[page * PAGE / 8] = round * 1000 + page;
        pthread_barrier_wait(&barrier);
        for (int page = 0; page < PAGES; page++)
            MUST(memory[page * PAGE / 8] == round * 1000 + page);
        pthread_barrier_wait(&barrier);
        if (me == round % cpus)
            MUST(mprotect((void *)memory, PAGES * PAGE, PROT_READ) == 0);
        pthread_barrier_wait(&barrier);
        for (int page = 0; page < PAGES; page += 5) {
            MUST(faults(&memory[page * PAGE / 8], 1) == SIGSEGV);
            MUST(memory[page * PAGE / 8] == round * 1000 + page);
        }
        pthread_barrier_wait(&barrier);
        if (me == (round + 1) % cpus)
            MUST(munmap((void *)memory, PAGES * PAGE) == 0);
        pthread_barrier_wait(&barrier);
        for (int page = 0; page < PAGES; page += 5)
            MUST(faults(&memory[page * PAGE / 8], 0) == SIGSEGV);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

int main(void) {
    struct sigaction action = {.sa_handler = handler};
    MUST(sigaction(SIGSEGV, &action, NULL) == 0);
    int cpus = cpu_count();
    MUST(pthread_barrier_init(&barrier, NULL, cpus) == 0);
    pthread_t threads[64];
    for (long i = 0; i < cpus; i++)
        MUST(pthread_create(&threads[i], NULL, worker, (void *)i) == 0);
    for (int i = 0; i < cpus; i++)
        MUST(pthread_join(threads[i], NULL) == 0);
    printf("ok\n");
}
