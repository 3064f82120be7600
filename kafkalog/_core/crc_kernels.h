/* What the files of CRC kernels share: the table of kernels and what the entry points do with it,
 * what the compiler is told of each platform, the folding of 64-byte words.
 *
 * A file of kernels defines POLYNOMIAL (bit-reflected), includes this header once, and defines
 * `add_hardware_kernels` where the header defined KERNELS_X86 or KERNELS_ARMV8; elsewhere the
 * header does. All of it is static: each file has a choice, tables and powers of its own.
 */

#ifndef KAFKALOG_CRC_KERNELS_H
#define KAFKALOG_CRC_KERNELS_H

#include "crc_arithmetic.h"

#include <string.h>

/* Takes and gives the raw register: only the entry points invert it. */
typedef uint32_t (*kernel_function)(uint32_t crc, const uint8_t *data, size_t size);

typedef struct {
    const char *name;
    kernel_function function;
} kernel_entry;

static kernel_entry kernels[4]; /* usable ones, fastest first; written by setup only */
static uint32_t slices[CRC_SLICES][256];

/* Write the kernels that this CPU can run, fastest first, and return how many; three at most. */
static int add_hardware_kernels(kernel_entry *entries);

static inline uint32_t power_of_x(uint64_t exponent)
{
    return crc_power_of_x(POLYNOMIAL, exponent);
}

/* ---- portable ---- */

static uint32_t crc_portable(uint32_t crc, const uint8_t *data, size_t size)
{
    return crc_sliced(slices, crc, data, size);
}

#if defined(__x86_64__) && defined(__GNUC__)
#define KERNELS_X86
#elif defined(__aarch64__) && defined(__GNUC__)
#define KERNELS_ARMV8
#endif

#if defined(KERNELS_X86) || defined(KERNELS_ARMV8)

#define INLINE static inline __attribute__((always_inline))

INLINE uint64_t load_word(const uint8_t *data)
{
    uint64_t word;
    memcpy(&word, data, sizeof word);
    return word;
}

#endif

/* ---- x86-64 ---- */

#if defined(KERNELS_X86)

#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f,avx512vl,vpclmulqdq,pclmul")))

/* Bytes are asked for a page ahead of their folding. The CPU's own prefetching ends with a page and
 * has to begin anew, and folds that wait for their bytes fill its queues, so that it does not see
 * how many loads follow: from memory this takes an eighth of the time away, from batches here and
 * there a fifth. Never beyond the end, for who sums up one batch would pay for a page of the next;
 * but where the next is summed up as well, which takes 3 to 4 % more from batches of 16 KiB. */
#define AHEAD 4096
#define LINE 64

INLINE void prefetch_next_lines(const uint8_t *data, size_t size, size_t block)
{
    if (size >= AHEAD + block)
        for (size_t done = 0; done < block; done += LINE)
            __builtin_prefetch(data + AHEAD + done, 0, 3);
}

/* What moves a 128-bit word by D bits: x^(D + 31) for its low (first) half, x^(D - 33) for its high
 * half. A product of bit-reflected words lacks one factor x: that is the odd exponents. */
typedef struct {
    uint64_t low;
    uint64_t high;
} fold_pair;

static struct {
    fold_pair by_16, by_32, by_48, by_64, by_128, by_256, by_512; /* bytes */
} folds;

static fold_pair fold_by(uint64_t size_bytes)
{
    fold_pair pair = {power_of_x(8 * size_bytes + 31), power_of_x(8 * size_bytes - 33)};
    return pair;
}

static void setup_folds(void)
{
    folds.by_16 = fold_by(16);
    folds.by_32 = fold_by(32);
    folds.by_48 = fold_by(48);
    folds.by_64 = fold_by(64);
    folds.by_128 = fold_by(128);
    folds.by_256 = fold_by(256);
    folds.by_512 = fold_by(512);
}

static int has_avx512(void)
{
    return __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512vl");
}

AVX512 INLINE __m512i powers_64(fold_pair pair)
{
    return _mm512_set4_epi64((int64_t)pair.high, (int64_t)pair.low, (int64_t)pair.high,
                             (int64_t)pair.low);
}

AVX512 INLINE __m512i fold_64(__m512i word, __m512i powers, __m512i next)
{
    return _mm512_ternarylogic_epi64(next, _mm512_clmulepi64_epi128(word, powers, 0x00),
                                     _mm512_clmulepi64_epi128(word, powers, 0x11), 0x96);
}

/* 64 bytes as 16: each 16 are moved to the last 16 by their own distance. */
AVX512 INLINE __m128i narrow_64(__m512i word)
{
    const __m512i powers = _mm512_set_epi64(
        0, 0, (int64_t)folds.by_16.high, (int64_t)folds.by_16.low,
        (int64_t)folds.by_32.high, (int64_t)folds.by_32.low,
        (int64_t)folds.by_48.high, (int64_t)folds.by_48.low);
    const __m512i moved = _mm512_xor_si512(_mm512_clmulepi64_epi128(word, powers, 0x00),
                                           _mm512_clmulepi64_epi128(word, powers, 0x11));
    const __m256i half = _mm256_xor_si256(_mm512_castsi512_si256(moved),
                                          _mm512_extracti64x4_epi64(moved, 1));
    const __m128i last = _mm512_extracti32x4_epi32(word, 3);
    return _mm_xor_si128(last, _mm_xor_si128(_mm256_castsi256_si128(half),
                                             _mm256_extracti128_si256(half, 1)));
}

/* ---- ARMv8 ---- */

#elif defined(KERNELS_ARMV8)

#if defined(__linux__)
#include <sys/auxv.h>
#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif
#endif

#if defined(__clang__)
#define ARMV8 __attribute__((target("crc")))
#else
#define ARMV8 __attribute__((target("+crc")))
#endif

#include <arm_acle.h>

static int has_armv8_crc(void)
{
#if defined(__linux__)
    return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
#elif defined(__APPLE__) /* every 64-bit Apple CPU has the instruction */
    return 1;
#else
    return 0;
#endif
}

#else

static int add_hardware_kernels(kernel_entry *entries)
{
    (void)entries;
    return 0;
}

#endif

/* ---- what the entry points do ---- */

static void setup_kernels(void)
{
    crc_fill_slices(POLYNOMIAL, slices);
    int count = add_hardware_kernels(kernels);
    kernels[count] = (kernel_entry){"portable", crc_portable};
}

static const char *kernel_name(int number)
{
    const int count = (int)(sizeof kernels / sizeof kernels[0]);
    return number >= 0 && number < count ? kernels[number].name : NULL;
}

static inline uint32_t run_kernel(int number, uint32_t start, const uint8_t *data, size_t size)
{
    return ~kernels[number].function(~start, data, size);
}

#endif
