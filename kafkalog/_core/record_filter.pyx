"""Filter of batches of format v2 for compaction (MemoryRecords.filterTo in Kafka).

Which records stay is decided elsewhere and comes as a flag for each row of the columns that the
batches were decoded to. A batch that loses records keeps its base offset, last offset, sequence,
producer and leader epoch, and its records keep theirs; timestamps count from another base, the
first record's or the delete horizon, so that each record gets a new delta and is copied otherwise.

Callers are the filter of the cleaner. Compressing is the caller's: records of a compressed batch
are rewritten from what came out of the codec, and wrapped once they are compressed again.

Thread-safety: pure functions.
"""

from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from kafkalog._core.columns cimport ColumnPointers, RecordColumns
from kafkalog._core.copying cimport copy_bytes
from kafkalog._core.cursor cimport Cursor, remaining
from kafkalog._core.header cimport (
    BatchFields,
    is_legacy,
    is_plain_v2,
    load_whole_batch,
    open_cursor,
)
from kafkalog._core.header_writer cimport write_batch_header
from kafkalog._core.layout cimport (
    BATCH_LENGTH_MAX,
    CODEC_MASK,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    RECORD_BATCH_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)
from kafkalog._core.mapping cimport check_read
from kafkalog._core.status cimport (
    STATUS_FULL,
    STATUS_LEGACY,
    STATUS_OK,
    STATUS_RECORD_LENGTH,
    STATUS_TOO_LARGE,
    raise_for_status,
)
from kafkalog._core.varint cimport read_varint, read_varlong, size_of_varlong, write_varint
from kafkalog._core.varint cimport write_varlong

cdef enum:
    # Bits of the attributes that a rewritten batch keeps; unknown ones are cleared.
    KEPT_MASK = TIMESTAMP_TYPE_MASK | TRANSACTIONAL_MASK | CONTROL_MASK

DROP = ACTION_DROP
COPY = ACTION_COPY
EMPTY = ACTION_EMPTY
REWRITE = ACTION_REWRITE


# ---- kernels ----


cdef inline int _record_kernel(
    const uint8_t* record, const uint8_t* record_end, int64_t delta, OutputSpace* target
) noexcept nogil:
    """Copy one record with another timestamp delta."""
    cdef Cursor source
    cdef int32_t length = 0
    cdef int64_t old_delta = 0
    cdef int64_t body_size
    source.position = record
    source.end = record_end
    if read_varint(&source, &length) != STATUS_OK or remaining(&source) < 1:
        return STATUS_RECORD_LENGTH
    source.position += 1               # attributes, of which there are none
    if read_varlong(&source, &old_delta) != STATUS_OK:
        return STATUS_RECORD_LENGTH
    body_size = 1 + size_of_varlong(delta) + remaining(&source)
    if body_size > INT32_MAX:
        return STATUS_TOO_LARGE
    if space_left(target) < record_end - record + RECORD_GROWTH_MAX:
        return STATUS_FULL
    target.position = write_varint(target.position, <int32_t>body_size)
    target.position[0] = 0
    target.position = write_varlong(target.position + 1, delta)
    copy_bytes(target.position, source.position, remaining(&source))
    target.position += remaining(&source)
    return STATUS_OK


cdef int records_kernel(
    const uint8_t* data,
    int64_t data_size,
    const ColumnPointers* columns,
    const uint8_t* keep,
    RowRange* rows,
    OutputSpace* target,
) noexcept nogil:
    """Copy the records that stay of one batch; every record ends where its last header does."""
    cdef int64_t row, record_end
    cdef int64_t position = rows.position
    cdef int status
    rows.count = 0
    rows.max_timestamp = NO_TIMESTAMP
    for row in range(rows.start, rows.end):
        record_end = columns.headers_position[row] + columns.headers_size[row]
        if position < 0 or record_end < position or record_end > data_size:
            return STATUS_RECORD_LENGTH
        if keep[row]:
            status = _record_kernel(
                data + position,
                data + record_end,
                <int64_t>(<uint64_t>columns.timestamp[row] - <uint64_t>rows.base_timestamp),
                target,
            )
            if status != STATUS_OK:
                return status
            rows.count += 1
            if columns.timestamp[row] > rows.max_timestamp:
                rows.max_timestamp = columns.timestamp[row]
        position = record_end
    return STATUS_OK


