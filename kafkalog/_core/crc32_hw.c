/* CRC-32 kernels (the polynomial of zlib, gzip and Ethernet) and their choice at run time.
 *
 *   avx512    VPCLMULQDQ folding, four 64-byte accumulators
 *   pclmul    carry-less folding, four 16-byte accumulators
 *   armv8     the crc32 instruction
 *   portable  eight table look-ups for eight bytes
 *
 * Old messages are mostly small and of any size, so the end matters as much as the middle: the last
 * 1 to 15 bytes are folded like a block, without a loop whose length the CPU would have to guess,
 * and the last accumulator is reduced by multiplications, too.
 *
 * Arithmetic as told in crc32c_hw.c; there is no instruction for this polynomial on x86-64, but the
 * powers that move a 128-bit word by D bits are the same ones: x^(D + 31) for its low (first) half
 * and x^(D - 33) for its high half. A multiplication of bit-reflected words gives a product that
 * lacks one factor x: that is the odd exponents.
 *
 * The functions below take and give the raw register; only the entry points invert it.
 * No kernel reads a byte outside [data, data + size). Nothing is allocated.
 */

#include "crc32_hw.h"

#include "crc_arithmetic.h"

#define POLYNOMIAL 0xedb88320u

typedef uint32_t (*kernel_function)(uint32_t crc, const uint8_t *data, size_t size);

typedef struct {
    const char *name;
    kernel_function function;
} kernel_entry;

static kernel_entry kernels[3]; /* usable ones, fastest first; written by setup only */
static uint32_t slices[CRC_SLICES][256];

/* ---- portable ---- */

static uint32_t crc_portable(uint32_t crc, const uint8_t *data, size_t size)
{
    return crc_sliced(slices, crc, data, size);
}

/* ---- x86-64 ---- */

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

#define PCLMUL __attribute__((target("pclmul,sse4.1")))
#define AVX512 __attribute__((target("avx512f,avx512vl,vpclmulqdq,pclmul,sse4.1")))
#define INLINE static inline __attribute__((always_inline))

typedef struct {
    uint64_t low;
    uint64_t high;
} fold_pair;

/* Reduction by Barrett: floor(x^64 / P) and P itself, 33 bits each, the highest power in bit 0. */
#define QUOTIENT 0x1f7011641
#define POLYNOMIAL_33 (((uint64_t)POLYNOMIAL << 1) | 1)

static struct {
    fold_pair by_16, by_32, by_48, by_64, by_128, by_256;
    uint64_t power_95, power_63;
} constants;

/* A window of 16 of these bytes, used as a shuffle, moves a word by so many bytes; 0x80 is zero. */
static const uint8_t moves[48] = {
    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
    0,    1,    2,    3,    4,    5,    6,    7,    8,    9,    10,   11,   12,   13,   14,   15,
    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
};

static fold_pair fold_by(uint64_t size_bytes)
{
    fold_pair pair = {crc_power_of_x(POLYNOMIAL, 8 * size_bytes + 31),
                      crc_power_of_x(POLYNOMIAL, 8 * size_bytes - 33)};
    return pair;
}

static void setup_x86(void)
{
    constants.by_16 = fold_by(16);
    constants.by_32 = fold_by(32);
    constants.by_48 = fold_by(48);
    constants.by_64 = fold_by(64);
    constants.by_128 = fold_by(128);
    constants.by_256 = fold_by(256);
    constants.power_95 = crc_power_of_x(POLYNOMIAL, 95);
    constants.power_63 = crc_power_of_x(POLYNOMIAL, 63);
}

/* -- 16-byte accumulators -- */

PCLMUL INLINE __m128i load_16(const uint8_t *data)
{
    return _mm_loadu_si128((const __m128i *)(const void *)data);
}

PCLMUL INLINE __m128i powers_16(fold_pair pair)
{
    return _mm_set_epi64x((int64_t)pair.high, (int64_t)pair.low);
}

PCLMUL INLINE __m128i fold_16(__m128i word, __m128i powers, __m128i next)
{
    return _mm_xor_si128(next, _mm_xor_si128(_mm_clmulepi64_si128(word, powers, 0x00),
                                             _mm_clmulepi64_si128(word, powers, 0x11)));
}

/* The register that an accumulator leaves: 128 bits become 96, 64, and the rest of a division. */
PCLMUL INLINE uint32_t reduce_16(__m128i word)
{
    const __m128i low_32 = _mm_cvtsi64_si128(0xffffffff);
    const __m128i powers =
        _mm_set_epi64x((int64_t)constants.power_63, (int64_t)constants.power_95);
    const __m128i division = _mm_set_epi64x((int64_t)POLYNOMIAL_33, (int64_t)QUOTIENT);
    const __m128i bits_96 =
        _mm_xor_si128(_mm_srli_si128(word, 8), _mm_clmulepi64_si128(word, powers, 0x00));
    const __m128i bits_64 = _mm_xor_si128(
        _mm_srli_si128(bits_96, 4),
        _mm_clmulepi64_si128(_mm_and_si128(bits_96, low_32), powers, 0x10));
    const __m128i quotient = _mm_and_si128(
        _mm_clmulepi64_si128(_mm_and_si128(bits_64, low_32), division, 0x00), low_32);
    const __m128i rest = _mm_xor_si128(bits_64, _mm_clmulepi64_si128(quotient, division, 0x10));
    return (uint32_t)_mm_extract_epi32(rest, 1);
}

