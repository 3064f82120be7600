"""Durability of a log: flushes, the flush task, and the recovery point.

A caller that syncs many logs with one call uses `begin`, then `finish` or `fail`: between them the
log is as during `flush`. The commit journal of a data directory uses `source`: the log waits for
nothing.

Crash points: those of `LocalLog.sync`, then that of a checkpoint: the next start scans synced bytes
once more if the recovery point was not written.

Thread-safety: every method from any thread. The committer has its own condition; it never
takes the log's lock. `checkpoint_recovery_point` takes the log's lock, `lower_recovery_point` is
called under it.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import Final, NamedTuple

from kafkalog.errors import LogOfflineError, LogStorageError
from kafkalog.files.errors import translate
from kafkalog.log.checkpoint_store import CheckpointStore
from kafkalog.log.committer import Committer
from kafkalog.log.dependent_state import DependentState
from kafkalog.log.local_log import LocalLog, PendingSync
from kafkalog.log.write_gate import WriteGate
from kafkalog.scheduler import ScheduledTask, Scheduler, schedule_while_alive

__all__ = ["LogFlusher", "PendingFlush"]

# An interval of this or more, as Kafka's default of 2**63 - 1, means no flushes by time.
_NEVER_MS: Final = 2**62


class PendingFlush(NamedTuple):
    """A flush whose disk part another object does: the round, the sync, and its number in times."""

    truncations_before: int
    sync: PendingSync
    number: int


class LogFlusher:
    """
    Puts appended batches on the disk.

    Args:
        gate: write permission of the log.
        local: the segments.
        store: checkpoints the recovery point.
        state: producer snapshots are on the disk before the recovery point rises.
        scheduler: runs the flushes that are not waited for.
        synced_offset: offset below which everything is on the disk already.

    Attributes:
        source: what a commit journal uses.

    Thread-safety: see the module.
    """

    def __init__(
        self,
        gate: WriteGate,
        local: LocalLog,
        store: CheckpointStore,
        state: DependentState,
        scheduler: Scheduler,
        synced_offset: int,
    ) -> None:
        self._gate = gate
        self._local = local
        self._store = store
        self._state = state
        self._scheduler = scheduler
        self._meters = local.context.meters.disk
        on_sync = self._meters.sync_callers.observe
        on_change = store.publish_durable_offset
        self._committer = Committer(self._sync, synced_offset, on_change, on_sync)
        self.source = self._committer.commit_source(gate.state, local.published, local.names)
        self._checkpointed_base = local.snapshot.segments.active.base_offset
        self._task = self._schedule()

    @property
    def durable_offset(self) -> int:
        """One above the last offset known to be on the disk; never ahead of it."""
        return self._committer.durable_offset

    @property
    def synced_offset(self) -> int:
        """One above the last offset that the log's own files have on the disk."""
        return self._committer.synced_offset

    def flush(self) -> int:
        """Put everything appended so far on the disk; return the durable offset."""
        self._gate.ensure_owner()
        if self._gate.state.is_idle:
            return self._committer.durable_offset
        return self._committer.flush()

    def begin(self) -> PendingFlush | None:
        """
        Begin a flush for a caller that syncs the file system of the log; None for an idle log.

        The caller must call `finish` or `fail`: until then other flushes of the log wait.

        Raises:
            LogStorageError, LogOfflineError: as `flush`; nothing was begun.
        """
        self._gate.ensure_owner()
        if self._gate.state.is_idle:
            return None
        truncations_before = self._committer.begin()
        number = self._meters.syncs.begin()
        try:
            pending = self._local.begin_sync(self._committer.synced_offset)
        except BaseException as error:
            self._meters.syncs.end(number, has_succeeded=False)
            failure = self._fail(error)
            if failure is error:
                raise
            raise failure from error
        return PendingFlush(truncations_before, pending, number)

    def finish(self, pending: PendingFlush) -> None:
        """
        End a flush after the sync of the file system: what was there when it began is durable.

        Raises:
            LogStorageError: a transaction index could not be synced; the log is offline.
        """
        try:
            reached = self._local.finish_sync(pending.sync, has_synced_names=True)
        except BaseException as error:
            self._meters.syncs.end(pending.number, has_succeeded=False)
            failure = self._fail(error)
            if failure is error:
                raise
            raise failure from error
        self._meters.syncs.end(pending.number)
        self._committer.finish(pending.truncations_before, reached)

    def fail(self, pending: PendingFlush, error: BaseException) -> BaseException:
        """End a flush after a failed sync: the log goes offline. Return the error for callers."""
        self._meters.syncs.end(pending.number, has_succeeded=False)
        try:
            self._local.fail_sync(pending.sync, error)
        finally:
            failure = self._fail(error)
        return failure

    def refuse(self, error: BaseException) -> None:
        """Let nothing become durable any more: a commit journal with bytes of the log failed."""
        self._gate.mark_offline(error, notify=False)
        self._committer.refuse(error)

    def sync_all(self) -> int:
        """As `flush`, for a caller that has checked the write permission."""
        return self._committer.flush()

    def wait_until_durable(self, end_offset: int) -> int:
        """Return once everything below `end_offset` is on the disk; see `Committer`."""
        started_ns = perf_counter_ns()
        reached = self._committer.wait_until_durable(end_offset)
        self._meters.commit.observe(perf_counter_ns() - started_ns)
        return reached

    def flush_soon(self) -> None:
        """Let the scheduler flush, and checkpoint the recovery point, as after a roll."""
        self._scheduler.schedule("flush-log", self._flush_in_background, delay_ms=0)

    def reschedule(self) -> None:
        """Begin the flush interval of the present settings; under the log's lock."""
        self.cancel()
        self._task = self._schedule()

    def cancel(self) -> None:
        """Stop the flushes by time."""
        if self._task is not None:
            self._task.cancel()

    def end_publication(self) -> None:
        """Publish no durable offset any more; a sync that runs ends without."""
        self._committer.end_reports()

    def lower(self, offset: int) -> None:
        """Mark offsets at `offset` and above as not durable: the log is truncated there."""
        self._committer.lower(offset)

    def checkpoint_recovery_point(self) -> bool:
        """
        Checkpoint the synced offset as the recovery point; return whether it was possible.

        Raises:
            LogStorageError: the disk refused.
        """
        gate = self._gate
        # Under the lock: a truncation, or the close, may be about to write a lower one.
        with gate.lock:
            if gate.state.is_closed or not gate.can_write():
                return False
            with gate.mark_offline_on_error("writing the recovery point"):
                if not self._state.producers.make_durable():
                    return False
                self._store.write_recovery_point(self._committer.synced_offset)
        return True

    def lower_recovery_point(self, end_offset: int) -> None:
        """
        Do the first step of a truncation: later appends in the removed range are not durable.

        Raises:
            OSError, LogStorageError: the disk refused.
        """
        producers = self._state.producers
        synced_offset = self._committer.synced_offset
        recovery_point = synced_offset
        if not producers.make_durable():
            recovery_point = min(self._store.read_recovery_point(), synced_offset)
        if not producers.retain_snapshot(end_offset):
            # Until there is another: a log without any is replayed from the recovery point on.
            recovery_point = 0
        self._store.write_recovery_point(recovery_point)
        if self._local.context.journal is not None:
            self._local.context.journal.lower(synced_offset)

    def _schedule(self) -> ScheduledTask | None:
        flush_ms = self._local.context.config.flush_ms
        if self._gate.state.is_read_only or flush_ms >= _NEVER_MS:
            return None
        return schedule_while_alive(
            self._scheduler, "flush-interval", self._flush_in_background, max(flush_ms, 1)
        )

    def _flush_in_background(self) -> None:
        """Flush after a roll or an interval; an error marks the log offline and is kept there."""
        if self._gate.state.is_closed or not self._gate.can_write():
            return
        snapshot = self._local.snapshot
        # Also what a commit journal has: after a roll the next commit can use the journal again.
        if snapshot.end_offset > self._committer.synced_offset:
            self._committer.flush()
        base = self._local.snapshot.segments.active.base_offset
        if base != self._checkpointed_base and self.checkpoint_recovery_point():
            self._checkpointed_base = base

    def _sync(self) -> int:
        """Sync for the committer; a failure marks the log offline."""
        syncs = self._meters.syncs
        number = syncs.begin()
        try:
            reached = self._local.sync(self._committer.synced_offset)
        except BaseException as error:
            syncs.end(number, has_succeeded=False)
            failure = self._mark_offline(error)
            if failure is error:
                raise
            raise failure from error
        syncs.end(number)
        return reached

    def _fail(self, error: BaseException) -> BaseException:
        """Mark the log offline, and end the round of the committer; return the error to raise."""
        failure = error
        try:
            failure = self._mark_offline(error)
        finally:
            self._committer.fail(failure)
        return failure

    def _mark_offline(self, error: BaseException) -> BaseException:
        """Mark the log offline after a failed sync; return the error to raise."""
        directory = self._local.context.directory
        if isinstance(error, OSError):
            self._gate.mark_offline(error)
            return translate(error, directory, doing="syncing")
        if isinstance(error, LogStorageError):
            self._gate.mark_offline(error)
            return error
        # The content of the disk is unknown, and another sync would not show it.
        self._gate.mark_offline(
            LogOfflineError(
                f"{directory}: a sync was interrupted by {type(error).__name__}", path=directory
            )
        )
        return error
