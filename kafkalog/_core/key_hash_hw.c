/* MD5 of many keys side by side, and SipHash-2-4-128.
 *
 *   avx512    32 keys at once, two registers of 16 words: one hides the latency of the other
 *   avx2      16 keys at once, two registers of 8 words
 *   vector    16 keys at once, four registers of 4 words: what every 64-bit CPU has
 *   portable  one key at a time
 *
 * MD5 is a chain of 64 dependent steps a block, so a single key leaves most of a CPU idle; keys of
 * different records have nothing to do with each other and go in lanes. A block is laid out word by
 * word, each word of all lanes together. Keys that fit one block (55 bytes) fill the lanes as they
 * come; longer ones wait until there are enough of them, and the sum of a lane whose key has ended
 * is taken before the others go on.
 *
 * No kernel reads a byte outside the keys. Nothing is allocated.
 */

#include "key_hash_hw.h"

#include <string.h>

#define BLOCK_SIZE 64
#define BLOCK_WORDS 16
#define STATE_WORDS 4
#define LANES_MAX 32
#define SHORT_SIZE_MAX 55 /* with the mark behind the key and its length, one block */

typedef void (*compress_function)(uint32_t *state, const uint32_t *words);

typedef struct {
    const char *name;
    compress_function compress;
    size_t lanes;
} md5_kernel;

/* Keys that wait for their lanes to be filled. */
typedef struct {
    const kafkalog_key *keys[LANES_MAX];
    uint8_t *hashes[LANES_MAX];
    size_t count;
} lane_group;

static md5_kernel md5_kernels[4]; /* usable ones, fastest first; written by setup only */

static const uint32_t initial_state[STATE_WORDS] = {0x67452301u, 0xefcdab89u, 0x98badcfeu,
                                                    0x10325476u};

/* floor(2^32 * |sin(step + 1)|) */
static const uint32_t sines[64] = {
    0xd76aa478u, 0xe8c7b756u, 0x242070dbu, 0xc1bdceeeu, 0xf57c0fafu, 0x4787c62au,
    0xa8304613u, 0xfd469501u, 0x698098d8u, 0x8b44f7afu, 0xffff5bb1u, 0x895cd7beu,
    0x6b901122u, 0xfd987193u, 0xa679438eu, 0x49b40821u, 0xf61e2562u, 0xc040b340u,
    0x265e5a51u, 0xe9b6c7aau, 0xd62f105du, 0x02441453u, 0xd8a1e681u, 0xe7d3fbc8u,
    0x21e1cde6u, 0xc33707d6u, 0xf4d50d87u, 0x455a14edu, 0xa9e3e905u, 0xfcefa3f8u,
    0x676f02d9u, 0x8d2a4c8au, 0xfffa3942u, 0x8771f681u, 0x6d9d6122u, 0xfde5380cu,
    0xa4beea44u, 0x4bdecfa9u, 0xf6bb4b60u, 0xbebfbc70u, 0x289b7ec6u, 0xeaa127fau,
    0xd4ef3085u, 0x04881d05u, 0xd9d4d039u, 0xe6db99e5u, 0x1fa27cf8u, 0xc4ac5665u,
    0xf4292244u, 0x432aff97u, 0xab9423a7u, 0xfc93a039u, 0x655b59c3u, 0x8f0ccc92u,
    0xffeff47du, 0x85845dd1u, 0x6fa87e4fu, 0xfe2ce6e0u, 0xa3014314u, 0x4e0811a1u,
    0xf7537e82u, 0xbd3af235u, 0x2ad7d2bbu, 0xeb86d391u,
};

#define F(x, y, z) ((z) ^ ((x) & ((y) ^ (z))))
#define G(x, y, z) ((y) ^ ((z) & ((x) ^ (y))))
#define H(x, y, z) ((x) ^ (y) ^ (z))
#define I(x, y, z) ((y) ^ ((x) | ~(z)))

