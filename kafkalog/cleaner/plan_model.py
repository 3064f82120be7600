"""Model of a compaction plan: bounds with reasons, segments and counts.

Thread-safety: immutable values and pure functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from kafkalog.cleaner.cleaning_result import CleaningStatistics
from kafkalog.cleaner.log_to_clean import LogToClean
from kafkalog.cleaner.selection import CheckpointReset, CleanableRange
from kafkalog.model import TopicPartition

__all__ = [
    "BoundKind",
    "CompactionBound",
    "CompactionPlan",
    "SegmentPlan",
    "SegmentState",
    "WaitingRecords",
    "begin_of",
    "bounds_of",
    "due_ms_of",
    "moment_text",
    "state_of",
]

_NEVER_MS: Final = 2**62


class BoundKind(StrEnum):
    """Reasons for the first or the last offset of a cleaning."""

    LOG_START = "log start"
    CHECKPOINT = "checkpoint"
    CHECKPOINT_RESET = "checkpoint reset"
    ACTIVE_SEGMENT = "active segment"
    LAST_STABLE_OFFSET = "last stable offset"
    MIN_LAG = "min lag"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class CompactionBound:
    """
    First or last offset of a cleaning, with the reason.

    Attributes:
        kind: the reason.
        offset: the offset.
        text: the reason in a sentence.
        until_ms: time at which the bound ends by itself, if known.
        producer_id: producer of the transaction that holds the last stable offset.
    """

    kind: BoundKind
    offset: int
    text: str
    until_ms: int | None = None
    producer_id: int | None = None


class SegmentState(StrEnum):
    """
    State of a segment for a cleaning.

    A CLEAN segment was cleaned before, and is rewritten with the DIRTY ones; a HELD segment must
    wait; appends go to the ACTIVE segment.
    """

    CLEAN = "clean"
    DIRTY = "dirty"
    HELD = "held"
    ACTIVE = "active"


@dataclass(frozen=True, slots=True)
class SegmentPlan:
    """
    A segment, or several that become one, before and after.

    Attributes:
        base_offset: base offset of the segment, or of the first one.
        state: see `SegmentState`; for a group that of its last segment.
        group: number of its group, from 0; None if the segment is not rewritten.
        bytes_before, records_before: current sizes; records are None if it was not read.
        bytes_after, records_after: retained sizes.
    """

    base_offset: int
    state: SegmentState
    group: int | None
    bytes_before: int
    bytes_after: int
    records_before: int | None = None
    records_after: int | None = None


@dataclass(frozen=True, slots=True)
class WaitingRecords:
    """
    Tombstones, or markers of transactions, that stay for a time.

    Attributes:
        kind: "tombstones" or "markers" of format v2; "old tombstones" of v0 and v1.
        count: number of records.
        until_ms: a cleaning at this time or later removes them. Old tombstones are removed by a
            cleaning that finds a clean segment written at this time or later.
    """

    kind: str
    count: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """
    Effect of a cleaning.

    Attributes:
        topic_partition: name of the log.
        now_ms: the time of the plan.
        log_start_offset, log_end_offset: the range of the log.
        begins: the first dirty offset, with the reason.
        ends: bounds of the cleaning, the lowest first. The cleaning ends at the base of the
            segment that holds the first of them, or, for MEMORY, at its exact offset.
        end_offset: the end of the cleaning.
        clean_bytes, cleanable_bytes: sizes from which the dirty ratio is computed.
        dirty_ratio, min_dirty_ratio: the ratio, and the limit that it must exceed.
        must_be_cleaned: whether `max.compaction.lag.ms` requires a cleaning.
        is_due: whether a cleaner thread may select the log.
        due_ms: latest time at which it is due, with any ratio; None for never.
        statistics: counts of removed records by reason, and of retained records.
        segments: all segments of the log; `groups`: the segments after the cleaning.
        keys: different keys of the dirty part; an estimate if `keys_are_estimate`.
        memory_bytes: size of the offset map; `bytes_for_one_pass`: size for all these keys.
        passes: above 1 if the keys of the first dirty segment do not fit the map. The segment is
            then cleaned in several passes, and its bytes after are an estimate.
        waiting: tombstones and markers that stay after the cleaning, with their end.
        duration_ms: estimate of the duration: both passes as measured here, without the writes;
            or the time that the throttle allows, if that is longer.
    """

    topic_partition: TopicPartition
    now_ms: int
    log_start_offset: int
    log_end_offset: int
    begins: CompactionBound
    ends: tuple[CompactionBound, ...]
    end_offset: int
    clean_bytes: int
    cleanable_bytes: int
    dirty_ratio: float
    min_dirty_ratio: float
    must_be_cleaned: bool
    is_due: bool
    due_ms: int | None
    statistics: CleaningStatistics
    segments: tuple[SegmentPlan, ...]
    groups: tuple[SegmentPlan, ...]
    keys: int
    keys_are_estimate: bool
    memory_bytes: int
    bytes_for_one_pass: int
    passes: int
    waiting: tuple[WaitingRecords, ...]
    duration_ms: int

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        return asdict(self) | {"topic_partition": str(self.topic_partition)}


def begin_of(target: LogToClean, span: CleanableRange) -> CompactionBound:
    """Return the first dirty offset, with the reason."""
    offset = span.first_dirty
    if span.reset is not None:
        why = (
            "below the log start"
            if span.reset is CheckpointReset.BELOW_START
            else ("beyond the log end")
        )
        text = f"the checkpoint is {target.checkpoint}, which is {why}: everything is cleaned again"
        return CompactionBound(BoundKind.CHECKPOINT_RESET, offset, text)
    if target.checkpoint is None:
        return CompactionBound(BoundKind.LOG_START, offset, "it was never cleaned")
    return CompactionBound(BoundKind.CHECKPOINT, offset, "the last cleaning came to here")


def bounds_of(target: LogToClean, span: CleanableRange) -> list[CompactionBound]:
    """Return the bounds of a cleaning, the lowest first."""
    bounds = list(_bounds(target, span))
    bounds.sort(key=lambda bound: bound.offset)
    return bounds


def _bounds(target: LogToClean, span: CleanableRange) -> Iterator[CompactionBound]:
    facts = target.facts
    if facts.last_stable_offset < facts.log_end_offset:
        yield _stable_bound(target)
    lag_ms = target.config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in facts.sealed_from(span.first_dirty):
            if segment.largest_timestamp_ms > target.now_ms - lag_ms:
                yield CompactionBound(
                    BoundKind.MIN_LAG,
                    segment.base_offset,
                    f"segment {segment.base_offset} has records younger than"
                    f" min.compaction.lag.ms = {lag_ms}",
                    until_ms=segment.largest_timestamp_ms + lag_ms,
                )
                break
    yield CompactionBound(
        BoundKind.ACTIVE_SEGMENT,
        facts.active_base_offset,
        "the active segment is never cleaned",
    )


def _stable_bound(target: LogToClean) -> CompactionBound:
    stable = target.facts.last_stable_offset
    holder = next((each for each in target.open_transactions if each.first_offset <= stable), None)
    if holder is None:
        text = f"records from offset {stable} on are not below the high watermark yet"
        return CompactionBound(BoundKind.LAST_STABLE_OFFSET, stable, text)
    return CompactionBound(
        BoundKind.LAST_STABLE_OFFSET,
        stable,
        f"producer {holder.producer_id} has had a transaction open since offset"
        f" {holder.first_offset}",
        producer_id=holder.producer_id,
    )


def due_ms_of(target: LogToClean, span: CleanableRange) -> int | None:
    """Return the time at which `max.compaction.lag.ms` requires a cleaning; None for never."""
    limit_ms = target.config.max_compaction_lag_ms
    times = [
        segment.first_timestamp_ms
        for segment in target.facts.sealed_from(span.first_dirty)
        if segment.first_timestamp_ms > 0
    ]
    # Plus 1: a record that is exactly as old as allowed may stay.
    return min(times) + limit_ms + 1 if times and limit_ms < _NEVER_MS else None


def state_of(target: LogToClean, slot: int, first_dirty: int, end_offset: int) -> SegmentState:
    """Return the state of a segment for a cleaning between two offsets."""
    segments = target.facts.segments
    if slot + 1 == len(segments):
        return SegmentState.ACTIVE
    if segments[slot].base_offset >= end_offset:
        return SegmentState.HELD
    return (
        SegmentState.CLEAN if segments[slot + 1].base_offset <= first_dirty else SegmentState.DIRTY
    )


def moment_text(time_ms: int) -> str:
    """Return a time as text; as a number if it is outside the calendar."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"
