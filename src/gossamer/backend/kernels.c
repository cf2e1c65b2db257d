/* Kernels for float32 models, each in one pass over memory: the operations that take most of a
   round's time. plain.py and mixing.py compute the same in torch; the kernels are tested against
   them.

   Elements are processed LENGTH at a time, padded with zeros. A loop of fixed length executes the
   same instructions for every element, so that a result depends neither on its position in memory
   nor on the number of devices that a process holds.

   Every kernel is compiled for each instruction set of the processor family, with the suffix
   _avx512, _avx2 or _neon. The loader calls `has_…` before it uses any of them. The timelines of
   the events engine (kernels_events.h) are compiled once, for any processor. */

#include "kernels_common.h"
#include "kernels_events.h"

/* The loader refuses kernels whose arguments are those of another version: as in loader.py. */
int kernels_layout(void) { return 2; }

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)

int has_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

int has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

/* 32 registers of 16 lanes: 8 samples and two classes leave 13 registers free. */
#define KERNEL(type, name) __attribute__((target("arch=x86-64-v4"))) type name##_avx512
#define LANES 16
#define VECTOR Vector16
#define LOOSE Loose16
#define DOUBLES Double8
#define TOTAL total16
#define SAMPLES 8
#include "kernels_template.h"
#undef KERNEL
#undef LANES
#undef VECTOR
#undef LOOSE
#undef DOUBLES
#undef TOTAL
#undef SAMPLES

/* 16 registers of 8 lanes: 6 samples and two classes leave one free. */
#define KERNEL(type, name) __attribute__((target("arch=x86-64-v3"))) type name##_avx2
#define LANES 8
#define VECTOR Vector8
#define LOOSE Loose8
#define DOUBLES Double4
#define TOTAL total8
#define SAMPLES 6
#include "kernels_template.h"

#elif defined(__aarch64__)

int has_neon(void) { return 1; }

/* 32 registers of 4 lanes. */
#define KERNEL(type, name) type name##_neon
#define LANES 4
#define VECTOR Vector4
#define LOOSE Loose4
#define DOUBLES Double2
#define TOTAL total4
#define SAMPLES 8
#include "kernels_template.h"

#endif
