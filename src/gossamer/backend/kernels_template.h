/* The kernels, written once and compiled for each instruction set: kernels.c includes this file
   with these macros.

   KERNEL(type, name)   begin of a function of this instruction set
   LANES                float32 elements of a vector
   VECTOR, LOOSE        the type of such a vector, and of one at any address
   DOUBLES              the type of as many bytes of float64 elements
   TOTAL                the function that adds its elements
   SAMPLES              samples that softmax_gradient multiplies by the weights of two classes at a
                        time. The loops need 2·SAMPLES + 3 registers. */

/* Compute columns `begin` to `end` of (sum_j a_ij·w_j^[p])^[1/p] for every receiver i. The weights
   of receiver i are weight[first[i]] to weight[first[i + 1] − 1], for the models that `sender`
   names. `scratch` has LENGTH elements per sender. For large p a column is divided by its largest
   element, so that no power overflows; by a power of two, so that nothing is rounded. */
KERNEL(void, power_mean)(int64_t receivers, const int64_t *first, const int64_t *sender,
                const double *weight, int64_t senders, const float *const *model, int64_t p,
                int64_t begin, int64_t end, double *scratch, float *out, int64_t columns) {
    const double base = smallest_base(p), one_over_p = 1.0 / (double)p;
    for (; begin < end; begin += LENGTH) {
        int64_t elements = end - begin < LENGTH ? end - begin : LENGTH;
        float copy[LENGTH], largest[LENGTH] = {0}, unit[LENGTH];
        double one_over_unit[LENGTH], least[LENGTH]; /* smaller sums have underflowed */
        for (int64_t j = 0; j < senders; j++) {
            prefetch(model[j + 2 < senders ? j + 2 : j] + begin, (size_t)elements * sizeof(float));
            const float *w = padded(model[j] + begin, elements, copy);
            for (int k = 0; k < LENGTH; k++)
                largest[k] = fabsf(w[k]) > largest[k] ? fabsf(w[k]) : largest[k];
        }
        for (int k = 0; k < LENGTH; k++) {
            double whole =
                p > 16 && largest[k] > 0 ? as_double(as_bits(largest[k]) & 0x7ff0000000000000) : 1;
            unit[k] = (float)whole;
            one_over_unit[k] = 1 / whole;
            least[k] = largest[k] > 0 ? 1e-270 : 0;
        }
        for (int64_t j = 0; j < senders; j++) {
            const float *w = padded(model[j] + begin, elements, copy);
            double *z = scratch + j * LENGTH;
            for (int k = 0; k < LENGTH; k++) z[k] = w[k] * one_over_unit[k];
            power(z, p, base);
        }
        for (int64_t i = 0; i < receivers; i++) {
            double sum[LENGTH];
            float mean[LENGTH];
            int any_lost = 0;
            for (int part = 0; part < LENGTH; part += HALF) {
                DOUBLES s[HALF / (LANES / 2)] = {0}; /* these sums stay in registers */
                for (int64_t e = first[i]; e < first[i + 1]; e++) {
                    const DOUBLES *z = (const DOUBLES *)(scratch + sender[e] * LENGTH + part);
                    for (int k = 0; k < HALF / (LANES / 2); k++) s[k] += weight[e] * z[k];
                }
                memcpy(sum + part, s, sizeof s);
            }
            for (int k = 0; k < LENGTH; k++) {
                any_lost |= fabs(sum[k]) < least[k];
                mean[k] = (float)root(sum[k], one_over_p) * unit[k];
            }
            for (int64_t k = 0; any_lost && k < elements; k++)
                if (fabs(sum[k]) < least[k])
                    mean[k] = (float)scaled_mean(first[i + 1] - first[i], sender + first[i],
                                                 weight + first[i], model, begin + k, p);
            store(mean, out + i * columns + begin, elements);
        }
    }
}

/* Compute sum_j a_ij·x_j for receivers `begin` to `end`; add it to the output if `add`. LENGTH
   columns of the sum stay in registers. Rows can be anywhere in memory: while a row is added, the
   row as many entries further on is prefetched that this receiver has, one of the next receiver. */
