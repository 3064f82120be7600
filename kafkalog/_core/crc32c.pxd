"""CRC-32C of bytes, for the kernels of other modules; see crc32c_hw.c for how it is computed."""

from libc.stdint cimport uint8_t, uint32_t

cdef uint32_t crc32c(uint32_t start, const uint8_t* data, size_t size) noexcept nogil

# CRC of a part of a run, without a prefix; the `beyond` bytes after it will be summed up next.
cdef uint32_t crc32c_of_run(const uint8_t* data, size_t size, size_t beyond) noexcept nogil
