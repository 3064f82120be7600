"""The headers of one record, encoded before the record is, because its length stands in front."""

cimport cython
from libc.stdint cimport uint8_t

from kafkalog._core.builder cimport RecordParts


@cython.final
cdef class EncodedHeaders:
    cdef uint8_t* _data
    cdef Py_ssize_t _capacity
    cdef Py_ssize_t _size

    cdef int load(self, tuple headers, RecordParts* parts) except -1
    cdef int _add(self, const uint8_t* key, Py_ssize_t key_size, object value) except -1
