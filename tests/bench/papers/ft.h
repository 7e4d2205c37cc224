// What FT with threads and FT with ranks share: the sizes, the field, the transform of lines, and what is to come out.
#pragma once
#include "papers.h"
#include <complex.h>

#define ITERATIONS 6
#define ALPHA 1e-6
// Lines that are transformed at once, so that neighbours in memory are used together.
#define BLOCK 16

typedef double complex number;

struct problem {
    char size;
    int nx, ny, nz;
    double sums[ITERATIONS][2];
};

static const struct problem problems[] = {
    {'S', 64, 64, 64,
     {{554.6087004964, 484.5363331978}, {554.6385409190, 486.5304269511}, {554.6148406171, 488.3910722337},
      {554.5423607415, 490.1273169046}, {554.4255039624, 491.7475857993}, {554.2683411903, 493.2597244941}}},
    {'W', 128, 128, 32,
     {{567.3612178944, 529.3246849175}, {563.1436885271, 528.2149986629}, {559.4024089970, 527.0996558037},
      {556.0698047020, 526.0027904925}, {553.0898991250, 524.9400845633}, {550.4159734538, 523.9212247086}}},
    {'A', 256, 256, 128,
     {{504.6735008193, 511.4047905510}, {505.9412319734, 509.8809666433}, {506.9376896287, 509.8144042213},
      {507.7892868474, 510.1336130759}, {508.5233095391, 510.4914655194}, {509.1487099959, 510.7917842803}}},
};

static const struct problem *problem;
static int nx, ny, nz;
static long total;
// The roots of unity of every axis.
static number *roots[3];

static number *make_roots(int length) {
    number *made = malloc(sizeof(number) * length);
    for (int i = 0; i < length; i++)
        made[i] = cexp(2 * M_PI * I * i / length);
    return made;
}

static void find_problem(char size) {
    for (problem = problems; problem->size != size; problem++)
        ;
    nx = problem->nx, ny = problem->ny, nz = problem->nz, total = (long)nx * ny * nz;
    roots[0] = make_roots(nx), roots[1] = make_roots(ny), roots[2] = make_roots(nz);
}

static long folded(int i, int length) {
    long at = (i + length / 2) % length - length / 2;
    return at * at;
}

// How fast the place (i, j, k) of the transform cools.
static double cooling_of(int i, int j, int k) {
    return exp(-4 * ALPHA * M_PI * M_PI * (folded(i, nx) + folded(j, ny) + folded(k, nz)));
}

// The numbers of the planes from `first` to `end` of the field.
static void make_planes(number *planes, int first, int end) {
    long plane = (long)nx * ny;
#pragma omp parallel for schedule(static)
    for (int k = first; k < end; k++) {
        uint64_t state = random_after(RANDOM_SEED, 2 * plane * k);
        for (number *at = planes + plane * (k - first); at < planes + plane * (k - first + 1); at++) {
            double real = randlc(&state);
            *at = CMPLX(real, randlc(&state));
        }
    }
}

// Stockham's transform of BLOCK lines side by side: no bit reversal, each stage from one buffer to the other. Gives where
// the result is.
static number *transform_lines(number *from, number *to, int length, const number *root, int back) {
    for (int half = length / 2, stride = 1; half >= 1; half /= 2, stride *= 2) {
        for (int j = 0; j < half; j++) {
            number turn = back ? conj(root[j * stride]) : root[j * stride];
            double c = creal(turn), s = cimag(turn);
            for (int k = 0; k < stride; k++) {
                const number *a = from + (long)(k + stride * j) * BLOCK, *b = a + (long)stride * half * BLOCK;
                number *sum = to + (long)(k + stride * 2 * j) * BLOCK, *rest = sum + (long)stride * BLOCK;
                for (int l = 0; l < BLOCK; l++) {
                    double real = creal(a[l]) - creal(b[l]), imaginary = cimag(a[l]) - cimag(b[l]);
                    sum[l] = CMPLX(creal(a[l]) + creal(b[l]), cimag(a[l]) + cimag(b[l]));
                    rest[l] = CMPLX(c * real - s * imaginary, c * imaginary + s * real);
                }
            }
        }
        number *other = from;
        from = to, to = other;
    }
    return from;
}

// Transforms all lines along one axis: `length` numbers, `step` apart. Lines that are neighbours lie `beside` apart; `lines` of
// them are a row, and there are `rows` rows, `apart`.
static void along(number *data, int axis, int length, long step, int lines, long beside, int rows, long apart, int back) {
#pragma omp parallel
    {
        number *a = malloc(sizeof(number) * length * BLOCK), *b = malloc(sizeof(number) * length * BLOCK);
#pragma omp for schedule(static) collapse(2)
        for (int row = 0; row < rows; row++) {
            for (int first = 0; first < lines; first += BLOCK) {
                number *at = data + row * apart + first * beside;
                for (int i = 0; i < length; i++)
                    for (int l = 0; l < BLOCK; l++)
                        a[i * BLOCK + l] = at[i * step + l * beside];
                number *done = transform_lines(a, b, length, roots[axis], back);
                for (int i = 0; i < length; i++)
                    for (int l = 0; l < BLOCK; l++)
                        at[i * step + l * beside] = done[i * BLOCK + l];
            }
        }
        free(a), free(b);
    }
}

// Transforms planes along their two axes, in one order there and in the other back.
static void transform_planes(number *data, int planes, int back) {
    long plane = (long)nx * ny;
    along(data, back ? 1 : 0, back ? ny : nx, back ? nx : 1, back ? nx : ny, back ? 1 : nx, planes, plane, back);
    along(data, back ? 0 : 1, back ? nx : ny, back ? 1 : nx, back ? ny : nx, back ? nx : 1, planes, plane, back);
}

// The place in the field of the number j of the 1024 that a sum is made of.
static void summed_place(int j, int *x, int *y, int *z) {
    *x = j % nx, *y = 3 * j % ny, *z = 5 * j % nz;
}

static bool sum_is_right(int iteration, double real, double imaginary) {
    real /= total, imaginary /= total;
    const double *sum = problem->sums[iteration];
    if (fabs((real - sum[0]) / sum[0]) <= 1e-12 && fabs((imaginary - sum[1]) / sum[1]) <= 1e-12)
        return true;
    printf("WRONG FT: sum %d is %.10f %.10f, not %.10f %.10f\n", iteration + 1, real, imaginary, sum[0], sum[1]);
    return false;
}
