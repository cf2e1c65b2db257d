/* What the kernels of every instruction set are made of. Functions here are inlined into the
   kernels and compiled with their instructions, or run so rarely that it does not matter. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* LENGTH elements are processed at a time, padded with zeros; HALF of them in float64 where sums
   have to stay in registers. Slopes of a block of samples are SLOPES apart. */
enum { LENGTH = 64, HALF = LENGTH / 2, SIXTEEN = 16, SLOPES = 8 };
typedef double Double2 __attribute__((vector_size(16), aligned(8), may_alias));
typedef double Double4 __attribute__((vector_size(32), aligned(8), may_alias));
typedef double Double8 __attribute__((vector_size(64), aligned(8), may_alias));
typedef float Vector4 __attribute__((vector_size(16), may_alias));
typedef float Vector8 __attribute__((vector_size(32), may_alias));
typedef float Vector16 __attribute__((vector_size(64), may_alias));
typedef float Loose4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef float Loose8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef float Loose16 __attribute__((vector_size(64), aligned(4), may_alias));

/* Reinterpret the bits of a value as another type. */
INLINE double as_double(uint64_t bits) { return (union { uint64_t from; double to; }){bits}.to; }
INLINE uint64_t as_bits(double x) { return (union { double from; uint64_t to; }){x}.to; }
INLINE float as_float(uint32_t word) { return (union { uint32_t from; float to; }){word}.to; }
INLINE uint32_t as_word(float x) { return (union { float from; uint32_t to; }){x}.to; }

/* Return LENGTH elements from `from` on. If there are fewer, return a copy padded with zeros. */
INLINE const float *padded(const float *from, int64_t elements, float *copy) {
    if (elements >= LENGTH) return from;
    memset(copy, 0, LENGTH * sizeof(float));
    return memcpy(copy, from, (size_t)elements * sizeof(float));
}

/* Store as many of LENGTH elements as fit. All of them is the usual case, and a copy of known size
   is fast. */
INLINE void store(const float *from, float *to, int64_t capacity) {
    if (capacity >= LENGTH)
        memcpy(to, from, LENGTH * sizeof(float));
    else
        memcpy(to, from, (size_t)capacity * sizeof(float));
}

INLINE void prefetch(const void *from, size_t bytes) {
    for (size_t k = 0; k < bytes; k += 64) __builtin_prefetch((const char *)from + k, 0, 2);
}

/* Return x^[1/p] = x·2^((1/p − 1)·log2|x|), to 1e-8: accurate enough that the mean of equal models
   is equal to them, round after round. Zero, infinity and NaN are kept. The logarithm is the
   exponent plus a minimax polynomial of the mantissa from sqrt(1/2) to sqrt(2); the power of two is
   a whole one times another polynomial. */
INLINE double root(double x, double one_over_p) {
    const uint64_t root_half = 0x3fe6a09e667f3bcd;
    const uint64_t one = 0x3ff0000000000000;
    const uint64_t fraction = 0x000fffffffffffff;
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
    double whole = y + 0x1.8p52; /* its last bits are the nearest integer */
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

/* Compute x^[p] of LENGTH elements by repeated squaring. Elements whose power would be denormal are
   taken as 0: denormal products take a hundred times as long. */
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

/* Return the power mean of one column of one receiver, scaled by its own largest element: for
   elements far below the largest of their column. */
static double scaled_mean(int64_t entries, const int64_t *sender, const double *weight,
                          const float *const *model, int64_t column, int64_t p) {
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

/* Return z^[1/p] in float32, of which a register holds twice as many, to a few units in the last
   place. z is normal and finite. As `root`, but the contribution of the exponent is kept apart from
   that of the mantissa, so that the latter is not rounded to the size of the former. 1/p is
   part + rest. */
INLINE float short_root(float z, float part, float rest) {
    const uint32_t root_half = 0x3f3504f3;
    const uint32_t one = 0x3f800000;
    const uint32_t fraction = 0x007fffff;
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
    float whole = (e + log) * part + 0x1.8p23f; /* its last bits are the nearest integer */
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

/* Compute LENGTH elements of `matched_step` in float64. */
static void matched_exactly(const float *w, const float *d, double rate, int64_t p, double floor,
                            float *to) {
    double z[LENGTH];
    for (int k = 0; k < LENGTH; k++) { /* w/s is w/floor, limited to ±1 */
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

/* Return e^x for x from -70 to 0, to 1e-8. */
INLINE float exponential(float x) {
    float whole = x * 1.44269504f + 0x1.8p23f; /* its last bits are the nearest integer */
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

/* Return the sum of all lanes of a vector, by halves. */
INLINE float total4(Vector4 x) { return (x[0] + x[1]) + (x[2] + x[3]); }

INLINE float total8(Vector8 x) {
    Vector4 half[2];
    memcpy(half, &x, sizeof half);
    return total4(half[0] + half[1]);
}

INLINE float total16(Vector16 x) {
    Vector8 half[2];
    memcpy(half, &x, sizeof half);
    return total8(half[0] + half[1]);
}

/* Samples can be stored as bytes, their levels. Element k of a sample is step·level + zero, or, if
   there is a scale, step[k]·level + (rest[k]·level + zero[k]); each sum is rounded once.

   level         the levels of all samples [samples, elements]
   scale         step, rest and zero of every element [3, elements], or NULL
   step, zero    those of all elements, if scale is NULL */
typedef struct {
    const uint8_t *level;
    const float *scale;
    float step, zero;
} Levels;

INLINE float from_level(const Levels *of, int64_t elements, int64_t k, uint8_t level) {
    const float *step = of->scale, *rest = step + elements, *zero = rest + elements;
    if (!step) return of->step * (float)level + of->zero;
    return step[k] * (float)level + (rest[k] * (float)level + zero[k]);
}

/* Read elements `begin` to `end` of one sample. */
INLINE void read_levels(const Levels *of, int64_t elements, const uint8_t *level, int64_t begin,
                        int64_t end, float *restrict to) {
    for (int64_t k = begin; k < end; k++) to[k - begin] = from_level(of, elements, k, level[k]);
}

/* Copy a row to every `apart`-th group of `lanes` elements from `to` on; `collect` copies it back.
   Elements beyond the row are unchanged. */
INLINE void spread(int64_t elements, const float *from, float *to, int64_t lanes, int64_t apart) {
    int64_t k = 0;
    for (; k + lanes <= elements; k += lanes)
        memcpy(to + k * apart, from + k, (size_t)lanes * sizeof(float));
    memcpy(to + k * apart, from + k, (size_t)(elements - k) * sizeof(float));
}

INLINE void collect(int64_t elements, const float *from, float *to, int64_t lanes, int64_t apart) {
    int64_t k = 0;
    for (; k + lanes <= elements; k += lanes)
        memcpy(to + k, from + k * apart, (size_t)lanes * sizeof(float));
    memcpy(to + k, from + k * apart, (size_t)(elements - k) * sizeof(float));
}

/* As `spread`, from the levels of a sample. They are converted LENGTH at a time, of which the
   compiler makes the fewest instructions. */
INLINE void spread_levels(const Levels *of, int64_t elements, const uint8_t *level, float *to,
                          int64_t lanes, int64_t apart) {
    float part[LENGTH];
    int64_t k = 0;
    for (; k + LENGTH <= elements; k += LENGTH) {
        read_levels(of, elements, level, k, k + LENGTH, part);
        spread(LENGTH, part, to + k * apart, lanes, apart);
    }
    read_levels(of, elements, level, k, elements, part);
    spread(elements - k, part, to + k * apart, lanes, apart);
}
