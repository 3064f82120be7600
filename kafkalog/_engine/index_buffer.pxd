"""The entries of an index in memory."""

cimport cython


@cython.final
cdef class IndexBuffer:
    cdef readonly Py_ssize_t entry_size
    cdef readonly object published
    cdef Py_ssize_t _written
    cdef Py_ssize_t _count
    cdef bytearray _memory
    cdef object _write

    cpdef extend(self, bytes entries)
    cdef int _publish(self) except -1
