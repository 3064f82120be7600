"""CRC-32 of bytes, for the kernels of other modules; see crc32_hw.c for how it is computed."""

from libc.stdint cimport uint8_t, uint32_t

cdef uint32_t crc32(uint32_t start, const uint8_t* data, size_t size) noexcept nogil
