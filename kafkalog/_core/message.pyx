"""Decoders of messages of the old formats, magic 0 and 1 (LegacyRecord in Kafka).

An outer entry is a batch: a plain message, which contains itself, or a wrapper, whose value is a
compressed set of messages. Functions for one entry get its header and that set uncompressed,
`payload[start:end]`; for a plain message the set is the entry itself. They mirror record.pyx,
columns.pyx and summary.pyx: same shapes, equal verdicts, CorruptRecordError with the position of
the message at fault. `decode_run_*` decode plain messages back to back, as `decode_run` of
columns.pyx does: opening each as a batch costs four times as much.

The lengths of all messages of a wrapper are walked first, because its offset is that of the last:
a bad length anywhere is found before anything else. A wrapper without messages, one inside
another, a message too short for its magic and fields beyond their message are always refused.
`strict=True`, the default, also refuses what Kafka's readers accept: wrong CRCs of inner messages,
a cut last message (else dropped), bytes after the value, offsets that do not rise.
Messages of the other old magic in a wrapper are accepted: brokers of 0.10.0 wrote such sets.

Never decompresses, never checks the CRC of a wrapper.

Thread-safety: functions are pure.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.list cimport PyList_New
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memset

from typing import NamedTuple

from kafkalog._core.byteorder cimport load_i64
from kafkalog._core.codec cimport is_codec_of_format
from kafkalog._core.columns cimport ColumnPointers, RecordColumns, store_row
from kafkalog._core.cursor cimport Cursor
from kafkalog._core.header cimport BatchFields, BatchHeader, is_legacy, load_whole_batch
from kafkalog._core.layout cimport BASE_OFFSET_POSITION, CODEC_MASK, NO_TIMESTAMP
from kafkalog._core.message_set cimport (
    MessageFields,
    MessageSet,
    check_end_of_messages,
    check_is_plain,
    load_message,
    messages_of,
    next_message,
    record_fields_of,
    survey_messages,
    timestamp_type_of,
)
from kafkalog._core.objects cimport new_field, set_item, store_in_list
from kafkalog._core.record cimport (
    NOGIL_SIZE_MIN,
    PayloadRef,
    RecordFields,
    RecordsContext,
    check_payload,
    make_pair,
    make_record,
    open_payload,
)
from kafkalog._core.status cimport (
    STATUS_EMPTY_WRAPPER,
    STATUS_FULL,
    STATUS_MAGIC,
    STATUS_OK,
    STATUS_TRAILING_BYTES,
    STATUS_UNKNOWN_CODEC,
    raise_for_status,
)


# Objects that messages are decoded to. One loop for all takes 639 instructions a message for lists,
# and a loop of their own took 619; tuples and records differ by less than 1 %.
cdef enum Form:
    LAZY_RECORDS
    TUPLES                             # (key, value)
    LISTS                              # one of keys, one of values


cdef object _refuse(
    int status, const Cursor* cursor, const Py_buffer* view, const MessageSet* messages
):
    check_payload(view, 0, view.len)
    raise_for_status(
        status, cursor.position - <const uint8_t*>view.buf, None, messages.entry_offset
    )


# ---- messages of one entry --------------------------------------------------------------------

def wrapper_value(data not None, BatchHeader header not None, *, bint strict=True):
    """
    Return (start, end) of the compressed messages in `data`, which contains the whole wrapper.

    Args:
        data: any buffer.
        header: of a wrapper that begins at `header.position` of data.
        strict: refuse bytes after the value.

    Raises:
        CorruptRecordError: the value is null, or does not fit the message.
        UnsupportedCodecError: old formats do not have the codec; zstd came with magic 2.
    """
    cdef PayloadRef ref = PayloadRef.__new__(PayloadRef, data)
    cdef const uint8_t* start = <const uint8_t*>ref.view.buf
    cdef MessageFields message
    cdef MessageSet messages = messages_of(header, strict)
    cdef Cursor cursor = open_payload(&ref.view, header.position, ref.view.len)
    cdef int status
    if not messages.is_wrapper:
        raise ValueError("header must be of a wrapper, got a plain message")
    memset(&message, 0, sizeof(message))
    status = load_message(cursor.position, cursor.end, False, False, &message)
    if status == STATUS_OK and not is_codec_of_format(header.attributes & CODEC_MASK, header.magic):
        status = STATUS_UNKNOWN_CODEC
    if status == STATUS_OK and message.value_size < 0:
        status = STATUS_EMPTY_WRAPPER
    if status == STATUS_OK and strict and message.value + message.value_size != message.end:
        status = STATUS_TRAILING_BYTES
    if status != STATUS_OK:
        _refuse(status, &cursor, &ref.view, &messages)
    check_payload(&ref.view, header.position, ref.view.len)
    return message.value - start, message.value + message.value_size - start


cdef object _decode_set(const Py_buffer* view, PayloadRef ref, BatchHeader header,
                        Py_ssize_t start, Py_ssize_t end, bint strict, Form form):
    """Return all messages of one entry; `ref` keeps the buffer of lazy records."""
    cdef RecordFields fields
    cdef list items
    cdef list values = None
    cdef Py_ssize_t row = 0
    cdef MessageSet messages = messages_of(header, strict)
    cdef Cursor cursor = open_payload(view, start, end)
    cdef int status = survey_messages(&messages, &cursor)
    if status == STATUS_OK:
        items = PyList_New(messages.count)
        if form == LISTS:
            values = PyList_New(messages.count)
        for row in range(messages.count):
            status = next_message(&messages, cursor.position, cursor.end, &fields)
            if status != STATUS_OK:
                break
            cursor.position = fields.end
            if form == LAZY_RECORDS:
                set_item(items, row, make_record(&messages.context, &fields, ref))
            elif form == TUPLES:
                set_item(items, row, make_pair(&fields))
            else:
                store_in_list(<PyObject*>items, row, new_field(fields.key, fields.key_size))
                store_in_list(<PyObject*>values, row, new_field(fields.value, fields.value_size))
        else:
            status = check_end_of_messages(&cursor)
            if status == STATUS_OK:
                check_payload(view, start, end)
                return items if values is None else (items, values)
    _refuse(status, &cursor, view, &messages)


cdef object _decode_fields(object payload, BatchHeader header, Py_ssize_t start, Py_ssize_t end,
                           bint strict, Form form):
    """As `_decode_set`, for forms that keep no buffer: a PayloadRef takes 590 instructions."""
    cdef Py_buffer view
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        return _decode_set(&view, None, header, start, end, strict, form)
    finally:
        PyBuffer_Release(&view)


def decode_messages(payload not None, BatchHeader header not None, Py_ssize_t start,
                    Py_ssize_t end, *, bint strict=True):
    """
    Return the messages in `payload[start:end]` as a list of lazy Record objects.

    Args:
        payload: any buffer; locked until every record is freed or detached.
        header: of the outer entry; offsets and timestamps come from it.
        start: position of the first message; `end`: one past the last.
        strict: also refuse what Kafka's readers accept; see the module.

    Raises:
        CorruptRecordError: the bytes are not whole messages.
    """
    cdef PayloadRef ref = PayloadRef.__new__(PayloadRef, payload)
    return _decode_set(&ref.view, ref, header, start, end, strict, LAZY_RECORDS)


def decode_message_tuples(payload not None, BatchHeader header not None, Py_ssize_t start,
                          Py_ssize_t end, *, bint strict=True):
    """
    Return the messages in `payload[start:end]` as a list of (key, value) tuples.

    Arguments and errors are those of `decode_messages`; the payload is not locked afterwards.
    """
    return _decode_fields(payload, header, start, end, strict, TUPLES)


def decode_message_lists(payload not None, BatchHeader header not None, Py_ssize_t start,
                         Py_ssize_t end, *, bint strict=True):
    """
    Return the messages in `payload[start:end]` as two lists, keys and values, of bytes or None.

    Arguments and errors are those of `decode_messages`; the payload is not locked afterwards.
    """
    return _decode_fields(payload, header, start, end, strict, LISTS)


# ---- runs of plain messages -------------------------------------------------------------------

# Position in a run, and the message that was loaded last.
cdef struct RunState:
    Cursor cursor
    BatchFields entry
    RecordsContext context
    RecordFields fields
    bint check_crc
    bint strict


cdef int _next_plain(RunState* run) noexcept nogil:
    """Check and load the message at the cursor; move the cursor past it if it is good."""
    cdef const uint8_t* position = run.cursor.position
    cdef MessageFields message
    cdef int status = load_whole_batch(&run.cursor, &run.entry)
    if status == STATUS_OK and not is_legacy(&run.entry):
        status = STATUS_MAGIC
    if status == STATUS_OK:
        status = check_is_plain(position, &run.entry, run.check_crc)
    if status != STATUS_OK:
        return status
    status = load_message(
        position, position + run.entry.size_bytes, run.check_crc, run.strict, &message
    )
    if status != STATUS_OK:
        return status
    run.context.base_offset = run.entry.base_offset
    run.context.timestamp_base = message.timestamp
    run.context.timestamp_type = timestamp_type_of(message.magic, run.entry.attributes)
    record_fields_of(&message, &run.fields)
    run.cursor.position = message.end
    return STATUS_OK


cdef inline int _append_field(list target, const uint8_t* data, int32_t size) except -1:
    cdef PyObject* made = new_field(data, size)
    target.append(<object>made)
    Py_DECREF(<object>made)            # the list has its own reference
    return 0


cdef tuple _decode_run(object data, Py_ssize_t position, object end, bint check_crc, bint strict,
                       Form form):
    """Return (records or tuples, or keys and values, position reached, status)."""
    cdef PayloadRef ref = PayloadRef.__new__(PayloadRef, data)
    cdef RunState run
    cdef list items = []
    cdef list values = []
    cdef int status = STATUS_OK
    memset(&run, 0, sizeof(run))
    run.cursor = open_payload(&ref.view, position, ref.view.len if end is None else end)
    run.check_crc = check_crc
    run.strict = strict
    while run.cursor.position < run.cursor.end:
        status = _next_plain(&run)
        if status != STATUS_OK:
            break
        if form == LAZY_RECORDS:
            items.append(make_record(&run.context, &run.fields, ref))
        elif form == TUPLES:
            items.append(make_pair(&run.fields))
        else:
            _append_field(items, run.fields.key, run.fields.key_size)
            _append_field(values, run.fields.value, run.fields.value_size)
    check_payload(&ref.view, position, ref.view.len)
    position = run.cursor.position - <const uint8_t*>ref.view.buf
    if form == LISTS:
        return items, values, position, status
    return items, position, status


def decode_run_records(data not None, Py_ssize_t position=0, *, end=None, bint check_crc=True,
                       bint strict=True):
    """
    Decode the plain messages from `position` to `end` to lazy Record objects.

    Args:
        data: any buffer; locked until every record is freed or detached.
        position: where a message begins.
        end: where to stop; the end of `data` if None.
        check_crc: check the CRC of each message; the caller may have done so.
        strict: as in `decode_messages`.

    Returns:
        (records, position reached, status). The status is 0 at the end; else it is the reason why
        the message at that position is not decoded: STATUS_COMPRESSED (a wrapper), STATUS_MAGIC
        (another format), STATUS_TRUNCATED (cut), or its fault. Records before it are good.
    """
    return _decode_run(data, position, end, check_crc, strict, LAZY_RECORDS)


def decode_run_tuples(data not None, Py_ssize_t position=0, *, end=None, bint check_crc=True,
                      bint strict=True):
    """
    Decode plain messages to (key, value) tuples.

    Arguments and result are those of `decode_run_records`; `data` is not locked afterwards.
    """
    return _decode_run(data, position, end, check_crc, strict, TUPLES)


def decode_run_lists(data not None, Py_ssize_t position=0, *, end=None, bint check_crc=True,
                     bint strict=True):
    """
    Decode plain messages to two lists, keys and values, of bytes or None.

    Arguments are those of `decode_run_records`; `data` is not locked afterwards.

    Returns:
        (keys, values, position reached, status).
    """
    return _decode_run(data, position, end, check_crc, strict, LISTS)


# ---- columns ----------------------------------------------------------------------------------

cdef int _columns_kernel(
    MessageSet* messages,
    Cursor* cursor,
    const uint8_t* start,
    const ColumnPointers* columns,
    int64_t row,
) noexcept nogil:
    """Fill a row for each message; the columns have enough rows."""
    cdef RecordFields fields
    cdef int64_t left = messages.count
    cdef int status
    while left > 0:
        status = next_message(messages, cursor.position, cursor.end, &fields)
        if status != STATUS_OK:
            return status
        store_row(columns, row, start, messages.context.base_offset,
                  messages.context.timestamp_base, &fields)
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
    Add the messages in `payload[start:end]` to the columns and return their count.

    Raises:
        CorruptRecordError: as in `decode_messages`; the columns keep the rows they had.
        InvalidRecordError: the columns have too few free rows.
    """
    cdef PayloadRef ref = PayloadRef.__new__(PayloadRef, payload)
    cdef const uint8_t* origin = <const uint8_t*>ref.view.buf
    cdef MessageSet messages = messages_of(header, strict)
    cdef Cursor cursor = open_payload(&ref.view, start, end)
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
        _refuse(status, &cursor, &ref.view, &messages)
    check_payload(&ref.view, start, end)
    columns.count += messages.count
    return messages.count


