"""Builder of a run of batches, as the fast path of an append uses it."""

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint64_t

from kafkalog._core.append_limits cimport AppendLimits
from kafkalog._core.batch_metadata cimport BatchMetadata
from kafkalog._core.memory_records cimport MemoryRecords
from kafkalog._core.record_groups cimport RecordGroup
from kafkalog._core.records_builder cimport RecordsBuilder


@cython.final
cdef class RunBuilder(RecordsBuilder):
    cdef bytearray _run
    cdef BatchMetadata _facts
    cdef int64_t _begins               # position of the last batch in the run
    cdef int64_t _usual
    cdef bint _is_apart                # the last batch is in `memory`, to be compressed
    cdef uint64_t _earliest
    cdef int64_t _producer_id          # of the next batch that is closed
    cdef int16_t _producer_epoch
    cdef int32_t _base_sequence
    cdef readonly int64_t record_count
    cdef readonly int64_t nulls
    cdef readonly int64_t latest

    cdef int _begin_run(self) except -1
    cdef int _begin_batch(self) except -1
    cdef int64_t _close_batch(self, int64_t append_time, int codec, int64_t size) except -1
    cdef bint _add_fields_of(self, RecordGroup group, int64_t timestamp_ms,
                             int64_t size_limit) except -1
    cdef int _add_batch(self, list keys, list values, list timestamps, Py_ssize_t start,
                        int64_t size_limit) except -1
    cdef int _pack_records(self, list items, int64_t default_timestamp_ms, int64_t size_limit,
                           int64_t append_time) except -1
    cdef int64_t _copy_batch(self, object payload) except -1
    cdef int _check_begun(self) except -1
    cdef MemoryRecords _finish(self, object log_append_time_ms)
    cdef bint _has_invalid_record(self, AppendLimits limits, int64_t now_ms) noexcept


@cython.final
cdef class SpareBuilder:
    cdef RunBuilder _builder
    cdef int _is_used


cdef MemoryRecords pack_group(SpareBuilder spare, RecordGroup group, int64_t timestamp_ms,
                              AppendLimits limits, int64_t now_ms, int64_t size_limit,
                              int64_t producer_id, int16_t producer_epoch, int32_t base_sequence)
