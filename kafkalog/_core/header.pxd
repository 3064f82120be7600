"""The header of a batch of any format: leaves and types (DefaultRecordBatch in Kafka).

A batch of magic 2 has 61 bytes of header. A message of the old formats (magic 0 and 1), plain or
wrapper of compressed ones, is a batch as well (AbstractLegacyRecordBatch), whose base offset and
last offset are both the message's own. For a wrapper that is the offset of its last record: the
records before it have offsets below, down to the end of the batch before.

`load_batch_fields` is the only place that decides whether a header is believable. Order of its
checks, which is also the order in which a torn write shows: framing (12 bytes), magic (17 bytes),
smallest length, whole header (61 bytes; 18 or 26), then the fields against each other.
"""

cimport cython
from libc.stdint cimport INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memset

from kafkalog._core.byteorder cimport load_i16, load_i32, load_i64, load_u32
from kafkalog._core.crc32 cimport crc32
from kafkalog._core.crc32c cimport crc32c, crc32c_of_run
from kafkalog._core.cursor cimport Cursor, remaining
from kafkalog._core.layout cimport (
    ATTRIBUTES_POSITION,
    BASE_OFFSET_POSITION,
    BASE_SEQUENCE_POSITION,
    BASE_TIMESTAMP_POSITION,
    BATCH_LENGTH_MAX,
    BATCH_LENGTH_MIN,
    BATCH_LENGTH_POSITION,
    CODEC_MASK,
    CODEC_NONE,
    CRC_POSITION,
    HEADER_SIZE_UP_TO_MAGIC,
    LAST_OFFSET_DELTA_POSITION,
    LEADER_EPOCH_POSITION,
    LEGACY_LENGTH_MIN,
    LEGACY_LENGTH_MIN_V1,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    MAGIC_V0,
    MAGIC_V1,
    MAGIC_V2,
    MAX_TIMESTAMP_POSITION,
    MESSAGE_ATTRIBUTES_POSITION,
    MESSAGE_CRC_POSITION,
    MESSAGE_MAGIC_POSITION,
    MESSAGE_TIMESTAMP_POSITION,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_RECORD_COUNT,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    PRODUCER_EPOCH_POSITION,
    PRODUCER_ID_POSITION,
    RECORD_BATCH_OVERHEAD,
    RECORD_COUNT_POSITION,
    RECORD_SIZE_MIN,
    TIMESTAMP_TYPE_MASK,
)
from kafkalog._core.prefetch cimport prefetch
from kafkalog._core.status cimport (
    STATUS_BASE_OFFSET,
    STATUS_BATCH_LENGTH,
    STATUS_LAST_OFFSET_DELTA,
    STATUS_MAGIC,
    STATUS_OK,
    STATUS_RECORD_COUNT,
    STATUS_TRUNCATED,
)


cdef struct BatchFields:
    int64_t base_offset
    int64_t size_bytes                 # batch_length + LOG_OVERHEAD
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int32_t batch_length
    int32_t partition_leader_epoch
    int32_t last_offset_delta
    int32_t base_sequence
    int32_t record_count
    uint32_t crc
    int16_t attributes
    int16_t producer_epoch
    int8_t magic


cdef inline int64_t last_offset_of(const BatchFields* fields) noexcept nogil:
    return fields.base_offset + fields.last_offset_delta


cdef inline bint is_legacy(const BatchFields* fields) noexcept nogil:
    return fields.magic < MAGIC_V2


cdef inline bint is_plain_v2(const BatchFields* fields, int special) noexcept nogil:
    """Return whether a fast path can take a batch: format v2, none of the attributes `special`."""
    return not is_legacy(fields) and fields.attributes & special == 0


cdef inline bint is_wrapper(const BatchFields* fields) noexcept nogil:
    """Return whether this is a message with others inside: its offset is that of the last."""
    return is_legacy(fields) and fields.attributes & CODEC_MASK != CODEC_NONE


