"""Decoder of snappy in a batch: raw blocks after the header of the xerial framing, or one alone.

    82 53 4e 41 50 50 59 00 | i32 version | i32 least compatible version
    block: i32 size | unsigned varint of the uncompressed size, tags     framing big-endian

The first pass reads headers and declared sizes and refuses impossible ones; the second decodes all
blocks back to back. `kafkalog.records.snappy` describes the framing. Kernels that read batch after
batch use `open_snappy`, and leave refused streams to `decode_stream`, which raises the error.

End to end, a scan of a snappy topic takes 1.2 to 1.5 times as long with `cramjam`
(`python -m asv_bench.peers.own_codecs`), which is an extra and is called with the GIL held between
batches.

Thread-safety: pure functions.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from kafkalog._core.byteorder cimport load_i32, load_u64
from kafkalog._core.cursor cimport Cursor, remaining
from kafkalog._core.mapping cimport check_read
from kafkalog._core.new_bytes cimport allocate_bytes, cut_bytes, start_of_bytes
from kafkalog._core.repeating cimport MOVE_AHEAD, copy_ahead, repeat_bytes

from kafkalog.errors import BatchTooLargeError, CorruptRecordError


cdef extern from *:
    """
    static const unsigned long long kafkalog_snappy_magic = 0x82534e4150505900ULL;
    """
    const uint64_t MAGIC "kafkalog_snappy_magic"


cdef enum:
    # Below this decoding takes some ten microseconds: keeping the GIL is cheaper than winning it
    # back.
    NOGIL_SIZE_MIN = 32 * 1024

    MAGIC_SIZE = 8
    VERSION_POSITION = 8
    HEADER_SIZE = 16
    SIZE_SIZE = 4
    SIZE_VARINT_MAX = 5
    # The Java library refuses larger blocks too.
    BLOCK_SIZE_MAX = 512 << 20
    # A copy takes at least three bytes for at most 64, so nothing expands more than this.
    EXPANSION_MAX = 22

    KIND_MASK = 3
    LITERALS = 0
    NEAR_COPY = 1                      # distance of 11 bits
    FAR_COPY = 2                       # distance of 16 bits, else of 32
    LENGTH_SHIFT = 2
    LITERALS_INLINE_MAX = 60           # above it, the length is in the next one to four bytes


cdef enum Verdict:
    WHOLE = 0
    BAD_SIZE = 1
    CUT_BLOCK = 2
    CUT_HEADER = 3
    BAD_VERSION = 4
    NO_DECLARED_SIZE = 5
    LYING_SIZE = 6
    BAD_BLOCK = 7
    OVER_LIMIT = 8


_MEANINGS = {
    BAD_SIZE: "a block size that no block has",
    CUT_BLOCK: "the stream ends inside a block",
    CUT_HEADER: "the stream ends inside a header",
    BAD_VERSION: "a version below 1",
    NO_DECLARED_SIZE: "a block without a size",
    LYING_SIZE: "a block that cannot hold what it declares",
    BAD_BLOCK: "a block does not decompress",
}


cdef Verdict declared_kernel(Cursor* block, int64_t* size) noexcept nogil:
    """Read the uncompressed size at the start of a raw block."""
    cdef const uint8_t* start = block.position
    cdef uint8_t byte
    cdef int shift = 0
    size[0] = 0
    while block.position < block.end and block.position - start < SIZE_VARINT_MAX:
        byte = block.position[0]
        block.position += 1
        size[0] |= <int64_t>(byte & 0x7f) << shift
        if byte < 0x80:
            return WHOLE if size[0] <= EXPANSION_MAX * (block.end - start) else LYING_SIZE
        shift += 7
    return NO_DECLARED_SIZE


cdef Verdict next_block_kernel(Cursor* stream, Cursor* block) noexcept nogil:
    """Find the next block of a framed stream; an empty one is the end of the stream."""
    cdef int32_t size
    block.position = block.end = stream.end
    while remaining(stream) >= SIZE_SIZE:
        size = load_i32(stream.position)
        if size == <int32_t>(MAGIC >> 32):
            # Another stream begins; its header is checked here.
            if remaining(stream) < HEADER_SIZE or load_u64(stream.position) != MAGIC:
                return CUT_HEADER
            if load_i32(stream.position + VERSION_POSITION) < 1:
                return BAD_VERSION
            stream.position += HEADER_SIZE
            continue
        if size <= 0 or size > BLOCK_SIZE_MAX:
            return BAD_SIZE
        stream.position += SIZE_SIZE
        if size > remaining(stream):
            return CUT_BLOCK
        block.position = stream.position
        stream.position += size
        block.end = stream.position
        return WHOLE
    return WHOLE


cdef Verdict bound_kernel(
    Cursor stream, bint framed, int64_t limit, int64_t* total
) noexcept nogil:
    """Sum up the declared sizes."""
    cdef Cursor block = stream
    cdef Verdict verdict
    cdef int64_t size = 0
    total[0] = 0
    while True:
        if framed:
            verdict = next_block_kernel(&stream, &block)
            if verdict != WHOLE or block.position == block.end:
                return verdict
        verdict = declared_kernel(&block, &size)
        if verdict != WHOLE:
            return verdict
        if size > limit - total[0]:
            return OVER_LIMIT
        total[0] += size
        if not framed:
            return WHOLE


cdef inline int64_t load_length(const uint8_t* source, int64_t size) noexcept nogil:
    """Read a little-endian number of one to four bytes."""
    cdef int64_t length = 0
    cdef int64_t slot
    for slot in range(size):
        length |= <int64_t>source[slot] << (8 * slot)
    return length


cdef uint8_t* block_kernel(Cursor source, uint8_t* start, const uint8_t* end) noexcept nogil:
    """Decode the tags of one raw block from `start` to `end`; return NULL where they do not fit."""
    cdef uint8_t* target = start
    cdef uint8_t tag
    cdef int64_t length
    cdef int64_t distance
    while source.position < source.end:
        tag = source.position[0]
        source.position += 1
        length = (tag >> LENGTH_SHIFT) + 1
        if tag & KIND_MASK == LITERALS:
            if length > LITERALS_INLINE_MAX:
                distance = length - LITERALS_INLINE_MAX
                if distance > remaining(&source):
                    return NULL
                length = load_length(source.position, distance) + 1
                source.position += distance
            if length > remaining(&source) or length > end - target:
                return NULL
            if remaining(&source) - length >= 16:
                copy_ahead(target, source.position, length)
            else:
                memcpy(target, source.position, <size_t>length)
            source.position += length
            target += length
            continue
        if tag & KIND_MASK == NEAR_COPY:
            if remaining(&source) < 1:
                return NULL
            length = 4 + (tag >> LENGTH_SHIFT & 7)
            distance = (<int64_t>(tag >> 5) << 8) | source.position[0]
            source.position += 1
        elif tag & KIND_MASK == FAR_COPY:
            if remaining(&source) < 2:
                return NULL
            distance = load_length(source.position, 2)
            source.position += 2
        else:
            if remaining(&source) < 4:
                return NULL
            distance = load_length(source.position, 4)
            source.position += 4
        if distance == 0 or distance > target - start or length > end - target:
            return NULL
        repeat_bytes(target, distance, length)
        target += length
    return target if target == end else NULL


cdef Verdict decode_kernel(Cursor stream, bint framed, uint8_t* target) noexcept nogil:
    """Decode what bound_kernel has passed."""
    cdef Cursor block = stream
    cdef int64_t size = 0
    while True:
        if framed:
            next_block_kernel(&stream, &block)
            if block.position == block.end:
                return WHOLE
        declared_kernel(&block, &size)
        target = block_kernel(block, target, target + size)
        if target == NULL:
            return BAD_BLOCK
        if not framed:
            return WHOLE


# ---- whole streams, for kernels -----------------------------------------------------------------

cdef inline void _enter(SnappyStream* stream, const uint8_t* data, int64_t size) noexcept nogil:
    """Skip the first header; its version is not checked, as in the Java library."""
    stream.blocks.position = data
    stream.blocks.end = data + size
    stream.framed = size >= HEADER_SIZE and load_u64(data) == MAGIC
    if stream.framed:
        stream.blocks.position += HEADER_SIZE


cdef bint open_snappy(
    const uint8_t* data, int64_t size, int64_t limit_bytes, SnappyStream* stream
) noexcept nogil:
    _enter(stream, data, size)
    if bound_kernel(stream.blocks, stream.framed, limit_bytes, &stream.size) != WHOLE:
        return False
    stream.space = stream.size + MOVE_AHEAD
    return True


cdef int64_t decode_snappy(const SnappyStream* stream, uint8_t* target) noexcept nogil:
    if decode_kernel(stream.blocks, stream.framed, target) != WHOLE:
        return -1
    return stream.size


# ---- entry point --------------------------------------------------------------------------------

def decode_stream(const uint8_t[::1] data not None, *, Py_ssize_t limit_bytes):
    """
    Return what a framed stream, or without its magic one raw block, holds.

    Raises:
        CorruptRecordError: it is damaged, or holds more than the limit; then nothing was allocated.

    Releases the GIL where more than NOGIL_SIZE_MIN bytes come out.
    """
    cdef SnappyStream stream
    if limit_bytes < 0:
        raise ValueError(f"limit_bytes must not be negative, got {limit_bytes}")
    if data.shape[0] == 0:
        raise _error(NO_DECLARED_SIZE, limit_bytes)
    _enter(&stream, &data[0], data.shape[0])
    cdef Verdict verdict = bound_kernel(stream.blocks, stream.framed, limit_bytes, &stream.size)
    check_read(&data[0], data.shape[0])
    if verdict != WHOLE:
        raise _error(verdict, limit_bytes)
    cdef PyObject* made = allocate_bytes(NULL, stream.size + MOVE_AHEAD)
    cdef uint8_t* target = <uint8_t*>start_of_bytes(made)
    if stream.size < NOGIL_SIZE_MIN:
        verdict = decode_kernel(stream.blocks, stream.framed, target)
    else:
        with nogil:
            verdict = decode_kernel(stream.blocks, stream.framed, target)
    decoded = cut_bytes(made, stream.size)
    check_read(&data[0], data.shape[0])
    if verdict != WHOLE:
        raise _error(verdict, limit_bytes)
    return decoded


cdef object _error(Verdict verdict, Py_ssize_t limit_bytes):
    if verdict == OVER_LIMIT:
        return BatchTooLargeError(f"snappy data: it decompresses to more than {limit_bytes} bytes")
    return CorruptRecordError(f"snappy data: {_MEANINGS[verdict]}")
