// CG: the smallest eigenvalue of a sparse random matrix by inverse iteration, each step 25 steps of conjugate gradients. The vectors
// are read by all threads and written in parts.
#include "papers.h"

#define STEPS 25
#define CONDITION 0.1

struct problem {
    char size;
    int n, nonzeros, iterations;
    double shift, zeta;
};

static const struct problem problems[] = {
    {'S', 1400, 7, 15, 10, 8.5971775078648},
    {'W', 7000, 8, 15, 12, 10.362595087124},
    {'A', 14000, 11, 15, 20, 17.130235054029},
};

static const struct problem *problem;
static int n;
// The matrix by rows: where a row begins, the columns, the values.
static int *row_start, *column;
static double *value;
static double *x, *z, *p, *q, *r;

// A sparse random vector as makea of the specification has it: places from 1 on, one half at place `diagonal`.
static int sparse_vector(uint64_t *state, int power, int diagonal, int *places, double *elements) {
    int count = 0;
    while (count < problem->nonzeros) {
        double element = randlc(state);
        int place = (int)(power * randlc(state)), known = 0;
        if (place >= n)
            continue;
        while (known < count && places[known] != place)
            known++;
        if (known < count)
            continue;
        places[count] = place;
        elements[count++] = element;
    }
    for (int at = 0; at < count; at++) {
        if (places[at] == diagonal) {
            elements[at] = 0.5;
            return count;
        }
    }
    places[count] = diagonal;
    elements[count] = 0.5;
    return count + 1;
}

// Adds to an element of a row whose columns are in order.
static void add(int *columns, double *values, int *length, int where, double what) {
    int at = *length;
    while (at > 0 && columns[at - 1] > where)
        at--;
    if (at > 0 && columns[at - 1] == where) {
        values[at - 1] += what;
        return;
    }
    memmove(columns + at + 1, columns + at, (*length - at) * sizeof *columns);
    memmove(values + at + 1, values + at, (*length - at) * sizeof *values);
    columns[at] = where;
    values[at] = what;
    ++*length;
}

// The matrix is the sum of the outer products of n such vectors, weighted from 1 down to the condition number; its diagonal is moved.
static void make_matrix(void) {
    int most = problem->nonzeros + 1, power = 1;
    while (power < n)
        power *= 2;
    int *places = malloc(sizeof(int) * n * most), *lengths = malloc(sizeof(int) * n), *room = calloc(n + 1, sizeof(int));
    double *elements = malloc(sizeof(double) * n * most);
    uint64_t state = RANDOM_SEED;
    randlc(&state); // the specification draws a first zeta
    for (int i = 0; i < n; i++) {
        lengths[i] = sparse_vector(&state, power, i, places + i * most, elements + i * most);
        for (int at = 0; at < lengths[i]; at++)
            room[places[i * most + at] + 1] += lengths[i];
    }
    for (int i = 0; i < n; i++)
        room[i + 1] += room[i];
    // Rows with room for elements that turn out to be the same.
    int *columns = malloc(sizeof(int) * room[n]), *filled = calloc(n, sizeof(int));
    double *values = malloc(sizeof(double) * room[n]), weight = 1, ratio = pow(CONDITION, 1.0 / n);
    for (int i = 0; i < n; i++, weight *= ratio) {
        for (int a = 0; a < lengths[i]; a++) {
            int row = places[i * most + a];
            double scale = weight * elements[i * most + a];
            for (int b = 0; b < lengths[i]; b++) {
                int where = places[i * most + b];
                double what = elements[i * most + b] * scale;
                if (where == row && row == i)
                    what += CONDITION - problem->shift;
                add(columns + room[row], values + room[row], &filled[row], where, what);
            }
        }
    }
    row_start = fresh(sizeof(int) * (n + 1));
    for (int i = 0; i < n; i++)
        row_start[i + 1] = row_start[i] + filled[i];
    column = fresh(sizeof(int) * row_start[n]);
    value = fresh(sizeof(double) * row_start[n]);
#pragma omp parallel for schedule(static)
    for (int i = 0; i < n; i++) {
        memcpy(column + row_start[i], columns + room[i], filled[i] * sizeof(int));
        memcpy(value + row_start[i], values + room[i], filled[i] * sizeof(double));
    }
    free(places), free(lengths), free(room), free(elements), free(columns), free(filled), free(values);
}

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
    for (problem = problems; problem->size != size; problem++)
        ;
    n = problem->n;
    double **vectors[] = {&x, &z, &p, &q, &r};
    for (int i = 0; i < 5; i++)
        *vectors[i] = fresh(n * sizeof(double));
    make_matrix();
    begin();
    iterate(); // not timed: touches everything
    begin();
    double zeta = 0, start = seconds();
    for (int iteration = 0; iteration < problem->iterations; iteration++)
        zeta = iterate();
    double time = seconds() - start, off = fabs(zeta - problem->zeta) / problem->zeta;
    if (off <= 1e-10)
        return time;
    printf("WRONG CG: zeta %.13f, not %.13f\n", zeta, problem->zeta);
    return -1;
}
