"""Memory that Arrow columns grow in, and that whoever consumes them frees.

Plain C memory: freed by any thread, with or without the GIL, before and after Python.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from kafkalog._core.status cimport STATUS_NO_MEMORY, STATUS_OK

cdef extern from "<stdlib.h>" nogil:
    void* aligned_alloc(size_t alignment, size_t size)


cdef enum:
    ALIGNMENT = 64                     # what Arrow recommends


cdef struct Octets:
    uint8_t* data
    int64_t size                       # bytes in use
    int64_t capacity
    int64_t hint                       # capacity to begin with: what was needed last time


cdef inline int reserve(Octets* octets, int64_t more) noexcept nogil:
    """Make room for `more` bytes behind those in use; the data may move."""
    cdef int64_t needed = octets.size + more
    cdef int64_t capacity
    cdef uint8_t* data
    if needed <= octets.capacity and octets.data != NULL:
        return STATUS_OK
    capacity = max(needed, octets.hint) if octets.data == NULL else max(needed, 2 * octets.capacity)
    capacity = max((capacity + ALIGNMENT - 1) & ~<int64_t>(ALIGNMENT - 1), ALIGNMENT)
    data = <uint8_t*>aligned_alloc(ALIGNMENT, <size_t>capacity)
    if data == NULL:
        return STATUS_NO_MEMORY
    if octets.size > 0:
        memcpy(data, octets.data, <size_t>octets.size)
    free(octets.data)
    octets.data = data
    octets.capacity = capacity
    return STATUS_OK


cdef inline void* give_away(Octets* octets) noexcept nogil:
    """Return the memory, which the caller frees, and begin anew."""
    cdef void* data = octets.data
    octets.hint = octets.size + octets.size // 8
    octets.data = NULL
    octets.size = 0
    octets.capacity = 0
    return data


cdef inline void discard(Octets* octets) noexcept nogil:
    free(octets.data)
    octets.data = NULL
    octets.size = 0
    octets.capacity = 0
