"""Read one record by its offset: walk headers to its batch, check the CRC, walk its records.

For the plain case only, in every format. What is not plain (compressed, damaged, not all there, a
gap in the offsets, a control batch) is answered with None, and the caller looks with its usual
means, which say what is the matter.

A reader holds the bytes of a segment and its index, a table the readers of a log: so that one call
does it all, and nothing is looked up in Python objects on the way.

Thread-safety: see the classes; the GIL is kept, for a look-up takes less than a microsecond.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memset

from kafkalog._core.cursor cimport Cursor
from kafkalog._core.header cimport (
    BatchFields,
    crc_of_batch,
    is_legacy,
    last_offset_of,
    load_whole_batch,
    prefetch_header,
)
from kafkalog._core.index cimport OffsetIndexView
from kafkalog._core.layout cimport CODEC_MASK, CONTROL_MASK, RECORD_BATCH_OVERHEAD, RECORD_SIZE_MIN
from kafkalog._core.message_set cimport MessageSet, finish_fields, messages_of_fields, next_message
from kafkalog._core.record cimport (
    PayloadHold,
    Record,
    RecordFields,
    RecordsContext,
    context_of,
    make_record,
    next_record,
    read_short_varint,
)
from kafkalog._core.status cimport STATUS_OK

import numpy

cdef enum:
    # As far as headers are walked from an index entry: many times the usual interval.
    WALK_BYTES = 1024 * 1024


cdef bint find_batch_kernel(Cursor* cursor, int64_t offset, BatchFields* batch) noexcept nogil:
    """Move the cursor to the plain batch that holds `offset`; say whether there is one."""
    while load_whole_batch(cursor, batch) == STATUS_OK:
        if last_offset_of(batch) >= offset:
            return (
                batch.base_offset <= offset
                and batch.attributes & (CODEC_MASK | CONTROL_MASK) == 0
                and crc_of_batch(cursor.position, batch.size_bytes) == batch.crc
            )
        prefetch_header(cursor, batch.size_bytes)
        cursor.position += batch.size_bytes
    return False


cdef const uint8_t* skip_records(const uint8_t* position, const uint8_t* limit,
                                 int64_t count) noexcept nogil:
    """Step over records by their lengths alone; NULL where one is not of the usual kind."""
    cdef uint32_t encoded = 0
    while count > 0:
        count -= 1
        if limit - position < RECORD_SIZE_MIN:
            return NULL
        position = read_short_varint(position, &encoded)
        if position == NULL or encoded & 1 or <int64_t>(encoded >> 1) > limit - position:
            return NULL
        position += encoded >> 1
    return position


cdef bint find_record_kernel(const uint8_t* position, const BatchFields* batch, int64_t offset,
                             RecordFields* record) noexcept nogil:
    """
    Find the record in the batch at `position`; say whether it is there.

    Where the count says that there is no gap, its place is known, and the records before it are
    stepped over unread. It is believed for its own offset, so a count that lies only costs time.
    """
    cdef RecordsContext context = context_of(batch, True)
    cdef const uint8_t* limit = position + batch.size_bytes
    cdef const uint8_t* found
    cdef MessageSet messages
    cdef int64_t left = batch.record_count
    cdef int64_t delta = offset - batch.base_offset
    if is_legacy(batch):
        # A plain message, and find_batch_kernel has seen that it is at the offset.
        messages = messages_of_fields(batch, True)
        if next_message(&messages, position, limit, record) != STATUS_OK:
            return False
        finish_fields(record)
        return True
    position += RECORD_BATCH_OVERHEAD
    if left == <int64_t>batch.last_offset_delta + 1:
        found = skip_records(position, limit, delta)
        if (
            found != NULL
            and next_record(&context, found, limit, record) != NULL
            and record.offset_delta == delta
        ):
            return True
        context.previous_delta = -1
    while left > 0:
        left -= 1
        position = next_record(&context, position, limit, record)
        if position == NULL or record.offset_delta > delta:
            return False
        if record.offset_delta == delta:
            return True
    return False


@cython.final
cdef class PointReader:
    """
    Finds the records of one segment by their offsets.

    Holds the bytes, usually a mapping, as long as it or a record it made lives. Thread-safety:
    immutable.

    Args:
        data: the whole segment, as far as it may be read; the last batch may be cut.
        index: entries of its offset index; a hint, and any may be missing.
    """

    cdef PayloadHold _hold
    cdef OffsetIndexView _index

    def __cinit__(self, data not None, OffsetIndexView index not None):
        self._hold = PayloadHold.__new__(PayloadHold, data)
        self._index = index

    def __len__(self):
        return self._hold.view.len

    cdef Record read(self, int64_t offset):
        cdef Py_ssize_t size = self._hold.view.len
        cdef int64_t start = self._index.floor_position(offset)
        cdef Cursor cursor
        cdef BatchFields batch
        cdef RecordFields record
        cdef RecordsContext context
        # An entry may say anything: what it leads to is believed for its CRC and its own offset.
        if not 0 <= start < size:
            return None
        cursor.position = <const uint8_t*>self._hold.view.buf + start
        cursor.end = cursor.position + min(size - start, WALK_BYTES)
        memset(&batch, 0, sizeof(batch))       # gcc does not see that the kernels load both
        memset(&record, 0, sizeof(record))
        if not find_batch_kernel(&cursor, offset, &batch):
            return None
        if not find_record_kernel(cursor.position, &batch, offset, &record):
            return None
        if is_legacy(&batch):
            context = messages_of_fields(&batch, True).context
        else:
            context = context_of(&batch, True)
        return make_record(&context, &record, self._hold)

    def find(self, int64_t offset):
        """Return the record at `offset`, None where it is not plainly there."""
        return self.read(offset)


@cython.final
cdef class PointTable:
    """
    The point readers of a log's segments, by slot: one call from an offset to its record.

    Readers are put in as they are needed, at most `capacity` of them at a time, for each may keep
    a mapping alive. Thread-safety: calls may come from any thread, under the GIL.

    Args:
        owner: what the bases were taken from, for the caller to compare.
        bases: base offsets of the segments, rising.
        capacity: how many readers are kept; one more, and all others go.
    """

    cdef readonly object owner
    cdef const int64_t[::1] _bases
    cdef list _readers
    cdef Py_ssize_t _capacity
    cdef Py_ssize_t _count

    def __init__(self, owner, bases, Py_ssize_t capacity):
        self.owner = owner
        self._bases = numpy.array(bases, dtype=numpy.int64)
        self._readers = [None] * len(bases)
        self._capacity = capacity
        self._count = 0

    cdef Py_ssize_t _slot_of(self, int64_t offset) noexcept:
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = self._bases.shape[0]
        cdef Py_ssize_t middle
        while low < high:
            middle = (low + high) >> 1
            if self._bases[middle] <= offset:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def find(self, int64_t offset):
        """Return the record at `offset`, None where it is not plainly there or nobody looks."""
        cdef Py_ssize_t slot = self._slot_of(offset)
        if slot < 0:
            return None
        reader = self._readers[slot]
        return None if reader is None else (<PointReader>reader).read(offset)

    cdef int _check_slot(self, Py_ssize_t slot) except -1:
        if not 0 <= slot < self._bases.shape[0]:
            raise IndexError(f"slot {slot} is not in 0..{self._bases.shape[0] - 1}")
        return 0

    def reader(self, Py_ssize_t slot):
        """Return the reader in `slot`, or None; IndexError outside the bases."""
        self._check_slot(slot)
        return self._readers[slot]

    def put(self, Py_ssize_t slot, PointReader reader not None):
        """Let `reader` answer for the segment in `slot`; IndexError outside the bases."""
        self._check_slot(slot)
        if self._readers[slot] is None:
            if self._count >= self._capacity:
                self._readers = [None] * len(self._readers)
                self._count = 0
            self._count += 1
        self._readers[slot] = reader
