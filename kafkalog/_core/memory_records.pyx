"""A run of whole batches in one buffer, ready for a log except for its offsets.

Packing and validation build runs outside the lock of the log, with offsets that count from zero.
Assigning offsets, under the lock, moves them to the log end and writes a few bytes per batch: no
CRC covers them. A run that keeps its offsets is not modified; its bytes may belong to the caller.

This module knows no log: `kafkalog._engine.append_info` makes the public result of an append.

Thread-safety: a run belongs to one thread.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t

from kafkalog._core.batch_metadata cimport BatchMetadata

from kafkalog.errors import UnexpectedAppendOffsetError


@cython.final
cdef class MemoryRecords:
    """
    Batches back to back.

    Attributes:
        data: the batches; a bytearray while offsets are to be assigned.
        batches: metadata of each batch, in order.
        record_count: number of records in all batches.
        log_append_time_ms: time that every record carries; None if records keep their own.
        needs_offsets: whether `assign_offsets` writes new offsets into the batches.
        rewriting: value of the caller that describes changes of codec or format; None for no
            change. This module only carries it.
        rebuild_at: builds the batches again for another offset of the first record, if a few bytes
            in each batch are not enough. Its result has `data` and `batches`. None otherwise.
        has_producers: whether any batch has a producer id, so that the log must check its state.
        leader_epoch: epoch of all batches of a run that keeps its offsets, -1 for no epoch; -2 if
            they differ or are unknown.
    """

    def __init__(self, data not None, BatchMetadata batches not None, int64_t record_count,
                 log_append_time_ms=None, *, bint needs_offsets=True, rewriting=None,
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
        Assign offsets to the batches, the first record at `log_end_offset`.

        Raises:
            UnexpectedAppendOffsetError: the run keeps offsets that begin below the log end.
            RecordTooLargeError: a wrapper rebuilt for its offset has become too large.
        """
        self.assign_offsets_from(log_end_offset, partition_leader_epoch)

    cdef int assign_offsets_from(self, int64_t log_end_offset,
                                 int32_t partition_leader_epoch) except -1:
        """Do the work of `assign_offsets` without a Python frame."""
        cdef BatchMetadata batches = self.batches
        if batches.count == 0:
            return 0
        if self.needs_offsets:
            if self.rebuild_at is not None and batches.rows[0].base_offset != log_end_offset:
                rebuilt = self.rebuild_at(log_end_offset)
                self.data, self.batches = bytearray(rebuilt.data), rebuilt.batches
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
        return 0


cdef MemoryRecords make_run(object data, BatchMetadata batches, int64_t record_count,
                            object log_append_time_ms):
    """Return a run whose offsets are to be assigned; every other attribute has its default."""
    cdef MemoryRecords run = MemoryRecords.__new__(MemoryRecords)
    run.data = data
    run.batches = batches
    run.record_count = record_count
    run.log_append_time_ms = log_append_time_ms
    run.needs_offsets = True
    run.leader_epoch = EPOCHS_DIFFER
    return run