#define ROTATE(x, count) (((x) << (count)) | ((x) >> (32 - (count))))

/* One step for PARTS registers of lanes: `a` to `d` are arrays of PARTS registers. */
#define STEP(PARTS, function, a, b, c, d, word, step, count)                                       \
    for (int part = 0; part < PARTS; part++) {                                                     \
        a[part] += function(b[part], c[part], d[part]) + words[(word)*PARTS + part] + sines[step]; \
        a[part] = b[part] + ROTATE(a[part], count);                                                \
    }

#define ROUND(PARTS, function, factor, start, first, s0, s1, s2, s3)                               \
    for (int i = 0; i < 16; i += 4) {                                                              \
        STEP(PARTS, function, a, b, c, d, (factor * i + start) & 15, first + i, s0)                \
        STEP(PARTS, function, d, a, b, c, (factor * (i + 1) + start) & 15, first + i + 1, s1)      \
        STEP(PARTS, function, c, d, a, b, (factor * (i + 2) + start) & 15, first + i + 2, s2)      \
        STEP(PARTS, function, b, c, d, a, (factor * (i + 3) + start) & 15, first + i + 3, s3)      \
    }

/* A compression function over PARTS registers of type REGISTER, whose lanes are in memory as
 * state[word][lane] and words[word][lane]. */
#define COMPRESS(NAME, TARGET, REGISTER, PARTS)                                                    \
    TARGET static void NAME(uint32_t *state_lanes, const uint32_t *word_lanes)                     \
    {                                                                                              \
        REGISTER *state = (REGISTER *)(void *)state_lanes;                                         \
        const REGISTER *words = (const REGISTER *)(const void *)word_lanes;                        \
        REGISTER a[PARTS], b[PARTS], c[PARTS], d[PARTS];                                           \
        for (int part = 0; part < PARTS; part++) {                                                 \
            a[part] = state[part];                                                                 \
            b[part] = state[PARTS + part];                                                         \
            c[part] = state[2 * PARTS + part];                                                     \
            d[part] = state[3 * PARTS + part];                                                     \
        }                                                                                          \
        ROUND(PARTS, F, 1, 0, 0, 7, 12, 17, 22)                                                    \
        ROUND(PARTS, G, 5, 1, 16, 5, 9, 14, 20)                                                    \
        ROUND(PARTS, H, 3, 5, 32, 4, 11, 16, 23)                                                   \
        ROUND(PARTS, I, 7, 0, 48, 6, 10, 15, 21)                                                   \
        for (int part = 0; part < PARTS; part++) {                                                 \
            state[part] += a[part];                                                                \
            state[PARTS + part] += b[part];                                                        \
            state[2 * PARTS + part] += c[part];                                                    \
            state[3 * PARTS + part] += d[part];                                                    \
        }                                                                                          \
    }

COMPRESS(compress_portable, , uint32_t, 1)

#if defined(__GNUC__)
#define VECTOR_KERNEL 1
typedef uint32_t words_4 __attribute__((vector_size(16), may_alias));
COMPRESS(compress_vector, , words_4, 4)
#endif

#if defined(__x86_64__) && defined(__GNUC__)
#define X86_KERNELS 1
typedef uint32_t words_8 __attribute__((vector_size(32), may_alias));
typedef uint32_t words_16 __attribute__((vector_size(64), may_alias));
COMPRESS(compress_avx2, __attribute__((target("avx2"))), words_8, 2)
COMPRESS(compress_avx512, __attribute__((target("avx512f"))), words_16, 2)
#endif

void kafkalog_md5_setup(void)
{
    size_t count = 0;
#ifdef X86_KERNELS
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f")) {
        md5_kernels[count++] = (md5_kernel){"avx512", compress_avx512, 32};
    }
    if (__builtin_cpu_supports("avx2")) {
        md5_kernels[count++] = (md5_kernel){"avx2", compress_avx2, 16};
    }