cdef void change_header(
    BatchFields* fields, const RowRange* rows, bint has_horizon, int codec
) noexcept nogil:
    """Set the fields of a header to those of the filtered batch."""
    fields.attributes = <int16_t>(
        (fields.attributes & KEPT_MASK) | codec | (DELETE_HORIZON_MASK if has_horizon else 0))
    fields.base_timestamp = rows.base_timestamp
    fields.record_count = <int32_t>rows.count
    if rows.count > 0 and not fields.attributes & TIMESTAMP_TYPE_MASK:
        fields.max_timestamp = rows.max_timestamp


cdef int64_t first_timestamp(
    const ColumnPointers* columns, const uint8_t* keep, int64_t start, int64_t end
) noexcept nogil:
    """Return the timestamp of the first record that stays."""
    cdef int64_t row
    for row in range(start, end):
        if keep[row]:
            return columns.timestamp[row]
    return NO_TIMESTAMP


cdef int retained_batch_kernel(
    const uint8_t* data,
    int64_t data_size,
    const uint8_t* batch,
    BatchFields* fields,
    const ColumnPointers* columns,
    const uint8_t* keep,
    RowRange* rows,
    int action,
    bint has_horizon,
    OutputSpace* target,
) noexcept nogil:
    """Write one filtered batch; `rows` has the range of its records, and the horizon."""
    cdef uint8_t* start = target.position
    cdef int status = STATUS_OK
    if action == ACTION_COPY:
        if space_left(target) < fields.size_bytes:
            return STATUS_FULL
        memcpy(start, batch, <size_t>fields.size_bytes)
        target.position += fields.size_bytes
        return STATUS_OK
    if not is_plain_v2(fields, CODEC_MASK):
        return STATUS_LEGACY
    if space_left(target) < RECORD_BATCH_OVERHEAD:
        return STATUS_FULL
    target.position += RECORD_BATCH_OVERHEAD
    rows.count = 0
    if action == ACTION_EMPTY:
        rows.base_timestamp = NO_TIMESTAMP
        has_horizon = False
    else:
        if not has_horizon:
            rows.base_timestamp = first_timestamp(columns, keep, rows.start, rows.end)
        rows.position = batch - data + RECORD_BATCH_OVERHEAD
        status = records_kernel(data, data_size, columns, keep, rows, target)
    if status != STATUS_OK:
        return status
    if target.position - start - LOG_OVERHEAD > BATCH_LENGTH_MAX:
        return STATUS_TOO_LARGE
    change_header(fields, rows, has_horizon, 0)
    write_batch_header(start, target.position - start, fields)
    return STATUS_OK


cdef int _run_kernel(
    const uint8_t* data,
    int64_t data_size,
    Cursor* source,
    const uint8_t* actions,
    const int64_t* first_rows,
    const uint8_t* has_horizon,
    const int64_t* horizons,
    int64_t count,
    const ColumnPointers* columns,
    const uint8_t* keep,
    OutputSpace* target,
) noexcept nogil:
    cdef BatchFields fields
    cdef RowRange rows
    cdef const uint8_t* batch
    cdef int64_t i
    cdef int status
    memset(&fields, 0, sizeof(fields))
    for i in range(count):
        batch = source.position
        status = load_whole_batch(source, &fields)
        if status != STATUS_OK:
            return status
        if actions[i] != ACTION_DROP:
            rows.start = first_rows[i]
            rows.end = first_rows[i + 1]
            rows.base_timestamp = horizons[i]
            status = retained_batch_kernel(
                data, data_size, batch, &fields, columns, keep, &rows, actions[i],
                has_horizon[i] != 0, target,
            )
            if status != STATUS_OK:
                return status
        source.position += fields.size_bytes
    return STATUS_OK


cdef void _count_kernel(
    const uint8_t* flags, const int64_t* first_rows, int64_t count, int64_t* counts
) noexcept nogil:
    cdef int64_t i, row, found
    for i in range(count):
        found = 0
        for row in range(first_rows[i], first_rows[i + 1]):
            found += flags[row]
        counts[i] = found


# ---- entry points ----


cdef int _check_rows(
    RecordColumns columns, const uint8_t[::1] keep, int64_t start, int64_t end
) except -1:
    if start < 0 or end < start or end > columns.count or keep.shape[0] < end:
        raise IndexError(
            f"rows {start} to {end} are not among {columns.count} with {keep.shape[0]} flags")
    return 0


