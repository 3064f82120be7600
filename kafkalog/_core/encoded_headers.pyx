"""Headers of one record, encoded before the record, because its length comes first.

Reuses its memory from record to record. Runs no code of the caller's, so that pointers that the
caller of `load` holds stay good.

Thread-safety: none; part of one builder.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from libc.stdint cimport INT32_MAX, int64_t, uint8_t

from kafkalog._core.builder cimport RecordParts, load_field, size_of_bytes, write_bytes
from kafkalog._core.status cimport STATUS_TOO_LARGE, raise_for_status

from kafkalog.errors import InvalidRecordError


cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL


cdef class EncodedHeaders:
    """
    Encoded headers of the record that is being added.

    Thread-safety: none; part of one builder.
    """

    def __dealloc__(self):
        PyMem_RawFree(self.data)

    cdef int load(self, tuple headers, RecordParts* parts) except -1:
        """Encode what `header_tuple` made; the parts point here until the next call."""
        cdef Py_ssize_t size = 0
        cdef const char* key
        cdef object owner
        self.size = 0
        for name, value in headers:
            try:
                key = PyUnicode_AsUTF8AndSize(name, &size)
            except UnicodeEncodeError:
                owner = _encode_odd(name)
                key = PyBytes_AS_STRING(owner)
                size = PyBytes_GET_SIZE(owner)
            self._add(<const uint8_t*>key, size, value)
        parts.headers = self.data
        parts.headers_size = self.size
        parts.header_count = len(headers)
        return 0

    cdef int _add(self, const uint8_t* key, Py_ssize_t key_size, object value) except -1:
        cdef const uint8_t* data = NULL
        cdef int64_t data_size = 0
        value = load_field(value, "header value", &data, &data_size)
        cdef int64_t needed = self.size + size_of_bytes(key_size) + size_of_bytes(data_size)
        cdef uint8_t* target
        if needed > INT32_MAX:
            raise_for_status(STATUS_TOO_LARGE, self.size)
        if needed > self.capacity:
            self.reserve(2 * needed)
        target = write_bytes(self.data + self.size, key, key_size)
        write_bytes(target, data, data_size)
        self.size = needed
        return 0

    cdef int reserve(self, int64_t capacity) except -1:
        """Allocate memory, perhaps at another address; the content stays."""
        cdef uint8_t* data = <uint8_t*>PyMem_RawRealloc(self.data, <size_t>capacity)
        if data == NULL:
            raise MemoryError(f"no memory for headers of {capacity} bytes")
        self.data = data
        self.capacity = capacity
        return 0


cdef object _encode_odd(str name):
    """Encode a header key that holds bytes which were not UTF-8 when it was read."""
    try:
        return name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise InvalidRecordError(f"header key {name!r} cannot be encoded: {error}") from error
