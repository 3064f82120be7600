"""Searching the entries of index files: inline, so that each kind of key gets its own loop."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkalog._core.byteorder cimport load_i32, load_i64, store_i32, store_i64
from kafkalog._core.layout cimport (
    OFFSET_ENTRY_OFFSET_POSITION,
    OFFSET_ENTRY_POSITION_POSITION,
    OFFSET_INDEX_ENTRY_SIZE,
    TIME_ENTRY_OFFSET_POSITION,
    TIME_ENTRY_TIMESTAMP_POSITION,
    TIME_INDEX_ENTRY_SIZE,
)


cdef enum IndexKey:
    KEY_OFFSET = 0                     # .index: relative offset
    KEY_POSITION = 1                   # .index: file position
    KEY_TIMESTAMP = 2                  # .timeindex: timestamp
    KEY_TIME_OFFSET = 3                # .timeindex: relative offset


cdef enum:
    # Indexes that lie in a few lines are searched from the middle.
    NEAR_COUNT_MIN = 64
    NEAR_STEP = 4


cdef inline Py_ssize_t size_of_entry(IndexKey key) noexcept nogil:
    if key == KEY_OFFSET or key == KEY_POSITION:
        return OFFSET_INDEX_ENTRY_SIZE
    return TIME_INDEX_ENTRY_SIZE


cdef inline void write_offset_entry(uint8_t* entry, int64_t relative_offset,
                                    int64_t position) noexcept nogil:
    """Write an entry of an offset index; both numbers fit in 32 bits."""
    store_i32(entry + OFFSET_ENTRY_OFFSET_POSITION, <int32_t>relative_offset)
    store_i32(entry + OFFSET_ENTRY_POSITION_POSITION, <int32_t>position)


cdef inline void write_time_entry(uint8_t* entry, int64_t timestamp,
                                  int64_t relative_offset) noexcept nogil:
    """Write an entry of a time index; the offset fits in 32 bits."""
    store_i64(entry + TIME_ENTRY_TIMESTAMP_POSITION, timestamp)
    store_i32(entry + TIME_ENTRY_OFFSET_POSITION, <int32_t>relative_offset)


cdef inline int64_t load_key(const uint8_t* entries, Py_ssize_t slot, IndexKey key) noexcept nogil:
    if key == KEY_OFFSET:
        return load_i32(entries + slot * OFFSET_INDEX_ENTRY_SIZE + OFFSET_ENTRY_OFFSET_POSITION)
    if key == KEY_POSITION:
        return load_i32(entries + slot * OFFSET_INDEX_ENTRY_SIZE + OFFSET_ENTRY_POSITION_POSITION)
    if key == KEY_TIMESTAMP:
        return load_i64(entries + slot * TIME_INDEX_ENTRY_SIZE + TIME_ENTRY_TIMESTAMP_POSITION)
    return load_i32(entries + slot * TIME_INDEX_ENTRY_SIZE + TIME_ENTRY_OFFSET_POSITION)


cdef inline Py_ssize_t find_upper_slot(const uint8_t* entries, Py_ssize_t count, int64_t target,
                                       IndexKey key) noexcept nogil:
    """
    Return the first slot whose key is above `target`, `count` if none is.

    Keys are expected to rise; where they do not, the answer is some slot in 0..count. The step is
    a conditional move, not a branch: half of the branches of a binary search are mispredicted.
    """
    cdef Py_ssize_t low = 0
    cdef Py_ssize_t size = count
    cdef Py_ssize_t half
    if count == 0:
        return 0
    while size > 1:
        half = size >> 1
        low += half if load_key(entries, low + half - 1, key) <= target else 0
        size -= half
    return low + (1 if load_key(entries, low, key) <= target else 0)


cdef inline Py_ssize_t find_near_slot(const uint8_t* entries, Py_ssize_t count, int64_t target,
                                      IndexKey key) noexcept nogil:
    """
    As find_upper_slot, from where the target would be if keys rose evenly.

    A look-up between two reads of large batches finds no entries in the caches, and a binary search
    waits for each line in turn. Keys of a log rise evenly enough that the guess is one or two lines
    off; the worst case is twice the steps.
    """
    cdef Py_ssize_t low = 0
    cdef Py_ssize_t high = count
    cdef Py_ssize_t guess, step
    cdef int64_t first, last
    if count < NEAR_COUNT_MIN:
        return find_upper_slot(entries, count, target, key)
    first = load_key(entries, 0, key)
    last = load_key(entries, count - 1, key)
    if target < first:
        return 0
    if target >= last:
        return count
    # Keys of a damaged file may be anything, but here the target is between these two.
    guess = <Py_ssize_t>(
        (<double>target - <double>first) / (<double>last - <double>first) * <double>(count - 1)
    )
    step = NEAR_STEP
    if load_key(entries, guess, key) <= target:
        low = guess + 1
        while low + step < count and load_key(entries, low + step, key) <= target:
            low += step + 1
            step += step
        high = min(low + step, count)
    else:
        high = guess
        while high > step and load_key(entries, high - step, key) > target:
            high -= step
            step += step
        low = max(high - step, 0)
    return low + find_upper_slot(entries + low * size_of_entry(key), high - low, target, key)


@cython.final
cdef class OffsetIndexView:
    cdef const uint8_t[::1] _entries
    cdef const uint8_t* _first
    cdef readonly int64_t base_offset
    cdef Py_ssize_t _count

    cdef Py_ssize_t _floor_slot(self, int64_t offset) noexcept
    cdef tuple _entry(self, Py_ssize_t slot)

    # For kernels: the position that `lookup` returns, and that of the next entry, 0 for none.
    # Both come from a file: 0 or any number above.
    cdef int64_t near_position(self, int64_t offset, int64_t* following) noexcept


@cython.final
cdef class TimeIndexView:
    cdef const uint8_t[::1] _entries
    cdef const uint8_t* _first
    cdef readonly int64_t base_offset
    cdef Py_ssize_t _count

    # For kernels: the timestamp of the entry that `lookup` gives, and its offset.
    cdef int64_t near_entry(self, int64_t timestamp_ms, int64_t* offset) noexcept
    cdef tuple _entry(self, Py_ssize_t slot)
