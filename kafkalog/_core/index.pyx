"""The .index and .timeindex files of a segment: look-ups, checks, choice of entries.

OffsetIndex and TimeIndex in Kafka. Entries are big-endian, without header or checksum: 8 bytes in
an offset index (int32 relative offset, int32 file position of a batch), 12 in a time index (int64
timestamp, int32 relative offset). They are read where they lie, in a mapped file or in memory, and
never copied or converted.

Callers are the offset and time index of a segment, and its recovery. Nothing here trusts the
entries: a damaged index gives wrong answers, never a read outside the buffer; `check_offset_index`
and `check_time_index` check whether it may be used.

Thread-safety: views are immutable and may be shared; a selector belongs to one thread.
"""

cimport cython
from libc.stdint cimport INT32_MAX, int64_t, uint8_t

from kafkalog._core.layout cimport NO_TIMESTAMP, OFFSET_INDEX_ENTRY_SIZE, TIME_INDEX_ENTRY_SIZE
from kafkalog._core.mapping cimport check_read
from kafkalog._core.status cimport (
    STATUS_OFFSET_ORDER,
    STATUS_OK,
    STATUS_RELATIVE_OFFSET,
    raise_for_status,
)

cdef enum:
    # Number of interleaved searches: each waits for memory most of the time.
    LANES = 16
    # A bulk look-up of so many keys takes some tens of microseconds.
    NOGIL_COUNT_MIN = 1000


cdef struct SelectionState:
    int64_t base_offset
    int64_t interval_bytes
    int64_t last_indexed_position
    int64_t last_indexed_offset
    int64_t max_timestamp
    int64_t offset_of_max_timestamp
    int64_t last_indexed_timestamp


# ---- kernels ----


cdef inline void upper_slots_kernel(const uint8_t* entries, Py_ssize_t count,
                                    const int64_t* targets, int64_t* slots,
                                    IndexKey key) noexcept nogil:
    """find_upper_slot for LANES targets at once, step by step; `count` is at least 1."""
    cdef Py_ssize_t size = count
    cdef Py_ssize_t half
    cdef int lane
    for lane in range(LANES):
        slots[lane] = 0
    while size > 1:
        half = size >> 1
        for lane in range(LANES):
            slots[lane] += (
                half if load_key(entries, slots[lane] + half - 1, key) <= targets[lane] else 0)
        size -= half
    for lane in range(LANES):
        slots[lane] += 1 if load_key(entries, slots[lane], key) <= targets[lane] else 0


cdef inline void floor_values_kernel(const uint8_t* entries, Py_ssize_t count, int64_t base_offset,
                                     const int64_t* targets, int64_t* values, Py_ssize_t size,
                                     IndexKey key) noexcept nogil:
    """For each target, the position (in a time index: the offset) that its floor entry holds."""
    cdef int64_t[LANES] slots
    cdef int64_t[LANES] lanes
    cdef Py_ssize_t start = 0
    cdef Py_ssize_t lane, width
    # Below every entry: the start of the segment.
    cdef int64_t none = base_offset if key == KEY_TIMESTAMP else 0
    while start < size:
        width = size - start if size - start < LANES else LANES
        for lane in range(LANES):
            lanes[lane] = targets[start + lane] if lane < width else 0
            if key == KEY_OFFSET:
                # Cannot overflow: base_offset is not negative, and keys are only compared.
                lanes[lane] = lanes[lane] - base_offset if lanes[lane] >= 0 else -1
        upper_slots_kernel(entries, count, lanes, slots, key)
        for lane in range(width):
            if slots[lane] == 0:
                values[start + lane] = none
            elif key == KEY_OFFSET:
                values[start + lane] = load_key(entries, slots[lane] - 1, KEY_POSITION)
            else:
                values[start + lane] = (
                    base_offset + load_key(entries, slots[lane] - 1, KEY_TIME_OFFSET))
        start += LANES


cdef Py_ssize_t used_count_kernel(const uint8_t* entries, Py_ssize_t count,
                                  Py_ssize_t entry_size) noexcept nogil:
    """Count the entries before the zeros that a preallocated file ends with."""
    cdef const uint8_t* last = entries + count * entry_size
    while last - entries >= 8 and load_i64(last - 8) == 0:
        last -= 8
    while last > entries and (last - 1)[0] == 0:
        last -= 1
    return (last - entries + entry_size - 1) // entry_size


