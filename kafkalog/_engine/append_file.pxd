"""The end of a segment's log file."""

from libc.stdint cimport int64_t


cdef class AppendFile:
    cdef public int64_t size_bytes
    cdef public int64_t _zeroed_bytes
    cdef public object _handle

    cpdef append(self, data, int64_t size)
