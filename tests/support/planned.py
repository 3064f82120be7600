"""Made-up snapshots of logs, for tests and measurements of planning."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kafkalog.spark.plan.listing import FoundPartition
from kafkalog.spark.plan.snapshot import PartitionFacts, QuerySnapshot

__all__ = ["regular_snapshot", "snapshot_of"]


def snapshot_of(
    logs: Sequence[tuple[str, int, int, int]],
    *,
    visible_ends: Sequence[int] | None = None,
    segments: Sequence[Sequence[tuple[int, int]]] | None = None,
    left_out: Sequence[tuple[str, int]] = (),
) -> QuerySnapshot:
    """
    Return a snapshot of partitions.

    Args:
        logs: (topic, partition, log start, log end) of each.
        visible_ends: how far a reader may go; the log ends if None.
        segments: (base offset, size) of each segment of each; one of a byte an offset if None.
        left_out: as of the snapshot.
    """
    found, looked = [], []
    for row, (topic, partition, start, end) in enumerate(logs):
        found.append(FoundPartition(topic, partition, f"/data/{topic}-{partition}", "/data"))
        visible = end if visible_ends is None else visible_ends[row]
        rows = [(start, end - start)] if segments is None else list(segments[row])
        bases, sizes = tuple(base for base, _ in rows), tuple(size for _, size in rows)
        looked.append(PartitionFacts(start, end, visible, bases, sizes))
    return QuerySnapshot.of(found, looked, left_out=frozenset(left_out))


def regular_snapshot(partitions: int, segments: int, size_bytes: int) -> QuerySnapshot:
    """Return a snapshot of partitions that all have as many segments, of a thousand offsets."""
    each = segments // partitions
    ends = np.full(partitions, each * 1000, np.int64)
    return QuerySnapshot(
        directories=tuple(f"/data/t-{number}" for number in range(partitions)),
        topics=("t",) * partitions,
        partitions=np.arange(partitions, dtype=np.int32),
        log_starts=np.zeros(partitions, np.int64),
        log_ends=ends,
        visible_ends=ends,
        first_rows=np.arange(partitions + 1, dtype=np.int64) * each,
        base_offsets=np.tile(np.arange(each, dtype=np.int64) * 1000, partitions),
        sizes=np.full(segments, size_bytes, np.int64),
    )
