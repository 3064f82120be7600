"""Batches of keyed records as producers send them, and transaction markers, as bytes."""

from __future__ import annotations

from collections.abc import Sequence

from kafkalog import Codec
from kafkalog._core.builder import BatchBuilder
from kafkalog.records.codecs import compress
from kafkalog.records.control import encode_marker

__all__ = ["Fields", "keyed_batch", "marker"]

# Key, and value.
Fields = tuple[bytes | None, bytes | None]


def keyed_batch(
    records: Sequence[Fields],
    timestamp_ms: int,
    *,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    epoch: int = 0,
    sequence: int = -1,
    transactional: bool = False,
) -> bytes:
    """Return a batch, with offsets from 0 on."""
    builder = BatchBuilder()
    for key, value in records:
        builder.append(key, value, timestamp_ms)
    payload = compress(codec, builder.payload()) if codec else None
    return bytes(
        builder.finish(
            codec=int(codec),
            payload=payload,
            producer_id=producer_id,
            producer_epoch=epoch if producer_id >= 0 else -1,
            base_sequence=sequence if producer_id >= 0 else -1,
            transactional=transactional,
        )
    )


def marker(producer_id: int, epoch: int, timestamp_ms: int, *, abort: bool) -> bytes:
    """Return the marker that ends a transaction."""
    return bytes(encode_marker(producer_id, epoch, 0, timestamp_ms, is_abort=abort))