def count_flags(
    const uint8_t[::1] flags not None,
    const int64_t[::1] first_rows not None,
    int64_t[::1] counts not None,
):
    """
    Count the rows of each batch that have a flag, which is 1.

    Args:
        flags: a byte for each row, 0 or 1.
        first_rows: the first row of each batch, and the end of the last one's; they rise.
        counts: gets a number for each batch.
    """
    cdef Py_ssize_t count = first_rows.shape[0] - 1
    cdef Py_ssize_t i
    if count < 0 or counts.shape[0] != count:
        raise ValueError(f"counts must have {max(count, 0)} rows, got {counts.shape[0]}")
    for i in range(count):
        if first_rows[i] < 0 or first_rows[i + 1] < first_rows[i]:
            raise IndexError(f"batch {i} has rows {first_rows[i]} to {first_rows[i + 1]}")
    if first_rows[count] > flags.shape[0]:
        raise IndexError(f"row {first_rows[count]} of {flags.shape[0]}")
    if count > 0 and flags.shape[0] > 0:
        _count_kernel(&flags[0], &first_rows[0], count, &counts[0])
    else:
        for i in range(count):
            counts[i] = 0


def judge_batches(
    const int64_t[::1] kept not None,
    const int64_t[::1] record_counts not None,
    const uint8_t[::1] starts_horizon not None,
    const uint8_t[::1] shows_end not None,
    uint8_t[::1] has_horizon not None,
    int64_t[::1] horizons not None,
    uint8_t[::1] actions not None,
    int64_t new_horizon_ms,
):
    """
    Decide what becomes of each batch (`judge_batch`); return how many got a delete horizon.

    Args:
        kept, record_counts: records that stay, and all records.
        starts_horizon: whether the time of tombstones or of a marker begins with this pass.
        shows_end: whether the header stays without records.
        has_horizon, horizons: delete horizons; those that are set now are added.
        actions: DROP, COPY, EMPTY or REWRITE is written here.
        new_horizon_ms: the horizon of those that get one.
    """
    cdef BatchFate fate
    cdef Py_ssize_t count = actions.shape[0]
    cdef Py_ssize_t i
    cdef int64_t horizons_set = 0
    for other in (
        kept.shape[0], record_counts.shape[0], starts_horizon.shape[0], shows_end.shape[0],
        has_horizon.shape[0], horizons.shape[0],
    ):
        if other != count:
            raise ValueError(f"columns must have {count} batches, got {other}")
    for i in range(count):
        fate.kept = kept[i]
        fate.has_horizon = has_horizon[i] != 0
        fate.horizon_ms = horizons[i]
        judge_batch(
            &fate, record_counts[i], starts_horizon[i] != 0, new_horizon_ms, shows_end[i] != 0
        )
        has_horizon[i] = <uint8_t>fate.has_horizon
        horizons[i] = fate.horizon_ms
        actions[i] = <uint8_t>fate.action
        horizons_set += fate.sets_horizon
    return horizons_set


def max_output_bytes(RecordColumns columns not None, int64_t size):
    """Return the bytes that batches or records of `size` bytes may become at most."""
    return size + RECORD_GROWTH_MAX * columns.count + RECORD_BATCH_OVERHEAD


def write_retained(
    const uint8_t[::1] data not None,
    Py_ssize_t position,
    const uint8_t[::1] actions not None,
    const int64_t[::1] first_rows not None,
    const uint8_t[::1] has_horizon not None,
    const int64_t[::1] horizons not None,
    RecordColumns columns not None,
    const uint8_t[::1] keep not None,
    uint8_t[::1] output not None,
):
    """
    Write what the batches from `position` have become, which are uncompressed, of any format.

    Args:
        data: source buffer of the rows of `columns`.
        actions: DROP, COPY, EMPTY or REWRITE for each batch; the latter two only for v2.
        first_rows: first row of each batch, and the end of the rows of the last.
        has_horizon, horizons: whether a rewritten batch has a delete horizon, and its value.
        columns, keep: the records, and a flag for each that stays.
        output: target; `max_output_bytes` returns a sufficient size.
            A reused output costs no new pages.

    Returns:
        How many bytes were written.

    Raises:
        CorruptRecordError: a batch is not of format v2, or the columns are not those of `data`.
        InvalidRecordError: the output is too small.
        RecordTooLargeError: a batch became too large for the format.
    """
    cdef Cursor source
    cdef OutputSpace target
    cdef Py_ssize_t count = actions.shape[0]
    cdef const uint8_t* first = open_cursor(data, position, None, &source)
    cdef const uint8_t* flags = &keep[0] if keep.shape[0] > 0 else NULL
    cdef Py_ssize_t i
    cdef int status
    if (
        first_rows.shape[0] != count + 1
        or has_horizon.shape[0] != count
        or horizons.shape[0] != count
    ):
        raise ValueError(
            f"for {count} actions, first_rows must be {count + 1} and horizons {count}, "
            f"got {first_rows.shape[0]} and {has_horizon.shape[0]}, {horizons.shape[0]}"
        )
    if count == 0 or output.shape[0] == 0:
        raise_for_status(STATUS_OK if count == 0 else STATUS_FULL, 0)
        return 0
    for i in range(count):
        _check_rows(columns, keep, first_rows[i], first_rows[i + 1])
    target.position = &output[0]
    target.end = target.position + output.shape[0]
    with nogil:
        status = _run_kernel(
            first, data.shape[0], &source, &actions[0], &first_rows[0], &has_horizon[0],
            &horizons[0], count, &columns.pointers, flags, &target,
        )
    check_read(first, data.shape[0])
    raise_for_status(status, source.position - first)
    return target.position - &output[0]


