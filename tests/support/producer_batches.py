"""Batches of producers and transaction markers as bytes, for tests of producer state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kafkalog._core.assign_offsets import assign_offsets
from kafkalog._core.builder import BatchBuilder
from kafkalog.records.control import encode_marker

__all__ = ["Produced", "encoded"]


@dataclass(frozen=True)
class Produced:
    """
    A batch to be: data of `count` records, or with `ends` the marker of a transaction.

    ends: "commit", "abort" or "bad" (a marker whose value is cut off).
    """

    producer_id: int
    epoch: int = 0
    sequence: int = 0
    count: int = 1
    transactional: bool = False
    ends: str | None = None
    coordinator_epoch: int = 0
    timestamp_ms: int = 1000


def encoded(batches: Iterable[Produced], base_offset: int = 0) -> bytes:
    """Return batches back to back, with consecutive offsets."""
    parts = []
    offset = base_offset
    for batch in batches:
        data = _encoded(batch)
        assign_offsets(data, base_offset=offset)
        offset += 1 if batch.ends else batch.count
        parts.append(bytes(data))
    return b"".join(parts)


def _encoded(batch: Produced) -> bytearray:
    if batch.ends in ("commit", "abort"):
        return bytearray(
            encode_marker(
                batch.producer_id,
                batch.epoch,
                batch.coordinator_epoch,
                batch.timestamp_ms,
                is_abort=batch.ends == "abort",
            )
        )
    builder = BatchBuilder()
    control = batch.ends is not None
    for _ in range(batch.count):
        key, value = (b"\0\0\0\1", b"\0\0\0") if control else (None, b"")
        builder.append(key, value, batch.timestamp_ms)
    return bytearray(
        builder.finish(
            producer_id=batch.producer_id,
            producer_epoch=batch.epoch,
            base_sequence=-1 if control or batch.producer_id < 0 else batch.sequence,
            transactional=batch.transactional or control,
            control=control,
        )
    )
