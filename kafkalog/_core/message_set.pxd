"""One message of the old formats (magic 0 and 1), and the walk over a message set.

`load_message` is the only function that reads the layout of a message (LegacyRecord in Kafka).
Results are the structs of record.pxd, so that the same functions make objects of messages and of v2
records: `MessageSet.context` is the context of the message read last.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kafkalog._core.byteorder cimport load_i32, load_i64, load_u32
from kafkalog._core.crc32 cimport crc32
from kafkalog._core.cursor cimport Cursor
from kafkalog._core.codec cimport is_codec_of_format
from kafkalog._core.header cimport BatchFields, BatchHeader, crc_of_batch
from kafkalog._core.layout cimport (
    BASE_OFFSET_POSITION,
    BATCH_LENGTH_POSITION,
    CODEC_MASK,
    CODEC_NONE,
    LEGACY_LENGTH_MIN,
    LEGACY_LENGTH_MIN_V1,
    LOG_OVERHEAD,
    MAGIC_V0,
    MAGIC_V1,
    MESSAGE_ATTRIBUTES_POSITION,
    MESSAGE_CRC_POSITION,
    MESSAGE_KEY_SIZE_POSITION_V0,
    MESSAGE_KEY_SIZE_POSITION_V1,
    MESSAGE_MAGIC_POSITION,
    MESSAGE_TIMESTAMP_POSITION,
    NO_TIMESTAMP,
    NO_TIMESTAMP_TYPE,
    TIMESTAMP_TYPE_MASK,
)
from kafkalog._core.record cimport RecordFields, RecordsContext
from kafkalog._core.status cimport (
    STATUS_COMPRESSED,
    STATUS_CRC,
    STATUS_FIELD_LENGTH,
    STATUS_MAGIC,
    STATUS_NESTED_COMPRESSION,
    STATUS_OFFSET_DELTA,
    STATUS_OK,
    STATUS_RECORD_LENGTH,
    STATUS_TRUNCATED,
    STATUS_UNKNOWN_CODEC,
)


cdef enum:
    FIELD_LENGTH_SIZE = 4


cdef struct MessageFields:
    int64_t offset                     # as it is stored
    int64_t timestamp                  # magic 0: -1
    const uint8_t* key
    const uint8_t* value
    const uint8_t* end                 # one past the message
    int32_t key_size                   # -1: null
    int32_t value_size                 # -1: null
    int8_t magic
    int8_t attributes


# Facts of an outer entry about its messages, and the state of the walk over them.
cdef struct MessageSet:
    RecordsContext context             # of the message read last; its base offset is its offset
    int64_t entry_offset               # the outer entry's
    int64_t offset_shift               # from a stored offset to the true one
    int64_t previous_offset            # stored offset of the message before, for strict reading
    int64_t count
    int64_t timestamp                  # the outer entry's
    int timestamp_type                 # the outer entry's; -1 in magic 0
    int magic                          # the outer entry's
    int other_magic_count              # inner messages of the other old magic, so far
    bint is_wrapper
    bint strict


cdef inline int load_field_size(
    const uint8_t* position, const uint8_t* end, int64_t reserved, int32_t* size
) noexcept nogil:
    """Load a length, any negative one as null; the field and `reserved` bytes end at `end`."""
    size[0] = load_i32(position)
    if size[0] < 0:
        size[0] = -1
    elif size[0] > end - position - FIELD_LENGTH_SIZE - reserved:
        return STATUS_FIELD_LENGTH
    return STATUS_OK


cdef inline int load_framing(
    const uint8_t* position, const uint8_t* limit, const uint8_t** end
) noexcept nogil:
    """Find the end of the message at `position`, which is at or before `limit`."""
    cdef int64_t size
    if limit - position < LOG_OVERHEAD:
        return STATUS_TRUNCATED
    size = load_i32(position + BATCH_LENGTH_POSITION)
    if size < LEGACY_LENGTH_MIN:
        return STATUS_RECORD_LENGTH
    if size > limit - position - LOG_OVERHEAD:
        return STATUS_TRUNCATED
    end[0] = position + LOG_OVERHEAD + size
    return STATUS_OK


cdef inline int load_message(
    const uint8_t* position,
    const uint8_t* limit,
    bint check_crc,
    bint strict,
    MessageFields* fields,
) noexcept nogil:
    """Load the message at `position`; strict: key and value fill it to its end."""
    cdef const uint8_t* end = NULL
    cdef int status = load_framing(position, limit, &end)
    if status != STATUS_OK:
        return status
    if check_crc and load_u32(position + MESSAGE_CRC_POSITION) != crc32(
        0, position + MESSAGE_MAGIC_POSITION, <size_t>(end - position - MESSAGE_MAGIC_POSITION)
    ):
        return STATUS_CRC
    fields.end = end
    fields.offset = load_i64(position + BASE_OFFSET_POSITION)
    fields.magic = <int8_t>position[MESSAGE_MAGIC_POSITION]
    fields.attributes = <int8_t>position[MESSAGE_ATTRIBUTES_POSITION]
    if fields.magic == MAGIC_V1:
        if end - position < LOG_OVERHEAD + LEGACY_LENGTH_MIN_V1:
            return STATUS_RECORD_LENGTH
        fields.timestamp = load_i64(position + MESSAGE_TIMESTAMP_POSITION)
        position += MESSAGE_KEY_SIZE_POSITION_V1
    elif fields.magic == MAGIC_V0:
        fields.timestamp = NO_TIMESTAMP
        position += MESSAGE_KEY_SIZE_POSITION_V0
    else:
        return STATUS_MAGIC
    # The smallest message contains both lengths.
    status = load_field_size(position, end, FIELD_LENGTH_SIZE, &fields.key_size)
    if status != STATUS_OK:
        return status
    fields.key = position + FIELD_LENGTH_SIZE
    position = fields.key + (fields.key_size & ~(fields.key_size >> 31))
    status = load_field_size(position, end, 0, &fields.value_size)
    if status != STATUS_OK:
        return status
    fields.value = position + FIELD_LENGTH_SIZE
    position = fields.value + (fields.value_size & ~(fields.value_size >> 31))
    if strict and position != end:
        return STATUS_RECORD_LENGTH
    return STATUS_OK


cdef inline int check_is_plain(
    const uint8_t* entry, const BatchFields* fields, bint check_crc
) noexcept nogil:
    """Refuse an outer entry that is not a plain message; plain ones go to `load_message`."""
    cdef int codec = fields.attributes & CODEC_MASK
    if codec == CODEC_NONE:
        return STATUS_OK
    if check_crc and crc_of_batch(entry, fields.size_bytes) != fields.crc:
        return STATUS_CRC
    if is_codec_of_format(codec, fields.magic):
        return STATUS_COMPRESSED
    return STATUS_UNKNOWN_CODEC


cdef inline int timestamp_type_of(int magic, int attributes) noexcept nogil:
    if magic == MAGIC_V0:
        return NO_TIMESTAMP_TYPE
    return 1 if attributes & TIMESTAMP_TYPE_MASK else 0


cdef inline void record_fields_of(const MessageFields* message,
                                  RecordFields* fields) noexcept nogil:
    """Fill the fields of a record from a message, which has neither deltas nor headers."""
    fields.key = message.key
    fields.key_size = message.key_size
    fields.value = message.value
    fields.value_size = message.value_size
    fields.headers = fields.end = message.end
    fields.timestamp_delta = 0
    fields.offset_delta = 0
    fields.header_count = 0


cdef inline int next_message(
    MessageSet* messages, const uint8_t* position, const uint8_t* limit, RecordFields* fields
) noexcept nogil:
    """Read the message at `position` and set the context to it; it must fit its set."""
    cdef MessageFields message
    cdef int status = load_message(
        position, limit, messages.strict and messages.is_wrapper, messages.strict, &message
    )
    if status != STATUS_OK:
        return status
    record_fields_of(&message, fields)
    if not messages.is_wrapper:
        return STATUS_OK if message.magic == messages.magic else STATUS_MAGIC
    if message.attributes & CODEC_MASK != CODEC_NONE:
        return STATUS_NESTED_COMPRESSION
    if messages.strict and message.offset <= messages.previous_offset:
        return STATUS_OFFSET_DELTA
    messages.previous_offset = message.offset
    messages.context.base_offset = <int64_t>(
        <uint64_t>message.offset + <uint64_t>messages.offset_shift
    )
    messages.context.timestamp_base = message.timestamp
    messages.context.timestamp_type = messages.timestamp_type
    if message.magic != messages.magic:
        # Cleaners of 0.10.0 left such sets (KAFKA-4298): the message's magic decides.
        messages.other_magic_count += 1
        messages.context.timestamp_type = timestamp_type_of(message.magic, message.attributes)
    if message.magic == MAGIC_V1 and messages.magic == MAGIC_V1 and messages.timestamp_type == 1:
        messages.context.timestamp_base = messages.timestamp
    return STATUS_OK


cdef MessageSet messages_of_fields(const BatchFields* entry, bint strict) noexcept nogil
cdef MessageSet messages_of(BatchHeader header, bint strict) except *
cdef int survey_messages(MessageSet* messages, Cursor* cursor) noexcept nogil
cdef int check_end_of_messages(const Cursor* cursor) noexcept nogil