cdef Py_ssize_t check_offsets_kernel(const uint8_t* entries, Py_ssize_t count,
                                     int64_t segment_size) noexcept nogil:
    """Return how many entries, from the first, are in order."""
    cdef int64_t offset, position
    cdef int64_t last_offset = -1
    # The first batch of a segment is never indexed: a sound index has no position 0.
    cdef int64_t last_position = 0
    cdef Py_ssize_t slot
    for slot in range(count):
        offset = load_key(entries, slot, KEY_OFFSET)
        position = load_key(entries, slot, KEY_POSITION)
        if offset <= last_offset or position <= last_position or position >= segment_size:
            return slot
        last_offset = offset
        last_position = position
    return count


cdef Py_ssize_t check_times_kernel(const uint8_t* entries, Py_ssize_t count) noexcept nogil:
    """Return how many entries, from the first, are in order."""
    cdef int64_t timestamp, offset
    cdef int64_t last_timestamp = NO_TIMESTAMP
    cdef int64_t last_offset = 0
    cdef Py_ssize_t slot
    for slot in range(count):
        timestamp = load_key(entries, slot, KEY_TIMESTAMP)
        offset = load_key(entries, slot, KEY_TIME_OFFSET)
        if timestamp <= last_timestamp or offset < last_offset:
            return slot
        last_timestamp = timestamp
        last_offset = offset
    return count


cdef inline uint8_t* add_time_entry(uint8_t* target, SelectionState* state) noexcept nogil:
    """TimeIndex.maybeAppend: write the largest timestamp so far unless the last entry has it."""
    if state.max_timestamp <= state.last_indexed_timestamp:
        return target
    state.last_indexed_timestamp = state.max_timestamp
    write_time_entry(target, state.max_timestamp,
                     state.offset_of_max_timestamp - state.base_offset)
    return target + TIME_INDEX_ENTRY_SIZE


cdef int select_kernel(SelectionState* state, const int64_t* positions, const int64_t* last_offsets,
                       const int64_t* max_timestamps, Py_ssize_t* count, uint8_t** offset_entries,
                       uint8_t** time_entries) noexcept nogil:
    """LogSegment.recover's choice of entries; on failure `count` is the row at fault."""
    cdef Py_ssize_t row
    cdef int64_t last_offset, position
    for row in range(count[0]):
        last_offset = last_offsets[row]
        position = positions[row]
        if (
            last_offset < state.base_offset
            or last_offset - state.base_offset > INT32_MAX
            or position < 0
            or position > INT32_MAX
        ):
            count[0] = row
            return STATUS_RELATIVE_OFFSET
        if max_timestamps[row] > state.max_timestamp:
            state.max_timestamp = max_timestamps[row]
            state.offset_of_max_timestamp = last_offset
        if position - state.last_indexed_position > state.interval_bytes:
            if last_offset <= state.last_indexed_offset:
                count[0] = row
                return STATUS_OFFSET_ORDER
            write_offset_entry(offset_entries[0], last_offset - state.base_offset, position)
            offset_entries[0] += OFFSET_INDEX_ENTRY_SIZE
            time_entries[0] = add_time_entry(time_entries[0], state)
            state.last_indexed_position = position
            state.last_indexed_offset = last_offset
    return STATUS_OK


# ---- views ----


cdef Py_ssize_t _entry_count(Py_ssize_t size, Py_ssize_t entry_size, object count) except -1:
    """Return how many entries are in use, of those that fit `size` bytes."""
    cdef Py_ssize_t used = size // entry_size if count is None else <Py_ssize_t>count
    if not 0 <= used <= size // entry_size:
        raise ValueError(f"count must be in 0 to {size // entry_size}, got {used}")
    return used


cdef int _check_base_offset(int64_t base_offset) except -1:
    # The last relative offset must be an offset still.
    cdef int64_t limit = 0x7fffffffffffffff - <int64_t>INT32_MAX
    if not 0 <= base_offset <= limit:
        raise ValueError(f"base_offset must be in 0 to {limit}, got {base_offset}")
    return 0


