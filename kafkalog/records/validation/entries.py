"""Common parts of all validation of encoded batches: next header, plain records, errors.

Errors: CorruptRecordError if bytes were damaged in transit (cut, or the CRC is wrong),
InvalidRecordError if a writer made them like this and they are not allowed; `position` is the
position of the batch in the buffer of the caller.

Thread-safety: pure functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

from kafkalog._core.header import BatchHeader, parse_header
from kafkalog._core.message import wrapper_value
from kafkalog._core.record import decode_records
from kafkalog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    RecordTooLargeError,
    UnsupportedCodecError,
)
from kafkalog.layout import MAGIC_V2, MESSAGE_OVERHEAD_V0, RECORD_BATCH_OVERHEAD
from kafkalog.records.append_rules import AppendRules
from kafkalog.records.codecs import Codec, decompress
from kafkalog.records.control import ControlType, decode_control

__all__ = [
    "Payload",
    "add_offset_to_error",
    "check_control_records",
    "check_size",
    "check_sizes",
    "next_header",
    "plain_records",
    "refusal",
]


# Buffer, start and end of uncompressed records.
Payload: TypeAlias = tuple[memoryview | bytes, int, int]


def next_header(data: bytes | bytearray, position: int, *, takes_old: bool = False) -> BatchHeader:
    """
    Return the header of the batch at `position`; all of it is in `data`.

    Args:
        takes_old: whether it may have an old format.
    """
    if len(data) - position < (MESSAGE_OVERHEAD_V0 if takes_old else RECORD_BATCH_OVERHEAD):
        raise CorruptRecordError(
            f"{len(data) - position} bytes at position {position} are too few for a batch",
            position=position,
        )
    header = parse_header(data, position)
    if header.magic < MAGIC_V2 and not takes_old:
        raise InvalidRecordError(
            f"the batch at position {position} has an old message format (magic {header.magic}),"
            " and those before have not: one append has one format",
            position=position,
            base_offset=header.base_offset,
        )
    if header.end_position > len(data):
        raise CorruptRecordError(
            f"the batch at position {position} declares {header.size_bytes} bytes, and only"
            f" {len(data) - position} are left",
            position=position,
            base_offset=header.base_offset,
        )
    return header


def check_size(header: BatchHeader, size_bytes: int, key: str, limit: int) -> None:
    """Raise RecordTooLargeError where the batch takes more than the setting `key` allows."""
    if size_bytes > limit:
        raise RecordTooLargeError(
            f"{_where(header)} must have at most {limit} bytes ({key}), got {size_bytes}",
            position=header.position,
            base_offset=header.base_offset,
        )


def check_sizes(header: BatchHeader, size_bytes: int, rules: AppendRules) -> None:
    """Raise RecordTooLargeError where the batch takes more than the log lets one take."""
    check_size(header, size_bytes, "max.message.bytes", rules.max_message_bytes)
    check_size(header, size_bytes, "segment.bytes", rules.segment_bytes)


def plain_records(data: bytes | bytearray, header: BatchHeader, rules: AppendRules) -> Payload:
    """Return the records, uncompressed; of old formats, the messages."""
    view = memoryview(data).toreadonly()
    start, end = header.position + RECORD_BATCH_OVERHEAD, header.end_position
    if header.magic < MAGIC_V2:
        start = header.position
    if header.codec == Codec.NONE or header.record_count == 0:
        return view, start, end
    with add_offset_to_error(header):
        if header.magic < MAGIC_V2:
            start, end = wrapper_value(data, header)
        payload = decompress(
            header.codec,
            view[start:end],
            limit_bytes=rules.decompressed_max_bytes,
            magic=header.magic,
            exact=True,
        )
    return payload, 0, len(payload)


def check_control_records(header: BatchHeader, payload: Payload) -> None:
    """Raise InvalidRecordError if a record of a control batch has an unknown type."""
    with add_offset_to_error(header):
        for record in decode_records(payload[0], header, payload[1], payload[2]):
            control = decode_control(record.key, record.value)
            if control.type is ControlType.UNKNOWN:
                raise InvalidRecordError(f"a control record of unknown type {control.type_id}")


@contextmanager
def add_offset_to_error(header: BatchHeader) -> Iterator[None]:
    """
    Add the batch to an error inside, and make it an InvalidRecordError.

    The CRC of the batch was correct, so its writer is at fault, not the transport.
    """
    try:
        yield
    except UnsupportedCodecError as error:
        raise UnsupportedCodecError(
            f"{_where(header)}: {error}", position=header.position, base_offset=header.base_offset
        ) from error
    except (CorruptRecordError, InvalidRecordError) as error:
        raise refusal(header, str(error)) from error


def refusal(header: BatchHeader, why: str) -> InvalidRecordError:
    """Return the error for an invalid batch."""
    return InvalidRecordError(
        f"{_where(header)}: {why}", position=header.position, base_offset=header.base_offset
    )


def _where(header: BatchHeader) -> str:
    return f"the batch at position {header.position}"
