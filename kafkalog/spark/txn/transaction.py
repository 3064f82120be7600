"""`SinkTransaction`: all records of a transaction get into their logs, exactly once.

Steps of a commit:

  1. acquire the sink's lock, at which sinks wait for each other; then the data directory's, as its
  manager: no other process writes to its logs, and an embedded writer that has it is an error;
  2. finish an earlier intent;
  3. skip a transaction that the ledger has, or one before the latest of its application, and remove
  its files;
  4. run all checks that may refuse: missing files, records that a topic does not allow; make
  missing partitions;
  5. write the intent to the disk, with the offset of every file. *This is the commit*;
  6. execute the intent (`intent_executor`);
  7. write the ledger, remove the intent, and remove the staged files.

Crash points: before 5 is on the disk nothing has happened but topics without records, and a
repetition starts from the beginning. From then on the next sink with a transaction here finishes
this one first. After a crash between the steps of 7 the ledger shows that nothing is left to be
done.

An abort removes the given files, unless intent or ledger has the transaction: Spark aborts also
after a commit that raised when it was published.

Thread-safety: every method from any thread and process; they wait for each other.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafkalog.clock import Clock, SystemClock
from kafkalog.config import LogConfig
from kafkalog.errors import CorruptStateError, KafkaLogError, LogLockedError
from kafkalog.files.directories import make_directories
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileLock, FileSystem
from kafkalog.files.posix import PosixFileSystem
from kafkalog.manager.manager import LogManager
from kafkalog.manager_config import ManagerConfig
from kafkalog.scheduler import ScheduledTask
from kafkalog.spark.errors import KafkaLogSparkError, of_engine
from kafkalog.spark.txn.commit_checks import ensure_acceptable, ensure_staged, make_partitions
from kafkalog.spark.txn.intent_executor import IntentExecutor
from kafkalog.spark.txn.model import Intent, IntentEntry, StagedFile, TransactionId
from kafkalog.spark.txn.staging import StagingArea
from kafkalog.spark.txn.state import LOCK_FILE, SinkState

__all__ = ["CommitReport", "SinkOptions", "SinkTransaction"]

_LOCK_WAIT_MS: Final = 120_000
_LOCK_PAUSE_S: Final = 0.02
_ORPHAN_AGE_MS: Final = 24 * 3_600_000

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CommitReport:
    """
    Result of a commit.

    Attributes:
        transaction: its identity.
        record_count: published by it; 0 if it was committed before.
        was_committed: True if it was committed before.
        recovered: the transaction that was finished first, None without one.
        ranges: the offsets in each log.
    """

    transaction: TransactionId
    record_count: int
    was_committed: bool
    recovered: TransactionId | None
    ranges: tuple[dict[str, object], ...] = ()


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """
    Options of a sink.

    Attributes:
        staging_directory: directory for staging, in the data directory if None.
        segment_bytes: `segment.bytes` of new topics, and of topics without it.
        orphan_age_ms: age from which uncommitted transactions without a write are removed.
        lock_wait_ms: how long to wait for other sinks.
        pause: waits for a number of seconds.
    """

    staging_directory: Path | None = None
    segment_bytes: int | None = None
    orphan_age_ms: int = _ORPHAN_AGE_MS
    lock_wait_ms: int = _LOCK_WAIT_MS
    pause: Callable[[float], object] = time.sleep


class SinkTransaction:
    """
    One transaction of the sink on a data directory.

    Args:
        directory: the data directory; made if it does not exist.
        transaction: its identity.
        options: of the sink; the defaults if None.
        filesystem, clock: the machine's if None.
    """

    def __init__(
        self,
        directory: Path,
        transaction: TransactionId,
        options: SinkOptions | None = None,
        *,
        filesystem: FileSystem | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.directory = directory
        self.transaction = transaction
        self._filesystem = PosixFileSystem() if filesystem is None else filesystem
        self._clock = SystemClock() if clock is None else clock
        self._options = SinkOptions() if options is None else options
        self.staging = StagingArea(self._filesystem, directory, self._options.staging_directory)

    def __repr__(self) -> str:
        return f"<SinkTransaction {self.transaction} on {self.directory}>"

    def commit(
        self, files: Sequence[StagedFile], *, emptied_topics: Iterable[str] = ()
    ) -> CommitReport:
        """
        Publish staged files, unless that was done; on the disk when this returns.

        Args:
            files: of the successful attempts.
            emptied_topics: topics whose older records are deleted.

        Raises:
            KafkaLogSparkError: LOCKED, TXN_CONFLICT, and refusals by settings of the topics:
                nothing was published. STORAGE and others: it may be committed; the next transaction
                then finishes it, and another `commit` of this one reports that it was committed.
        """
        with self._alone() as state:
            intent = state.read_intent()
            if state.is_committed(self.transaction) and intent is None:
                return self._skipped_report(None)
            if intent is None and not files and not emptied_topics:
                nothing = Intent(self.transaction, state.epoch, self._clock.now_ms(), ())
                return self._finish(state, nothing, None)
            with self._managing() as manager:
                recovered = self._recover(state, manager)
                if state.is_committed(self.transaction):
                    return self._skipped_report(recovered)
                intent = self._prepare(state, manager, files, list(emptied_topics))
                state.write_intent(intent)
                applier = IntentExecutor(self._filesystem, manager, state, intent)
                applier.apply()
                return self._finish(state, applier.intent, recovered)

    def abort(self, files: Iterable[StagedFile]) -> bool:
        """
        Remove staged files, unless the transaction is committed; return True if it is not.

        A failure to find out leaves the files to a sweep.
        """
        with self._alone() as state:
            intent = state.read_intent()
            if intent is not None and intent.transaction == self.transaction:
                return False
            if state.is_committed(self.transaction):
                return False
            self.staging.discard_files(file.path for file in files)
            return True

    def recover(self) -> TransactionId | None:
        """Finish an intent that a crash has left, and sweep; return the finished transaction."""
        with self._alone() as state:
            recovered = None
            if state.read_intent() is not None:
                with self._managing() as manager:
                    recovered = self._recover(state, manager)
            self.staging.sweep(self._clock.now_ms(), self._options.orphan_age_ms)
            return recovered

    # ---------------------------------------------------------------------------------- private

    def _recover(self, state: SinkState, manager: LogManager) -> TransactionId | None:
        """Finish the present intent, if there is one."""
        intent = state.read_intent()
        if intent is None:
            return None
        for entry in intent.entries:
            if not self.staging.owns(entry.path):
                raise CorruptStateError(
                    f"{self.directory}: the sink's intent names {entry.path}, which is not in its"
                    " staging directory: nothing was changed",
                    path=self.directory,
                )
        if not state.is_committed(intent.transaction):
            logger.warning("%s: finishing transaction %s", self.directory, intent.transaction)
            applier = IntentExecutor(self._filesystem, manager, state, intent)
            applier.apply()
            intent = applier.intent
            state.record_committed(intent, self._clock.now_ms(), self._options.orphan_age_ms)
        state.remove_intent()
        self._discard(intent)
        return intent.transaction

    def _prepare(
        self,
        state: SinkState,
        manager: LogManager,
        files: Sequence[StagedFile],
        emptied_topics: Sequence[str],
    ) -> Intent:
        """Check the files, make missing partitions, and return the intent."""
        now_ms = self._clock.now_ms()
        data_files = sorted(
            (file for file in files if file.record_count), key=lambda each: each.order
        )
        ensure_staged(self._filesystem, self.transaction, data_files, self.staging)
        make_partitions(manager, data_files, self._options.segment_bytes)
        ends: dict[tuple[str, int], int] = {}
        entries = []
        for file in data_files:
            name = file.topic_partition
            if name not in ends:
                ends[name] = manager.log(*name).log_end_offset
            entries.append(
                IntentEntry(
                    file.path, *name, base_offset=ends[name], record_count=file.record_count
                )
            )
            ends[name] += file.record_count
        ensure_acceptable(manager, data_files, now_ms)
        topics = manager.topics()
        emptied = tuple(
            (topic, number, manager.log(topic, number).log_end_offset)
            for topic in dict.fromkeys(emptied_topics)
            for number in topics.get(topic, ())
        )
        return Intent(self.transaction, state.epoch, now_ms, tuple(entries), emptied)

    def _finish(
        self, state: SinkState, intent: Intent, recovered: TransactionId | None
    ) -> CommitReport:
        """Write the ledger, and remove intent and staged files."""
        now_ms = self._clock.now_ms()
        state.record_committed(intent, now_ms, self._options.orphan_age_ms)
        if intent.entries or intent.emptied:
            state.remove_intent()
        self._discard(intent)
        self.staging.sweep(now_ms, self._options.orphan_age_ms)
        count = sum(entry.record_count for entry in intent.entries)
        return CommitReport(
            self.transaction, count, was_committed=False, recovered=recovered,
            ranges=tuple(intent.ranges()),
        )  # fmt: skip

    def _skipped_report(self, recovered: TransactionId | None) -> CommitReport:
        logger.info("%s: transaction %s is committed already", self.directory, self.transaction)
        self.staging.discard(self.transaction)
        return CommitReport(self.transaction, 0, was_committed=True, recovered=recovered)

    def _discard(self, intent: Intent) -> None:
        """Remove the staged files, wherever they were staged."""
        self.staging.discard_files(entry.path for entry in intent.entries)
        self.staging.discard(intent.transaction)

    @contextmanager
    def _alone(self) -> Iterator[SinkState]:
        """Hold the sinks' lock; the errors of the engine become those that Spark shows."""
        try:
            with storage_errors(self.directory, doing="opening the data directory"):
                make_directories(self._filesystem, self.directory)
            lock = self._lock()
            try:
                state = SinkState(self._filesystem, self.directory)
                state.begin_session()
                yield state
            finally:
                lock.release()
        except KafkaLogSparkError:
            raise
        except KafkaLogError as error:
            raise of_engine(error, transaction=str(self.transaction)) from error

    def _lock(self) -> FileLock:
        """Wait for the lock that sinks have among themselves."""
        path = self.directory / LOCK_FILE
        deadline_ms = self._clock.monotonic_ms() + self._options.lock_wait_ms
        while True:
            with storage_errors(path, doing="locking"):
                lock = self._filesystem.lock(path)
            if lock is not None:
                return lock
            if self._clock.monotonic_ms() >= deadline_ms:
                raise LogLockedError(
                    f"{path}: another sink has had it for {self._options.lock_wait_ms} ms",
                    path=path,
                )
            self._options.pause(_LOCK_PAUSE_S)

    @contextmanager
    def _managing(self) -> Iterator[LogManager]:
        """Yield the manager of the data directory, without background tasks."""
        size = (
            LogConfig().segment_bytes
            if self._options.segment_bytes is None
            else self._options.segment_bytes
        )
        manager = LogManager(
            [self.directory],
            ManagerConfig(log=LogConfig(segment_bytes=size)),
            clock=self._clock,
            scheduler=_NoScheduler(),
            filesystem=self._filesystem,
        )
        with manager:
            yield manager


class _NoScheduler:
    """A scheduler that runs nothing: no background task of a sink deletes or compacts."""

    def schedule(
        self,
        name: str,
        task: Callable[[], object],
        *,
        delay_ms: int,  # noqa: ARG002 - it never comes
        period_ms: int | None = None,
    ) -> ScheduledTask:
        """Return a task that never runs."""
        return ScheduledTask(name, task, period_ms)