cdef int _lookup_many(const uint8_t* entries, Py_ssize_t count, int64_t base_offset,
                      const int64_t[::1] keys, int64_t[::1] values_out, IndexKey kind) except -1:
    """Write what the floor entry of each key holds; without entries, the start of the segment."""
    cdef Py_ssize_t size = keys.shape[0]
    if size != values_out.shape[0]:
        raise ValueError(
            f"values_out must have as many items as keys, {size}, got {values_out.shape[0]}"
        )
    if size == 0:
        return 0
    if count == 0:
        values_out[:] = base_offset if kind == KEY_TIMESTAMP else 0
        return 0
    cdef const int64_t* targets = &keys[0]
    cdef int64_t* values = &values_out[0]
    if size < NOGIL_COUNT_MIN:
        floor_values_kernel(entries, count, base_offset, targets, values, size, kind)
    else:
        with nogil:
            floor_values_kernel(entries, count, base_offset, targets, values, size, kind)
    return _check_entries(
        entries, count, TIME_INDEX_ENTRY_SIZE if kind == KEY_TIMESTAMP else OFFSET_INDEX_ENTRY_SIZE)


cdef inline int _check_entries(const uint8_t* entries, Py_ssize_t count,
                               Py_ssize_t entry_size) except -1:
    """Raise LogStorageError if a page of the entries was lost: they are not valid then."""
    return check_read(entries, count * entry_size)


@cython.final
cdef class OffsetIndexView:
    """
    The entries of an .index file, searched in place.

    Holds the buffer: a mapped file cannot be closed while a view of it lives. Thread-safety: shared
    freely.

    Args:
        entries: the bytes of the file, preallocated tail included.
        base_offset: that of the segment.
        count: entries in use; None for as many as the bytes hold.
    """

    def __cinit__(self, const uint8_t[::1] entries not None, int64_t base_offset, count=None):
        _check_base_offset(base_offset)
        self._count = _entry_count(entries.shape[0], OFFSET_INDEX_ENTRY_SIZE, count)
        self._entries = entries
        self._first = &entries[0] if entries.shape[0] > 0 else NULL
        self.base_offset = base_offset

    def __len__(self):
        return self._count

    cdef Py_ssize_t _floor_slot(self, int64_t offset) noexcept:
        if offset < self.base_offset:
            return -1
        return find_upper_slot(self._first, self._count, offset - self.base_offset, KEY_OFFSET) - 1

    cdef int64_t near_position(self, int64_t offset, int64_t* following) noexcept:
        cdef Py_ssize_t slot = -1
        if offset >= self.base_offset:
            slot = find_near_slot(
                self._first, self._count, offset - self.base_offset, KEY_OFFSET) - 1
        following[0] = 0
        if slot + 1 < self._count:
            following[0] = load_key(self._first, slot + 1, KEY_POSITION)
        return load_key(self._first, slot, KEY_POSITION) if slot >= 0 else 0

    cdef tuple _entry(self, Py_ssize_t slot):
        return (self.base_offset + load_key(self._first, slot, KEY_OFFSET),
                load_key(self._first, slot, KEY_POSITION))

    @property
    def last_offset(self):
        """Offset of the last entry, base_offset if there is none."""
        return self._entry(self._count - 1)[0] if self._count > 0 else self.base_offset

    def lookup(self, int64_t offset):
        """Return (offset, position) of the greatest entry not above, or (base_offset, 0)."""
        cdef Py_ssize_t slot = self._floor_slot(offset)
        found = self._entry(slot) if slot >= 0 else (self.base_offset, 0)
        _check_entries(self._first, self._count, OFFSET_INDEX_ENTRY_SIZE)
        return found

    def lookup_slot(self, int64_t offset):
        """Return the slot of the greatest entry not above `offset`, -1 if there is none."""
        cdef Py_ssize_t slot = self._floor_slot(offset)
        _check_entries(self._first, self._count, OFFSET_INDEX_ENTRY_SIZE)
        return slot

    def entry(self, Py_ssize_t slot):
        """Return (offset, position) of the entry in `slot`; IndexError outside 0..len-1."""
        if not 0 <= slot < self._count:
            raise IndexError(f"slot {slot} is not in 0..{self._count - 1}")
        found = self._entry(slot)
        _check_entries(self._first, self._count, OFFSET_INDEX_ENTRY_SIZE)
        return found

    def lookup_many(self, const int64_t[::1] offsets not None, int64_t[::1] positions_out not None):
        """Write the position that `lookup` gives for each of `offsets` to `positions_out`."""
        _lookup_many(self._first, self._count, self.base_offset, offsets, positions_out, KEY_OFFSET)

    def ceiling_position(self, int64_t position):
        """Return (offset, position) of the first entry whose position is not below `position`."""
        if position == -0x8000000000000000:
            position += 1
        cdef Py_ssize_t slot = find_upper_slot(
            self._first, self._count, position - 1, KEY_POSITION)
        found = self._entry(slot) if slot < self._count else None
        _check_entries(self._first, self._count, OFFSET_INDEX_ENTRY_SIZE)
        return found


