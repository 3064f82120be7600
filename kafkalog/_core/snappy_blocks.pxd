"""Streams of snappy as kernels open them: memory for what they declare, then the blocks."""

from libc.stdint cimport int64_t, uint8_t

from kafkalog._core.cursor cimport Cursor


cdef struct SnappyStream:
    Cursor blocks
    bint framed
    int64_t size                       # of what comes out
    int64_t space                       # bytes that decoding may write


# Check the framing and the declared sizes; False for a stream that Python has to check.
cdef bint open_snappy(
    const uint8_t* data, int64_t size, int64_t limit_bytes, SnappyStream* stream
) noexcept nogil
# Decode a stream that was opened; return how many bytes that is, or -1: Python has to check it.
cdef int64_t decode_snappy(const SnappyStream* stream, uint8_t* target) noexcept nogil
