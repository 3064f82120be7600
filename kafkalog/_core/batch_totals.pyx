"""Totals of the batches of a segment, computed from the columns of successive walks.

A recovery walks over all batches and needs few numbers: how many records there are, whether a
producer id was used, where leader epochs begin. One pass over the columns of each walk computes
them, and makes no object for a row.

Thread-safety: one thread at a time. It looks at no bytes of batches, and believes the columns.
"""

cimport cython
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t

from kafkalog._core.layout cimport (
    CONTROL_MASK,
    MAGIC_V2,
    NO_PARTITION_LEADER_EPOCH,
    NO_TIMESTAMP,
)

__all__ = ["BatchTotals"]


@cython.final
cdef class BatchTotals:
    """
    Facts about all batches that were added, in the order in which they lie in the segment.

    Attributes:
        batch_count: number of batches.
        record_count: records by their headers; records inside wrappers of old formats are not
            counted, which would need decompression.
        first_max_timestamp: largest timestamp of the first batch, -1 for none.
        has_producers: whether a batch has a producer id.
        has_markers: whether a batch ends a transaction.
        leader_epochs: each epoch that is above all before it, with the base offset of its batch;
            -1 for messages of an old format, which have none and restart the series.
    """

    cdef readonly int64_t batch_count
    cdef readonly int64_t record_count
    cdef readonly int64_t first_max_timestamp
    cdef readonly bint has_producers
    cdef readonly bint has_markers
    cdef readonly list leader_epochs
    cdef int32_t _epoch

    def __cinit__(self):
        self.first_max_timestamp = NO_TIMESTAMP
        self.leader_epochs = []
        self._epoch = NO_PARTITION_LEADER_EPOCH

    def add(self, columns not None, Py_ssize_t count):
        """
        Add the first `count` batches of the columns, which follow those before.

        Args:
            columns: a `BatchColumns`, as a walk left it.
            count: how many of its rows are batches of the segment.
        """
        cdef const int64_t[::1] base_offsets = columns.base_offset
        cdef const int64_t[::1] producer_ids = columns.producer_id
        cdef const int32_t[::1] record_counts = columns.record_count
        cdef const int32_t[::1] epochs = columns.leader_epoch
        cdef const int16_t[::1] attributes = columns.attributes
        cdef const int8_t[::1] magics = columns.magic
        cdef Py_ssize_t row
        if not 0 <= count <= len(columns):
            raise ValueError(f"count must be in 0 to {len(columns)}, got {count}")
        if count and not self.batch_count:
            self.first_max_timestamp = columns.max_timestamp[0]
        self.batch_count += count
        for row in range(count):
            # The header of a wrapper of an old format has no number of records: -1.
            self.record_count += max(record_counts[row], 0)
            if producer_ids[row] >= 0:
                self.has_producers = True
                self.has_markers = self.has_markers or attributes[row] & CONTROL_MASK != 0
            if magics[row] < MAGIC_V2:
                self._reset_epochs(base_offsets[row])
            elif epochs[row] > self._epoch:
                self._epoch = epochs[row]
                self.leader_epochs.append((self._epoch, base_offsets[row]))

    cdef int _reset_epochs(self, int64_t base_offset) except -1:
        """Forget the epochs so far; once for all messages of an old format in a row."""
        if self._epoch != NO_PARTITION_LEADER_EPOCH or not self.leader_epochs:
            self._epoch = NO_PARTITION_LEADER_EPOCH
            self.leader_epochs.append((NO_PARTITION_LEADER_EPOCH, base_offset))
        return 0
