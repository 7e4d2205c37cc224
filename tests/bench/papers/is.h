// What IS with threads and IS with ranks share: the sizes, the keys, and what is to come out.
#pragma once
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

static void find_problem(char size) {
    for (problem = problems; problem->size != size; problem++)
        ;
    keys = 1 << problem->keys_log, values = 1 << problem->values_log, buckets = 1 << problem->buckets_log;
    shift = problem->values_log - problem->buckets_log;
}

// The specification's sum of four random numbers, for the keys from `first` to `end` of the sequence.
static void make_keys(int *key, int64_t first, int64_t end) {
    uint64_t state = random_after(RANDOM_SEED, 4 * first);
    for (int64_t at = first; at < end; at++) {
        double sum = randlc(&state);
        sum += randlc(&state);
        sum += randlc(&state);
        sum += randlc(&state);
        *key++ = values / 4 * sum;
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

// Whether the rank that an iteration gave a tested key is the published one.
static bool rank_is_right(int test, int iteration, int rank) {
    if (rank == expected(test, iteration))
        return true;
    printf("WRONG IS: iteration %d, key %d: rank %d, not %d\n", iteration, test, rank, expected(test, iteration));
    return false;
}
