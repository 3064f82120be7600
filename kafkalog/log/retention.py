"""Retention policies: pure functions from the facts of a log's segments to how far to delete.

A policy gets the segments from the oldest on and returns an offset: segments that end at or below
it may be deleted. Only whole segments are, only the oldest, and never a segment that reaches above
the limit (the high watermark): `kafkalog.log.retention_plan` ensures that for every policy.

Kafka's three are here: by log start offset, by size, by time, which run in this order. The rules
are Kafka's, except the guard against timestamps in the future (see `TimeRetention`).

Thread-safety: everything is immutable; a policy may be shared by many logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final, Protocol, runtime_checkable

from kafkalog.config import LogConfig

__all__ = [
    "AllOf",
    "ExplainingPolicy",
    "LogFacts",
    "RetentionDecision",
    "RetentionPolicy",
    "RetentionReason",
    "SegmentFacts",
    "SizeRetention",
    "StartOffsetRetention",
    "TimeRetention",
    "name_of",
    "policies_for",
]

# A timestamp further in the future is not believed: the difference of clocks, and more than an
# append takes by default. A smaller difference does no harm, and then the times of files, which a
# copy may have lost, decide nothing.
FUTURE_TOLERANCE_MS: Final = 3_600_000
# Offset of a decision that deletes nothing: no segment ends below it.
_NOTHING: Final = -1


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """
    Facts of a segment for a policy.

    Attributes:
        base_offset: names the segment; its offsets begin there.
        end_offset: one past its offsets: base offset of the next segment, or the log end offset.
        size_bytes: of its `.log` file.
        max_timestamp_ms: largest timestamp of its records, -1 where there is none.
        file_time_ms: last change of the file.
        is_active: whether it takes appends: the last segment of a log.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp_ms: int
    file_time_ms: int
    is_active: bool


@dataclass(frozen=True)
class LogFacts:
    """
    Facts of a log for a policy.

    Attributes:
        now_ms: the time of the question.
        log_start_offset, log_end_offset: the readable range.
        limit_offset: segments that reach above it stay, whatever a policy returns.
        segments: from the oldest to the active one; at least one.
    """

    now_ms: int
    log_start_offset: int
    log_end_offset: int
    limit_offset: int
    segments: tuple[SegmentFacts, ...]

    @cached_property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size_bytes for segment in self.segments)

    def size_after(self, segment: SegmentFacts) -> int:
        """Return the bytes of the segments after `segment`, one of these."""
        return self._sizes_after[segment.base_offset]

    @cached_property
    def _sizes_after(self) -> dict[int, int]:
        sizes, size_after = {}, 0
        for segment in reversed(self.segments):
            sizes[segment.base_offset] = size_after
            size_after += segment.size_bytes
        return sizes


@dataclass(frozen=True, slots=True)
class RetentionDecision:
    """
    Decision of a policy.

    Attributes:
        delete_before: segments that end at or below this offset may be deleted; -1 for none.
        reason: why they may, or why none may.
    """

    delete_before: int
    reason: str

    @classmethod
    def keep(cls, reason: str) -> RetentionDecision:
        """Return the decision to delete nothing."""
        return cls(_NOTHING, reason)


@dataclass(frozen=True, slots=True)
class RetentionReason:
    """
    Reason for which a segment stays, or is deleted.

    Attributes:
        policy: name of the policy, or "limit", "order", "active".
        text: the reason.
        due_ms: time at which the policy deletes it if nothing changes; None if unknown.
    """

    policy: str
    text: str
    due_ms: int | None = None


class RetentionPolicy(Protocol):
    """
    Function from the facts of a log to a decision; any callable with this signature.

    It must not have side effects: `explain_retention` calls it as well. An exception ends the pass
    before anything is deleted.
    """

    def __call__(self, log: LogFacts, /) -> RetentionDecision: ...


@runtime_checkable
class ExplainingPolicy(Protocol):
    """Policy that gives a reason for each segment; the others give one for the whole log."""

    def explain(self, log: LogFacts, segment: SegmentFacts, /) -> RetentionReason: ...


def name_of(policy: RetentionPolicy) -> str:
    """Return the name of a policy in events: its `name`, or that of the function or class."""
    name = getattr(policy, "name", None) or getattr(policy, "__name__", None)
    return str(name or type(policy).__name__)


@dataclass(frozen=True, slots=True)
class StartOffsetRetention:
    """Deletes segments below the log start offset; never the active segment."""

    name: ClassVar[str] = "start offset"

    def __call__(self, log: LogFacts, /) -> RetentionDecision:
        return RetentionDecision(
            min(log.log_start_offset, log.segments[-1].base_offset),
            f"below the log start offset {log.log_start_offset}",
        )

    def explain(self, log: LogFacts, segment: SegmentFacts, /) -> RetentionReason:
        start = log.log_start_offset
        if segment.is_active:
            return RetentionReason(self.name, "the active segment")
        if segment.end_offset <= start:
            return RetentionReason(self.name, f"below the log start offset {start}")
        return RetentionReason(
            self.name,
            f"its last offset {segment.end_offset - 1} is not below the log start {start}",
        )


