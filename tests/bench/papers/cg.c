// CG: the smallest eigenvalue of a sparse random matrix by inverse iteration, each step 25 steps of conjugate gradients. The vectors
// are read by all threads and written in parts.
#include "cg.h"

static double *x, *z, *p, *q, *r;

// Solves A z = x about.
static void solve(void) {
    double rho = 0;
#pragma omp parallel for schedule(static) reduction(+ : rho)
    for (int i = 0; i < n; i++) {
        q[i] = z[i] = 0;
        r[i] = p[i] = x[i];
        rho += x[i] * x[i];
    }
    for (int step = 0; step < STEPS; step++) {
        double d = 0, next = 0;
#pragma omp parallel
        {
#pragma omp for schedule(static) reduction(+ : d)
            for (int i = 0; i < n; i++) {
                double sum = 0;
                for (int at = row_start[i]; at < row_start[i + 1]; at++)
                    sum += value[at] * p[column[at]];
                q[i] = sum;
                d += p[i] * sum;
            }
            double alpha = rho / d;
#pragma omp for schedule(static) reduction(+ : next)
            for (int i = 0; i < n; i++) {
                z[i] += alpha * p[i];
                r[i] -= alpha * q[i];
                next += r[i] * r[i];
            }
            double beta = next / rho;
#pragma omp for schedule(static)
            for (int i = 0; i < n; i++)
                p[i] = r[i] + beta * p[i];
        }
        rho = next;
    }
}

// One inverse iteration; gives zeta.
static double iterate(void) {
    double across = 0, length = 0;
    solve();
#pragma omp parallel for schedule(static) reduction(+ : across, length)
    for (int i = 0; i < n; i++) {
        across += x[i] * z[i];
        length += z[i] * z[i];
    }
    length = 1 / sqrt(length);
#pragma omp parallel for schedule(static)
    for (int i = 0; i < n; i++)
        x[i] = length * z[i];
    return problem->shift + 1 / across;
}

static void begin(void) {
#pragma omp parallel for schedule(static)
    for (int i = 0; i < n; i++)
        x[i] = 1;
}

double run_cg(char size) {
    find_problem(size);
    double **vectors[] = {&x, &z, &p, &q, &r};
    for (int i = 0; i < 5; i++)
        *vectors[i] = fresh(n * sizeof(double));
    make_matrix(0, n);
    begin();
    iterate(); // not timed: touches everything
    begin();
    double zeta = 0, start = seconds();
    for (int iteration = 0; iteration < problem->iterations; iteration++)
        zeta = iterate();
    double time = seconds() - start;
    return zeta_is_right(zeta) ? time : -1;
}