@cython.final
cdef class TimeIndexView:
    """
    The entries of a .timeindex file, searched in place.

    An entry (T, O) means: every record newer than T has an offset above O. Holds the buffer, as
    OffsetIndexView does. Thread-safety: shared freely.

    Args:
        entries: the bytes of the file, preallocated tail included.
        base_offset: that of the segment.
        count: entries in use; None for as many as the bytes hold.
    """

    def __cinit__(self, const uint8_t[::1] entries not None, int64_t base_offset, count=None):
        _check_base_offset(base_offset)
        self._count = _entry_count(entries.shape[0], TIME_INDEX_ENTRY_SIZE, count)
        self._entries = entries
        self._first = &entries[0] if entries.shape[0] > 0 else NULL
        self.base_offset = base_offset

    def __len__(self):
        return self._count

    cdef tuple _entry(self, Py_ssize_t slot):
        return (load_key(self._first, slot, KEY_TIMESTAMP),
                self.base_offset + load_key(self._first, slot, KEY_TIME_OFFSET))

    cdef int64_t near_entry(self, int64_t timestamp_ms, int64_t* offset) noexcept:
        cdef Py_ssize_t slot = find_near_slot(
            self._first, self._count, timestamp_ms, KEY_TIMESTAMP) - 1
        offset[0] = self.base_offset
        if slot < 0:
            return NO_TIMESTAMP
        offset[0] += load_key(self._first, slot, KEY_TIME_OFFSET)
        return load_key(self._first, slot, KEY_TIMESTAMP)

    def lookup(self, int64_t timestamp_ms):
        """Return (timestamp, offset) of the greatest entry not above, or (-1, base_offset)."""
        cdef Py_ssize_t slot = find_upper_slot(
            self._first, self._count, timestamp_ms, KEY_TIMESTAMP) - 1
        found = self._entry(slot) if slot >= 0 else (NO_TIMESTAMP, self.base_offset)
        _check_entries(self._first, self._count, TIME_INDEX_ENTRY_SIZE)
        return found

    def entry(self, Py_ssize_t slot):
        """Return (timestamp, offset) of the entry in `slot`; IndexError outside 0..len-1."""
        if not 0 <= slot < self._count:
            raise IndexError(f"slot {slot} is not in 0..{self._count - 1}")
        found = self._entry(slot)
        _check_entries(self._first, self._count, TIME_INDEX_ENTRY_SIZE)
        return found

    def floor_slot_by_offset(self, int64_t offset):
        """Return the last slot whose offset is not above `offset`, -1 if there is none."""
        if offset < self.base_offset:
            return -1
        cdef Py_ssize_t slot = find_upper_slot(
            self._first, self._count, offset - self.base_offset, KEY_TIME_OFFSET) - 1
        _check_entries(self._first, self._count, TIME_INDEX_ENTRY_SIZE)
        return slot

    def lookup_many(self, const int64_t[::1] timestamps not None,
                    int64_t[::1] offsets_out not None):
        """Write the offset that `lookup` gives for each of `timestamps` to `offsets_out`."""
        _lookup_many(self._first, self._count, self.base_offset, timestamps, offsets_out,
                     KEY_TIMESTAMP)


# ---- checks ----


