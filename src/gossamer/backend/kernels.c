/* Kernels for float32 models, each in one pass over memory: the operations that take most of a
   round's time. plain.py and mixing.py compute the same in torch; the kernels are tested against
   them.

   Elements are processed LENGTH at a time, padded with zeros. A loop of fixed length executes the
   same instructions for every element, so that a result depends neither on its position in memory
   nor on the number of devices that a process holds. */

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Every function is compiled for several instruction sets; the loader selects one of them. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_ALL_PROCESSORS                                                                         \
    __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#define AVX2 __builtin_cpu_supports("avx2")
#define AVX512                                                                                     \
    (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&                    \
     __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&                   \
     __builtin_cpu_supports("avx512vl"))
#else
#define FOR_ALL_PROCESSORS
#define AVX2 0
#define AVX512 0
#endif
#define INLINE static inline __attribute__((always_inline))

enum { LENGTH = 64, EIGHT = 8, AT_ONCE = 1024, SIXTEEN = 16 };
typedef double Eight __attribute__((vector_size(64), aligned(8), may_alias));

/* Return the instruction set that the functions below use: 0 for neither of the following (plain
   torch may well be faster), 1 for AVX2, 2 for AVX-512. */
int instruction_set(void) { return AVX512 ? 2 : AVX2 ? 1 : 0; }

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
    for (size_t k = 0; k < bytes; k += 64) __builtin_prefetch((const char *)from + k);
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

/* Compute columns `begin` to `end` of (sum_j a_ij·w_j^[p])^[1/p] for every receiver i. The weights
   of receiver i are weight[first[i]] to weight[first[i + 1] − 1], for the models that `sender`
   names. `scratch` has LENGTH elements per sender. For large p a column is divided by its largest
   element, so that no power overflows; by a power of two, so that nothing is rounded. */
