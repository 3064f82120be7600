"""The leaf that writes one message of magic 0 or 1 (LegacyRecord.write), its CRC last.

The caller has reserved `message_size` bytes, and has checked that they fit 32 bits.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkalog._core.copying cimport copy_bytes
from kafkalog._core.byteorder cimport load_i32, store_i32, store_i64, store_u32
from kafkalog._core.crc32 cimport crc32
from kafkalog._core.layout cimport (
    BASE_OFFSET_POSITION,
    BATCH_LENGTH_POSITION,
    LOG_OVERHEAD,
    MAGIC_V0,
    MESSAGE_ATTRIBUTES_POSITION,
    MESSAGE_CRC_POSITION,
    MESSAGE_KEY_SIZE_POSITION_V0,
    MESSAGE_KEY_SIZE_POSITION_V1,
    MESSAGE_MAGIC_POSITION,
    MESSAGE_OVERHEAD_V0,
    MESSAGE_OVERHEAD_V1,
    MESSAGE_TIMESTAMP_POSITION,
)


cdef struct MessageParts:
    int64_t offset                     # as it is to be stored
    int64_t timestamp_ms               # not stored in magic 0
    const uint8_t* key
    const uint8_t* value
    int64_t key_size                   # below 0: null
    int64_t value_size
    int magic
    int attributes


cdef inline int64_t message_size(int magic, int64_t key_size, int64_t value_size) noexcept nogil:
    """Bytes of a message, its offset and size included."""
    cdef int64_t overhead = MESSAGE_OVERHEAD_V0 if magic == MAGIC_V0 else MESSAGE_OVERHEAD_V1
    return overhead + max(key_size, 0) + max(value_size, 0)


cdef inline uint8_t* write_message_field(
    uint8_t* target, const uint8_t* data, int64_t size
) noexcept nogil:
    store_i32(target, <int32_t>max(size, -1))
    if size > 0:
        copy_bytes(target + 4, data, size)
        return target + 4 + size
    return target + 4


cdef inline uint8_t* write_unsealed_message(
    uint8_t* target, const MessageParts* parts
) noexcept nogil:
    """Write a message but for its CRC and return the end of it."""
    cdef uint8_t* end
    store_i64(target + BASE_OFFSET_POSITION, parts.offset)
    target[MESSAGE_MAGIC_POSITION] = <uint8_t>parts.magic
    target[MESSAGE_ATTRIBUTES_POSITION] = <uint8_t>parts.attributes
    if parts.magic == MAGIC_V0:
        end = target + MESSAGE_KEY_SIZE_POSITION_V0
    else:
        store_i64(target + MESSAGE_TIMESTAMP_POSITION, parts.timestamp_ms)
        end = target + MESSAGE_KEY_SIZE_POSITION_V1
    end = write_message_field(end, parts.key, parts.key_size)
    end = write_message_field(end, parts.value, parts.value_size)
    store_i32(target + BATCH_LENGTH_POSITION, <int32_t>(end - target - LOG_OVERHEAD))
    return end


cdef inline uint8_t* seal_message(uint8_t* message) noexcept nogil:
    """Put the CRC into a message that is whole otherwise, and return the end of it."""
    cdef uint8_t* end = message + LOG_OVERHEAD + load_i32(message + BATCH_LENGTH_POSITION)
    store_u32(
        message + MESSAGE_CRC_POSITION,
        crc32(
            0, message + MESSAGE_MAGIC_POSITION, <size_t>(end - message - MESSAGE_MAGIC_POSITION)
        ),
    )
    return end


cdef inline uint8_t* write_message(uint8_t* target, const MessageParts* parts) noexcept nogil:
    """Write a message and return the end of it."""
    write_unsealed_message(target, parts)
    return seal_message(target)
