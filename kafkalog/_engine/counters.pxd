"""Counts of what went into a log and out of it, and of the uses of a file pool."""

cimport cython
from libc.stdint cimport int64_t


@cython.final
cdef class LogCounters:
    cdef readonly int64_t append_count
    cdef readonly int64_t appended_batches
    cdef readonly int64_t appended_records
    cdef readonly int64_t appended_bytes
    cdef readonly int64_t read_records
    cdef readonly int64_t read_bytes
    cdef readonly int64_t deleted_segments
    cdef readonly int64_t deleted_bytes


@cython.final
cdef class PoolCounters:
    cdef readonly int64_t file_hits
    cdef readonly int64_t file_misses
    cdef readonly int64_t mapping_hits
    cdef readonly int64_t mapping_misses
