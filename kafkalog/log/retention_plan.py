"""Plan of a retention pass: the segments that policies delete, and why the others stay.

For every policy: whole segments are deleted, the oldest first, none is skipped; no segment that
reaches above the limit is deleted; the active segment only if it has bytes, after a new one has
begun. Policies run in sequence, each on the segments that those before it leave.

Thread-safety: pure functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kafkalog.log.retention import (
    LogFacts,
    RetentionDecision,
    RetentionPolicy,
    RetentionReason,
    SegmentFacts,
    explain,
    name_of,
)

__all__ = [
    "RetentionDebt",
    "RetentionPlan",
    "SegmentExplanation",
    "explain_retention",
    "plan_retention",
]


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """
    Result of the policies.

    Attributes:
        leaving: the segments to delete, the oldest first, each with the reason.
        log_start_offset: log start offset after the deletion.
        rolls: whether the active segment is among them: another must begin after it first.
    """

    leaving: tuple[tuple[SegmentFacts, RetentionReason], ...]
    log_start_offset: int
    rolls: bool


@dataclass(frozen=True, slots=True)
class RetentionDebt:
    """
    Segments that the next pass deletes.

    Attributes:
        segment_count, size_bytes: their number and size.
        overdue_ms: time since `retention.ms` of the oldest was over; 0 if another policy deletes
            them, which names no time.
    """

    segment_count: int = 0
    size_bytes: int = 0
    overdue_ms: int = 0


@dataclass(frozen=True, slots=True)
class SegmentExplanation:
    """
    Reasons for which a segment was not deleted.

    Attributes:
        segment: the facts.
        is_due: whether the next pass deletes it.
        reasons: reason of each policy, and of the limits that apply to all. For a segment that is
            due, the reason of its deletion.
    """

    segment: SegmentFacts
    is_due: bool
    reasons: tuple[RetentionReason, ...]

    @property
    def due_ms(self) -> int | None:
        """Earliest known time at which a policy deletes it; None if no time is known."""
        return min((each.due_ms for each in self.reasons if each.due_ms is not None), default=None)


@dataclass(frozen=True, slots=True)
class _Step:
    """Input of a policy, and how many of the oldest segments it deletes."""

    policy: RetentionPolicy
    log: LogFacts
    count: int


def plan_retention(log: LogFacts, policies: Sequence[RetentionPolicy]) -> RetentionPlan:
    """
    Return what the policies delete.

    Raises:
        TypeError: a policy returned something else than a decision.
        Exception: an exception of a policy.
    """
    leaving = [
        (segment, explain(step.policy, step.log, segment))
        for step in _steps(log, policies)
        for segment in step.log.segments[: step.count]
    ]
    start = log.log_start_offset
    if leaving:
        start = max(start, leaving[-1][0].end_offset)
    return RetentionPlan(tuple(leaving), start, rolls=len(leaving) == len(log.segments))


def explain_retention(
    log: LogFacts, policies: Sequence[RetentionPolicy]
) -> tuple[SegmentExplanation, ...]:
    """Return why each segment was not deleted, the oldest first; raises as `plan_retention`."""
    steps = list(_steps(log, policies))
    explained = [
        SegmentExplanation(segment, True, (explain(step.policy, step.log, segment),))
        for step in steps
        for segment in step.log.segments[: step.count]
    ]
    kept = log.segments[len(explained) :]
    for segment in kept:
        # Each policy with its input: after the deletions of those before it only.
        reasons = [explain(step.policy, step.log, segment) for step in steps]
        reasons = [*_held(log, segment, kept[0]), *reasons]
        explained.append(SegmentExplanation(segment, False, tuple(reasons)))
    return tuple(explained)


def _steps(log: LogFacts, policies: Sequence[RetentionPolicy]) -> Iterator[_Step]:
    """Run the policies in sequence, each on the remaining segments."""
    for policy in policies:
        if not log.segments:
            return
        decision = policy(log)
        if not isinstance(decision, RetentionDecision):
            raise TypeError(
                f"retention policy {name_of(policy)} must return a RetentionDecision, "
                f"got {decision!r}"
            )
        count = _count(log, decision)
        yield _Step(policy, log, count)
        if count:
            start = max(log.log_start_offset, log.segments[count - 1].end_offset)
            log = replace(log, segments=log.segments[count:], log_start_offset=start)


def _count(log: LogFacts, decision: RetentionDecision) -> int:
    """Return how many of the oldest segments a decision deletes."""
    bound = min(decision.delete_before, log.limit_offset)
    for number, segment in enumerate(log.segments):
        if segment.end_offset > bound or (segment.is_active and not segment.size_bytes):
            return number
    return len(log.segments)


def _held(log: LogFacts, segment: SegmentFacts, oldest: SegmentFacts) -> Iterator[RetentionReason]:
    """Yield the reasons that keep a segment with every policy."""
    if segment.is_active and not segment.size_bytes:
        yield RetentionReason("active", "the active segment, and nothing is in it")
    if segment.end_offset > log.limit_offset:
        yield RetentionReason(
            "limit",
            f"reaches to offset {segment.end_offset - 1}, and only segments below "
            f"{log.limit_offset} may go",
        )
    if segment is not oldest:
        yield RetentionReason(
            "order", f"segment {oldest.base_offset} before it stays, and only the oldest go"
        )
