"""Searching the entries of index files: inline, so that each kind of key gets its own loop."""

cimport cython
from libc.stdint cimport int64_t, uint8_t

from kafkalog._core.byteorder cimport load_i32, load_i64
from kafkalog._core.layout cimport OFFSET_INDEX_ENTRY_SIZE, TIME_INDEX_ENTRY_SIZE


cdef enum IndexKey:
    KEY_OFFSET = 0                     # .index: relative offset
    KEY_POSITION = 1                   # .index: file position
    KEY_TIMESTAMP = 2                  # .timeindex: timestamp
    KEY_TIME_OFFSET = 3                # .timeindex: relative offset


cdef inline int64_t load_key(const uint8_t* entries, Py_ssize_t slot, IndexKey key) noexcept nogil:
    if key == KEY_OFFSET:
        return load_i32(entries + slot * OFFSET_INDEX_ENTRY_SIZE)
    if key == KEY_POSITION:
        return load_i32(entries + slot * OFFSET_INDEX_ENTRY_SIZE + 4)
    if key == KEY_TIMESTAMP:
        return load_i64(entries + slot * TIME_INDEX_ENTRY_SIZE)
    return load_i32(entries + slot * TIME_INDEX_ENTRY_SIZE + 8)


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


@cython.final
cdef class OffsetIndexView:
    cdef const uint8_t[::1] _entries
    cdef const uint8_t* _first
    cdef readonly int64_t base_offset
    cdef Py_ssize_t _count

    cdef Py_ssize_t _floor_slot(self, int64_t offset) noexcept
    cdef tuple _entry(self, Py_ssize_t slot)

    # For kernels: the position that `lookup` gives; what a file says, so 0 or anything above.
    cdef int64_t floor_position(self, int64_t offset) noexcept
