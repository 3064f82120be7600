"""CRC-32C (Castagnoli), the checksum of record batches (Crc32C in Kafka), by the fastest kernel.

The kernel is chosen once, at import: AVX-512 or AVX2 carry-less multiplication, the SSE4.2 or ARMv8
instruction, or tables. On a CPU without the fast ones `value` calls the `crc32c` package, whose
tables are faster; nogil code uses the tables of this module.

End to end, a scan of batches with one record takes 1.4 to 1.9 times as long with the `crc32c`
package, and an append of them 1.0 to 1.2 times; batches of 16 KiB and more take the same time
(`python -m asv_bench.peers.own_codecs`). Only a kernel can sum up batch after batch without the
GIL, which scans, recovery and compaction do.

Thread-safety: pure functions; the tables are written at import only.
"""

from libc.stdint cimport uint8_t, uint32_t


cdef extern from "crc32c_hw.h" nogil:
    void kafkalog_crc32c_setup()
    uint32_t kafkalog_crc32c(uint32_t start, const uint8_t* data, size_t size)
    uint32_t kafkalog_crc32c_of_run(uint32_t start, const uint8_t* data, size_t size, size_t beyond)
    const char* kafkalog_crc32c_name(int number)
    uint32_t kafkalog_crc32c_with(int number, uint32_t start, const uint8_t* data, size_t size)


# Giving up the GIL and taking it back costs 0.1 us idle and far more when contended: it is worth
# it from some ten microseconds of work on, at 20 to 60 GB/s a few hundred KiB.
cdef enum:
    NOGIL_SIZE_MIN = 256 * 1024

# Name under which the fallback of `value` answers in `value_with`.
_PACKAGE = "package"


cdef uint32_t crc32c(uint32_t start, const uint8_t* data, size_t size) noexcept nogil:
    return kafkalog_crc32c(start, data, size)


cdef uint32_t crc32c_of_run(const uint8_t* data, size_t size, size_t beyond) noexcept nogil:
    return kafkalog_crc32c_of_run(0, data, size, beyond)


def _package_value(data, start):
    """Return the CRC by the `crc32c` package, imported on first need only."""
    from crc32c import crc32c as package_crc32c

    return package_crc32c(data, start)


def implementations():
    """Return the names of the kernels that this CPU can run, fastest first."""
    names = []
    while kafkalog_crc32c_name(<int>len(names)) is not NULL:
        names.append(kafkalog_crc32c_name(<int>len(names)).decode())
    return tuple(names)


def implementation():
    """Return the name of the kernel in use."""
    return implementations()[0]


def value(const uint8_t[::1] data not None, uint32_t start=0):
    """
    Return the CRC-32C of `data`.

    Args:
        data: any contiguous buffer of bytes.
        start: CRC of the bytes that precede `data`, 0 for none.
    """
    cdef size_t size = <size_t>data.shape[0]
    cdef const uint8_t* first
    cdef uint32_t result
    if size == 0:
        return start
    if _ONLY_PORTABLE:
        return _package_value(data, start)
    first = &data[0]
    if size < NOGIL_SIZE_MIN:
        return kafkalog_crc32c(start, first, size)
    with nogil:
        result = kafkalog_crc32c(start, first, size)
    return result


def value_with(str name not None, const uint8_t[::1] data not None, uint32_t start=0):
    """
    Return the CRC-32C of `data` by one implementation, for tests and benchmarks.

    Args:
        name: one of `implementations()`, or "package" for the fallback of `value`.
        data: any contiguous buffer of bytes.
        start: CRC of the bytes that precede `data`, 0 for none.
    """
    cdef size_t size = <size_t>data.shape[0]
    cdef uint8_t empty = 0
    cdef const uint8_t* first = &data[0] if size > 0 else &empty
    if name == _PACKAGE:
        return _package_value(data, start)
    names = implementations()
    if name not in names:
        raise ValueError(f"CRC-32C kernel must be one of {', '.join(names)}, got {name!r}")
    return kafkalog_crc32c_with(names.index(name), start, first, size)


kafkalog_crc32c_setup()
_ONLY_PORTABLE = implementation() == "portable"
