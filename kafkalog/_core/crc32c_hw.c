/* CRC-32C kernels and their choice at run time.
 *
 *   avx512    VPCLMULQDQ folding, eight 64-byte accumulators: bound by memory, not by arithmetic
 *   avx2      the same with 32-byte accumulators, for CPUs without AVX-512
 *   sse42     the crc32 instruction, three independent streams: it takes three cycles, starts one
 *             each cycle
 *   armv8     the crc32c instruction, three streams
 *   portable  eight table look-ups for eight bytes
 *
 * Arithmetic. Polynomials over GF(2) are kept bit-reflected: bit 31 of a 32-bit word is x^0, bit 63
 * of a 64-bit word likewise. A carry-less product of two reflected words comes out one bit low,
 * that is, multiplied by x; and a 32-bit remainder in the low half of a 64-bit word is multiplied
 * by x^32. Hence the exponents below: to move a word by D bits
 *
 *   before the crc32 instruction, which multiplies by x^32:   x^(D - 33)
 *   low (first) half of a 128-bit word:                       x^(D + 64 - 33)
 *   high half of a 128-bit word:                              x^(D - 33)
 *
 * All such constants are powers of x modulo the polynomial, computed by kafkalog_crc32c_setup.
 *
 * The functions below take and give the raw register; only the entry points invert it.
 * No kernel reads a byte outside [data, data + size). Nothing is allocated.
 */

#include "crc32c_hw.h"

#define POLYNOMIAL 0x82f63b78u

#include "crc_kernels.h"

/* As a kernel; `beyond` bytes behind the data will be summed up next, and may be asked for. */
typedef uint32_t (*run_function)(uint32_t crc, const uint8_t *data, size_t size, size_t beyond);

static run_function of_run; /* of the fastest kernel, NULL where it asks for nothing */

/* ---- x86-64 ---- */

#if defined(KERNELS_X86)

#define SSE42 __attribute__((target("sse4.2,pclmul")))
#define AVX2 __attribute__((target("avx2,vpclmulqdq,pclmul,sse4.2")))

/* Three streams of LONG bytes each, then of SHORT: long enough to hide the joining, short enough
 * that a batch of a few hundred bytes profits. */
#define LONG_STREAM 2048
#define SHORT_STREAM 128

/* Joins of the sse42 streams. */
static uint32_t long_once, long_twice, short_once, short_twice;

static void setup_x86(void)
{
    long_once = power_of_x(8 * LONG_STREAM - 33);
    long_twice = power_of_x(2 * 8 * LONG_STREAM - 33);
    short_once = power_of_x(8 * SHORT_STREAM - 33);
    short_twice = power_of_x(2 * 8 * SHORT_STREAM - 33);
    setup_folds();
}

/* One stream: for the bytes before and after the blocks. */
SSE42 static inline uint32_t crc_serial(uint32_t crc, const uint8_t *data, size_t size)
{
    uint64_t wide = crc;
    while (size >= 8) {
        wide = _mm_crc32_u64(wide, load_word(data));
        data += 8;
        size -= 8;
    }
    crc = (uint32_t)wide;
    if (size & 4) {
        uint32_t word;
        memcpy(&word, data, sizeof word);
        crc = _mm_crc32_u32(crc, word);
        data += 4;
    }
    if (size & 2) {
        uint16_t half;
        memcpy(&half, data, sizeof half);
        crc = _mm_crc32_u16(crc, half);
        data += 2;
    }
    if (size & 1)
        crc = _mm_crc32_u8(crc, *data);
    return crc;
}

/* The product of a register and a power of x, not yet reduced. */
SSE42 static inline uint64_t shifted(uint64_t crc, uint32_t power)
{
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128((int64_t)crc),
                                           _mm_cvtsi32_si128((int32_t)power), 0);
    return (uint64_t)_mm_cvtsi128_si64(product);
}

SSE42 static inline uint32_t crc_block(uint32_t crc, const uint8_t *data, size_t stream,
                                       uint32_t once, uint32_t twice)
{
    uint64_t first = crc, second = 0, third = 0;
    for (size_t done = 0; done < stream; done += 8) {
        first = _mm_crc32_u64(first, load_word(data + done));
        second = _mm_crc32_u64(second, load_word(data + stream + done));
        third = _mm_crc32_u64(third, load_word(data + 2 * stream + done));
    }
    return (uint32_t)(third ^ _mm_crc32_u64(0, shifted(first, twice) ^ shifted(second, once)));
}