FOR_ALL_PROCESSORS
void power_mean(int64_t receivers, const int64_t *first, const int64_t *sender,
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
            for (int part = 0; part < LENGTH; part += 4 * EIGHT) {
                Eight s[4] = {0}; /* these sums stay in registers */
                for (int64_t e = first[i]; e < first[i + 1]; e++) {
                    const Eight *z = (const Eight *)(scratch + sender[e] * LENGTH + part);
                    for (int k = 0; k < 4; k++) s[k] += weight[e] * z[k];
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

/* Compute sum_j a_ij·x_j for receivers `begin` to `end`; add it to the output if `add`. Rows can be
   anywhere in memory: the next one is prefetched while this one is added. */
FOR_ALL_PROCESSORS
void weighted_sums(int64_t begin, int64_t end, const int64_t *first, const int64_t *sender,
                   const float *weight, const float *x, int64_t columns, int add, float *out) {
    for (int64_t i = begin; i < end; i++)
        for (int64_t c = 0; c < columns; c += AT_ONCE) {
            int64_t elements = columns - c < AT_ONCE ? columns - c : AT_ONCE;
            float *restrict to = out + i * columns + c, sum[AT_ONCE];
            if (add)
                memcpy(sum, to, (size_t)elements * sizeof(float));
            else
                memset(sum, 0, (size_t)elements * sizeof(float));
            for (int64_t e = first[i]; e < first[i + 1]; e++) {
                const float *from = x + sender[e] * columns + c;
                const float *next = x + sender[e + (e + 1 < first[end])] * columns + c;
                float by = weight[e];
                int64_t k = 0;
                for (; k + LENGTH <= elements; k += LENGTH) {
                    prefetch(next + k, LENGTH * sizeof(float));
                    for (int j = 0; j < LENGTH; j++) sum[k + j] += by * from[k + j];
                }
                prefetch(next + k, (size_t)(elements - k) * sizeof(float));
                for (; k + SIXTEEN <= elements; k += SIXTEEN)
                    for (int j = 0; j < SIXTEEN; j++) sum[k + j] += by * from[k + j];
                for (; k < elements; k++) sum[k] += by * from[k];
            }
            memcpy(to, sum, (size_t)elements * sizeof(float));
        }
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

/* Compute z^[1/p] of float32 duals. 0, infinity and NaN are kept. */
FOR_ALL_PROCESSORS
void roots(int64_t elements, const float *z, int64_t p, float *out) {
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

/* Compute w+ = s·((w/s)^[p] − rate·p·d/s)^[1/p] with s = max(|w|, floor), and w itself where d = 0.
   `safe`: w − rate·d where w+ would have another sign than w. In float32, since the root divides
   its error by p; in float64 where float32 cannot hold the dual. */
FOR_ALL_PROCESSORS
void matched_step(int64_t elements, const float *w, const float *d, double rate, int64_t p,
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
void gather(int64_t rows, int64_t bytes, const char *from, const int64_t *index, char *to) {
    for (int64_t i = 0; i < rows; i++) {
        prefetch(from + index[i + 2 < rows ? i + 2 : i] * bytes, (size_t)bytes);
        memcpy(to + i * bytes, from + index[i] * bytes, (size_t)bytes);
    }
}

/* Samples can be stored as levels: element k is zero + step·level[k], computed by one instruction
   that rounds once. */
INLINE void read_levels(int64_t elements, const uint8_t *level, float step, float zero, float *to) {
    for (int64_t k = 0; k < elements; k++) to[k] = step * (float)level[k] + zero;
}

/* Find the levels of x. Return how many elements differ from what is read back from their
   levels. */
FOR_ALL_PROCESSORS
int64_t find_levels(int64_t elements, const float *x, float step, float zero, uint8_t *level) {
    int64_t wrong = 0;
    const float one_over_step = 1 / step;
    for (int64_t k = 0; k < elements; k++) {
        float at = (x[k] - zero) * one_over_step + 0.5f;
        level[k] = (uint8_t)(int32_t)(at < 0 ? 0 : at < 255 ? at : 255); /* 255 for NaN */
        wrong += step * (float)level[k] + zero != x[k];
    }
    return wrong;
}

/* As `gather`, from samples that are stored as levels. */
FOR_ALL_PROCESSORS
void gather_levels(int64_t rows, int64_t elements, const uint8_t *level, float step, float zero,
                   const int64_t *index, float *to) {
    for (int64_t i = 0; i < rows; i++) {
        prefetch(level + index[i + 2 < rows ? i + 2 : i] * elements, (size_t)elements);
        read_levels(elements, level + index[i] * elements, step, zero, to + i * elements);
    }
}

/* Softmax regression: SAMPLES samples at a time are multiplied by the weights of two classes. */
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

/* Copy a row to every `apart`-th group of SIXTEEN elements from `to` on; `collect` copies it back.
   Elements beyond the row are unchanged. */
INLINE void spread(int64_t elements, const float *from, float *to, int64_t apart) {
    int64_t k = 0;
    for (; k + SIXTEEN <= elements; k += SIXTEEN)
        memcpy(to + k * apart, from + k, SIXTEEN * sizeof(float));
    memcpy(to + k * apart, from + k, (size_t)(elements - k) * sizeof(float));
}

INLINE void collect(int64_t elements, const float *from, float *to, int64_t apart) {
    int64_t k = 0;
    for (; k + SIXTEEN <= elements; k += SIXTEEN)
        memcpy(to + k, from + k * apart, SIXTEEN * sizeof(float));
    memcpy(to + k, from + k * apart, (size_t)(elements - k) * sizeof(float));
}

INLINE void spread_levels(int64_t elements, const uint8_t *level, float step, float zero, float *to,
                          int64_t apart) {
    int64_t k = 0;
    for (; k + SIXTEEN <= elements; k += SIXTEEN)
        read_levels(SIXTEEN, level + k, step, zero, to + k * apart);
    read_levels(elements - k, level + k, step, zero, to + k * apart);
}

/* Compute the gradient of the mean cross-entropy of softmax regression for some devices.

   index     sample numbers [devices, batch]: rows of x [samples, features], or of its levels if
             given
   y         the classes of all samples
   w, out    [devices, classes, features + 1], the bias last: a 1 is appended to each sample
   scratch   buffer of (2·(classes + 1) + SAMPLES)·width + SAMPLES·(classes + 1) elements, aligned
             to 64 bytes, where width is features + 1 rounded up to a multiple of 16

   Batches are never written to memory: the current samples stay in the cache until both products
   have used them, while the next ones are prefetched. SIXTEEN elements of each sample, and of both
   classes, are adjacent, so that the compiler knows all distances within the loops. */
FOR_ALL_PROCESSORS
void softmax_gradient(int64_t devices, int64_t batch, int64_t features, int64_t classes,
                      const float *x, const uint8_t *level, float step, float zero,
                      const int64_t *y, const int64_t *index, const float *w, float *out,
                      float *scratch) {
    const int64_t row = features + 1;
    const int64_t width = (row + SIXTEEN - 1) / SIXTEEN * SIXTEEN;
    const int64_t vectors = width / SIXTEEN;
    const int64_t even = (classes + 1) / 2 * 2;
    const int64_t last = features / SIXTEEN * SIXTEEN; /* start of the vector with the 1 */
    const size_t size = (size_t)features * (level ? 1 : sizeof(float));
    float *weight = scratch;
    float *gradient = weight + even * width;
    float *sample = gradient + even * width;
    float *slope = sample + SAMPLES * width;
    for (int64_t i = 0; i < devices;
         i++, index += batch, w += classes * row, out += classes * row) {
        memset(scratch, 0, (size_t)(2 * even + SAMPLES) * (size_t)width * sizeof(float));
        for (int64_t c = 0; c < classes; c++)
            spread(row, w + c * row, weight + c / 2 * 2 * width + c % 2 * SIXTEEN, 2);
        for (int64_t b = 0; b < batch; b += SAMPLES) {
            for (int64_t s = 0; s < SAMPLES; s++) {
                float *to = sample + s * SIXTEEN;
                int present = b + s < batch; /* padding samples are 0 and add nothing */
                if (!present)
                    for (int64_t v = 0; v < vectors; v++)
                        memset(to + v * SAMPLES * SIXTEEN, 0, SIXTEEN * sizeof(float));
                else if (level)
                    spread_levels(features, level + index[b + s] * features, step, zero, to,
                                  SAMPLES);
                else
                    spread(features, x + index[b + s] * features, to, SAMPLES);
                to[last * SAMPLES + features - last] = (float)present;
            }
            const int64_t *next = index + (b + SAMPLES < batch ? b + SAMPLES : batch);
            const int64_t *end = index + batch * (devices - i);
            for (int64_t c = 0; c < even; c += 2) {
                /* Prefetch a few samples at a time, so that nothing stalls. */
                for (int64_t s = c / 2; s < SAMPLES && next + s < end; s += even / 2) {
                    const void *from =
                        level ? (const void *)(level + next[s] * features) : x + next[s] * features;
                    prefetch(from, size);
                }
                const Sixteen *by = (const Sixteen *)(weight + c * width);
                const Sixteen *at = (const Sixteen *)sample;
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
                    largest[s] =
                        slope[c * SAMPLES + s] > largest[s] ? slope[c * SAMPLES + s] : largest[s];
            for (int64_t c = 0; c < classes; c++)
                for (int s = 0; s < SAMPLES; s++) {
                    /* Shares of at least e^-70: denormal ones are slow. NaN is kept. */
                    float below = slope[c * SAMPLES + s] - largest[s];
                    float share = exponential(below < -70 ? -70 : below);
                    slope[c * SAMPLES + s] = share;
                    sum[s] += share;
                }
            for (int s = 0; s < SAMPLES; s++) sum[s] = 1 / (sum[s] * (float)batch);
            for (int64_t c = 0; c < even; c++)
                for (int s = 0; s < SAMPLES; s++)
                    slope[c * SAMPLES + s] = c < classes ? slope[c * SAMPLES + s] * sum[s] : 0;
            for (int64_t s = 0; s < SAMPLES && b + s < batch; s++)
                slope[y[index[b + s]] * SAMPLES + s] -= 1 / (float)batch;
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
        for (int64_t c = 0; c < classes; c++)
            collect(row, gradient + c / 2 * 2 * width + c % 2 * SIXTEEN, out + c * row, 2);
    }
}
