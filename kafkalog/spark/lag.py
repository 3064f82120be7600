"""Lag of a stream: the distance to the ends of its logs, by the offsets in its progress.

Thread-safety: immutable plain data, and pure functions. Nothing here imports pyspark.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kafkalog.spark.options import TOPIC_IDS, ReadOptions
from kafkalog.spark.plan.size_estimator import SizeEstimator
from kafkalog.spark.plan.snapshot import QuerySnapshot
from kafkalog.spark.stream_offsets import NO_OFFSET, OffsetJson, PartitionOffsets

__all__ = ["StreamLag", "lag_between", "unread_bytes"]


@dataclass(frozen=True, slots=True)
class StreamLag:
    """
    Lag of the partitions of a stream, in offsets.

    Attributes:
        partition_count: number of partitions.
        min_offsets, max_offsets, avg_offsets: lag of one of them.
        total_offsets: all of them together.
        estimated_bytes: estimate of the lag in bytes; None if it was not measured.
    """

    partition_count: int
    min_offsets: int
    max_offsets: int
    avg_offsets: float
    total_offsets: int
    estimated_bytes: int | None = None


def lag_between(read: OffsetJson | str, newest: OffsetJson | str) -> StreamLag:
    """
    Return the lag of a stream.

    Args:
        read: `endOffset` of a source in the progress, parsed or not.
        newest: its `latestOffset`.
    """
    done, ends = _offsets(read), _offsets(newest)
    # A partition that was not read yet counts whole: the offsets alone do not show its start.
    lags = [max(end - done.get(name, 0), 0) for name, end in ends.items()]
    if not lags:
        return StreamLag(0, 0, 0, 0.0, 0)
    total = sum(lags)
    return StreamLag(len(lags), min(lags), max(lags), total / len(lags), total)


def unread_bytes(options: ReadOptions, read: OffsetJson | str) -> int:
    """
    Return an estimate of the unread bytes of a stream, by the sizes of segments.

    Args:
        options: of the stream.
        read: offsets read so far.
    """
    snapshot = QuerySnapshot.take(options)
    starts, _foreign = PartitionOffsets(snapshot.names()).from_json(_parsed(read))
    starts = np.where(starts == NO_OFFSET, snapshot.log_starts, starts)
    starts = np.maximum(starts, snapshot.log_starts)
    ends = np.maximum(starts, snapshot.visible_ends)
    return int(SizeEstimator(snapshot).bytes_between(starts, ends).sum())


def _parsed(offsets: OffsetJson | str) -> OffsetJson:
    if not isinstance(offsets, str):
        return offsets
    parsed: Any = json.loads(offsets)
    return parsed if isinstance(parsed, dict) else {}


def _offsets(offsets: OffsetJson | str) -> Mapping[tuple[str, str], int]:
    return {
        (topic, number): offset
        for topic, of_topic in _parsed(offsets).items()
        if topic != TOPIC_IDS
        for number, offset in of_topic.items()
    }