def check_offset_index(const uint8_t[::1] entries not None, *, int64_t segment_size):
    """
    Return (count, ok) for the bytes of an .index file.

    `count` is the number of sound entries from the first on, without the zeros that a preallocated
    file ends with. `ok` is False if anything else follows them, or the size is no multiple of 8.
    Sound: offsets and positions rise strictly; positions lie inside the segment, past its start.
    """
    cdef Py_ssize_t size = entries.shape[0]
    if size < OFFSET_INDEX_ENTRY_SIZE:
        return 0, size == 0
    cdef Py_ssize_t used = used_count_kernel(
        &entries[0], size // OFFSET_INDEX_ENTRY_SIZE, OFFSET_INDEX_ENTRY_SIZE)
    cdef Py_ssize_t sound = check_offsets_kernel(&entries[0], used, segment_size)
    check_read(&entries[0], size)
    return sound, sound == used and size % OFFSET_INDEX_ENTRY_SIZE == 0


def check_time_index(const uint8_t[::1] entries not None):
    """
    Return (count, ok) for the bytes of a .timeindex file, as `check_offset_index` does.

    Sound: timestamps rise strictly from 0 on, offsets do not fall. An entry of zeros at the very
    end cannot be distinguished from preallocated space and is not counted; a look-up has the same
    result.
    """
    cdef Py_ssize_t size = entries.shape[0]
    if size < TIME_INDEX_ENTRY_SIZE:
        return 0, size == 0
    cdef Py_ssize_t used = used_count_kernel(
        &entries[0], size // TIME_INDEX_ENTRY_SIZE, TIME_INDEX_ENTRY_SIZE)
    cdef Py_ssize_t sound = check_times_kernel(&entries[0], used)
    check_read(&entries[0], size)
    return sound, sound == used and size % TIME_INDEX_ENTRY_SIZE == 0


# ---- building ----


@cython.final
cdef class IndexEntrySelector:
    """
    Chooses the index entries of a segment from its batches, as LogSegment.recover does.

    Fed with the columns of consecutive scans over one segment, from its first batch to its last.
    A batch gets an entry (last offset, position) if it begins more than `interval_bytes` after the
    batch with the last entry, or after the start of the segment; the time index gets the largest
    timestamp so far, unless its last entry has it. `final_time_entry` ends a time index.
    Thread-safety: one thread at a time.

    Args:
        base_offset: that of the segment.
        interval_bytes: `index.interval.bytes`.
    """

    cdef SelectionState _state

    def __cinit__(self, int64_t base_offset, int64_t interval_bytes):
        _check_base_offset(base_offset)
        if interval_bytes < 0:
            raise ValueError(f"interval_bytes must not be negative, got {interval_bytes}")
        self._state.base_offset = base_offset
        self._state.interval_bytes = interval_bytes
        self._state.last_indexed_position = 0
        self._state.last_indexed_offset = -1
        self._state.max_timestamp = NO_TIMESTAMP
        self._state.offset_of_max_timestamp = -1
        self._state.last_indexed_timestamp = NO_TIMESTAMP

    @property
    def last_indexed_position(self):
        """Position of the batch that has the last entry, 0 before the first."""
        return self._state.last_indexed_position

    @property
    def max_timestamp(self):
        """Largest timestamp so far, -1 if there was none."""
        return self._state.max_timestamp

    @property
    def offset_of_max_timestamp(self):
        """Last offset of the earliest batch that has the largest timestamp, or -1."""
        return self._state.offset_of_max_timestamp

    def select(self, const int64_t[::1] positions not None,
               const int64_t[::1] last_offsets not None,
               const int64_t[::1] max_timestamps not None, count=None):
        """
        Return (bytes for .index, bytes for .timeindex) for the first `count` rows of the columns.

        Raises:
            OffsetOverflowError: an offset or position does not fit 32 bits; nothing is taken over.
            CorruptRecordError: offsets do not rise; nothing is taken over.
        """
        cdef Py_ssize_t rows = positions.shape[0]
        cdef SelectionState state = self._state
        cdef uint8_t* offset_entries
        cdef uint8_t* time_entries
        if count is not None:
            rows = count
        if not 0 <= rows <= min(positions.shape[0], last_offsets.shape[0], max_timestamps.shape[0]):
            raise ValueError(f"count must be at most the rows of each column, got {rows}")
        if rows == 0:
            return b"", b""
        cdef uint8_t[::1] offset_output = bytearray(rows * OFFSET_INDEX_ENTRY_SIZE)
        cdef uint8_t[::1] time_output = bytearray(rows * TIME_INDEX_ENTRY_SIZE)
        offset_entries = &offset_output[0]
        time_entries = &time_output[0]
        cdef int status = select_kernel(&state, &positions[0], &last_offsets[0], &max_timestamps[0],
                                        &rows, &offset_entries, &time_entries)
        if status != STATUS_OK:
            return raise_for_status(status, <Py_ssize_t>positions[rows])
        self._state = state
        return (bytes(offset_output[:offset_entries - &offset_output[0]]),
                bytes(time_output[:time_entries - &time_output[0]]))

    def final_time_entry(self):
        """Return the entry (12 bytes) that a time index ends with, b"" if it is there already."""
        cdef uint8_t[TIME_INDEX_ENTRY_SIZE] entry
        cdef uint8_t* end = add_time_entry(entry, &self._state)
        return entry[:end - entry]
