"""The part of a log in the commits of a journal."""

cimport cython
from libc.stdint cimport int64_t

from kafkalog._engine.append_file cimport AppendFile
from kafkalog._engine.durable_slots cimport DurableSlot
from kafkalog._engine.gate_state cimport GateState
from kafkalog._engine.snapshot cimport PublishedSnapshot


@cython.final
cdef class CommitState:
    cdef readonly int64_t durable_offset
    cdef readonly int64_t synced_offset
    cdef readonly int64_t recorded_offset
    cdef readonly int64_t truncations
    cdef readonly int64_t waiting
    cdef readonly object error


@cython.final
cdef class UnsyncedNames:
    cdef readonly int64_t changes
    cdef readonly int64_t synced
    cdef list _trimmed


@cython.final
cdef class PendingCommit:
    cdef readonly CommitSource source
    cdef readonly int64_t truncations_before
    cdef readonly int64_t start_offset
    cdef readonly int64_t end_offset
    cdef readonly int64_t base_offset
    cdef readonly int64_t position
    cdef readonly int64_t end
    cdef readonly object file
    cdef AppendFile file_end


@cython.final
cdef class CommitSource:
    cdef GateState _gate
    cdef PublishedSnapshot _published
    cdef UnsyncedNames _names
    cdef CommitState _state
    cdef object _acquire
    cdef object _release
    cdef object _ensure_no_error
    cdef object _notify_waiting
    cdef object _on_change
    cdef DurableSlot _slot

    cdef PendingCommit begin_commit(self, int64_t bytes_max)
    cdef int finish_commit(self, PendingCommit pending) except -1
    cdef int64_t truncation_count(self) noexcept
    cdef int64_t durable_offset(self) noexcept
    cdef int _raise_durable(self, int64_t end_offset) except -1
    cdef int cover(self, int64_t end_offset, int64_t truncations_before) except -1
