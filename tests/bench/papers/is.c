// IS: ranks integers ten times. Every thread counts its keys by bucket, scatters them to where the buckets lie, and then ranks whole
// buckets: the scatter is what crosses between threads.
#include "papers.h"

#define ITERATIONS 10
#define TESTS 5

struct problem {
    char size;
    int keys_log, values_log, buckets_log;
    int place[TESTS], rank[TESTS];
};

static const struct problem problems[] = {
    {'S', 16, 11, 9, {48427, 17148, 23627, 62548, 4431}, {0, 18, 346, 64917, 65463}},
    {'W', 20, 16, 10, {357773, 934767, 875723, 898999, 404505}, {1249, 11698, 1039987, 1043896, 1048018}},
    {'A', 23, 19, 10, {2112377, 662041, 5336171, 3642833, 4250760}, {104, 17523, 123928, 8288932, 8388264}},
};

static const struct problem *problem;
static int keys, values, buckets, shift;
// The keys; the keys by bucket; of each value how many keys are no larger; of each thread and bucket where its keys go.
static int *key, *sorted, *rank_of, *place;

// The specification's sum of four random numbers, each thread its part of the sequence.
static void make_keys(void) {
#pragma omp parallel
    {
        int64_t threads = omp_get_num_threads(), self = omp_get_thread_num();
        int64_t first = keys * self / threads, end = keys * (self + 1) / threads;
        uint64_t state = random_after(RANDOM_SEED, 4 * first);
        for (int64_t at = first; at < end; at++) {
            double sum = randlc(&state);
            sum += randlc(&state);
            sum += randlc(&state);
            sum += randlc(&state);
            key[at] = values / 4 * sum;
        }
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

// The published ranks of five keys move by one with every iteration, in a direction that depends on size and key.
static int expected(int test, int iteration) {
    int rank = problem->rank[test];
    switch (problem->size) {
    case 'S': return test <= 2 ? rank + iteration : rank - iteration;
    case 'W': return test < 2 ? rank + iteration - 2 : rank - iteration;
    default: return test <= 2 ? rank + iteration - 1 : rank - iteration + 1;
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
        if (value > 0 && value <= keys - 1 && rank_of[value - 1] != expected(test, iteration)) {
            printf("WRONG IS: iteration %d, key %d: rank %d, not %d\n", iteration, test, rank_of[value - 1],
                   expected(test, iteration));
            return false;
        }
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
    for (problem = problems; problem->size != size; problem++)
        ;
    keys = 1 << problem->keys_log, values = 1 << problem->values_log, buckets = 1 << problem->buckets_log;
    shift = problem->values_log - problem->buckets_log;
    key = fresh(keys * sizeof *key), sorted = fresh(keys * sizeof *sorted), rank_of = fresh(values * sizeof *rank_of);
    place = fresh(omp_get_max_threads() * buckets * sizeof *place);
    int starts[buckets];
    make_keys();
    bool right = iterate(1, starts);
    double start = seconds();
    for (int iteration = 1; right && iteration <= ITERATIONS; iteration++)
        right = iterate(iteration, starts);
    double time = seconds() - start;
    return right && sorts() ? time : -1;
}
