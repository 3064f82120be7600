"""Mapped files whose pages may fail, and the question that every reader of one asks at its end."""

from libc.stdint cimport int64_t, uint8_t

cdef extern from *:
    """
    #include <stddef.h>
    /* Read a byte of each page (4096 bytes, or a multiple), to find lost pages. */
    static inline void kafkalog_touch(const unsigned char *data, ptrdiff_t size)
    {
        const volatile unsigned char *position = data;
        ptrdiff_t done;
        for (done = 0; done < size; done += 4096)
            (void)position[done];
        if (size > 0)
            (void)position[size - 1];
    }
    /* The loads of the data come before: a reader of zeros finds the mark. */
    static inline int kafkalog_has_losses(const int64_t *losses)
    {
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        return __builtin_expect(__atomic_load_n(losses, __ATOMIC_RELAXED) != 0, 0) != 0;
    }
    """
    bint has_losses "kafkalog_has_losses" (const int64_t* losses) noexcept nogil
    void touch_pages "kafkalog_touch" (const uint8_t* data, Py_ssize_t size) noexcept nogil

# Number of mappings of the process with lost pages: nearly always 0.
cdef const int64_t* LOSSES

# Raise LogStorageError where a page of these bytes was lost.
cdef int refuse_lost(const uint8_t* data, Py_ssize_t size) except -1

cdef int refuse_lost_object(object data) except -1

# True if a page was lost; the mapping is not used for later reads then.
cdef bint is_range_lost(const uint8_t* data, Py_ssize_t size) noexcept


cdef inline int check_read(const uint8_t* data, Py_ssize_t size) except -1:
    """
    Raise LogStorageError where bytes that were just read were lost, before the result counts.

    Bytes that are in no mapping of ours are never lost. One load where no mapping has lost any.
    """
    if has_losses(LOSSES):
        return refuse_lost(data, size)
    return 0


cdef inline int check_object(object data) except -1:
    """As `check_read`, of all bytes of a buffer."""
    if has_losses(LOSSES):
        return refuse_lost_object(data)
    return 0
