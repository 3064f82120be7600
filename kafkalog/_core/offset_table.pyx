"""Keys on their way into the table of an offset map, or to be looked up: checked and hashed.

Callers are the kernels of offset_map.pyx and exact_rows.pyx. Nothing is believed of the columns:
every key lies within the bytes given, or its row is refused.

Thread-safety: pure functions.
"""

from libc.stdint cimport INT64_MAX, int64_t, uint8_t

from kafkalog._core.key_hash cimport hash_keys
from kafkalog._core.status cimport STATUS_FIELD_LENGTH, STATUS_OFFSET_DELTA, STATUS_OK


cdef inline int _check_row(const KeyRows* rows, int64_t row) noexcept nogil:
    cdef int64_t size = rows.sizes[row]
    if size >= 0 and (
        rows.positions[row] < 0
        or size > rows.data_size
        or rows.positions[row] > rows.data_size - size
    ):
        return STATUS_FIELD_LENGTH
    if rows.offsets != NULL and (rows.offsets[row] < 0 or rows.offsets[row] == INT64_MAX):
        return STATUS_OFFSET_DELTA
    return STATUS_OK


cdef int load_block(
    const OffsetTable* table, const KeyRows* rows, int64_t* row, int64_t end, KeyBlock* block
) noexcept nogil:
    """Hash the next keys, as many as a block holds; `row` is then the first row not looked at."""
    cdef int status
    block.count = 0
    while row[0] < end and block.count < BLOCK_KEYS:
        status = _check_row(rows, row[0])
        if status != STATUS_OK:
            return status
        if rows.sizes[row[0]] >= 0:
            block.keys[block.count].data = rows.data + rows.positions[row[0]]
            block.keys[block.count].size = <size_t>rows.sizes[row[0]]
            block.rows[block.count] = row[0]
            block.count += 1
        row[0] += 1
    hash_keys(&table.hasher, block.keys, <size_t>block.count, <uint8_t*>block.hashes)
    return STATUS_OK
