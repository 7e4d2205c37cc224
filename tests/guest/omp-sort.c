// A merge sort of 16 million integers by OpenMP tasks, checked for order and for having lost nothing.
// cob: link=dynamic flags=-fopenmp kernels=4 compare=self args=16000000 timeout=600 shake=1600000
#include "test.h"
#include <omp.h>

static void merge(int *data, int *other, long half, long count) {
    long left = 0, right = half, out = 0;
    while (left < half && right < count)
        other[out++] = data[left] <= data[right] ? data[left++] : data[right++];
    while (left < half)
        other[out++] = data[left++];
    while (right < count)
        other[out++] = data[right++];
    memcpy(data, other, count * sizeof *data);
}

static int compare(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

static void sort(int *data, int *other, long count) {
    if (count <= 200000) {
        qsort(data, count, sizeof *data, compare);
        return;
    }
    long half = count / 2;
#pragma omp task
    sort(data, other, half);
    sort(data + half, other + half, count - half);
#pragma omp taskwait
    merge(data, other, half, count);
}

int main(int argc, char **argv) {
    long count = argc > 1 ? atol(argv[1]) : 1000000;
    int *data = malloc(count * sizeof *data), *other = malloc(count * sizeof *other);
    MUST(data && other && count > 0);
    uint64_t state = 88172645463325252u, sum = 0, mixed = 0;
    for (long i = 0; i < count; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        data[i] = (int)state;
        sum += (uint32_t)data[i], mixed ^= (uint64_t)(uint32_t)data[i] * 0x9e3779b97f4a7c15u;
    }
    int threads = 0;
#pragma omp parallel
#pragma omp single
    {
        threads = omp_get_num_threads();
        sort(data, other, count);
    }
    for (long i = 0; i < count; i++) {
        MUST(i == 0 || data[i - 1] <= data[i]);
        sum -= (uint32_t)data[i], mixed ^= (uint64_t)(uint32_t)data[i] * 0x9e3779b97f4a7c15u;
    }
    MUST(sum == 0 && mixed == 0);
    MUST(threads == cpu_count());
    printf("ok\n");
}
