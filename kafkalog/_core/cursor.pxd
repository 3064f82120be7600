"""A bounded reading position. Every decoder takes one; nothing decodes a bare pointer.

Compare what remains, never add to a position before it was checked.
"""

from libc.stdint cimport int64_t, uint8_t


cdef struct Cursor:
    const uint8_t* position            # first byte not consumed
    const uint8_t* end                 # one past the last readable byte


cdef inline int64_t remaining(const Cursor* cursor) noexcept nogil:
    return <int64_t>(cursor.end - cursor.position)
