"""Zstandard's own decompressor in a shared library, called by kernels without the GIL.

`kafkalog.records.zstd_library` loads the library and passes the addresses of its functions to
`use`. Without a library the Python package decompresses every batch. Its verdict counts in any
case: a frame that is refused here is left to the package.

Only functions of the library's first stable version are called, with the types that they have had
since: a whole frame from memory to memory. Nothing is written after the space that the headers of
the blocks promise.

Thread-safety: a context belongs to one thread at a time. The table of functions is the one state
of a module in this package. It is written once, under the lock of `kafkalog.records.zstd_library`,
before the first kernel reads it.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint64_t, uintptr_t

from kafkalog._core.cursor cimport Cursor
from kafkalog._core.zstd_frames cimport WHOLE, FrameFacts, walk_frame_kernel


ctypedef void* (*CreateContext)() noexcept nogil
ctypedef size_t (*FreeContext)(void* context) noexcept nogil
ctypedef size_t (*Decompress)(void* context, void* target, size_t capacity, const void* data,
                              size_t size) noexcept nogil
ctypedef unsigned int (*IsError)(size_t code) noexcept nogil


cdef struct Library:
    CreateContext create
    FreeContext free
    Decompress decompress
    IsError is_error
    bint is_used


cdef Library LIBRARY = Library(NULL, NULL, NULL, NULL, False)


def use(uintptr_t create, uintptr_t free, uintptr_t decompress, uintptr_t is_error):
    """
    Let kernels call a library, which stays loaded. Further calls change nothing.

    Args:
        create, free, decompress, is_error: the addresses of ZSTD_createDCtx, ZSTD_freeDCtx,
            ZSTD_decompressDCtx and ZSTD_isError.

    Raises:
        ValueError: an address is 0.
    """
    if LIBRARY.create != NULL:
        return
    if not (create and free and decompress and is_error):
        raise ValueError("addresses must not be 0")
    LIBRARY.create = <CreateContext>create
    LIBRARY.free = <FreeContext>free
    LIBRARY.decompress = <Decompress>decompress
    LIBRARY.is_error = <IsError>is_error
    LIBRARY.is_used = True


def set_used(bint used):
    """
    Set whether kernels call the library, if there is one; return whether they did.

    For tests that compare the library with the package. Contexts go back to the library that made
    them in any case.
    """
    cdef bint before = LIBRARY.is_used
    LIBRARY.is_used = used and LIBRARY.create != NULL
    return before


cdef bint has_zstd() noexcept nogil:
    return LIBRARY.is_used


cdef bint open_zstd(
    const uint8_t* data, int64_t size, int64_t limit_bytes, ZstdFrame* frame
) noexcept nogil:
    cdef FrameFacts facts
    cdef Cursor cursor
    cursor.position = data
    cursor.end = data + size
    if walk_frame_kernel(&cursor, &facts) != WHOLE or cursor.position != cursor.end:
        return False
    if not 0 < facts.size_bound <= limit_bytes:
        return False
    if facts.has_content_size and not 0 < facts.content_size <= <uint64_t>facts.size_bound:
        return False
    frame.data = data
    frame.size = size
    frame.space = facts.size_bound
    return True


cdef int64_t decode_zstd(void** context, const ZstdFrame* frame, uint8_t* target) noexcept nogil:
    cdef size_t size
    if context[0] == NULL:
        context[0] = LIBRARY.create()
        if context[0] == NULL:
            return -1
    size = LIBRARY.decompress(context[0], target, <size_t>frame.space, frame.data,
                              <size_t>frame.size)
    if LIBRARY.is_error(size) or size > <size_t>frame.space:
        return -1
    return <int64_t>size


cdef void close_zstd(void** context) noexcept nogil:
    if context[0] != NULL:
        LIBRARY.free(context[0])
        context[0] = NULL
