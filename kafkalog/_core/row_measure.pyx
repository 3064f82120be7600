"""Measurement of rows against the limits of a batch, and check of each against its buffer.

Positions and sizes come from arrays: no byte of a row is read before its range is checked against
the buffer. Rows that pass need no later check of capacity or bounds.

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


cdef enum:
    BLOCK_ROWS = 128                   # taken into a batch at once, where all of them fit


cdef inline bint _is_within(int64_t position, int64_t size, int64_t data_size) noexcept nogil:
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
    if not _is_within(rows.headers_position[row], rows.headers_size[row], data_size):
        return STATUS_FIELD_LENGTH
    # Two offsets of 4 bytes for each, and all bytes of both.
    size[0] += rows.headers_size[row] + 8 * <int64_t>rows.header_count[row]
    return _check_headers(rows, row, data, build.text_keys)


cdef inline int64_t _length(int64_t size) noexcept nogil:
    """Bytes of a cell; of null there are none."""
    return size & ~(size >> 63)


cdef bint _measure_cells(
    const int64_t* positions,
    const int32_t* sizes,
    int64_t count,
    int64_t data_size,
    int64_t* total,
    int64_t* nulls,
) noexcept nogil:
    """
    Add up cells, without a branch in the loop; False where one may lie outside the data.

    Row by row, with a branch for each question, a record took 91 instructions.
    """
    cdef bint outside = False
    cdef int64_t sum_of_sizes = 0
    cdef int64_t null_count = 0
    cdef int64_t row
    cdef int64_t length
    for row in range(count):
        length = _length(sizes[row])
        outside |= (positions[row] < 0) | (positions[row] > data_size - length)
        sum_of_sizes += length
        null_count += sizes[row] < 0
    total[0] = sum_of_sizes
    nulls[0] = null_count
    return not outside


cdef bint _measure_block(
    const Build* build,
    const ColumnPointers* rows,
    int64_t data_size,
    int64_t row,
    int64_t count,
    Portion* portion,
) noexcept nogil:
    """Take a block of rows into a portion; False, and nothing done, to look at each row."""
    cdef int64_t key_bytes = 0
    cdef int64_t key_nulls = 0
    cdef int64_t value_bytes = 0
    cdef int64_t value_nulls = 0
    cdef int64_t size
    if build.has_column[COLUMN_KEY] and not _measure_cells(
        rows.key_position + row, rows.key_size + row, count, data_size, &key_bytes, &key_nulls
    ):
        return False
    if build.has_column[COLUMN_VALUE] and not _measure_cells(
        rows.value_position + row, rows.value_size + row, count, data_size,
        &value_bytes, &value_nulls,
    ):
        return False
    size = count * build.row_bytes + key_bytes + value_bytes
    if size > build.bytes_max - build.size_bytes - portion.size_bytes:
        return False
    portion.size_bytes += size
    portion.key_bytes += key_bytes
    portion.key_nulls += key_nulls
    portion.value_bytes += value_bytes
    portion.value_nulls += value_nulls
    return True


cdef int _measure_row(
    const Build* build,
    const ColumnPointers* rows,
    const uint8_t* data,
    int64_t data_size,
    int64_t row,
    int64_t* size,
) noexcept nogil:
    """Find the bytes of one row, or what is wrong with it."""
    size[0] = build.row_bytes
    if build.has_column[COLUMN_KEY] and rows.key_size[row] > 0:
        size[0] += rows.key_size[row]
        if not _is_within(rows.key_position[row], rows.key_size[row], data_size):
            return STATUS_FIELD_LENGTH
    if build.has_column[COLUMN_VALUE] and rows.value_size[row] > 0:
        size[0] += rows.value_size[row]
        if not _is_within(rows.value_position[row], rows.value_size[row], data_size):
            return STATUS_FIELD_LENGTH
    if build.has_column[COLUMN_HEADERS]:
        return _measure_headers(build, rows, row, data, data_size, size)
    return STATUS_OK


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
    cdef int64_t rows_left = build.rows_max - build.count
    cdef int64_t left = build.bytes_max - build.size_bytes
    cdef int64_t size = 0
    cdef int64_t count
    cdef int status = STATUS_OK
    if end - row > rows_left:
        end = row + rows_left
    while row < end and not build.has_column[COLUMN_HEADERS]:
        count = min(end - row, BLOCK_ROWS)
        if not _measure_block(build, rows, data_size, row, count, portion):
            break
        row += count
    while row < end:
        status = _measure_row(build, rows, data, data_size, row, &size)
        if status != STATUS_OK:
            break
        if portion.size_bytes + size > left and build.count + row - portion.start > 0:
            break
        portion.size_bytes += size
        if build.has_column[COLUMN_KEY]:
            portion.key_bytes += _length(rows.key_size[row])
            portion.key_nulls += rows.key_size[row] < 0
        if build.has_column[COLUMN_VALUE]:
            portion.value_bytes += _length(rows.value_size[row])
            portion.value_nulls += rows.value_size[row] < 0
        if build.has_column[COLUMN_HEADERS]:
            portion.header_count += rows.header_count[row]
            portion.headers_bytes += rows.headers_size[row]
        row += 1
    portion.stop = row
    return status if row == portion.start else STATUS_OK
