"""Columns of the headers of many records, for batches under construction.

The layout is Arrow's for a list of structures: all headers in sequence, their keys a column and
their values a column, and for each record the range of its headers. A header key is bytes here;
keys that are UTF-8 are read as text later.

Thread-safety: columns are immutable, kernels pure; draft and memory belong to one builder.
"""

cimport cython
from cpython.buffer cimport PyBuffer_Release
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t

from kafkalog._core.builder cimport (
    BatchDraft,
    RecordParts,
    add_row,
    size_of_bytes,
    write_bytes,
)
from kafkalog._core.bytes_column cimport (
    BytesCells,
    CellColumn,
    is_valid,
    load_cell,
    load_offsets,
    load_validity,
    no_cells,
)
from kafkalog._core.status cimport STATUS_HEADER_KEY, STATUS_OK, STATUS_TOO_LARGE


cdef inline int load_range(
    const HeaderCells* cells, int64_t slot, int64_t* start, int64_t* end
) noexcept nogil:
    """Load which headers a record has; none for null."""
    start[0] = end[0] = 0
    if cells.offsets == NULL and cells.wide_offsets == NULL:
        return STATUS_OK
    if not is_valid(cells.validity, slot + cells.validity_shift):
        return STATUS_OK
    if cells.offsets != NULL:
        start[0] = cells.offsets[slot]
        end[0] = cells.offsets[slot + 1]
    else:
        start[0] = cells.wide_offsets[slot]
        end[0] = cells.wide_offsets[slot + 1]
    if start[0] < 0 or end[0] < start[0] or end[0] > cells.entry_count:
        return HEADERS_OFFSETS
    return STATUS_OK


cdef int size_headers(
    const HeaderCells* cells, int64_t start, int64_t end, int64_t* size
) noexcept nogil:
    """Add up what headers take encoded."""
    cdef const uint8_t* data = NULL
    cdef int64_t key_size = 0, value_size = 0
    cdef int status
    size[0] = 0
    while start < end:
        status = load_cell(&cells.keys, start, &data, &key_size)
        if status != STATUS_OK:
            return status
        if key_size < 0:
            return STATUS_HEADER_KEY
        status = load_cell(&cells.values, start, &data, &value_size)
        if status != STATUS_OK:
            return status
        size[0] += size_of_bytes(key_size) + size_of_bytes(value_size)
        if size[0] > INT32_MAX:
            return STATUS_TOO_LARGE
        start += 1
    return STATUS_OK


cdef int encode_headers(
    const HeaderCells* cells, int64_t slot, HeaderSpace* space, RecordParts* parts
) noexcept nogil:
    """Encode the headers of a record; the parts point to them until the next call."""
    cdef const uint8_t* data = NULL
    cdef int64_t start = 0, end = 0, field_size = 0
    cdef uint8_t* target
    cdef int status = load_range(cells, slot, &start, &end)
    if status != STATUS_OK:
        return status
    status = size_headers(cells, start, end, &parts.headers_size)
    if status != STATUS_OK:
        return status
    if parts.headers_size > space.capacity:
        space.needed = parts.headers_size
        return HEADERS_FULL
    parts.headers = target = space.data
    parts.header_count = end - start
    while start < end:
        load_cell(&cells.keys, start, &data, &field_size)
        target = write_bytes(target, data, field_size)
        load_cell(&cells.values, start, &data, &field_size)
        target = write_bytes(target, data, field_size)
        start += 1
    return STATUS_OK


cdef int extend_with_headers_kernel(
    BatchDraft* draft,
    const BytesCells* keys,
    const BytesCells* values,
    const HeaderCells* headers,
    HeaderSpace* space,
    const int64_t* timestamps,
    RecordParts* parts,
    int64_t* slot,
    int64_t stop,
    int64_t size_limit,
) noexcept nogil:
    """Add cells with their headers until one does not go in; `slot` is the first that did not."""
    cdef int status
    while slot[0] < stop:
        status = load_cell(keys, slot[0], &parts.key, &parts.key_size)
        if status == STATUS_OK:
            status = load_cell(values, slot[0], &parts.value, &parts.value_size)
        if status == STATUS_OK:
            status = encode_headers(headers, slot[0], space, parts)
        if status != STATUS_OK:
            return status
        status = add_row(draft, parts, timestamps, slot, size_limit)
        if status != STATUS_OK:
            return status
    return STATUS_OK


# The collector would clear its buffers without a release.
@cython.no_gc_clear
cdef class HeadersColumn:
    """
    The headers of many records, over buffers of the caller.

    Args:
        offsets: contiguous int32 or int64, one more than there are records, never falling: the
            headers of record n are those from offsets[n] to offsets[n + 1].
        keys: a BytesColumn of header keys, in UTF-8; none may be null.
        values: a BytesColumn of header values, as long.
        validity: bitmap with a bit for each record, 0 for one without headers; None for all.

    Thread-safety: immutable; the buffers stay held until the column is gone.
    """

    def __cinit__(self, offsets=None, keys=None, values=None, validity=None):
        self.cells.validity = NULL
        self.cells.validity_shift = 0
        self.cells.offsets = NULL
        self.cells.wide_offsets = NULL
        self.cells.entry_count = 0
        self.cells.keys = no_cells()
        self.cells.values = no_cells()

    def __init__(self, offsets not None, CellColumn keys not None, CellColumn values not None,
                 validity=None):
        if self.count or self.owner is not None or self._offsets.buf != NULL:
            raise TypeError("a column of headers is made once")
        load_offsets(offsets, &self._offsets)
        self.count = self._offsets.len // self._offsets.itemsize - 1
        load_validity(validity, &self._validity, self.count)
        self.cells.validity = <const uint8_t*>self._validity.buf
        self.set_cells(keys, values)
        if self._offsets.itemsize == 4:
            self.cells.offsets = <const int32_t*>self._offsets.buf
        else:
            self.cells.wide_offsets = <const int64_t*>self._offsets.buf

    def __dealloc__(self):
        PyBuffer_Release(&self._offsets)
        PyBuffer_Release(&self._validity)

    def __len__(self):
        return self.count

    cdef int set_cells(self, CellColumn keys, CellColumn values) except -1:
        """Take the columns of keys and values."""
        if keys.count != values.count:
            raise ValueError(
                f"header keys must be as many as header values, {values.count}, "
                f"got {keys.count}"
            )
        self._keys = keys
        self._values = values
        self.cells.keys = keys.cells
        self.cells.values = values.cells
        self.cells.entry_count = keys.count
        return 0
