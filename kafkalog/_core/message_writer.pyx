"""Messages of magic 0 and 1 from rows that were decoded: plain ones, and wrappers of others.

`encode_messages` makes the same bytes for both uses: messages that stand alone have their offsets,
those inside a wrapper of magic 1 count from the first (`base_offset`). Compressing is the caller's.

With the log's append time each message carries that time and its type, as Kafka's builder writes
them; magic 0 knows neither.

Thread-safety: pure functions.
"""

from libc.stdint cimport INT32_MAX, int64_t, uint8_t

from kafkalog._core.builder cimport RecordParts
from kafkalog._core.decoded_rows cimport DecodedRows, RowPointers, load_row
from kafkalog._core.layout cimport (
    CODEC_NONE,
    CODEC_ZSTD,
    MAGIC_V0,
    MAGIC_V1,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
)
from kafkalog._core.status cimport (
    STATUS_OFFSET_DELTA,
    STATUS_OK,
    STATUS_TOO_LARGE,
    STATUS_UNKNOWN_CODEC,
    raise_for_status,
)

from kafkalog.errors import InvalidRecordError


cdef int64_t _measure_kernel(
    const RowPointers* rows, int magic, int64_t base_offset, int64_t start, int64_t stop, int* why
) noexcept nogil:
    """Return the size of all messages, or -1 - row of the first that cannot be written."""
    cdef RecordParts parts
    cdef int64_t previous = base_offset - 1
    cdef int64_t total = 0
    cdef int64_t size
    cdef int64_t row
    for row in range(start, stop):
        why[0] = load_row(rows, row, &parts)
        size = message_size(magic, parts.key_size, parts.value_size)
        if why[0] == STATUS_OK and size > INT32_MAX:
            why[0] = STATUS_TOO_LARGE
        if why[0] == STATUS_OK and rows.offset[row] <= previous:
            why[0] = STATUS_OFFSET_DELTA
        if why[0] != STATUS_OK:
            return -1 - row
        previous = rows.offset[row]
        total += size
    return total


cdef int64_t _write_kernel(
    const RowPointers* rows,
    MessageParts* message,
    bint has_append_time,
    int64_t base_offset,
    int64_t start,
    int64_t stop,
    uint8_t* target,
) noexcept nogil:
    """Write rows that were measured; return the first whose timestamp is below -1, else -1."""
    cdef RecordParts parts
    cdef int64_t row
    for row in range(start, stop):
        load_row(rows, row, &parts)
        message.offset = rows.offset[row] - base_offset
        if not has_append_time:
            message.timestamp_ms = parts.timestamp_ms
            if parts.timestamp_ms < NO_TIMESTAMP and message.magic != MAGIC_V0:
                return row
        message.key = parts.key
        message.key_size = parts.key_size
        message.value = parts.value
        message.value_size = parts.value_size
        target = write_message(target, message)
    return -1


cdef int _prepare(MessageParts* message, int magic, object append_time) except -1:
    if magic not in (MAGIC_V0, MAGIC_V1):
        raise ValueError(f"magic must be 0 or 1, is {magic}")
    message.magic = magic
    message.attributes = 0
    message.timestamp_ms = NO_TIMESTAMP
    if append_time is not None:
        message.timestamp_ms = append_time
        if magic == MAGIC_V1:
            message.attributes = TIMESTAMP_TYPE_MASK
        if message.timestamp_ms < NO_TIMESTAMP:
            raise InvalidRecordError(f"append time {append_time} is below -1")
    return 0


def encode_messages(
    data not None,
    columns not None,
    *,
    int magic,
    Py_ssize_t start=0,
    stop=None,
    int64_t base_offset=0,
    append_time=None,
):
    """
    Return rows as messages back to back, without their headers.

    Args:
        data: the buffer that was decoded; `columns`: its rows, a RecordColumns.
        magic: 0 or 1.
        start: first row; `stop`: one past the last, None for all.
        base_offset: what stored offsets count from: 0 for offsets as they are.
        append_time: the log's append time for all of them, None where they keep their own.

    Raises:
        CorruptRecordError: a row does not lie in `data`, or offsets do not rise.
        InvalidRecordError: a timestamp is below -1.
        RecordTooLargeError: a message does not fit 32-bit lengths.
    """
    cdef DecodedRows source = DecodedRows(data, columns)
    cdef Py_ssize_t end = source.count if stop is None else stop
    cdef MessageParts message
    cdef bint has_append_time = append_time is not None
    cdef uint8_t[::1] target
    cdef int64_t size
    cdef int64_t bad
    cdef int why = STATUS_OK
    if start < 0 or end < start or end > source.count or base_offset < 0:
        raise ValueError(f"rows {start} to {end} of {source.count}, base offset {base_offset}")
    _prepare(&message, magic, append_time)
    with nogil:
        size = _measure_kernel(&source.rows, magic, base_offset, start, end, &why)
    if size < 0:
        raise_for_status(why, -1 - size)
    result = bytearray(size)
    target = result
    if size > 0:
        with nogil:
            bad = _write_kernel(
                &source.rows, &message, has_append_time, base_offset, start, end, &target[0]
            )
        if bad >= 0:
            raise InvalidRecordError(f"timestamp {source.rows.timestamp[bad]} is below -1")
    return result


def wrap_messages(
    compressed not None,
    *,
    int magic,
    int codec,
    int64_t last_offset,
    int64_t max_timestamp=NO_TIMESTAMP,
    append_time=None,
):
    """
    Return a wrapper around messages.

    Args:
        compressed: what `encode_messages` gave, compressed.
        magic: 0 or 1, that of the messages.
        codec: 1 to 3: how they are compressed.
        last_offset: offset of the last of them.
        max_timestamp: largest timestamp of them; magic 0 has none.
        append_time: the log's append time, which stands for it; None if they have times of their
            own.

    Raises:
        UnsupportedCodecError: the old formats have no such codec.
        RecordTooLargeError: the wrapper does not fit 32-bit lengths.
    """
    cdef const uint8_t[::1] data = compressed
    cdef MessageParts message
    cdef uint8_t[::1] target
    _prepare(&message, magic, append_time)
    cdef int64_t size = message_size(magic, -1, data.shape[0])
    if not CODEC_NONE < codec < CODEC_ZSTD:
        raise_for_status(STATUS_UNKNOWN_CODEC, 0)
    if size > INT32_MAX:
        raise_for_status(STATUS_TOO_LARGE, 0)
    if last_offset < 0 or data.shape[0] == 0 or max_timestamp < NO_TIMESTAMP:
        raise ValueError(
            f"{data.shape[0]} bytes up to offset {last_offset}, timestamp {max_timestamp}"
        )
    message.offset = last_offset
    message.attributes |= codec
    if append_time is None:
        message.timestamp_ms = max_timestamp
    message.key = NULL
    message.key_size = -1
    message.value = &data[0]
    message.value_size = data.shape[0]
    result = bytearray(size)
    target = result
    write_message(&target[0], &message)
    return result
