"""The published state of a log."""

cimport cython
from libc.stdint cimport int64_t

from kafkalog._engine.histogram cimport Histogram
from kafkalog._engine.counters cimport LogCounters


@cython.final
cdef class LogSnapshot:
    cdef readonly object segments
    cdef readonly int64_t end_offset
    cdef readonly int64_t end_position
    cdef readonly int64_t start_offset


@cython.final
cdef class PublishedSnapshot:
    cdef readonly LogSnapshot snapshot
    cdef readonly LogCounters counters
    cdef readonly Histogram append_times

    cdef int publish_end(self, int64_t end_offset, int64_t end_position) except -1
