"""Metadata of the batches of a run for an append: sizes, offsets, timestamps; and their assignment.

The code that makes or checks the batches of an append records five numbers of each. With them no
batch has to be read again: offsets are assigned, and the batches divided into segments, in one pass
over this table. A plain message of an old format is a batch as well, of perhaps a hundred bytes, so
no object is made for a single row.

Thread-safety: none; a table belongs to one append.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kafkalog._core.byteorder cimport store_i32, store_i64
from kafkalog._core.layout cimport (
    BASE_OFFSET_POSITION,
    HEADER_SIZE_UP_TO_MAGIC,
    LEADER_EPOCH_POSITION,
    MAGIC_POSITION,
    MAGIC_V2,
)

from typing import NamedTuple

from kafkalog.errors import OffsetOverflowError

__all__ = ["BatchFacts", "BatchMetadata"]

cdef enum:
    FIRST_CAPACITY = 8
    # Rows from which on a pass over them is worth letting other threads run.
    MANY_ROWS = 4096


class BatchFacts(NamedTuple):
    """
    Metadata of a batch for an append; offsets are those in its bytes.

    Attributes:
        size_bytes: size of the whole batch.
        base_offset: offset of its first record.
        last_offset: offset of its last record.
        max_timestamp: largest timestamp, -1 for none.
        shallow_offset: offset of that timestamp for the time index, -1 for none.
    """

    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    shallow_offset: int


cdef void shift_kernel(MetadataRow* rows, Py_ssize_t count, int64_t shift) noexcept nogil:
    cdef Py_ssize_t row
    for row in range(count):
        rows[row].base_offset += shift
        rows[row].last_offset += shift
        if rows[row].shallow_offset >= 0:
            rows[row].shallow_offset += shift


cdef void assign_offsets_kernel(uint8_t* batch, const MetadataRow* rows, Py_ssize_t count,
                                int32_t partition_leader_epoch) noexcept nogil:
    """Write offsets, and in v2 the epoch, into batches that lie back to back."""
    cdef Py_ssize_t row
    for row in range(count):
        if batch[MAGIC_POSITION] >= MAGIC_V2:
            store_i64(batch + BASE_OFFSET_POSITION, rows[row].base_offset)
            store_i32(batch + LEADER_EPOCH_POSITION, partition_leader_epoch)
        else:
            # A wrapper has the offset of the last message inside, a plain message its own; and the
            # CRC where the epoch would be.
            store_i64(batch + BASE_OFFSET_POSITION, rows[row].last_offset)
        batch += rows[row].size_bytes


@cython.final
cdef class BatchMetadata:
    """
    The facts of batches that lie back to back; a sequence of `BatchFacts`, made when looked at.

    Attributes:
        size_bytes: of all batches.

    Thread-safety: none.
    """

    def __cinit__(self):
        self._is_all_messages = True

    def __init__(self, rows=()):
        for size_bytes, base_offset, last_offset, max_timestamp, shallow_offset in rows:
            self.add(size_bytes, base_offset, last_offset, max_timestamp, shallow_offset)

    def __dealloc__(self):
        PyMem_RawFree(self.rows)

    def __reduce__(self):
        raise TypeError("BatchMetadata cannot be pickled or copied")

    @staticmethod
    def of_messages(const int64_t[::1] starts not None, const int64_t[::1] offsets not None,
                    const int64_t[::1] timestamps not None):
        """
        Return the facts of plain messages of old formats.

        Args:
            starts: where each begins, and where the last ends.
            offsets: of each, rising.
            timestamps: of each, -1 where it has none.
        """
        cdef BatchMetadata facts = BatchMetadata.__new__(BatchMetadata)
        cdef Py_ssize_t row, count = offsets.shape[0]
        cdef int64_t offset
        if starts.shape[0] != count + 1 or timestamps.shape[0] != count:
            raise ValueError(
                f"for {count} offsets, starts must be {count + 1} and timestamps {count}, "
                f"got {starts.shape[0]} and {timestamps.shape[0]}")
        facts._reserve(count)
        for row in range(count):
            offset = offsets[row]
            facts.add_row(starts[row + 1] - starts[row], offset, offset, timestamps[row],
                          offset if timestamps[row] >= 0 else -1)
        facts._is_all_messages = True
        return facts

    @property
    def is_all_messages(self):
        """True if there are batches, and all were added as plain messages of old formats."""
        return self._is_all_messages and self.count > 0

    @property
    def end_offset(self):
        """One above the last offset, 0 where there is no batch."""
        return self.rows[self.count - 1].last_offset + 1 if self.count else 0

    def __len__(self):
        return self.count

    def __getitem__(self, slot):
        cdef Py_ssize_t row
        if isinstance(slot, slice):
            return list(self)[slot]
        row = slot
        if row < 0:
            row += self.count
        if not 0 <= row < self.count:
            raise IndexError(f"slot must be in 0..{self.count - 1}, got {slot}")
        return self.row_at(row)

    def __iter__(self):
        cdef Py_ssize_t row
        for row in range(self.count):
            yield self.row_at(row)

    def __repr__(self):
        return f"BatchMetadata({self.count} batches, {self.size_bytes} bytes)"

    def add(self, int64_t size_bytes, int64_t base_offset, int64_t last_offset,
            int64_t max_timestamp, int64_t shallow_offset):
        """Write down the facts of the next batch."""
        self.add_row(size_bytes, base_offset, last_offset, max_timestamp, shallow_offset)

    def extend(self, BatchMetadata others not None):
        """Append the rows of another table, as the batches that follow."""
        cdef Py_ssize_t count = others.count
        self._reserve(count)
        if count:
            memcpy(&self.rows[self.count], others.rows, <size_t>count * sizeof(MetadataRow))
        self.count += count
        self.size_bytes += others.size_bytes
        self._is_all_messages = self._is_all_messages and others._is_all_messages

    def shifted(self, int64_t shift):
        """Return the facts of the same batches so many offsets later."""
        cdef BatchMetadata moved = BatchMetadata.__new__(BatchMetadata)
        moved.extend(self)
        shift_kernel(moved.rows, moved.count, shift)
        return moved

    def batches_above(self, int64_t limit_bytes):
        """Return the facts of the batches that are larger than the limit, in order."""
        cdef Py_ssize_t row
        cdef list large = []
        for row in range(self.count):
            if self.rows[row].size_bytes > limit_bytes:
                large.append(self.row_at(row))
        return large

    def span(self):
        """
        Return first and last offset of the run, its largest timestamp, and the shallow offset of
        the earliest batch that has it.
        """
        cdef MetadataRow* newest
        if self.count == 0:
            raise ValueError("a run without batches has no offsets")
        newest = &self.rows[self.newest_row()]
        return (self.rows[0].base_offset, self.rows[self.count - 1].last_offset,
                newest.max_timestamp, newest.shallow_offset)

    def assign_offsets(self, uint8_t[::1] data not None, int64_t base_offset,
                       int32_t partition_leader_epoch):
        """
        Move the run to `base_offset`: write it into the batches, which are all of `data`.

        No CRC covers what is stamped. Returns what `span` does.

        Raises:
            OffsetOverflowError: the offsets would not fit 63 bits; nothing is stamped.
        """
        if self.count == 0:
            raise ValueError("a run must have batches before offsets are assigned")
        self._assign_offsets(&data[0] if data.shape[0] else NULL, data.shape[0], base_offset,
                             partition_leader_epoch)
        return self.span()

    cdef int assign_offsets_in(self, bytearray data, int64_t base_offset,
                               int32_t partition_leader_epoch) except -1:
        """As `assign_offsets`, of a bytearray, and with at least one batch."""
        return self._assign_offsets(
            <uint8_t*>PyByteArray_AS_STRING(data), PyByteArray_GET_SIZE(data),
            base_offset, partition_leader_epoch)

    cdef int _assign_offsets(self, uint8_t* first, int64_t size, int64_t base_offset,
                             int32_t partition_leader_epoch) except -1:
        cdef int64_t shift, count
        if size != self.size_bytes:
            raise ValueError(f"data must have {self.size_bytes} bytes, got {size}")
        if base_offset < 0:
            raise ValueError(f"base_offset must not be negative, got {base_offset}")
        shift = base_offset - self.rows[0].base_offset
        count = self.rows[self.count - 1].last_offset - self.rows[0].base_offset + 1
        if count > INT64_MAX - base_offset:
            raise OffsetOverflowError(
                f"{count} offsets from {base_offset} on do not fit 63 bits",
                position=0, base_offset=base_offset)
        if self.count < MANY_ROWS:
            shift_kernel(self.rows, self.count, shift)
            assign_offsets_kernel(first, self.rows, self.count, partition_leader_epoch)
        else:
            with nogil:
                shift_kernel(self.rows, self.count, shift)
                assign_offsets_kernel(first, self.rows, self.count, partition_leader_epoch)
        return 0

    cdef int _reserve(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t capacity = self.capacity
        cdef void* rows
        if self.count + more <= capacity:
            return 0
        capacity = max(self.count + more, 2 * capacity, FIRST_CAPACITY)
        rows = PyMem_RawRealloc(self.rows, <size_t>capacity * sizeof(MetadataRow))
        if rows == NULL:
            raise MemoryError(f"no memory for the facts of {capacity} batches")
        self.rows = <MetadataRow*>rows
        self.capacity = capacity
        return 0

    cdef int add_row(
        self, int64_t size_bytes, int64_t base_offset, int64_t last_offset, int64_t max_timestamp,
        int64_t shallow_offset,
    ) except -1:
        cdef MetadataRow* row
        if size_bytes < HEADER_SIZE_UP_TO_MAGIC or not 0 <= base_offset <= last_offset:
            raise ValueError(
                f"a batch must have at least {HEADER_SIZE_UP_TO_MAGIC} bytes and rising offsets, "
                f"got {size_bytes} bytes, offsets {base_offset} to {last_offset}")
        self._reserve(1)
        row = &self.rows[self.count]
        row.size_bytes = size_bytes
        row.base_offset = base_offset
        row.last_offset = last_offset
        row.max_timestamp = max_timestamp
        row.shallow_offset = shallow_offset
        self.count += 1
        self.size_bytes += size_bytes
        self._is_all_messages = False
        return 0

    cdef int64_t largest_size(self) noexcept:
        """Bytes of the largest batch, 0 where there is none."""
        cdef Py_ssize_t row
        cdef int64_t largest = 0
        for row in range(self.count):
            largest = max(largest, self.rows[row].size_bytes)
        return largest

    cdef Py_ssize_t newest_row(self) noexcept:
        """The earliest of those that have the largest timestamp."""
        cdef Py_ssize_t row, newest = 0
        for row in range(1, self.count):
            if self.rows[row].max_timestamp > self.rows[newest].max_timestamp:
                newest = row
        return newest

    cdef object row_at(self, Py_ssize_t row):
        cdef MetadataRow* facts = &self.rows[row]
        return BatchFacts(facts.size_bytes, facts.base_offset, facts.last_offset,
                          facts.max_timestamp, facts.shallow_offset)