KERNEL(void, weighted_sums)(int64_t begin, int64_t end, const int64_t *first,
                            const int64_t *sender, const float *weight, const float *x,
                            int64_t columns, int add, float *out) {
    for (int64_t i = begin; i < end; i++) {
        const int64_t from = first[i], until = first[i + 1];
        const int64_t ahead = 2 * until - from <= first[end] ? until - from : 0;
        float *to = out + i * columns;
        int64_t c = 0;
        for (; c + LENGTH <= columns; c += LENGTH) {
            LOOSE sum[LENGTH / LANES] = {0};
            for (int k = 0; add && k < LENGTH / LANES; k++)
                sum[k] = *(const LOOSE *)(to + c + k * LANES);
            for (int64_t e = from; e < until; e++) {
                const float *row = x + sender[e] * columns + c;
                prefetch(x + sender[e + ahead] * columns + c, LENGTH * sizeof(float));
                for (int k = 0; k < LENGTH / LANES; k++)
                    sum[k] += weight[e] * *(const LOOSE *)(row + k * LANES);
            }
            for (int k = 0; k < LENGTH / LANES; k++) *(LOOSE *)(to + c + k * LANES) = sum[k];
        }
        float sum[LENGTH] = {0};
        for (int64_t k = c; add && k < columns; k++) sum[k - c] = to[k];
        for (int64_t e = from; c < columns && e < until; e++) {
            const float *row = x + sender[e] * columns;
            prefetch(x + sender[e + ahead] * columns + c, (size_t)(columns - c) * sizeof(float));
            for (int64_t k = c; k < columns; k++) sum[k - c] += weight[e] * row[k];
        }
        for (int64_t k = c; k < columns; k++) to[k] = sum[k - c];
    }
}

/* Compute z^[1/p] of float32 duals. 0, infinity and NaN are kept. */
KERNEL(void, roots)(int64_t elements, const float *z, int64_t p, float *out) {
    const float part = (float)(1.0 / (double)p);
    const float rest = (float)(1.0 / (double)p - part);
    const float tiny = 0x1p-100f; /* smaller values may be denormal: they are multiplied by 2^64 */
    const float back = (float)pow(2, -64.0 / (double)p);
    for (int64_t begin = 0; begin < elements; begin += LENGTH) {
        float copy[LENGTH], to[LENGTH];
        const float *from = padded(z + begin, elements - begin, copy);
        int any_special = 0;
        for (int k = 0; k < LENGTH; k++) {
            any_special |= !(fabsf(from[k]) >= tiny) | !(fabsf(from[k]) < INFINITY);
            to[k] = short_root(from[k], part, rest);
        }
        for (int k = 0; any_special && k < LENGTH; k++) {
            float size = fabsf(from[k]);
            float again = short_root(from[k] * 0x1p64f, part, rest) * back;
            to[k] = !(size > 0) || !(size < INFINITY) ? from[k] : size < tiny ? again : to[k];
        }
        store(to, out + begin, elements - begin);
    }
}

/* Compute w+ = s·((w/s)^[p] − rate·p·d/s)^[1/p] with s = max(|w|, floor), and w itself where d = 0.
   `safe`: w − rate·d where w+ would have another sign than w. In float32, since the root divides
   its error by p; in float64 where float32 cannot hold the dual. */
KERNEL(void, matched_step)(int64_t elements, const float *w, const float *d, double rate, int64_t p,
                  double floor, int safe, float *out) {
    const float part = (float)(1.0 / (double)p);
    const float rest = (float)(1.0 / (double)p - part);
    const float low = 1e-30f;
    const float high = 1e30f;
    const float base = (float)pow(1e-36, 1.0 / (double)p);
    const float one_over_floor = (float)(1 / floor);
    const float by = (float)(rate * (double)p);
    for (int64_t begin = 0; begin < elements; begin += LENGTH) {
        float copy[LENGTH], another[LENGTH], square[LENGTH];
        float z[LENGTH], s[LENGTH], to[LENGTH], exact[LENGTH];
        const float *from = padded(w + begin, elements - begin, copy);
        const float *along = padded(d + begin, elements - begin, another);
        for (int k = 0; k < LENGTH; k++) { /* w/s is w/floor, limited to ±1 */
            float y = fabsf(from[k]) * one_over_floor;
            y = y > 1 ? 1 : y;
            square[k] = y < base ? 0 : y;
            z[k] = p % 2 ? square[k] : 1;
            s[k] = fabsf(from[k]) > (float)floor ? fabsf(from[k]) : (float)floor;
        }
        for (int64_t left = p / 2; left; left /= 2) {
            for (int k = 0; k < LENGTH; k++) square[k] *= square[k];
            if (left % 2)
                for (int k = 0; k < LENGTH; k++) z[k] *= square[k];
        }
        int any_lost = 0;
        for (int k = 0; k < LENGTH; k++) {
            z[k] = copysignf(z[k], from[k]) - by * along[k] / s[k];
            any_lost |= (!(fabsf(z[k]) > low) | !(fabsf(z[k]) < high)) & (along[k] != 0);
            to[k] = short_root(z[k], part, rest) * s[k];
        }
        if (any_lost) {
            matched_exactly(from, along, rate, p, floor, exact);
            for (int k = 0; k < LENGTH; k++)
                to[k] = fabsf(z[k]) > low && fabsf(z[k]) < high ? to[k] : exact[k];
        }
        for (int k = 0; k < LENGTH; k++) {
            z[k] = to[k];
            to[k] = along[k] != 0 ? to[k] : from[k];
        }
        if (safe)
            for (int k = 0; k < LENGTH; k++)
                to[k] = z[k] * from[k] > 0 ? to[k] : (float)(from[k] - rate * along[k]);
        store(to, out + begin, elements - begin);
    }
}

