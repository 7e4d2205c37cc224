// The clock of a process's CPU time never goes back, also while its threads are on their way between kernels.
// cob: link=static,dynamic compare=self timeout=120
#include "test.h"
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define MOVES 600

static atomic_int moving = 2;

static void *move(void *unused) {
    (void)unused;
    for (int i = 0; i < MOVES; i++)
        move_to(i % cpu_count());
    moving--;
    return NULL;
}

static long long used(void) {
    struct timespec now;
    MUST(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) == 0);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

int main(void) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        MUST(pthread_create(&threads[i], NULL, move, NULL) == 0);
    long long last = 0;
    while (moving) {
        long long now = used();
        if (now < last) {
            printf("%lld ns after %lld\n", now, last);
            return 1;
        }
        last = now;
    }
    for (int i = 0; i < 2; i++)
        MUST(pthread_join(threads[i], NULL) == 0);
    MUST(used() >= last);
    printf("ok\n");
    return 0;
}
