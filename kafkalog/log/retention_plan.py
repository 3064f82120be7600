"""From what policies say to what is deleted, and why the rest stays.

Whatever a policy says: whole segments go, the oldest first, none is passed over; none goes that
reaches above the limit; the active segment goes only if it holds something, after a new one has
begun behind it. Policies run one behind the other, each on what those before it have left.

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

__all__ = ["RetentionPlan", "SegmentExplanation", "explain_retention", "plan_retention"]


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """
    What goes.

    Attributes:
        leaving: the segments that go, the oldest first, each with the reason.
        log_start_offset: where the log begins when they are gone.
        rolls: whether the active segment is among them: another must begin behind it first.
    """

    leaving: tuple[tuple[SegmentFacts, RetentionReason], ...]
    log_start_offset: int
    rolls: bool


@dataclass(frozen=True, slots=True)
class SegmentExplanation:
    """
    Why a segment is still there.

    Attributes:
        segment: the facts.
        is_due: whether the next pass deletes it.
        reasons: why it stays: what each policy says of it, and what holds it in any case. Of a
            segment that is due, why it goes.
    """

    segment: SegmentFacts
    is_due: bool
    reasons: tuple[RetentionReason, ...]

    @property
    def due_ms(self) -> int | None:
        """When the first policy that knows will let it go; None where none knows."""
        return min((each.due_ms for each in self.reasons if each.due_ms is not None), default=None)


@dataclass(frozen=True, slots=True)
class _Step:
    """What a policy saw, and how many of the oldest segments went by it."""

    policy: RetentionPolicy
    log: LogFacts
    count: int


def plan_retention(log: LogFacts, policies: Sequence[RetentionPolicy]) -> RetentionPlan:
    """
    Return what the policies delete.

    Raises:
        TypeError: a policy returned something else than a decision.
        Exception: whatever a policy raised.
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
    """Return why each segment is still there, the oldest first; raises as `plan_retention`."""
    steps = list(_steps(log, policies))
    explained = [
        SegmentExplanation(segment, True, (explain(step.policy, step.log, segment),))
        for step in steps
        for segment in step.log.segments[: step.count]
    ]
    kept = log.segments[len(explained) :]
    for segment in kept:
        # Each policy as it saw the log: those before it had deleted, those behind it had not.
        said = [explain(step.policy, step.log, segment) for step in steps]
        explained.append(SegmentExplanation(segment, False, (*_held(log, segment, kept[0]), *said)))
    return tuple(explained)


def _steps(log: LogFacts, policies: Sequence[RetentionPolicy]) -> Iterator[_Step]:
    """Ask one policy after the other, each about what is left."""
    for policy in policies:
        if not log.segments:
            return
        decision = policy(log)
        if not isinstance(decision, RetentionDecision):
            raise TypeError(
                f"retention policy {name_of(policy)} returned {decision!r}, no RetentionDecision"
            )
        count = _count(log, decision)
        yield _Step(policy, log, count)
        if count:
            start = max(log.log_start_offset, log.segments[count - 1].end_offset)
            log = replace(log, segments=log.segments[count:], log_start_offset=start)


def _count(log: LogFacts, decision: RetentionDecision) -> int:
    """Return how many of the oldest segments go by a decision."""
    bound = min(decision.delete_before, log.limit_offset)
    for number, segment in enumerate(log.segments):
        if segment.end_offset > bound or (segment.is_active and not segment.size_bytes):
            return number
    return len(log.segments)


def _held(log: LogFacts, segment: SegmentFacts, oldest: SegmentFacts) -> Iterator[RetentionReason]:
    """Yield what holds a segment whatever the policies say."""
    if segment.is_active and not segment.size_bytes:
        yield RetentionReason("active", "the active segment, and nothing is in it")
    if segment.end_offset > log.limit_offset:
        yield RetentionReason(
            "limit",
            f"reaches to offset {segment.end_offset - 1}, and only what lies below "
            f"{log.limit_offset} may go",
        )
    if segment is not oldest:
        yield RetentionReason(
            "order", f"segment {oldest.base_offset} before it stays, and only the oldest go"
        )
