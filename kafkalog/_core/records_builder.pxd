"""Base of the builders of batches and of message sets: memory, and the methods that add records."""

cimport cython
from libc.stdint cimport int64_t, uint8_t

from kafkalog._core.batch_memory cimport BatchMemory
from kafkalog._core.builder cimport BatchDraft, RecordParts
from kafkalog._core.bytes_column cimport CellColumn, TimestampColumn
from kafkalog._core.encoded_headers cimport EncodedHeaders
from kafkalog._core.headers_column cimport HeadersColumn
from kafkalog._core.record cimport Record


cdef enum:
    INITIAL_CAPACITY = 16 * 1024


cdef class RecordsBuilder:
    cdef BatchDraft draft
    cdef BatchMemory memory
    cdef BatchMemory compressed        # header and compressed payload, made at the end
    cdef EncodedHeaders headers        # headers of the record that is being added
    cdef int64_t head_size             # space in front of the records

    cdef int _open(self, int magic, Py_ssize_t head_size, Py_ssize_t capacity) except -1
    cdef void _start(self) noexcept
    cdef int _move(self, int64_t capacity) except -1
    cdef int _own(self) except -1
    cdef int _reserve(self) except -1
    cdef int _clear(self) except -1
    cdef int _add(self, const RecordParts* parts, int64_t size_limit) except -1
    cdef int _refuse(self, int status, const RecordParts* parts) except -1
    cdef int _add_fields(
        self, object key, object value, int64_t timestamp_ms, object headers,
        int64_t offset_delta, int64_t size_limit,
    ) except -1
    cdef int _add_record(
        self, Record record, int64_t default_timestamp_ms, int64_t size_limit
    ) except -1
    cdef Py_ssize_t _extend_records(
        self, list records, Py_ssize_t start, int64_t default_timestamp_ms, int64_t size_limit
    ) except -1
    cdef int64_t _extend_cells(
        self, CellColumn keys, CellColumn values, HeadersColumn headers, TimestampColumn times,
        int64_t start, int64_t end, int64_t size_limit,
    ) except -1
    cdef uint8_t* _reserve_compressed(self, Py_ssize_t size) except NULL
