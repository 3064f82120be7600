"""Big-endian loads and stores by shifts: no alignment, no undefined behaviour, no `#ifdef`.

gcc and clang turn each into one load and one byte swap. Callers have checked the bounds.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef inline uint16_t load_u16(const uint8_t* source) noexcept nogil:
    return <uint16_t>((<uint32_t>source[0] << 8) | source[1])


cdef inline uint32_t load_u32(const uint8_t* source) noexcept nogil:
    return (
        (<uint32_t>source[0] << 24)
        | (<uint32_t>source[1] << 16)
        | (<uint32_t>source[2] << 8)
        | <uint32_t>source[3]
    )


cdef inline uint64_t load_u64(const uint8_t* source) noexcept nogil:
    return (<uint64_t>load_u32(source) << 32) | <uint64_t>load_u32(source + 4)


cdef inline int16_t load_i16(const uint8_t* source) noexcept nogil:
    return <int16_t>load_u16(source)


cdef inline int32_t load_i32(const uint8_t* source) noexcept nogil:
    return <int32_t>load_u32(source)


cdef inline int64_t load_i64(const uint8_t* source) noexcept nogil:
    return <int64_t>load_u64(source)


cdef inline uint32_t load_little_u32(const uint8_t* source) noexcept nogil:
    """Little-endian, for other formats than Kafka's: lz4 frames, the hash of keys."""
    return (
        <uint32_t>source[0]
        | (<uint32_t>source[1] << 8)
        | (<uint32_t>source[2] << 16)
        | (<uint32_t>source[3] << 24)
    )


cdef inline void store_u16(uint8_t* target, uint16_t value) noexcept nogil:
    target[0] = <uint8_t>(value >> 8)
    target[1] = <uint8_t>(value & 0xff)


cdef inline void store_u32(uint8_t* target, uint32_t value) noexcept nogil:
    target[0] = <uint8_t>(value >> 24)
    target[1] = <uint8_t>((value >> 16) & 0xff)
    target[2] = <uint8_t>((value >> 8) & 0xff)
    target[3] = <uint8_t>(value & 0xff)


cdef inline void store_u64(uint8_t* target, uint64_t value) noexcept nogil:
    store_u32(target, <uint32_t>(value >> 32))
    store_u32(target + 4, <uint32_t>(value & 0xffffffffU))


cdef inline void store_i16(uint8_t* target, int16_t value) noexcept nogil:
    store_u16(target, <uint16_t>value)


cdef inline void store_i32(uint8_t* target, int32_t value) noexcept nogil:
    store_u32(target, <uint32_t>value)


cdef inline void store_i64(uint8_t* target, int64_t value) noexcept nogil:
    store_u64(target, <uint64_t>value)
