/* Run every kernel on the same made-up numbers and write the results as float32 to standard output.

   It is compiled for this processor and for ARM, with KERNELS the source of the kernels and SET the
   suffix of the instruction set; the outputs must agree. */

#include <stdio.h>
#include <stdlib.h>

#include KERNELS

#define JOIN_(name, set) name##_##set
#define JOIN(name, set) JOIN_(name, set)
#define CALL(name) JOIN(name, SET)

enum { ROWS = 9, COLUMNS = 150, SAMPLES_IN_ALL = 40, FEATURES = 77, CLASSES = 5, BATCH = 13 };

static uint64_t state = 1;

static uint64_t next(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
}

/* Return a number from -1 to 1. */
static float number(void) { return (float)next() / 0x1p30f - 1; }

static float *numbers(int64_t count) {
    float *made = aligned_alloc(64, (size_t)(count + 16) / 16 * 16 * sizeof(float));
    for (int64_t k = 0; k < count; k++) made[k] = number();
    return made;
}

static void write_out(const float *x, int64_t count) {
    fwrite(x, sizeof(float), (size_t)count, stdout);
}

int main(void) {
    float *x = numbers(ROWS * COLUMNS), *d = numbers(ROWS * COLUMNS);
    float *out = numbers(ROWS * COLUMNS);
    double *scratch = aligned_alloc(64, ROWS * LENGTH * sizeof(double));
    const float *model[ROWS];
    int64_t first[ROWS + 1] = {0}, sender[3 * ROWS];
    double weight[3 * ROWS];
    float short_weight[3 * ROWS];
    for (int64_t i = 0; i < ROWS; i++) {
        model[i] = x + i * COLUMNS;
        first[i + 1] = 3 * (i + 1);
        for (int64_t k = 0; k < 3; k++) {
            sender[3 * i + k] = (i + 2 * k) % ROWS;
            weight[3 * i + k] = 0.2 + 0.1 * (double)k;
            short_weight[3 * i + k] = (float)weight[3 * i + k];
        }
    }
    for (int64_t p = 3; p < 40; p += 28) {
        CALL(power_mean)(ROWS, first, sender, weight, ROWS, model, p, 0, COLUMNS, scratch, out,
                         COLUMNS);
        write_out(out, ROWS * COLUMNS);
        CALL(roots)(ROWS * COLUMNS, x, p, out);
        write_out(out, ROWS * COLUMNS);
        CALL(matched_step)(ROWS * COLUMNS, x, d, 0.01, p, 1e-3, 1, out);
        write_out(out, ROWS * COLUMNS);
    }
    for (int add = 0; add < 2; add++) {
        CALL(weighted_sums)(0, ROWS, first, sender, short_weight, x, COLUMNS, add, out);
        write_out(out, ROWS * COLUMNS);
    }

    float *samples = malloc(SAMPLES_IN_ALL * FEATURES * sizeof(float));
    float *read = malloc(SAMPLES_IN_ALL * FEATURES * sizeof(float));
    uint8_t *level = malloc(SAMPLES_IN_ALL * FEATURES);
    float *scale = malloc(3 * FEATURES * sizeof(float));
    for (int64_t k = 0; k < FEATURES; k++) {
        scale[k] = 0.01f + 0.0001f * (float)k;
        scale[FEATURES + k] = 0;
        scale[2 * FEATURES + k] = -0.5f;
    }
    int64_t y[SAMPLES_IN_ALL], index[2 * BATCH];
    float *w = numbers(2 * CLASSES * (FEATURES + 1));
    float *gradient = numbers(2 * CLASSES * (FEATURES + 1));
    float *buffer =
        numbers((2 * (CLASSES + 1) + SLOPES) * (FEATURES + 16) + SLOPES * (CLASSES + 1));
    for (int64_t i = 0; i < SAMPLES_IN_ALL; i++) y[i] = i % CLASSES;
    for (int64_t i = 0; i < 2 * BATCH; i++) index[i] = (int64_t)(next() % SAMPLES_IN_ALL);
    for (int uniform = 0; uniform < 2; uniform++) {
        Levels levels = {level, uniform ? NULL : scale, 0.01f, -0.5f};
        for (int64_t k = 0; k < SAMPLES_IN_ALL * FEATURES; k++)
            samples[k] = fmaf(uniform ? 0.01f : scale[k % FEATURES], (float)(next() % 256), -0.5f);
        int64_t wrong = CALL(find_levels)(SAMPLES_IN_ALL, FEATURES, samples, &levels, level);
        float count = (float)wrong;
        write_out(&count, 1);
        CALL(gather)(2 * BATCH, FEATURES * sizeof(float), (const char *)samples, index,
                     (char *)read);
        write_out(read, 2 * BATCH * FEATURES);
        CALL(gather_levels)(2 * BATCH, FEATURES, &levels, index, read);
        write_out(read, 2 * BATCH * FEATURES);
        CALL(softmax_gradient)(2, BATCH, FEATURES, CLASSES, samples, NULL, y, index, w, gradient,
                               buffer);
        write_out(gradient, 2 * CLASSES * (FEATURES + 1));
        CALL(softmax_gradient)(2, BATCH, FEATURES, CLASSES, samples, &levels, y, index, w, gradient,
                               buffer);
        write_out(gradient, 2 * CLASSES * (FEATURES + 1));
    }
    return 0;
}
