"""Zstandard's own decompressor, for kernels that hold no GIL."""

from libc.stdint cimport int64_t, uint8_t


cdef struct ZstdFrame:
    const uint8_t* data
    int64_t size
    int64_t space                       # bytes that decoding may write


# Whether there is a library.
cdef bint has_zstd() noexcept nogil
# Look at the headers; False for what others have to look at.
cdef bint open_zstd(
    const uint8_t* data, int64_t size, int64_t limit_bytes, ZstdFrame* frame
) noexcept nogil
# Decode a frame that was opened; return how many bytes that is, or -1: others have to look at it.
# The context is NULL at first; whoever keeps it for the next frame closes it.
cdef int64_t decode_zstd(void** context, const ZstdFrame* frame, uint8_t* target) noexcept nogil
cdef void close_zstd(void** context) noexcept nogil
