// FT: a heat equation by three-dimensional Fourier transforms: one there, and one back for each of six points in time. The transform
// along the slowest axis reads what all other threads wrote.
#include "ft.h"

// Of every place how fast it cools; the field, and its transform.
static double *cooling;
static number *field, *transform;

static void make_cooling(void) {
#pragma omp parallel for schedule(static)
    for (int k = 0; k < nz; k++)
        for (int j = 0; j < ny; j++)
            for (int i = 0; i < nx; i++)
                cooling[((long)k * ny + j) * nx + i] = cooling_of(i, j, k);
}

static void transform_all(number *data, int back) {
    long plane = (long)nx * ny;
    if (back)
        along(data, 2, nz, plane, nx, 1, ny, nx, back);
    transform_planes(data, nz, back);
    if (!back)
        along(data, 2, nz, plane, nx, 1, ny, nx, back);
}

static void evolve(void) {
#pragma omp parallel for schedule(static)
    for (long at = 0; at < total; at++)
        field[at] = transform[at] *= cooling[at];
}

static bool check(int iteration) {
    double real = 0, imaginary = 0;
#pragma omp parallel for schedule(static) reduction(+ : real, imaginary)
    for (int j = 1; j <= 1024; j++) {
        int x, y, z;
        summed_place(j, &x, &y, &z);
        number one = field[((long)z * ny + y) * nx + x];
        real += creal(one), imaginary += cimag(one);
    }
    return sum_is_right(iteration, real, imaginary);
}

// The timed part makes everything anew, as the specification has it.
static bool solve(void) {
    make_cooling();
    make_planes(field, 0, nz);
    number *other = transform;
    transform_all(field, 0);
    transform = field, field = other;
    bool right = true;
    for (int iteration = 0; iteration < ITERATIONS; iteration++) {
        evolve();
        transform_all(field, 1);
        right = check(iteration) && right;
    }
    return right;
}

double run_ft(char size) {
    find_problem(size);
    field = fresh(total * sizeof *field), transform = fresh(total * sizeof *field), cooling = fresh(total * sizeof *cooling);
    // Not timed: touches everything.
    make_cooling();
    make_planes(field, 0, nz);
#pragma omp parallel for schedule(static)
    for (long at = 0; at < total; at++)
        transform[at] = 0;
    double start = seconds();
    bool right = solve();
    return right ? seconds() - start : -1;
}
