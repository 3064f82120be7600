"""Zstandard's own decompressor, called by kernels: a shared library that somebody has loaded.

Who loads it says where its functions are (`use`); kafkalog.records.zstd_library does. Without one
every batch is left to the Python package, whose verdict counts in any case: what is refused here
is only left to it.

Only functions that have been in the library since its first stable version are called, with the
types that they have had since: a whole frame from memory to memory. Nothing is written behind the
room that the headers of its blocks promise.

Thread-safety: a context belongs to one thread at a time. Where the library is, is the one state
that a module has here: it is said once, before any kernel is told to call it.
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


cdef Library library = Library(NULL, NULL, NULL, NULL)
# Contexts are given back to the library that made them, whatever is used by then.
cdef bint is_used = False


def use(uintptr_t create, uintptr_t free, uintptr_t decompress, uintptr_t is_error):
    """
    Let kernels call a library, which stays loaded from now on.

    Args:
        create, free, decompress, is_error: the addresses of ZSTD_createDCtx, ZSTD_freeDCtx,
            ZSTD_decompressDCtx and ZSTD_isError.

    Raises:
        ValueError: an address is 0.
    """
    global is_used
    if library.create != NULL:
        return                         # another thread was first, with the same library
    if not (create and free and decompress and is_error):
        raise ValueError("a function has no address")
    library.create = <CreateContext>create
    library.free = <FreeContext>free
    library.decompress = <Decompress>decompress
    library.is_error = <IsError>is_error
    is_used = True


def set_used(bint used):
    """Say whether kernels call the library, where there is one; return whether they did."""
    global is_used
    cdef bint before = is_used
    is_used = used and library.create != NULL
    return before


cdef bint has_zstd() noexcept nogil:
    return is_used


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
        context[0] = library.create()
        if context[0] == NULL:
            return -1
    size = library.decompress(context[0], target, <size_t>frame.space, frame.data,
                              <size_t>frame.size)
    if library.is_error(size) or size > <size_t>frame.space:
        return -1
    return <int64_t>size


cdef void close_zstd(void** context) noexcept nogil:
    if context[0] != NULL:
        library.free(context[0])
        context[0] = NULL
