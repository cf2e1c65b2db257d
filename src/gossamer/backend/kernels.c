/* What takes most of a round's time, in one pass over memory, for models of float32. `mirror`, `mixing`, `steps` and `linear` say
   what is computed, and are the oracle of what is here.

   Numbers are worked on LENGTH at a time, filled up with zeros: a loop of fixed length is the same instructions for every
   number, so that a result does not depend on where in memory it stands, nor on how many devices a process holds. */

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Each function once for every kind of processor, and the one that fits is taken when it is loaded. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_ALL_PROCESSORS __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#define AVX2 __builtin_cpu_supports("avx2")
#define AVX512                                                                                                      \
    (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") && \
     __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
#else
#define FOR_ALL_PROCESSORS
#define AVX2 0
#define AVX512 0
#endif
#define INLINE static inline __attribute__((always_inline))

enum { LENGTH = 64, EIGHT = 8, AT_ONCE = 1024, SIXTEEN = 16 };
typedef double Eight __attribute__((vector_size(64), aligned(8), may_alias));

/* The instruction set that the functions below run with: 0 none (plain torch may well be faster), 1 AVX2, 2 AVX-512. */
int instruction_set(void) { return AVX512 ? 2 : AVX2 ? 1 : 0; }

/* The same bits, taken for another type. */
INLINE double as_double(uint64_t bits) { return (union { uint64_t from; double to; }){bits}.to; }
INLINE uint64_t as_bits(double x) { return (union { double from; uint64_t to; }){x}.to; }
INLINE float as_float(uint32_t word) { return (union { uint32_t from; float to; }){word}.to; }
INLINE uint32_t as_word(float x) { return (union { float from; uint32_t to; }){x}.to; }

/* LENGTH numbers that start at `from`, or a copy of as many as there are, filled up with zeros. */
INLINE const float *filled(const float *from, int64_t numbers, float *copy) {
    if (numbers >= LENGTH) return from;
    memset(copy, 0, LENGTH * sizeof(float));
    return memcpy(copy, from, (size_t)numbers * sizeof(float));
}

/* The other way: as many of LENGTH numbers as there is room for. All of them is the usual case, and a copy of known size fast. */
INLINE void put(const float *numbers, float *to, int64_t room) {
    if (room >= LENGTH)
        memcpy(to, numbers, LENGTH * sizeof(float));
    else
        memcpy(to, numbers, (size_t)room * sizeof(float));
}

INLINE void prefetch(const void *from, size_t bytes) {
    for (size_t k = 0; k < bytes; k += 64) __builtin_prefetch((const char *)from + k);
}

/* x^[1/p] = x·2^((1/p − 1)·log2|x|), to 1e-8: of equal models the mean is then just what they are, round after round. Zero,
   infinity and NaN stay what they are. The logarithm is the exponent and a minimax polynomial for what is left, from sqrt(1/2) to
   sqrt(2); the power of two is a whole one and another polynomial. */
INLINE double root(double x, double one_over_p) {
    const uint64_t root_half = 0x3fe6a09e667f3bcd, one = 0x3ff0000000000000, fraction = 0x000fffffffffffff;
    uint64_t bits = as_bits(fabs(x)) + (one - root_half);
    double exponent = as_double((bits >> 52) | 0x4330000000000000) - (0x1p52 + 1023);
    double f = as_double((bits & fraction) + root_half) - 1;
    double log = -0.107497894180832055;
    log = log * f + 0.184760333651813787;
    log = log * f - 0.191388376566725391;
    log = log * f + 0.204857647786219302;
    log = log * f - 0.23960812190957285;
    log = log * f + 0.28855256143746741;
    log = log * f - 0.360696541807505097;
    log = log * f + 0.4808985203240642;
    log = log * f - 0.721347354478905334;
    log = log * f + 1.4426950399991884;
    double y = (one_over_p - 1) * (log * f + exponent);
    double whole = y + 0x1.8p52; /* its last bits are those of the nearest whole number */
    y -= whole - 0x1.8p52;
    double exp = 0.000154614446985691291;
    exp = exp * y + 0.00134004281776158379;
    exp = exp * y + 0.00961805667852463808;
    exp = exp * y + 0.0555032722667030206;
    exp = exp * y + 0.240226509222887581;
    exp = exp * y + 0.693147206702832596;
    exp = exp * y + 1.0;
    return x * as_double(as_bits(exp) + (as_bits(whole) << 52));
}

/* x^[p] of LENGTH numbers by repeated squaring. What is so small that its power is no normal number, 0 is taken for: to
   multiply those takes a hundred times as long. */
INLINE void power(double *x, int64_t p, double smallest) {
    double square[LENGTH], size[LENGTH];
    for (int k = 0; k < LENGTH; k++) {
        double y = fabs(x[k]);
        square[k] = y < smallest ? 0.0 : y;
        size[k] = p % 2 ? square[k] : 1.0;
    }
    while (p /= 2) {
        for (int k = 0; k < LENGTH; k++) square[k] *= square[k];
        if (p % 2)
            for (int k = 0; k < LENGTH; k++) size[k] *= square[k];
    }
    for (int k = 0; k < LENGTH; k++) x[k] = copysign(size[k], x[k]);
}

INLINE double smallest_base(int64_t p) { return pow(1e-290, 1.0 / (double)p); }

/* The power mean of one column of one receiver, divided by its own largest number: for what is far below its column's. */
static double scaled_mean(int64_t entries, const int64_t *sender, const double *weight, const float *const *model, int64_t column,
                          int64_t p) {
    double largest = 0, sum = 0;
    for (int64_t e = 0; e < entries; e++) {
        double size = weight[e] != 0 ? fabs(model[sender[e]][column]) : 0;
        largest = size > largest ? size : largest;
    }
    if (largest == 0) return 0;
    for (int64_t e = 0; e < entries; e++) {
        double x = model[sender[e]][column];
        sum += weight[e] * copysign(pow(fabs(x) / largest, (double)p), x);
    }
    return largest * copysign(pow(fabs(sum), 1.0 / (double)p), sum);
}

/* Columns `begin` to `end` of (sum_j a_ij·w_j^[p])^[1/p] for every receiver i. The weights of receiver i are weight[first[i]]
   to weight[first[i + 1] − 1], of the models that `sender` names. `room`: LENGTH numbers a sender.
   For large p a column is in units of its largest number, so that no power overflows: whole powers of two, which round nothing. */
FOR_ALL_PROCESSORS
void power_mean(int64_t receivers, const int64_t *first, const int64_t *sender, const double *weight, int64_t senders,
                const float *const *model, int64_t p, int64_t begin, int64_t end, double *room, float *out, int64_t columns) {
    const double base = smallest_base(p), one_over_p = 1.0 / (double)p;
    for (; begin < end; begin += LENGTH) {
        int64_t numbers = end - begin < LENGTH ? end - begin : LENGTH;
        float copy[LENGTH], largest[LENGTH] = {0}, unit[LENGTH];
        double one_over_unit[LENGTH], least[LENGTH]; /* a sum below is lost, unless there is nothing to sum */
        for (int64_t j = 0; j < senders; j++) {
            prefetch(model[j + 2 < senders ? j + 2 : j] + begin, (size_t)numbers * sizeof(float));
            const float *w = filled(model[j] + begin, numbers, copy);
            for (int k = 0; k < LENGTH; k++) largest[k] = fabsf(w[k]) > largest[k] ? fabsf(w[k]) : largest[k];
        }
        for (int k = 0; k < LENGTH; k++) {
            double whole = p > 16 && largest[k] > 0 ? as_double(as_bits(largest[k]) & 0x7ff0000000000000) : 1;
            unit[k] = (float)whole;
            one_over_unit[k] = 1 / whole;
            least[k] = largest[k] > 0 ? 1e-270 : 0;
        }
        for (int64_t j = 0; j < senders; j++) {
            const float *w = filled(model[j] + begin, numbers, copy);
            double *z = room + j * LENGTH;
            for (int k = 0; k < LENGTH; k++) z[k] = w[k] * one_over_unit[k];
            power(z, p, base);
        }
        for (int64_t i = 0; i < receivers; i++) {
            double sum[LENGTH];
            float mean[LENGTH];
            int some_lost = 0;
            for (int part = 0; part < LENGTH; part += 4 * EIGHT) { /* sums that stay in registers */
                Eight s[4] = {0};
                for (int64_t e = first[i]; e < first[i + 1]; e++) {
                    const Eight *z = (const Eight *)(room + sender[e] * LENGTH + part);
                    for (int k = 0; k < 4; k++) s[k] += weight[e] * z[k];
                }
                memcpy(sum + part, s, sizeof s);
            }
            for (int k = 0; k < LENGTH; k++) {
                some_lost |= fabs(sum[k]) < least[k];
                mean[k] = (float)root(sum[k], one_over_p) * unit[k];
            }
            for (int64_t k = 0; some_lost && k < numbers; k++)
                if (fabs(sum[k]) < least[k])
                    mean[k] = (float)scaled_mean(first[i + 1] - first[i], sender + first[i], weight + first[i], model,
                                                 begin + k, p);
            put(mean, out + i * columns + begin, numbers);
        }
    }
}

/* sum_j a_ij·x_j for receivers `begin` to `end`, added to what is there if `more`. Rows lie anywhere: the one to come is asked
   for while this one is added. */
FOR_ALL_PROCESSORS
void weighted_sums(int64_t begin, int64_t end, const int64_t *first, const int64_t *sender, const float *weight, const float *x,
                   int64_t columns, int more, float *out) {
    for (int64_t i = begin; i < end; i++)
        for (int64_t c = 0; c < columns; c += AT_ONCE) {
            int64_t numbers = columns - c < AT_ONCE ? columns - c : AT_ONCE;
            float *restrict to = out + i * columns + c, sum[AT_ONCE];
            if (more)
                memcpy(sum, to, (size_t)numbers * sizeof(float));
            else
                memset(sum, 0, (size_t)numbers * sizeof(float));
            for (int64_t e = first[i]; e < first[i + 1]; e++) {
                const float *from = x + sender[e] * columns + c, *coming = x + sender[e + (e + 1 < first[end])] * columns + c;
                float by = weight[e];
                int64_t k = 0;
                for (; k + LENGTH <= numbers; k += LENGTH) {
                    prefetch(coming + k, LENGTH * sizeof(float));
                    for (int j = 0; j < LENGTH; j++) sum[k + j] += by * from[k + j];
                }
                prefetch(coming + k, (size_t)(numbers - k) * sizeof(float));
                for (; k + SIXTEEN <= numbers; k += SIXTEEN)
                    for (int j = 0; j < SIXTEEN; j++) sum[k + j] += by * from[k + j];
                for (; k < numbers; k++) sum[k] += by * from[k];
            }
            memcpy(to, sum, (size_t)numbers * sizeof(float));
        }
}

/* z^[1/p] in float32, where twice as many fit a register, to a few units in the last place; z is normal and finite. As `root`,
   but what the exponent gives is kept apart from what the rest gives, so that it is not rounded to the exponent's size. 1/p is
   part + rest. */
INLINE float short_root(float z, float part, float rest) {
    const uint32_t root_half = 0x3f3504f3, one = 0x3f800000, fraction = 0x007fffff;
    uint32_t bits = as_word(fabsf(z)) + (one - root_half);
    float e = (float)(int32_t)(bits >> 23) - 127;
    float f = as_float((bits & fraction) + root_half) - 1;
    float log = 0.123109684671914598f;
    log = log * f - 0.205861880512760548f;
    log = log * f + 0.21607822552243776f;
    log = log * f - 0.2391698814010418f;
    log = log * f + 0.28790326092450148f;
    log = log * f - 0.360693268135336163f;
    log = log * f + 0.480910753459412559f;
    log = log * f - 0.721347468249562452f;
    log = (log * f + 1.44269500356798217f) * f;
    float whole = (e + log) * part + 0x1.8p23f; /* its last bits are those of the nearest whole number */
    float y = (e * part - (whole - 0x1.8p23f)) + (e * rest + log * part);
    float exp = 0.000154614446985691291f;
    exp = exp * y + 0.00134004281776158379f;
    exp = exp * y + 0.00961805667852463808f;
    exp = exp * y + 0.0555032722667030206f;
    exp = exp * y + 0.240226509222887581f;
    exp = exp * y + 0.693147206702832596f;
    exp = exp * y + 1.0f;
    return copysignf(as_float(as_word(exp) + (as_word(whole) << 23)), z);
}

/* z^[1/p] of float32 duals: 0, what is infinite and NaN are their own roots. */
FOR_ALL_PROCESSORS
void roots(int64_t numbers, const float *z, int64_t p, float *out) {
    const float part = (float)(1.0 / (double)p), rest = (float)(1.0 / (double)p - part);
    const float tiny = 0x1p-100f, back = (float)pow(2, -64.0 / (double)p); /* what is tiny may be denormal */
    for (int64_t begin = 0; begin < numbers; begin += LENGTH) {
        float copy[LENGTH], to[LENGTH];
        const float *from = filled(z + begin, numbers - begin, copy);
        int some_odd = 0;
        for (int k = 0; k < LENGTH; k++) {
            some_odd |= !(fabsf(from[k]) >= tiny) | !(fabsf(from[k]) < INFINITY);
            to[k] = short_root(from[k], part, rest);
        }
        for (int k = 0; some_odd && k < LENGTH; k++) {
            float size = fabsf(from[k]), again = short_root(from[k] * 0x1p64f, part, rest) * back;
            to[k] = !(size > 0) || !(size < INFINITY) ? from[k] : size < tiny ? again : to[k];
        }
        put(to, out + begin, numbers - begin);
    }
}

/* LENGTH numbers of `matched_step` in float64. */
static void matched_exactly(const float *w, const float *d, double rate, int64_t p, double floor, float *to) {
    double z[LENGTH];
    for (int k = 0; k < LENGTH; k++) { /* w/s is w/floor, cut at ±1 */
        double y = w[k] / floor;
        y = y > 1 ? 1 : y;
        z[k] = y < -1 ? -1 : y;
    }
    power(z, p, smallest_base(p));
    for (int k = 0; k < LENGTH; k++) {
        double s = fabs(w[k]) > floor ? fabs(w[k]) : floor;
        to[k] = (float)(root(z[k] - rate * (double)p * d[k] / s, 1.0 / (double)p) * s);
    }
}

/* w+ = s·((w/s)^[p] − rate·p·d/s)^[1/p] with s = max(|w|, floor); w itself where d = 0; `safe`: w − rate·d where that sign is
   not w's. In float32, since the root divides its error by p, but for numbers whose dual float32 cannot hold. */
FOR_ALL_PROCESSORS
void matched_step(int64_t numbers, const float *w, const float *d, double rate, int64_t p, double floor, int safe, float *out) {
    const float part = (float)(1.0 / (double)p), rest = (float)(1.0 / (double)p - part), low = 1e-30f, high = 1e30f;
    const float base = (float)pow(1e-36, 1.0 / (double)p), one_over_floor = (float)(1 / floor), by = (float)(rate * (double)p);
    for (int64_t begin = 0; begin < numbers; begin += LENGTH) {
        float copy[LENGTH], another[LENGTH], square[LENGTH], z[LENGTH], s[LENGTH], to[LENGTH], exact[LENGTH];
        const float *from = filled(w + begin, numbers - begin, copy), *along = filled(d + begin, numbers - begin, another);
        for (int k = 0; k < LENGTH; k++) { /* w/s is w/floor, cut at ±1 */
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
        int some_lost = 0;
        for (int k = 0; k < LENGTH; k++) {
            z[k] = copysignf(z[k], from[k]) - by * along[k] / s[k];
            some_lost |= (!(fabsf(z[k]) > low) | !(fabsf(z[k]) < high)) & (along[k] != 0);
            to[k] = short_root(z[k], part, rest) * s[k];
        }
        if (some_lost) {
            matched_exactly(from, along, rate, p, floor, exact);
            for (int k = 0; k < LENGTH; k++) to[k] = fabsf(z[k]) > low && fabsf(z[k]) < high ? to[k] : exact[k];
        }
        for (int k = 0; k < LENGTH; k++) z[k] = to[k], to[k] = along[k] != 0 ? to[k] : from[k];
        if (safe)
            for (int k = 0; k < LENGTH; k++) to[k] = z[k] * from[k] > 0 ? to[k] : (float)(from[k] - rate * along[k]);
        put(to, out + begin, numbers - begin);
    }
}

/* Row index[i] of `from` to row i of `to`, each of so many bytes. The rows to come are asked for early: they lie anywhere. */
void gather(int64_t rows, int64_t bytes, const char *from, const int64_t *index, char *to) {
    for (int64_t i = 0; i < rows; i++) {
        prefetch(from + index[i + 2 < rows ? i + 2 : i] * bytes, (size_t)bytes);
        memcpy(to + i * bytes, from + index[i] * bytes, (size_t)bytes);
    }
}

/* Levels are how samples may be kept: number k is zero + step·level, which is one instruction that rounds once. */
INLINE void read_levels(int64_t numbers, const uint8_t *level, float step, float zero, float *to) {
    for (int64_t k = 0; k < numbers; k++) to[k] = step * (float)level[k] + zero;
}

/* The levels of x, and how many of its numbers are not just what is read back from them. */
FOR_ALL_PROCESSORS
int64_t find_levels(int64_t numbers, const float *x, float step, float zero, uint8_t *level) {
    int64_t wrong = 0;
    const float one_over_step = 1 / step;
    for (int64_t k = 0; k < numbers; k++) {
        float at = (x[k] - zero) * one_over_step + 0.5f;
        level[k] = (uint8_t)(int32_t)(at < 0 ? 0 : at < 255 ? at : 255); /* of what is not a number, 255 */
        wrong += step * (float)level[k] + zero != x[k];
    }
    return wrong;
}

/* As `gather`, of numbers that are kept as levels. */
FOR_ALL_PROCESSORS
void gather_levels(int64_t rows, int64_t numbers, const uint8_t *level, float step, float zero, const int64_t *index, float *to) {
    for (int64_t i = 0; i < rows; i++) {
        prefetch(level + index[i + 2 < rows ? i + 2 : i] * numbers, (size_t)numbers);
        read_levels(numbers, level + index[i] * numbers, step, zero, to + i * numbers);
    }
}

/* Softmax regression: samples are worked on SAMPLES at a time, against two classes. */
enum { SAMPLES = 8 };
typedef float Sixteen __attribute__((vector_size(64), may_alias));
typedef float Half __attribute__((vector_size(32)));
typedef float Quarter __attribute__((vector_size(16)));

INLINE float total(Sixteen x) {
    Half a[2];
    memcpy(a, &x, sizeof a);
    a[0] += a[1];
    Quarter b[2];
    memcpy(b, a, sizeof b);
    b[0] += b[1];
    return (b[0][0] + b[0][1]) + (b[0][2] + b[0][3]);
}

/* e^x for x from -70 to 0, to 1e-8. */
INLINE float exponential(float x) {
    float whole = x * 1.44269504f + 0x1.8p23f; /* its last bits are those of the nearest whole number */
    float k = whole - 0x1.8p23f;
    float f = (x - k * 0.693145752f) - k * 1.42860677e-6f;
    float y = 0.0013941108434f;
    y = y * f + 0.00837512639815f;
    y = y * f + 0.0416663528968f;
    y = y * f + 0.166664155147f;
    y = y * f + 0.500000004712f;
    y = y * f + 1.00000003772f;
    y = y * f + 1.0f;
    return as_float(as_word(y) + (as_word(whole) << 23));
}

/* A row of numbers to every `apart`-th group of SIXTEEN from `to` on, and back. What is beyond the row is left as it is. */
INLINE void spread(int64_t numbers, const float *from, float *to, int64_t apart) {
    int64_t k = 0;
    for (; k + SIXTEEN <= numbers; k += SIXTEEN) memcpy(to + k * apart, from + k, SIXTEEN * sizeof(float));
    memcpy(to + k * apart, from + k, (size_t)(numbers - k) * sizeof(float));
}

INLINE void collect(int64_t numbers, const float *from, float *to, int64_t apart) {
    int64_t k = 0;
    for (; k + SIXTEEN <= numbers; k += SIXTEEN) memcpy(to + k, from + k * apart, SIXTEEN * sizeof(float));
    memcpy(to + k, from + k * apart, (size_t)(numbers - k) * sizeof(float));
}

INLINE void spread_levels(int64_t numbers, const uint8_t *level, float step, float zero, float *to, int64_t apart) {
    int64_t k = 0;
    for (; k + SIXTEEN <= numbers; k += SIXTEEN) read_levels(SIXTEEN, level + k, step, zero, to + k * apart);
    read_levels(numbers - k, level + k, step, zero, to + k * apart);
}

/* The gradient of the mean cross-entropy of softmax regression, for some devices: of the rows `index` [devices, batch] of x
   [·, features], or of its levels where it is kept as such, whose classes are y. w and out are [devices, classes, features + 1],
   the bias last: a sample is followed by a 1. `room`: (2·(classes + 1) + SAMPLES)·width + SAMPLES·(classes + 1) numbers at a
   multiple of 64 bytes, where width is features + 1 filled up to a multiple of 16. No batch is ever written to memory: the
   samples that are worked on stay in the cache until both products have used them, and those to come are asked for meanwhile.
   What is multiplied lies side by side, SIXTEEN numbers of each sample and of both classes: the loops then know all distances. */
FOR_ALL_PROCESSORS
void softmax_gradient(int64_t devices, int64_t batch, int64_t features, int64_t classes, const float *x, const uint8_t *level,
                      float step, float zero, const int64_t *y, const int64_t *index, const float *w, float *out, float *room) {
    const int64_t row = features + 1, width = (row + SIXTEEN - 1) / SIXTEEN * SIXTEEN, vectors = width / SIXTEEN;
    const int64_t even = (classes + 1) / 2 * 2;
    const int64_t last = features / SIXTEEN * SIXTEEN; /* where the vector with the 1 begins */
    const size_t size = (size_t)features * (level ? 1 : sizeof(float));
    float *weight = room, *gradient = weight + even * width, *sample = gradient + even * width, *slope = sample + SAMPLES * width;
    for (int64_t i = 0; i < devices; i++, index += batch, w += classes * row, out += classes * row) {
        memset(room, 0, (size_t)(2 * even + SAMPLES) * (size_t)width * sizeof(float));
        for (int64_t c = 0; c < classes; c++) spread(row, w + c * row, weight + c / 2 * 2 * width + c % 2 * SIXTEEN, 2);
        for (int64_t b = 0; b < batch; b += SAMPLES) {
            for (int64_t s = 0; s < SAMPLES; s++) {
                float *to = sample + s * SIXTEEN;
                int there = b + s < batch; /* what fills up the last ones, all 0, adds nothing */
                if (!there)
                    for (int64_t v = 0; v < vectors; v++) memset(to + v * SAMPLES * SIXTEEN, 0, SIXTEEN * sizeof(float));
                else if (level)
                    spread_levels(features, level + index[b + s] * features, step, zero, to, SAMPLES);
                else
                    spread(features, x + index[b + s] * features, to, SAMPLES);
                to[last * SAMPLES + features - last] = (float)there;
            }
            const int64_t *coming = index + (b + SAMPLES < batch ? b + SAMPLES : batch), *end = index + batch * (devices - i);
            for (int64_t c = 0; c < even; c += 2) {
                for (int64_t s = c / 2; s < SAMPLES && coming + s < end; s += even / 2) /* a few at a time, so that none waits */
                    prefetch(level ? (const void *)(level + coming[s] * features) : x + coming[s] * features, size);
                const Sixteen *by = (const Sixteen *)(weight + c * width), *at = (const Sixteen *)sample;
                Sixteen one[SAMPLES] = {0}, two[SAMPLES] = {0};
                for (int64_t v = 0; v < vectors; v++, at += SAMPLES, by += 2)
                    for (int s = 0; s < SAMPLES; s++) {
                        one[s] += at[s] * by[0];
                        two[s] += at[s] * by[1];
                    }
                for (int s = 0; s < SAMPLES; s++) {
                    slope[c * SAMPLES + s] = total(one[s]);
                    slope[(c + 1) * SAMPLES + s] = total(two[s]);
                }
            }
            float largest[SAMPLES], sum[SAMPLES] = {0};
            memcpy(largest, slope, sizeof largest);
            for (int64_t c = 1; c < classes; c++)
                for (int s = 0; s < SAMPLES; s++)
                    largest[s] = slope[c * SAMPLES + s] > largest[s] ? slope[c * SAMPLES + s] : largest[s];
            for (int64_t c = 0; c < classes; c++)
                for (int s = 0; s < SAMPLES; s++) { /* shares stop at e^-70: denormal numbers would be slow; NaN stays NaN */
                    float below = slope[c * SAMPLES + s] - largest[s], share = exponential(below < -70 ? -70 : below);
                    slope[c * SAMPLES + s] = share;
                    sum[s] += share;
                }
            for (int s = 0; s < SAMPLES; s++) sum[s] = 1 / (sum[s] * (float)batch);
            for (int64_t c = 0; c < even; c++)
                for (int s = 0; s < SAMPLES; s++) slope[c * SAMPLES + s] = c < classes ? slope[c * SAMPLES + s] * sum[s] : 0;
            for (int64_t s = 0; s < SAMPLES && b + s < batch; s++) slope[y[index[b + s]] * SAMPLES + s] -= 1 / (float)batch;
            for (int64_t c = 0; c < even; c += 2) {
                const Sixteen *at = (const Sixteen *)sample;
                Sixteen *to = (Sixteen *)(gradient + c * width);
                float by_one[SAMPLES], by_two[SAMPLES];
                memcpy(by_one, slope + c * SAMPLES, sizeof by_one);
                memcpy(by_two, slope + (c + 1) * SAMPLES, sizeof by_two);
                for (int64_t v = 0; v < vectors; v++, at += SAMPLES, to += 2) {
                    Sixteen one = to[0], two = to[1];
                    for (int s = 0; s < SAMPLES; s++) {
                        one += by_one[s] * at[s];
                        two += by_two[s] * at[s];
                    }
                    to[0] = one;
                    to[1] = two;
                }
            }
        }
        for (int64_t c = 0; c < classes; c++) collect(row, gradient + c / 2 * 2 * width + c % 2 * SIXTEEN, out + c * row, 2);
    }
}
