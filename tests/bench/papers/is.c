// IS: ranks integers ten times. Every thread counts its keys by bucket, scatters them to where the buckets lie, and then ranks whole
// buckets: the scatter is what crosses between threads.
#include "is.h"

// The keys; the keys by bucket; of each value how many keys are no larger; of each thread and bucket where its keys go.
static int *key, *sorted, *rank_of, *place;

static void make_all_keys(void) {
#pragma omp parallel
    {
        int64_t threads = omp_get_num_threads(), self = omp_get_thread_num(), first = keys * self / threads;
        make_keys(key + first, first, keys * (self + 1) / threads);
    }
}

// Where the keys of this thread begin in each bucket: after all of lower buckets, and those of lower threads in the same.
static void find_places(const int *counts, int *mine, int self, int threads) {
    for (int bucket = 0, sum = 0; bucket < buckets; bucket++) {
        for (int thread = 0; thread < threads; thread++) {
            if (thread == self)
                mine[bucket] = sum;
            sum += counts[thread * buckets + bucket];
        }
    }
}

static void rank_bucket(int bucket, int first, int end) {
    int low = bucket << shift, high = (bucket + 1) << shift;
    memset(rank_of + low, 0, (high - low) * sizeof *rank_of);
    for (int at = first; at < end; at++)
        rank_of[sorted[at]]++;
    rank_of[low] += first;
    for (int value = low + 1; value < high; value++)
        rank_of[value] += rank_of[value - 1];
}

static void rank_keys(int *starts) {
#pragma omp parallel
    {
        int threads = omp_get_num_threads(), self = omp_get_thread_num();
        int mine[buckets], *count = place + self * buckets;
        memset(count, 0, buckets * sizeof *count);
#pragma omp for schedule(static)
        for (int at = 0; at < keys; at++)
            count[key[at] >> shift]++;
        find_places(place, mine, self, threads);
        if (self == 0)
            memcpy(starts, mine, sizeof mine);
#pragma omp for schedule(static)
        for (int at = 0; at < keys; at++)
            sorted[mine[key[at] >> shift]++] = key[at];
#pragma omp for schedule(static)
        for (int bucket = 0; bucket < buckets; bucket++)
            rank_bucket(bucket, starts[bucket], bucket + 1 < buckets ? starts[bucket + 1] : keys);
    }
}

static bool iterate(int iteration, int *starts) {
    key[iteration] = iteration;
    key[iteration + ITERATIONS] = values - iteration;
    int tested[TESTS];
    for (int test = 0; test < TESTS; test++)
        tested[test] = key[problem->place[test]];
    rank_keys(starts);
    for (int test = 0; test < TESTS; test++) {
        int value = tested[test];
        if (value > 0 && value <= keys - 1 && !rank_is_right(test, iteration, rank_of[value - 1]))
            return false;
    }
    return true;
}

// The ranks put every key in its place.
static bool sorts(void) {
    memcpy(sorted, key, keys * sizeof *key);
    for (int at = 0; at < keys; at++)
        key[--rank_of[sorted[at]]] = sorted[at];
    for (int at = 1; at < keys; at++) {
        if (key[at - 1] > key[at]) {
            printf("WRONG IS: not in order at %d\n", at);
            return false;
        }
    }
    return true;
}

double run_is(char size) {
    find_problem(size);
    key = fresh(keys * sizeof *key), sorted = fresh(keys * sizeof *sorted), rank_of = fresh(values * sizeof *rank_of);
    place = fresh(omp_get_max_threads() * buckets * sizeof *place);
    int starts[buckets];
    make_all_keys();
    bool right = iterate(1, starts);
    double start = seconds();
    for (int iteration = 1; right && iteration <= ITERATIONS; iteration++)
        right = iterate(iteration, starts);
    double time = seconds() - start;
    return right && sorts() ? time : -1;
}
