// What CG with threads and CG with ranks share: the sizes, the matrix, and what is to come out.
#pragma once
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

static void find_problem(char size) {
    for (problem = problems; problem->size != size; problem++)
        ;
    n = problem->n;
}

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
// Keeps the rows from `first` to `end`, the first of which becomes row 0.
static void make_matrix(int first, int end) {
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
            if (places[i * most + at] >= first && places[i * most + at] < end)
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
            if (row < first || row >= end)
                continue;
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
    int rows = end - first;
    row_start = fresh(sizeof(int) * (rows + 1));
    for (int i = 0; i < rows; i++)
        row_start[i + 1] = row_start[i] + filled[first + i];
    column = fresh(sizeof(int) * row_start[rows]);
    value = fresh(sizeof(double) * row_start[rows]);
#pragma omp parallel for schedule(static)
    for (int i = 0; i < rows; i++) {
        memcpy(column + row_start[i], columns + room[first + i], filled[first + i] * sizeof(int));
        memcpy(value + row_start[i], values + room[first + i], filled[first + i] * sizeof(double));
    }
    free(places), free(lengths), free(room), free(elements), free(columns), free(filled), free(values);
}

static bool zeta_is_right(double zeta) {
    if (fabs(zeta - problem->zeta) / problem->zeta <= 1e-10)
        return true;
    printf("WRONG CG: zeta %.13f, not %.13f\n", zeta, problem->zeta);
    return false;
}
