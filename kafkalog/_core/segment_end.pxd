"""The end of an active segment, for those who append to it."""

cimport cython
from libc.stdint cimport int64_t

from kafkalog._core.growing cimport EntryMemory, FileEnd
from kafkalog._core.run_facts cimport RunFacts
from kafkalog._core.segment_stage cimport SegmentStage


@cython.final
cdef class SegmentEnd:
    cdef readonly SegmentStage stage
    cdef readonly int64_t saved_bytes
    cdef FileEnd _file
    cdef EntryMemory _offsets
    cdef EntryMemory _times

    cdef Py_ssize_t write(self, object data, RunFacts facts, int64_t waited_ms,
                          int64_t* size) except -1
    cdef int64_t end_position(self) noexcept
    cpdef add_entries(self)
