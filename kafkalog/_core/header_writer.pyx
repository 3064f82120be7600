"""Writer of the header of a new batch (DefaultRecordBatch.writeHeader), its CRC last.

The rules are those of MemoryRecordsBuilder, for batches of this library. Headers of other writers
are checked in batch.pxd, less strictly.

Thread-safety: pure functions.
"""

from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t

from kafkalog._core.codec cimport is_known_codec
from kafkalog._core.header cimport BatchFields
from kafkalog._core.builder cimport BatchDraft
from kafkalog._core.byteorder cimport store_i16, store_i32, store_i64, store_u32
from kafkalog._core.crc32c cimport crc32c
from kafkalog._core.layout cimport (
    ATTRIBUTES_POSITION,
    BASE_OFFSET_POSITION,
    BASE_SEQUENCE_POSITION,
    BASE_TIMESTAMP_POSITION,
    BATCH_LENGTH_POSITION,
    CODEC_NONE,
    CONTROL_MASK,
    CRC_POSITION,
    LAST_OFFSET_DELTA_POSITION,
    LEADER_EPOCH_POSITION,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    MAGIC_V2,
    MAX_TIMESTAMP_POSITION,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    PRODUCER_EPOCH_POSITION,
    PRODUCER_ID_POSITION,
    RECORD_COUNT_POSITION,
    TRANSACTIONAL_MASK,
)
from kafkalog._core.status cimport STATUS_UNKNOWN_CODEC, raise_for_status

from kafkalog.errors import InvalidRecordError


cdef void write_batch_header(
    uint8_t* batch, int64_t size, const BatchFields* fields
) noexcept nogil:
    """Write the 61 bytes in front of the records that end at `size`; crc and lengths are ours."""
    store_i64(batch + BASE_OFFSET_POSITION, fields.base_offset)
    store_i32(batch + BATCH_LENGTH_POSITION, <int32_t>(size - LOG_OVERHEAD))
    store_i32(batch + LEADER_EPOCH_POSITION, fields.partition_leader_epoch)
    batch[MAGIC_POSITION] = MAGIC_V2
    store_i16(batch + ATTRIBUTES_POSITION, fields.attributes)
    store_i32(batch + LAST_OFFSET_DELTA_POSITION, fields.last_offset_delta)
    store_i64(batch + BASE_TIMESTAMP_POSITION, fields.base_timestamp)
    store_i64(batch + MAX_TIMESTAMP_POSITION, fields.max_timestamp)
    store_i64(batch + PRODUCER_ID_POSITION, fields.producer_id)
    store_i16(batch + PRODUCER_EPOCH_POSITION, fields.producer_epoch)
    store_i32(batch + BASE_SEQUENCE_POSITION, fields.base_sequence)
    store_i32(batch + RECORD_COUNT_POSITION, fields.record_count)
    store_u32(
        batch + CRC_POSITION,
        crc32c(0, batch + ATTRIBUTES_POSITION, <size_t>(size - ATTRIBUTES_POSITION)),
    )


cdef int check_codec(const BatchDraft* draft, int codec, object payload) except -1:
    if not is_known_codec(codec):
        raise_for_status(STATUS_UNKNOWN_CODEC, 0)
    if (codec == CODEC_NONE) != (payload is None):
        raise InvalidRecordError("payload must be set if codec is above 0, and None if it is 0")
    if codec != CODEC_NONE and draft.count == 0:
        raise InvalidRecordError("codec must be 0 for a batch without records")
    if payload is not None and len(memoryview(payload)) == 0:
        raise InvalidRecordError("payload must be None or not empty, got 0 bytes")
    return 0


cdef int64_t checked_max_timestamp(
    const BatchDraft* draft, int timestamp_type, object max_timestamp
) except? -1:
    if timestamp_type not in (0, 1):
        raise InvalidRecordError(f"timestamp type must be 0 or 1, got {timestamp_type}")
    if max_timestamp is None:
        if timestamp_type == 1:
            raise InvalidRecordError("max_timestamp must be the append time for type 1")
        return draft.max_timestamp
    if timestamp_type == 0 and draft.count > 0:
        raise InvalidRecordError("max_timestamp must be None for timestamp type 0 with records")
    if max_timestamp < NO_TIMESTAMP or max_timestamp > INT64_MAX:
        raise InvalidRecordError(f"max_timestamp must be in -1 to 2^63-1, got {max_timestamp}")
    return max_timestamp


cdef int check_delete_horizon(const BatchDraft* draft, bint delete_horizon) except -1:
    if delete_horizon and (draft.count == 0 or not draft.has_base_timestamp):
        raise InvalidRecordError("delete_horizon must have records and base_timestamp")
    return 0


cdef int32_t checked_last_offset_delta(
    const BatchDraft* draft, object last_offset_delta, int64_t base_offset
) except -1:
    if last_offset_delta is None:
        if draft.count == 0:
            raise InvalidRecordError("last_offset_delta must be set for a batch without records")
        last_offset_delta = draft.last_offset_delta
    if not max(draft.last_offset_delta, 0) <= last_offset_delta <= INT32_MAX:
        raise InvalidRecordError(
            f"last_offset_delta must be in {max(draft.last_offset_delta, 0)}, that of the last "
            f"record, to {INT32_MAX}, got {last_offset_delta}"
        )
    if not 0 <= base_offset <= INT64_MAX - 1 - last_offset_delta:
        raise InvalidRecordError(
            f"base offset must be in 0 to {INT64_MAX - 1 - last_offset_delta}, got {base_offset}"
        )
    return last_offset_delta


cdef int check_producer(const BatchFields* fields) except -1:
    """Check that the fields of producer, sequence and epoch agree."""
    if fields.partition_leader_epoch < NO_PARTITION_LEADER_EPOCH:
        raise InvalidRecordError(
            f"leader epoch must be -1 or more, got {fields.partition_leader_epoch}"
        )
    if fields.producer_id < NO_PRODUCER_ID or fields.producer_epoch < NO_PRODUCER_EPOCH:
        raise InvalidRecordError(
            "producer id and epoch must be -1 or more, "
            f"got {fields.producer_id} and {fields.producer_epoch}"
        )
    if fields.base_sequence < NO_SEQUENCE:
        raise InvalidRecordError(f"base sequence must be -1 or more, got {fields.base_sequence}")
    if fields.producer_id == NO_PRODUCER_ID:
        if fields.attributes & TRANSACTIONAL_MASK:
            raise InvalidRecordError("producer id must be set for a transactional batch")
        return 0
    if fields.producer_epoch == NO_PRODUCER_EPOCH:
        raise InvalidRecordError("producer epoch must be set if producer id is")
    if fields.base_sequence == NO_SEQUENCE and not fields.attributes & CONTROL_MASK:
        raise InvalidRecordError(
            "base sequence must be set if producer id is, except for control batches"
        )
    return 0
