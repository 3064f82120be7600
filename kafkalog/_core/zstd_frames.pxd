"""Frames of Zstandard as kernels look at them."""

from libc.stdint cimport int64_t, uint64_t

from kafkalog._core.cursor cimport Cursor


cdef enum Verdict:
    WHOLE = 0
    CUT_HEADER = 1
    RESERVED_BIT = 2
    LARGE_WINDOW = 3
    NO_LAST_BLOCK = 4
    RESERVED_BLOCK = 5
    LARGE_BLOCK = 6
    CUT_BLOCK = 7
    NO_CHECKSUM = 8
    OTHER_MAGIC = 9


cdef struct FrameFacts:
    uint64_t content_size
    bint has_content_size
    uint64_t window_size
    int64_t size_bound                 # bytes that come out of the blocks at most
    int64_t block_size_max
    int64_t bad_size                   # of a block that is too large


# Move the cursor to the end of the data frame at its position, if that is whole.
cdef Verdict walk_frame_kernel(Cursor* cursor, FrameFacts* frame) noexcept nogil
