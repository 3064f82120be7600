"""Kafka's hash of a key: 32-bit MurmurHash2 of its bytes, read as little-endian words.

A pure function, inline: the kernels of murmur2.pyx run it for one key or a column of them.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kafkalog._core.byteorder cimport load_little_u32


cdef enum:
    MURMUR2_SEED = 0x9747b28cU
    MURMUR2_FACTOR = 0x5bd1e995


cdef inline int32_t murmur2(const uint8_t* data, int64_t size) noexcept nogil:
    """Hash `size` bytes, none or more."""
    cdef uint32_t factor = MURMUR2_FACTOR
    cdef uint32_t state = <uint32_t>MURMUR2_SEED ^ <uint32_t>size
    cdef const uint8_t* tail = data + (size & ~<int64_t>3)
    cdef int64_t left = size & 3
    cdef uint32_t word
    while data < tail:
        word = load_little_u32(data) * factor
        word ^= word >> 24
        state = (state * factor) ^ (word * factor)
        data += 4
    if left > 0:
        if left == 3:
            state ^= <uint32_t>tail[2] << 16
        if left >= 2:
            state ^= <uint32_t>tail[1] << 8
        state = (state ^ tail[0]) * factor
    state = (state ^ (state >> 13)) * factor
    return <int32_t>(state ^ (state >> 15))


cdef inline int32_t partition_of_hash(int32_t value, int32_t partition_count) noexcept nogil:
    """Kafka's choice among 1 or more partitions: the hash without its sign, modulo their number."""
    return (value & 0x7fffffff) % partition_count
