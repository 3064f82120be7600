"""Metadata of the batches of a run for an append: sizes, offsets, timestamps."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef struct MetadataRow:
    int64_t size_bytes
    int64_t base_offset
    int64_t last_offset
    int64_t max_timestamp
    int64_t shallow_offset


@cython.final
cdef class BatchMetadata:
    cdef MetadataRow* rows
    cdef Py_ssize_t count
    cdef Py_ssize_t capacity
    cdef readonly int64_t size_bytes
    cdef bint _is_all_messages

    cdef int assign_offsets_in(self, bytearray data, int64_t base_offset,
                               int32_t partition_leader_epoch) except -1
    cdef int _assign_offsets(self, uint8_t* first, int64_t size, int64_t base_offset,
                             int32_t partition_leader_epoch) except -1
    cdef int _reserve(self, Py_ssize_t more) except -1
    cdef int add_row(
        self, int64_t size_bytes, int64_t base_offset, int64_t last_offset, int64_t max_timestamp,
        int64_t shallow_offset,
    ) except -1
    cdef int64_t largest_size(self) noexcept
    cdef Py_ssize_t newest_row(self) noexcept
    cdef object row_at(self, Py_ssize_t row)
