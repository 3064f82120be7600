"""Measure rows against the limits of a batch, and hold each against the buffer it points into.

Positions and sizes come from arrays: no byte of a row is read before it is known to lie in the
buffer. What passes here needs no look at room or bounds behind.

Thread-safety: pure functions.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkalog._core.columns cimport ColumnPointers
from kafkalog._core.cursor cimport Cursor
from kafkalog._core.record cimport read_header
from kafkalog._core.row_columns cimport (
    COLUMN_HEADERS,
    COLUMN_KEY,
    COLUMN_VALUE,
    STATUS_NOT_UTF8,
    Build,
    Portion,
)
from kafkalog._core.status cimport STATUS_FIELD_LENGTH, STATUS_HEADER_COUNT, STATUS_OK
from kafkalog._core.utf8 cimport is_utf8


cdef inline bint _lies_within(int64_t position, int64_t size, int64_t data_size) noexcept nogil:
    return 0 <= position <= data_size and size <= data_size - position


cdef int _check_headers(
    const ColumnPointers* rows, int64_t row, const uint8_t* data, bint text_keys
) noexcept nogil:
    cdef Cursor cursor
    cdef const uint8_t* key = NULL
    cdef const uint8_t* value = NULL
    cdef int32_t key_size = 0
    cdef int32_t value_size = 0
    cdef int32_t left = rows.header_count[row]
    cdef int status
    cursor.position = data + rows.headers_position[row]
    cursor.end = cursor.position + rows.headers_size[row]
    while left > 0:
        left -= 1
        status = read_header(&cursor, &key, &key_size, &value, &value_size)
        if status != STATUS_OK:
            return status
        if text_keys and not is_utf8(key, key_size):
            return STATUS_NOT_UTF8
    return STATUS_OK


cdef int _measure_headers(
    const Build* build,
    const ColumnPointers* rows,
    int64_t row,
    const uint8_t* data,
    int64_t data_size,
    int64_t* size,
) noexcept nogil:
    if rows.headers_size[row] < 0 or rows.header_count[row] < 0:
        return STATUS_HEADER_COUNT
    if rows.header_count[row] == 0:
        return STATUS_OK
    if not _lies_within(rows.headers_position[row], rows.headers_size[row], data_size):
        return STATUS_FIELD_LENGTH
    # Two offsets of 4 bytes for each, and all bytes of both.
    size[0] += rows.headers_size[row] + 8 * <int64_t>rows.header_count[row]
    return _check_headers(rows, row, data, build.text_keys)


cdef int measure_kernel(
    const Build* build,
    const ColumnPointers* rows,
    const uint8_t* data,
    int64_t data_size,
    int64_t end,
    Portion* portion,
) noexcept nogil:
    """Find how many rows from `portion.start` on fit; a row at fault ends them, or is the error."""
    cdef int64_t row = portion.start
    cdef int64_t room = build.rows_max - build.count
    cdef int64_t left = build.bytes_max - build.size_bytes
    cdef int64_t size
    cdef int64_t total = 0
    cdef int64_t key_size = -1
    cdef int64_t value_size = -1
    cdef bint with_key = build.wanted[COLUMN_KEY]
    cdef bint with_value = build.wanted[COLUMN_VALUE]
    cdef int status = STATUS_OK
    if end - row > room:
        end = row + room
    portion.lowest = data_size
    while row < end:
        size = build.row_bytes
        if with_key:
            key_size = rows.key_size[row]
            if key_size > 0:
                size += key_size
                if not _lies_within(rows.key_position[row], key_size, data_size):
                    status = STATUS_FIELD_LENGTH
                    break
        if with_value:
            value_size = rows.value_size[row]
            if value_size > 0:
                size += value_size
                if not _lies_within(rows.value_position[row], value_size, data_size):
                    status = STATUS_FIELD_LENGTH
                    break
        if build.wanted[COLUMN_HEADERS]:
            status = _measure_headers(build, rows, row, data, data_size, &size)
            if status != STATUS_OK:
                break
        if total + size > left and build.count + row - portion.start > 0:
            break
        total += size
        if with_key:
            if key_size > 0:
                portion.key_bytes += key_size
                portion.lowest = min(portion.lowest, rows.key_position[row])
                portion.highest = max(portion.highest, rows.key_position[row] + key_size)
            portion.key_nulls += key_size < 0
        if with_value:
            if value_size > 0:
                portion.value_bytes += value_size
                portion.lowest = min(portion.lowest, rows.value_position[row])
                portion.highest = max(portion.highest, rows.value_position[row] + value_size)
            portion.value_nulls += value_size < 0
        if build.wanted[COLUMN_HEADERS]:
            portion.header_count += rows.header_count[row]
            portion.headers_bytes += rows.headers_size[row]
        row += 1
    portion.stop = row
    portion.size_bytes = total
    return status if row == portion.start else STATUS_OK
