"""The end of a segment's log file."""

cimport cython
from libc.stdint cimport int64_t


@cython.final
cdef class AppendFile:
    cdef readonly int64_t size_bytes
    cdef readonly int64_t synced_bytes
    cdef readonly int64_t committed_bytes
    cdef int64_t _zeroed_bytes
    cdef object _pwrite
    cdef object _write_zeros
    cdef object _open_descriptor

    cdef object descriptor(self)
    cpdef append(self, data, int64_t size)
