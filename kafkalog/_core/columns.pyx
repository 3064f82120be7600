"""Decoder of records into caller-owned columns of positions and sizes: no bytes are copied.

`decode_columns` takes the plain records of one batch, `decode_run` walks over many uncompressed
batches in one call: CRC and records tile by tile, so that the bytes come from memory once. Plain
messages of the old formats are batches of one record; message.pyx decodes the compressed ones.
Verdicts are those of record.pyx. Rows of a batch that is refused are not counted.

Thread-safety: one caller at a time for a RecordColumns; nothing else has state.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memset

import numpy as np

from kafkalog._core.codec cimport is_known_codec
from kafkalog._core.header cimport (
    BatchFields,
    BatchHeader,
    is_legacy,
    load_whole_batch,
)
from kafkalog._core.crc32c cimport crc32c
from kafkalog._core.cursor cimport Cursor, remaining
from kafkalog._core.layout cimport (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CODEC_NONE,
    RECORD_BATCH_OVERHEAD,
)
from kafkalog._core.message_set cimport (
    MessageFields,
    check_is_plain,
    load_message,
    record_fields_of,
)
from kafkalog._core.prefetch cimport PrefetchWindow, prefetch_window, prefetch_next_lines
from kafkalog._core.record cimport (
    check_count,
    check_end,
    check_payload,
    context_of,
    header_context,
    next_record,
    NOGIL_SIZE_MIN,
    offset_of,
    open_payload,
    PayloadRef,
    RecordFields,
    RecordsContext,
    timestamp_of,
    record_error_status,
)
from kafkalog._core.status cimport (
    STATUS_COMPRESSED,
    STATUS_CRC,
    STATUS_FULL,
    STATUS_OK,
    STATUS_RECORD_LENGTH,
    STATUS_TRUNCATED,
    STATUS_UNKNOWN_CODEC,
    raise_for_status,
)


cdef enum:
    # Bytes that the CRC reads before the decoder does: a third of a common first-level cache.
    TILE_SIZE = 16 * 1024


# State of the decoding of one batch, tile by tile.
cdef struct ColumnsState:
    RecordsContext context
    const uint8_t* start               # origin of positions
    const uint8_t* readable_end        # end of the buffer after the batch: limit of prefetches
    int64_t row
    int64_t end_row


cdef int _columns_kernel(
    ColumnsState* state,
    Cursor* cursor,
    const uint8_t* tile_end,
    const ColumnPointers* targets,
) noexcept nogil:
    """Fill a row for each record that begins before `tile_end`; the caller ensures the capacity."""
    # Copies: the compiler must not fear that a store to a column changes them.
    cdef RecordsContext context = state.context
    cdef ColumnPointers columns = targets[0]
    cdef const uint8_t* start = state.start
    cdef const uint8_t* position = cursor.position
    cdef const uint8_t* end = cursor.end
    cdef const uint8_t* next_position
    cdef PrefetchWindow ahead = prefetch_window(tile_end, state.readable_end)
    cdef RecordFields fields
    cdef int64_t row = state.row
    cdef int64_t end_row = state.end_row
    cdef int status = STATUS_OK
    while row < end_row and position < tile_end:
        next_position = next_record(&context, position, end, &fields)
        if next_position == NULL:
            status = record_error_status(position, end)
            break
        prefetch_next_lines(&ahead)
        position = next_position
        store_row(&columns, row, start, offset_of(&context, &fields),
                  timestamp_of(&context, &fields), &fields)
        row += 1
    cursor.position = position
    state.context.previous_delta = context.previous_delta
    state.row = row
    return status


cdef int _end_of_columns(const ColumnsState* state, const Cursor* cursor) noexcept nogil:
    """Return the verdict on a batch whose records were all good."""
    if state.row < state.end_row:
        return STATUS_TRUNCATED        # bytes came to an end before the records did
    return check_end(&state.context, cursor)


cdef int _payload_kernel(
    ColumnsState* state, Cursor* cursor, const ColumnPointers* columns
) noexcept nogil:
    """Decode plain records, all at once: their decompression has just written them."""
    cdef int status = _columns_kernel(state, cursor, cursor.end, columns)
    return _end_of_columns(state, cursor) if status == STATUS_OK else status


cdef int _batch_kernel(
    const uint8_t* batch,
    const BatchFields* fields,
    bint check_crc,
    ColumnsState* state,
    const ColumnPointers* columns,
    int64_t capacity,
) noexcept nogil:
    """
    Check and decode one whole batch whose header is good, a tile at a time.

    Each tile is decoded while it is in the nearest cache after the CRC: one pass over memory
    instead of two. So records are read before the CRC is known, which is safe, because the decoder
    checks every bound; but a wrong CRC is the verdict whatever the decoder found.
    """
    cdef Cursor records
    cdef const uint8_t* tile = batch + ATTRIBUTES_POSITION
    cdef const uint8_t* tile_end
    cdef uint32_t crc = 0
    cdef int codec = fields.attributes & CODEC_MASK
    cdef int status = STATUS_OK
    records.position = batch + RECORD_BATCH_OVERHEAD
    records.end = batch + fields.size_bytes
    if codec != CODEC_NONE:
        status = STATUS_COMPRESSED if is_known_codec(codec) else STATUS_UNKNOWN_CODEC
    elif fields.record_count > capacity - state.row:
        status = STATUS_FULL
    else:
        status = check_count(&state.context, &records)
    if status == STATUS_FULL and state.row > 0:
        return status                  # with a larger capacity the call is repeated, with the CRC
    while tile < records.end:
        tile_end = records.end
        if status == STATUS_OK and tile_end - tile > TILE_SIZE + TILE_SIZE // 2:
            tile_end = tile + TILE_SIZE
        if check_crc:
            crc = crc32c(crc, tile, <size_t>(tile_end - tile))
        tile = tile_end
        if status == STATUS_OK:
            status = _columns_kernel(state, &records, tile_end, columns)
    if check_crc and crc != fields.crc:
        return STATUS_CRC
    if status == STATUS_OK:
        status = _end_of_columns(state, &records)
    # The batch is all there: records that run out of bytes are wrong, which is no torn tail.
    return STATUS_RECORD_LENGTH if status == STATUS_TRUNCATED else status


cdef int decode_plain_batch(
    const uint8_t* batch,
    const BatchFields* fields,
    const uint8_t* start,
    const uint8_t* readable_end,
    const ColumnPointers* columns,
    int64_t capacity,
    int64_t* rows,
    bint check_crc,
    bint strict,
) noexcept nogil:
    """Add the rows of one whole uncompressed v2 batch; positions count from `start`."""
    cdef ColumnsState state
    cdef int status
    state.context = context_of(fields, strict)
    state.start = start
    state.readable_end = readable_end
    state.row = rows[0]
    state.end_row = rows[0] + fields.record_count
    status = _batch_kernel(batch, fields, check_crc, &state, columns, capacity)
    if status == STATUS_OK:
        rows[0] = state.row
    return status


cdef int decode_payload(
    const uint8_t* start,
    const uint8_t* payload,
    int64_t size,
    const BatchFields* fields,
    bint strict,
    const ColumnPointers* columns,
    int64_t capacity,
    int64_t* rows,
) noexcept nogil:
    """Add the rows of a v2 batch from what its codec made; positions count from `start`."""
    cdef ColumnsState state
    cdef Cursor cursor
    cdef int status
    cursor.position = payload
    cursor.end = payload + size
    state.context = context_of(fields, strict)
    state.start = start
    state.readable_end = cursor.end
    state.row = rows[0]
    state.end_row = rows[0] + fields.record_count
    status = check_count(&state.context, &cursor)
    if status == STATUS_OK and fields.record_count > capacity - state.row:
        status = STATUS_FULL
    if status == STATUS_OK:
        status = _payload_kernel(&state, &cursor, columns)
    if status == STATUS_OK:
        rows[0] = state.row
    return status


cdef int _message_kernel(
    const uint8_t* entry,
    const BatchFields* fields,
    bint check_crc,
    bint strict,
    const uint8_t* start,
    const ColumnPointers* columns,
    int64_t capacity,
    int64_t* rows,
) noexcept nogil:
    """Check and decode one whole message of an old format, the batch of a single record."""
    cdef MessageFields message
    cdef RecordFields record
    cdef int64_t row = rows[0]
    cdef int status = check_is_plain(entry, fields, check_crc)
    if status != STATUS_OK:
        return status
    if row >= capacity:
        return STATUS_FULL
    status = load_message(entry, entry + fields.size_bytes, check_crc, strict, &message)
    if status != STATUS_OK:
        return status
    record_fields_of(&message, &record)
    store_row(columns, row, start, fields.base_offset, message.timestamp, &record)
    rows[0] = row + 1
    return STATUS_OK


cdef int _run_kernel(
    Cursor* cursor,
    const uint8_t* start,
    bint check_crc,
    bint strict,
    const ColumnPointers* columns,
    int64_t capacity,
    int64_t* rows,
    int64_t* batches,
) noexcept nogil:
    cdef BatchFields fields
    cdef const uint8_t* readable_end = cursor.end
    cdef int status
    memset(&fields, 0, sizeof(fields))     # gcc does not see that a good status means loaded
    while cursor.position < cursor.end:
        status = load_whole_batch(cursor, &fields)
        if status != STATUS_OK:
            return status
        if is_legacy(&fields):
            status = _message_kernel(
                cursor.position, &fields, check_crc, strict, start, columns, capacity, rows
            )
            if status != STATUS_OK:
                return status
            batches[0] += 1
            cursor.position += fields.size_bytes
            continue
        status = decode_plain_batch(
            cursor.position, &fields, start, readable_end, columns, capacity, rows, check_crc,
            strict,
        )
        if status != STATUS_OK:
            return status
        batches[0] += 1
        cursor.position += fields.size_bytes
    return STATUS_OK


cdef class RecordColumns:
    """
    Nine NumPy columns, one row a record, filled by `decode_columns` and `decode_run`.

    Positions count from the first byte of the buffer that was decoded. Attributes are the rows
    used so far, as arrays that share memory with the columns: `clear()` and the next decode
    overwrite them. Sizes of -1 mean null.

    Thread-safety: none; one caller at a time.
    """

    def __cinit__(self, Py_ssize_t capacity):
        if capacity <= 0:
            raise ValueError(f"capacity must be above 0, got {capacity}")
        self.capacity = capacity
        self._arrays = {}
        self._views = []
        self.pointers.offset = self._add_long("offset")
        self.pointers.timestamp = self._add_long("timestamp")
        self.pointers.key_position = self._add_long("key_position")
        self.pointers.value_position = self._add_long("value_position")
        self.pointers.headers_position = self._add_long("headers_position")
        self.pointers.key_size = self._add_int("key_size")
        self.pointers.value_size = self._add_int("value_size")
        self.pointers.headers_size = self._add_int("headers_size")
        self.pointers.header_count = self._add_int("header_count")

    cdef int64_t* _add_long(self, str name) except NULL:
        cdef object array = np.zeros(self.capacity, dtype=np.int64)
        cdef int64_t[::1] view = array
        self._arrays[name] = array
        self._views.append(view)
        return &view[0]

    cdef int32_t* _add_int(self, str name) except NULL:
        cdef object array = np.zeros(self.capacity, dtype=np.int32)
        cdef int32_t[::1] view = array
        self._arrays[name] = array
        self._views.append(view)
        return &view[0]

    def __len__(self):
        return self.count

    def __repr__(self):
        return f"RecordColumns({self.count} of {self.capacity} rows)"

    def clear(self):
        """Forget all rows."""
        self.count = 0

    cdef object _used(self, str name):
        return self._arrays[name][:self.count]

    @property
    def offset(self):
        """Offsets of the records, int64."""
        return self._used("offset")

    @property
    def timestamp(self):
        """Timestamps in ms, int64; the append time where the batch has one."""
        return self._used("timestamp")

    @property
    def key_position(self):
        """Position of each key, int64."""
        return self._used("key_position")

    @property
    def key_size(self):
        """Bytes of each key, int32; -1 for null."""
        return self._used("key_size")

    @property
    def value_position(self):
        """Position of each value, int64."""
        return self._used("value_position")

    @property
    def value_size(self):
        """Bytes of each value, int32; -1 for null."""
        return self._used("value_size")

    @property
    def headers_position(self):
        """Position of the first header, after the header count, int64."""
        return self._used("headers_position")

    @property
    def headers_size(self):
        """Bytes of all headers of a record, int32."""
        return self._used("headers_size")

    @property
    def header_count(self):
        """Headers of each record, int32."""
        return self._used("header_count")


def decode_columns(
    payload not None,
    BatchHeader header not None,
    Py_ssize_t start,
    Py_ssize_t end,
    RecordColumns columns not None,
    *,
    bint strict=True,
):
    """
    Add the records in `payload[start:end]` to the columns and return how many they are.

    Raises:
        CorruptRecordError: as in `decode_records`; the columns keep the rows they had.
        InvalidRecordError: the remaining capacity of the columns is too small.
    """
    cdef PayloadRef hold = PayloadRef.__new__(PayloadRef, payload)
    cdef ColumnsState state
    cdef Cursor cursor = open_payload(&hold.view, start, end)
    cdef int status
    state.context = header_context(header, strict)
    state.start = <const uint8_t*>hold.view.buf
    state.readable_end = cursor.end
    state.row = columns.count
    state.end_row = state.row + state.context.record_count
    status = check_count(&state.context, &cursor)
    if status == STATUS_OK and state.end_row > columns.capacity:
        status = STATUS_FULL
    if status == STATUS_OK:
        if end - start < NOGIL_SIZE_MIN:
            status = _payload_kernel(&state, &cursor, &columns.pointers)
        else:
            with nogil:
                status = _payload_kernel(&state, &cursor, &columns.pointers)
    check_payload(&hold.view, start, end)
    if status != STATUS_OK:
        start = cursor.position - state.start
        raise_for_status(status, start, None, header.base_offset)
    columns.count = state.row
    return state.context.record_count


def decode_run(
    data not None,
    Py_ssize_t position,
    RecordColumns columns not None,
    *,
    end=None,
    bint check_crc=True,
    bint strict=True,
):
    """
    Add the records of the uncompressed batches from `position` to `end` to the columns.

    Batches of all formats, mixed. Stops before the first that it cannot decode, with a status:
    STATUS_COMPRESSED (a wrapper of an old format as well), STATUS_FULL (the whole batch does not
    fit), STATUS_TRUNCATED (the last batch is incomplete), or its error. The CRC of a batch is
    checked before STATUS_FULL only if the columns are empty: a false record count must not look
    like a small capacity there.

    Releases the GIL for NOGIL_SIZE_MIN bytes and more.

    Returns:
        (rows added, batches read, position reached, status)
    """
    cdef PayloadRef hold = PayloadRef.__new__(PayloadRef, data)
    cdef int64_t rows = columns.count
    cdef int64_t batches = 0
    cdef const uint8_t* start = <const uint8_t*>hold.view.buf
    cdef int status
    cdef Cursor cursor = open_payload(&hold.view, position, hold.view.len if end is None else end)
    if remaining(&cursor) < NOGIL_SIZE_MIN:
        status = _run_kernel(
            &cursor, start, check_crc, strict, &columns.pointers, columns.capacity, &rows, &batches
        )
    else:
        with nogil:
            status = _run_kernel(
                &cursor,
                start,
                check_crc,
                strict,
                &columns.pointers,
                columns.capacity,
                &rows,
                &batches,
            )
    check_payload(&hold.view, position, cursor.end - start)
    cdef Py_ssize_t added = rows - columns.count
    columns.count = rows
    return added, batches, cursor.position - start, status
