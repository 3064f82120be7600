"""A run of whole batches in one buffer, ready for a log except for its offsets."""

cimport cython
from libc.stdint cimport int32_t, int64_t

from kafkalog._core.batch_metadata cimport BatchMetadata


cdef enum:
    # Batches have -1 or more.
    EPOCHS_DIFFER = -2


@cython.final
cdef class MemoryRecords:
    cdef readonly object data
    cdef readonly BatchMetadata batches
    cdef readonly int64_t record_count
    cdef readonly object log_append_time_ms
    cdef readonly object rewriting
    cdef readonly object rebuild_at
    cdef readonly int32_t leader_epoch
    cdef readonly bint needs_offsets
    cdef readonly bint has_producers

    cdef int assign_offsets_from(self, int64_t log_end_offset,
                                 int32_t partition_leader_epoch) except -1


cdef MemoryRecords make_run(object data, BatchMetadata batches, int64_t record_count,
                            object log_append_time_ms)
