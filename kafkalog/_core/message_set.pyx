"""Walk over the messages of one outer entry: its start, and a survey of the lengths.

Thread-safety: pure functions.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memset

from kafkalog._core.byteorder cimport load_i64
from kafkalog._core.cursor cimport Cursor
from kafkalog._core.header cimport BatchFields, BatchHeader
from kafkalog._core.layout cimport (
    BASE_OFFSET_POSITION,
    CODEC_MASK,
    CODEC_NONE,
    MAGIC_V0,
    MAGIC_V1,
    NO_TIMESTAMP,
)
from kafkalog._core.status cimport (
    STATUS_EMPTY_WRAPPER,
    STATUS_OFFSET_DELTA,
    STATUS_OK,
    STATUS_TRAILING_BYTES,
    STATUS_TRUNCATED,
)


cdef MessageSet messages_of_fields(const BatchFields* entry, bint strict) noexcept nogil:
    """Begin a walk over the messages of an outer entry; survey_messages comes next."""
    cdef MessageSet messages
    memset(&messages, 0, sizeof(messages))
    messages.magic = entry.magic
    messages.is_wrapper = (entry.attributes & CODEC_MASK) != CODEC_NONE
    messages.strict = strict
    messages.count = 1
    messages.entry_offset = entry.base_offset
    messages.timestamp = NO_TIMESTAMP if entry.magic == MAGIC_V0 else entry.base_timestamp
    messages.timestamp_type = timestamp_type_of(entry.magic, entry.attributes)
    messages.previous_offset = -1
    # The context of a plain message is complete; each message of a wrapper replaces it.
    messages.context.base_offset = messages.entry_offset
    messages.context.timestamp_base = messages.timestamp
    messages.context.timestamp_type = messages.timestamp_type
    return messages


cdef MessageSet messages_of(BatchHeader header, bint strict) except *:
    """As messages_of_fields; ValueError if the header is not of an old format."""
    cdef BatchFields entry
    if header.magic != MAGIC_V0 and header.magic != MAGIC_V1:
        raise ValueError(f"magic must be 0 or 1, got {header.magic}")
    memset(&entry, 0, sizeof(entry))
    entry.magic = header.magic
    entry.attributes = header.attributes
    entry.base_offset = header.base_offset
    entry.base_timestamp = header.base_timestamp
    return messages_of_fields(&entry, strict)


cdef int survey_messages(MessageSet* messages, Cursor* cursor) noexcept nogil:
    """
    Count the messages and compute the shift from stored to true offsets.

    On failure the cursor moves to the message at fault. Its end moves to that of the last whole
    message if a cut one may be dropped.
    """
    cdef const uint8_t* position = cursor.position
    cdef const uint8_t* last = NULL
    cdef const uint8_t* end = NULL
    cdef int64_t last_offset
    cdef int status
    if not messages.is_wrapper:
        return STATUS_OK               # one message
    messages.count = 0
    while position < cursor.end:
        status = load_framing(position, cursor.end, &end)
        if status == STATUS_TRUNCATED and not messages.strict:
            cursor.end = position
            break
        if status != STATUS_OK:
            cursor.position = position
            return status
        messages.count += 1
        last = position
        position = end
    if last == NULL:
        return STATUS_EMPTY_WRAPPER
    # Inner offsets are relative from magic 1 on. A wrapper at offset 0 comes from a producer, which
    # assigns no offset: its messages count from 0, and a last one above 0 is correct.
    if messages.magic == MAGIC_V0 or messages.entry_offset == 0:
        return STATUS_OK
    last_offset = load_i64(last + BASE_OFFSET_POSITION)
    if messages.entry_offset < last_offset:
        return STATUS_OFFSET_DELTA
    messages.offset_shift = <int64_t>(<uint64_t>messages.entry_offset - <uint64_t>last_offset)
    return STATUS_OK


cdef int check_end_of_messages(const Cursor* cursor) noexcept nogil:
    """Refuse bytes after a plain message; the survey refuses those after a wrapper's messages."""
    return STATUS_OK if cursor.position == cursor.end else STATUS_TRAILING_BYTES
