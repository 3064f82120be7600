"""Decode messages of the old formats (magic 0 and 1; LegacyRecord, DataLogInputStream in Kafka).

An outer entry is a batch: a plain message, which holds itself, or a wrapper, whose value is a
compressed run of messages. All doors take that run uncompressed, `payload[start:end]`, and the
header of the outer entry; for a plain message the run is the entry itself. They mirror record.pyx,
columns.pyx and summary.pyx: same shapes, one verdict, CorruptRecordError with the position of the
message at fault.

The lengths of all messages of a wrapper are walked first, because its offset is that of the last:
a bad length anywhere is found before anything else. A wrapper without messages, one inside
another, a message too short for its magic and fields beyond their message are always refused.
`strict=True`, the default, also refuses what Kafka's readers let pass: inner CRCs that are wrong,
a cut last message (dropped otherwise), bytes behind the value, offsets that do not rise.
Messages of the other old magic in a wrapper are taken: brokers of 0.10.0 wrote such sets.

Never decompresses, never checks the CRC of the outer entry.
Thread-safety: functions are pure.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.list cimport PyList_New
from cpython.object cimport PyObject
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t, uint64_t
from libc.string cimport memset

from typing import NamedTuple

from kafkalog._core.byteorder cimport load_i64
from kafkalog._core.columns cimport ColumnPointers, RecordColumns
from kafkalog._core.cursor cimport Cursor
from kafkalog._core.codec cimport is_codec_of_format
from kafkalog._core.header cimport BatchHeader
from kafkalog._core.layout cimport BASE_OFFSET_POSITION, CODEC_MASK, NO_TIMESTAMP
from kafkalog._core.message_set cimport (
    MessageFields,
    MessageSet,
    check_end_of_messages,
    finish_fields,
    load_message,
    messages_of,
    next_message,
    survey_messages,
)
from kafkalog._core.objects cimport new_field, set_item, store_in_list
from kafkalog._core.record cimport (
    check_payload,
    make_pair,
    make_record,
    NOGIL_SIZE_MIN,
    open_payload,
    PayloadRef,
    RecordFields,
)
from kafkalog._core.status cimport (
    STATUS_EMPTY_WRAPPER,
    STATUS_FULL,
    STATUS_OK,
    STATUS_TRAILING_BYTES,
    STATUS_UNKNOWN_CODEC,
    raise_for_status,
)


cdef object _refuse(
    int status, const Cursor* cursor, const Py_buffer* view, const MessageSet* messages
):
    check_payload(view, 0, view.len)
    raise_for_status(
        status, cursor.position - <const uint8_t*>view.buf, None, messages.entry_offset
    )


# ---- objects ----------------------------------------------------------------------------------

def wrapper_value(data not None, BatchHeader header not None, *, bint strict=True):
    """
    Return (start, end) of the compressed messages in `data`, which holds the whole wrapper.

    Args:
        data: any buffer.
        header: of a wrapper that begins at `header.position` of data.
        strict: refuse bytes behind the value.

    Raises:
        CorruptRecordError: the value is null, or does not fit the message.
        UnsupportedCodecError: no codec that old formats have; zstd came with magic 2.
    """
    cdef PayloadRef hold = PayloadRef.__new__(PayloadRef, data)
    cdef const uint8_t* start = <const uint8_t*>hold.view.buf
    cdef MessageFields message
    cdef MessageSet messages = messages_of(header, strict)
    cdef Cursor cursor = open_payload(&hold.view, header.position, hold.view.len)
    cdef int status
    if not messages.is_wrapper:
        raise ValueError("the header is of a plain message")
    memset(&message, 0, sizeof(message))
    status = load_message(cursor.position, cursor.end, False, False, &message)
    if status == STATUS_OK and not is_codec_of_format(header.attributes & CODEC_MASK, header.magic):
        status = STATUS_UNKNOWN_CODEC
    if status == STATUS_OK and message.value_size < 0:
        status = STATUS_EMPTY_WRAPPER
    if status == STATUS_OK and strict and message.value + message.value_size != message.end:
        status = STATUS_TRAILING_BYTES
    if status != STATUS_OK:
        _refuse(status, &cursor, &hold.view, &messages)
    check_payload(&hold.view, header.position, hold.view.len)
    return message.value - start, message.value + message.value_size - start


def decode_messages(
    payload not None,
    BatchHeader header not None,
    Py_ssize_t start,
    Py_ssize_t end,
    *,
    bint strict=True,
):
    """
    Return the messages in `payload[start:end]` as a list of lazy Record objects.

    Args:
        payload: any buffer; it stays held until every record is gone or detached.
        header: of the outer entry; offsets and timestamps come from it.
        start: position of the first message; `end`: one past the last.
        strict: also refuse what Kafka's readers let pass; see the module.

    Raises:
        CorruptRecordError: the bytes are not whole messages.
    """
    cdef PayloadRef hold = PayloadRef.__new__(PayloadRef, payload)
    cdef RecordFields fields
    cdef list records
    cdef Py_ssize_t row
    cdef MessageSet messages = messages_of(header, strict)
    cdef Cursor cursor = open_payload(&hold.view, start, end)
    cdef int status = survey_messages(&messages, &cursor)
    if status == STATUS_OK:
        records = PyList_New(messages.count)
        for row in range(messages.count):
            status = next_message(&messages, cursor.position, cursor.end, &fields)
            if status != STATUS_OK:
                break
            finish_fields(&fields)
            cursor.position = fields.end
            set_item(records, row, make_record(&messages.context, &fields, hold))
        else:
            status = check_end_of_messages(&cursor)
            if status == STATUS_OK:
                check_payload(&hold.view, start, end)
                return records
    _refuse(status, &cursor, &hold.view, &messages)


def decode_message_tuples(
    payload not None,
    BatchHeader header not None,
    Py_ssize_t start,
    Py_ssize_t end,
    *,
    bint strict=True,
):
    """
    Return the messages in `payload[start:end]` as a list of (key, value) tuples.

    Arguments and errors are those of `decode_messages`; the payload is not held afterwards.
    """
    cdef Py_buffer view
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        return _decode_tuples(&view, header, start, end, strict)
    finally:
        PyBuffer_Release(&view)


cdef list _decode_tuples(
    const Py_buffer* view, BatchHeader header, Py_ssize_t start, Py_ssize_t end, bint strict
):
    cdef RecordFields fields
    cdef list pairs
    cdef Py_ssize_t row
    cdef MessageSet messages = messages_of(header, strict)
    cdef Cursor cursor = open_payload(view, start, end)
    cdef int status = survey_messages(&messages, &cursor)
    if status == STATUS_OK:
        pairs = PyList_New(messages.count)
        for row in range(messages.count):
            status = next_message(&messages, cursor.position, cursor.end, &fields)
            if status != STATUS_OK:
                break
            cursor.position = fields.end
            set_item(pairs, row, make_pair(&fields))
        else:
            status = check_end_of_messages(&cursor)
            if status == STATUS_OK:
                check_payload(view, start, end)
                return pairs
    _refuse(status, &cursor, view, &messages)


def decode_message_lists(
    payload not None,
    BatchHeader header not None,
    Py_ssize_t start,
    Py_ssize_t end,
    *,
    bint strict=True,
):
    """
    Return the messages in `payload[start:end]` as two lists, keys and values, of bytes or None.

    Arguments and errors are those of `decode_messages`; the payload is not held afterwards.
    """
    cdef Py_buffer view
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        return _decode_lists(&view, header, start, end, strict)
    finally:
        PyBuffer_Release(&view)


cdef tuple _decode_lists(
    const Py_buffer* view, BatchHeader header, Py_ssize_t start, Py_ssize_t end, bint strict
):
    cdef RecordFields fields
    cdef list keys
    cdef list values
    cdef Py_ssize_t row
    cdef MessageSet messages = messages_of(header, strict)
    cdef Cursor cursor = open_payload(view, start, end)
    cdef int status = survey_messages(&messages, &cursor)
    if status == STATUS_OK:
        keys = PyList_New(messages.count)
        values = PyList_New(messages.count)
        for row in range(messages.count):
            status = next_message(&messages, cursor.position, cursor.end, &fields)
            if status != STATUS_OK:
                break
            cursor.position = fields.end
            store_in_list(<PyObject*>keys, row, new_field(fields.key, fields.key_size))
            store_in_list(<PyObject*>values, row, new_field(fields.value, fields.value_size))
        else:
            status = check_end_of_messages(&cursor)
            if status == STATUS_OK:
                check_payload(view, start, end)
                return keys, values
    _refuse(status, &cursor, view, &messages)


# ---- columns ----------------------------------------------------------------------------------

cdef int _columns_kernel(
    MessageSet* messages,
    Cursor* cursor,
    const uint8_t* start,
    const ColumnPointers* columns,
    int64_t row,
) noexcept nogil:
    """Fill a row for each message; the caller has made room."""
    cdef RecordFields fields
    cdef int64_t left = messages.count
    cdef int status
    while left > 0:
        status = next_message(messages, cursor.position, cursor.end, &fields)
        if status != STATUS_OK:
            return status
        columns.offset[row] = messages.context.base_offset
        columns.timestamp[row] = messages.context.timestamp_base
        columns.key_position[row] = fields.key - start
        columns.value_position[row] = fields.value - start
        columns.headers_position[row] = fields.end - start
        columns.key_size[row] = fields.key_size
        columns.value_size[row] = fields.value_size
        columns.headers_size[row] = 0
        columns.header_count[row] = 0
        cursor.position = fields.end
        row += 1
        left -= 1
    return check_end_of_messages(cursor)


def decode_message_columns(
    payload not None,
    BatchHeader header not None,
    Py_ssize_t start,
    Py_ssize_t end,
    RecordColumns columns not None,
    *,
    bint strict=True,
):
    """
    Add the messages in `payload[start:end]` to the columns and return how many they are.

    Raises:
        CorruptRecordError: as in `decode_messages`; the columns keep the rows they had.
        InvalidRecordError: the columns have not enough room left.
    """
    cdef PayloadRef hold = PayloadRef.__new__(PayloadRef, payload)
    cdef const uint8_t* origin = <const uint8_t*>hold.view.buf
    cdef MessageSet messages = messages_of(header, strict)
    cdef Cursor cursor = open_payload(&hold.view, start, end)
    cdef int status = survey_messages(&messages, &cursor)
    if status == STATUS_OK and messages.count > columns.capacity - columns.count:
        status = STATUS_FULL
    if status == STATUS_OK:
        if end - start < NOGIL_SIZE_MIN:
            status = _columns_kernel(
                &messages, &cursor, origin, &columns.pointers, columns.count
            )
        else:
            with nogil:
                status = _columns_kernel(
                    &messages, &cursor, origin, &columns.pointers, columns.count
                )
    if status != STATUS_OK:
        _refuse(status, &cursor, &hold.view, &messages)
    check_payload(&hold.view, start, end)
    columns.count += messages.count
    return messages.count


# ---- verdicts and facts -----------------------------------------------------------------------

cdef struct MessageFacts:
    int64_t min_timestamp
    int64_t max_timestamp
    int64_t null_key_count
    int64_t first_offset
    int64_t last_offset
    bint is_dense


class MessageSummary(NamedTuple):
    """
    What `summarize_messages` found; the first five are those of a RecordSummary.

    Attributes:
        status: 0, or why the messages are refused; the other facts are then of those before.
        position: in the payload, of the message at fault or the end.
        min_timestamp, max_timestamp: of the messages that have one; -1 where none has.
        null_key_count: messages whose key is null.
        record_count: messages in the set, whole ones.
        first_offset, last_offset: of the first and the last message read; -1 where none was.
        is_dense: whether stored inner offsets count 0, 1, 2 ... as a leader of magic 1 wants them
            to keep a wrapper as it is; true for a plain message.
        other_magic_count: inner messages whose magic is not the wrapper's.
    """

    status: int
    position: int
    min_timestamp: int
    max_timestamp: int
    null_key_count: int
    record_count: int
    first_offset: int
    last_offset: int
    is_dense: bool
    other_magic_count: int


cdef int _summary_kernel(
    MessageSet* messages, Cursor* cursor, MessageFacts* facts
) noexcept nogil:
    cdef RecordFields fields
    cdef int64_t row = 0
    cdef int64_t lower = INT64_MAX
    cdef int64_t upper = INT64_MIN
    cdef int64_t timestamp
    cdef int status = survey_messages(messages, cursor)
    facts.null_key_count = 0
    facts.first_offset = -1
    facts.last_offset = -1
    facts.is_dense = True
    while status == STATUS_OK and row < messages.count:
        status = next_message(messages, cursor.position, cursor.end, &fields)
        if status != STATUS_OK:
            break
        cursor.position = fields.end
        facts.null_key_count += fields.key_size < 0
        facts.last_offset = messages.context.base_offset
        if row == 0:
            facts.first_offset = facts.last_offset
        if messages.is_wrapper and messages.previous_offset != row:
            facts.is_dense = False
        timestamp = messages.context.timestamp_base
        if timestamp != NO_TIMESTAMP:
            lower = min(lower, timestamp)
            upper = max(upper, timestamp)
        row += 1
    facts.min_timestamp = lower if lower <= upper else NO_TIMESTAMP
    facts.max_timestamp = upper if lower <= upper else NO_TIMESTAMP
    return check_end_of_messages(cursor) if status == STATUS_OK else status


def summarize_messages(
    payload not None,
    BatchHeader header not None,
    Py_ssize_t start,
    Py_ssize_t end,
    *,
    bint strict=True,
):
    """Return a MessageSummary of `payload[start:end]`; a bad status is returned, not raised."""
    cdef PayloadRef hold = PayloadRef.__new__(PayloadRef, payload)
    cdef MessageFacts facts
    cdef MessageSet messages = messages_of(header, strict)
    cdef Cursor cursor = open_payload(&hold.view, start, end)
    cdef int status
    memset(&facts, 0, sizeof(facts))
    with nogil:
        status = _summary_kernel(&messages, &cursor, &facts)
    check_payload(&hold.view, start, end)
    return MessageSummary(
        status,
        cursor.position - <const uint8_t*>hold.view.buf,
        facts.min_timestamp,
        facts.max_timestamp,
        facts.null_key_count,
        messages.count,
        facts.first_offset,
        facts.last_offset,
        facts.is_dense,
        messages.other_magic_count,
    )


cdef int _check_kernel(MessageSet* messages, Cursor* cursor) noexcept nogil:
    cdef RecordFields fields
    cdef int64_t left
    cdef int status = survey_messages(messages, cursor)
    left = messages.count
    while status == STATUS_OK and left > 0:
        left -= 1
        status = next_message(messages, cursor.position, cursor.end, &fields)
        if status == STATUS_OK:
            cursor.position = fields.end
    return check_end_of_messages(cursor) if status == STATUS_OK else status


def check_messages(
    payload not None,
    BatchHeader header not None,
    Py_ssize_t start,
    Py_ssize_t end,
    *,
    bint strict=True,
):
    """Return the status of `payload[start:end]`: 0, or what the decoders would raise for it."""
    cdef PayloadRef hold = PayloadRef.__new__(PayloadRef, payload)
    cdef int status
    cdef MessageSet messages = messages_of(header, strict)
    cdef Cursor cursor = open_payload(&hold.view, start, end)
    if end - start < NOGIL_SIZE_MIN:
        status = _check_kernel(&messages, &cursor)
    else:
        with nogil:
            status = _check_kernel(&messages, &cursor)
    check_payload(&hold.view, start, end)
    return status


def count_messages(
    payload not None,
    BatchHeader header not None,
    Py_ssize_t start,
    Py_ssize_t end,
    *,
    bint strict=True,
):
    """
    Return how many messages are in `payload[start:end]`, by their lengths alone.

    Raises:
        CorruptRecordError: the lengths do not fill the payload.
    """
    cdef PayloadRef hold = PayloadRef.__new__(PayloadRef, payload)
    cdef MessageSet messages = messages_of(header, strict)
    cdef Cursor cursor = open_payload(&hold.view, start, end)
    cdef int status = survey_messages(&messages, &cursor)
    if status != STATUS_OK:
        _refuse(status, &cursor, &hold.view, &messages)
    check_payload(&hold.view, start, end)
    return messages.count


def first_message_offset(
    payload not None,
    BatchHeader header not None,
    Py_ssize_t start,
    Py_ssize_t end,
):
    """
    Return the offset of the first message in `payload[start:end]`: a wrapper's base offset.

    Raises:
        CorruptRecordError: there is none, or the lengths are those of no messages.
    """
    cdef PayloadRef hold = PayloadRef.__new__(PayloadRef, payload)
    cdef MessageSet messages = messages_of(header, False)
    cdef Cursor cursor = open_payload(&hold.view, start, end)
    cdef int status = survey_messages(&messages, &cursor)
    if status != STATUS_OK:
        _refuse(status, &cursor, &hold.view, &messages)
    if not messages.is_wrapper:
        return messages.entry_offset
    cdef int64_t inner = load_i64(cursor.position + BASE_OFFSET_POSITION)
    check_payload(&hold.view, start, end)
    return <int64_t>(<uint64_t>inner + <uint64_t>messages.offset_shift)
