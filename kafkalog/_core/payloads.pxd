"""Decompression of the records of batches without the GIL, batch after batch."""

from libc.stdint cimport int64_t, uint8_t

from kafkalog._core.arrow_memory cimport Octets


# Records that the caller has decompressed, and their batch.
cdef struct DecompressedPayload:
    const uint8_t* batch
    const uint8_t* data
    int64_t size


cdef struct Payloads:
    Octets memory                      # of decompressed records; kept if counted in `size`
    int64_t limit_bytes
    DecompressedPayload* decompressed                       # in the order of their batches
    int64_t decompressed_count
    int64_t next_decompressed


# Free the memory of decompressed records.
cdef void discard_payloads(Payloads* payloads) noexcept nogil
# Return the records that the caller decompressed for a batch, or NULL.
cdef const DecompressedPayload* find_decompressed(
    Payloads* payloads, const uint8_t* batch
) noexcept nogil
# Decompress a codec of this module; STATUS_COMPRESSED for records that the caller must decompress.
# The records are valid until the next call; if counted, they are kept, but may move.
cdef int open_payload(
    Payloads* payloads, int codec, const uint8_t* data, int64_t size,
    const uint8_t** records, int64_t* records_size,
) noexcept nogil
