"""The records of one batch, control records decoded.

A batch whose CRC is good can still hold records that cannot be read: a codec stream that breaks
off, a record that runs past its end, a decompressed size beyond all measure. That is one DamageFact
for the batch, and the dump goes on with the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kafkalog._core.header import parse_header
from kafkalog._core.record import Record, decode_records
from kafkalog.errors import CorruptRecordError, InvalidRecordError
from kafkalog.records.codecs import Codec, decompress
from kafkalog.records.control import decode_control

from .facts import BatchFact, DamageFact, Fact, RecordFact

__all__ = ["batch_records"]

# A batch on disk is at most a few MB in practice; what unpacks to more is a bomb.
MAX_DECOMPRESSED_BYTES: Final = 1 << 30
_HEADER_SIZE: Final = 61


def batch_records(data: memoryview, batch: BatchFact) -> Iterator[Fact]:
    """Yield a fact for each record of the batch that `data` holds."""
    try:
        records = decoded(data)
    except (CorruptRecordError, InvalidRecordError) as error:
        yield _unreadable(batch, type(error).__name__, str(error))
        return
    for record in records:
        control = None
        if batch.is_control:
            try:
                control = decode_control(record.key, record.value)
            except CorruptRecordError as error:
                yield _unreadable(batch, "CONTROL_RECORD", str(error))
        yield RecordFact(
            offset=record.offset,
            timestamp_ms=record.timestamp_ms,
            timestamp_type=record.timestamp_type,
            sequence=batch.sequence_of(record.offset),
            key=record.key,
            value=record.value,
            headers=record.headers,
            control=control,
        )


def decoded(data: memoryview) -> list[Record]:
    header = parse_header(data)
    if header.codec == Codec.NONE:
        return decode_records(data, header, _HEADER_SIZE, len(data))
    payload = decompress(header.codec, data[_HEADER_SIZE:], limit_bytes=MAX_DECOMPRESSED_BYTES)
    return decode_records(payload, header, 0, len(payload))


def _unreadable(batch: BatchFact, reason: str, meaning: str) -> DamageFact:
    return DamageFact(
        batch.position,
        batch.size_bytes,
        reason,
        meaning,
        first_offset=batch.base_offset,
        next_offset=batch.last_offset + 1,
    )
