"""Records in lists, grouped by the partition of their key."""

cimport cython
from libc.stdint cimport int32_t, int64_t


@cython.final
cdef class RecordGroup:
    cdef readonly int32_t partition
    cdef readonly list keys
    cdef readonly list values
    cdef readonly object rows
    cdef readonly int64_t size_bytes


cdef int64_t size_of(list keys, list values, Py_ssize_t slot) noexcept
cdef int check_lists(list keys, list values) except -1
