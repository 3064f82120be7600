"""Copy of rows that were decoded into RecordColumns to Arrow columns, column by column.

    offset, timestamp                    copied
    key, value                           bytes in sequence with int32 or int64 offsets; or views of
                                         16 bytes each, into the decoded bytes if these stay
    headers                              list<struct<key, value>>, decoded here
    topic, partition, fields of batches  repeated

What Kafka writes as -1 for "none" (timestamp and its type, producer, sequence, leader epoch) is
null. A column that nothing is null in has no bitmap.

Thread-safety: one caller at a time for a batch under construction.
"""

from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from kafkalog._core.arrow_memory cimport reserve
from kafkalog._core.columns cimport ColumnPointers
from kafkalog._core.copying cimport copy_bytes
from kafkalog._core.cursor cimport Cursor
from kafkalog._core.layout cimport NO_TIMESTAMP
from kafkalog._core.record cimport read_header
from kafkalog._core.row_filter cimport RowRunInfo
from kafkalog._core.row_measure cimport measure_kernel
from kafkalog._core.status cimport STATUS_INTERNAL, STATUS_NO_MEMORY, STATUS_OK


cdef enum:
    # Bytes that a short copy may write after its cell; always reserved.
    SLACK = 32
    SHORT_SIZE = 16


cdef int open_validity(Column* column, int64_t count, int64_t more) noexcept nogil:
    """Reserve memory for bits; those of earlier rows are set to "not null"."""
    cdef int64_t size = (count + more + 7) // 8
    if reserve(&column.validity, size - column.validity.size) != STATUS_OK:
        return STATUS_NO_MEMORY
    if column.validity.size == 0 and count > 0:
        memset(column.validity.data, 0xff, <size_t>((count + 7) // 8))
    column.validity.size = size
    return STATUS_OK


cdef inline void _mark(Column* column, int64_t row, bint valid) noexcept nogil:
    cdef uint8_t bit = <uint8_t>(1 << (row & 7))
    if row & 7 == 0:
        column.validity.data[row >> 3] = 0
    if valid:
        column.validity.data[row >> 3] |= bit
    else:
        column.validity.data[row >> 3] &= <uint8_t>~bit


cdef int _mark_sizes(
    Column* column, int64_t count, const int32_t* sizes, int64_t more, int64_t nulls
) noexcept nogil:
    """Mark which of the next cells are null: those of negative size."""
    cdef int64_t row
    if nulls == 0 and column.null_count == 0:
        return STATUS_OK
    if open_validity(column, count, more) != STATUS_OK:
        return STATUS_NO_MEMORY
    column.null_count += nulls
    for row in range(more):
        _mark(column, count + row, sizes[row] >= 0)
    return STATUS_OK


cdef inline uint8_t* _copy_cell(
    uint8_t* target, const uint8_t* source, int64_t size, const uint8_t* data_end
) noexcept nogil:
    """Copy a cell; SLACK bytes after it may be written, and bytes to `data_end` read."""
    if size <= SHORT_SIZE and data_end - source >= SHORT_SIZE:
        memcpy(target, source, SHORT_SIZE)
    else:
        copy_bytes(target, source, size)
    return target + size


cdef int _add_bytes(
    Column* column,
    int width,
    const uint8_t* data,
    int64_t data_size,
    const int64_t* positions,
    const int32_t* sizes,
    int64_t count,
    int64_t total,
) noexcept nogil:
    cdef uint8_t* first
    cdef uint8_t* target
    cdef int32_t* narrow
    cdef int64_t* wide
    cdef int64_t row
    if open_offsets(column, count, width) != STATUS_OK:
        return STATUS_NO_MEMORY
    if reserve(&column.octets, total + SLACK) != STATUS_OK:
        return STATUS_NO_MEMORY
    first = column.octets.data
    target = first + column.octets.size
    narrow = <int32_t*>(column.slots.data + column.slots.size)
    wide = <int64_t*>(column.slots.data + column.slots.size)
    for row in range(count):
        if sizes[row] > 0:
            target = _copy_cell(target, data + positions[row], sizes[row], data + data_size)
        if width == 4:
            narrow[row] = <int32_t>(target - first)
        else:
            wide[row] = target - first
    column.octets.size = target - first
    column.slots.size += count * width
    return STATUS_OK


cdef int _add_views(
    Column* column,
    const uint8_t* window,
    int32_t window_number,
    const uint8_t* data,
    const int64_t* positions,
    const int32_t* sizes,
    int64_t count,
    int64_t total,
) noexcept nogil:
    """Make views into a window of the data, or where there is none, into a copy: buffer 0."""
    cdef uint8_t* view
    cdef const uint8_t* cell
    cdef int64_t row
    if reserve(&column.slots, count * VIEW_SIZE) != STATUS_OK:
        return STATUS_NO_MEMORY
    if window == NULL and reserve(&column.octets, total) != STATUS_OK:
        return STATUS_NO_MEMORY
    view = column.slots.data + column.slots.size
    for row in range(count):
        if sizes[row] <= 0:
            memset(view, 0, VIEW_SIZE)
        else:
            cell = data + positions[row]
            if window != NULL:
                store_view(view, cell, sizes[row], window_number, cell - window)
            else:
                store_view(view, cell, sizes[row], 0, column.octets.size)
                if sizes[row] > INLINE_SIZE_MAX:
                    copy_bytes(column.octets.data + column.octets.size, cell, sizes[row])
                    column.octets.size += sizes[row]
        view += VIEW_SIZE
    column.slots.size += count * VIEW_SIZE
    return STATUS_OK


cdef int _add_cells(
    Build* build,
    int number,
    const int64_t* positions,
    const int32_t* sizes,
    const uint8_t* data,
    int64_t data_size,
    bint lasting,
    int64_t count,
    int64_t total,
    int64_t nulls,
) noexcept nogil:
    """Add keys or values."""
    cdef Column* column = &build.columns[number]
    cdef const uint8_t* window = NULL
    cdef int width = 4 if build.layout == LAYOUT_NARROW else 8
    if _mark_sizes(column, build.count, sizes, count, nulls) != STATUS_OK:
        return STATUS_NO_MEMORY
    if build.layout != LAYOUT_VIEWS:
        return _add_bytes(column, width, data, data_size, positions, sizes, count, total)
    if lasting:
        window = build.windows[build.window_count - 1].start
    return _add_views(
        column, window, <int32_t>build.window_count, data, positions, sizes, count, total
    )


cdef int reserve_headers(Build* build, int64_t count, int64_t size_bytes) noexcept nogil:
    """Reserve memory for headers, and for the bytes of all of them."""
    cdef Column* keys = &build.header_keys
    cdef Column* values = &build.header_values
    if (
        open_offsets(keys, count, 4) != STATUS_OK
        or open_offsets(values, count, 4) != STATUS_OK
        or reserve(&keys.octets, size_bytes) != STATUS_OK
        or reserve(&values.octets, size_bytes) != STATUS_OK
        or open_validity(values, build.header_total, count) != STATUS_OK
    ):
        return STATUS_NO_MEMORY
    return STATUS_OK


cdef int add_headers_kernel(Build* build, Cursor* cursor, int32_t count) noexcept nogil:
    cdef Column* keys = &build.header_keys
    cdef Column* values = &build.header_values
    cdef const uint8_t* key = NULL
    cdef const uint8_t* value = NULL
    cdef int32_t key_size = 0
    cdef int32_t value_size = 0
    while count > 0:
        count -= 1
        if read_header(cursor, &key, &key_size, &value, &value_size) != STATUS_OK:
            return STATUS_INTERNAL
        copy_bytes(keys.octets.data + keys.octets.size, key, key_size)
        keys.octets.size += key_size
        (<int32_t*>(keys.slots.data + keys.slots.size))[0] = <int32_t>keys.octets.size
        keys.slots.size += 4
        if value_size > 0:
            copy_bytes(values.octets.data + values.octets.size, value, value_size)
            values.octets.size += value_size
        (<int32_t*>(values.slots.data + values.slots.size))[0] = <int32_t>values.octets.size
        values.slots.size += 4
        values.null_count += value_size < 0
        _mark(values, build.header_total, value_size >= 0)
        build.header_total += 1
    return STATUS_OK


cdef int _add_headers(
    Build* build,
    const ColumnPointers* rows,
    const uint8_t* data,
    const Portion* portion,
) noexcept nogil:
    """Add headers that `_check_headers` found good."""
    cdef Column* column = &build.columns[COLUMN_HEADERS]
    cdef Cursor cursor
    cdef int32_t* ends
    cdef int64_t row
    if (
        open_offsets(column, portion.stop - portion.start, 4) != STATUS_OK
        or reserve_headers(build, portion.header_count, portion.headers_bytes) != STATUS_OK
    ):
        return STATUS_NO_MEMORY
    ends = <int32_t*>(column.slots.data + column.slots.size)
    for row in range(portion.start, portion.stop):
        # Without a cell its position was not checked, and may be anything.
        if rows.header_count[row] > 0:
            cursor.position = data + rows.headers_position[row]
            cursor.end = cursor.position + rows.headers_size[row]
            if add_headers_kernel(build, &cursor, rows.header_count[row]) != STATUS_OK:
                return STATUS_INTERNAL
        ends[row - portion.start] = <int32_t>build.header_total
    column.slots.size += 4 * (portion.stop - portion.start)
    return STATUS_OK


cdef int _add_timestamps(
    Build* build, const int64_t* timestamps, int64_t count
) noexcept nogil:
    cdef Column* column = &build.columns[COLUMN_TIMESTAMP]
    cdef int64_t nulls = 0
    cdef int64_t row
    if reserve(&column.slots, 8 * count) != STATUS_OK:
        return STATUS_NO_MEMORY
    memcpy(column.slots.data + column.slots.size, timestamps, <size_t>(8 * count))
    column.slots.size += 8 * count
    for row in range(count):
        nulls += timestamps[row] == NO_TIMESTAMP
    if nulls == 0 and column.null_count == 0:
        return STATUS_OK
    if open_validity(column, build.count, count) != STATUS_OK:
        return STATUS_NO_MEMORY
    column.null_count += nulls
    for row in range(count):
        _mark(column, build.count + row, timestamps[row] != NO_TIMESTAMP)
    return STATUS_OK


cdef int _add_topic(Build* build, int64_t count) noexcept nogil:
    cdef Column* column = &build.columns[COLUMN_TOPIC]
    cdef uint8_t* target
    cdef int32_t* ends
    cdef int64_t size = build.topic_size
    cdef int64_t row
    if (
        open_offsets(column, count, 4) != STATUS_OK
        or reserve(&column.octets, size * count) != STATUS_OK
    ):
        return STATUS_NO_MEMORY
    target = column.octets.data + column.octets.size
    ends = <int32_t*>(column.slots.data + column.slots.size)
    for row in range(count):
        memcpy(target, build.topic, <size_t>size)
        target += size
        ends[row] = <int32_t>(target - column.octets.data)
    column.octets.size += size * count
    column.slots.size += 4 * count
    return STATUS_OK


cdef int _repeat(
    Column* column, int64_t first_row, int64_t count, int64_t value, int width, bint is_null
) noexcept nogil:
    """Add a value `count` times, as an integer of `width` bytes."""
    cdef uint8_t* target
    cdef int64_t row
    if reserve(&column.slots, width * count) != STATUS_OK:
        return STATUS_NO_MEMORY
    target = column.slots.data + column.slots.size
    column.slots.size += width * count
    if width == 8:
        for row in range(count):
            (<int64_t*>target)[row] = value
    elif width == 4:
        for row in range(count):
            (<int32_t*>target)[row] = <int32_t>value
    else:
        for row in range(count):
            (<int16_t*>target)[row] = <int16_t>value
    if not is_null and column.null_count == 0:
        return STATUS_OK
    if open_validity(column, first_row, count) != STATUS_OK:
        return STATUS_NO_MEMORY
    column.null_count += count if is_null else 0
    for row in range(first_row, first_row + count):
        _mark(column, row, not is_null)
    return STATUS_OK


cdef int _add_sequences(
    Build* build, int64_t first_row, const RowRunInfo* run, const int64_t* offsets, int64_t count
) noexcept nogil:
    """Sequences rise with the offsets, and continue with 0 after the largest."""
    cdef Column* column = &build.columns[COLUMN_SEQUENCE]
    cdef int32_t* target
    cdef int64_t row
    cdef int status
    status = _repeat(column, first_row, count, run.base_sequence, 4, run.base_sequence < 0)
    if status != STATUS_OK or run.base_sequence < 0:
        return status
    target = <int32_t*>(column.slots.data + column.slots.size) - count
    for row in range(count):
        target[row] = <int32_t>((run.base_sequence + offsets[row] - run.base_offset) & INT32_MAX)
    return STATUS_OK


cdef int _add_facts(
    Build* build, const RowRunInfo* runs, int64_t run_count, const int64_t* offsets,
    int64_t start, int64_t stop,
) noexcept nogil:
    """Add the fields of the batches for rows `start` to `stop`."""
    cdef Column* columns = build.columns
    cdef int64_t row = start
    cdef int64_t run = 0
    cdef int64_t count
    cdef int64_t first_row = build.count
    cdef int status = STATUS_OK
    while row < stop and status == STATUS_OK:
        while run < run_count and runs[run].end_row <= row:
            run += 1
        if run == run_count:
            return STATUS_INTERNAL
        count = min(runs[run].end_row, stop) - row
        if build.has_column[COLUMN_TIMESTAMP_TYPE]:
            status = _repeat(
                &columns[COLUMN_TIMESTAMP_TYPE], first_row, count, runs[run].timestamp_type, 4,
                runs[run].timestamp_type < 0,
            )
        if build.has_column[COLUMN_PRODUCER_ID] and status == STATUS_OK:
            status = _repeat(
                &columns[COLUMN_PRODUCER_ID], first_row, count, runs[run].producer_id, 8,
                runs[run].producer_id < 0,
            )
        if build.has_column[COLUMN_PRODUCER_EPOCH] and status == STATUS_OK:
            status = _repeat(
                &columns[COLUMN_PRODUCER_EPOCH], first_row, count, runs[run].producer_epoch, 2,
                runs[run].producer_epoch < 0,
            )
        if build.has_column[COLUMN_LEADER_EPOCH] and status == STATUS_OK:
            status = _repeat(
                &columns[COLUMN_LEADER_EPOCH], first_row, count, runs[run].leader_epoch, 4,
                runs[run].leader_epoch < 0,
            )
        if build.has_column[COLUMN_SEQUENCE] and status == STATUS_OK:
            status = _add_sequences(build, first_row, &runs[run], offsets + row, count)
        first_row += count
        row += count
    return status


cdef int add_constants(
    Build* build, const RowRunInfo* runs, int64_t run_count, const int64_t* offsets,
    int64_t start, int64_t stop,
) noexcept nogil:
    cdef int64_t count = stop - start
    cdef int status = STATUS_OK
    if build.has_column[COLUMN_TOPIC]:
        status = _add_topic(build, count)
    if status == STATUS_OK and build.has_column[COLUMN_PARTITION]:
        status = _repeat(
            &build.columns[COLUMN_PARTITION], build.count, count, build.partition, 4, False
        )
    if status == STATUS_OK and needs_run_info(build):
        status = _add_facts(build, runs, run_count, offsets, start, stop)
    return status


cdef void _extend(
    Window* window,
    const uint8_t* data,
    const int64_t* positions,
    const int32_t* sizes,
    const Portion* portion,
) noexcept nogil:
    """Let a window reach over cells, which lie in the data."""
    cdef const uint8_t* start = window.start
    cdef const uint8_t* end = start
    cdef const uint8_t* cell
    cdef int64_t row
    if start != NULL:
        end += window.size
    for row in range(portion.start, portion.stop):
        if sizes[row] > 0:
            cell = data + positions[row]
            start = cell if start == NULL or cell < start else start
            end = cell + sizes[row] if cell + sizes[row] > end else end
    window.start = start
    window.size = end - start


cdef void _open_window(
    Build* build,
    const ColumnPointers* rows,
    const uint8_t* data,
    const Portion* portion,
    bint is_continued,
) noexcept nogil:
    """Let the last window reach over the portion, where it is of the same data, or open another."""
    cdef Window window
    cdef Window* last
    window.start = NULL
    window.size = 0
    if build.has_column[COLUMN_KEY]:
        _extend(&window, data, rows.key_position, rows.key_size, portion)
    if build.has_column[COLUMN_VALUE]:
        _extend(&window, data, rows.value_position, rows.value_size, portion)
    if window.start == NULL:
        window.start = data            # every cell is empty or null: nothing is pointed at
    if is_continued and build.window_count > 0:
        last = &build.windows[build.window_count - 1]
        if (
            window.start >= last.start
            and window.start + window.size - last.start <= INT32_MAX
        ):
            last.size = max(last.size, window.start + window.size - last.start)
            return
    build.windows[build.window_count] = window
    build.window_count += 1


cdef int add_rows_kernel(
    Build* build,
    const ColumnPointers* rows,
    const uint8_t* data,
    int64_t data_size,
    const RowRunInfo* runs,
    int64_t run_count,
    bint lasting,
    bint is_continued,
    int64_t end,
    Portion* portion,
) noexcept nogil:
    cdef int64_t start = portion.start
    cdef int64_t count
    cdef int status = measure_kernel(build, rows, data, data_size, end, portion)
    cdef Column* column = &build.columns[COLUMN_OFFSET]
    count = portion.stop - start
    if status != STATUS_OK or count == 0:
        return status
    if lasting:
        _open_window(build, rows, data, portion, is_continued)
    if build.has_column[COLUMN_OFFSET]:
        if reserve(&column.slots, 8 * count) != STATUS_OK:
            return STATUS_NO_MEMORY
        memcpy(column.slots.data + column.slots.size, rows.offset + start, <size_t>(8 * count))
        column.slots.size += 8 * count
    if build.has_column[COLUMN_TIMESTAMP]:
        status = _add_timestamps(build, rows.timestamp + start, count)
    if status == STATUS_OK and build.has_column[COLUMN_KEY]:
        status = _add_cells(
            build, COLUMN_KEY, rows.key_position + start, rows.key_size + start, data, data_size,
            lasting, count, portion.key_bytes, portion.key_nulls,
        )
    if status == STATUS_OK and build.has_column[COLUMN_VALUE]:
        status = _add_cells(
            build, COLUMN_VALUE, rows.value_position + start, rows.value_size + start, data,
            data_size, lasting, count, portion.value_bytes, portion.value_nulls,
        )
    if status == STATUS_OK and build.has_column[COLUMN_HEADERS]:
        status = _add_headers(build, rows, data, portion)
    if status == STATUS_OK:
        status = add_constants(build, runs, run_count, rows.offset, start, portion.stop)
    build.count += count
    build.size_bytes += portion.size_bytes
    return status
