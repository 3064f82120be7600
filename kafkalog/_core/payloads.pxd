"""What codecs made of the records of batches, undone without the GIL, batch after batch."""

from libc.stdint cimport int64_t, uint8_t

from kafkalog._core.arrow_memory cimport Octets


# Records that somebody else has decompressed, and the batch that they are of.
cdef struct DecompressedPayload:
    const uint8_t* batch
    const uint8_t* data
    int64_t size


cdef struct Payloads:
    Octets memory                      # of what we opened; who wants to keep it lets it count
    int64_t limit_bytes
    DecompressedPayload* decompressed                       # in the order of their batches
    int64_t decompressed_count
    int64_t next_decompressed


# Give back what undoing codecs has taken.
cdef void discard_payloads(Payloads* payloads) noexcept nogil
# What was given for a batch; NULL for nothing.
cdef const DecompressedPayload* find_decompressed(
    Payloads* payloads, const uint8_t* batch
) noexcept nogil
# Undo a codec of ours; STATUS_COMPRESSED for what others have to look at. The records are good
# until the next are opened; if they count, they are kept, but perhaps moved.
cdef int open_payload(
    Payloads* payloads, int codec, const uint8_t* data, int64_t size,
    const uint8_t** records, int64_t* records_size,
) noexcept nogil
