"""The one translator from kernel status codes to exceptions.

Kernels return a code and the position they reached; entry points pass both here. No kernel raises.
"""

from kafkalog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    OffsetOverflowError,
    RecordTooLargeError,
    UnsupportedCodecError,
)

# Code -> (name, exception, what it means). A test walks every code and fails on a gap.
_MEANINGS = {
    STATUS_TRUNCATED: ("TRUNCATED", CorruptRecordError, "the bytes end before the item does"),
    STATUS_VARINT_TOO_LONG: (
        "VARINT_TOO_LONG", CorruptRecordError, "a varint is longer than its type allows"),
    STATUS_BATCH_LENGTH: (
        "BATCH_LENGTH", CorruptRecordError, "the batch length is impossible"),
    STATUS_MAGIC: ("MAGIC", CorruptRecordError, "the magic byte is not 0, 1 or 2"),
    STATUS_CRC: ("CRC", CorruptRecordError, "the CRC does not match the bytes"),
    STATUS_RECORD_COUNT: (
        "RECORD_COUNT", CorruptRecordError, "the record count disagrees with the payload"),
    STATUS_LAST_OFFSET_DELTA: (
        "LAST_OFFSET_DELTA", CorruptRecordError,
        "the last offset delta is negative or disagrees with the records"),
    STATUS_RECORD_LENGTH: (
        "RECORD_LENGTH", CorruptRecordError, "a record's length disagrees with its fields"),
    STATUS_FIELD_LENGTH: (
        "FIELD_LENGTH", CorruptRecordError, "a key, value or header runs past its record"),
    STATUS_HEADER_COUNT: (
        "HEADER_COUNT", CorruptRecordError, "the header count does not fit the record"),
    STATUS_HEADER_KEY: ("HEADER_KEY", CorruptRecordError, "a header key is null"),
    STATUS_TRAILING_BYTES: (
        "TRAILING_BYTES", CorruptRecordError, "bytes are left after the last declared record"),
    STATUS_OFFSET_DELTA: (
        "OFFSET_DELTA", CorruptRecordError, "record offsets do not rise inside the batch"),
    STATUS_OFFSET_ORDER: (
        "OFFSET_ORDER", CorruptRecordError, "a batch begins below the end of the one before"),
    STATUS_UNKNOWN_CODEC: (
        "UNKNOWN_CODEC", UnsupportedCodecError, "the codec bits name no known codec"),
    STATUS_COMPRESSED: (
        "COMPRESSED", InvalidRecordError, "the payload is compressed and must be decompressed"),
    STATUS_LEGACY: (
        "LEGACY", InvalidRecordError, "the batch has an old message format (magic 0 or 1)"),
    STATUS_FULL: ("FULL", InvalidRecordError, "the caller's buffer is full"),
    STATUS_TOO_LARGE: (
        "TOO_LARGE", RecordTooLargeError, "the batch does not fit 32-bit lengths"),
    STATUS_BASE_OFFSET: (
        "BASE_OFFSET", CorruptRecordError,
        "the base offset is negative or after the segment"),
    STATUS_NO_MEMORY: ("NO_MEMORY", MemoryError, "memory ran out"),
    STATUS_INTERNAL: ("INTERNAL", AssertionError, "an invariant of kafkalog broke: please report"),
    STATUS_RELATIVE_OFFSET: (
        "RELATIVE_OFFSET", OffsetOverflowError,
        "an offset or position does not fit 32 bits above its segment's base offset"),
    STATUS_NESTED_COMPRESSION: (
        "NESTED_COMPRESSION", CorruptRecordError,
        "a compressed message contains a compressed message"),
    STATUS_EMPTY_WRAPPER: (
        "EMPTY_WRAPPER", CorruptRecordError, "a compressed message holds no message"),
}

STATUS_CODES = {meaning[0]: code for code, meaning in _MEANINGS.items()} | {"OK": STATUS_OK}


def status_name(int status):
    """Return the name of a status code, "OK" for 0."""
    return "OK" if status == STATUS_OK else _MEANINGS[status][0]


def status_meaning(int status):
    """Return one sentence, without a full stop, with the meaning of a status code."""
    return "no error" if status == STATUS_OK else _MEANINGS[status][2]


def check_status(int status, Py_ssize_t position, path=None, base_offset=None):
    """Raise the exception that belongs to `status`; return None for STATUS_OK."""
    raise_for_status(status, position, path, base_offset)


cdef object raise_for_status(int status, Py_ssize_t position, object path=None,
                             object base_offset=None):
    if status == STATUS_OK:
        return None
    error, meaning = _MEANINGS[status][1:]
    where = f" at position {position}" if path is None else f" at position {position} of {path}"
    if base_offset is not None:
        where += f" (batch at offset {base_offset})"
    if issubclass(error, (MemoryError, AssertionError)):
        raise error(meaning + where)
    raise error(meaning + where, path=path, position=position, base_offset=base_offset)
