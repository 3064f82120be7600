"""Assignment of offsets to a run, with the public result of the append.

`MemoryRecords` assigns the offsets; `AppendInfo` is made here, because `_core` imports no type of
the model. Both the fast path and the slow path of an append call this module under the lock of
the log.

Thread-safety: pure, except that the run is changed.
"""

from libc.stdint cimport int32_t, int64_t

from kafkalog._core.batch_metadata cimport BatchMetadata, MetadataRow
from kafkalog._core.memory_records cimport MemoryRecords
from kafkalog._core.objects cimport new_named_tuple

from kafkalog.model import NOTHING_REWRITTEN, AppendInfo

cdef enum:
    NO_OFFSET = -1
    NO_TIME = -1

cdef type INFO = AppendInfo
cdef object NOTHING = NOTHING_REWRITTEN


def assign_run_offsets(MemoryRecords run not None, int64_t log_end_offset,
                       int32_t partition_leader_epoch):
    """
    Assign offsets to a run, the first record at `log_end_offset`; return the AppendInfo.

    Raises:
        UnexpectedAppendOffsetError: the run keeps offsets that begin below the log end.
        RecordTooLargeError: a wrapper rebuilt for its offset has become too large.
    """
    return append_info_of(run, log_end_offset, partition_leader_epoch)


cdef object append_info_of(MemoryRecords run, int64_t log_end_offset,
                           int32_t partition_leader_epoch):
    cdef BatchMetadata batches
    cdef MetadataRow* newest
    run.assign_offsets_from(log_end_offset, partition_leader_epoch)
    batches = run.batches
    if batches.count == 0:
        return _info(run, log_end_offset, log_end_offset - 1, NO_TIME, NO_OFFSET)
    newest = &batches.rows[batches.newest_row()]
    return _info(run, batches.rows[0].base_offset, batches.rows[batches.count - 1].last_offset,
                 newest.max_timestamp, newest.shallow_offset)


cdef object _info(MemoryRecords run, int64_t first_offset, int64_t last_offset,
                  int64_t max_timestamp, int64_t shallow_offset):
    # The Python constructor of AppendInfo is a Python function: it costs a frame per append.
    return new_named_tuple(
        INFO,
        (first_offset, last_offset, run.record_count, run.batches.count,
         run.batches.size_bytes, run.log_append_time_ms, max_timestamp, shallow_offset,
         NOTHING if run.rewriting is None else run.rewriting, False),
    )
