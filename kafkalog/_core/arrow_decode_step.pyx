"""Decoder of the bytes of records into Arrow columns, some records at a time.

Records are decoded until their cells fill a few kilobytes on the stack, numbers directly into their
columns; then keys are copied, then values. So the intermediate data stays in the nearest cache,
each loop has enough registers, and capacity is checked once. A record of 100 bytes takes 40 % fewer
instructions than through columns of positions and sizes.

Nothing is counted here: the caller sets the number of rows once the batch was found good.

Thread-safety: one caller at a time for a batch under construction.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from kafkalog._core.arrow_memory cimport Octets, reserve
from kafkalog._core.copying cimport BLOCK_SIZE, copy_bytes, move_block
from kafkalog._core.cursor cimport Cursor
from kafkalog._core.layout cimport NO_TIMESTAMP
from kafkalog._core.prefetch cimport PrefetchWindow, prefetch_window, prefetch_next_lines
from kafkalog._core.record cimport (
    RecordFields,
    RecordsContext,
    next_record,
    offset_of,
    read_header,
    timestamp_of,
)
from kafkalog._core.row_columns cimport (
    COLUMN_HEADERS,
    COLUMN_KEY,
    COLUMN_OFFSET,
    COLUMN_TIMESTAMP,
    COLUMN_VALUE,
    INLINE_SIZE_MAX,
    LAYOUT_NARROW,
    LAYOUT_VIEWS,
    STATUS_NOT_UTF8,
    VIEW_SIZE,
    Build,
    Column,
    add_headers_kernel,
    open_offsets,
    open_validity,
    reserve_headers,
    store_view,
)
from kafkalog._core.status cimport (
    STATUS_FULL,
    STATUS_NO_MEMORY,
    STATUS_OK,
    STATUS_RECORD_LENGTH,
)
from kafkalog._core.utf8 cimport is_utf8


cdef enum:
    # Records that are decoded before their cells are copied: the intermediate data stays in the
    # nearest cache, and each of the loops has enough registers.
    STEP_ROWS = 64

    SHORT_SIZE = 16                    # one move
    # Bytes after a cell that copying it may write, and after its source that it may read.
    SLACK = BLOCK_SIZE


# Cells of some records, still where the batch has them.
cdef struct Step:
    int64_t count
    int64_t timestamp_nulls
    int64_t key_bytes
    int64_t value_bytes
    int64_t headers_bytes              # and two offsets for each
    int64_t header_count
    int32_t has_null_key               # below 0: there is one
    int32_t has_null_value
    const uint8_t* end                 # end of the last record
    const uint8_t* keys[STEP_ROWS]
    const uint8_t* values[STEP_ROWS]
    int32_t key_sizes[STEP_ROWS]
    int32_t value_sizes[STEP_ROWS]
    const uint8_t* headers[STEP_ROWS]  # these two where headers are selected
    int32_t header_counts[STEP_ROWS]


# ---- capacity ---------------------------------------------------------------------------------

cdef int _mark_all_valid(Column* column, int64_t row, int64_t end_row) noexcept nogil:
    """Set the bits from `row` on to "not null"; those before are set."""
    if open_validity(column, row, end_row - row) != STATUS_OK:
        return STATUS_NO_MEMORY
    if row & 7:
        column.validity.data[row >> 3] |= <uint8_t>(0xff << (row & 7))
    memset(
        column.validity.data + (row + 7) // 8, 0xff, <size_t>((end_row + 7) // 8 - (row + 7) // 8)
    )
    return STATUS_OK


cdef int _open_numbers(
    Build* build, int number, int64_t count, int64_t** target
) noexcept nogil:
    cdef Column* column = &build.columns[number]
    target[0] = NULL
    if not build.has_column[number]:
        return STATUS_OK
    if reserve(&column.slots, 8 * count) != STATUS_OK:
        return STATUS_NO_MEMORY
    target[0] = <int64_t*>column.slots.data
    return STATUS_OK


cdef int _open_cells(
    Build* build, int number, int64_t count, Cells* cells
) noexcept nogil:
    """Reserve memory for cells; for their bytes when the sizes are known."""
    cdef Column* column = &build.columns[number]
    cdef int status
    memset(cells, 0, sizeof(Cells))
    cells.is_selected = build.has_column[number]
    if not cells.is_selected:
        return STATUS_OK
    if build.layout == LAYOUT_VIEWS:
        status = reserve(&column.slots, VIEW_SIZE * count)
    else:
        status = open_offsets(column, count, 4 if build.layout == LAYOUT_NARROW else 8)
    if status == STATUS_OK and column.null_count > 0:
        status = _mark_all_valid(column, build.count, build.count + count)
        cells.validity = column.validity.data
    cells.slots = column.slots.data
    cells.null_count = column.null_count
    return status


cdef int open_rows(Build* build, const RunState* run, Rows* rows) noexcept nogil:
    cdef int64_t count = min(run.left, build.rows_max - build.count)
    cdef Column* timestamps = &build.columns[COLUMN_TIMESTAMP]
    cdef Column* headers = &build.columns[COLUMN_HEADERS]
    memset(rows, 0, sizeof(Rows))
    rows.row = build.count
    rows.end_row = build.count + count
    rows.size_bytes = build.size_bytes
    rows.bytes_max = build.bytes_max
    if (
        _open_numbers(build, COLUMN_OFFSET, count, &rows.offsets) != STATUS_OK
        or _open_numbers(build, COLUMN_TIMESTAMP, count, &rows.timestamps) != STATUS_OK
        or _open_cells(build, COLUMN_KEY, count, &rows.key) != STATUS_OK
        or _open_cells(build, COLUMN_VALUE, count, &rows.value) != STATUS_OK
    ):
        return STATUS_NO_MEMORY
    rows.timestamp_nulls = timestamps.null_count
    if timestamps.null_count > 0:
        if _mark_all_valid(timestamps, build.count, rows.end_row) != STATUS_OK:
            return STATUS_NO_MEMORY
        rows.timestamp_validity = timestamps.validity.data
    if build.has_column[COLUMN_HEADERS]:
        if open_offsets(headers, count, 4) != STATUS_OK:
            return STATUS_NO_MEMORY
        rows.header_ends = <int32_t*>headers.slots.data
    if build.layout == LAYOUT_VIEWS and not run.compressed:
        rows.window = build.windows[build.window_count - 1].start
        rows.window_number = <int32_t>build.window_count
    return STATUS_OK


cdef uint8_t* _open_nulls(Build* build, int number, int64_t end_row) noexcept nogil:
    """Return the bitmap of a column that gets its first null; NULL without memory."""
    if _mark_all_valid(&build.columns[number], 0, end_row) != STATUS_OK:
        return NULL
    return build.columns[number].validity.data


# ---- some records -----------------------------------------------------------------------------

cdef inline int64_t _length(int64_t size) noexcept nogil:
    """Bytes of a cell; of null there are none."""
    return size & ~(size >> 63)


cdef int _decode_step(
    RunState* run, const Rows* rows, Step* step, int64_t count, const uint8_t* tile_end
) noexcept nogil:
    """Decode at most `count` records, of those that begin before `tile_end`."""
    # Copies: the compiler must not fear that a store to a column changes them.
    cdef RecordsContext context = run.context
    cdef RecordFields fields
    cdef const uint8_t* position = run.position
    cdef const uint8_t* records_end = run.records_end
    cdef PrefetchWindow ahead = run.ahead
    cdef const uint8_t* next_position
    cdef int64_t* offsets = rows.offsets
    cdef int64_t* timestamps = rows.timestamps
    cdef bint with_headers = rows.header_ends != NULL
    cdef int64_t timestamp
    cdef int64_t row = 0
    cdef int status = STATUS_OK
    step.timestamp_nulls = step.headers_bytes = step.header_count = 0
    offsets += rows.row if offsets != NULL else 0
    timestamps += rows.row if timestamps != NULL else 0
    while row < count and position < tile_end:
        next_position = next_record(&context, position, records_end, &fields)
        if next_position == NULL:
            status = STATUS_RECORD_LENGTH      # or something else, which others find out
            break
        prefetch_next_lines(&ahead)
        if offsets != NULL:
            offsets[row] = offset_of(&context, &fields)
        if timestamps != NULL:
            timestamp = timestamp_of(&context, &fields)
            timestamps[row] = timestamp
            step.timestamp_nulls += timestamp == NO_TIMESTAMP
        step.keys[row] = fields.key
        step.key_sizes[row] = fields.key_size
        step.values[row] = fields.value
        step.value_sizes[row] = fields.value_size
        if with_headers:
            step.headers[row] = fields.headers
            step.header_counts[row] = fields.header_count
            step.header_count += fields.header_count
            if fields.header_count > 0:
                step.headers_bytes += fields.end - fields.headers + 8 * <int64_t>fields.header_count
        row += 1
        position = next_position
    run.ahead = ahead
    run.position = position
    run.left -= row
    run.context.previous_delta = context.previous_delta
    step.count = row
    step.end = position
    return status


cdef int64_t _sum_up(const int32_t* sizes, int64_t count, int32_t* any_null) noexcept nogil:
    cdef int64_t total = 0
    cdef int64_t row
    any_null[0] = 0
    for row in range(count):
        total += _length(sizes[row])
        any_null[0] |= sizes[row]
    return total


cdef int64_t _measure_step(const Build* build, const Rows* rows, Step* step) noexcept nogil:
    """Return the bytes of the rows in the selected columns."""
    cdef int64_t size = step.count * build.row_bytes + step.headers_bytes
    if rows.key.is_selected:
        step.key_bytes = _sum_up(step.key_sizes, step.count, &step.has_null_key)
        size += step.key_bytes
    if rows.value.is_selected:
        step.value_bytes = _sum_up(step.value_sizes, step.count, &step.has_null_value)
        size += step.value_bytes
    return size


cdef int _next_step(
    Build* build, RunState* run, Rows* rows, Step* step, const uint8_t* tile_end
) noexcept nogil:
    """Decode as many records as fit; STATUS_FULL if none does."""
    cdef RunState before = run[0]
    cdef int64_t count = min(min(run.left, rows.end_row - rows.row), <int64_t>STEP_ROWS)
    cdef int64_t size
    cdef int status = STATUS_FULL
    while count > 0:
        run[0] = before
        status = _decode_step(run, rows, step, count, tile_end)
        if status != STATUS_OK:
            return status
        size = rows.size_bytes + _measure_step(build, rows, step)
        if size <= rows.bytes_max or (rows.row == 0 and step.count == 1):
            rows.size_bytes = size
            return STATUS_OK
        # Near the end of the capacity: half as many, down to one.
        count = step.count // 2 if step.count > 1 else 0
        status = STATUS_FULL
    run[0] = before
    return status


# ---- their cells ------------------------------------------------------------------------------

cdef inline uint8_t* _copy_ahead(
    uint8_t* target, const uint8_t* cell, int64_t size
) noexcept nogil:
    """Copy a cell by whole moves: SLACK bytes after it may be read, and after the copy written."""
    cdef uint8_t* end = target + size
    if size <= SHORT_SIZE:
        memcpy(target, cell, SHORT_SIZE)
        return end
    while target < end:
        move_block(target, cell)
        target += BLOCK_SIZE
        cell += BLOCK_SIZE
    return end


cdef void _put_narrow(
    Octets* octets, int32_t* ends, const uint8_t** data, const int32_t* sizes, int64_t count
) noexcept nogil:
    cdef uint8_t* first = octets.data
    cdef uint8_t* target = first + octets.size
    cdef int64_t slot
    for slot in range(count):
        target = _copy_ahead(target, data[slot], _length(sizes[slot]))
        ends[slot] = <int32_t>(target - first)
    octets.size = target - first


cdef void _put_wide(
    Octets* octets, int64_t* ends, const uint8_t** data, const int32_t* sizes, int64_t count
) noexcept nogil:
    cdef uint8_t* first = octets.data
    cdef uint8_t* target = first + octets.size
    cdef int64_t slot
    for slot in range(count):
        target = _copy_ahead(target, data[slot], _length(sizes[slot]))
        ends[slot] = target - first
    octets.size = target - first


cdef void _put_bytewise(
    Octets* octets, uint8_t* ends, const uint8_t** data, const int32_t* sizes, int64_t count,
    int layout,
) noexcept nogil:
    """As the two above, at the end of the buffer."""
    cdef int64_t slot
    cdef int64_t size
    for slot in range(count):
        size = _length(sizes[slot])
        copy_bytes(octets.data + octets.size, data[slot], size)
        octets.size += size
        if layout == LAYOUT_NARROW:
            (<int32_t*>ends)[slot] = <int32_t>octets.size
        else:
            (<int64_t*>ends)[slot] = octets.size


cdef int _put_bytes(
    Octets* octets, uint8_t* slots, const uint8_t** data, const int32_t* sizes, int64_t size_bytes,
    int layout, const Rows* rows, const Step* step, const uint8_t* readable_end,
) noexcept nogil:
    """Copy cells of so many bytes together."""
    cdef uint8_t* ends = slots + (rows.row + 1) * (4 if layout == LAYOUT_NARROW else 8)
    if reserve(octets, size_bytes + SLACK) != STATUS_OK:
        return STATUS_NO_MEMORY
    if readable_end - step.end < SLACK:
        _put_bytewise(octets, ends, data, sizes, step.count, layout)
    elif layout == LAYOUT_NARROW:
        _put_narrow(octets, <int32_t*>ends, data, sizes, step.count)
    else:
        _put_wide(octets, <int64_t*>ends, data, sizes, step.count)
    return STATUS_OK


cdef void _put_views(
    Cells* cells, const uint8_t** data, const int32_t* sizes, const Rows* rows, int64_t count
) noexcept nogil:
    cdef uint8_t* view = cells.slots + VIEW_SIZE * rows.row
    cdef const uint8_t* window = rows.window
    cdef int32_t number = rows.window_number
    cdef int64_t slot
    for slot in range(count):
        store_view(
            view, data[slot], <int32_t>_length(sizes[slot]), number, data[slot] - window
        )
        view += VIEW_SIZE


cdef int _put_copied_views(
    Octets* octets,
    Cells* cells,
    const uint8_t** data,
    const int32_t* sizes,
    int64_t size_bytes,
    const Rows* rows,
    int64_t count,
) noexcept nogil:
    """Make views into a copy, buffer 0 of them."""
    cdef uint8_t* view = cells.slots + VIEW_SIZE * rows.row
    cdef int64_t slot
    if reserve(octets, size_bytes) != STATUS_OK:
        return STATUS_NO_MEMORY
    for slot in range(count):
        store_view(view, data[slot], <int32_t>_length(sizes[slot]), 0, octets.size)
        if sizes[slot] > INLINE_SIZE_MAX:
            copy_bytes(octets.data + octets.size, data[slot], sizes[slot])
            octets.size += sizes[slot]
        view += VIEW_SIZE
    return STATUS_OK


cdef inline void _clear_bit(uint8_t* bits, int64_t row) noexcept nogil:
    bits[row >> 3] &= <uint8_t>~(1 << (row & 7))


cdef int _put_cells(
    Build* build,
    int number,
    Cells* cells,
    const uint8_t** data,
    const int32_t* sizes,
    int64_t size_bytes,
    bint any_null,
    const Rows* rows,
    const Step* step,
    const uint8_t* readable_end,
) noexcept nogil:
    cdef Octets* octets = &build.columns[number].octets
    cdef int64_t slot
    cdef int status = STATUS_OK
    if build.layout == LAYOUT_VIEWS and rows.window == NULL:
        status = _put_copied_views(octets, cells, data, sizes, size_bytes, rows, step.count)
    elif build.layout == LAYOUT_VIEWS:
        _put_views(cells, data, sizes, rows, step.count)
    else:
        status = _put_bytes(
            octets, cells.slots, data, sizes, size_bytes, build.layout, rows, step, readable_end
        )
    if status != STATUS_OK:
        return status
    if not any_null:
        return STATUS_OK
    if cells.validity == NULL:
        cells.validity = _open_nulls(build, number, rows.end_row)
        if cells.validity == NULL:
            return STATUS_NO_MEMORY
    for slot in range(step.count):
        if sizes[slot] < 0:
            _clear_bit(cells.validity, rows.row + slot)
            cells.null_count += 1
    return STATUS_OK


cdef int _record_missing_timestamps(Build* build, Rows* rows, const Step* step) noexcept nogil:
    cdef int64_t row
    if rows.timestamp_validity == NULL:
        rows.timestamp_validity = _open_nulls(build, COLUMN_TIMESTAMP, rows.end_row)
        if rows.timestamp_validity == NULL:
            return STATUS_NO_MEMORY
    for row in range(rows.row, rows.row + step.count):
        if rows.timestamps[row] == NO_TIMESTAMP:
            _clear_bit(rows.timestamp_validity, row)
    rows.timestamp_nulls += step.timestamp_nulls
    return STATUS_OK


cdef int _check_texts(const Cursor* headers, int32_t count) noexcept nogil:
    """Return whether the keys of headers, whose framing is good, are text."""
    cdef Cursor cursor = headers[0]
    cdef const uint8_t* key = NULL
    cdef const uint8_t* value = NULL
    cdef int32_t key_size = 0
    cdef int32_t value_size = 0
    while count > 0:
        count -= 1
        if read_header(&cursor, &key, &key_size, &value, &value_size) != STATUS_OK:
            return STATUS_RECORD_LENGTH
        if not is_utf8(key, key_size):
            return STATUS_NOT_UTF8
    return STATUS_OK


cdef int _put_headers(Build* build, const Rows* rows, const Step* step) noexcept nogil:
    cdef Cursor cursor
    cdef int64_t slot
    cdef int status
    if reserve_headers(build, step.header_count, step.headers_bytes) != STATUS_OK:
        return STATUS_NO_MEMORY
    cursor.end = step.end
    for slot in range(step.count):
        if step.header_counts[slot] > 0:
            cursor.position = step.headers[slot]
            status = STATUS_OK
            if build.text_keys:
                status = _check_texts(&cursor, step.header_counts[slot])
            if status == STATUS_OK:
                status = add_headers_kernel(build, &cursor, step.header_counts[slot])
            if status != STATUS_OK:
                return status
        rows.header_ends[rows.row + slot + 1] = <int32_t>build.header_total
    return STATUS_OK


cdef int add_tile(
    Build* build, RunState* run, Rows* rows, const uint8_t* tile_end
) noexcept nogil:
    """Add those that begin before `tile_end`; STATUS_FULL before a record that does not fit."""
    cdef Step step
    cdef int status = STATUS_OK
    run.ahead = prefetch_window(tile_end, run.readable_end)
    while status == STATUS_OK and run.left > 0 and run.position < tile_end:
        status = _next_step(build, run, rows, &step, tile_end)
        if status == STATUS_OK and step.timestamp_nulls > 0:
            status = _record_missing_timestamps(build, rows, &step)
        if status == STATUS_OK and rows.key.is_selected:
            status = _put_cells(
                build, COLUMN_KEY, &rows.key, step.keys, step.key_sizes, step.key_bytes,
                step.has_null_key < 0, rows, &step, run.readable_end,
            )
        if status == STATUS_OK and rows.value.is_selected:
            status = _put_cells(
                build, COLUMN_VALUE, &rows.value, step.values, step.value_sizes, step.value_bytes,
                step.has_null_value < 0, rows, &step, run.readable_end,
            )
        if status == STATUS_OK and rows.header_ends != NULL:
            status = _put_headers(build, rows, &step)
        if status == STATUS_OK:
            rows.row += step.count
    return status
