"""A run of batches that is ready for a log but for its offsets.

Packing and validation make runs outside the log's lock, with offsets that count from zero;
stamping, under the lock, moves them to the log end and costs a few bytes a batch, because no CRC
covers them. Of runs that keep their offsets nothing is changed: their bytes may be the caller's.

Thread-safety: a run belongs to one thread.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t

from kafkalog._core.objects cimport new_named_tuple
from kafkalog._core.batch_metadata cimport MetadataRow, BatchMetadata

from kafkalog.errors import UnexpectedAppendOffsetError
from kafkalog.model import NOTHING_REWRITTEN, AppendInfo

cdef enum:
    NO_OFFSET = -1
    NO_TIME = -1

cdef type INFO = AppendInfo
cdef object NOTHING = NOTHING_REWRITTEN


@cython.final
cdef class MemoryRecords:
    """
    Batches back to back.

    Attributes:
        data: the batches; writable until they are stamped, but for those that keep their offsets.
        batches: facts of each, in order.
        record_count: records in all of them.
        log_append_time_ms: time that all records carry, None where they keep their own.
        needs_offsets: whether stamping gives the batches new offsets.
        rewriting: what was done to make them.
        rebuild_at: makes the batches for another offset of the first record, where that takes more
            than a stamp: what it returns has `data` and `batches`. None where it does not.
        has_producers: whether a batch names a producer, whose state the log has to ask.
        leader_epoch: of batches that keep their offsets, where all have the same, which may be -1
            for none; -2 where that is not so, or not known.
    """

    def __init__(self, data not None, BatchMetadata batches not None, int64_t record_count,
                 log_append_time_ms=None, *, bint needs_offsets=True, rewriting=NOTHING,
                 rebuild_at=None, bint has_producers=False, int32_t leader_epoch=EPOCHS_DIFFER):
        self.data = data
        self.batches = batches
        self.record_count = record_count
        self.log_append_time_ms = log_append_time_ms
        self.needs_offsets = needs_offsets
        self.rewriting = rewriting
        self.rebuild_at = rebuild_at
        self.has_producers = has_producers
        self.leader_epoch = leader_epoch

    def __reduce__(self):
        raise TypeError("a MemoryRecords cannot be pickled or copied")

    def __repr__(self):
        return f"MemoryRecords({self.record_count} records in {self.batches!r})"

    def assign_offsets(self, int64_t log_end_offset, int32_t partition_leader_epoch):
        """
        Give the batches their offsets, from `log_end_offset` on; return the AppendInfo of them.

        Raises:
            UnexpectedAppendOffsetError: the batches keep offsets that begin below the log end.
            RecordTooLargeError: a wrapper that had to be made for its offset has become too large.
        """
        return self.assign_offsets_from(log_end_offset, partition_leader_epoch)

    cdef object assign_offsets_from(self, int64_t log_end_offset, int32_t partition_leader_epoch):
        """As `assign_offsets`."""
        cdef BatchMetadata batches = self.batches
        cdef MetadataRow* newest
        if batches.count == 0:
            return self._info(log_end_offset, log_end_offset - 1, NO_TIME, NO_OFFSET)
        if self.needs_offsets:
            if self.rebuild_at is not None and batches.rows[0].base_offset != log_end_offset:
                draft = self.rebuild_at(log_end_offset)
                self.data, self.batches = bytearray(draft.data), draft.batches
                batches = self.batches
            batches.assign_offsets_in(self.data, log_end_offset, partition_leader_epoch)
        elif batches.rows[0].base_offset < log_end_offset:
            raise UnexpectedAppendOffsetError(
                f"the first batch begins at offset {batches.rows[0].base_offset}, and the log"
                f" already ends at {log_end_offset}",
                position=0,
                base_offset=batches.rows[0].base_offset,
                first_offset=batches.rows[0].base_offset,
                last_offset=batches.rows[batches.count - 1].last_offset,
                log_end_offset=log_end_offset,
            )
        newest = &batches.rows[batches.newest_row()]
        return self._info(batches.rows[0].base_offset, batches.rows[batches.count - 1].last_offset,
                          newest.max_timestamp, newest.shallow_offset)

    cdef object _info(self, int64_t first_offset, int64_t last_offset, int64_t max_timestamp,
                      int64_t shallow_offset):
        # As AppendInfo makes itself, without the Python function that it has for it.
        return new_named_tuple(
            INFO,
            (first_offset, last_offset, self.record_count, self.batches.count,
             self.batches.size_bytes, self.log_append_time_ms, max_timestamp, shallow_offset,
             self.rewriting, False),
        )


cdef MemoryRecords make_run(object data, BatchMetadata batches, int64_t record_count,
                            object log_append_time_ms):
    """Return a run of batches that are to get their offsets, and nothing else."""
    cdef MemoryRecords run = MemoryRecords.__new__(MemoryRecords)
    run.data = data
    run.batches = batches
    run.record_count = record_count
    run.log_append_time_ms = log_append_time_ms
    run.needs_offsets = True
    run.rewriting = NOTHING
    run.leader_epoch = EPOCHS_DIFFER
    return run
