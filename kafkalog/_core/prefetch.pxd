"""Hints to the CPU that lines will be read soon. They never fault, whatever the address.

A checksum reads a batch at the speed of memory. A walk from record to record waits for each line,
unless the lines ahead were prefetched.
"""

from libc.stdint cimport int64_t, uint8_t

cdef extern from *:
    """
    #if defined(__GNUC__)
    #define kafkalog_prefetch(address) __builtin_prefetch((address), 0, 3)
    #else
    #define kafkalog_prefetch(address) ((void)(address))
    #endif
    """
    void prefetch "kafkalog_prefetch" (const void* address) noexcept nogil


cdef enum:
    LINE_SIZE = 64

    # Largest prefetch of the next tile during the decoding of a tile: both fit the first-level
    # cache.
    AHEAD_SIZE = 16 * 1024

    # As far ahead as a walk asks for that reads of each record where the next one is.
    STEP_AHEAD_SIZE = 1024


# Lines after the decoded tile, which the CRC reads next.
cdef struct PrefetchWindow:
    const uint8_t* position               # up to here, exclusively
    const uint8_t* end                 # never beyond


cdef inline PrefetchWindow prefetch_window(
    const uint8_t* tile_end, const uint8_t* readable_end
) noexcept nogil:
    cdef PrefetchWindow ahead
    ahead.position = tile_end
    ahead.end = tile_end
    if readable_end - tile_end > AHEAD_SIZE + 2 * LINE_SIZE:
        ahead.end = tile_end + AHEAD_SIZE
    return ahead


cdef inline void prefetch_next_lines(PrefetchWindow* ahead) noexcept nogil:
    """
    Ask for the next two lines: called for each record, this asks for all of the next tile where
    records are short, and where they are long for enough to set the CPU's own prefetching going.

    Four lines cost more than they gain where records have 100 bytes.
    """
    if ahead.position < ahead.end:
        prefetch(ahead.position)
        prefetch(ahead.position + LINE_SIZE)
        ahead.position += 2 * LINE_SIZE


cdef inline void prefetch_ahead(const uint8_t* position) noexcept nogil:
    """Ask for what a walk comes to in a while, where it was begun by `prefetch_first`."""
    prefetch(position + STEP_AHEAD_SIZE)
    prefetch(position + STEP_AHEAD_SIZE + LINE_SIZE)


cdef inline void prefetch_first(const uint8_t* position, int64_t size) noexcept nogil:
    """Ask for the bytes that a walk begins with."""
    cdef int64_t ahead = 0
    while ahead < size and ahead < STEP_AHEAD_SIZE:
        prefetch(position + ahead)
        ahead += LINE_SIZE
