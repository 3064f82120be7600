"""Columns that the caller gives to the batch builder, as kernels see them: pointers and loads."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kafkalog._core.status cimport STATUS_FIELD_LENGTH, STATUS_OK


cdef enum:
    VIEW_SIZE = 16                     # of a cell of Arrow's view layout
    VIEW_INLINE_MAX = 12               # bytes of a value that is stored in the view itself


cdef struct BytesCells:
    const uint8_t* data                # NULL: every cell is null
    const uint8_t* validity            # NULL: every cell is valid
    int64_t validity_shift             # bits before that of slot 0
    # Where the cells are: one of these four, the others being NULL or -1.
    const int32_t* offsets
    const int64_t* wide_offsets
    const uint8_t* views
    int64_t width                      # of each cell
    int64_t data_size
    const uint8_t** view_buffers       # memory of the views, and the size of each buffer
    const int64_t* view_sizes
    int64_t view_buffer_count


cdef inline BytesCells no_cells() noexcept nogil:
    """A column of nulls."""
    cdef BytesCells cells
    cells.data = NULL
    cells.validity = NULL
    cells.validity_shift = 0
    cells.offsets = NULL
    cells.wide_offsets = NULL
    cells.views = NULL
    cells.width = -1
    cells.data_size = 0
    cells.view_buffers = NULL
    cells.view_sizes = NULL
    cells.view_buffer_count = 0
    return cells


cdef inline const uint8_t* end_of_cells(const BytesCells* cells) noexcept nogil:
    """Up to where all of a column's bytes may be read; NULL where they are in several places."""
    if cells.views != NULL:
        return NULL
    return cells.data + cells.data_size


cdef inline bint is_valid(const uint8_t* validity, int64_t bit) noexcept nogil:
    return validity == NULL or (validity[bit >> 3] >> (bit & 7)) & 1


cdef inline int load_view(
    const BytesCells* cells, int64_t slot, const uint8_t** data, int64_t* size
) noexcept nogil:
    """As load_cell, of a cell of Arrow's view layout, or of one of fixed width."""
    cdef int32_t[4] view
    if cells.views == NULL:
        if cells.width < 0 or slot * cells.width > cells.data_size - cells.width:
            return STATUS_FIELD_LENGTH
        data[0] = cells.data + slot * cells.width
        size[0] = cells.width
        return STATUS_OK
    memcpy(&view[0], cells.views + slot * VIEW_SIZE, VIEW_SIZE)
    if view[0] < 0:
        return STATUS_FIELD_LENGTH
    if view[0] <= VIEW_INLINE_MAX:
        data[0] = cells.views + slot * VIEW_SIZE + 4
    else:
        # Length, a prefix, buffer, and where in it.
        if view[2] < 0 or view[2] >= cells.view_buffer_count or view[3] < 0:
            return STATUS_FIELD_LENGTH
        if view[0] > cells.view_sizes[view[2]] - view[3]:
            return STATUS_FIELD_LENGTH
        data[0] = cells.view_buffers[view[2]] + view[3]
    size[0] = view[0]
    return STATUS_OK


cdef inline int load_cell(
    const BytesCells* cells, int64_t slot, const uint8_t** data, int64_t* size
) noexcept nogil:
    """Load where the bytes of a slot below the column's length are; size -1 for null."""
    cdef int64_t start
    cdef int64_t end
    data[0] = cells.data
    size[0] = -1
    if cells.data == NULL or not is_valid(cells.validity, slot + cells.validity_shift):
        return STATUS_OK
    if cells.offsets != NULL:
        start = cells.offsets[slot]
        end = cells.offsets[slot + 1]
    elif cells.wide_offsets != NULL:
        start = cells.wide_offsets[slot]
        end = cells.wide_offsets[slot + 1]
    else:
        return load_view(cells, slot, data, size)
    if start < 0 or end < start or end > cells.data_size:
        return STATUS_FIELD_LENGTH
    data[0] = cells.data + start
    size[0] = end - start
    return STATUS_OK


cdef class CellColumn:
    cdef BytesCells cells
    cdef Py_ssize_t count


@cython.final
cdef class BytesColumn(CellColumn):
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


cdef int load_offsets(object offsets, Py_buffer* view) except -1
cdef int load_validity(object validity, Py_buffer* view, Py_ssize_t count) except -1
