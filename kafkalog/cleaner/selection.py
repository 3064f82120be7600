"""Selection of the range of a log that may be cleaned, and of the next log.

LogCleanerManager and LogToClean in Kafka, as functions of immutable facts: no log is touched, no
checkpoint is read or written. The caller reads the facts of logs under a lock, writes the corrected
checkpoint of a range that was reset, and marks a log as in progress.

A log is divided by offsets: records below the first dirty offset were cleaned before; records from
there to the first uncleanable offset can be cleaned; later records must wait.

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
    """Reasons for which a cleaner checkpoint could not be used."""

    BELOW_START = "it is below the start of the log: records were deleted"
    BEYOND_END = "it is beyond the end of the log: the log was truncated or replaced"


@dataclass(frozen=True, slots=True)
class CleanableRange:
    """
    Range of offsets that may be cleaned.

    Attributes:
        first_dirty: start of the range; records below were cleaned before.
        first_uncleanable: end of the range.
        reset: reason for which the checkpoint must be replaced by `first_dirty`; None if it was
            valid.
    """

    first_dirty: int
    first_uncleanable: int
    reset: CheckpointReset | None = None


def cleanable_range(
    log: LogCleaningFacts, *, checkpoint: int | None, now_ms: int, min_lag_ms: int
) -> CleanableRange:
    """
    Return the cleanable range of a log.

    Args:
        log: facts of the log.
        checkpoint: first dirty offset by the checkpoint file; None if it has no entry.
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
    Return the time since which a log is overdue for a cleaning; 0 if it is not overdue.

    Args:
        log: facts of the log.
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
        name: the caller's name of the log.
        range: the cleanable range.
        clean_bytes, cleanable_bytes: size of the part that was cleaned before, and of the cleanable
            part. A segment in which the last cleaning ended counts in both.
        delay_ms: time since which the log is overdue.
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
        """Share of the cleanable bytes in the bytes that would be rewritten; 0 for an empty log."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def must_be_cleaned(self) -> bool:
        """Return whether records are older than `max.compaction.lag.ms` allows."""
        return self.delay_ms > 0 and self.cleanable_bytes > 0

    @property
    def is_due(self) -> bool:
        """Return whether the log may be selected. A ratio equal to the limit is not enough."""
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
    Return a log as a candidate for a cleaning.

    Args:
        name: kept in the candidate.
        log: its facts.
        span: from `cleanable_range`.
        now_ms, max_lag_ms: as for `compaction_delay_ms`.
        min_dirty_ratio: `min.cleanable.dirty.ratio`.
    """
    sealed = log.sealed_from(span.first_uncleanable)
    # Only whole segments count: the segment of the first uncleanable offset must wait.
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
    Return the dirtiest log that is due; None if no log is due.

    As in Kafka the ratio alone decides among logs that are due: a log that must be cleaned comes
    after a dirtier log.
    """
    due = [candidate for candidate in candidates if candidate.is_due]
    return max(due, key=_dirty_ratio, default=None)


def _dirty_ratio(candidate: CleaningCandidate) -> float:
    return candidate.dirty_ratio
