"""Assignment of offsets to a run, with the public result of the append."""

from libc.stdint cimport int32_t, int64_t

from kafkalog._core.memory_records cimport MemoryRecords


cdef object append_info_of(MemoryRecords run, int64_t log_end_offset,
                           int32_t partition_leader_epoch)
