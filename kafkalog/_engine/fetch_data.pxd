"""Result of `Log.read`, for those that find a range."""

from libc.stdint cimport int64_t


cdef class FetchData:
    cdef readonly int64_t start_offset
    cdef readonly int64_t position
    cdef readonly int64_t size_bytes
    cdef readonly int64_t log_start_offset
    cdef readonly int64_t log_end_offset
    cdef readonly int64_t following_offset
    cdef readonly int64_t bound_position
    cdef readonly object segment
    cdef readonly tuple aborted_transactions
    # Makes the object that decodes the range, and the object that sends it.
    cdef object _parts
    cdef object _sender
    # The bytes of the segment up to the end of the range or further; None if not in memory.
    cdef object _mapped
    cdef object _data
    cdef object __weakref__
