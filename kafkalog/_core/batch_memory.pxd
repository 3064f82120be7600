"""Memory of a batch under construction, which views may show after the builder has left it."""

cimport cython
from libc.stdint cimport uint8_t


@cython.final
cdef class BatchMemory:
    cdef uint8_t* data
    cdef Py_ssize_t capacity
    cdef Py_ssize_t exports            # views alive: nothing that they show may change
    cdef Py_ssize_t _start             # start of the next view
    cdef Py_ssize_t _end

    cdef object view(self, Py_ssize_t start, Py_ssize_t end)
    cdef int grow(self, Py_ssize_t capacity) except -1
