"""The composition root of one log: makes the parts, and closes them in order.

Each part is made with what it needs and owns its state; nothing here decides anything that a part
could decide. What concerns several parts at once is here: closing, other settings, another high
watermark, and the expiry of producers.

Thread-safety: every method from any thread. Lock order: cleaning pause, `gate.lock`, locks inside
`Deleter` and `FilePool`.
"""

from __future__ import annotations

import logging
import threading
import uuid
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, NamedTuple

from kafkalog._engine.gate_state import GateState
from kafkalog.clock import Clock
from kafkalog.config import LogConfig
from kafkalog.errors import CorruptStateError, LogStorageError
from kafkalog.files.errors import storage_errors
from kafkalog.files.locking import DirectoryLock, PartitionLock
from kafkalog.files.pool import FilePool
from kafkalog.log.appender import LogAppender
from kafkalog.log.checkpoint_store import CheckpointStore
from kafkalog.log.delayed_appends import DelayedAppends
from kafkalog.log.deletion import Deleter, SegmentDeletion
from kafkalog.log.dependent_state import DependentState
from kafkalog.log.epochs import LogEpochs
from kafkalog.log.flusher import LogFlusher
from kafkalog.log.followed_files import FollowedFiles
from kafkalog.log.idle_files import IdleFiles, ReleasableFiles
from kafkalog.log.loader import LoadedLog
from kafkalog.log.lookup import LogLookup
from kafkalog.log.meters import LogMeters
from kafkalog.log.producers import LogProducers, ongoing
from kafkalog.log.reader import LogReader
from kafkalog.log.retainer import LogRetention, Retainer
from kafkalog.log.retention import RetentionPolicy
from kafkalog.log.segment_types import SegmentContext, WithdrawCommits
from kafkalog.log.tail import ReadOnlyTail
from kafkalog.log.truncator import LogTruncator
from kafkalog.log.view import LogView
from kafkalog.log.write_gate import WriteGate
from kafkalog.model import OngoingTransaction
from kafkalog.scheduler import ScheduledTask, Scheduler, schedule_while_alive
from kafkalog.settings import ConfigChange
from kafkalog.state.partition_metadata import read_partition_metadata
from kafkalog.state.producer_state_manager import ProducerStateManager

__all__ = ["PRODUCER_EXPIRATION_MS", "LogEnvironment", "OpenedLog", "Partition"]

logger = logging.getLogger(__name__)

# Kafka's defaults of `producer.id.expiration.ms`, and of the time between two checks.
PRODUCER_EXPIRATION_MS: Final = 86_400_000
PRODUCER_CHECK_MS: Final = 600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnvironment:
    """
    Dependencies of a log: clock, scheduler, file pool and callbacks.

    Attributes:
        clock: source of time.
        scheduler: runs background work; a thread of the log's own, started when first needed, if
            None.
        pool: keeps files open for reading; the log's own if None.
        directory_lock: the exclusive lock of the data directory, where its opener has one.
        retention: policies in place of those of the settings; None for these.
        on_deletion: called with each segment that left the log.
        on_offline: called once with the error after which the log refuses writes, by the thread
            that got it, which may hold the log's lock: it must neither wait nor call back.
        on_storage_error: called with each error that the disk raised in a call of the log, reads
            too, as `on_offline` is. Errors of opening and closing are raised only.
        on_reopen: called with the files of an idle log that takes writes again, or of a read-only
            log with new records, under its lock; it may release the files of others
            (`ReleasableFiles.try_release`). A log without it never releases its files.
        withdraw_commits: entered, with a function that syncs the log, for a change of bytes that a
            commit journal may have; None without one.
        pause_cleaning: entered for a truncation, without the log's lock: keeps the log from being
            compacted, and waits until no cleaning runs.
        producer_expiration_ms: after how long a silent producer is forgotten.
        producer_check_ms: time between two checks for such producers.
        meters: counted and timed on the paths of the log; new ones if None.
    """

    clock: Clock
    scheduler: Scheduler | None = None
    pool: FilePool | None = None
    directory_lock: DirectoryLock | None = None
    retention: Sequence[RetentionPolicy] | None = None
    on_deletion: Callable[[SegmentDeletion], object] | None = None
    on_offline: Callable[[BaseException], object] | None = None
    on_storage_error: Callable[[LogStorageError], object] | None = None
    on_reopen: Callable[[ReleasableFiles], object] | None = None
    withdraw_commits: WithdrawCommits | None = None
    pause_cleaning: Callable[[], AbstractContextManager[object]] = nullcontext
    producer_expiration_ms: int = PRODUCER_EXPIRATION_MS
    producer_check_ms: int = PRODUCER_CHECK_MS
    meters: LogMeters | None = None


