"""The leader epochs that an append compares: current, written, and whether a write is due.

It belongs to the log's `LogEpochs`, which keeps the list and its file.

Thread-safety: changes under the log's lock; any thread may read.
"""

cimport cython
from libc.stdint cimport int32_t

from kafkalog._core.layout cimport MAGIC_POSITION, MAGIC_V2, NO_PARTITION_LEADER_EPOCH
from kafkalog._core.memory_records cimport MemoryRecords

cdef enum:
    # Equal to no epoch of a log, and to none of a batch.
    NONE_WRITTEN = -3


@cython.final
cdef class EpochState:
    """
    The leader epochs of a log, as an append needs them.

    Args:
        current: the epoch of the log's own appends.
        written: the epoch of the log end, None without one, or while the file lacks a change.
        has_unwritten: whether the file lacks a change.

    Attributes:
        current, written, has_unwritten: as given, and as set since.

    Thread-safety: changes under the log's lock.
    """

    def __cinit__(self, int32_t current, written=None, bint has_unwritten=False):
        self.current = current
        self.set_written(written, has_unwritten)

    def __reduce__(self):
        raise TypeError("an EpochState cannot be pickled or copied")

    def __repr__(self):
        return (f"EpochState(current={self.current}, written={self.written}, "
                f"has_unwritten={self.has_unwritten})")

    def set_current(self, int32_t current):
        """Set the epoch of the log's own appends."""
        self.current = current

    def set_written(self, written, bint has_unwritten):
        """Set the epoch of the log end, and whether the file lacks a change."""
        self._written = NONE_WRITTEN if written is None else written
        self.written = written
        self.has_unwritten = has_unwritten

    def is_epoch_written(self, MemoryRecords run not None):
        """Return whether the epoch file needs no change before `run` is appended."""
        return self.is_written(run)

    cdef bint is_written(self, MemoryRecords run) except -1:
        if run.needs_offsets:
            return self._written == self.current and is_of_v2(run)
        if run.leader_epoch == NO_PARTITION_LEADER_EPOCH:
            return not self.has_unwritten
        return run.leader_epoch == self.current and self._written == self.current


cdef bint is_of_v2(MemoryRecords run) except -1:
    """Return whether the first batch, like all that get their offsets here, is of format v2."""
    cdef bytearray data = run.data
    return len(data) > MAGIC_POSITION and data[MAGIC_POSITION] >= MAGIC_V2
