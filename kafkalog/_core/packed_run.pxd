"""A run of batches that is ready for a log but for its offsets."""

cimport cython
from libc.stdint cimport int32_t, int64_t

from kafkalog._core.run_facts cimport RunFacts


cdef enum:
    # No epoch of batches, which have -1 or more.
    EPOCHS_DIFFER = -2


@cython.final
cdef class PackedRun:
    cdef readonly object data
    cdef readonly RunFacts batches
    cdef readonly int64_t record_count
    cdef readonly object log_append_time_ms
    cdef readonly object rewriting
    cdef readonly object made_at
    cdef readonly int32_t leader_epoch
    cdef readonly bint assign_offsets
    cdef readonly bint has_producers

    cdef object stamped(self, int64_t log_end_offset, int32_t partition_leader_epoch)
    cdef object _info(self, int64_t first_offset, int64_t last_offset, int64_t max_timestamp,
                      int64_t shallow_offset)


cdef PackedRun make_run(object data, RunFacts batches, int64_t record_count,
                        object log_append_time_ms)