class OpenedLog(NamedTuple):
    """
    A log that was loaded.

    Attributes:
        loaded: segments and recovery report.
        epochs: leader epochs.
        producers: their state; None for a log that is open read-only.
        lock: of the partition directory; None for a log that is open read-only.
        tail: follows the writing process; None for a writer.
    """

    loaded: LoadedLog
    epochs: LogEpochs
    producers: ProducerStateManager | None = None
    lock: PartitionLock | None = None
    tail: ReadOnlyTail | None = None


class Partition:
    """
    One log, as its parts.

    Args:
        store: paths and checkpoints of the log.
        opened: what was loaded.
        scheduler: runs background work.
        environment: clock and callbacks.
        on_close: called when the log was closed.

    Attributes:
        store, paths: checkpoints and paths of the log.
        report: what opening the log found, cut, rebuilt and recorded as corrupt.
        local: segments on disk.
        gate: lock, write permission and state.
        view, reader, lookup: reads.
        state: producers and leader epochs.
        delayed: records that a commit journal has, and the log does not yet.
        appender, flusher, truncator, retention, deleter, idle_files: changes.
        open_files: the files that are held open: `idle_files`, or that of a read-only log.
        cleaning: held by the thread that compacts the log.

    Thread-safety: see the module.
    """

    def __init__(
        self,
        store: CheckpointStore,
        opened: OpenedLog,
        scheduler: Scheduler,
        environment: LogEnvironment,
        on_close: Callable[[], object],
    ) -> None:
        local, epochs = opened.loaded.local, opened.epochs
        context, is_read_only = local.context, opened.tail is not None
        self.store = store
        self.paths = paths = store.paths
        self.report = opened.loaded.report
        self.local = local
        self.cleaning = threading.Lock()
        self._scheduler = scheduler
        self._check_ms = environment.producer_check_ms
        self._directory_lock = opened.lock
        self._on_close = on_close
        self._expiry_task: ScheduledTask | None = None
        self.gate = self._make_gate(environment, is_read_only=is_read_only)
        self.view = LogView(self.gate, local, opened.tail, epochs)
        self.reader = LogReader(self.view)
        self.lookup = LogLookup(self.view, self.reader, local)
        producers = None
        if opened.producers is not None:
            producers = LogProducers(
                local, opened.producers, self.view.stable, self._begin_expiry_checks
            )
        self.state = DependentState(self.gate, local, epochs, producers)
        synced_offset = opened.loaded.recovery_point
        self.flusher = LogFlusher(self.gate, local, store, self.state, scheduler, synced_offset)
        self.idle_files = IdleFiles(self.gate, local, self.flusher, environment.on_reopen)
        self.open_files = self._releasable_files(opened.tail, environment)
        self.appender = LogAppender(self.gate, local, self.state, self.flusher, scheduler)
        self.delayed = DelayedAppends(self.gate, local, self.appender, self.flusher)
        self.deleter = Deleter(context, scheduler, paths.topic_partition, environment.on_deletion)
        on_change = self.appender.notify_watchers
        self.truncator = LogTruncator(
            self.gate, local, store, self.state, self.flusher, self.deleter, on_change
        )
        retainer = Retainer(local, store, self.deleter, environment.retention)
        self.retention = LogRetention(self.gate, self.view, self.state, self.flusher, retainer)
        # Weakly: a segment that a reader keeps must not keep the log.
        local.connect(
            weakref.WeakMethod(self.lookup.invalidate),
            weakref.WeakMethod(self.delayed.sync_recorded),
        )
        context.connect(
            on_damage=weakref.WeakMethod(self.lookup.invalidate),
            read_end_before=weakref.WeakMethod(self.view.end_before),
        )

    def _make_gate(self, environment: LogEnvironment, *, is_read_only: bool) -> WriteGate:
        local = self.local
        is_idle = not is_read_only and local.snapshot.segments.active.is_released
        return WriteGate(
            local.context,
            local.published,
            GateState(is_read_only=is_read_only, is_idle=is_idle),
            reopen=lambda: self.idle_files.reopen(),
            append_delayed=lambda: self.delayed.append_all(),
            on_offline=environment.on_offline,
            pause_cleaning=environment.pause_cleaning,
        )

    def __repr__(self) -> str:
        state = self.gate.state
        name = "closed" if state.is_closed else "read-only" if state.is_read_only else "open"
        return f"<Partition {self.paths.topic_partition} {name} at {self.paths.directory}>"

    @property
    def producers(self) -> LogProducers:
        """The producers; raises ReadOnlyLogError of a log that is open read-only."""
        return self.state.producers

    @property
    def segment_context(self) -> SegmentContext:
        """Settings and parts that the segments of the log share."""
        return self.local.context

    @property
    def config(self) -> LogConfig:
        """The settings in force."""
        return self.local.context.config

    def list_transactions(self) -> list[OngoingTransaction]:
        """Return the transactions without a marker; see `Log.list_transactions`."""
        if self.view.follows:
            now_ms = self.local.context.clock.now_ms()
            return ongoing(self.view.open_transactions(), now_ms)
        with self.gate.owned():
            return self.producers.transactions()

    def _releasable_files(
        self, tail: ReadOnlyTail | None, environment: LogEnvironment
    ) -> ReleasableFiles:
        if tail is None:
            return self.idle_files
        return FollowedFiles(self.gate, self.local, tail, environment.on_reopen)

    def read_topic_id(self) -> uuid.UUID | None:
        """Return the topic id in `partition.metadata`; see `Log.topic_id`."""
        try:
            return read_partition_metadata(self.paths.filesystem, self.paths.directory)
        except (CorruptStateError, LogStorageError):
            return None

    def set_high_watermark(self, offset: int | None) -> int:
        """Set how far readers may go; see `Log.set_high_watermark`."""
        if offset is not None and offset < 0:
            raise ValueError(f"offset must be >= 0, got {offset}")
        with self.gate.writable():
            snapshot = self.local.snapshot
            if offset is not None:
                offset = max(min(offset, snapshot.end_offset), snapshot.start_offset)
            self.producers.set_high_watermark(offset)
            # After it: a look-up at the same time caches no reader that stays.
            self.lookup.invalidate()
        self.appender.notify_watchers()
        return self.view.high_watermark

    def reconfigure(self, config: LogConfig) -> ConfigChange:
        """Apply other settings; see `Log.reconfigure`."""
        with self.gate.owned():
            old = self.config
            change = old.change_to(config)
            if not change:
                return change
            context = self.local.context
            context.apply_config(config.keep(old, change.reopening))
            self.local.snapshot.segments.active.apply_config()
            self.appender.apply_config(self.config)
            if self.config.flush_ms != old.flush_ms:
                self.flusher.reschedule()
        logger.info("%s has other settings: %s", self.paths.directory, change)
        return change

    def close(self) -> None:
        """Close the parts in order; see `Log.close`."""
        gate = self.gate
        if not gate.state.is_own_process():
            self._close_in_child()
            return
        if not gate.state.is_closed and gate.can_write():
            self.appender.close_appenders()
        with gate.lock:
            if gate.state.is_closed:
                return
            failure = self.delayed.close() if gate.can_write() else None
            gate.state.close()
            self.reader.close()
        self.lookup.invalidate()
        self.flusher.cancel()
        if self._expiry_task is not None:
            self._expiry_task.cancel()
        try:
            if failure is None and gate.can_write():
                self._close_in_order()
            else:
                self.local.abandon()
                self._end_session(in_order=False)
                if failure is not None:
                    raise failure
        finally:
            # Before another log may have the directory, or its name: of an offline log, a sync of
            # another thread may run still.
            self.flusher.end_publication()
            if self._directory_lock is not None:
                self._directory_lock.release()
            self._on_close()
            self.appender.notify_watchers()

    def _close_in_child(self) -> None:
        """Close the files as they are, without locks: threads of the parent may have had them."""
        if not self.gate.state.is_closed:
            self.gate.state.close()
            self.local.close_segments()

    def _close_in_order(self) -> None:
        in_order = False
        local, store = self.local, self.store
        try:
            with storage_errors(self.paths.directory, doing="closing"):
                if self.idle_files.is_unmodified:
                    local.close_unmodified()
                    store.write_recovery_point(self.flusher.synced_offset)
                    in_order = True
                    return
                self.flusher.sync_all()
                self.deleter.delete_now()
                self.state.epochs.close(local.snapshot.end_offset)
                self.producers.close()
                local.close()
                store.write_recovery_point(self.flusher.synced_offset)
                snapshot = local.snapshot
                base = snapshot.segments.segments[0].base_offset
                start = snapshot.start_offset
                # A base that equals the start needs no entry, unless a file is still below it.
                is_redundant = start <= base and not local.has_unrenamed_files
                store.write_start_offset(None if is_redundant else start)
                if local.context.journal is not None:
                    local.context.journal.remove()
            in_order = True
        finally:
            if not in_order:
                local.abandon()
            self._end_session(in_order=in_order)

    def _end_session(self, *, in_order: bool) -> None:
        state = self.gate.state
        if state.is_own_process() and not state.is_read_only:
            self.store.end_session(in_order=in_order)

    def expire_producers_after(self, expiration_ms: int) -> None:
        """Forget producers after another time of silence than so far."""
        with self.gate.lock:
            self.producers.expire_after(expiration_ms)

    def _begin_expiry_checks(self) -> None:
        self._expiry_task = schedule_while_alive(
            self._scheduler, "expire-producers", self._expire_producers, self._check_ms
        )

    def _expire_producers(self) -> None:
        gate = self.gate
        with gate.lock:
            if not gate.state.is_closed and gate.can_write():
                self.producers.expire()
