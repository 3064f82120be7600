"""Frames of LZ4 as kernels open them: memory for the most that can come out, then the blocks."""

from libc.stdint cimport int64_t, uint8_t


cdef struct Lz4Frame:
    const uint8_t* blocks
    const uint8_t* end                 # after the end mark
    int64_t block_size_max
    int64_t limit_bytes
    int64_t space                       # bytes that decoding may write


# Check the header and the sizes of the blocks; False for a frame that Python has to check.
cdef bint open_lz4(
    const uint8_t* data, int64_t size, int64_t limit_bytes, Lz4Frame* frame
) noexcept nogil
# Decode a frame that was opened; return how many bytes that is, or -1: Python has to check it.
cdef int64_t decode_lz4(const Lz4Frame* frame, uint8_t* target) noexcept nogil