@dataclass(frozen=True, slots=True)
class SizeRetention:
    """
    Deletes the oldest segments while the log stays at or above `retention_bytes`.

    A negative limit keeps everything; 0 deletes everything, a filled active segment too.
    """

    retention_bytes: int
    name: ClassVar[str] = "size"

    def __call__(self, log: LogFacts, /) -> RetentionDecision:
        if self.retention_bytes < 0:
            return RetentionDecision.keep(self._unlimited)
        surplus = log.size_bytes - self.retention_bytes
        delete_before = _NOTHING
        for segment in log.segments:
            if surplus < segment.size_bytes:
                break
            surplus -= segment.size_bytes
            delete_before = segment.end_offset
        return RetentionDecision(delete_before, self._summary(log))

    def explain(self, log: LogFacts, segment: SegmentFacts, /) -> RetentionReason:
        if self.retention_bytes < 0:
            return RetentionReason(self.name, self._unlimited)
        left = log.size_after(segment)
        which = "at least" if left >= self.retention_bytes else "fewer than"
        return RetentionReason(
            self.name,
            f"without it, and all before it, {left} bytes would be left, {which} "
            f"retention.bytes = {self.retention_bytes}",
        )

    @property
    def _unlimited(self) -> str:
        return f"retention.bytes = {self.retention_bytes} sets no limit"

    def _summary(self, log: LogFacts) -> str:
        return f"the log has {log.size_bytes} bytes, retention.bytes = {self.retention_bytes}"


@dataclass(frozen=True, slots=True)
class TimeRetention:
    """
    Deletes segments whose newest record is older than `retention_ms`; negative keeps everything.

    The age of a segment is that of its largest timestamp, or of its file if it has none. In Kafka
    one record with a timestamp in the future keeps its segment, and all after it, until that day
    and `retention_ms` more. With `future_guard` the time of the file, the last append, replaces a
    timestamp that is more than an hour in the future.
    """

    retention_ms: int
    future_guard: bool = True
    name: ClassVar[str] = "time"

    def __call__(self, log: LogFacts, /) -> RetentionDecision:
        if self.retention_ms < 0:
            return RetentionDecision.keep(self._is_unlimited)
        delete_before = _NOTHING
        for segment in log.segments:
            if log.now_ms - self.time_of(segment, log.now_ms)[0] <= self.retention_ms:
                break
            delete_before = segment.end_offset
        return RetentionDecision(delete_before, f"older than retention.ms = {self.retention_ms}")

    def explain(self, log: LogFacts, segment: SegmentFacts, /) -> RetentionReason:
        if self.retention_ms < 0:
            return RetentionReason(self.name, self._is_unlimited)
        time_ms, source = self.time_of(segment, log.now_ms)
        age_ms = log.now_ms - time_ms
        age = f"{age_ms} ms old" if age_ms >= 0 else f"{-age_ms} ms in the future"
        if age_ms > self.retention_ms:
            return RetentionReason(
                self.name, f"{source} is {age}, retention.ms = {self.retention_ms}"
            )
        return RetentionReason(
            self.name,
            f"{source} is {age}, not above retention.ms = {self.retention_ms}",
            time_ms + self.retention_ms + 1,
        )

    def time_of(self, segment: SegmentFacts, now_ms: int) -> tuple[int, str]:
        """Return the time that counts for a segment, and where it comes from."""
        if segment.max_timestamp_ms < 0:
            return segment.file_time_ms, "its file (no record has a timestamp)"
        if self.future_guard and segment.max_timestamp_ms > now_ms + FUTURE_TOLERANCE_MS:
            return (
                segment.file_time_ms,
                f"its file (the timestamp {segment.max_timestamp_ms} is far in the future)",
            )
        return segment.max_timestamp_ms, "its newest record"

    @property
    def _is_unlimited(self) -> str:
        return f"retention.ms = {self.retention_ms} keeps for ever"


@dataclass(frozen=True, slots=True)
class AllOf:
    """
    Deletes what each of its policies would delete: old segments of a log that is too large.

    The policies of a log in sequence delete what any of them would.
    """

    policies: tuple[RetentionPolicy, ...]

    def __post_init__(self) -> None:
        if not self.policies:
            raise ValueError("policies must not be empty: without a policy AllOf would delete all")

    @property
    def name(self) -> str:
        """The names of its policies."""
        return " and ".join(map(name_of, self.policies))

    def __call__(self, log: LogFacts, /) -> RetentionDecision:
        decisions = [policy(log) for policy in self.policies]
        delete_before = min(decision.delete_before for decision in decisions)
        return RetentionDecision(delete_before, "; ".join(each.reason for each in decisions))

    def explain(self, log: LogFacts, segment: SegmentFacts, /) -> RetentionReason:
        reasons = [explain(policy, log, segment) for policy in self.policies]
        # It is deleted at the latest of their times, if each of them is known.
        dues = [each.due_ms for each in reasons]
        due_ms = None if None in dues else max(due for due in dues if due is not None)
        return RetentionReason(self.name, "; ".join(each.text for each in reasons), due_ms)


def explain(policy: RetentionPolicy, log: LogFacts, segment: SegmentFacts) -> RetentionReason:
    """Return the reason of a policy for one segment, or its reason for the whole log."""
    if isinstance(policy, ExplainingPolicy):
        return policy.explain(log, segment)
    return RetentionReason(name_of(policy), policy(log).reason)


def policies_for(
    config: LogConfig, own: Sequence[RetentionPolicy] | None = None
) -> tuple[RetentionPolicy, ...]:
    """
    Return the policies of a log, in the order in which they run.

    Segments below the log start offset are always deleted. `own`, by default size and time, decides
    on the others, and only if `delete` is in the cleanup policy: a log that is only compacted keeps
    the newest record of each key, however old.
    """
    first = StartOffsetRetention()
    if not config.is_deleted:
        return (first,)
    if own is not None:
        return (first, *own)
    return (
        first,
        SizeRetention(config.retention_bytes),
        TimeRetention(config.retention_ms, config.retention_future_guard),
    )
