"""Durability of a log: flushes, the flush task, and the recovery point.

Crash points: those of `LocalLog.sync`, then that of a checkpoint: the next start scans synced bytes
once more if the recovery point was not written.

Thread-safety: every method from any thread. The committer has its own condition; it never
takes the log's lock. `checkpoint_recovery_point` takes the log's lock, `lower_recovery_point` is
called under it.
"""

from __future__ import annotations

from typing import Final

from kafkalog.errors import LogOfflineError, LogStorageError
from kafkalog.files.errors import translate
from kafkalog.log.checkpoint_store import CheckpointStore
from kafkalog.log.committer import Committer
from kafkalog.log.dependent_state import DependentState
from kafkalog.log.local_log import LocalLog
from kafkalog.log.write_gate import WriteGate
from kafkalog.scheduler import ScheduledTask, Scheduler, schedule_while_alive

__all__ = ["LogFlusher"]

# An interval of this or more, as Kafka's default of 2**63 - 1, means no flushes by time.
_NEVER_MS: Final = 2**62


class LogFlusher:
    """
    Puts appended batches on the disk.

    Args:
        gate: write permission of the log.
        local: the segments.
        store: checkpoints the recovery point.
        state: producer snapshots are on the disk before the recovery point rises.
        scheduler: runs the flushes that are not waited for.
        durable_offset: offset below which everything is on the disk already.

    Thread-safety: see the module.
    """

    def __init__(
        self,
        gate: WriteGate,
        local: LocalLog,
        store: CheckpointStore,
        state: DependentState,
        scheduler: Scheduler,
        durable_offset: int,
    ) -> None:
        self._gate = gate
        self._local = local
        self._store = store
        self._state = state
        self._scheduler = scheduler
        self._committer = Committer(self._sync, durable_offset)
        self._checkpointed_base = local.snapshot.segments.active.base_offset
        self._task = self._schedule()

    @property
    def durable_offset(self) -> int:
        """One above the last offset known to be on the disk; never ahead of it."""
        return self._committer.durable_offset

    def flush(self) -> int:
        """Put everything appended so far on the disk; return the durable offset."""
        self._gate.ensure_owner()
        if self._gate.state.is_idle:
            return self._committer.durable_offset
        return self._committer.flush()

    def sync_all(self) -> int:
        """As `flush`, for a caller that has checked the write permission."""
        return self._committer.flush()

    def wait_until_durable(self, end_offset: int) -> int:
        """Return once everything below `end_offset` is on the disk; see `Committer`."""
        return self._committer.wait_until_durable(end_offset)

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

    def lower(self, offset: int) -> None:
        """Mark offsets at `offset` and above as not durable: the log is truncated there."""
        self._committer.lower(offset)

    def checkpoint_recovery_point(self) -> bool:
        """
        Checkpoint the durable offset as the recovery point; return whether it was possible.

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
                self._store.write_recovery_point(self._committer.durable_offset)
        return True

    def lower_recovery_point(self, end_offset: int) -> None:
        """
        Do the first step of a truncation: later appends in the removed range are not durable.

        Raises:
            OSError, LogStorageError: the disk refused.
        """
        producers = self._state.producers
        durable_offset = self._committer.durable_offset
        recovery_point = durable_offset
        if not producers.make_durable():
            recovery_point = min(self._store.read_recovery_point(), durable_offset)
        if not producers.retain_snapshot(end_offset):
            # Until there is another: a log without any is replayed from the recovery point on.
            recovery_point = 0
        self._store.write_recovery_point(recovery_point)
        if self._local.context.journal is not None:
            self._local.context.journal.lower(durable_offset)

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
        if snapshot.end_offset > self._committer.durable_offset:
            self._committer.wait_until_durable(snapshot.end_offset)
        base = self._local.snapshot.segments.active.base_offset
        if base != self._checkpointed_base and self.checkpoint_recovery_point():
            self._checkpointed_base = base

    def _sync(self) -> int:
        """Sync for the committer; a failure marks the log offline."""
        try:
            return self._local.sync(self._committer.durable_offset)
        except LogStorageError as error:
            self._gate.mark_offline(error)
            raise
        except OSError as error:
            self._gate.mark_offline(error)
            raise translate(error, self._local.context.directory, doing="syncing") from error
        except BaseException as error:
            # The content of the disk is unknown, and another sync would not show it.
            directory = self._local.context.directory
            self._gate.mark_offline(
                LogOfflineError(
                    f"{directory}: a sync was interrupted by {type(error).__name__}", path=directory
                )
            )
            raise