/* Copy row index[i] of `from` to row i of `to`; a row has `bytes` bytes. Rows can be anywhere in
   memory and are prefetched early. */
KERNEL(void, gather)(int64_t rows, int64_t bytes, const char *from, const int64_t *index,
                     char *to) {
    for (int64_t i = 0; i < rows; i++) {
        prefetch(from + index[i + 2 < rows ? i + 2 : i] * bytes, (size_t)bytes);
        memcpy(to + i * bytes, from + index[i] * bytes, (size_t)bytes);
    }
}

/* As `gather`, from samples that are stored as levels. */
KERNEL(void, gather_levels)(int64_t rows, int64_t elements, const Levels *of, const int64_t *index,
                            float *to) {
    const Levels levels = *of;
    for (int64_t i = 0; i < rows; i++) {
        prefetch(levels.level + index[i + 2 < rows ? i + 2 : i] * elements, (size_t)elements);
        read_levels(&levels, elements, levels.level + index[i] * elements, 0, elements,
                    to + i * elements);
    }
}

/* Find the levels of x and write them to `level`. Return how many elements differ from what is read
   back from their levels. */
KERNEL(int64_t, find_levels)(int64_t rows, int64_t elements, const float *restrict x,
                             const Levels *of, uint8_t *restrict level) {
    const Levels levels = *of;
    const float *restrict scale = levels.scale;
    int64_t wrong = 0;
    for (int64_t i = 0; i < rows; i++, x += elements, level += elements) {
        int32_t differ = 0;
        for (int64_t k = 0; k < elements; k++) {
            float step = scale ? scale[k] : levels.step;
            float rest = scale ? scale[elements + k] : 0;
            float zero = scale ? scale[2 * elements + k] : levels.zero;
            float at = (x[k] - zero) / step + 0.5f;
            at = at < 0 ? 0 : at < 255 ? at : 255; /* 255 for NaN */
            int32_t found = (int32_t)at;
            level[k] = (uint8_t)found;
            differ += step * (float)found + (rest * (float)found + zero) != x[k];
        }
        wrong += differ;
    }
    return wrong;
}

/* Compute the gradient of the mean cross-entropy of softmax regression for some devices.

   index     sample numbers [devices, batch]: rows of x [samples, features], or of its levels if
             given
   y         the classes of all samples
   w, out    [devices, classes, features + 1], the bias last: a 1 is appended to each sample
   scratch   buffer of (2·(classes + 1) + SAMPLES)·width + SLOPES·(classes + 1) elements, aligned
             to 64 bytes, where width is features + 1 rounded up to a multiple of LANES

   Batches are never written to memory: the current samples stay in the cache until both products
   have used them, while the next ones are prefetched. LANES elements of each sample, and of both
   classes, are adjacent, so that the compiler knows all distances within the loops. */