cdef inline uint32_t crc_of_batch(const uint8_t* batch, int64_t size_bytes) noexcept nogil:
    """Sum up the bytes that the CRC covers; `size_bytes` is that of a checked header."""
    if batch[MAGIC_POSITION] >= MAGIC_V2:
        return crc32c(0, batch + ATTRIBUTES_POSITION, <size_t>(size_bytes - ATTRIBUTES_POSITION))
    return crc32(0, batch + MESSAGE_MAGIC_POSITION,
                 <size_t>(size_bytes - MESSAGE_MAGIC_POSITION))


cdef inline uint32_t crc_in_run(const uint8_t* batch, int64_t size_bytes,
                                const uint8_t* run_end) noexcept nogil:
    """As `crc_of_batch`, if the following batches, up to `run_end`, are read next."""
    if batch[MAGIC_POSITION] >= MAGIC_V2:
        return crc32c_of_run(batch + ATTRIBUTES_POSITION,
                             <size_t>(size_bytes - ATTRIBUTES_POSITION),
                             <size_t>(run_end - batch - size_bytes))
    return crc_of_batch(batch, size_bytes)


cdef inline int load_batch_framing(const Cursor* cursor, BatchFields* fields) noexcept nogil:
    """Load the fields up to the magic byte; needs 17 bytes. The other fields are zeroed."""
    cdef const uint8_t* batch = cursor.position
    memset(fields, 0, sizeof(BatchFields))
    if remaining(cursor) < LOG_OVERHEAD:
        return STATUS_TRUNCATED
    fields.base_offset = load_i64(batch + BASE_OFFSET_POSITION)
    fields.batch_length = load_i32(batch + BATCH_LENGTH_POSITION)
    fields.size_bytes = <int64_t>fields.batch_length + LOG_OVERHEAD
    if fields.batch_length < LEGACY_LENGTH_MIN or fields.batch_length > BATCH_LENGTH_MAX:
        return STATUS_BATCH_LENGTH
    if remaining(cursor) < HEADER_SIZE_UP_TO_MAGIC:
        return STATUS_TRUNCATED
    fields.magic = <int8_t>batch[MAGIC_POSITION]
    if fields.magic == MAGIC_V2:
        fields.partition_leader_epoch = load_i32(batch + LEADER_EPOCH_POSITION)
        return STATUS_OK if fields.batch_length >= BATCH_LENGTH_MIN else STATUS_BATCH_LENGTH
    if fields.magic == MAGIC_V1:
        return STATUS_OK if fields.batch_length >= LEGACY_LENGTH_MIN_V1 else STATUS_BATCH_LENGTH
    return STATUS_OK if fields.magic == MAGIC_V0 else STATUS_MAGIC


cdef inline int check_batch_fields(const BatchFields* fields) noexcept nogil:
    """Compare the fields with each other: checks that the CRC does not, or not yet, include."""
    if fields.last_offset_delta < 0:
        return STATUS_LAST_OFFSET_DELTA
    if fields.record_count < 0:
        return STATUS_RECORD_COUNT
    if fields.attributes & CODEC_MASK == CODEC_NONE and (
        <int64_t>fields.record_count * RECORD_SIZE_MIN > fields.batch_length - BATCH_LENGTH_MIN
    ):
        return STATUS_RECORD_COUNT
    if fields.base_offset < 0:
        return STATUS_BASE_OFFSET
    # The next offset, one past the last, must be an int64 as well.
    if fields.base_offset > INT64_MAX - 1 - fields.last_offset_delta:
        return STATUS_LAST_OFFSET_DELTA
    return STATUS_OK


