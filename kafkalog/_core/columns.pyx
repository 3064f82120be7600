"""Decode records into caller-owned columns of positions and sizes: no bytes are copied.

`decode_columns` takes the plain records of one batch, `decode_run` walks over many uncompressed
batches in one call without the GIL, CRC first (which also fetches the bytes into the cache).
Verdicts are those of record.pyx. Rows of a batch that is refused are not counted.

Thread-safety: one caller at a time for a RecordColumns; nothing else has state.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

import numpy as np

from kafkalog._core.header cimport BatchFields, BatchHeader, load_whole_batch
from kafkalog._core.crc32c cimport crc32c
from kafkalog._core.cursor cimport Cursor
from kafkalog._core.layout cimport (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CODEC_NONE,
    CODEC_ZSTD,
    RECORD_BATCH_OVERHEAD,
)
from kafkalog._core.prefetch cimport prefetch
from kafkalog._core.record cimport (
    PayloadHold,
    RecordFields,
    RecordsContext,
    check_count,
    check_end,
    context_of,
    header_context,
    next_record,
    offset_of,
    open_payload,
    timestamp_of,
    why_refused,
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
    # How far ahead of a record its loop asks for lines: about one producer batch, so that the next
    # CRC finds them near. From memory 17.3 -> 14.1 ns a record of 127 bytes, from cache 11.7 ->
    # 9.9; half and double the distance gain less.
    PREFETCH_DISTANCE = 16 * 1024
    LINE_SIZE = 64


# One row of nine values, in nine arrays.
cdef struct ColumnPointers:
    int64_t* offset
    int64_t* timestamp
    int64_t* key_position
    int64_t* value_position
    int64_t* headers_position
    int32_t* key_size
    int32_t* value_size
    int32_t* headers_size
    int32_t* header_count


cdef int _columns_kernel(
    const RecordsContext* given,
    Cursor* cursor,
    const uint8_t* start,
    const ColumnPointers* targets,
    int64_t row,
    const uint8_t* run_end,
) noexcept nogil:
    """
    Fill rows from `row` on; positions count from `start`. The caller has made room.

    `run_end` bounds what is asked for ahead: the buffer goes on there behind this batch.
    """
    # Copies: the compiler must not fear that a store to a column changes them.
    cdef RecordsContext context = given[0]
    cdef ColumnPointers columns = targets[0]
    cdef const uint8_t* position = cursor.position
    cdef const uint8_t* end = cursor.end
    cdef const uint8_t* next_position
    cdef RecordFields fields
    cdef int64_t end_row = row + context.record_count
    cdef int status = check_count(given, cursor)
    if status != STATUS_OK:
        return status
    while row < end_row:
        next_position = next_record(&context, position, end, &fields)
        if next_position == NULL:
            cursor.position = position
            return why_refused(position, end)
        if run_end - position > PREFETCH_DISTANCE + LINE_SIZE:
            prefetch(position + PREFETCH_DISTANCE)
            prefetch(position + PREFETCH_DISTANCE + LINE_SIZE)
        position = next_position
        columns.offset[row] = offset_of(&context, &fields)
        columns.timestamp[row] = timestamp_of(&context, &fields)
        columns.key_position[row] = fields.key - start
        columns.value_position[row] = fields.value - start
        columns.headers_position[row] = fields.headers - start
        columns.key_size[row] = fields.key_size
        columns.value_size[row] = fields.value_size
        columns.headers_size[row] = <int32_t>(fields.end - fields.headers)
        columns.header_count[row] = fields.header_count
        row += 1
    cursor.position = position
    return check_end(given, cursor)


cdef int _open_batch_kernel(
    const Cursor* cursor, bint check_crc, BatchFields* fields
) noexcept nogil:
    """Check the whole batch at the cursor, as far as its records."""
    cdef int codec
    cdef int status = load_whole_batch(cursor, fields)
    if status != STATUS_OK:
        return status
    if check_crc and fields.crc != crc32c(
        0,
        cursor.position + ATTRIBUTES_POSITION,
        <size_t>(fields.size_bytes - ATTRIBUTES_POSITION),
    ):
        return STATUS_CRC
    codec = fields.attributes & CODEC_MASK
    if codec > CODEC_ZSTD:
        return STATUS_UNKNOWN_CODEC
    return STATUS_OK if codec == CODEC_NONE else STATUS_COMPRESSED


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
    cdef RecordsContext context
    cdef BatchFields fields
    cdef Cursor records
    cdef int status
    memset(&fields, 0, sizeof(fields))     # gcc does not see that a good status means loaded
    while cursor.position < cursor.end:
        status = _open_batch_kernel(cursor, check_crc, &fields)
        if status != STATUS_OK:
            return status
        if fields.record_count > capacity - rows[0]:
            return STATUS_FULL
        context = context_of(&fields, strict)
        records.position = cursor.position + RECORD_BATCH_OVERHEAD
        records.end = cursor.position + fields.size_bytes
        status = _columns_kernel(&context, &records, start, columns, rows[0], cursor.end)
        if status == STATUS_TRUNCATED:
            # The batch is all there: its records are wrong, which is no torn tail.
            return STATUS_RECORD_LENGTH
        if status != STATUS_OK:
            return status
        rows[0] += fields.record_count
        batches[0] += 1
        cursor.position += fields.size_bytes
    return STATUS_OK


@cython.final
cdef class RecordColumns:
    """
    Nine NumPy columns, one row a record, filled by `decode_columns` and `decode_run`.

    Positions count from the first byte of the buffer that was decoded. Attributes are the rows
    used so far, as arrays that share memory with the columns: `clear()` and the next decode
    overwrite them. Sizes of -1 mean null.

    Thread-safety: none; one caller at a time.
    """

    cdef readonly Py_ssize_t capacity
    cdef Py_ssize_t _count
    cdef ColumnPointers _columns
    cdef dict _arrays
    cdef list _views                   # exported buffers: the arrays cannot be resized

    def __cinit__(self, Py_ssize_t capacity):
        if capacity <= 0:
            raise ValueError(f"capacity must be above 0, not {capacity}")
        self.capacity = capacity
        self._arrays = {}
        self._views = []
        self._columns.offset = self._add_long("offset")
        self._columns.timestamp = self._add_long("timestamp")
        self._columns.key_position = self._add_long("key_position")
        self._columns.value_position = self._add_long("value_position")
        self._columns.headers_position = self._add_long("headers_position")
        self._columns.key_size = self._add_int("key_size")
        self._columns.value_size = self._add_int("value_size")
        self._columns.headers_size = self._add_int("headers_size")
        self._columns.header_count = self._add_int("header_count")

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
        return self._count

    def __repr__(self):
        return f"RecordColumns({self._count} of {self.capacity} rows)"

    def clear(self):
        """Forget all rows."""
        self._count = 0

    cdef object _used(self, str name):
        return self._arrays[name][:self._count]

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
        """Where each key begins, int64."""
        return self._used("key_position")

    @property
    def key_size(self):
        """Bytes of each key, int32; -1 for null."""
        return self._used("key_size")

    @property
    def value_position(self):
        """Where each value begins, int64."""
        return self._used("value_position")

    @property
    def value_size(self):
        """Bytes of each value, int32; -1 for null."""
        return self._used("value_size")

    @property
    def headers_position(self):
        """Where the first header begins, behind the header count, int64."""
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
        InvalidRecordError: the columns have not enough room left.
    """
    cdef PayloadHold hold = PayloadHold.__new__(PayloadHold, payload)
    cdef RecordsContext context = header_context(header, strict)
    cdef Cursor cursor = open_payload(&hold.view, start, end)
    cdef int status = check_count(&context, &cursor)
    if status == STATUS_OK:
        if context.record_count > columns.capacity - columns._count:
            status = STATUS_FULL
        else:
            with nogil:
                status = _columns_kernel(
                    &context,
                    &cursor,
                    <const uint8_t*>hold.view.buf,
                    &columns._columns,
                    columns._count,
                    cursor.end,
                )
    if status != STATUS_OK:
        start = cursor.position - <const uint8_t*>hold.view.buf
        raise_for_status(status, start, None, header.base_offset)
    columns._count += context.record_count
    return context.record_count


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

    Stops before the first batch that it cannot take, and says why by a status: STATUS_COMPRESSED,
    STATUS_LEGACY, STATUS_FULL (no room for the whole batch), STATUS_TRUNCATED (the last batch is
    not all there), or what is wrong with it. Releases the GIL.

    Returns:
        (rows added, batches read, position reached, status)
    """
    cdef PayloadHold hold = PayloadHold.__new__(PayloadHold, data)
    cdef int64_t rows = columns._count
    cdef int64_t batches = 0
    cdef const uint8_t* start = <const uint8_t*>hold.view.buf
    cdef int status
    cdef Cursor cursor = open_payload(&hold.view, position, hold.view.len if end is None else end)
    with nogil:
        status = _run_kernel(
            &cursor,
            start,
            check_crc,
            strict,
            &columns._columns,
            columns.capacity,
            &rows,
            &batches,
        )
    cdef Py_ssize_t added = rows - columns._count
    columns._count = rows
    return added, batches, cursor.position - start, status
