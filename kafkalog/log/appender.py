"""Appends to a log: packing, the slow path, ingested files, rolls, and callbacks for new data.

Encoding, compressing and validating happen outside the log's lock. The fast path under it is
`AppendLane`; this module does what the lane leaves. Order of the slow path: the batches get their
offsets; the producer state checks them, and may refuse them or find them to be duplicates; the
leader epoch is written to its file; readers of committed records are stopped before a transaction
that begins; the bytes are written and published; state, transaction index and readers follow.
A failure before the bytes are published leaves the log as it was.

Crash points: those of `LocalLog.append`, and before it that of an epoch (`epochs.py`). After it
nothing has to be on the disk: state and transaction index are rebuilt from the batches. Those of
`ingest` are listed in `ingest.py`.

Thread-safety: everything from any thread; one append at a time is under the log's lock. Callbacks
run without a lock, and before a wait for the disk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Final

from kafkalog._core.memory_records import MemoryRecords
from kafkalog._engine.append_info import assign_run_offsets
from kafkalog._engine.append_lane import AppendLane
from kafkalog._engine.snapshot import LogSnapshot
from kafkalog.config import LogConfig
from kafkalog.errors import KafkaLogError
from kafkalog.files.errors import storage_errors, translate
from kafkalog.layout import MAGIC_V2
from kafkalog.log.dependent_state import DependentState
from kafkalog.log.flusher import LogFlusher
from kafkalog.log.ingest import ingest_file, inspect_file
from kafkalog.log.local_log import LocalLog, UndoFailedError
from kafkalog.log.producers import PendingAppend, duplicate_info
from kafkalog.log.record_appender import RecordAppender, RecordAppenderOptions, Wait
from kafkalog.log.segment import LogSegment
from kafkalog.log.write_gate import WriteGate
from kafkalog.model import AppendInfo, AppendOrigin
from kafkalog.records.append_rules import AppendRules
from kafkalog.records.validation.leader import validate_as_leader
from kafkalog.scheduler import Scheduler
from kafkalog.state.verification import NO_GUARD

__all__ = ["LogAppender"]

logger = logging.getLogger(__name__)

# A constant: an attribute look-up on the enumeration costs more than copying a small batch.
_EMBEDDED: Final = AppendOrigin.EMBEDDED


class LogAppender:
    """
    Appends to one log.

    Args:
        gate: the log's lock and write permission.
        local: the segments.
        state: producers and leader epochs.
        flusher: waits for the disk.
        scheduler: runs the linger of record appenders.

    Attributes:
        lane: the fast path.

    Thread-safety: see the module.
    """

    def __init__(
        self,
        gate: WriteGate,
        local: LocalLog,
        state: DependentState,
        flusher: LogFlusher,
        scheduler: Scheduler,
    ) -> None:
        self._gate = gate
        self._local = local
        self._state = state
        self._flusher = flusher
        self._scheduler = scheduler
        self._watchers: tuple[tuple[Callable[[], object]], ...] = ()
        self._open_appenders: set[RecordAppender] = set()
        self._flush_messages = local.context.config.flush_messages
        self.lane = AppendLane(
            gate.state,
            gate.lock,
            local.published,
            state.epochs.state,
            local.context.clock,
            self._undo,
            gate.ensure_writable,
            state.producer_states,
        )
        self.apply_config(local.context.config)

    # ------------------------------------------------------------------------------- appending

    def append(self, run: MemoryRecords, wait: Wait) -> AppendInfo:
        """Append a run from a caller that was admitted (`AppendLane.admit`)."""
        lane = self.lane
        info = lane.append(run)
        if info is None or wait != "written" or lane.has_followers:
            return self.finish(run, info, wait)
        return info

    def finish(
        self,
        run: MemoryRecords,
        info: AppendInfo | None,
        wait: Wait,
        origin: AppendOrigin = _EMBEDDED,
        guard: int = NO_GUARD,
    ) -> AppendInfo:
        """
        Do what the fast path has left of an append.

        Args:
            run: the append.
            info: what the fast path returned; with None the run is appended here.
            wait: as for `Log.append`.
            origin: of the run.
            guard: of the verification that its transaction passed.

        Raises:
            ProducerStateError: a producer may not append this, or not now.
            KafkaLogError: the run does not fit the log, or the disk refused.
        """
        has_rolled = False
        if info is None:
            times = self._local.context.meters.disk.append
            started_ns = times.start_sample()
            with self._gate.writable():
                info, has_rolled = self._append_slow_path(run, origin, guard)
            times.end_sample(started_ns)
        self.follow_up(info, has_rolled=has_rolled, wait=wait)
        return info

    def abort_transaction(self, producer_id: int, wait: Wait) -> AppendInfo:
        """Append the marker that aborts a producer's open transaction."""
        self.lane.admit(wait)
        with self._gate.writable():
            marker = self._state.producers.abort_marker(producer_id)
            now_ms, origin = self._local.context.clock.now_ms(), AppendOrigin.COORDINATOR
            run = validate_as_leader(marker, self.lane.rules, now_ms, origin)
            info, has_rolled = self._append_slow_path(run, origin, NO_GUARD)
        self.follow_up(info, has_rolled=has_rolled, wait=wait)
        return info

    def ingest(self, path: str | PathLike[str], *, check_crc: bool = True) -> AppendInfo:
        """
        Make a file of encoded batches the last segment: it is renamed, not copied.

        For bulk data that was encoded outside the log, in format v2. Every CRC is checked, and
        each batch gets the next offsets and the leader epoch in place. Otherwise the batches are
        stored as they are: no setting recompresses them or asks for a key. Everything is on the
        disk when this returns.

        Args:
            path: on the file system of the log, and used by no one else. While the file exists
                the log does not have it, after any failure; once it is gone the log has it.
            check_crc: read all of it. False is for a caller that encoded the batches itself, and
                synced them since: their headers are still checked, one by one.

        Raises:
            CorruptRecordError: it is not whole batches with good CRCs; nothing was changed.
            InvalidRecordError: its batches leave out offsets, name producers or end transactions;
                or it is larger than `segment.bytes`, or its index than `segment.index.bytes`.
            UnsupportedForMessageFormatError: a batch, or the log, has an old format.
            DiskFullError, LogOfflineError, LogStorageError: as for `Log.append`.
        """
        self._gate.ensure_writable()
        local, epochs = self._local, self._state.epochs
        with storage_errors(Path(path), doing="reading"):
            file = inspect_file(local.context, Path(path), check_crc=check_crc)
        with self._gate.writable():
            before = local.snapshot
            first = before.end_offset
            if first > self._flusher.synced_offset:
                self._flusher.sync_all()
            if not epochs.is_current_flushed:
                with self._gate.mark_offline_on_error("assigning a leader epoch"):
                    epochs.assign_current(first)
            with self._gate.mark_offline_on_error("ingesting a file"):
                ingest_file(local, file, epochs.current)
            self._state.producers.on_roll(before)
            active = local.snapshot.segments.active
            info = AppendInfo(
                first,
                first + file.record_count - 1,
                file.record_count,
                len(file.batches),
                file.size_bytes,
                None,
                active.max_timestamp,
                active.offset_of_max_timestamp,
            )
            self._count(info)
        self.follow_up(info, has_rolled=True, wait="durable")
        return info

    def roll(self) -> LogSegment:
        """Start a new segment, unless the active one is empty; return the active segment."""
        gate = self._gate
        with gate.writable(), gate.mark_offline_on_error("rolling"), self._state.moving_start():
            segment = self._local.roll()
        self._flusher.flush_soon()
        return segment

    def _append_slow_path(
        self, run: MemoryRecords, origin: AppendOrigin, guard: int
    ) -> tuple[AppendInfo, bool]:
        """Append any run; return its AppendInfo, and whether a segment was begun."""
        local, epochs = self._local, self._state.epochs
        before = local.snapshot
        info: AppendInfo = assign_run_offsets(run, before.end_offset, epochs.current)
        if not run.batches:
            return info, False
        pending: PendingAppend | None = None
        if run.has_producers:
            pending = self._state.producers.begin(run, origin, guard)
            if pending.duplicates:
                is_log_append_time = self.lane.rules.is_log_append_time
                return (
                    duplicate_info(pending.duplicates, run, is_log_append_time=is_log_append_time),
                    False,
                )
        if not epochs.state.is_epoch_written(run):
            self._assign_epoch(run, info)
        if pending is not None:
            self._state.producers.announce(pending)
        try:
            has_rolled = local.append(run.data, run.batches)
        except BaseException as error:
            self._on_failed_write(error, pending)
            raise
        self._commit(pending, before, has_rolled)
        self._count(info)
        return info, has_rolled

    def _count(self, info: AppendInfo) -> None:
        """Count an append that the fast path has not counted; under the lock."""
        self._local.context.meters.counters.add_append(
            info.batch_count, info.record_count, info.size_bytes
        )

    def _commit(self, pending: PendingAppend | None, before: LogSnapshot, has_rolled: bool) -> None:
        if pending is not None:
            self._state.producers.commit(pending, before)
        elif has_rolled:
            self._state.producers.on_roll(before)

    def _assign_epoch(self, run: MemoryRecords, info: AppendInfo) -> None:
        """Write the epoch of a run to its file before the run is in the log."""
        epochs, magic = self._state.epochs, self.lane.rules.magic
        if run.needs_offsets and magic < MAGIC_V2 and epochs.is_empty:
            return
        with self._gate.mark_offline_on_error("assigning a leader epoch"):
            if not run.needs_offsets:
                epochs.assign_run(run)
            elif magic == MAGIC_V2:
                epochs.assign_current(info.first_offset)
            else:
                epochs.clear_and_flush()

    def _undo(self, error: BaseException) -> None:
        """Take back what a failed write of the fast path has left; under the lock."""
        try:
            self._local.undo_append(error)
        except BaseException as failure:
            self._on_failed_write(failure, None)
            raise
        self._on_failed_write(error, None)

    def _on_failed_write(self, error: BaseException, pending: PendingAppend | None) -> None:
        """Take back what was announced; raise a disk error as a typed one."""
        if pending is not None:
            self._state.producers.withdraw()
        context = self._local.context
        context.report(error)
        if isinstance(error, OSError):
            if isinstance(error, UndoFailedError):
                self._gate.mark_offline(error)
            raise translate(error, context.directory, doing="appending") from error

    def follow_up(self, info: AppendInfo, *, has_rolled: bool, wait: Wait) -> None:
        """Notify, and wait for the disk where the caller or `flush.messages` wants it; no lock."""
        if has_rolled:
            self._flusher.flush_soon()
        if self._watchers:
            self.notify_watchers()
        end_offset = info.last_offset + 1
        unflushed = end_offset - self._flusher.durable_offset
        if (wait == "durable" or unflushed >= self._flush_messages) and info.record_count:
            self._flusher.wait_until_durable(end_offset)

    # ---------------------------------------------------------------- settings and callbacks

    def apply_config(self, config: LogConfig) -> None:
        """Apply the settings of appends; under the lock, or before the log has another user."""
        self._flush_messages = config.flush_messages
        self._configure_lane(AppendRules.of(config))

    def _configure_lane(self, rules: AppendRules) -> None:
        counts = self._flush_messages < 2**63 - 1
        self.lane.configure(rules, counts or bool(self._watchers))

    def watch(self, on_change: Callable[[], object]) -> Callable[[], None]:
        """Register a callback for new data; return a function that unregisters it."""
        entry = (on_change,)  # compared by identity: one function may be given twice
        with self._gate.lock:
            self._watchers = (*self._watchers, entry)
            self._configure_lane(self.lane.rules)

        def unwatch() -> None:
            with self._gate.lock:
                self._watchers = tuple(each for each in self._watchers if each is not entry)
                self._configure_lane(self.lane.rules)

        return unwatch

    @property
    def watcher_count(self) -> int:
        """The number of registered callbacks."""
        return len(self._watchers)

    def notify_watchers(self) -> None:
        """Call the registered callbacks; without a lock."""
        for (on_change,) in self._watchers:
            try:
                on_change()
            except Exception:
                # An exception of a callback must not fail an append that was already published.
                logger.exception("%s: a change callback failed", self._local.context.directory)

    # ------------------------------------------------------------------------ record appenders

    def appender(self, options: RecordAppenderOptions) -> RecordAppender:
        """Return an appender of single records; see `Log.appender`."""
        self.lane.admit(options.wait)
        appender = RecordAppender(
            self.append,
            lambda: self.lane.rules,
            self._local.context.clock,
            self._scheduler,
            options,
            on_close=self._open_appenders.discard,
        )
        self._open_appenders.add(appender)
        return appender

    def close_appenders(self) -> None:
        """Write the records that wait in appenders, if possible: the log is closing."""
        for appender in list(self._open_appenders):
            try:
                appender.close()
            except KafkaLogError as error:
                logger.warning(
                    "%s: records of an appender are lost: %s", self._local.context.directory, error
                )
