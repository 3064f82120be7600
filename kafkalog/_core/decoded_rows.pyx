"""Copy of rows that were decoded into columns to another batch, without an object for a record.

`extend_rows_kernel` adds them to a batch under construction, with keys, values and encoded headers
copied unchanged. `pack_rows` writes them in sequence in a form that does not depend on their format
and batches, so that a digest of it shows whether a conversion kept every record.

Positions and sizes come from writable arrays: every row is checked against the buffer before a byte
of it is read.

Thread-safety: pure functions; a DecodedRows is immutable and holds what it points into.
"""

cimport cython
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kafkalog._core.builder cimport ADD_OVER_LIMIT, BatchDraft, RecordParts, add_to_draft
from kafkalog._core.byteorder cimport store_i32, store_i64
from kafkalog._core.status cimport (
    STATUS_FIELD_LENGTH,
    STATUS_OFFSET_DELTA,
    STATUS_OK,
    raise_for_status,
)


cdef enum:
    # Offset, timestamp, and the sizes of key, value and headers with their count.
    PACKED_OVERHEAD = 8 + 8 + 4 + 4 + 4 + 4


@cython.final
cdef class DecodedRows:
    """
    The used rows of `columns`, and `data`, the buffer that was decoded into them.

    Thread-safety: immutable; the columns must not be decoded into while it is in use.
    """

    def __cinit__(self, data not None, columns not None):
        cdef const uint8_t[::1] octets = memoryview(data).cast("B")
        self._views = [octets]
        self.rows.data = &octets[0] if octets.shape[0] > 0 else NULL
        self.rows.data_size = octets.shape[0]
        self.count = len(columns)
        if self.count > 0:
            self._load(columns)

    cdef object _load(self, object columns):
        cdef const int64_t[::1] offset = columns.offset
        cdef const int64_t[::1] timestamp = columns.timestamp
        cdef const int64_t[::1] key_position = columns.key_position
        cdef const int64_t[::1] value_position = columns.value_position
        cdef const int64_t[::1] headers_position = columns.headers_position
        cdef const int32_t[::1] key_size = columns.key_size
        cdef const int32_t[::1] value_size = columns.value_size
        cdef const int32_t[::1] headers_size = columns.headers_size
        cdef const int32_t[::1] header_count = columns.header_count
        self.rows.offset = &offset[0]
        self.rows.timestamp = &timestamp[0]
        self.rows.key_position = &key_position[0]
        self.rows.value_position = &value_position[0]
        self.rows.headers_position = &headers_position[0]
        self.rows.key_size = &key_size[0]
        self.rows.value_size = &value_size[0]
        self.rows.headers_size = &headers_size[0]
        self.rows.header_count = &header_count[0]
        self._views += [
            offset, timestamp, key_position, value_position, headers_position,
            key_size, value_size, headers_size, header_count,
        ]
        for view in self._views[1:]:
            if len(view) < self.count:
                raise ValueError(f"each column must have {self.count} rows, got {len(view)}")

    def __len__(self):
        return self.count


cdef inline bint _is_within(
    const RowPointers* rows, int64_t position, int64_t size
) noexcept nogil:
    return size <= 0 or (0 <= position <= rows.data_size and size <= rows.data_size - position)


cdef int load_row(const RowPointers* rows, int64_t row, RecordParts* parts) noexcept nogil:
    """Point at the parts of a row; its offset is the caller's to place."""
    parts.key_size = rows.key_size[row]
    parts.value_size = rows.value_size[row]
    parts.headers_size = rows.headers_size[row]
    parts.header_count = rows.header_count[row]
    parts.timestamp_ms = rows.timestamp[row]
    if (
        not _is_within(rows, rows.key_position[row], parts.key_size)
        or not _is_within(rows, rows.value_position[row], parts.value_size)
        or not _is_within(rows, rows.headers_position[row], parts.headers_size)
        or parts.headers_size < 0
        or parts.header_count < 0
    ):
        return STATUS_FIELD_LENGTH
    parts.key = rows.data + rows.key_position[row] if parts.key_size > 0 else rows.data
    parts.value = rows.data + rows.value_position[row] if parts.value_size > 0 else rows.data
    parts.headers = rows.data + rows.headers_position[row] if parts.headers_size > 0 else NULL
    return STATUS_OK


