"""State of the division of a run of batches into segments."""

cimport cython
from libc.stdint cimport int64_t, uint8_t

from kafkalog._core.batch_metadata cimport BatchMetadata


cdef struct StageState:
    int64_t size_bytes                 # of the segment, batches taken so far counted
    int64_t max_timestamp
    int64_t offset_of_max_timestamp
    int64_t rolling_timestamp          # of the first batch; -1 where it has none, or there is none
    int64_t bytes_since_entry
    int64_t offset_count               # entries, those held ready counted
    int64_t time_count
    int64_t last_time                  # timestamp of the last time entry, -1 without one


cdef struct StageLimits:
    int64_t segment_bytes
    int64_t interval_bytes
    int64_t roll_after_ms
    int64_t offset_entries_max
    int64_t time_entries_max           # one of them is kept for the entry that sealing adds


cdef struct ReadyEntries:
    uint8_t* offsets
    uint8_t* times
    Py_ssize_t offset_count
    Py_ssize_t time_count


@cython.final
cdef class RollPlanner:
    cdef StageState _state
    cdef StageState _saved
    cdef StageLimits _limits
    cdef ReadyEntries _ready
    cdef Py_ssize_t _entry_capacity
    cdef readonly int64_t base_offset

    cdef Py_ssize_t plan_rows(self, BatchMetadata facts, Py_ssize_t first, int64_t size_bytes,
                              int64_t waited_ms) except -1
    cpdef tuple ready_entries(self)
    cpdef save(self)
    cdef bint has_ready_entries(self) noexcept
    cdef int _reserve(self, Py_ssize_t more) except -1
