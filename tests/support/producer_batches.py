"""Batches of producers and transaction markers as bytes, for tests of producer state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kafkalog._core.builder import BatchBuilder
from kafkalog._core.stamp import assign_offsets

__all__ = ["Produced", "encoded", "marker_value"]

ABORT_KEY, COMMIT_KEY = b"\0\0\0\0", b"\0\0\0\1"


@dataclass(frozen=True)
class Produced:
    """
    A batch to be: data of `count` records, or with `ends` the marker of a transaction.

    ends: "commit", "abort", "none" (a control batch without a record) or "bad" (a marker cut off).
    """

    producer_id: int
    epoch: int = 0
    sequence: int = 0
    count: int = 1
    transactional: bool = False
    ends: str | None = None
    coordinator_epoch: int = 0
    timestamp_ms: int = 1000


def marker_value(coordinator_epoch: int) -> bytes:
    """Return the value of the record that ends a transaction."""
    return b"\0\0" + coordinator_epoch.to_bytes(4, "big", signed=True)


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
    builder = BatchBuilder()
    control = batch.ends is not None
    if control:
        value = marker_value(batch.coordinator_epoch)
        key = ABORT_KEY if batch.ends == "abort" else COMMIT_KEY
        builder.append(key, value[:3] if batch.ends == "bad" else value, batch.timestamp_ms)
    else:
        for _ in range(batch.count):
            builder.append(None, b"", batch.timestamp_ms)
    return bytearray(
        builder.finish(
            producer_id=batch.producer_id,
            producer_epoch=batch.epoch,
            base_sequence=-1 if control or batch.producer_id < 0 else batch.sequence,
            transactional=batch.transactional or control,
            control=control,
        )
    )
