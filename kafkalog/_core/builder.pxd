"""The leaf that writes one record (DefaultRecord.writeTo), into a batch under construction.

`add_record` computes every size first and writes only if the record fits: else the caller grows the
memory and calls again. It never allocates and never writes half a record. `add_message` is the same
for magic 0 and 1; `add_to_draft` calls the one of the batch's format.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from kafkalog._core.copying cimport copy_bytes
from kafkalog._core.layout cimport MAGIC_V0, MAGIC_V2, NO_TIMESTAMP
from kafkalog._core.message_writer cimport (
    MessageParts,
    message_size,
    seal_message,
    write_unsealed_message,
)
from kafkalog._core.record cimport bytes_or_none
from kafkalog._core.status cimport STATUS_FULL, STATUS_OK, STATUS_TOO_LARGE
from kafkalog._core.varint cimport write_unsigned_varlong, zigzag32, zigzag64


cdef extern from *:
    int __builtin_clzll(unsigned long long value) nogil


cdef enum:
    # Bytes of messages that wait for their CRC. A sum over bytes that were stored a moment ago
    # waits for the stores (100-byte messages took 29 ns each with it, 20 ns without), and older
    # bytes have left the nearest cache.
    SEAL_DISTANCE = 1024


cdef enum AddStatus:
    # In addition to STATUS_OK, STATUS_FULL (`needed` is the size to reserve) and STATUS_TOO_LARGE.
    ADD_OVER_LIMIT = 1001              # the record is for the next batch
    ADD_BAD_TIMESTAMP = 1002           # below -1
    ADD_HEADERS = 1003                 # the format has none


cdef struct BatchDraft:
    uint8_t* data                      # header first, if there is one, then records
    int64_t capacity
    int64_t size
    int64_t needed
    int64_t base_timestamp
    int64_t max_timestamp
    uint64_t min_timestamp             # unsigned: -1, which is none, is then the largest
    int64_t last_offset_delta          # -1: no record yet
    int64_t count
    int64_t null_key_count
    int64_t base_offset                # offsets stored in messages count from it
    int64_t append_time                # of all messages with that attribute
    int64_t sealed                     # up to here messages have their CRC
    int magic
    int attributes                     # of each message
    bint has_base_timestamp                    # the base timestamp is not the first record's


cdef struct RecordParts:
    const uint8_t* key
    const uint8_t* value
    const uint8_t* headers             # encoded, without their count
    int64_t key_size                   # -1: null
    int64_t value_size
    int64_t headers_size
    int64_t header_count
    int64_t timestamp_ms
    int64_t offset_delta


cdef inline int64_t size_of_code(uint64_t code) noexcept nogil:
    """Bytes of a varint whose zigzag code is given: one for each seven bits begun."""
    return ((63 - __builtin_clzll(code | 1)) * 9 + 73) >> 6


cdef inline int64_t size_of_bytes(int64_t size) noexcept nogil:
    return 1 if size < 0 else size_of_code(<uint64_t>size << 1) + size


cdef inline uint8_t* write_bytes(
    uint8_t* target, const uint8_t* data, int64_t size
) noexcept nogil:
    """Write a length and the bytes; the caller has reserved the space."""
    if size < 0:
        target[0] = 1
        return target + 1
    target = write_unsigned_varlong(target, <uint64_t>size << 1)
    copy_bytes(target, data, size)
    return target + size


cdef inline void count_added(
    BatchDraft* draft, const RecordParts* parts, int64_t timestamp_ms, int64_t size
) noexcept nogil:
    draft.size = size
    draft.count += 1
    draft.last_offset_delta = parts.offset_delta
    draft.null_key_count += parts.key_size < 0
    draft.min_timestamp = min(draft.min_timestamp, <uint64_t>timestamp_ms)
    if timestamp_ms > draft.max_timestamp:
        draft.max_timestamp = timestamp_ms


cdef inline int add_record(
    BatchDraft* draft, const RecordParts* parts, int64_t size_limit
) noexcept nogil:
    """Write the record after the others, if the batch stays within the limit or was empty."""
    cdef int64_t base_timestamp = draft.base_timestamp
    cdef uint64_t timestamp_code
    cdef uint64_t offset_code
    cdef int64_t body
    cdef int64_t size
    cdef uint8_t* target
    if parts.timestamp_ms < NO_TIMESTAMP:
        return ADD_BAD_TIMESTAMP
    if parts.offset_delta > INT32_MAX:
        return STATUS_TOO_LARGE
    if draft.count == 0 and not draft.has_base_timestamp:
        base_timestamp = parts.timestamp_ms
    timestamp_code = zigzag64(<int64_t>(<uint64_t>parts.timestamp_ms - <uint64_t>base_timestamp))
    offset_code = zigzag32(<int32_t>parts.offset_delta)
    body = (
        1
        + size_of_code(timestamp_code)
        + size_of_code(offset_code)
        + size_of_bytes(parts.key_size)
        + size_of_bytes(parts.value_size)
        + size_of_code(<uint64_t>parts.header_count << 1)
        + parts.headers_size
    )
    size = draft.size + size_of_code(<uint64_t>body << 1) + body
    if size > size_limit and draft.count > 0:
        return ADD_OVER_LIMIT
    if size > INT32_MAX:
        return STATUS_TOO_LARGE
    if size > draft.capacity:
        draft.needed = size
        return STATUS_FULL
    target = write_unsigned_varlong(draft.data + draft.size, <uint64_t>body << 1)
    target[0] = 0
    target = write_unsigned_varlong(target + 1, timestamp_code)
    target = write_unsigned_varlong(target, offset_code)
    target = write_bytes(target, parts.key, parts.key_size)
    target = write_bytes(target, parts.value, parts.value_size)
    target = write_unsigned_varlong(target, <uint64_t>parts.header_count << 1)
    if parts.headers_size > 0:
        memcpy(target, parts.headers, <size_t>parts.headers_size)
    draft.base_timestamp = base_timestamp
    count_added(draft, parts, parts.timestamp_ms, size)
    return STATUS_OK


cdef inline void seal_messages(BatchDraft* draft) noexcept nogil:
    """Write the CRC of every message, before the batch is used."""
    cdef uint8_t* message = draft.data + draft.sealed
    cdef uint8_t* end = draft.data + draft.size
    while message < end:
        message = seal_message(message)
    draft.sealed = draft.size


cdef inline int add_message(
    BatchDraft* draft, const RecordParts* parts, int64_t size_limit
) noexcept nogil:
    """As add_record, for a message; format and batch decide on its timestamp."""
    cdef MessageParts message
    cdef int64_t size = draft.size + message_size(draft.magic, parts.key_size, parts.value_size)
    message.timestamp_ms = parts.timestamp_ms
    if draft.magic == MAGIC_V0:
        message.timestamp_ms = NO_TIMESTAMP
    elif draft.attributes != 0:
        message.timestamp_ms = draft.append_time
    elif parts.timestamp_ms < NO_TIMESTAMP:
        return ADD_BAD_TIMESTAMP
    if parts.header_count > 0:
        return ADD_HEADERS
    if parts.offset_delta > INT32_MAX:
        return STATUS_TOO_LARGE
    if size > size_limit and draft.count > 0:
        return ADD_OVER_LIMIT
    if size > INT32_MAX:
        return STATUS_TOO_LARGE
    if size > draft.capacity:
        draft.needed = size
        return STATUS_FULL
    # Unsigned: a base too large for these offsets is refused when the set is closed.
    message.offset = <int64_t>(<uint64_t>draft.base_offset + <uint64_t>parts.offset_delta)
    message.key = parts.key
    message.value = parts.value
    message.key_size = parts.key_size
    message.value_size = parts.value_size
    message.magic = draft.magic
    message.attributes = draft.attributes
    write_unsealed_message(draft.data + draft.size, &message)
    count_added(draft, parts, message.timestamp_ms, size)
    if size - draft.sealed >= SEAL_DISTANCE:
        seal_messages(draft)
    return STATUS_OK


cdef inline int add_to_draft(
    BatchDraft* draft, const RecordParts* parts, int64_t size_limit
) noexcept nogil:
    if draft.magic == MAGIC_V2:
        return add_record(draft, parts, size_limit)
    return add_message(draft, parts, size_limit)


cdef inline int add_row(
    BatchDraft* draft, RecordParts* parts, const int64_t* timestamps, int64_t* slot,
    int64_t size_limit,
) noexcept nogil:
    """Add a row of columns whose cells are in the parts, with its time if each has one; advance."""
    cdef int status
    if timestamps != NULL:
        parts.timestamp_ms = timestamps[slot[0]]
    parts.offset_delta = draft.last_offset_delta + 1
    status = add_to_draft(draft, parts, size_limit)
    if status == STATUS_OK:
        slot[0] += 1
    return status


cdef inline bint point_at_bytes(object field, const uint8_t** data, int64_t* size) noexcept:
    """Point at bytes that the caller holds; return whether the type of the field is `bytes`."""
    if type(field) is not bytes:
        return False
    data[0] = <const uint8_t*>PyBytes_AS_STRING(field)
    size[0] = PyBytes_GET_SIZE(field)
    return True


cdef inline object load_field(
    object field, str name, const uint8_t** data, int64_t* size
):
    """Point at the bytes of a field and return their owner, which the caller holds."""
    field = field if type(field) is bytes else bytes_or_none(field, name)
    if field is None:
        data[0] = NULL
        size[0] = -1
    else:
        data[0] = <const uint8_t*>PyBytes_AS_STRING(field)
        size[0] = PyBytes_GET_SIZE(field)
    return field
