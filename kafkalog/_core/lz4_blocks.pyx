"""The blocks of an LZ4 frame, decoded back to back.

    block: u32 size (bit 31: stored uncompressed) | data    little-endian; a size of 0 ends them

Blocks are independent. The first pass reads sizes only and bounds what can come out; the second
decodes. Verdicts on a block are those of the reference library for the frame's block size, end
conditions included, but for a distance of 0, which is refused here.

`kafkalog.records.lz4_frame` checks the frame and calls `decode_blocks`. Kernels that read batch
after batch open frames themselves, with `open_lz4`: whole ones within the limit, without checksums
of blocks. They leave all others to that module.

End to end, a scan of an lz4 topic takes 1.5 times as long with `lz4.frame` in batches of 16 KiB,
and 1.1 to 1.3 times in batches of 1 MiB (`python -m asv_bench.peers.own_codecs`). That package has
no limit of the output either, and is called with the GIL held between batches.

Thread-safety: pure functions.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from kafkalog._core.byteorder cimport load_little_u32
from kafkalog._core.cursor cimport Cursor, remaining
from kafkalog._core.mapping cimport check_read
from kafkalog._core.new_bytes cimport allocate_bytes, cut_bytes, start_of_bytes
from kafkalog._core.repeating cimport MOVE_AHEAD, copy_ahead, repeat_bytes

from kafkalog.errors import BatchTooLargeError, CorruptRecordError


cdef enum:
    # Below this decoding takes some ten microseconds: keeping the GIL is cheaper than winning it
    # back.
    NOGIL_SIZE_MIN = 32 * 1024

    WORD_SIZE = 4
    SIZE_MASK = 0x7fffffff             # the bit above it: stored uncompressed
    EXPANSION_MAX = 255                # one byte of input is at most that many of output

    TOKEN_HALF = 4
    TOKEN_LOW_MASK = 15
    LONG = 15                          # a length that continues in the next bytes
    MATCH_SIZE_MIN = 4
    DISTANCE_SIZE = 2

    # End of a block, by the format: the last 5 bytes are literals, and no match begins in the
    # last 12. Readers that copy in strides rely on it; this decoder refuses other blocks.
    LITERALS_AT_END = 5
    NO_MATCH_AT_END = 12

    # The header: magic, FLG, BD, content size if FLG has its bit, HC.
    FLAGS_POSITION = 4
    DESCRIPTOR_POSITION = 5
    HEADER_SIZE = 7
    CONTENT_SIZE_SIZE = 8
    CHECKSUM_SIZE = 4
    VERSION_MASK = 0xc0
    VERSION_1 = 0x40
    INDEPENDENT = 0x20
    BLOCK_CHECKSUM = 0x10
    CONTENT_SIZE = 0x08
    CONTENT_CHECKSUM = 0x04
    FLAGS_RESERVED = 0x03
    DESCRIPTOR_RESERVED = 0x8f
    BLOCK_CODE_MIN = 4                 # 64 KiB; each one above has four times as much


cdef extern from *:
    """
    static const unsigned int kafkalog_lz4_magic = 0x184D2204U;
    static const unsigned int kafkalog_xxh[5] = {
        2654435761U, 2246822519U, 3266489917U, 668265263U, 374761393U
    };
    """
    const uint32_t FRAME_MAGIC "kafkalog_lz4_magic"
    const uint32_t[5] XXH_PRIMES "kafkalog_xxh"


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


cdef inline bint read_length(Cursor* source, int64_t* length) noexcept nogil:
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
            if length == LONG and not read_length(&source, &length):
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
            not read_length(&source, &length) or remaining(&source) < LITERALS_AT_END - 1
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
    """Decode blocks that bound_kernel has walked; stop after the block that passes the limit."""
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


# ---- whole frames, for kernels ------------------------------------------------------------------

cdef uint8_t header_checksum(const uint8_t* descriptor, int64_t size) noexcept nogil:
    """Return the second byte of xxh32 with seed 0, for less than 16 bytes."""
    cdef uint32_t state = XXH_PRIMES[4] + <uint32_t>size
    while size >= 4:
        state += load_little_u32(descriptor) * XXH_PRIMES[2]
        state = (state << 17 | state >> 15) * XXH_PRIMES[3]
        descriptor += 4
        size -= 4
    while size > 0:
        state += descriptor[0] * XXH_PRIMES[4]
        state = (state << 11 | state >> 21) * XXH_PRIMES[0]
        descriptor += 1
        size -= 1
    state = (state ^ state >> 15) * XXH_PRIMES[1]
    state = (state ^ state >> 13) * XXH_PRIMES[2]
    return <uint8_t>((state ^ state >> 16) >> 8)


cdef bint open_lz4(
    const uint8_t* data, int64_t size, int64_t limit_bytes, Lz4Frame* frame
) noexcept nogil:
    cdef Cursor cursor
    cdef int64_t header_size = HEADER_SIZE
    cdef uint8_t flags
    cdef uint8_t descriptor
    if size < HEADER_SIZE or load_little_u32(data) != FRAME_MAGIC:
        return False
    flags = data[FLAGS_POSITION]
    descriptor = data[DESCRIPTOR_POSITION]
    if flags & (VERSION_MASK | INDEPENDENT | BLOCK_CHECKSUM | FLAGS_RESERVED) != (
        VERSION_1 | INDEPENDENT
    ):
        return False
    if descriptor & DESCRIPTOR_RESERVED or descriptor >> 4 < BLOCK_CODE_MIN:
        return False
    if flags & CONTENT_SIZE:
        header_size += CONTENT_SIZE_SIZE
        if (
            size < header_size
            or load_little_u32(data + DESCRIPTOR_POSITION + 5) != 0
            or load_little_u32(data + DESCRIPTOR_POSITION + 1) > limit_bytes
        ):
            return False
    if data[header_size - 1] != header_checksum(
        data + FLAGS_POSITION, header_size - 1 - FLAGS_POSITION
    ):
        return False
    frame.block_size_max = <int64_t>1 << (8 + 2 * (descriptor >> 4))
    frame.limit_bytes = limit_bytes
    cursor.position = frame.blocks = data + header_size
    cursor.end = data + size
    if bound_kernel(&cursor, frame.block_size_max, &frame.space) != WHOLE:
        return False
    if flags & CONTENT_CHECKSUM and remaining(&cursor) < CHECKSUM_SIZE:
        return False
    frame.end = cursor.position
    if frame.space > limit_bytes:
        frame.space = limit_bytes + frame.block_size_max
    frame.space += MOVE_AHEAD
    return True


cdef int64_t decode_lz4(const Lz4Frame* frame, uint8_t* target) noexcept nogil:
    cdef int64_t size = 0
    cdef Verdict verdict = decode_kernel(
        frame.blocks, frame.end, frame.block_size_max, target, frame.limit_bytes, &size
    )
    return size if verdict == WHOLE else -1


# ---- entry point --------------------------------------------------------------------------------

def decode_blocks(const uint8_t[::1] data not None, Py_ssize_t position, *,
                  Py_ssize_t block_size_max, Py_ssize_t limit_bytes):
    """
    Decode the blocks from `position` to the end mark.

    Args:
        block_size_max: value of the frame's header.
        limit_bytes: most that may come out; no more than a block above it is allocated.

    Returns:
        (content of the blocks, position after the end mark).

    Raises:
        CorruptRecordError: they are damaged, cut short, or hold more than the limit.

    Releases the GIL where more than NOGIL_SIZE_MIN bytes can come out.
    """
    cdef Cursor cursor
    cdef int64_t bound = 0
    cdef int64_t size = 0
    if not 0 <= position <= data.shape[0] or block_size_max < 1 or limit_bytes < 0:
        raise ValueError(
            f"position must be in 0 to {data.shape[0]}, block_size_max at least 1 and limit_bytes "
            f"not negative, got {position}, {block_size_max}, {limit_bytes}"
        )
    if position == data.shape[0]:
        raise _error(NO_END_MARK, "")
    cdef const uint8_t* source = &data[0] + position
    cursor.position = source
    cursor.end = &data[0] + data.shape[0]
    cdef Verdict verdict = bound_kernel(&cursor, block_size_max, &bound)
    check_read(&data[0], data.shape[0])
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
    check_read(&data[0], data.shape[0])
    if verdict != WHOLE:
        raise _error(verdict, f"it decompresses to more than {limit_bytes} bytes")
    return decoded, position + (cursor.position - source)


cdef object _error(Verdict verdict, str why):
    kind = BatchTooLargeError if verdict == OVER_LIMIT else CorruptRecordError
    return kind(f"lz4 data: {_MEANINGS.get(verdict, why)}")