KERNEL(void, softmax_gradient)(int64_t devices, int64_t batch, int64_t features, int64_t classes,
                               const float *x, const Levels *of, const int64_t *y,
                               const int64_t *index, const float *w, float *out, float *scratch) {
    const int64_t row = features + 1;
    const int64_t width = (row + LANES - 1) / LANES * LANES;
    const int64_t vectors = width / LANES;
    const int64_t even = (classes + 1) / 2 * 2;
    const int64_t last = features / LANES * LANES; /* start of the vector with the 1 */
    const size_t size = (size_t)features * (of ? 1 : sizeof(float));
    const Levels levels = of ? *of : (Levels){0};
    const char *rows = of ? (const char *)levels.level : (const char *)x;
    float *weight = scratch;
    float *gradient = weight + even * width;
    float *sample = gradient + even * width;
    float *slope = sample + SAMPLES * width;
    for (int64_t i = 0; i < devices;
         i++, index += batch, w += classes * row, out += classes * row) {
        memset(scratch, 0, (size_t)(2 * even + SAMPLES) * (size_t)width * sizeof(float));
        memset(slope, 0, (size_t)(SLOPES * even) * sizeof(float));
        for (int64_t c = 0; c < classes; c++)
            spread(row, w + c * row, weight + c / 2 * 2 * width + c % 2 * LANES, LANES, 2);
        for (int64_t b = 0; b < batch; b += SAMPLES) {
            for (int64_t s = 0; s < SAMPLES; s++) {
                float *to = sample + s * LANES;
                int present = b + s < batch; /* padding samples are 0 and add nothing */
                if (!present)
                    for (int64_t v = 0; v < vectors; v++)
                        memset(to + v * SAMPLES * LANES, 0, LANES * sizeof(float));
                else if (of)
                    spread_levels(&levels, features, levels.level + index[b + s] * features, to,
                                  LANES, SAMPLES);
                else
                    spread(features, x + index[b + s] * features, to, LANES, SAMPLES);
                to[last * SAMPLES + features - last] = (float)present;
            }
            const int64_t *next = index + (b + SAMPLES < batch ? b + SAMPLES : batch);
            const int64_t *end = index + batch * (devices - i);
            for (int64_t c = 0; c < even; c += 2) {
                /* Prefetch a few samples at a time, so that nothing stalls. */
                for (int64_t s = c / 2; s < SAMPLES && next + s < end; s += even / 2)
                    prefetch(rows + (size_t)next[s] * size, size);
                const VECTOR *by = (const VECTOR *)(weight + c * width);
                const VECTOR *at = (const VECTOR *)sample;
                VECTOR one[SAMPLES] = {0}, two[SAMPLES] = {0};
                for (int64_t v = 0; v < vectors; v++, at += SAMPLES, by += 2)
                    for (int s = 0; s < SAMPLES; s++) {
                        one[s] += at[s] * by[0];
                        two[s] += at[s] * by[1];
                    }
                for (int s = 0; s < SAMPLES; s++) {
                    slope[c * SLOPES + s] = TOTAL(one[s]);
                    slope[(c + 1) * SLOPES + s] = TOTAL(two[s]);
                }
            }
            float largest[SLOPES], sum[SLOPES] = {0};
            memcpy(largest, slope, sizeof largest);
            for (int64_t c = 1; c < classes; c++)
                for (int s = 0; s < SLOPES; s++)
                    largest[s] =
                        slope[c * SLOPES + s] > largest[s] ? slope[c * SLOPES + s] : largest[s];
            for (int64_t c = 0; c < classes; c++)
                for (int s = 0; s < SLOPES; s++) {
                    /* Shares of at least e^-70: denormal ones are slow. NaN is kept. */
                    float below = slope[c * SLOPES + s] - largest[s];
                    float share = exponential(below < -70 ? -70 : below);
                    slope[c * SLOPES + s] = share;
                    sum[s] += share;
                }
            for (int s = 0; s < SLOPES; s++) sum[s] = 1 / (sum[s] * (float)batch);
            for (int64_t c = 0; c < even; c++)
                for (int s = 0; s < SLOPES; s++)
                    slope[c * SLOPES + s] = c < classes ? slope[c * SLOPES + s] * sum[s] : 0;
            for (int64_t s = 0; s < SAMPLES && b + s < batch; s++)
                slope[y[index[b + s]] * SLOPES + s] -= 1 / (float)batch;
            for (int64_t c = 0; c < even; c += 2) {
                const VECTOR *at = (const VECTOR *)sample;
                VECTOR *to = (VECTOR *)(gradient + c * width);
                float by_one[SAMPLES], by_two[SAMPLES];
                memcpy(by_one, slope + c * SLOPES, sizeof by_one);
                memcpy(by_two, slope + (c + 1) * SLOPES, sizeof by_two);
                for (int64_t v = 0; v < vectors; v++, at += SAMPLES, to += 2) {
                    VECTOR one = to[0], two = to[1];
                    for (int s = 0; s < SAMPLES; s++) {
                        one += by_one[s] * at[s];
                        two += by_two[s] * at[s];
                    }
                    to[0] = one;
                    to[1] = two;
                }
            }
        }
        for (int64_t c = 0; c < classes; c++)
            collect(row, gradient + c / 2 * 2 * width + c % 2 * LANES, out + c * row, LANES, 2);
    }
}
