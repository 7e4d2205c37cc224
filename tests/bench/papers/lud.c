// LUD: a matrix into a lower and an upper triangle, in blocks: the corner, then the row and the column of blocks beside it, then all
// that is left; all by one team of threads. The matrix is Rodinia's: it depends on the distance from the diagonal only.
// Checked by multiplying the triangles.
#include "papers.h"

#define BLOCK 16

static int n;
static float *matrix, *factors;

static float element(int row, int col) { return 10 * expf(-0.001f * abs(row - col)); }

static void corner(float *a) {
    for (int k = 0; k < BLOCK; k++)
        for (int i = k + 1; i < BLOCK; i++) {
            a[i * n + k] /= a[k * n + k];
            for (int j = k + 1; j < BLOCK; j++)
                a[i * n + j] -= a[i * n + k] * a[k * n + j];
        }
}

// A block right of the corner.
static void right_block(const float *a, float *b) {
    for (int k = 0; k < BLOCK; k++)
        for (int i = k + 1; i < BLOCK; i++)
            for (int j = 0; j < BLOCK; j++)
                b[i * n + j] -= a[i * n + k] * b[k * n + j];
}

// A block below the corner.
static void lower_block(const float *a, float *b) {
    for (int i = 0; i < BLOCK; i++)
        for (int k = 0; k < BLOCK; k++) {
            float sum = b[i * n + k];
            for (int j = 0; j < k; j++)
                sum -= b[i * n + j] * a[j * n + k];
            b[i * n + k] = sum / a[k * n + k];
        }
}

static void inner_block(const float *left, const float *above, float *b) {
    for (int i = 0; i < BLOCK; i++)
        for (int k = 0; k < BLOCK; k++)
            for (int j = 0; j < BLOCK; j++)
                b[i * n + j] -= left[i * n + k] * above[k * n + j];
}

static void factor(float *a) {
    int blocks = n / BLOCK;
#define AT(row, col) (a + ((long)(row)*n + (col)) * BLOCK)
#pragma omp parallel
    for (int d = 0; d < blocks; d++) {
#pragma omp single
        corner(AT(d, d));
#pragma omp for schedule(static) nowait
        for (int at = d + 1; at < blocks; at++)
            right_block(AT(d, d), AT(d, at));
#pragma omp for schedule(static)
        for (int at = d + 1; at < blocks; at++)
            lower_block(AT(d, d), AT(at, d));
#pragma omp for schedule(static)
        for (int row = d + 1; row < blocks; row++)
            for (int col = d + 1; col < blocks; col++)
                inner_block(AT(row, d), AT(d, col), AT(row, col));
    }
}

static bool is_right(void) {
    double most = 0;
#pragma omp parallel reduction(max : most)
    {
        float *product = malloc(sizeof(float) * n);
#pragma omp for schedule(static)
        for (int i = 0; i < n; i++) {
            memset(product, 0, sizeof(float) * n);
            for (int k = 0; k <= i; k++) {
                float left = k == i ? 1 : factors[(long)i * n + k];
                for (int j = k; j < n; j++)
                    product[j] += left * factors[(long)k * n + j];
            }
            for (int j = 0; j < n; j++)
                most = fmax(most, fabs(product[j] - matrix[(long)i * n + j]));
        }
        free(product);
    }
    if (most < 1e-3)
        return true;
    printf("WRONG LUD: the product of the triangles differs by %g\n", most);
    return false;
}

double run_lud(char size) {
    n = size == 'S' ? 256 : size == 'W' ? 512 : 1024;
    matrix = fresh(sizeof(float) * n * n), factors = fresh(sizeof(float) * n * n);
    // By one thread, as the original reads its file.
    for (int row = 0; row < n; row++)
        for (int col = 0; col < n; col++)
            factors[(long)row * n + col] = matrix[(long)row * n + col] = element(row, col);
    double start = seconds();
    factor(factors);
    double time = seconds() - start;
    return is_right() ? time : -1;
}
