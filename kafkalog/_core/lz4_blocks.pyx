"""The blocks of an LZ4 frame, decoded back to back into one bytes object.

    block: u32 size (bit 31: stored as it is) | data        little-endian; a size of 0 ends them

Blocks are independent. The first pass reads sizes only and bounds what can come out; the second
decodes. Verdicts on a block are those of the reference library for the frame's block size, end
conditions included, but for a distance of 0, which is refused here.

The frame's header is the business of kafkalog.records.lz4_frame, and so are frames whose blocks
have checksums. Thread-safety: pure function.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from kafkalog._core.byteorder cimport load_little_u32
from kafkalog._core.cursor cimport Cursor, remaining
from kafkalog._core.new_bytes cimport allocate_bytes, cut_bytes, start_of_bytes
from kafkalog._core.repeating cimport MOVE_AHEAD, copy_ahead, repeat_bytes

from kafkalog.errors import BatchTooLargeError, CorruptRecordError


cdef enum:
    # Below this decoding takes some ten microseconds: keeping the GIL is cheaper than winning it
    # back.
    NOGIL_SIZE_MIN = 32 * 1024

    WORD_SIZE = 4
    SIZE_MASK = 0x7fffffff             # the bit above it says: stored as it is
    EXPANSION_MAX = 255                # one byte of input is at most that many of output

    TOKEN_HALF = 4
    TOKEN_LOW_MASK = 15
    LONG = 15                          # a length that goes on in the next bytes
    MATCH_SIZE_MIN = 4
    DISTANCE_SIZE = 2

    # How a block ends, by the format: the last 5 bytes are literals, and no match begins in the
    # last 12. A reader that copies in strides relies on it; ours holds writers to it.
    LITERALS_AT_END = 5
    NO_MATCH_AT_END = 12


cdef enum Verdict:
    WHOLE = 0
    NO_END_MARK = 1
    CUT_BLOCK = 2
    LARGE_BLOCK = 3
    BAD_BLOCK = 4
    OVER_LIMIT = 5


_MEANINGS = {
    NO_END_MARK: "the stream ends before its end mark",
    CUT_BLOCK: "the stream ends inside a block",
    BAD_BLOCK: "a block does not decompress",
}


cdef inline bint take_length(Cursor* source, int64_t* length) noexcept nogil:
    """Add the bytes that continue a length; False where the block ends among them."""
    cdef uint8_t byte
    while True:
        if source.position == source.end:
            return False
        byte = source.position[0]
        source.position += 1
        length[0] += byte
        if byte != 255:
            return True


cdef uint8_t* block_kernel(
    Cursor source, uint8_t* start, const uint8_t* end
) noexcept nogil:
    """Decode one block to `start`, at most to `end`; return where it ends, or NULL."""
    cdef uint8_t* target = start
    cdef uint8_t token
    cdef int64_t length
    cdef int64_t distance
    while True:
        if source.position == source.end:
            return NULL
        token = source.position[0]
        source.position += 1
        length = token >> TOKEN_HALF
        if length < LONG and remaining(&source) >= MOVE_AHEAD and end - target >= MOVE_AHEAD:
            # Far from both ends, as nearly always: 16 bytes cover the literals.
            memcpy(target, source.position, 16)
            target += length
            source.position += length
        else:
            if length == LONG and not take_length(&source, &length):
                return NULL
            if length > remaining(&source) or length > end - target:
                return NULL
            if remaining(&source) - length >= 16:
                copy_ahead(target, source.position, length)
            else:
                memcpy(target, source.position, <size_t>length)
            target += length
            source.position += length
            if (
                remaining(&source) < DISTANCE_SIZE + 1 + LITERALS_AT_END
                or end - target < NO_MATCH_AT_END
            ):
                return target if source.position == source.end else NULL
        distance = source.position[0] | (<int64_t>source.position[1] << 8)
        source.position += DISTANCE_SIZE
        length = token & TOKEN_LOW_MASK
        if length == LONG and (
            not take_length(&source, &length) or remaining(&source) < LITERALS_AT_END - 1
        ):
            return NULL
        length += MATCH_SIZE_MIN
        if distance == 0 or distance > target - start:
            return NULL
        if length > end - target - LITERALS_AT_END:
            return NULL
        repeat_bytes(target, distance, length)
        target += length


cdef Verdict bound_kernel(
    Cursor* cursor, int64_t block_size_max, int64_t* bound
) noexcept nogil:
    """Walk the sizes up to the end mark, which is consumed; sum up what can come out at most."""
    cdef uint32_t word
    cdef int64_t size
    bound[0] = 0
    while True:
        if remaining(cursor) < WORD_SIZE:
            return NO_END_MARK
        word = load_little_u32(cursor.position)
        size = word & SIZE_MASK
        if size > block_size_max:
            return LARGE_BLOCK
        cursor.position += WORD_SIZE
        if size == 0:
            return WHOLE
        if size > remaining(cursor):
            return CUT_BLOCK
        cursor.position += size
        if word & ~<uint32_t>SIZE_MASK:
            bound[0] += size
        else:
            bound[0] += min(block_size_max, EXPANSION_MAX * size)


cdef Verdict decode_kernel(
    const uint8_t* source, const uint8_t* source_end, int64_t block_size_max,
    uint8_t* target, int64_t limit, int64_t* size_out
) noexcept nogil:
    """Decode blocks that bound_kernel has walked; stop behind the block that passes the limit."""
    cdef Cursor block
    cdef uint32_t word
    cdef uint8_t* start = target
    while True:
        word = load_little_u32(source)
        source += WORD_SIZE
        block.position = source
        block.end = source + (word & SIZE_MASK)
        if block.position == block.end:
            size_out[0] = target - start
            return WHOLE
        if word & ~<uint32_t>SIZE_MASK:
            memcpy(target, block.position, <size_t>remaining(&block))
            target += remaining(&block)
        else:
            target = block_kernel(block, target, target + block_size_max)
            if target == NULL:
                return BAD_BLOCK
        if target - start > limit:
            return OVER_LIMIT
        source = block.end


def decode_blocks(const uint8_t[::1] data not None, Py_ssize_t position, *,
                  Py_ssize_t block_size_max, Py_ssize_t limit_bytes):
    """
    Decode the blocks from `position` to the end mark.

    Args:
        block_size_max: what the frame's header declares.
        limit_bytes: most that may come out; no more than a block above it is allocated.

    Returns:
        (what they hold, position behind the end mark).

    Raises:
        CorruptRecordError: they are damaged, cut short, or hold more than the limit.

    Releases the GIL where more than NOGIL_SIZE_MIN bytes can come out.
    """
    cdef Cursor cursor
    cdef int64_t bound = 0
    cdef int64_t size = 0
    if not 0 <= position <= data.shape[0] or block_size_max < 1 or limit_bytes < 0:
        raise ValueError(f"position {position}, block_size_max {block_size_max}, "
                         f"limit_bytes {limit_bytes}")
    if position == data.shape[0]:
        raise _error(NO_END_MARK, "")
    cdef const uint8_t* source = &data[0] + position
    cursor.position = source
    cursor.end = &data[0] + data.shape[0]
    cdef Verdict verdict = bound_kernel(&cursor, block_size_max, &bound)
    if verdict == LARGE_BLOCK:
        size = load_little_u32(cursor.position) & SIZE_MASK
        raise _error(verdict, f"a block of {size} bytes, {block_size_max} are the most")
    if verdict != WHOLE:
        raise _error(verdict, "")
    if bound > limit_bytes:
        bound = limit_bytes + block_size_max
    cdef PyObject* made = allocate_bytes(NULL, bound + MOVE_AHEAD)
    cdef uint8_t* target = <uint8_t*>start_of_bytes(made)
    if bound < NOGIL_SIZE_MIN:
        verdict = decode_kernel(source, cursor.end, block_size_max, target, limit_bytes, &size)
    else:
        with nogil:
            verdict = decode_kernel(source, cursor.end, block_size_max, target, limit_bytes, &size)
    decoded = cut_bytes(made, size)
    if verdict != WHOLE:
        raise _error(verdict, f"it decompresses to more than {limit_bytes} bytes")
    return decoded, position + (cursor.position - source)


cdef object _error(Verdict verdict, str why):
    kind = BatchTooLargeError if verdict == OVER_LIMIT else CorruptRecordError
    return kind(f"lz4 data: {_MEANINGS.get(verdict, why)}")
