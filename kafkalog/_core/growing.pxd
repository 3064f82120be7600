"""What every append touches of files that grow."""

from libc.stdint cimport int64_t


cdef class FileEnd:
    cdef public int64_t size_bytes
    cdef public int64_t _zeroed_bytes
    cdef public object _handle

    cpdef append(self, data, int64_t size)


cdef class EntryMemory:
    cdef readonly Py_ssize_t entry_size
    cdef readonly object published
    cdef public Py_ssize_t _written
    cdef Py_ssize_t _count
    cdef bytearray _memory

    cpdef extend(self, bytes entries)
    cdef int _publish(self) except -1
