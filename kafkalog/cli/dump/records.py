"""The records of one batch, control records decoded.

A batch whose CRC is good can still hold records that cannot be read: a codec stream that ends
early, a record that runs past its end, a decompressed size above the limit. That is one DamageFact
for the batch, and the dump continues with the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kafkalog.errors import CorruptRecordError, InvalidRecordError
from kafkalog.layout import LOG_OVERHEAD, MAGIC_V2, MESSAGE_START
from kafkalog.records.batch_view import BatchView
from kafkalog.records.control import decode_control

from .facts import BatchFact, DamageFact, Fact, RecordFact

__all__ = ["batch_records"]

# A batch on disk is at most a few MB in practice; a larger decompressed size is an attack.
MAX_DECOMPRESSED_BYTES: Final = 1 << 30


def batch_records(data: memoryview, batch: BatchFact) -> Iterator[Fact]:
    """Yield a fact for each record of the batch that `data` holds."""
    try:
        view = BatchView(data, position=batch.position)
        records = view.records(limit_bytes=MAX_DECOMPRESSED_BYTES)
    except (CorruptRecordError, InvalidRecordError) as error:
        yield _unreadable(batch, type(error).__name__, str(error))
        return
    crcs: Iterable[int | None] = _message_crcs(view)
    if batch.magic >= MAGIC_V2:
        crcs = [None] * len(records)
    for record, crc in zip(records, crcs, strict=True):
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
            crc=crc,
        )


def _message_crcs(view: BatchView) -> Iterator[int]:
    """Yield the CRC-32 of each message in an outer entry that has been decoded."""
    payload, position, end = view.payload(MAX_DECOMPRESSED_BYTES)
    data = memoryview(payload)
    while position < end:
        _offset, size, crc = MESSAGE_START.unpack_from(data, position)
        yield crc
        position += LOG_OVERHEAD + size


def _unreadable(batch: BatchFact, reason: str, meaning: str) -> DamageFact:
    return DamageFact(
        batch.position,
        batch.size_bytes,
        reason,
        meaning,
        # A wrapper of an old format does not contain its base offset.
        first_offset=None if batch.is_wrapper else batch.base_offset,
        next_offset=batch.last_offset + 1,
    )
