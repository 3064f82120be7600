"""The columns that decoders fill, as other kernels see them."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkalog._core.header cimport BatchFields
from kafkalog._core.record cimport RecordFields


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


cdef inline void store_row(
    const ColumnPointers* columns, int64_t row, const uint8_t* start, int64_t offset,
    int64_t timestamp, const RecordFields* fields,
) noexcept nogil:
    """Store one record; positions count from `start`."""
    columns.offset[row] = offset
    columns.timestamp[row] = timestamp
    columns.key_position[row] = fields.key - start
    columns.value_position[row] = fields.value - start
    columns.headers_position[row] = fields.headers - start
    columns.key_size[row] = fields.key_size
    columns.value_size[row] = fields.value_size
    columns.headers_size[row] = <int32_t>(fields.end - fields.headers)
    columns.header_count[row] = fields.header_count


@cython.final
cdef class RecordColumns:
    cdef readonly Py_ssize_t capacity
    cdef Py_ssize_t count              # rows used so far
    cdef ColumnPointers pointers
    cdef dict _arrays
    cdef list _views                   # exported buffers: the arrays cannot be resized

    cdef int64_t* _add_long(self, str name) except NULL
    cdef int32_t* _add_int(self, str name) except NULL
    cdef object _used(self, str name)


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
) noexcept nogil
cdef int decode_payload(
    const uint8_t* start,
    const uint8_t* payload,
    int64_t size,
    const BatchFields* fields,
    bint strict,
    const ColumnPointers* columns,
    int64_t capacity,
    int64_t* rows,
) noexcept nogil
