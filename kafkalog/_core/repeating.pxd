"""The two copies that decoders of the LZ77 family live on: literals, and bytes written before.

Both move more bytes at a time than requested: the caller ensures that MOVE_AHEAD bytes after the
target's end may be written, and for `copy_ahead` that as many after the source's end may be read.
The extra bytes have no meaning; the next copy overwrites them.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy


cdef extern from *:
    """
    /* The least multiple of a short distance that is not below 8. */
    static const unsigned char kafkalog_wide_distance[8] = {0, 8, 8, 9, 8, 10, 12, 14};
    """
    const uint8_t[8] wide_distance "kafkalog_wide_distance"


cdef enum:
    MOVE_AHEAD = 32


cdef inline void copy_ahead(
    uint8_t* target, const uint8_t* source, int64_t size
) noexcept nogil:
    """Copy `size` bytes that do not overlap, 16 at a time, at least once."""
    cdef const uint8_t* end = target + size
    memcpy(target, source, 16)
    target += 16
    while target < end:
        source += 16
        memcpy(target, source, 16)
        target += 16


cdef inline void repeat_bytes(uint8_t* target, int64_t distance, int64_t size) noexcept nogil:
    """Write `size` bytes at `target`, each equal to the byte `distance` before it."""
    cdef const uint8_t* end = target + size
    cdef const uint8_t* source = target - distance
    cdef int slot
    if distance >= 16:
        # Most matches end within 32 bytes: two moves and no branch that depends on the length.
        memcpy(target, source, 16)
        memcpy(target + 16, source + 16, 16)
        if size > 32:
            copy_ahead(target + 32, source + 32, size - 32)
        return
    if distance < 8:
        # Eight bytes one by one; from then on the same bytes also stand at a wider distance.
        for slot in range(8):
            target[slot] = source[slot]
        target += 8
        source = target - wide_distance[distance]
    while target < end:
        memcpy(target, source, 8)
        source += 8
        target += 8
