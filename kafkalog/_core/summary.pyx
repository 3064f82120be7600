"""Summary of the records of one v2 batch for a leader, without building any.

Called by the validation of batches that a caller brings encoded (LogValidator in Kafka): the
verdict of a full parse, the range of timestamps, how many keys are null. Verdicts are those of
`check_records` in record.pyx.

Never decompresses: `payload[start:end]` are plain records. Never checks a CRC.
Thread-safety: pure functions; the GIL is released while the records are read.
"""

from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t

from typing import NamedTuple

from kafkalog._core.cursor cimport Cursor
from kafkalog._core.header cimport BatchHeader
from kafkalog._core.record cimport (
    check_count,
    check_payload,
    header_context,
    next_record,
    open_payload,
    PayloadRef,
    RecordFields,
    RecordsContext,
    timestamp_of,
    record_error_status,
)
from kafkalog._core.status cimport STATUS_OK, STATUS_TRAILING_BYTES

# A timestamp that means none.
cdef enum:
    NO_TIMESTAMP = -1


class RecordSummary(NamedTuple):
    """
    Result of `summarize_records`.

    Attributes:
        status: 0, or why the records are refused; the other facts are then of those before.
        position: in the payload, of the record at fault or the end.
        min_timestamp, max_timestamp: of the records that have one; -1 where none has.
        null_key_count: records whose key is null.
    """

    status: int
    position: int
    min_timestamp: int
    max_timestamp: int
    null_key_count: int


cdef int summarize_kernel(
    const RecordsContext* initial, Cursor* cursor, RecordFacts* facts
) noexcept nogil:
    cdef RecordsContext context = initial[0]
    cdef const uint8_t* position = cursor.position
    cdef const uint8_t* end = cursor.end
    cdef const uint8_t* next_position
    cdef RecordFields fields
    cdef int64_t left = context.record_count
    cdef int64_t lower = INT64_MAX
    cdef int64_t upper = INT64_MIN
    cdef int64_t null_keys = 0
    cdef int64_t timestamp
    cdef int status = check_count(initial, cursor)
    while status == STATUS_OK and left > 0:
        left -= 1
        next_position = next_record(&context, position, end, &fields)
        if next_position == NULL:
            status = record_error_status(position, end)
            break
        position = next_position
        null_keys += fields.key_size < 0
        timestamp = timestamp_of(&context, &fields)
        if timestamp != NO_TIMESTAMP:
            lower = min(lower, timestamp)
            upper = max(upper, timestamp)
    cursor.position = position
    facts.min_timestamp = lower if lower <= upper else NO_TIMESTAMP
    facts.max_timestamp = upper if lower <= upper else NO_TIMESTAMP
    facts.null_key_count = null_keys
    if status == STATUS_OK and position != end:
        return STATUS_TRAILING_BYTES
    return status


def summarize_records(
    payload not None,
    BatchHeader header not None,
    Py_ssize_t start,
    Py_ssize_t end,
    *,
    bint strict=True,
):
    """
    Return a RecordSummary of `payload[start:end]`; a bad status is returned, not raised.

    Args:
        payload: any buffer.
        header: the batch's header; offsets, timestamps and the record count come from it.
        start: position of the first record; `end`: one past the last.
        strict: also refuse offset deltas that fall, repeat or leave the batch.
    """
    cdef PayloadRef hold = PayloadRef.__new__(PayloadRef, payload)
    cdef RecordFacts facts
    cdef RecordsContext context = header_context(header, strict)
    cdef Cursor cursor = open_payload(&hold.view, start, end)
    cdef int status
    with nogil:
        status = summarize_kernel(&context, &cursor, &facts)
    check_payload(&hold.view, start, end)
    return RecordSummary(
        status,
        cursor.position - <const uint8_t*>hold.view.buf,
        facts.min_timestamp,
        facts.max_timestamp,
        facts.null_key_count,
    )
