"""Columns that the caller gives to the batch builder, as kernels see them: pointers and loads."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkalog._core.status cimport STATUS_FIELD_LENGTH, STATUS_OK


cdef struct BytesCells:
    const uint8_t* data                # NULL: every cell is null
    const uint8_t* validity            # NULL: every cell is valid
    const int32_t* offsets             # one of the two is NULL
    const int64_t* wide_offsets
    int64_t data_size


cdef inline int load_cell(
    const BytesCells* cells, int64_t slot, const uint8_t** data, int64_t* size
) noexcept nogil:
    """Load where the bytes of a slot below the column's length are; size -1 for null."""
    cdef int64_t start
    cdef int64_t end
    data[0] = cells.data
    size[0] = -1
    if cells.data == NULL:
        return STATUS_OK
    if cells.validity != NULL and not (cells.validity[slot >> 3] >> (slot & 7)) & 1:
        return STATUS_OK
    if cells.offsets != NULL:
        start = cells.offsets[slot]
        end = cells.offsets[slot + 1]
    else:
        start = cells.wide_offsets[slot]
        end = cells.wide_offsets[slot + 1]
    if start < 0 or end < start or end > cells.data_size:
        return STATUS_FIELD_LENGTH
    data[0] = cells.data + start
    size[0] = end - start
    return STATUS_OK


@cython.final
cdef class BytesColumn:
    cdef BytesCells cells
    cdef Py_ssize_t count
    cdef Py_buffer _data
    cdef Py_buffer _offsets
    cdef Py_buffer _validity


@cython.final
cdef class TimestampColumn:
    cdef int64_t constant
    cdef const int64_t* each           # NULL: the constant for all
    cdef Py_ssize_t count              # -1: the constant for any number of rows
    cdef Py_buffer _view

    cdef int check(self, Py_ssize_t count) except -1
