"""The leader epochs that an append compares."""

cimport cython
from libc.stdint cimport int32_t

from kafkalog._core.memory_records cimport MemoryRecords


@cython.final
cdef class EpochState:
    cdef readonly int32_t current
    cdef readonly object written
    cdef readonly bint has_unwritten
    cdef int32_t _written

    cdef bint is_written(self, MemoryRecords run) except -1
