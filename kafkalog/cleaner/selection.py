"""Which part of a log may be cleaned, how urgently, and which log is next.

LogCleanerManager and LogToClean in Kafka, as functions of immutable facts: no log is touched, no
checkpoint is read or written. Asking logs for their facts under a lock, writing the corrected
checkpoint of a range that was reset, and marking a log as in progress come on top.

A log is divided by offsets: what is below the first dirty offset was cleaned before; from there up
to the first uncleanable offset it can be; the rest must wait.

Thread-safety: pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from kafkalog.log.cleaning_facts import LogCleaningFacts, SegmentCleaningFacts

__all__ = [
    "CheckpointReset",
    "CleanableRange",
    "CleaningCandidate",
    "LogCleaningFacts",
    "SegmentCleaningFacts",
    "choose_log",
    "cleanable_range",
    "cleaning_candidate",
    "compaction_delay_ms",
]


class CheckpointReset(Enum):
    """Why a checkpoint of cleaning could not be used."""

    BELOW_START = "it is below the start of the log: records were deleted"
    BEYOND_END = "it is beyond the end of the log: the log was truncated or replaced"


@dataclass(frozen=True, slots=True)
class CleanableRange:
    """
    Which offsets may be cleaned.

    Attributes:
        first_dirty: where cleaning begins; all below was cleaned before.
        first_uncleanable: where it must end.
        reset: why the checkpoint must be written anew, with `first_dirty`; None if it was good.
    """

    first_dirty: int
    first_uncleanable: int
    reset: CheckpointReset | None = None


def cleanable_range(
    log: LogCleaningFacts, *, checkpoint: int | None, now_ms: int, min_lag_ms: int
) -> CleanableRange:
    """
    Return what may be cleaned of a log.

    Args:
        log: its facts.
        checkpoint: the first dirty offset that was written down; None for none.
        now_ms: the time.
        min_lag_ms: `min.compaction.lag.ms`: segments with a younger record must wait.
    """
    reset = None
    first_dirty = log.log_start_offset if checkpoint is None else checkpoint
    if first_dirty < log.log_start_offset:
        reset = CheckpointReset.BELOW_START
    elif first_dirty > log.log_end_offset:
        reset = CheckpointReset.BEYOND_END
    if reset is not None:
        first_dirty = log.log_start_offset
    bounds = [log.last_stable_offset, log.active_base_offset]
    if min_lag_ms > 0:
        young = (
            segment.base_offset
            for segment in log.sealed_from(first_dirty)
            if segment.largest_timestamp_ms > now_ms - min_lag_ms
        )
        bounds += [next(young, log.active_base_offset)]
    return CleanableRange(first_dirty, max(first_dirty, min(bounds)), reset)


def compaction_delay_ms(
    log: LogCleaningFacts, first_dirty: int, *, now_ms: int, max_lag_ms: int
) -> int:
    """
    Return for how long a log has had to be cleaned; 0 if it has not.

    Args:
        log: its facts.
        first_dirty: from `cleanable_range`.
        now_ms: the time.
        max_lag_ms: `max.compaction.lag.ms`.
    """
    times = [
        segment.first_timestamp_ms
        for segment in log.sealed_from(first_dirty)
        if segment.first_timestamp_ms > 0
    ]
    return max(0, now_ms - max(0, max_lag_ms) - min(times)) if times else 0


@dataclass(frozen=True, slots=True)
class CleaningCandidate:
    """
    A log that might be cleaned.

    Attributes:
        name: whatever the caller knows it by.
        range: what would be cleaned.
        clean_bytes, cleanable_bytes: size of what was cleaned before, and of what can be now. A
            segment in which cleaning ended last time counts in both.
        delay_ms: for how long it has had to be cleaned.
        min_dirty_ratio: `min.cleanable.dirty.ratio`, which it must exceed.
    """

    name: object
    range: CleanableRange
    clean_bytes: int
    cleanable_bytes: int
    delay_ms: int
    min_dirty_ratio: float

    @property
    def dirty_ratio(self) -> float:
        """Share of what can be cleaned in what would be rewritten; 0 for an empty log."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def must_be_cleaned(self) -> bool:
        """Whether its records have been there for longer than allowed."""
        return self.delay_ms > 0 and self.cleanable_bytes > 0

    @property
    def is_due(self) -> bool:
        """Whether it may be chosen. A ratio that equals the limit is not enough."""
        return self.must_be_cleaned or self.dirty_ratio > self.min_dirty_ratio


def cleaning_candidate(
    name: object,
    log: LogCleaningFacts,
    span: CleanableRange,
    *,
    now_ms: int,
    max_lag_ms: int,
    min_dirty_ratio: float,
) -> CleaningCandidate:
    """
    Weigh a log.

    Args:
        name: kept in the candidate.
        log: its facts.
        span: from `cleanable_range`.
        now_ms, max_lag_ms: as for `compaction_delay_ms`.
        min_dirty_ratio: `min.cleanable.dirty.ratio`.
    """
    sealed = log.sealed_from(span.first_uncleanable)
    # Whole segments are weighed: the one that holds the first uncleanable offset waits.
    boundary = sealed[0].base_offset if sealed else log.active_base_offset
    return CleaningCandidate(
        name=name,
        range=span,
        clean_bytes=log.bytes_between(-1, span.first_dirty),
        cleanable_bytes=log.bytes_between(min(span.first_dirty, boundary), boundary),
        delay_ms=compaction_delay_ms(log, span.first_dirty, now_ms=now_ms, max_lag_ms=max_lag_ms),
        min_dirty_ratio=min_dirty_ratio,
    )


def choose_log(candidates: Iterable[CleaningCandidate]) -> CleaningCandidate | None:
    """
    Return the dirtiest log that is due, None if none is.

    As in Kafka the ratio alone decides among those that are due: one that must be cleaned comes
    after one that is dirtier.
    """
    due = [candidate for candidate in candidates if candidate.is_due]
    return max(due, key=_dirty_ratio, default=None)


def _dirty_ratio(candidate: CleaningCandidate) -> float:
    return candidate.dirty_ratio