SSE42 static uint32_t crc_sse42(uint32_t crc, const uint8_t *data, size_t size)
{
    while (size >= 3 * LONG_STREAM) {
        crc = crc_block(crc, data, LONG_STREAM, long_once, long_twice);
        data += 3 * LONG_STREAM;
        size -= 3 * LONG_STREAM;
    }
    while (size >= 3 * SHORT_STREAM) {
        crc = crc_block(crc, data, SHORT_STREAM, short_once, short_twice);
        data += 3 * SHORT_STREAM;
        size -= 3 * SHORT_STREAM;
    }
    return crc_serial(crc, data, size);
}

/* The remainder of a 128-bit word that already holds the register. */
SSE42 static inline uint32_t reduce_16(__m128i word)
{
    uint64_t crc = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(word));
    return (uint32_t)_mm_crc32_u64(crc, (uint64_t)_mm_extract_epi64(word, 1));
}

/* -- 32-byte accumulators -- */

AVX2 INLINE __m256i load_32(const uint8_t *data)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)data);
}

AVX2 INLINE __m256i twice_32(fold_pair pair)
{
    return _mm256_set_epi64x((int64_t)pair.high, (int64_t)pair.low, (int64_t)pair.high,
                             (int64_t)pair.low);
}

AVX2 INLINE __m256i fold_32(__m256i word, __m256i powers, __m256i next)
{
    return _mm256_xor_si256(next, _mm256_xor_si256(_mm256_clmulepi64_epi128(word, powers, 0x00),
                                                   _mm256_clmulepi64_epi128(word, powers, 0x11)));
}

AVX2 static uint32_t crc_avx2_of_run(uint32_t crc, const uint8_t *data, size_t size,
                                     size_t beyond)
{
    if (size < 256)
        return crc_serial(crc, data, size);
    const __m256i by_256 = twice_32(folds.by_256), by_128 = twice_32(folds.by_128);
    const __m256i by_64 = twice_32(folds.by_64), by_32 = twice_32(folds.by_32);
    __m256i words[8];
    prefetch_next_lines(data, size + beyond, 256);
    for (int i = 0; i < 8; i++)
        words[i] = load_32(data + 32 * i);
    words[0] = _mm256_xor_si256(words[0], _mm256_set_epi64x(0, 0, 0, (int64_t)crc));
    data += 256;
    size -= 256;
    while (size >= 256) {
        prefetch_next_lines(data, size + beyond, 256);
        for (int i = 0; i < 8; i++)
            words[i] = fold_32(words[i], by_256, load_32(data + 32 * i));
        data += 256;
        size -= 256;
    }
    prefetch_next_lines(data, size + beyond, 256);
    for (int i = 0; i < 4; i++)
        words[i] = fold_32(words[i], by_128, words[i + 4]);
    if (size >= 128) {
        for (int i = 0; i < 4; i++)
            words[i] = fold_32(words[i], by_128, load_32(data + 32 * i));
        data += 128;
        size -= 128;
    }
    words[0] = fold_32(words[0], by_64, words[2]);
    words[1] = fold_32(words[1], by_64, words[3]);
    words[0] = fold_32(words[0], by_32, words[1]);
    while (size >= 32) {
        words[0] = fold_32(words[0], by_32, load_32(data));
        data += 32;
        size -= 32;
    }
    __m128i first = _mm256_castsi256_si128(words[0]);
    __m128i powers = _mm_set_epi64x((int64_t)folds.by_16.high, (int64_t)folds.by_16.low);
    first = _mm_xor_si128(_mm_clmulepi64_si128(first, powers, 0x00),
                          _mm_clmulepi64_si128(first, powers, 0x11));
    crc = reduce_16(_mm_xor_si128(first, _mm256_extracti128_si256(words[0], 1)));
    return crc_serial(crc, data, size);
}

AVX2 static uint32_t crc_avx2(uint32_t crc, const uint8_t *data, size_t size)
{
    return crc_avx2_of_run(crc, data, size, 0);
}

/* -- 64-byte accumulators -- */

