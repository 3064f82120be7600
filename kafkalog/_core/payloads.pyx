"""Decompression of batches one after the other, into one memory, for kernels without the GIL.

lz4 and snappy are decompressed here. The caller decompresses gzip and zstd from Python, several
batches at a time, and passes the records (`DecompressedPayload`).
No batch is refused here: unusual data is left to kafkalog.records.codecs, which decides. Data
that it would refuse is never returned.

A payload is written after the counted ones (`memory.size`), which may move. The memory has the
size of the largest recent payload, and is freed if it is more than KEPT_BYTES_MAX.

Thread-safety: one caller at a time for a Payloads.
"""

from libc.stdint cimport int64_t, uint8_t

from kafkalog._core.arrow_memory cimport discard, reserve
from kafkalog._core.layout cimport CODEC_LZ4, CODEC_SNAPPY
from kafkalog._core.lz4_blocks cimport Lz4Frame, decode_lz4, open_lz4
from kafkalog._core.snappy_blocks cimport SnappyStream, decode_snappy, open_snappy
from kafkalog._core.status cimport STATUS_COMPRESSED, STATUS_NO_MEMORY, STATUS_OK


cdef enum:
    # Batches of usual size have a tenth of it. Of what is reserved only what is written is memory.
    KEPT_BYTES_MAX = 8 * 1024 * 1024


cdef void discard_payloads(Payloads* payloads) noexcept nogil:
    discard(&payloads.memory)


cdef const DecompressedPayload* find_decompressed(
    Payloads* payloads, const uint8_t* batch
) noexcept nogil:
    cdef const DecompressedPayload* decompressed
    while payloads.next_decompressed < payloads.decompressed_count:
        decompressed = &payloads.decompressed[payloads.next_decompressed]
        if decompressed.batch >= batch:
            return decompressed if decompressed.batch == batch else NULL
        payloads.next_decompressed += 1
    return NULL


cdef int _reserve(Octets* memory, int64_t capacity) noexcept nogil:
    if memory.size == 0 and (memory.capacity < capacity or memory.capacity > KEPT_BYTES_MAX):
        # Nothing in it is kept: the old one goes before the new one comes.
        discard(memory)
    return reserve(memory, capacity)


cdef int open_payload(
    Payloads* payloads, int codec, const uint8_t* data, int64_t size,
    const uint8_t** records, int64_t* records_size,
) noexcept nogil:
    cdef Octets* memory = &payloads.memory
    cdef Lz4Frame frame
    cdef SnappyStream stream
    if codec == CODEC_LZ4:
        if not open_lz4(data, size, payloads.limit_bytes, &frame):
            return STATUS_COMPRESSED
        if _reserve(memory, frame.space) != STATUS_OK:
            return STATUS_NO_MEMORY
        records_size[0] = decode_lz4(&frame, memory.data + memory.size)
    elif codec == CODEC_SNAPPY:
        if not open_snappy(data, size, payloads.limit_bytes, &stream):
            return STATUS_COMPRESSED
        if _reserve(memory, stream.space) != STATUS_OK:
            return STATUS_NO_MEMORY
        records_size[0] = decode_snappy(&stream, memory.data + memory.size)
    else:
        return STATUS_COMPRESSED
    records[0] = memory.data + memory.size
    return STATUS_OK if records_size[0] >= 0 else STATUS_COMPRESSED
