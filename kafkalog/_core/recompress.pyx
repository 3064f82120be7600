"""Another codec for a v2 batch: its records compressed again, every other field kept.

What a broker's rebuild keeps and more: base offset, last offset, timestamps, a delete horizon,
producer, sequence, leader epoch, and all attribute bits but the codec's. Compressing and
decompressing are the caller's.

Thread-safety: pure functions.
"""

from libc.stdint cimport int16_t, int32_t, uint8_t
from libc.string cimport memcpy

from kafkalog._core.byteorder cimport load_i16, store_i16, store_i32, store_u32
from kafkalog._core.cursor cimport Cursor
from kafkalog._core.codec cimport is_known_codec
from kafkalog._core.header cimport BatchFields, crc_of_batch, load_whole_batch, open_cursor
from kafkalog._core.layout cimport (
    ATTRIBUTES_POSITION,
    BATCH_LENGTH_MAX,
    BATCH_LENGTH_POSITION,
    CODEC_MASK,
    CRC_POSITION,
    LOG_OVERHEAD,
    MAGIC_V2,
    RECORD_BATCH_OVERHEAD,
)
from kafkalog._core.status cimport (
    STATUS_LEGACY,
    STATUS_OK,
    STATUS_TOO_LARGE,
    STATUS_UNKNOWN_CODEC,
    raise_for_status,
)


def replace_payload(const uint8_t[::1] batch not None, int codec, payload not None):
    """
    Return the batch with other bytes for its records, length and CRC made right.

    Args:
        batch: one whole batch of format v2.
        codec: 0 to 4: how `payload` is compressed.
        payload: the same records in that codec's framing.

    Raises:
        CorruptRecordError, InvalidRecordError: the header is damaged, or of an old format.
        RecordTooLargeError: the result does not fit 32-bit lengths.
    """
    cdef Cursor cursor
    cdef BatchFields fields
    cdef const uint8_t[::1] data = payload
    cdef Py_ssize_t size = RECORD_BATCH_OVERHEAD + data.shape[0]
    cdef uint8_t[::1] target
    cdef int16_t attributes
    open_cursor(batch, 0, None, &cursor)
    cdef int status = load_whole_batch(&cursor, &fields)
    if status == STATUS_OK and fields.magic != MAGIC_V2:
        status = STATUS_LEGACY
    elif status == STATUS_OK and not is_known_codec(codec):
        status = STATUS_UNKNOWN_CODEC
    elif status == STATUS_OK and size - LOG_OVERHEAD > BATCH_LENGTH_MAX:
        status = STATUS_TOO_LARGE
    raise_for_status(status, 0)
    result = bytearray(size)
    target = result
    memcpy(&target[0], &batch[0], RECORD_BATCH_OVERHEAD)
    if data.shape[0] > 0:
        memcpy(&target[0] + RECORD_BATCH_OVERHEAD, &data[0], <size_t>data.shape[0])
    attributes = load_i16(&batch[0] + ATTRIBUTES_POSITION)
    attributes = <int16_t>((attributes & ~CODEC_MASK) | codec)
    store_i32(&target[0] + BATCH_LENGTH_POSITION, <int32_t>(size - LOG_OVERHEAD))
    store_i16(&target[0] + ATTRIBUTES_POSITION, attributes)
    store_u32(&target[0] + CRC_POSITION, crc_of_batch(&target[0], size))
    return result
