// CG with ranks: each has a block of rows, and that part of every vector. Before a multiplication all parts of its vector go to all ranks.
#include "../cg.h"
#include "ranks.h"

// The vector that is multiplied, whole; the parts of the others.
static double *whole, *x, *z, *p, *q, *r;
static int first, rows;
// Of every rank: where its rows begin, and how many there are.
static int *firsts, *counts;

static double sum_of_all(double own) {
    MPI_Allreduce(MPI_IN_PLACE, &own, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return own;
}

static double product(const double *a, const double *b) {
    double sum = 0;
    for (int i = 0; i < rows; i++)
        sum += a[i] * b[i];
    return sum_of_all(sum);
}

// Solves A z = x about.
static void solve(void) {
    for (int i = 0; i < rows; i++) {
        z[i] = 0;
        r[i] = p[i] = x[i];
    }
    double rho = product(x, x);
    for (int step = 0; step < STEPS; step++) {
        MPI_Allgatherv(p, rows, MPI_DOUBLE, whole, counts, firsts, MPI_DOUBLE, MPI_COMM_WORLD);
        for (int i = 0; i < rows; i++) {
            double sum = 0;
            for (int at = row_start[i]; at < row_start[i + 1]; at++)
                sum += value[at] * whole[column[at]];
            q[i] = sum;
        }
        double alpha = rho / product(p, q);
        for (int i = 0; i < rows; i++) {
            z[i] += alpha * p[i];
            r[i] -= alpha * q[i];
        }
        double next = product(r, r), beta = next / rho;
        for (int i = 0; i < rows; i++)
            p[i] = r[i] + beta * p[i];
        rho = next;
    }
}

// One inverse iteration; gives zeta.
static double iterate(void) {
    solve();
    double across = product(x, z), length = 1 / sqrt(product(z, z));
    for (int i = 0; i < rows; i++)
        x[i] = length * z[i];
    return problem->shift + 1 / across;
}

static void begin(void) {
    for (int i = 0; i < rows; i++)
        x[i] = 1;
}

double run_cg(char size) {
    find_problem(size);
    firsts = fresh((ranks + 1) * sizeof *firsts), counts = fresh(ranks * sizeof *counts);
    for (int to = 0; to < ranks; to++) {
        firsts[to + 1] = n * (to + 1) / ranks;
        counts[to] = firsts[to + 1] - firsts[to];
    }
    first = firsts[rank], rows = counts[rank];
    double **parts[] = {&x, &z, &p, &q, &r};
    for (int i = 0; i < 5; i++)
        *parts[i] = fresh(rows * sizeof(double));
    whole = fresh(n * sizeof *whole);
    make_matrix(first, first + rows);
    begin();
    iterate(); // not timed: touches everything
    begin();
    double zeta = 0, start = common_start();
    for (int iteration = 0; iteration < problem->iterations; iteration++)
        zeta = iterate();
    double time = seconds() - start;
    return zeta_is_right(zeta) ? time : -1;
}