/* Go on from an accumulator that holds the register; at least 16 bytes lie before `data`. */
PCLMUL INLINE uint32_t finish_16(__m128i word, const uint8_t *data, size_t size)
{
    const __m128i by_16 = powers_16(constants.by_16);
    while (size >= 16) {
        word = fold_16(word, by_16, load_16(data));
        data += 16;
        size -= 16;
    }
    if (size != 0) {
        /* As many bytes move out of the word, to be folded, as come into it behind the others. */
        const __m128i stay = load_16(moves + 16 + size);
        const __m128i leave = load_16(moves + size);
        const __m128i last = _mm_blendv_epi8(_mm_shuffle_epi8(word, stay),
                                             load_16(data + size - 16), stay);
        word = fold_16(_mm_shuffle_epi8(word, leave), by_16, last);
    }
    return reduce_16(word);
}

PCLMUL static uint32_t crc_pclmul(uint32_t crc, const uint8_t *data, size_t size)
{
    if (size < 16)
        return crc_sliced(slices, crc, data, size);
    __m128i first = _mm_xor_si128(load_16(data), _mm_cvtsi32_si128((int32_t)crc));
    if (size < 128)
        return finish_16(first, data + 16, size - 16);
    const __m128i by_64 = powers_16(constants.by_64);
    __m128i second = load_16(data + 16);
    __m128i third = load_16(data + 32);
    __m128i fourth = load_16(data + 48);
    data += 64;
    size -= 64;
    while (size >= 64) {
        first = fold_16(first, by_64, load_16(data));
        second = fold_16(second, by_64, load_16(data + 16));
        third = fold_16(third, by_64, load_16(data + 32));
        fourth = fold_16(fourth, by_64, load_16(data + 48));
        data += 64;
        size -= 64;
    }
    first = fold_16(first, powers_16(constants.by_32), third);
    second = fold_16(second, powers_16(constants.by_32), fourth);
    return finish_16(fold_16(first, powers_16(constants.by_16), second), data, size);
}

/* -- 64-byte accumulators -- */

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
        0, 0, (int64_t)constants.by_16.high, (int64_t)constants.by_16.low,
        (int64_t)constants.by_32.high, (int64_t)constants.by_32.low,
        (int64_t)constants.by_48.high, (int64_t)constants.by_48.low);
    const __m512i moved = _mm512_xor_si512(_mm512_clmulepi64_epi128(word, powers, 0x00),
                                           _mm512_clmulepi64_epi128(word, powers, 0x11));
    const __m256i half = _mm256_xor_si256(_mm512_castsi512_si256(moved),
                                          _mm512_extracti64x4_epi64(moved, 1));
    const __m128i last = _mm512_extracti32x4_epi32(word, 3);
    return _mm_xor_si128(last, _mm_xor_si128(_mm256_castsi256_si128(half),
                                             _mm256_extracti128_si256(half, 1)));
}

AVX512 static uint32_t crc_avx512(uint32_t crc, const uint8_t *data, size_t size)
{
    if (size < 512)
        return crc_pclmul(crc, data, size);
    const __m512i by_256 = powers_64(constants.by_256), by_128 = powers_64(constants.by_128);
    __m512i words[4];
    for (int i = 0; i < 4; i++)
        words[i] = _mm512_loadu_si512(data + 64 * i);
    words[0] = _mm512_xor_si512(words[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int32_t)crc)));
    data += 256;
    size -= 256;
    while (size >= 256) {
        for (int i = 0; i < 4; i++)
            words[i] = fold_64(words[i], by_256, _mm512_loadu_si512(data + 64 * i));
        data += 256;
        size -= 256;
    }
    words[0] = fold_64(words[0], by_128, words[2]);
    words[1] = fold_64(words[1], by_128, words[3]);
    words[0] = fold_64(words[0], powers_64(constants.by_64), words[1]);
    return finish_16(narrow_64(words[0]), data, size);
}

static int add_hardware_kernels(kernel_entry *entries)
{
    int count = 0;
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("sse4.1") || !__builtin_cpu_supports("pclmul"))
        return 0;
    setup_x86();
    if (__builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512vl"))
        entries[count++] = (kernel_entry){"avx512", crc_avx512};
    entries[count++] = (kernel_entry){"pclmul", crc_pclmul};
    return count;
}

/* ---- ARMv8 ---- */

#elif defined(__aarch64__) && defined(__GNUC__)

#include <string.h>

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

ARMV8 static uint32_t crc_armv8(uint32_t crc, const uint8_t *data, size_t size)
{
    while (size >= 8) {
        uint64_t word;
        memcpy(&word, data, sizeof word);
        crc = __crc32d(crc, word);
        data += 8;
        size -= 8;
    }
    while (size-- > 0)
        crc = __crc32b(crc, *data++);
    return crc;
}

static int add_hardware_kernels(kernel_entry *entries)
{
#if defined(__linux__)
    if (!(getauxval(AT_HWCAP) & HWCAP_CRC32))
        return 0;
#elif !defined(__APPLE__) /* every 64-bit Apple CPU has the instruction */
    return 0;
#endif
    entries[0] = (kernel_entry){"armv8", crc_armv8};
    return 1;
}

#else

static int add_hardware_kernels(kernel_entry *entries)
{
    (void)entries;
    return 0;
}

#endif

/* ---- entry points ---- */

void kafkalog_crc32_setup(void)
{
    crc_fill_slices(POLYNOMIAL, slices);
    int count = add_hardware_kernels(kernels);
    kernels[count] = (kernel_entry){"portable", crc_portable};
}

uint32_t kafkalog_crc32(uint32_t start, const uint8_t *data, size_t size)
{
    return ~kernels[0].function(~start, data, size);
}

const char *kafkalog_crc32_name(int number)
{
    const int count = (int)(sizeof kernels / sizeof kernels[0]);
    return number >= 0 && number < count ? kernels[number].name : NULL;
}

uint32_t kafkalog_crc32_with(int number, uint32_t start, const uint8_t *data, size_t size)
{
    return ~kernels[number].function(~start, data, size);
}
