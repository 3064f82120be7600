"""Rows of an exact offset map, as the map sees them."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from kafkalog._core.offset_table cimport KeyRows, OffsetTable


cdef enum:
    # Rows of a run about whose keys the caller is asked at once.
    EXACT_ROWS = 4096


@cython.final
cdef class ExactRows:
    cdef int64_t count
    cdef int64_t* rows                 # EXACT_ROWS each, but twice as many words of hashes
    cdef uint64_t* hashes
    cdef int64_t* others
    cdef int64_t* offsets
    cdef int64_t[::1] _rows            # memory of the pointers above
    cdef uint64_t[::1] _hashes
    cdef int64_t[::1] _others
    cdef int64_t[::1] _offsets

    cdef int load(
        self, const OffsetTable* table, const KeyRows* rows, int64_t* row, int64_t end
    ) noexcept
    cdef int put(
        self, OffsetTable* table, const KeyRows* rows, int64_t start, int64_t* row
    ) noexcept
    cdef object resolve(self, const OffsetTable* table, const int64_t* own_offsets, same_keys)
    cdef object _candidates(self, const OffsetTable* table, const int64_t[::1] pending)
    cdef object _call_same_keys(
        self, const int64_t* own_offsets, object candidates, const int64_t[::1] rows, same_keys
    )