cdef inline int load_message_fields(const Cursor* cursor, BatchFields* fields) noexcept nogil:
    """Load the header of a message whose framing is loaded; key and value are not looked at."""
    cdef const uint8_t* message = cursor.position
    cdef int64_t header_size = MESSAGE_ATTRIBUTES_POSITION + 1
    cdef int16_t attribute_mask = CODEC_MASK
    if fields.magic == MAGIC_V1:
        header_size = MESSAGE_TIMESTAMP_POSITION + 8
        attribute_mask = CODEC_MASK | TIMESTAMP_TYPE_MASK
    if remaining(cursor) < header_size:
        return STATUS_TRUNCATED
    fields.crc = load_u32(message + MESSAGE_CRC_POSITION)
    fields.attributes = <int16_t>(<int16_t>message[MESSAGE_ATTRIBUTES_POSITION] & attribute_mask)
    fields.base_timestamp = NO_TIMESTAMP
    if fields.magic == MAGIC_V1:
        fields.base_timestamp = load_i64(message + MESSAGE_TIMESTAMP_POSITION)
    fields.max_timestamp = fields.base_timestamp
    fields.record_count = NO_RECORD_COUNT if fields.attributes & CODEC_MASK else 1
    fields.partition_leader_epoch = NO_PARTITION_LEADER_EPOCH
    fields.producer_id = NO_PRODUCER_ID
    fields.producer_epoch = NO_PRODUCER_EPOCH
    fields.base_sequence = NO_SEQUENCE
    if fields.base_offset < 0:
        return STATUS_BASE_OFFSET
    return STATUS_LAST_OFFSET_DELTA if fields.base_offset == INT64_MAX else STATUS_OK


cdef inline int load_batch_fields(const Cursor* cursor, BatchFields* fields) noexcept nogil:
    """
    Load and check the header at the cursor, which does not move; the records may be missing.

    On failure the fields that were not loaded are zero.
    """
    cdef const uint8_t* batch = cursor.position
    cdef int status = load_batch_framing(cursor, fields)
    if status != STATUS_OK:
        return status
    if is_legacy(fields):
        return load_message_fields(cursor, fields)
    if remaining(cursor) < RECORD_BATCH_OVERHEAD:
        return STATUS_TRUNCATED
    fields.crc = load_u32(batch + CRC_POSITION)
    fields.attributes = load_i16(batch + ATTRIBUTES_POSITION)
    fields.last_offset_delta = load_i32(batch + LAST_OFFSET_DELTA_POSITION)
    fields.base_timestamp = load_i64(batch + BASE_TIMESTAMP_POSITION)
    fields.max_timestamp = load_i64(batch + MAX_TIMESTAMP_POSITION)
    fields.producer_id = load_i64(batch + PRODUCER_ID_POSITION)
    fields.producer_epoch = load_i16(batch + PRODUCER_EPOCH_POSITION)
    fields.base_sequence = load_i32(batch + BASE_SEQUENCE_POSITION)
    fields.record_count = load_i32(batch + RECORD_COUNT_POSITION)
    return check_batch_fields(fields)


cdef inline int load_whole_batch(const Cursor* cursor, BatchFields* fields) noexcept nogil:
    """As load_batch_fields, but the batch must end before the cursor does."""
    cdef int status = load_batch_fields(cursor, fields)
    if status == STATUS_OK and fields.size_bytes > remaining(cursor):
        return STATUS_TRUNCATED
    return status


cdef inline void prefetch_header(const Cursor* cursor, int64_t distance) noexcept nogil:
    """Ask for both lines that the header `distance` bytes ahead can touch."""
    if distance < remaining(cursor) - RECORD_BATCH_OVERHEAD:
        prefetch(cursor.position + distance)
        prefetch(cursor.position + distance + RECORD_BATCH_OVERHEAD)


@cython.final
cdef class BatchHeader:
    cdef readonly Py_ssize_t position
    cdef readonly int64_t base_offset
    cdef readonly int32_t batch_length
    cdef readonly int32_t partition_leader_epoch
    cdef readonly int8_t magic
    cdef readonly uint32_t crc
    cdef readonly int16_t attributes
    cdef readonly int32_t last_offset_delta
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t producer_id
    cdef readonly int16_t producer_epoch
    cdef readonly int32_t base_sequence
    cdef readonly int32_t record_count

    cdef tuple _fields(self)


cdef BatchHeader make_header(const BatchFields* fields, Py_ssize_t position)

# For entry points: fill the cursor with data[position:end] (`end` may be None) and return the start
# of the data. IndexError if that is not inside.
cdef const uint8_t* open_cursor(const uint8_t[::1] data, Py_ssize_t position, object end,
                                Cursor* cursor) except NULL
