// IS with ranks: each has a part of the keys and counts them by bucket; the sums say which rank ranks which buckets, so that each gets about
// as many keys; then every key goes to the rank of its bucket. That exchange is what crosses between ranks.
#include "../is.h"
#include "ranks.h"

// The keys of this rank, the same by bucket, and those that it has got to rank; how many keys are no larger than a value, from `low` on.
static int *key, *sorted, *got, *rank_of;
static int first_key, own_keys, got_keys, low, high, keys_below;
// Of every rank: its first bucket, and its keys there and here.
static int *first_bucket, *send_counts, *send_places, *get_counts, *get_places;
// Keys of this rank in every bucket, and then the tested keys; the sums of all ranks.
static int *own_counts, *counts;

// Gives every rank the buckets that the keys up to its share lie in.
static void share_buckets(void) {
    int bucket = 0, given = 0;
    for (int to = 0; to < ranks; to++) {
        first_bucket[to] = bucket;
        if (to == rank)
            keys_below = given;
        while (bucket < buckets && (to == ranks - 1 || given < (int64_t)keys * (to + 1) / ranks))
            given += counts[bucket++];
    }
    first_bucket[ranks] = bucket;
    low = first_bucket[rank] << shift, high = first_bucket[rank + 1] << shift;
}

static void sort_own(void) {
    int place[buckets];
    for (int bucket = 0, sum = 0; bucket < buckets; sum += own_counts[bucket++])
        place[bucket] = sum;
    for (int at = 0; at < own_keys; at++)
        sorted[place[key[at] >> shift]++] = key[at];
    for (int to = 0, sum = 0; to < ranks; sum += send_counts[to++]) {
        send_places[to] = sum, send_counts[to] = 0;
        for (int bucket = first_bucket[to]; bucket < first_bucket[to + 1]; bucket++)
            send_counts[to] += own_counts[bucket];
    }
}

static void exchange(void) {
    MPI_Alltoall(send_counts, 1, MPI_INT, get_counts, 1, MPI_INT, MPI_COMM_WORLD);
    got_keys = 0;
    for (int from = 0; from < ranks; got_keys += get_counts[from++])
        get_places[from] = got_keys;
    MPI_Alltoallv(sorted, send_counts, send_places, MPI_INT, got, get_counts, get_places, MPI_INT, MPI_COMM_WORLD);
}

static void rank_got(void) {
    memset(rank_of, 0, (high - low) * sizeof *rank_of);
    for (int at = 0; at < got_keys; at++)
        rank_of[got[at] - low]++;
    for (int value = 0, sum = keys_below; value < high - low; value++)
        sum = rank_of[value] += sum;
}

static bool iterate(int iteration) {
    if (rank == 0) {
        key[iteration] = iteration;
        key[iteration + ITERATIONS] = values - iteration;
    }
    memset(own_counts, 0, (buckets + TESTS) * sizeof *own_counts);
    for (int at = 0; at < own_keys; at++)
        own_counts[key[at] >> shift]++;
    for (int test = 0; test < TESTS; test++)
        if (problem->place[test] >= first_key && problem->place[test] < first_key + own_keys)
            own_counts[buckets + test] = key[problem->place[test] - first_key];
    MPI_Allreduce(own_counts, counts, buckets + TESTS, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    share_buckets();
    sort_own();
    exchange();
    rank_got();
    bool right = true;
    for (int test = 0; test < TESTS; test++) {
        int value = counts[buckets + test];
        if (value > 0 && value <= keys - 1 && value - 1 >= low && value - 1 < high)
            right = rank_is_right(test, iteration, rank_of[value - 1 - low]) && right;
    }
    return right;
}

// The ranks put every key in its place, and the places of a rank come after those of the one before.
static bool sorts(void) {
    int *in_order = fresh((got_keys + 1) * sizeof *in_order), last = -1, all;
    for (int at = 0; at < got_keys; at++)
        in_order[--rank_of[got[at] - low] - keys_below] = got[at];
    if (rank > 0)
        MPI_Recv(&last, 1, MPI_INT, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    bool right = true;
    for (int at = 0; at < got_keys; last = in_order[at++])
        right = right && last <= in_order[at];
    if (rank < ranks - 1)
        MPI_Send(&last, 1, MPI_INT, rank + 1, 0, MPI_COMM_WORLD);
    MPI_Allreduce(&got_keys, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (!right || all != keys)
        printf("WRONG IS: rank %d: not in order, or %d keys are not %d\n", rank, all, keys);
    return right && all == keys;
}

double run_is(char size) {
    find_problem(size);
    first_key = (int64_t)keys * rank / ranks, own_keys = (int64_t)keys * (rank + 1) / ranks - first_key;
    key = fresh(own_keys * sizeof *key), sorted = fresh(own_keys * sizeof *sorted), got = fresh(keys * sizeof *got);
    rank_of = fresh(values * sizeof *rank_of);
    own_counts = fresh((buckets + TESTS) * sizeof *own_counts), counts = fresh((buckets + TESTS) * sizeof *counts);
    int **tables[] = {&first_bucket, &send_counts, &send_places, &get_counts, &get_places};
    for (int at = 0; at < 5; at++)
        *tables[at] = fresh((ranks + 1) * sizeof(int));
    make_keys(key, first_key, first_key + own_keys);
    bool right = iterate(1);
    double start = common_start();
    for (int iteration = 1; iteration <= ITERATIONS; iteration++)
        right = iterate(iteration) && right;
    double time = seconds() - start;
    return all_agree(sorts() && right) ? time : -1;
}