#endif
#ifdef VECTOR_KERNEL
    md5_kernels[count++] = (md5_kernel){"vector", compress_vector, 16};
#endif
    md5_kernels[count] = (md5_kernel){"portable", compress_portable, 1};
}

const char *kafkalog_md5_name(int number)
{
    const int limit = (int)(sizeof md5_kernels / sizeof md5_kernels[0]);
    return number >= 0 && number < limit ? md5_kernels[number].name : NULL;
}

static inline uint32_t load_word(const uint8_t *data)
{
    return (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
           (uint32_t)data[3] << 24;
}

/* Up to three bytes. */
static inline uint32_t load_rest(const uint8_t *data, size_t size)
{
    uint32_t word = 0;
    for (size_t i = 0; i < size; i++) {
        word |= (uint32_t)data[i] << (8 * i);
    }
    return word;
}

static inline void store_word(uint8_t *target, uint32_t word)
{
    target[0] = (uint8_t)word;
    target[1] = (uint8_t)(word >> 8);
    target[2] = (uint8_t)(word >> 16);
    target[3] = (uint8_t)(word >> 24);
}

static size_t last_block(const kafkalog_key *key)
{
    return (key->size + 8) / BLOCK_SIZE;
}

/* Lay out one block of a key in its lane; the words are zero before. */
static void load_block(uint32_t *words, size_t lanes, const kafkalog_key *key, size_t block)
{
    const size_t start = block * BLOCK_SIZE;
    const size_t left = key->size > start ? key->size - start : 0;
    const size_t here = left < BLOCK_SIZE ? left : BLOCK_SIZE;
    for (size_t word = 0; word < here / 4; word++) {
        words[word * lanes] = load_word(key->data + start + 4 * word);
    }
    if (here < BLOCK_SIZE && start <= key->size) {
        const size_t rest = here % 4;
        words[here / 4 * lanes] =
            load_rest(key->data + start + here - rest, rest) | (uint32_t)0x80 << (8 * rest);
    }
    if (block == last_block(key)) {
        const uint64_t bits = (uint64_t)key->size << 3;
        words[14 * lanes] = (uint32_t)bits;
        words[15 * lanes] = (uint32_t)(bits >> 32);
    }
}

/* Sum up all keys of a group, block by block, and leave it empty. */
static void hash_group(const md5_kernel *kernel, lane_group *group)
{
    _Alignas(64) uint32_t words[BLOCK_WORDS * LANES_MAX];
    _Alignas(64) uint32_t state[STATE_WORDS * LANES_MAX];
    const size_t lanes = kernel->lanes;
    size_t left = group->count;
    for (size_t word = 0; word < STATE_WORDS; word++) {
        for (size_t lane = 0; lane < lanes; lane++) {
            state[word * lanes + lane] = initial_state[word];
        }
    }
    for (size_t block = 0; left > 0; block++) {
        memset(words, 0, BLOCK_WORDS * lanes * sizeof words[0]);
        for (size_t lane = 0; lane < group->count; lane++) {
            if (block <= last_block(group->keys[lane])) {
                load_block(words + lane, lanes, group->keys[lane], block);
            }
        }
        kernel->compress(state, words);
        /* Lanes of keys that ended earlier go on with zeros: their sums are written already. */
        for (size_t lane = 0; lane < group->count; lane++) {
            if (block == last_block(group->keys[lane])) {
                for (size_t word = 0; word < STATE_WORDS; word++) {
                    store_word(group->hashes[lane] + 4 * word, state[word * lanes + lane]);
                }
                left--;
            }
        }
    }
    group->count = 0;
}

static void hash_keys(const md5_kernel *kernel, const kafkalog_key *keys, size_t count,
                      uint8_t *hashes)
{
    lane_group groups[2]; /* keys of one block, and of more */
    groups[0].count = groups[1].count = 0;
    for (size_t i = 0; i < count; i++) {
        lane_group *group = &groups[keys[i].size > SHORT_SIZE_MAX];
        group->keys[group->count] = &keys[i];
        group->hashes[group->count] = hashes + i * KAFKALOG_HASH_SIZE;
        group->count++;
        if (group->count == kernel->lanes) {
            hash_group(kernel, group);
        }
    }
    hash_group(kernel, &groups[0]);
    hash_group(kernel, &groups[1]);
}

void kafkalog_md5_keys(const kafkalog_key *keys, size_t count, uint8_t *hashes)
{
    hash_keys(&md5_kernels[0], keys, count, hashes);
}

void kafkalog_md5_keys_with(int number, const kafkalog_key *keys, size_t count, uint8_t *hashes)
{
    hash_keys(&md5_kernels[number], keys, count, hashes);
}

/* ---- SipHash-2-4-128 ---- */

typedef struct {
    uint64_t v0, v1, v2, v3;
} sip_state;

static inline uint64_t load_long(const uint8_t *data)
{
    return (uint64_t)load_word(data) | (uint64_t)load_word(data + 4) << 32;
}

static inline void store_long(uint8_t *target, uint64_t word)
{
    store_word(target, (uint32_t)word);
    store_word(target + 4, (uint32_t)(word >> 32));
}

static inline uint64_t rotate_64(uint64_t word, int count)
{
    return word << count | word >> (64 - count);
}

static inline void sip_rounds(sip_state *s, int count)
{
    for (int i = 0; i < count; i++) {
        s->v0 += s->v1;
        s->v2 += s->v3;
        s->v1 = rotate_64(s->v1, 13) ^ s->v0;
        s->v3 = rotate_64(s->v3, 16) ^ s->v2;
        s->v0 = rotate_64(s->v0, 32) + s->v3;
        s->v2 += s->v1;
        s->v1 = rotate_64(s->v1, 17) ^ s->v2;
        s->v3 = rotate_64(s->v3, 21) ^ s->v0;
        s->v2 = rotate_64(s->v2, 32);
    }
}

static inline void sip_word(sip_state *s, uint64_t word)
{
    s->v3 ^= word;
    sip_rounds(s, 2);
    s->v0 ^= word;
}

void kafkalog_siphash_keys(const uint8_t *secret, const kafkalog_key *keys, size_t count,
                           uint8_t *hashes)
{
    const uint64_t k0 = load_long(secret);
    const uint64_t k1 = load_long(secret + 8);
    /* The initial words are "somepseudorandomlygeneratedbytes"; 0xee and 0xdd mark 128 bits. */
    const sip_state start = {k0 ^ 0x736f6d6570736575u, k1 ^ 0x646f72616e646f6du ^ 0xee,
                             k0 ^ 0x6c7967656e657261u, k1 ^ 0x7465646279746573u};
    for (size_t i = 0; i < count; i++) {
        const uint8_t *data = keys[i].data;
        const size_t size = keys[i].size;
        const size_t whole = size & ~(size_t)7;
        const size_t rest = size & 7;
        uint64_t last = (uint64_t)size << 56;
        sip_state s = start;
        for (size_t position = 0; position < whole; position += 8) {
            sip_word(&s, load_long(data + position));
        }
        for (size_t i = 0; i < rest; i++) {
            last |= (uint64_t)data[whole + i] << (8 * i);
        }
        sip_word(&s, last);
        s.v2 ^= 0xee;
        sip_rounds(&s, 4);
        store_long(hashes + i * KAFKALOG_HASH_SIZE, s.v0 ^ s.v1 ^ s.v2 ^ s.v3);
        s.v1 ^= 0xdd;
        sip_rounds(&s, 4);
        store_long(hashes + i * KAFKALOG_HASH_SIZE + 8, s.v0 ^ s.v1 ^ s.v2 ^ s.v3);
    }
}
