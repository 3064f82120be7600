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
 * powers that move a 128-bit word are the same ones.
 *
 * The functions below take and give the raw register; only the entry points invert it.
 * No kernel reads a byte outside [data, data + size). Nothing is allocated.
 */

#include "crc32_hw.h"

#define POLYNOMIAL 0xedb88320u

#include "crc_kernels.h"

/* ---- x86-64 ---- */

#if defined(KERNELS_X86)

#define PCLMUL __attribute__((target("pclmul,sse4.1")))

/* Reduction by Barrett: floor(x^64 / P) and P itself, 33 bits each, the highest power in bit 0. */
#define QUOTIENT 0x1f7011641
#define POLYNOMIAL_33 (((uint64_t)POLYNOMIAL << 1) | 1)

static uint64_t power_95, power_63;

/* A window of 16 of these bytes, used as a shuffle, moves a word by so many bytes; 0x80 is zero. */
static const uint8_t moves[48] = {
    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
    0,    1,    2,    3,    4,    5,    6,    7,    8,    9,    10,   11,   12,   13,   14,   15,
    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
};

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
    const __m128i powers = _mm_set_epi64x((int64_t)power_63, (int64_t)power_95);
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
    const __m128i by_16 = powers_16(folds.by_16);
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
    const __m128i by_64 = powers_16(folds.by_64);
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
    first = fold_16(first, powers_16(folds.by_32), third);
    second = fold_16(second, powers_16(folds.by_32), fourth);
    return finish_16(fold_16(first, powers_16(folds.by_16), second), data, size);
}

/* -- 64-byte accumulators -- */

AVX512 static uint32_t crc_avx512(uint32_t crc, const uint8_t *data, size_t size)
{
    if (size < 512)
        return crc_pclmul(crc, data, size);
    const __m512i by_256 = powers_64(folds.by_256), by_128 = powers_64(folds.by_128);
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
    words[0] = fold_64(words[0], powers_64(folds.by_64), words[1]);
    return finish_16(narrow_64(words[0]), data, size);
}

static int add_hardware_kernels(kernel_entry *entries)
{
    int count = 0;
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("sse4.1") || !__builtin_cpu_supports("pclmul"))
        return 0;
    setup_folds();
    power_95 = power_of_x(95);
    power_63 = power_of_x(63);
    if (has_avx512())
        entries[count++] = (kernel_entry){"avx512", crc_avx512};
    entries[count++] = (kernel_entry){"pclmul", crc_pclmul};
    return count;
}

/* ---- ARMv8 ---- */

#elif defined(KERNELS_ARMV8)

ARMV8 static uint32_t crc_armv8(uint32_t crc, const uint8_t *data, size_t size)
{
    while (size >= 8) {
        crc = __crc32d(crc, load_word(data));
        data += 8;
        size -= 8;
    }
    while (size-- > 0)
        crc = __crc32b(crc, *data++);
    return crc;
}

static int add_hardware_kernels(kernel_entry *entries)
{
    if (!has_armv8_crc())
        return 0;
    entries[0] = (kernel_entry){"armv8", crc_armv8};
    return 1;
}

#endif

/* ---- entry points ---- */

void kafkalog_crc32_setup(void)
{
    setup_kernels();
}

uint32_t kafkalog_crc32(uint32_t start, const uint8_t *data, size_t size)
{
    return run_kernel(0, start, data, size);
}

const char *kafkalog_crc32_name(int number)
{
    return kernel_name(number);
}

uint32_t kafkalog_crc32_with(int number, uint32_t start, const uint8_t *data, size_t size)
{
    return run_kernel(number, start, data, size);
}
