"""Records of one log that wait for their append."""

cimport cython
from libc.stdint cimport int32_t, int64_t

from kafkalog._engine.commit_source cimport CommitSource
from kafkalog._engine.gate_state cimport GateState
from kafkalog._engine.snapshot cimport PublishedSnapshot


@cython.final
cdef class DelayedRecords:
    cdef readonly object log
    cdef readonly object name
    cdef readonly object journal
    cdef readonly int64_t next_offset
    cdef readonly int64_t recorded_offset
    cdef readonly int64_t claimed_offset
    cdef readonly int64_t first_sequence
    cdef readonly int64_t last_sequence
    cdef readonly int64_t size_bytes
    cdef readonly bint has_failed
    cdef GateState _gate
    cdef PublishedSnapshot _published
    cdef CommitSource _source
    cdef object _lane
    cdef object _acquire
    cdef object _release
    cdef list _keys
    cdef list _values
    cdef list _timestamps
    # Number of the reservation of offsets, and what its records have reached in the journal.
    cdef int64_t _lease
    cdef int64_t _lease_end
    cdef int64_t _truncations
    # Number of the partition in the file of a journal with these numbers.
    cdef dict _numbers
    cdef int64_t _number
    # In the call of the last `DelayedTopic.accept`; one at a time uses it.
    cdef int32_t _place

    cdef bint can_take(self, int64_t now_ms, int64_t timestamp_ms, int64_t size) except -1
    cdef int64_t take_rows(self, list keys, list values, object timestamp, const int32_t* rows,
                           Py_ssize_t count) except -1
    cdef int record(self, int64_t lease, int64_t truncations, int64_t end_offset,
                    int64_t sequence) except -1
