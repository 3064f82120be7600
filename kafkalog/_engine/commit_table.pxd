"""Entries of one commit of a journal."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t


@cython.final
cdef class CommitTable:
    cdef bytearray _table
    cdef bytearray _data
    cdef readonly Py_ssize_t entry_count
    cdef readonly Py_ssize_t table_bytes
    cdef readonly Py_ssize_t data_bytes

    cdef int add_records(self, uint32_t number, int64_t first_offset, list keys, list values,
                         int64_t timestamp_ms, const int32_t* rows, Py_ssize_t count) except -1
    cdef int _add_data_entry(self, uint32_t number, int64_t base_offset, int64_t position,
                             int64_t first_offset, int64_t end_offset, const uint8_t* before,
                             Py_ssize_t anchor_size, Py_ssize_t size) except -1
    cdef uint8_t* _table_space(self, Py_ssize_t size) except NULL
    cdef uint8_t* _data_space(self, Py_ssize_t size) except NULL
