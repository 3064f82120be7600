/* 128-bit hashes of many keys at once: MD5 in lanes, and SipHash-2-4 with a secret. */

#ifndef KAFKALOG_KEY_HASH_HW_H
#define KAFKALOG_KEY_HASH_HW_H

#include <stddef.h>
#include <stdint.h>

#define KAFKALOG_HASH_SIZE 16

/* One key where it lies. */
typedef struct {
    const uint8_t *data;
    size_t size;
} kafkalog_key;

/* Choose a kernel. Called once, when the module is imported and before any thread can reach the
 * kernels; nothing here is written afterwards. */
void kafkalog_md5_setup(void);

/* Write the MD5 sums of `count` keys, KAFKALOG_HASH_SIZE bytes each, by the fastest kernel. */
void kafkalog_md5_keys(const kafkalog_key *keys, size_t count, uint8_t *hashes);

/* Kernels this CPU can run, fastest first; NULL past the last one, which is always "portable". */
const char *kafkalog_md5_name(int number);

/* As kafkalog_md5_keys, by the kernel of that number (a number that has a name). */
void kafkalog_md5_keys_with(int number, const kafkalog_key *keys, size_t count, uint8_t *hashes);

/* Write SipHash-2-4 with 128-bit result of each key, keyed with the 16 bytes of `secret`. */
void kafkalog_siphash_keys(const uint8_t *secret, const kafkalog_key *keys, size_t count,
                           uint8_t *hashes);

#endif
