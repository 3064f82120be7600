"""End and content size of a frame of Zstandard, by its headers alone.

    u32 0xFD2FB528 | descriptor | [window] | [dictionary] | [content size] | blocks | [checksum]
    block: u24 (bit 0 last, bits 1-2 type, the rest size) | data        all little-endian

It refuses frames that the library would refuse too, or that request too much memory;
kafkalog.records.zstd_frames uses the result. Thread-safety: pure function.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from kafkalog._core.byteorder cimport load_little_u32
from kafkalog._core.cursor cimport Cursor, remaining

from kafkalog.errors import CorruptRecordError


cdef extern from *:
    """
    static const unsigned int kafkalog_zstd_magic = 0xFD2FB528U;
    """
    const uint32_t MAGIC "kafkalog_zstd_magic"


cdef enum:
    MAGIC_SIZE = 4
    CHECKSUM_SIZE = 4
    BLOCK_HEADER_SIZE = 3

    DICTIONARY_MASK = 0x03             # 0, 1, 2 or 4 bytes
    CHECKSUM = 0x04
    RESERVED = 0x08
    SINGLE_SEGMENT = 0x20
    CONTENT_SIZE_SHIFT = 6             # 0, 2, 4 or 8 bytes; in a single segment 1 for 0
    CONTENT_SIZE_OF_2 = 256            # added to a content size of two bytes

    RUN = 1
    COMPRESSED = 2
    BLOCK_SIZE_MAX = 128 * 1024

    MANTISSA_MASK = 7
    EXPONENT_SHIFT = 3
    EXPONENT_MIN = 10

    # Limit of the library itself: the memory that a frame may request for its decoding.
    WINDOW_SIZE = 1 << 27


WINDOW_SIZE_MAX = WINDOW_SIZE


_MEANINGS = {
    CUT_HEADER: "the stream ends inside a frame header",
    RESERVED_BIT: "a reserved bit of a frame header is set",
    NO_LAST_BLOCK: "the stream ends before its last block",
    RESERVED_BLOCK: "a block of a reserved type",
    CUT_BLOCK: "the stream ends inside a block",
    NO_CHECKSUM: "the stream ends before its checksum",
}


cdef Verdict header_kernel(Cursor* cursor, uint8_t* descriptor, FrameFacts* frame) noexcept nogil:
    """Read the header of a frame after its magic."""
    cdef int64_t size
    cdef int64_t slot
    cdef uint8_t window = 0
    cdef bint is_single
    if remaining(cursor) < 1:
        return CUT_HEADER
    descriptor[0] = cursor.position[0]
    if descriptor[0] & RESERVED:
        return RESERVED_BIT
    cursor.position += 1
    is_single = descriptor[0] & SINGLE_SEGMENT != 0
    # The window's byte, and the dictionary's: 0, 1, 2 or 4.
    size = (descriptor[0] & DICTIONARY_MASK) + (descriptor[0] & DICTIONARY_MASK == 3)
    if not is_single:
        if remaining(cursor) < 1:
            return CUT_HEADER
        window = cursor.position[0]
        cursor.position += 1
    if remaining(cursor) < size:
        return CUT_HEADER
    cursor.position += size
    size = <int64_t>1 << (descriptor[0] >> CONTENT_SIZE_SHIFT)
    if size == 1 and not is_single:
        size = 0
    if remaining(cursor) < size:
        return CUT_HEADER
    frame.has_content_size = size > 0
    frame.content_size = CONTENT_SIZE_OF_2 if size == 2 else 0
    for slot in range(size):
        frame.content_size += <uint64_t>cursor.position[slot] << (8 * slot)
    cursor.position += size
    frame.window_size = frame.content_size
    if not is_single:
        frame.window_size = <uint64_t>1 << (EXPONENT_MIN + (window >> EXPONENT_SHIFT))
        frame.window_size += (frame.window_size >> EXPONENT_SHIFT) * (window & MANTISSA_MASK)
        # A single segment needs no window: it is decoded into the output, which has its own bound.
        if frame.window_size > <uint64_t>WINDOW_SIZE:
            return LARGE_WINDOW
    frame.block_size_max = <int64_t>min(frame.window_size, <uint64_t>BLOCK_SIZE_MAX)
    return WHOLE


cdef Verdict blocks_kernel(Cursor* cursor, FrameFacts* frame) noexcept nogil:
    """Walk the headers of the blocks."""
    cdef uint32_t header
    cdef uint32_t kind
    cdef int64_t size
    cdef int64_t stored
    frame.size_bound = 0
    while True:
        if remaining(cursor) < BLOCK_HEADER_SIZE:
            return NO_LAST_BLOCK
        header = cursor.position[0] | <uint32_t>cursor.position[1] << 8
        header |= <uint32_t>cursor.position[2] << 16
        kind = header >> 1 & 3
        size = header >> 3
        cursor.position += BLOCK_HEADER_SIZE
        if kind > COMPRESSED:
            return RESERVED_BLOCK
        if size > frame.block_size_max:
            frame.bad_size = size
            return LARGE_BLOCK
        stored = 1 if kind == RUN else size
        if stored > remaining(cursor):
            return CUT_BLOCK
        cursor.position += stored
        frame.size_bound += frame.block_size_max if kind == COMPRESSED else size
        if header & 1:
            return WHOLE


cdef Verdict walk_frame_kernel(Cursor* cursor, FrameFacts* frame) noexcept nogil:
    cdef uint8_t descriptor = 0
    cdef Verdict verdict
    if remaining(cursor) < MAGIC_SIZE or load_little_u32(cursor.position) != MAGIC:
        return OTHER_MAGIC
    cursor.position += MAGIC_SIZE
    verdict = header_kernel(cursor, &descriptor, frame)
    if verdict == WHOLE:
        verdict = blocks_kernel(cursor, frame)
    if verdict != WHOLE or descriptor & CHECKSUM == 0:
        return verdict
    if remaining(cursor) < CHECKSUM_SIZE:
        return NO_CHECKSUM
    cursor.position += CHECKSUM_SIZE
    return WHOLE


def walk_frame(const uint8_t[::1] data not None, Py_ssize_t position):
    """
    Look at the data frame at `position`.

    Returns:
        (where it ends, most bytes that come out of it, the content size that it declares or None,
        its window in bytes); None if it does not begin with the magic number of a data frame.

    Raises:
        CorruptRecordError: it is cut short, or asks for what no frame may.
    """
    cdef FrameFacts frame
    cdef Cursor cursor
    cdef Verdict verdict
    if not 0 <= position <= data.shape[0]:
        raise ValueError(f"position must be in 0 to {data.shape[0]}, got {position}")
    if data.shape[0] - position < MAGIC_SIZE:
        return None
    cursor.position = &data[0] + position
    cursor.end = &data[0] + data.shape[0]
    verdict = walk_frame_kernel(&cursor, &frame)
    if verdict == OTHER_MAGIC:
        return None
    if verdict != WHOLE:
        raise _error(verdict, &frame)
    content_size = frame.content_size if frame.has_content_size else None
    return cursor.position - &data[0], frame.size_bound, content_size, frame.window_size


cdef object _error(Verdict verdict, const FrameFacts* frame):
    if verdict == LARGE_WINDOW:
        why = f"a window of {frame.window_size} bytes, {WINDOW_SIZE} are the most"
    elif verdict == LARGE_BLOCK:
        why = f"a block of {frame.bad_size} bytes, {frame.block_size_max} are the most"
    else:
        why = _MEANINGS[verdict]
    return CorruptRecordError(f"zstd data: {why}")
