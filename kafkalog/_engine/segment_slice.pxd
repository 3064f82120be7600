"""A range of one segment's bytes, for those that find it."""

from libc.stdint cimport int64_t


cdef class SegmentSlice:
    cdef readonly int64_t start_offset
    cdef readonly int64_t position
    cdef readonly int64_t size_bytes
    cdef readonly int64_t log_start_offset
    cdef readonly int64_t log_end_offset
    cdef readonly int64_t following_offset
    cdef readonly int64_t bound_position
    cdef readonly object _segment
    # For a subclass: fields of the result in addition to the bytes, and the state of its sending.
    cdef public object aborted_transactions
    cdef public object _leased
    cdef public bint _sends_memory
    # The bytes of the segment up to the end of the range or further; None if not in memory.
    cdef object _mapped
    cdef object _data


# One of a subclass, that has nothing in it.
cdef SegmentSlice new_slice(type kind)