def retained_records(
    const uint8_t[::1] payload not None,
    Py_ssize_t start,
    Py_ssize_t end,
    RecordColumns columns not None,
    const uint8_t[::1] keep not None,
    int64_t first_row,
    int64_t end_row,
    horizon,
):
    """
    Return the records that stay of one batch, uncompressed, and their base and highest timestamp.

    Args:
        payload: its uncompressed records, from `start` to `end`.
        columns, keep: as for `write_retained`.
        first_row, end_row: which rows are its records.
        horizon: the delete horizon that timestamps count from; None for the first record's.
    """
    cdef RowRange rows
    cdef OutputSpace target
    cdef const uint8_t* flags = &keep[0] if keep.shape[0] > 0 else NULL
    cdef uint8_t[::1] output
    cdef int status
    _check_rows(columns, keep, first_row, end_row)
    if start < 0 or end < start or end > payload.shape[0]:
        raise IndexError(f"records from {start} to {end} are not in {payload.shape[0]} bytes")
    rows.start = first_row
    rows.end = end_row
    rows.position = start
    rows.base_timestamp = (
        first_timestamp(&columns.pointers, flags, first_row, end_row)
        if horizon is None
        else horizon
    )
    result = bytearray(
        end - start + RECORD_GROWTH_MAX * (end_row - first_row) + RECORD_BATCH_OVERHEAD)
    output = result
    target.position = &output[0]
    target.end = target.position + output.shape[0]
    cdef const uint8_t* first = &payload[0] if end > 0 else <const uint8_t*>target.position
    with nogil:
        status = records_kernel(first, end, &columns.pointers, flags, &rows, &target)
    check_read(first, end)
    raise_for_status(status, start)
    view = memoryview(result)[:target.position - &output[0]]
    return view, rows.base_timestamp, rows.max_timestamp, rows.count


def wrap_retained(
    const uint8_t[::1] batch not None,
    const uint8_t[::1] payload not None,
    int codec,
    int64_t base_timestamp,
    int64_t max_timestamp,
    int32_t count,
    bint has_horizon,
):
    """
    Return the v2 batch with the records that stay, or none of them.

    Args:
        batch: the whole batch as it was.
        payload: the records, compressed by `codec`.
        base_timestamp, max_timestamp, count: from `retained_records`.
        has_horizon: whether the base timestamp is a delete horizon.
    """
    cdef Cursor cursor
    cdef BatchFields fields
    cdef RowRange rows
    cdef Py_ssize_t size = RECORD_BATCH_OVERHEAD + payload.shape[0]
    cdef uint8_t[::1] target
    memset(&fields, 0, sizeof(fields))
    open_cursor(batch, 0, None, &cursor)
    cdef int status = load_whole_batch(&cursor, &fields)
    if status == STATUS_OK and is_legacy(&fields):
        status = STATUS_LEGACY
    elif status == STATUS_OK and size - LOG_OVERHEAD > BATCH_LENGTH_MAX:
        status = STATUS_TOO_LARGE
    raise_for_status(status, 0)
    rows.base_timestamp = base_timestamp
    rows.max_timestamp = max_timestamp
    rows.count = count
    change_header(&fields, &rows, has_horizon, codec)
    result = bytearray(size)
    target = result
    if payload.shape[0] > 0:
        memcpy(&target[0] + RECORD_BATCH_OVERHEAD, &payload[0], <size_t>payload.shape[0])
    write_batch_header(&target[0], size, &fields)
    return result
