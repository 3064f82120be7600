"""Batches of records that have waited for their append."""

from __future__ import annotations

from typing import Final

from kafkalog._core.memory_records import MemoryRecords
from kafkalog._core.run_builder import SpareBuilder, pack_batch

__all__ = ["batch_of"]

_SPARE: Final = SpareBuilder()


def batch_of(
    keys: list[bytes | None],
    values: list[bytes | None],
    timestamps: list[int],
    start: int,
    size_limit: int,
) -> MemoryRecords:
    """
    Return one batch of format v2, not compressed and without a producer.

    Args:
        keys, values: bytes or None each.
        timestamps: of each record, in ms.
        start: slot of the first record; the batch has as many as it has space for.
        size_limit: largest size of the batch; a record that is larger has it alone.
    """
    return pack_batch(_SPARE, keys, values, timestamps, start, size_limit)
