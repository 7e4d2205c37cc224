// FT with ranks: each has planes of the field, and of its transform columns along the slowest axis. Between planes and columns every
// rank sends a block to every other.
//
//     planes of rank r:                  [planes][all of a plane]
//     columns of rank r:                 [all planes][columns]
//     a block from s to r, both ways:    [planes of s][columns of r]
#include "../ft.h"
#include "ranks.h"

// Of every place in the columns how fast it cools; the field in planes; its transform, and what is sent, in columns.
static double *cooling;
static number *field, *transform, *exchanged;
static int first_plane, planes, first_column, columns;

static void exchange(const number *from, number *to) {
    int numbers = planes * columns;
    MPI_Alltoall(from, numbers, MPI_C_DOUBLE_COMPLEX, to, numbers, MPI_C_DOUBLE_COMPLEX, MPI_COMM_WORLD);
}

static number *in_block(int other, int plane) {
    return exchanged + ((long)other * planes + plane) * columns;
}

static number *in_planes(int other, int plane) {
    return field + (long)plane * nx * ny + other * columns;
}

static void transform_there(void) {
    transform_planes(field, planes, 0);
    for (int other = 0; other < ranks; other++)
        for (int plane = 0; plane < planes; plane++)
            memcpy(in_block(other, plane), in_planes(other, plane), columns * sizeof(number));
    exchange(exchanged, transform);
    along(transform, 2, nz, columns, columns, 1, 1, 0, 0);
}

// The columns are in `field`, which has room for as much, and come back as planes.
static void transform_back(void) {
    along(field, 2, nz, columns, columns, 1, 1, 0, 1);
    exchange(field, exchanged);
    for (int other = 0; other < ranks; other++)
        for (int plane = 0; plane < planes; plane++)
            memcpy(in_planes(other, plane), in_block(other, plane), columns * sizeof(number));
    transform_planes(field, planes, 1);
}

static void make_cooling(void) {
    for (int k = 0; k < nz; k++)
        for (int at = 0; at < columns; at++)
            cooling[(long)k * columns + at] = cooling_of((first_column + at) % nx, (first_column + at) / nx, k);
}

static void evolve(void) {
    for (long at = 0; at < (long)nz * columns; at++)
        field[at] = transform[at] *= cooling[at];
}

static bool check(int iteration) {
    double sums[2] = {0, 0};
    for (int j = 1; j <= 1024; j++) {
        int x, y, z;
        summed_place(j, &x, &y, &z);
        if (z < first_plane || z >= first_plane + planes)
            continue;
        number one = field[((long)(z - first_plane) * ny + y) * nx + x];
        sums[0] += creal(one), sums[1] += cimag(one);
    }
    MPI_Allreduce(MPI_IN_PLACE, sums, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return sum_is_right(iteration, sums[0], sums[1]);
}

// The timed part makes everything anew, as the specification has it.
static bool solve(void) {
    make_cooling();
    make_planes(field, first_plane, first_plane + planes);
    transform_there();
    bool right = true;
    for (int iteration = 0; iteration < ITERATIONS; iteration++) {
        evolve();
        transform_back();
        right = check(iteration) && right;
    }
    return right;
}

double run_ft(char size) {
    find_problem(size);
    planes = nz / ranks, columns = nx * ny / ranks;
    if (planes * ranks != nz || columns % BLOCK) {
        printf("WRONG FT: %d planes among %d ranks\n", nz, ranks);
        return -1;
    }
    first_plane = rank * planes, first_column = rank * columns;
    long own = total / ranks;
    field = fresh(own * sizeof *field), transform = fresh(own * sizeof *field), exchanged = fresh(own * sizeof *field);
    cooling = fresh(own * sizeof *cooling);
    // Not timed: touches everything.
    make_cooling();
    make_planes(field, first_plane, first_plane + planes);
    memset(transform, 0, own * sizeof *transform);
    memset(exchanged, 0, own * sizeof *exchanged);
    double start = common_start();
    bool right = solve();
    double time = seconds() - start;
    return right ? time : -1;
}