cdef int extend_rows_kernel(
    BatchDraft* draft,
    const RowPointers* rows,
    int64_t base_offset,
    int64_t* slot,
    int64_t stop,
    int64_t size_limit,
) noexcept nogil:
    """Add rows until one does not go in; `slot` is the first that did not."""
    cdef RecordParts parts
    cdef int status
    while slot[0] < stop:
        status = load_row(rows, slot[0], &parts)
        if status != STATUS_OK:
            return status
        if base_offset == CONSECUTIVE:
            parts.offset_delta = draft.last_offset_delta + 1
        else:
            parts.offset_delta = rows.offset[slot[0]] - base_offset
            if parts.offset_delta <= draft.last_offset_delta:
                return STATUS_OFFSET_DELTA
            if parts.offset_delta > INT32_MAX and draft.count > 0:
                return ADD_OVER_LIMIT
        status = add_to_draft(draft, &parts, size_limit)
        if status != STATUS_OK:
            return status
        slot[0] += 1
    return STATUS_OK


cdef int64_t _packed_size(
    const RowPointers* rows, int64_t start, int64_t stop, int64_t tag_size, int64_t* bad
) noexcept nogil:
    cdef int64_t size = 0
    cdef int64_t row
    cdef RecordParts parts
    for row in range(start, stop):
        if load_row(rows, row, &parts) != STATUS_OK:
            bad[0] = row
            return -1
        size += PACKED_OVERHEAD + tag_size + parts.headers_size
        size += max(parts.key_size, 0) + max(parts.value_size, 0)
    return size


cdef inline uint8_t* _put(uint8_t* target, const uint8_t* data, int64_t size) noexcept nogil:
    if size > 0:
        memcpy(target, data, <size_t>size)
        return target + size
    return target


cdef void _pack_kernel(
    const RowPointers* rows,
    int64_t start,
    int64_t stop,
    const uint8_t* tag,
    int64_t tag_size,
    uint8_t* target,
) noexcept nogil:
    """Write the rows, which `_packed_size` has checked."""
    cdef RecordParts parts
    cdef int64_t row
    for row in range(start, stop):
        load_row(rows, row, &parts)
        store_i64(target, rows.offset[row])
        store_i64(target + 8, parts.timestamp_ms)
        # Any negative size reads as null.
        store_i32(target + 16, <int32_t>max(parts.key_size, -1))
        store_i32(target + 20, <int32_t>max(parts.value_size, -1))
        store_i32(target + 24, <int32_t>parts.header_count)
        store_i32(target + 28, <int32_t>parts.headers_size)
        target = _put(target + PACKED_OVERHEAD, tag, tag_size)
        target = _put(target, parts.key, parts.key_size)
        target = _put(target, parts.value, parts.value_size)
        target = _put(target, parts.headers, parts.headers_size)


def pack_rows(data not None, columns not None, *, Py_ssize_t start=0, stop=None, bytes tag=b""):
    """
    Return the rows back to back, with `tag` in each: what a digest of records is made of.

    Args:
        data: the buffer that was decoded.
        columns: its rows, a RecordColumns.
        start: first row; `stop`: one past the last, None for all.
        tag: fields of the batch that apply to all of them.

    Raises:
        CorruptRecordError: a row does not lie in `data`.
    """
    cdef DecodedRows source = DecodedRows(data, columns)
    cdef Py_ssize_t end = source.count if stop is None else stop
    cdef const uint8_t* tag_data = tag
    cdef int64_t bad = 0
    cdef int64_t size
    cdef int64_t tag_size = len(tag)
    if start < 0 or end < start or end > source.count:
        raise ValueError(f"rows must be in 0 to {source.count}, got {start} to {end}")
    with nogil:
        size = _packed_size(&source.rows, start, end, tag_size, &bad)
    if size < 0:
        raise_for_status(STATUS_FIELD_LENGTH, bad)
    packed = bytearray(size)
    cdef uint8_t[::1] target = packed
    if size > 0:
        with nogil:
            _pack_kernel(&source.rows, start, end, tag_data, tag_size, &target[0])
    return packed
