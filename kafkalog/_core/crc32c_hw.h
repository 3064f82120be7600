/* CRC-32C kernels: one entry that takes the fastest kernel of this CPU, and each by number. */

#ifndef KAFKALOG_CRC32C_HW_H
#define KAFKALOG_CRC32C_HW_H

#include <stddef.h>
#include <stdint.h>

/* Build the tables and choose a kernel. Called once, when the module is imported and before any
 * thread can reach the kernels; nothing here is written afterwards. */
void kafkalog_crc32c_setup(void);

/* CRC-32C of `size` bytes after a prefix whose CRC is `start` (0 for none). */
uint32_t kafkalog_crc32c(uint32_t start, const uint8_t *data, size_t size);

/* As kafkalog_crc32c, where `beyond` bytes behind the data are summed up next: the first of them
 * are asked for while the last of the data are summed up. None of them is read. */
uint32_t kafkalog_crc32c_of_run(uint32_t start, const uint8_t *data, size_t size, size_t beyond);

/* Kernels this CPU can run, fastest first; NULL past the last one, which is always "portable". */
const char *kafkalog_crc32c_name(int number);

/* As kafkalog_crc32c, by the kernel of that number (a number that has a name). */
uint32_t kafkalog_crc32c_with(int number, uint32_t start, const uint8_t *data, size_t size);

#endif
