/* Mappings of files whose pages may fail, and the process's answer to SIGBUS. */

#ifndef KAFKALOG_MAPPING_GUARD_H
#define KAFKALOG_MAPPING_GUARD_H

#include <stddef.h>
#include <stdint.h>

/* One mapping; lives in a table that is never given back. Nothing here is written to by others. */
typedef struct kafkalog_mapping kafkalog_mapping;

/* Take SIGBUS, in front of whoever has it; nothing to do where that was done. -1: see errno. */
int kafkalog_guard_install(void);

/* Map `size` bytes of a file read-only, guarded; NULL and errno. `owner` is given back by find. */
kafkalog_mapping *kafkalog_guard_map(int descriptor, size_t size, void *owner);

/* Take a mapping away. */
void kafkalog_guard_unmap(kafkalog_mapping *mapping);

/* Where a mapping begins in memory. */
const void *kafkalog_guard_start(const kafkalog_mapping *mapping);

/* Whether pages of the mapping were lost, and from which to which position. */
int kafkalog_guard_lost(const kafkalog_mapping *mapping, size_t *first, size_t *end);

/* Owner of the mapping that lost pages of the given memory; NULL where none did. */
void *kafkalog_guard_find(const void *data, size_t size);

/* How many mappings that are still there have lost pages. */
extern int64_t kafkalog_guard_losses;

#endif
