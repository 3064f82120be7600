"""The map, as kernels of other modules see it."""

cimport cython
from libc.stdint cimport int64_t, uint8_t

from kafkalog._core.offset_table cimport KeyRows, OffsetTable


@cython.final
cdef class OffsetMap:
    cdef OffsetTable _table
    cdef uint8_t[::1] _memory
    cdef uint8_t[::1] _marks
    cdef readonly bint exact
    cdef readonly int64_t latest_offset

    cdef int _refuse(self, int status, const KeyRows* rows, int64_t row) except -1
    cdef tuple _put_rows(self, const KeyRows* rows, int64_t start, int64_t end)
    cdef tuple _put_exact(self, const KeyRows* rows, int64_t start, int64_t end, object same_keys)
    cdef object _get_exact(
        self, const KeyRows* rows, int64_t start, int64_t end, int64_t[::1] found, object same_keys
    )


cdef int put_kernel(
    OffsetTable* table, const KeyRows* rows, int64_t* row, int64_t end
) noexcept nogil
cdef int get_kernel(
    const OffsetTable* table, const KeyRows* rows, int64_t* row, int64_t end, int64_t* found
) noexcept nogil
cdef bint latest_kernel(
    const OffsetTable* table,
    const int64_t* offsets,
    int64_t count,
    int64_t latest_offset,
    uint8_t* latest,
) noexcept nogil
