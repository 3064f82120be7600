"""Rows that a decoder left in RecordColumns, with the buffer that their positions point into."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkalog._core.builder cimport BatchDraft, RecordParts


cdef enum:
    CONSECUTIVE = -1                   # base offset that means consecutive offsets


cdef struct RowPointers:
    const uint8_t* data
    int64_t data_size
    const int64_t* offset
    const int64_t* timestamp
    const int64_t* key_position
    const int64_t* value_position
    const int64_t* headers_position
    const int32_t* key_size
    const int32_t* value_size
    const int32_t* headers_size
    const int32_t* header_count


cdef class DecodedRows:
    cdef RowPointers rows
    cdef readonly Py_ssize_t count
    cdef list _views                   # exported buffers: neither bytes nor columns can move

    cdef object _load(self, object columns)


cdef int load_row(const RowPointers* rows, int64_t row, RecordParts* parts) noexcept nogil
cdef int extend_rows_kernel(
    BatchDraft* draft,
    const RowPointers* rows,
    int64_t base_offset,
    int64_t* slot,
    int64_t stop,
    int64_t size_limit,
) noexcept nogil
