// OpenMP's loops, reductions, critical sections, ordered output and nested barriers.
// cob: link=static,dynamic flags=-fopenmp kernels=1,2,4 compare=host timeout=120
#include "test.h"
#include <omp.h>

int main(void) {
    enum { COUNT = 300000 };
    static double values[COUNT];
    long total = 0, critical = 0, atomic = 0;
    omp_set_num_threads(6);
#pragma omp parallel for schedule(static)
    for (int i = 0; i < COUNT; i++)
        values[i] = i * 0.5;
#pragma omp parallel for reduction(+ : total) schedule(dynamic, 1000)
    for (int i = 0; i < COUNT; i++)
        total += (long)(values[i] * 2);
#pragma omp parallel for schedule(guided)
    for (int i = 0; i < 2000; i++) {
#pragma omp critical
        critical += i;
#pragma omp atomic
        atomic += i;
    }
#pragma omp parallel for ordered
    for (int i = 0; i < 12; i++) {
#pragma omp ordered
        printf("ordered %d\n", i);
    }
    int threads = 0, sums[6] = {0};
#pragma omp parallel
    {
        for (int round = 0; round < 50; round++) {
            sums[omp_get_thread_num()] += round;
#pragma omp barrier
        }
#pragma omp single
        threads = omp_get_num_threads();
    }
    printf("%ld %ld %ld threads %d\n", total, critical, atomic, threads);
    for (int i = 0; i < 6; i++)
        printf("%d ", sums[i]);
    printf("\n");
}