AVX512 static uint32_t crc_avx512_of_run(uint32_t crc, const uint8_t *data, size_t size,
                                         size_t beyond)
{
    if (size < 256)
        return crc_serial(crc, data, size);
    const __m512i by_256 = powers_64(folds.by_256), by_128 = powers_64(folds.by_128);
    const __m512i by_64 = powers_64(folds.by_64);
    __m512i words[8];
    prefetch_next_lines(data, size + beyond, 512);
    for (int i = 0; i < 4; i++)
        words[i] = _mm512_loadu_si512(data + 64 * i);
    words[0] = _mm512_xor_si512(words[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int32_t)crc)));
    data += 256;
    size -= 256;
    if (size >= 256) {
        const __m512i by_512 = powers_64(folds.by_512);
        for (int i = 0; i < 4; i++)
            words[4 + i] = _mm512_loadu_si512(data + 64 * i);
        data += 256;
        size -= 256;
        while (size >= 512) {
            prefetch_next_lines(data, size + beyond, 512);
            for (int i = 0; i < 8; i++)
                words[i] = fold_64(words[i], by_512, _mm512_loadu_si512(data + 64 * i));
            data += 512;
            size -= 512;
        }
        prefetch_next_lines(data, size + beyond, 512);
        for (int i = 0; i < 4; i++)
            words[i] = fold_64(words[i], by_256, words[4 + i]);
        if (size >= 256) {
            for (int i = 0; i < 4; i++)
                words[i] = fold_64(words[i], by_256, _mm512_loadu_si512(data + 64 * i));
            data += 256;
            size -= 256;
        }
    }
    words[0] = fold_64(words[0], by_128, words[2]);
    words[1] = fold_64(words[1], by_128, words[3]);
    words[0] = fold_64(words[0], by_64, words[1]);
    while (size >= 64) {
        words[0] = fold_64(words[0], by_64, _mm512_loadu_si512(data));
        data += 64;
        size -= 64;
    }
    return crc_serial(reduce_16(narrow_64(words[0])), data, size);
}

AVX512 static uint32_t crc_avx512(uint32_t crc, const uint8_t *data, size_t size)
{
    return crc_avx512_of_run(crc, data, size, 0);
}

static int add_hardware_kernels(kernel_entry *entries)
{
    int count = 0;
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("pclmul"))
        return 0;
    setup_x86();
    if (has_avx512()) {
        entries[count++] = (kernel_entry){"avx512", crc_avx512};
        of_run = crc_avx512_of_run;
    }
    if (__builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx2")) {
        entries[count++] = (kernel_entry){"avx2", crc_avx2};
        if (of_run == NULL)
            of_run = crc_avx2_of_run;
    }
    entries[count++] = (kernel_entry){"sse42", crc_sse42};
    return count;
}

/* ---- ARMv8 ---- */

#elif defined(KERNELS_ARMV8)

/* Joined by `crc_multiply`, 32 steps each: blocks are long so that this stays below a tenth. */
#define STREAM 4096

static uint32_t stream_once, stream_twice;

ARMV8 static uint32_t crc_armv8(uint32_t crc, const uint8_t *data, size_t size)
{
    while (size >= 3 * STREAM) {
        uint32_t second = 0, third = 0;
        for (size_t done = 0; done < STREAM; done += 8) {
            crc = __crc32cd(crc, load_word(data + done));
            second = __crc32cd(second, load_word(data + STREAM + done));
            third = __crc32cd(third, load_word(data + 2 * STREAM + done));
        }
        crc = crc_multiply(POLYNOMIAL, crc, stream_twice) ^
              crc_multiply(POLYNOMIAL, second, stream_once) ^ third;
        data += 3 * STREAM;
        size -= 3 * STREAM;
    }
    while (size >= 8) {
        crc = __crc32cd(crc, load_word(data));
        data += 8;
        size -= 8;
    }
    while (size-- > 0)
        crc = __crc32cb(crc, *data++);
    return crc;
}

static int add_hardware_kernels(kernel_entry *entries)
{
    if (!has_armv8_crc())
        return 0;
    stream_once = power_of_x(8 * STREAM);
    stream_twice = power_of_x(2 * 8 * STREAM);
    entries[0] = (kernel_entry){"armv8", crc_armv8};
    return 1;
}

#endif

/* ---- entry points ---- */

void kafkalog_crc32c_setup(void)
{
    setup_kernels();
}

uint32_t kafkalog_crc32c(uint32_t start, const uint8_t *data, size_t size)
{
    return run_kernel(0, start, data, size);
}

uint32_t kafkalog_crc32c_of_run(uint32_t start, const uint8_t *data, size_t size, size_t beyond)
{
    return of_run == NULL ? run_kernel(0, start, data, size) : ~of_run(~start, data, size, beyond);
}

const char *kafkalog_crc32c_name(int number)
{
    return kernel_name(number);
}

uint32_t kafkalog_crc32c_with(int number, uint32_t start, const uint8_t *data, size_t size)
{
    return run_kernel(number, start, data, size);
}
