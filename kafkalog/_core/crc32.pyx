"""CRC-32 (that of zlib), the checksum of old messages (Crc32 in Kafka), by the fastest kernel.

The kernel is chosen once, at import: AVX-512 or plain carry-less multiplication, the ARMv8
instruction, or tables.

End to end, a scan of plain messages of v1 takes 3.2 times as long with `zlib.crc32` if values have
100 bytes, and 2.9 times if they have 1,024 (`python -m asv_bench.peers.own_codecs`): each message
is a call of Python then. The extensions link no library.

Thread-safety: pure functions; the tables are written at import only.
"""

from libc.stdint cimport uint8_t, uint32_t


cdef extern from "crc32_hw.h" nogil:
    void kafkalog_crc32_setup()
    uint32_t kafkalog_crc32(uint32_t start, const uint8_t* data, size_t size)
    const char* kafkalog_crc32_name(int number)
    uint32_t kafkalog_crc32_with(int number, uint32_t start, const uint8_t* data, size_t size)


# Giving up the GIL and taking it back costs more than the sum of fewer bytes; see crc32c.pyx.
cdef enum:
    NOGIL_SIZE_MIN = 256 * 1024


cdef uint32_t crc32(uint32_t start, const uint8_t* data, size_t size) noexcept nogil:
    return kafkalog_crc32(start, data, size)


def implementations():
    """Return the names of the kernels that this CPU can run, fastest first."""
    names = []
    while kafkalog_crc32_name(<int>len(names)) is not NULL:
        names.append(kafkalog_crc32_name(<int>len(names)).decode())
    return tuple(names)


def implementation():
    """Return the name of the kernel in use."""
    return implementations()[0]


def value(const uint8_t[::1] data not None, uint32_t start=0):
    """
    Return the CRC-32 of `data`.

    Args:
        data: any contiguous buffer of bytes.
        start: CRC of the bytes that precede `data`, 0 for none.
    """
    cdef size_t size = <size_t>data.shape[0]
    cdef const uint8_t* first
    cdef uint32_t result
    if size == 0:
        return start
    first = &data[0]
    if size < NOGIL_SIZE_MIN:
        return kafkalog_crc32(start, first, size)
    with nogil:
        result = kafkalog_crc32(start, first, size)
    return result


def value_with(str name not None, const uint8_t[::1] data not None, uint32_t start=0):
    """
    Return the CRC-32 of `data` by one implementation, for tests and benchmarks.

    Args:
        name: one of `implementations()`.
        data: any contiguous buffer of bytes.
        start: CRC of the bytes that precede `data`, 0 for none.
    """
    cdef size_t size = <size_t>data.shape[0]
    cdef uint8_t empty = 0
    cdef const uint8_t* first = &data[0] if size > 0 else &empty
    names = implementations()
    if name not in names:
        raise ValueError(f"CRC-32 kernel must be one of {', '.join(names)}, got {name!r}")
    return kafkalog_crc32_with(names.index(name), start, first, size)


kafkalog_crc32_setup()
