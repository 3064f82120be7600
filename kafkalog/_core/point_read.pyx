"""Read one record by its offset: walk headers to its batch, check the CRC, walk its records.

For the plain case only, in every format. What is not plain (compressed, damaged, not all there, a
gap in the offsets, a control batch) is answered with None, and the caller looks with its usual
means, which say what is the matter.

A reader holds the bytes of a segment and its index, a table the readers of a log: so that one call
does it all, and nothing is looked up in Python objects on the way.

Thread-safety: see the classes; the GIL is kept, for a look-up takes less than a microsecond.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
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
    # Index entries lie 4 KiB apart or more, as the settings are; neighbours get different places.
    KNOWN_BATCHES = 64
    KNOWN_SHIFT = 12


cdef struct KnownBatch:
    BatchFields batch                  # its size is 0: nothing is known
    int64_t start                      # where the walk to it began
    int64_t position


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


cdef struct BatchWalk:
    BatchFields batch
    RecordsContext context             # after the last record that was read
    const uint8_t* begins
    const uint8_t* position            # of the next record
    int64_t delta                      # not above that of the next record
    int64_t left                       # records from there on


cdef bint find_next_record(BatchWalk* walk, int64_t offset, RecordFields* record) noexcept nogil:
    """As find_record_kernel, from where the last one was found: offsets must rise."""
    cdef const uint8_t* limit = walk.begins + walk.batch.size_bytes
    cdef const uint8_t* found
    cdef int64_t delta = offset - walk.batch.base_offset
    if is_legacy(&walk.batch):
        return find_record_kernel(walk.begins, &walk.batch, offset, record)
    if <int64_t>walk.batch.record_count == <int64_t>walk.batch.last_offset_delta + 1:
        found = skip_records(walk.position, limit, delta - walk.delta)
        if found == NULL:
            return False
        walk.left -= delta - walk.delta
        walk.context.previous_delta = <int32_t>(delta - 1)
        walk.position = next_record(&walk.context, found, limit, record)
        if walk.position == NULL or record.offset_delta != delta:
            walk.left = 0              # the count lies: whoever asks next is not answered here
            walk.position = limit
            return False
        walk.left -= 1
        walk.delta = delta + 1
        return True
    while walk.left > 0:
        found = next_record(&walk.context, walk.position, limit, record)
        if found == NULL:
            walk.left = 0
            return False
        if record.offset_delta > delta:
            walk.context.previous_delta = <int32_t>delta
            return False
        walk.position = found
        walk.left -= 1
        if record.offset_delta == delta:
            return True
    return False


@cython.final
cdef class PointReader:
    """
    Finds the records of one segment by their offsets.

    Holds the bytes, usually a mapping, as long as it or a record it made lives. Remembers of the
    last few places where look-ups began which batch they led to, so that the next ones there need
    not walk the headers and sum the batch up again.

    Thread-safety: calls may come from any thread, under the GIL.

    Args:
        data: the whole segment, as far as it may be read; the last batch may be cut.
        index: entries of its offset index; a hint, and any may be missing.
    """

    cdef PayloadHold _hold
    cdef OffsetIndexView _index
    cdef KnownBatch[KNOWN_BATCHES] _known

    def __cinit__(self, data not None, OffsetIndexView index not None):
        self._hold = PayloadHold.__new__(PayloadHold, data)
        self._index = index
        memset(&self._known[0], 0, sizeof(self._known))

    def __len__(self):
        return self._hold.view.len

    cdef const uint8_t* _batch_of(self, int64_t offset, BatchFields* batch) noexcept:
        """Return where the plain batch with `offset` begins, its sum checked; NULL for none."""
        cdef const uint8_t* data = <const uint8_t*>self._hold.view.buf
        cdef Py_ssize_t size = self._hold.view.len
        cdef int64_t start = self._index.floor_position(offset)
        cdef KnownBatch* known = &self._known[(start >> KNOWN_SHIFT) & (KNOWN_BATCHES - 1)]
        cdef Cursor cursor
        # An entry may say anything: what it leads to is believed for its CRC and its own offset.
        if not 0 <= start < size:
            return NULL
        if (
            known.batch.size_bytes > 0
            and known.start == start
            and known.batch.base_offset <= offset <= last_offset_of(&known.batch)
        ):
            batch[0] = known.batch
            return data + known.position
        cursor.position = data + start
        cursor.end = cursor.position + min(size - start, WALK_BYTES)
        if not find_batch_kernel(&cursor, offset, batch):
            return NULL
        known.start = start
        known.position = cursor.position - data
        known.batch = batch[0]
        return cursor.position

    cdef Record _made(self, const BatchFields* batch, const RecordFields* record):
        cdef RecordsContext context
        if is_legacy(batch):
            context = messages_of_fields(batch, True).context
        else:
            context = context_of(batch, True)
        return make_record(&context, record, self._hold)

    cdef Record read(self, int64_t offset):
        cdef const uint8_t* position
        cdef BatchFields batch
        cdef RecordFields record
        memset(&batch, 0, sizeof(batch))       # gcc does not see that the kernels load both
        memset(&record, 0, sizeof(record))
        position = self._batch_of(offset, &batch)
        if position == NULL or not find_record_kernel(position, &batch, offset, &record):
            return None
        return self._made(&batch, &record)

    def find_many(self, const int64_t[::1] offsets not None, list found not None,
                  Py_ssize_t start, Py_ssize_t stop):
        """
        Put the records at `offsets[start:stop]`, which rise, in the same slots of `found`.

        A slot stays as it is where the record is not plainly there. A batch is looked for, and its
        sum checked, once.
        """
        cdef Py_ssize_t slot
        cdef BatchWalk walk
        cdef RecordFields record
        if not 0 <= start <= stop <= offsets.shape[0] or stop > len(found):
            raise IndexError(f"slots {start} to {stop} are outside the {offsets.shape[0]} given")
        memset(&walk, 0, sizeof(walk))
        memset(&record, 0, sizeof(record))
        for slot in range(start, stop):
            if (
                walk.begins == NULL
                or not walk.batch.base_offset <= offsets[slot] <= last_offset_of(&walk.batch)
                or offsets[slot] < walk.batch.base_offset + walk.delta
            ):
                walk.begins = self._batch_of(offsets[slot], &walk.batch)
                if walk.begins == NULL:
                    continue
                walk.context = context_of(&walk.batch, True)
                walk.position = walk.begins + RECORD_BATCH_OVERHEAD
                walk.delta = 0
                walk.left = walk.batch.record_count
            if find_next_record(&walk, offsets[slot], &record):
                found[slot] = self._made(&walk.batch, &record)

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
