"""Headers of one record, encoded before the record, because its length comes first."""

cimport cython
from libc.stdint cimport int64_t, uint8_t

from kafkalog._core.builder cimport RecordParts


@cython.final
cdef class EncodedHeaders:
    cdef uint8_t* data
    cdef int64_t capacity
    cdef int64_t size

    cdef int load(self, tuple headers, RecordParts* parts) except -1
    cdef int _add(self, const uint8_t* key, Py_ssize_t key_size, object value) except -1
    cdef int reserve(self, int64_t capacity) except -1
