"""A hint to the CPU that a line will be read soon. Never faults, whatever the address."""

cdef extern from *:
    """
    #if defined(__GNUC__)
    #define kafkalog_prefetch(address) __builtin_prefetch((address), 0, 3)
    #else
    #define kafkalog_prefetch(address) ((void)(address))
    #endif
    """
    void prefetch "kafkalog_prefetch" (const void* address) noexcept nogil
