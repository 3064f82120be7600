"""Read of one record by its offset: a walk over headers to its batch, its CRC, then its records.

And the first record at or above a time.

For plain batches only, by offset in every format, by time in v2. For any other (compressed,
damaged, incomplete, a gap in the offsets, a control batch, a wrong index entry, a batch whose
header has a timestamp that none of its records has) the result is None, and the caller uses its
general path, which reports the cause.

A reader holds the bytes of a segment and its indexes, so that one call does everything without
attributes of Python objects; `point_lookup` has the readers of a log.

The first position of a read for an offset follows from headers alone. Not plain in this case: a
wrapper of an old format, a contradicting index entry or neighbour, or more than WALK_BYTES of
headers.

With `check_crcs=False` the CRC of the batch is not checked, as in a broker. The general path always
checks it.

Thread-safety: see the classes; the GIL is kept, for a look-up takes less than a microsecond.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from kafkalog._core.byteorder cimport load_i64
from kafkalog._core.cursor cimport Cursor
from kafkalog._core.header cimport (
    BatchFields,
    crc_of_batch,
    is_legacy,
    is_wrapper,
    last_offset_of,
    load_whole_batch,
    prefetch_header,
)
from kafkalog._core.index cimport (
    KEY_OFFSET,
    KEY_POSITION,
    OffsetIndexView,
    TimeIndexView,
    find_near_slot,
    load_key,
)
from kafkalog._core.layout cimport CODEC_MASK, CONTROL_MASK, RECORD_BATCH_OVERHEAD, RECORD_SIZE_MIN
from kafkalog._core.mapping cimport LOSSES, check_read, has_losses, is_range_lost
from kafkalog._core.message_set cimport MessageSet, messages_of_fields, next_message
from kafkalog._core.prefetch cimport prefetch, prefetch_ahead, prefetch_first
from kafkalog._core.record cimport (
    PayloadRef,
    Record,
    RecordFields,
    RecordsContext,
    context_of,
    make_record,
    next_record,
    read_short_varint,
)
from kafkalog._core.status cimport STATUS_OK
from kafkalog._core.time_read cimport (
    FoundTime,
    TimeWalk,
    begin_time_walk,
    find_time_batch,
    find_time_record,
)


cdef enum:
    # Limit of a walk over headers from an index entry: many times the usual interval.
    WALK_BYTES = 1024 * 1024


cdef uint64_t GOLDEN_RATIO = 0x9E3779B97F4A7C15


cdef inline Py_ssize_t cache_slot(int64_t start) noexcept nogil:
    """Spread positions, whatever their distance: Fibonacci hashing."""
    return <Py_ssize_t>((<uint64_t>start * GOLDEN_RATIO) >> (64 - KNOWN_BITS))


cdef bint find_reaching_kernel(Cursor* cursor, int64_t offset, BatchFields* batch) noexcept nogil:
    """Move the cursor to the first batch that reaches `offset`; return whether there is one."""
    while load_whole_batch(cursor, batch) == STATUS_OK:
        if last_offset_of(batch) >= offset:
            return True
        prefetch_header(cursor, batch.size_bytes)
        cursor.position += batch.size_bytes
    return False


cdef bint find_batch_kernel(Cursor* cursor, int64_t offset, BatchFields* batch) noexcept nogil:
    """Move the cursor to the plain batch with `offset`; return whether there is one."""
    cdef const uint8_t* following
    if not (
        find_reaching_kernel(cursor, offset, batch)
        and batch.base_offset <= offset
        and batch.attributes & (CODEC_MASK | CONTROL_MASK) == 0
    ):
        return False
    # No checksum covers the base offset; a raised one reaches above the start of the next batch.
    following = cursor.position + batch.size_bytes
    return cursor.end - following < 8 or load_i64(following) > last_offset_of(batch)


cdef const uint8_t* skip_records(const uint8_t* position, const uint8_t* limit,
                                 int64_t count) noexcept nogil:
    """Step over records by their lengths alone; NULL where one is not of the usual kind."""
    cdef uint32_t encoded = 0
    while count > 0:
        count -= 1
        prefetch_ahead(position)
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
    Find the record in the batch at `position`; return whether it is there.

    If the count excludes a gap, its place is known, and the records before it are skipped unread.
    It is accepted for its offset, so a wrong count only costs time.
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
        return next_message(&messages, position, limit, record) == STATUS_OK
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
            walk.left = 0              # the count is wrong: later calls use the general path
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
    Finds the records of one segment by their offsets, or their times.

    Holds the bytes, usually a mapping, as long as it or a record it made lives. Remembers of the
    last few places where look-ups began which batch they led to, so that the next ones there need
    not walk the headers and sum the batch up again.

    Thread-safety: calls may come from any thread, under the GIL.

    Args:
        data: the whole readable segment; the last batch may be cut.
        index: entries of its offset index; a hint, and any may be missing.
        times: entries of its time index, likewise; None for a reader without times.
    """

    def __cinit__(self, data not None, OffsetIndexView index not None, TimeIndexView times=None):
        self.data = data if isinstance(data, memoryview) else memoryview(data)
        self._ref = PayloadRef.__new__(PayloadRef, data)
        self._index = index
        self._times = times
        memset(&self._cached[0], 0, sizeof(self._cached))

    def __len__(self):
        return self._ref.view.len

    @property
    def is_lost(self):
        """True if a page of the bytes was lost; such a reader finds nothing any more."""
        return self._is_lost()

    cdef bint _is_lost(self) noexcept:
        return has_losses(LOSSES) and is_range_lost(
            <const uint8_t*>self._ref.view.buf, self._ref.view.len)

    @property
    def has_times(self):
        """True if it can find times."""
        return self._times is not None

    cdef bint _open(self, Cursor* cursor, int64_t start) noexcept:
        """Put the cursor where an index entry leads; False where that is outside."""
        cdef Py_ssize_t size = self._ref.view.len
        # An entry may be wrong: its batch is believed for its CRC and its own offset.
        if not 0 <= start < size:
            return False
        cursor.position = <const uint8_t*>self._ref.view.buf + start
        cursor.end = cursor.position + min(size - start, WALK_BYTES)
        return True

    cdef int64_t _entry_of(self, int64_t offset, int64_t* entry_offset) noexcept:
        """Return the position that the index has for an offset, and of which offset; 0 for none."""
        cdef OffsetIndexView index = self._index
        cdef Py_ssize_t slot = -1
        if offset >= index.base_offset:
            slot = find_near_slot(index._first, index._count, offset - index.base_offset,
                                  KEY_OFFSET) - 1
        if slot < 0:
            return 0
        entry_offset[0] = index.base_offset + load_key(index._first, slot, KEY_OFFSET)
        return load_key(index._first, slot, KEY_POSITION)

    cdef bint find_start(self, int64_t offset, int64_t base_offset, int64_t end,
                         int64_t following_offset, FoundBatch* found) noexcept:
        cdef const uint8_t* data = <const uint8_t*>self._ref.view.buf
        cdef int64_t entry_offset = 0
        cdef int64_t start = self._entry_of(offset, &entry_offset)
        cdef int64_t readable = min(end, <int64_t>self._ref.view.len)
        cdef BatchFields batch
        cdef BatchFields following
        cdef Cursor cursor
        memset(&batch, 0, sizeof(batch))       # gcc does not see that the kernels load both
        memset(&following, 0, sizeof(following))
        if not 0 <= start < readable:
            return False
        cursor.position = data + start
        cursor.end = data + min(start + WALK_BYTES, readable)
        if start > 0 and (
            load_whole_batch(&cursor, &batch) != STATUS_OK
            or not base_offset <= batch.base_offset <= entry_offset
        ):
            return False
        if not find_reaching_kernel(&cursor, offset, &batch) or is_wrapper(&batch):
            return False
        found.position = cursor.position - data
        found.size_bytes = batch.size_bytes
        if batch.base_offset > offset:
            return False
        cursor.position += batch.size_bytes
        cursor.end = data + readable
        # A damaged last offset would else include offsets of batches after it.
        if cursor.position == data + end:
            return last_offset_of(&batch) < following_offset
        return (
            load_whole_batch(&cursor, &following) == STATUS_OK
            and last_offset_of(&batch) < following.base_offset
        )

    cdef bint _check(self, int64_t start, const uint8_t* position, const BatchFields* batch,
                     bint check_crcs) noexcept:
        """Sum up the batch that a walk from `start` led to, unless that is known to be right."""
        if not check_crcs:
            prefetch_first(position + RECORD_BATCH_OVERHEAD, batch.size_bytes)
            return True
        cdef CachedBatch* cached = &self._cached[cache_slot(start)]
        cdef int64_t place = position - <const uint8_t*>self._ref.view.buf
        if cached.batch.size_bytes > 0 and cached.start == start and cached.position == place:
            return True
        if crc_of_batch(position, batch.size_bytes) != batch.crc:
            return False
        cached.start = start
        cached.position = place
        cached.batch = batch[0]
        return True

    cdef const uint8_t* _batch_of(self, int64_t offset, bint check_crcs,
                                  BatchFields* batch) noexcept:
        """Return where the plain batch with `offset` begins; NULL for none."""
        cdef int64_t following = 0
        cdef int64_t start = self._index.near_position(offset, &following)
        cdef CachedBatch* cached = &self._cached[cache_slot(start)]
        cdef Cursor cursor
        if (
            cached.batch.size_bytes > 0
            and cached.start == start
            and cached.batch.base_offset <= offset <= last_offset_of(&cached.batch)
        ):
            batch[0] = cached.batch
            return <const uint8_t*>self._ref.view.buf + cached.position
        if not self._open(&cursor, start) or not find_batch_kernel(&cursor, offset, batch):
            return NULL
        if not self._check(start, cursor.position, batch, check_crcs):
            return NULL
        return cursor.position

    cdef bint _walk_of(self, int64_t timestamp_ms, bint check_crcs, TimeWalk* walk) noexcept:
        """Begin at the first batch that reaches the time; False where that is not a plain one."""
        cdef int64_t start = 0
        cdef int64_t following = 0
        cdef int64_t entry_offset = 0
        cdef int64_t entry_timestamp
        cdef BatchFields batch
        cdef Cursor cursor
        if timestamp_ms < 0 or self._times is None:
            return False
        entry_timestamp = self._times.near_entry(timestamp_ms - 1, &entry_offset)
        if entry_timestamp >= 0:
            start = self._index.near_position(entry_offset, &following)
        memset(&batch, 0, sizeof(batch))       # gcc does not see that the kernel loads it
        if not self._open(&cursor, start):
            return False
        # The batch after that of the entry probably has the record.
        prefetch(cursor.position + (following - start))
        if not find_time_batch(&cursor, entry_timestamp, entry_offset, timestamp_ms, &batch):
            return False
        if not self._check(start, cursor.position, &batch, check_crcs):
            return False
        begin_time_walk(walk, cursor.position + RECORD_BATCH_OVERHEAD,
                        cursor.position + batch.size_bytes, &batch)
        return True

    cdef Record _make_record(self, const BatchFields* batch, const RecordFields* record):
        cdef RecordsContext context
        if is_legacy(batch):
            context = messages_of_fields(batch, True).context
        else:
            context = context_of(batch, True)
        return make_record(&context, record, self._ref)

    cdef Record read(self, int64_t offset, bint check_crcs):
        cdef const uint8_t* position
        cdef BatchFields batch
        cdef RecordFields record
        memset(&batch, 0, sizeof(batch))       # gcc does not see that the kernels load both
        memset(&record, 0, sizeof(record))
        position = self._batch_of(offset, check_crcs, &batch)
        if position == NULL or not find_record_kernel(position, &batch, offset, &record):
            return None
        if self._is_lost():
            return None
        return self._make_record(&batch, &record)

    cdef bint read_time(self, int64_t timestamp_ms, int64_t start_offset, bint check_crcs,
                        FoundTime* found) noexcept:
        cdef TimeWalk walk
        memset(&walk, 0, sizeof(walk))
        return (
            self._walk_of(timestamp_ms, check_crcs, &walk)
            and find_time_record(&walk, timestamp_ms, start_offset, found)
            and not self._is_lost()
        )

    def find_many(self, const int64_t[::1] offsets not None, list found not None,
                  Py_ssize_t start, Py_ssize_t stop, bint check_crcs=True):
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
                walk.begins = self._batch_of(offsets[slot], check_crcs, &walk.batch)
                if walk.begins == NULL:
                    continue
                walk.context = context_of(&walk.batch, True)
                walk.position = walk.begins + RECORD_BATCH_OVERHEAD
                walk.delta = 0
                walk.left = walk.batch.record_count
            if find_next_record(&walk, offsets[slot], &record) and not self._is_lost():
                found[slot] = self._make_record(&walk.batch, &record)

    def find(self, int64_t offset, bint check_crcs=True):
        """Return the record at `offset`, None where it is not plainly there."""
        return self.read(offset, check_crcs)

    def find_time(self, int64_t timestamp_ms, int64_t start_offset=0, bint check_crcs=True):
        """
        Return (timestamp, offset, leader epoch) of the first record at or above a time.

        None where it is not plainly there. Records below `start_offset` are not seen.
        """
        cdef FoundTime found
        memset(&found, 0, sizeof(found))
        if not self.read_time(timestamp_ms, start_offset, check_crcs, &found):
            return None
        return found.timestamp, found.offset, found.epoch

    def find_times(self, const int64_t[::1] timestamps not None, int64_t[::1] found not None,
                   Py_ssize_t start, Py_ssize_t stop, int64_t start_offset=0,
                   bint check_crcs=True):
        """
        Put the offset for each of `timestamps[start:stop]`, which rise, in its slot of `found`.

        Returns:
            The first slot without a plain result; nothing is put there, nor after it.

        Raises:
            LogStorageError: a page of the bytes was lost.
        """
        cdef Py_ssize_t slot = start
        cdef TimeWalk walk
        cdef FoundTime record
        if not 0 <= start <= stop <= min(timestamps.shape[0], found.shape[0]):
            raise IndexError(f"slots {start} to {stop} are outside those given")
        memset(&walk, 0, sizeof(walk))
        memset(&record, 0, sizeof(record))
        while slot < stop:
            # A batch that is begun has the answers to all times up to its largest.
            if walk.position == NULL or timestamps[slot] > walk.batch.max_timestamp:
                if not self._walk_of(timestamps[slot], check_crcs, &walk):
                    break
            if not find_time_record(&walk, timestamps[slot], start_offset, &record):
                break
            while slot < stop and timestamps[slot] <= record.timestamp:
                found[slot] = record.offset
                slot += 1
        check_read(<const uint8_t*>self._ref.view.buf, self._ref.view.len)
        return slot
