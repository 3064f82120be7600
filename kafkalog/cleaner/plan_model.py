"""What a plan of a cleaning says, and why it begins and ends where it does.

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
    """Why a cleaning begins or ends where it does."""

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
    A bound of what is cleaned.

    Attributes:
        kind: what it comes of.
        offset: where it lies.
        text: the same in words.
        until_ms: when it goes by itself, where that is known.
        producer_id: whose transaction holds the last stable offset.
    """

    kind: BoundKind
    offset: int
    text: str
    until_ms: int | None = None
    producer_id: int | None = None


class SegmentState(StrEnum):
    """
    What a cleaning makes of a segment.

    CLEAN was cleaned before, and is rewritten with what is DIRTY; HELD must wait; ACTIVE takes
    appends.
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
        base_offset: its name; that of the first.
        state: see `SegmentState`; of a group that of its last segment.
        group: number of the group that it is in, from 0; None where it is not touched.
        bytes_before, records_before: as it is; records None where it was not read.
        bytes_after, records_after: what stays of it.
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
        count: how many.
        until_ms: a cleaning from then on removes them. Old tombstones go with one that finds a
            clean segment which was written from then on.
    """

    kind: str
    count: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """
    What a cleaning would do.

    Attributes:
        topic_partition: the log's name.
        now_ms: the time for which this is true.
        log_start_offset, log_end_offset: the log's ends.
        begins: the first dirty offset, and why it is there.
        ends: what bounds the cleaning, the lowest first: it goes up to the base of the segment
            that this one lies in, or, where that is MEMORY, to the very offset.
        end_offset: where that is.
        clean_bytes, cleanable_bytes: of which the dirty ratio is made.
        dirty_ratio, min_dirty_ratio: it, and the limit that it must exceed.
        must_be_cleaned: whether `max.compaction.lag.ms` asks for it.
        is_due: whether the background would choose it.
        due_ms: when it is due at the latest, whatever the ratio; None for never.
        statistics: what goes, by reason, and what stays.
        segments: all of the log; `groups`: those that are rewritten, as they will be.
        keys: different keys of the dirty part; about so many if `keys_are_estimate`.
        memory_bytes: what the map may take; `bytes_for_one_pass`: what all these keys would.
        passes: above 1 where not even the keys of the first dirty segment fit: it is cleaned in so
            many then, and its bytes after are not measured but about so.
        waiting: tombstones and markers that stay after it, and until when.
        duration_ms: about how long it takes: both passes as they were measured here, without the
            writing; or what the throttle makes of it.
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
        """Return it as plain values."""
        return asdict(self) | {"topic_partition": str(self.topic_partition)}


def begin_of(target: LogToClean, span: CleanableRange) -> CompactionBound:
    """Return where a cleaning begins, and why."""
    offset = span.first_dirty
    if span.reset is not None:
        said = target.checkpoint
        why = (
            "below the log start"
            if span.reset is CheckpointReset.BELOW_START
            else ("beyond the log end")
        )
        text = f"the checkpoint says {said}, which is {why}: all is cleaned anew"
        return CompactionBound(BoundKind.CHECKPOINT_RESET, offset, text)
    if target.checkpoint is None:
        return CompactionBound(BoundKind.LOG_START, offset, "it was never cleaned")
    return CompactionBound(BoundKind.CHECKPOINT, offset, "the last cleaning came to here")


def bounds_of(target: LogToClean, span: CleanableRange) -> list[CompactionBound]:
    """Return what bounds a cleaning, the lowest first."""
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
        text = f"what lies above offset {stable} is not below the high watermark yet"
        return CompactionBound(BoundKind.LAST_STABLE_OFFSET, stable, text)
    return CompactionBound(
        BoundKind.LAST_STABLE_OFFSET,
        stable,
        f"producer {holder.producer_id} has had a transaction open since offset"
        f" {holder.first_offset}",
        producer_id=holder.producer_id,
    )


def due_ms_of(target: LogToClean, span: CleanableRange) -> int | None:
    """Return when `max.compaction.lag.ms` asks for a cleaning, None where it never does."""
    limit_ms = target.config.max_compaction_lag_ms
    times = [
        segment.first_timestamp_ms
        for segment in target.facts.sealed_from(span.first_dirty)
        if segment.first_timestamp_ms > 0
    ]
    # One more: what is exactly as old as allowed may stay.
    return min(times) + limit_ms + 1 if times and limit_ms < _NEVER_MS else None


def state_of(target: LogToClean, slot: int, first_dirty: int, end_offset: int) -> SegmentState:
    """Return what a cleaning between two offsets makes of a segment."""
    segments = target.facts.segments
    if slot + 1 == len(segments):
        return SegmentState.ACTIVE
    if segments[slot].base_offset >= end_offset:
        return SegmentState.HELD
    return (
        SegmentState.CLEAN if segments[slot + 1].base_offset <= first_dirty else SegmentState.DIRTY
    )


def moment_text(time_ms: int) -> str:
    """Return a time as people write it; as a number where no calendar has it."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"