# ---- checks and facts -------------------------------------------------------------------------

cdef struct MessageFacts:
    int64_t min_timestamp
    int64_t max_timestamp
    int64_t null_key_count
    int64_t first_offset
    int64_t last_offset
    bint is_dense


class MessageSummary(NamedTuple):
    """
    Result of `summarize_messages`; the first five fields are those of a RecordSummary.

    Attributes:
        status: 0, or the fault of a message; the other facts are then of the messages before it.
        position: in the payload, of the message at fault or the end.
        min_timestamp, max_timestamp: of messages with a timestamp; -1 for no such message.
        null_key_count: messages with a null key.
        record_count: whole messages in the set.
        first_offset, last_offset: of the first and the last message read; -1 for no message.
        is_dense: whether stored inner offsets count 0, 1, 2 ...: a leader of magic 1 then keeps the
            wrapper unchanged; true for a plain message.
        other_magic_count: inner messages with another magic than the wrapper.
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


cdef int _walk_kernel(MessageSet* messages, Cursor* cursor, MessageFacts* facts) noexcept nogil:
    """Read all messages; add to the facts unless they are NULL."""
    cdef RecordFields fields
    cdef int64_t row = 0
    cdef int64_t timestamp
    cdef int status = survey_messages(messages, cursor)
    while status == STATUS_OK and row < messages.count:
        status = next_message(messages, cursor.position, cursor.end, &fields)
        if status != STATUS_OK:
            break
        cursor.position = fields.end
        if facts != NULL:
            facts.null_key_count += fields.key_size < 0
            facts.last_offset = messages.context.base_offset
            if row == 0:
                facts.first_offset = facts.last_offset
            if messages.is_wrapper and messages.previous_offset != row:
                facts.is_dense = False
            timestamp = messages.context.timestamp_base
            if timestamp != NO_TIMESTAMP:
                facts.min_timestamp = min(facts.min_timestamp, timestamp)
                facts.max_timestamp = max(facts.max_timestamp, timestamp)
        row += 1
    return check_end_of_messages(cursor) if status == STATUS_OK else status


def summarize_messages(payload not None, BatchHeader header not None, Py_ssize_t start,
                       Py_ssize_t end, *, bint strict=True):
    """Return a MessageSummary of `payload[start:end]`; a bad status is returned, not raised."""
    cdef PayloadRef ref = PayloadRef.__new__(PayloadRef, payload)
    cdef MessageFacts facts
    cdef MessageSet messages = messages_of(header, strict)
    cdef Cursor cursor = open_payload(&ref.view, start, end)
    cdef int status
    facts.min_timestamp, facts.max_timestamp = INT64_MAX, INT64_MIN
    facts.first_offset = facts.last_offset = -1
    facts.null_key_count = 0
    facts.is_dense = True
    with nogil:
        status = _walk_kernel(&messages, &cursor, &facts)
    check_payload(&ref.view, start, end)
    if facts.min_timestamp > facts.max_timestamp:
        facts.min_timestamp = facts.max_timestamp = NO_TIMESTAMP
    return MessageSummary(
        status,
        cursor.position - <const uint8_t*>ref.view.buf,
        facts.min_timestamp,
        facts.max_timestamp,
        facts.null_key_count,
        messages.count,
        facts.first_offset,
        facts.last_offset,
        facts.is_dense,
        messages.other_magic_count,
    )


def check_messages(payload not None, BatchHeader header not None, Py_ssize_t start,
                   Py_ssize_t end, *, bint strict=True):
    """Return the status of `payload[start:end]`: 0, or that of the error of the decoders."""
    cdef PayloadRef ref = PayloadRef.__new__(PayloadRef, payload)
    cdef int status
    cdef MessageSet messages = messages_of(header, strict)
    cdef Cursor cursor = open_payload(&ref.view, start, end)
    if end - start < NOGIL_SIZE_MIN:
        status = _walk_kernel(&messages, &cursor, NULL)
    else:
        with nogil:
            status = _walk_kernel(&messages, &cursor, NULL)
    check_payload(&ref.view, start, end)
    return status


def count_messages(payload not None, BatchHeader header not None, Py_ssize_t start,
                   Py_ssize_t end, *, bint strict=True):
    """
    Return the number of messages in `payload[start:end]`, by their lengths alone.

    Raises:
        CorruptRecordError: the lengths do not fill the payload.
    """
    cdef PayloadRef ref = PayloadRef.__new__(PayloadRef, payload)
    cdef MessageSet messages = messages_of(header, strict)
    cdef Cursor cursor = open_payload(&ref.view, start, end)
    cdef int status = survey_messages(&messages, &cursor)
    if status != STATUS_OK:
        _refuse(status, &cursor, &ref.view, &messages)
    check_payload(&ref.view, start, end)
    return messages.count


def first_message_offset(payload not None, BatchHeader header not None, Py_ssize_t start,
                         Py_ssize_t end):
    """
    Return the offset of the first message in `payload[start:end]`: a wrapper's base offset.

    Raises:
        CorruptRecordError: no message, or a length is wrong.
    """
    cdef PayloadRef ref = PayloadRef.__new__(PayloadRef, payload)
    cdef MessageSet messages = messages_of(header, False)
    cdef Cursor cursor = open_payload(&ref.view, start, end)
    cdef int status = survey_messages(&messages, &cursor)
    if status != STATUS_OK:
        _refuse(status, &cursor, &ref.view, &messages)
    if not messages.is_wrapper:
        return messages.entry_offset
    cdef int64_t inner = load_i64(cursor.position + BASE_OFFSET_POSITION)
    check_payload(&ref.view, start, end)
    return <int64_t>(<uint64_t>inner + <uint64_t>messages.offset_shift)
