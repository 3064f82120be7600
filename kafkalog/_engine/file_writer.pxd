"""Writer of an open file."""

cimport cython


@cython.final
cdef class Descriptor:
    cdef readonly int number


@cython.final
cdef class FileWriter:
    cdef Descriptor _descriptor
    cdef object _path
    cdef object _finish_write
    cdef object _check_sources

    cdef Descriptor _open(self)
