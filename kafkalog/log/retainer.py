"""Retention of one log: the facts for its policies, and the removal of the segments they delete.

`retention_plan` decides which segments are deleted; `local_log` removes them from the list and
renames them; `deletion` reports and unlinks them.

Crash points of `execute`: after a new active segment began after the one to delete, there is one
more empty segment. Then those of `_remove_segments`: before the new log start is checkpointed
nothing has changed; from then on records below it are not visible, and the next pass removes the
remaining segments. If the disk is too full for the checkpoint, segments are removed one by one, the
oldest first: a crash leaves the remaining ones.

Thread-safety: `log_facts` from any thread; the rest under the log's lock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kafkalog._engine.snapshot import LogSnapshot
from kafkalog.errors import DiskFullError, OffsetOutOfRangeError
from kafkalog.files.errors import is_disk_full
from kafkalog.log.checkpoint_store import CheckpointStore
from kafkalog.log.deletion import Deleter, SegmentDeletion
from kafkalog.log.dependent_state import DependentState
from kafkalog.log.flusher import LogFlusher
from kafkalog.log.local_log import LocalLog, UndoFailedError
from kafkalog.log.retention import (
    LogFacts,
    RetentionPolicy,
    RetentionReason,
    SegmentFacts,
    SizeRetention,
    StartOffsetRetention,
    TimeRetention,
    policies_for,
)
from kafkalog.log.retention_plan import (
    RetentionDebt,
    RetentionPlan,
    SegmentExplanation,
    explain_retention,
    plan_retention,
)
from kafkalog.log.segment import LogSegment
from kafkalog.log.segment_types import SegmentContext
from kafkalog.log.view import LogView
from kafkalog.log.write_gate import WriteGate

__all__ = ["LogRetention", "Retainer", "log_facts"]


def log_facts(
    snapshot: LogSnapshot,
    context: SegmentContext,
    *,
    now_ms: int | None = None,
    limit_offset: int | None = None,
    with_times: bool = True,
) -> LogFacts:
    """
    Return the facts of a log for retention policies.

    Args:
        snapshot: snapshot of the log.
        context: settings and parts that its segments share.
        now_ms: the time; that of the clock if None.
        limit_offset: segments that reach above it stay; the log end offset if None.
        with_times: whether to read timestamps and times of files; -1 without.

    Raises:
        OSError: the disk failed.
    """
    now_ms = context.clock.now_ms() if now_ms is None else now_ms
    facts = []
    segments = snapshot.segments.segments
    for slot, segment in enumerate(segments):
        bound = snapshot.read_bound(slot)
        facts.append(
            SegmentFacts(
                base_offset=segment.base_offset,
                end_offset=bound.following_offset,
                size_bytes=bound.end,
                max_timestamp_ms=segment.max_timestamp if with_times else -1,
                file_time_ms=_file_time(segment, context, now_ms) if with_times else -1,
                is_active=slot + 1 == len(segments),
            )
        )
    end = snapshot.end_offset
    return LogFacts(
        now_ms=now_ms,
        log_start_offset=snapshot.start_offset,
        log_end_offset=end,
        limit_offset=end if limit_offset is None else min(limit_offset, end),
        segments=tuple(facts),
    )


def _file_time(segment: LogSegment, context: SegmentContext, now_ms: int) -> int:
    facts = context.filesystem.stat(segment.path)
    # A removed file has no age: its segment stays, and its next reader finds it missing.
    return now_ms if facts is None else facts.modified_ms


class Retainer:
    """
    Executor of the policies of a log.

    Args:
        local: the segments of the log.
        store: checkpoints the log start offset.
        deleter: deletes removed segments.
        own: policies instead of those of the settings, None for the latter.
    """

    def __init__(
        self,
        local: LocalLog,
        store: CheckpointStore,
        deleter: Deleter,
        own: Sequence[RetentionPolicy] | None,
    ) -> None:
        self._local = local
        self._store = store
        self.deleter = deleter
        self._own = None if own is None else tuple(own)

    def plan(self, now_ms: int | None, limit_offset: int | None) -> RetentionPlan:
        """Return the plan; raises OSError, and the exception of a policy."""
        policies = self._policies()
        return plan_retention(
            log_facts(
                self._local.snapshot,
                self._local.context,
                now_ms=now_ms,
                limit_offset=limit_offset,
                with_times=_needs_times(policies),
            ),
            policies,
        )

    def explain(
        self, snapshot: LogSnapshot, now_ms: int | None, limit_offset: int | None
    ) -> tuple[SegmentExplanation, ...]:
        """Return why each segment of a snapshot was not deleted; raises as `plan`."""
        facts = log_facts(snapshot, self._local.context, now_ms=now_ms, limit_offset=limit_offset)
        return explain_retention(facts, self._policies())

    def debt(self, now_ms: int, limit_offset: int | None) -> RetentionDebt:
        """
        Return what the next pass deletes; raises as `plan`.

        Cheaper than a plan: times of the oldest segments are read, up to the first that stays.
        """
        snapshot, context, policies = self._local.snapshot, self._local.context, self._policies()
        if self._own is not None:
            leaving = self.plan(now_ms, limit_offset).leaving
            return RetentionDebt(len(leaving), sum(each.size_bytes for each, _why in leaving))
        facts = log_facts(
            snapshot, context, now_ms=now_ms, limit_offset=limit_offset, with_times=False
        )
        others = [each for each in policies if not isinstance(each, TimeRetention)]
        count, overdue_ms = len(plan_retention(facts, others).leaving), 0
        for policy in policies:
            if isinstance(policy, TimeRetention):
                by_time, overdue_ms = _overdue(policy, facts, snapshot, context)
                count = max(count, by_time)
        size_bytes = sum(each.size_bytes for each in facts.segments[:count])
        return RetentionDebt(count, size_bytes, overdue_ms)

    def execute(self, plan: RetentionPlan) -> tuple[SegmentDeletion, ...]:
        """Remove the segments of a plan; the log end, and an active segment, always stay."""
        start_offset = plan.log_start_offset
        why = {facts.base_offset: reason for facts, reason in plan.leaving}
        if plan.rolls and not self._try_roll(len(why)):
            start_offset = self._local.snapshot.segments.active.base_offset
            del why[start_offset]
        segments = self._local.snapshot.segments.segments
        leaving = [segment for segment in segments if segment.base_offset in why]
        return self._remove_segments(leaving, start_offset, why)

    def _try_roll(self, leaving_count: int) -> bool:
        """Roll, unless the disk is full and others can be deleted without the active segment."""
        try:
            self._local.roll()
        except OSError as error:
            if isinstance(error, UndoFailedError) or leaving_count == 1 or not is_disk_full(error):
                raise
            return False
        return True

    def delete_records(self, offset: int) -> None:
        """Move the log start up to `offset`; sealed segments below it are deleted."""
        segments = self._local.snapshot.segments
        leaving = [
            segment
            for slot, segment in enumerate(segments.segments)
            if (segments.base_after(slot) or offset + 1) <= offset
        ]
        why = RetentionReason("delete_records", f"records below {offset} were deleted")
        self._remove_segments(leaving, offset, why)

    def _remove_segments(
        self,
        leaving: list[LogSegment],
        start_offset: int,
        why: RetentionReason | Mapping[int, RetentionReason],
    ) -> tuple[SegmentDeletion, ...]:
        """
        Move the log start up, and remove segments below it; return their deletions.

        Raises:
            DiskFullError: not even the log start could be written. It is at the first segment that
                stays, and all below it are removed: their deletion frees space.
        """
        before = self._local.snapshot
        refusal: DiskFullError | None = None
        try:
            # Checkpointed before any removal: records must not return after a crash.
            self._store.write_start_offset(start_offset)
        except DiskFullError as error:
            if not leaving:
                raise
            staying = before.segments.segments[len(leaving)]
            if start_offset > staying.base_offset:
                refusal = error
            start_offset = max(staying.base_offset, before.start_offset)
            is_checkpointed = False
        else:
            is_checkpointed = True
        deletions: tuple[SegmentDeletion, ...] = ()
        try:
            self._local.remove_segments(
                leaving, start_offset=start_offset, is_checkpointed=is_checkpointed
            )
        finally:
            # They were removed from the list even if one of their files could not be renamed: the
            # checkpoint hides it, and the first pass after the next opening removes it.
            if self._local.snapshot is not before:
                deletions = self.deleter.delete_later(
                    leaving, before=before, log_start_offset=start_offset, why=why
                )
        if refusal is not None:
            raise refusal
        return deletions

    def _policies(self) -> tuple[RetentionPolicy, ...]:
        return policies_for(self._local.context.config, self._own)


class LogRetention:
    """
    Retention of one log: deletes old segments, and moves its start up.

    Args:
        gate: the lock and write permission of the log.
        view: end of the visible offsets: nothing above it is deleted.
        state: producers and leader epochs, which are truncated with the log.
        flusher: flushes after a roll.
        retainer: judges and removes.

    Thread-safety: every method from any thread; callbacks of deletions run without a lock.
    """

    def __init__(
        self,
        gate: WriteGate,
        view: LogView,
        state: DependentState,
        flusher: LogFlusher,
        retainer: Retainer,
    ) -> None:
        self._gate = gate
        self._view = view
        self._state = state
        self._flusher = flusher
        self._retainer = retainer

    def delete_records(self, offset: int) -> int:
        """Move the log start offset up to `offset`; see `Log.delete_records`."""
        if offset < 0:
            raise ValueError(
                f"offset must be >= 0, got {offset}; use high_watermark to delete all records"
            )
        view, retainer = self._view, self._retainer
        with retainer.deleter.notify_after(self._gate.owned()):
            self._gate.ensure_open()
            snapshot = view.last_snapshot
            limit = view.stable.visibility.high_watermark_of(snapshot)
            if offset > limit:
                raise OffsetOutOfRangeError(
                    f"{offset} is above the high watermark {limit}",
                    requested=offset,
                    log_start_offset=snapshot.start_offset,
                    log_end_offset=snapshot.end_offset,
                    path=view.context.directory,
                )
            if offset <= snapshot.start_offset:
                return snapshot.start_offset
            with (
                self._gate.mark_offline_on_error("deleting records"),
                self._state.moving_start(),
            ):
                retainer.delete_records(offset)
            return offset

    def apply(self, now_ms: int | None, limit_offset: int | None) -> tuple[SegmentDeletion, ...]:
        """Delete the segments that the policies allow; see `Log.apply_retention`."""
        retainer = self._retainer
        with retainer.deleter.notify_after(self._gate.owned()):
            with self._view.errors():
                plan = retainer.plan(now_ms, self._limit(limit_offset))
            if not plan.leaving:
                return ()
            self._gate.ensure_open()
            with (
                self._gate.mark_offline_on_error("deleting old segments"),
                self._state.moving_start(),
            ):
                deletions = retainer.execute(plan)
        if plan.rolls:
            self._flusher.flush_soon()
        return deletions

    def explain(
        self, now_ms: int | None, limit_offset: int | None
    ) -> tuple[SegmentExplanation, ...]:
        """Return why each segment was not deleted; see `Log.explain_retention`."""
        snapshot = self._view.snapshot()
        with self._view.errors():
            return self._retainer.explain(snapshot, now_ms, self._limit(limit_offset))

    def debt(self) -> RetentionDebt:
        """
        Return what the next pass deletes.

        Raises:
            LogStorageError: a segment cannot be read.
            Exception: a policy raised it.
        """
        now_ms = self._view.context.clock.now_ms()
        with self._view.errors():
            return self._retainer.debt(now_ms, self._limit(None))

    def _limit(self, limit_offset: int | None) -> int | None:
        high_watermark = self._view.stable.visibility.high_watermark
        return high_watermark if limit_offset is None else limit_offset


def _overdue(
    policy: TimeRetention, log: LogFacts, snapshot: LogSnapshot, context: SegmentContext
) -> tuple[int, int]:
    """Return the number of the oldest segments that are too old, and by how much the first is."""
    if policy.retention_ms < 0:
        return 0, 0
    first_ms = 0
    for number, (facts, segment) in enumerate(
        zip(log.segments, snapshot.segments.segments, strict=True)
    ):
        timed = replace(
            facts,
            max_timestamp_ms=segment.max_timestamp,
            file_time_ms=_file_time(segment, context, log.now_ms),
        )
        late_ms = log.now_ms - policy.time_of(timed, log.now_ms)[0] - policy.retention_ms
        is_kept = facts.end_offset > log.limit_offset or (facts.is_active and not facts.size_bytes)
        if late_ms <= 0 or is_kept:
            return number, first_ms
        first_ms = first_ms or late_ms
    return len(log.segments), first_ms


def _needs_times(policies: Sequence[RetentionPolicy]) -> bool:
    """Return whether a policy needs the age of segments, which may need a read of each."""
    return any(
        each.retention_ms >= 0
        if isinstance(each, TimeRetention)
        else not isinstance(each, StartOffsetRetention | SizeRetention)
        for each in policies
    )
