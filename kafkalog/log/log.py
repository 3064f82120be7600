"""One partition's log: the public face of the room.

`Log` decides; `LocalLog` does. What is here: who may write, what is valid, what is durable, when to
flush, what an error of the disk means, and what readers may see. The way of an append: encode
outside the lock, validate, then under the lock stamp offsets, roll where needed, write, publish.

Thread-safety: one writer at a time (an internal lock); readers never wait for it. Every public
method may be called from any thread. After `fork` the child may read, and is refused every write.

After a failed sync, or a write that could not be undone, the log is latched: reads go on, every
write raises `LogOfflineError` until the log is opened again.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

from kafkalog.closing import ClosingContextManager
from kafkalog.config import LogConfig
from kafkalog.errors import (
    LogStorageError,
    OffsetOutOfRangeError,
)
from kafkalog.files.errors import storage_errors, translate
from kafkalog.files.locking import PartitionLock
from kafkalog.log.appending import Appender
from kafkalog.log.cleanable import CleanableLog
from kafkalog.log.committer import Committer
from kafkalog.log.deletion import Deleter, SegmentDeletion
from kafkalog.log.epoch_lowering import lower_batches
from kafkalog.log.epochs import LogEpochs
from kafkalog.log.local_log import LocalLog, check_base_offset
from kafkalog.log.partition_paths import PartitionPaths
from kafkalog.log.report import RecoveryReport
from kafkalog.log.retainer import Retainer
from kafkalog.log.retention_plan import SegmentExplanation
from kafkalog.log.segment import LogSegment
from kafkalog.log.surroundings import LogEnvironment
from kafkalog.log.tail import ReadOnlyTail
from kafkalog.log.truncation import (
    find_cut,
    prepare_segment,
    removed_on_error,
    truncate_fully_and_start_at,
    truncate_to,
)
from kafkalog.log.writable import Wait
from kafkalog.records.append_rules import AppendRules
from kafkalog.scheduler import ScheduledTask, Scheduler, schedule_while_alive
from kafkalog.settings import ConfigChange
from kafkalog.state.producer_state_manager import ProducerStateManager

__all__ = ["Log", "Wait"]

logger = logging.getLogger(__name__)


class Log(CleanableLog, ClosingContextManager):
    """
    One partition's records on disk. Made by `kafkalog.open_log`.

    >>> with kafkalog.open_log(tmp / "orders-0") as log:
    ...     info = log.append([Record(key=b"k", value=b"v")])
    ...     [record.value for record in log.records(info.first_offset)]
    [b'v']

    Thread-safety: one writer at a time (internal lock); readers never block it, nor it them.
    """

    def __init__(
        self,
        paths: PartitionPaths,
        local: LocalLog,
        tail: ReadOnlyTail | None,
        report: RecoveryReport,
        *,
        durable_offset: int,
        epochs: LogEpochs,
        producers: ProducerStateManager | None,
        scheduler: Scheduler,
        lock: PartitionLock | None,
        on_close: Callable[[], None],
        environment: LogEnvironment,
    ) -> None:
        super().__init__(paths, local, tail, epochs, producers, scheduler, environment)
        self._report = report
        self._apply_config(self.config)
        self._directory_lock = lock
        self._on_close = on_close
        self._committer = Committer(self._sync, durable_offset)
        self._checkpointed_base = local.snapshot.segments.active.base_offset
        self._cleaning = threading.Lock()
        self._deleter = Deleter(
            local.context, scheduler, paths.topic_partition, environment.on_deletion
        )
        self._retainer = Retainer(local, paths, self._deleter, environment.retention)
        if tail is None:
            self._appender = Appender(local, self._producers, epochs, self._mark_offline)
        self._flush_task = self._schedule_flush()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "read-only" if self.is_read_only else "open"
        return f"<Log {self._paths.topic_partition} {state} at {self._paths.directory}>"

    # ------------------------------------------------------------------------------ properties

    @property
    def recovery_report(self) -> RecoveryReport:
        """What opening the log found, cut, rebuilt and fenced."""
        return self._report

    @property
    def recovery_point(self) -> int:
        """First offset not known to be on the disk: where recovery begins after a crash."""
        return self._committer.durable_offset

    @property
    def durable_offset(self) -> int:
        """Everything below it survives a power cut; rises with syncs, never ahead of the disk."""
        return self._committer.durable_offset

    # --------------------------------------------------------------------------------- changing

    def flush(self) -> int:
        """Put everything appended so far on the disk; return the durable offset."""
        self._ensure_in_charge()
        if self._is_released:
            return self._committer.durable_offset
        return self._committer.flush()

    def roll(self) -> LogSegment:
        """Start a new segment, unless the active one is empty; return the active segment."""
        with self._write_lock:
            self._ensure_writable()
            with self._changing("rolling"), self._moving_start():
                segment = self._local.roll()
        self._scheduler.schedule("flush-log", self._flush_in_background, delay_ms=0)
        return segment

    def truncate_to(self, offset: int) -> int:
        """
        Remove every batch that reaches `offset`; return the log end offset.

        Nothing happens at or above the log end. Below the log start everything goes, and the log
        begins anew at `offset`.
        """
        if offset < 0:
            raise ValueError(f"{offset} is no offset")
        try:
            return self._cut_at(offset)
        finally:
            self._notify_watchers()

    def _cut_at(self, offset: int) -> int:
        with self.pause_cleaning(), self._deleter.notify_after(self._write_lock):
            self._ensure_writable()
            snapshot = self._local.snapshot
            if offset >= snapshot.end_offset:
                return snapshot.end_offset
            if offset < max(snapshot.segments.segments[0].base_offset, snapshot.start_offset):
                self._restart_at(offset)
                return offset
            with self._changing("truncating"), self._truncating():
                cut = find_cut(self._local, offset)
                self._committer.lower(cut.kept_offset)
                self._lower_recovery_point(offset)
                leaving = truncate_to(self._local, cut)
                self._deleter.delete_truncated(leaving, snapshot, self._local.snapshot)
            # Again: a sync that ran meanwhile still saw the old end.
            self._committer.lower(offset)
            return offset

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """
        Remove everything; the log is empty and its next offset is `offset`.

        Raises:
            ValueError: `offset` is negative.
            OffsetOverflowError: `offset` is too near to 2**63 for a segment to begin there.
        """
        if offset < 0:
            raise ValueError(f"{offset} is no offset")
        check_base_offset(offset, self.directory)
        try:
            self._restart_at(offset)
        finally:
            self._notify_watchers()

    def _restart_at(self, offset: int) -> None:
        with self.pause_cleaning(), self._deleter.notify_after(self._write_lock):
            self._ensure_writable()
            snapshot = self._local.snapshot
            self._committer.lower(offset)
            with (
                self._changing("truncating"),
                self._truncating(),
                removed_on_error(self._local.context.filesystem) as made,
            ):
                prepare_segment(self._local, offset, made)
                self._lower_recovery_point(offset)
                # A higher start is checkpointed first: what a crash leaves lies below it. A lower
                # one comes last, or a crash would bring back what was deleted before.
                self._paths.write_start_offset(max(offset, snapshot.start_offset))
                leaving = truncate_fully_and_start_at(self._local, offset)
                self._deleter.delete_truncated(leaving, snapshot, self._local.snapshot)
                try:
                    self._paths.write_start_offset(offset)
                except LogStorageError as error:
                    # What is appended from now on would lie below the start that is on the disk.
                    self._mark_offline(error)
                    raise
            self._committer.lower(offset)

    def lower_leader_epochs(self, highest: int) -> int:
        """
        Let no leader epoch of the log be above `highest`, and return how many batches were changed.

        For a hand-over to a controller that counts from less: its clients wait for a leader whose
        epoch is as high as that of the records they read. Batches, `leader-epoch-checkpoint` and
        `leader_epoch` are lowered; two epochs may become one. Not for a log that others copy by
        its epochs. See `kafkalog.log.epoch_lowering` for the crash points.

        Args:
            highest: of the controller's epoch for the partition, or less; 0 is right for any.

        Raises:
            ValueError: `highest` is negative.
            LogStorageError: the disk refused; calling it again does the rest.
        """
        if highest < 0:
            raise ValueError(f"the highest leader epoch must be 0 or more, got {highest}")
        with self.pause_cleaning(), self._write_lock:
            self._ensure_writable()
            with self._changing("lowering leader epochs"):
                count = lower_batches(self._local, highest)
                self._epochs.lower(highest)
        return count

    def delete_records(self, offset: int) -> int:
        """
        Move the log start offset up to `offset`, and delete the segments that lie below it.

        Returns the log start offset. The active segment stays. A reader that holds a segment
        reads it to its end. What no reader may see yet is not deleted. A broker refuses this where
        `delete` is not in `cleanup.policy`, since the last values of keys may go; here whoever
        calls it means it.

        Raises:
            ValueError: `offset` is negative (Kafka's -1 is `high_watermark`).
            OffsetOutOfRangeError: `offset` is above the high watermark.
            DiskFullError: `offset` lies within a segment, and there is no room to say so. All
                segments below that one are gone: try again when they have given their room back.
        """
        if offset < 0:
            raise ValueError(f"{offset} is no offset to begin at; all is `high_watermark`")
        with self._deleter.notify_after(self._write_lock):
            self._ensure_writable()
            snapshot = self._local.snapshot
            limit = self._stable.visibility.high_watermark_of(snapshot)
            if offset > limit:
                raise OffsetOutOfRangeError(
                    f"{offset} is above the high watermark {limit}",
                    requested=offset,
                    log_start_offset=snapshot.start_offset,
                    log_end_offset=snapshot.end_offset,
                    path=self.directory,
                )
            if offset <= snapshot.start_offset:
                return snapshot.start_offset
            with self._changing("deleting records"), self._moving_start():
                self._retainer.delete_records(offset)
            return offset

    def apply_retention(
        self, *, now_ms: int | None = None, limit_offset: int | None = None
    ) -> tuple[SegmentDeletion, ...]:
        """
        Delete the segments that the settings, or the log's own policies, let go; return them.

        The log end stays where it is; the log start moves up to the first segment that stays. A
        reader that holds a segment reads it to its end.

        Args:
            now_ms: the time to judge by; the clock's if None.
            limit_offset: segments that reach above it stay; the high watermark if None.

        Raises:
            LogOfflineError, LogStorageError: as for every write.
            Exception: what a policy raised; nothing was deleted then.
        """
        with self._deleter.notify_after(self._write_lock):
            self._ensure_in_charge()
            with self._reading():
                plan = self._retainer.plan(now_ms, self._limit_of_retention(limit_offset))
            if not plan.leaving:
                return ()
            self._ensure_writable()
            with self._changing("deleting old segments"), self._moving_start():
                deletions = self._retainer.execute(plan)
        if plan.rolls:
            self._scheduler.schedule("flush-log", self._flush_in_background, delay_ms=0)
        return deletions

    def explain_retention(
        self, *, now_ms: int | None = None, limit_offset: int | None = None
    ) -> tuple[SegmentExplanation, ...]:
        """Return why each segment is still there; arguments as for `apply_retention`."""
        snapshot = self._snapshot()
        with self._reading():
            limit_offset = self._limit_of_retention(limit_offset)
            return self._retainer.explain(snapshot, now_ms, limit_offset)

    def _limit_of_retention(self, limit_offset: int | None) -> int | None:
        return self._stable.visibility.high_watermark if limit_offset is None else limit_offset

    def reconfigure(self, config: LogConfig) -> ConfigChange:
        """
        Take other settings while open; return which keys differ, and when each of them counts.

        What needs the log to be opened again is kept as it was in `config` until then.
        """
        with self._write_lock:
            self._ensure_in_charge()
            old = self.config
            change = old.change_to(config)
            if not change:
                return change
            self._local.context.config = config.keep(old, change.reopening)
            self._local.snapshot.segments.active.apply_config()
            self._apply_config(self.config)
            if self.config.flush_ms != old.flush_ms:
                if self._flush_task is not None:
                    self._flush_task.cancel()
                self._flush_task = self._schedule_flush()
        logger.info("%s has other settings: %s", self.directory, change)
        return change

    def close(self) -> None:
        """
        Flush, trim, checkpoint and let go. Idempotent.

        A log that is latched, or belongs to the parent of a forked process, is let go as it is.
        """
        if not self._closed and self._may_write():
            self._close_appenders()
        with self._write_lock:
            if self._closed:
                return
            self._close_readers()
        self._invalidate_readers()
        for task in (self._flush_task, self._expiry_task):
            if task is not None:
                task.cancel()
        try:
            if self._may_write():
                self._close_in_order()
            else:
                self._local.abandon()
                self._end_session(in_order=False)
        finally:
            if self._directory_lock is not None:
                self._directory_lock.release()
            self._on_close()
            self._notify_watchers()

    # ---------------------------------------------------------------------------------- private

    def _close_in_order(self) -> None:
        in_order = False
        try:
            with storage_errors(self.directory, doing="closing"):
                if self._is_unmodified:
                    self._local.close_unmodified()
                    self._paths.write_recovery_point(self._committer.durable_offset)
                    in_order = True
                    return
                self._committer.flush()
                self._deleter.delete_now()
                self._epochs.close(self._local.snapshot.end_offset)
                self._producers.close()
                self._local.close()
                self._paths.write_recovery_point(self._committer.durable_offset)
                snapshot = self._local.snapshot
                base = snapshot.segments.segments[0].base_offset
                start = snapshot.start_offset
                # Where a base says it, no entry is needed, unless a file lies below that base yet.
                is_said = start <= base and not self._local.has_unrenamed_files
                self._paths.write_start_offset(None if is_said else start)
                if self._local.context.journal is not None:
                    self._local.context.journal.remove()
            in_order = True
        finally:
            if not in_order:
                self._local.abandon()
            self._end_session(in_order=in_order)

    def _end_session(self, *, in_order: bool) -> None:
        if os.getpid() == self._process and not self.is_read_only:
            self._paths.end_session(in_order=in_order)

    def _apply_config(self, config: LogConfig) -> None:
        """Take what the settings say of every append."""
        self._rules = AppendRules.of(config)
        self._flush_messages = config.flush_messages

    def _schedule_flush(self) -> ScheduledTask | None:
        flush_ms = self._local.context.config.flush_ms
        if self._tail is not None or flush_ms >= 2**62:
            return None
        return schedule_while_alive(
            self._scheduler, "flush-interval", self._flush_in_background, max(flush_ms, 1)
        )

    def _flush_in_background(self) -> None:
        """Flush what a roll or an interval calls for; an error latches the log and is kept."""
        if self._closed or not self._may_write():
            return
        if self._local.snapshot.end_offset > self._committer.durable_offset:
            self._committer.wait_until_durable(self._local.snapshot.end_offset)
        base = self._local.snapshot.segments.active.base_offset
        if base != self._checkpointed_base and self.checkpoint_recovery_point():
            self._checkpointed_base = base

    def checkpoint_recovery_point(self) -> bool:
        """
        Checkpoint how far the log is on the disk; say whether that could be done.

        Raises:
            LogStorageError: the disk refused.
        """
        # Under the lock: a truncation, or the close, may be about to write a lower one.
        with self._write_lock:
            if self._closed or not self._may_write():
                return False
            with self._changing("writing the recovery point"):
                if not self._producers.make_durable():
                    return False
                self._paths.write_recovery_point(self._committer.durable_offset)
        return True

    def _sync(self) -> int:
        """Sync for the committer; a failure latches the log."""
        try:
            return self._local.sync(self._committer.durable_offset)
        except LogStorageError as error:
            self._mark_offline(error)
            raise
        except OSError as error:
            self._mark_offline(error)
            raise translate(error, self.directory, doing="syncing") from error

    def _lower_recovery_point(self, end_offset: int) -> None:
        """First step of a truncation: what comes in place of the cut bytes is not durable."""
        durable_offset = self._committer.durable_offset
        recovery_point = durable_offset
        if not self._producers.make_durable():
            recovery_point = min(self._paths.read_recovery_point(), durable_offset)
        if not self._producers.retain_snapshot(end_offset):
            # Until there is another: a log without any is asked from the recovery point on.
            recovery_point = 0
        self._paths.write_recovery_point(recovery_point)
        if self._local.context.journal is not None:
            self._local.context.journal.lower(durable_offset)
