"""Opening of logs on first use, reopening after a failure, closing.

Thread-safety: every method from any thread; the partition's lock is held. A log reports a failure
in the thread where it occurred, which may hold the log's lock, so the report waits for nothing.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from time import perf_counter_ns

from kafkalog.errors import (
    KafkaLogError,
    LogClosedError,
    LogOfflineError,
    LogStorageError,
    NotALogError,
    UnknownTopicOrPartitionError,
)
from kafkalog.files.names import (
    PARTITION_METADATA,
    FileState,
    partition_directory_name,
    try_parse_segment_file,
)
from kafkalog.log.checkpoint_store import FileCheckpointStore
from kafkalog.log.log import Log, partition_of
from kafkalog.log.opening import open_partition
from kafkalog.log.partition import LogEnvironment
from kafkalog.manager.checkpoint_store import DirectoryCheckpointStore
from kafkalog.manager.directory import DataDirectory, is_failure_of_disk
from kafkalog.manager.metrics.meters import ManagerMeters
from kafkalog.manager.open_log_limit import OpenLogLimit
from kafkalog.manager.registry import ManagedPartition
from kafkalog.manager.settings import TopicSettings
from kafkalog.manager.supervision import FaultRegistry
from kafkalog.model import TopicPartition

__all__ = ["DISK", "OPEN", "LogOpener"]

logger = logging.getLogger(__name__)

# Name of the fault of a log that cannot be opened, or refuses writes after a failure.
OPEN = "open"
# Name of the fault of a disk error in a call of an open log.
DISK = "disk"


class LogOpener:
    """
    Opens and closes the logs of a manager.

    Args:
        settings: settings of topics.
        environment_of: returns the dependencies of a partition's log.
        faults: gets failures.
        open_log_limit: limits the logs with files open for writing.
        on_error: called with a directory and an error of its disk. None to open logs read-only,
            which another process may be writing: errors of their disk are faults, and each look
            finds out which directories are offline.
        pause_cleaning: pauses the cleaning of a partition; a running cleaning ends first.
        meters: count and time the openings.
    """

    def __init__(
        self,
        settings: TopicSettings,
        environment_of: Callable[[ManagedPartition], LogEnvironment],
        faults: FaultRegistry,
        open_log_limit: OpenLogLimit,
        on_error: Callable[[DataDirectory, BaseException], object] | None,
        pause_cleaning: Callable[[TopicPartition], AbstractContextManager[object]],
        meters: ManagerMeters,
    ) -> None:
        self._settings = settings
        self._environment_of = environment_of
        self._faults = faults
        self._open_log_limit = open_log_limit
        self._on_error = _ignore if on_error is None else on_error
        self._pause_cleaning = pause_cleaning
        self._is_read_only = on_error is None
        self._meters = meters
        self._is_stopped = False

    def open(self, partition: ManagedPartition) -> Log:
        """
        Return the open log of a partition, which is opened if necessary.

        An offline log is closed and recovered if its directory is online.

        Raises:
            UnknownTopicOrPartitionError: it was deleted in the meantime.
            LogOfflineError: its directory is offline.
            KafkaLogError: it cannot be opened; the next call tries again.
        """
        log = partition.usable_log
        if log is not None:
            return log
        if partition.log is None:
            return self._reopen(partition)
        # A cleaning of the failed log may still be writing a file, which recovery would find.
        with self._pause_cleaning(partition.topic_partition):
            return self._reopen(partition)

    def stop(self) -> None:
        """Open no more logs; a log that is being opened can be closed when its lock is free."""
        self._is_stopped = True

    def on_offline(self, partition: ManagedPartition, error: BaseException) -> None:
        """Record that a log went offline."""
        if partition.is_gone:
            return
        self._faults.record_failure(OPEN, partition.topic_partition, error)
        self._on_error(partition.directory, error)

    def on_storage_error(self, partition: ManagedPartition, error: BaseException) -> None:
        """
        Record an error of the disk in a call of an open log.

        If the disk has failed, the first error is a fault of the partition and takes its directory
        offline. Errors of an offline directory are ignored.
        """
        if partition.is_gone or isinstance(error, LogOfflineError):
            return
        if is_failure_of_disk(error):
            self._faults.record_failure(DISK, partition.topic_partition, error)
        self._on_error(partition.directory, error)

    def on_directory_error(self, directory: DataDirectory, error: BaseException) -> None:
        """Report an error of a directory's disk to the directories."""
        self._on_error(directory, error)

    def close(self, partition: ManagedPartition) -> None:
        """
        Close the log of a partition in order, if it is open.

        Raises:
            LogStorageError: the disk refused; the log is released, and not in order.
        """
        with partition.lock:
            log = partition.remove_log()
            if log is None:
                return
            self._open_log_limit.remove(partition_of(log).open_files)
            try:
                log.close()
            except (OSError, LogStorageError) as error:
                self._faults.record_failure("close", partition.topic_partition, error)
                self._on_error(partition.directory, error)
                raise

    def release_idle(self, log: Log) -> None:
        """Release the files of a log that has not been used."""
        files = partition_of(log).open_files
        if files.try_release():
            self._open_log_limit.remove(files)

    def release(self, partition: ManagedPartition, error: BaseException | None = None) -> None:
        """Close the log of a partition without further writes; `error` is the reason."""
        with partition.lock:
            log = partition.remove_log()
            if log is None:
                return
            self._open_log_limit.remove(partition_of(log).open_files)
            if error is not None:
                partition_of(log).gate.mark_offline(error, notify=False)
            # Errors are ignored here: the disk failed before.
            with contextlib.suppress(OSError, KafkaLogError):
                log.close()

    def _reopen(self, partition: ManagedPartition) -> Log:
        with partition.lock:
            self._ensure_usable(partition)
            log = partition.usable_log
            if log is not None:
                return log
            self.release(partition)
            return self._open(partition)

    def _open(self, partition: ManagedPartition) -> Log:
        directory, name = partition.directory, partition.topic_partition
        started_ns = perf_counter_ns()
        is_recovered = not self._is_read_only and not directory.sessions.is_clean(str(name))
        try:
            store = DirectoryCheckpointStore.of(directory, name)
            if is_recovered:
                directory.journal.recover(str(name))
            opened = open_partition(
                # Only the writer may cache checkpoints.
                FileCheckpointStore(store.paths) if self._is_read_only else store,
                self._settings.config_of(name.topic),
                self._environment_of(partition),
                read_only=self._is_read_only,
            )
            log = Log(opened)
            if is_recovered:
                self._recover_records(partition, log)
        except (OSError, KafkaLogError) as error:
            if self._is_read_only and _is_missing(partition, error):
                # The next look finds out whether its writer has deleted it, or is creating it.
                raise UnknownTopicOrPartitionError(f"{name} has no log") from error
            self._meters.record_failed_opening()
            partition.record_error(error)
            self._faults.record_failure(OPEN, name, error)
            self._on_error(directory, error)
            raise
        if not opened.open_files.is_released:
            self._open_log_limit.add(opened.open_files)
        directory.journal.settle(str(name))
        partition.set_log(log)
        self._meters.disks[directory.path].open.observe(perf_counter_ns() - started_ns)
        self._meters.record_opening(log.recovery_report)
        self._faults.clear_error(OPEN, name)
        return log

    def _recover_records(self, partition: ManagedPartition, log: Log) -> None:
        """Append what the commit journal has of a log that was recovered; close it on an error."""
        try:
            partition.directory.journal.recover_records(str(partition.topic_partition), log)
        except BaseException as error:
            # Not closed in order: the next opening would not read the journal.
            partition_of(log).gate.mark_offline(error, notify=False)
            with contextlib.suppress(OSError, KafkaLogError):
                log.close()
            raise

    def _ensure_usable(self, partition: ManagedPartition) -> None:
        if self._is_stopped:
            raise LogClosedError("the manager is closed")
        if partition.is_gone:
            raise UnknownTopicOrPartitionError(f"{partition.topic_partition} was deleted")
        if not partition.directory.is_online:
            raise partition.directory.refusal()
        if partition.is_duplicate:
            assert partition.error is not None
            raise partition.error


def _is_missing(partition: ManagedPartition, error: BaseException) -> bool:
    """Return whether a log could not be opened because its writer deletes it, or creates it."""
    path = partition.directory.path / partition_directory_name(partition.topic_partition)
    try:
        names = partition.directory.filesystem.list(path)
    except OSError as second:
        return isinstance(second, FileNotFoundError)
    if not isinstance(error, NotALogError):
        return False
    # A directory without the files of a partition was listed; these may be there by now. Or it was
    # missing, and has been made again: then it has a segment.
    has_segment = any(try_parse_segment_file(name) is not None for name in names)
    return has_segment or all(map(_is_of_a_partition, names))


def _is_of_a_partition(name: str) -> bool:
    is_metadata = name in (PARTITION_METADATA, PARTITION_METADATA + FileState.TEMPORARY.value)
    return is_metadata or try_parse_segment_file(name) is not None


def _ignore(_directory: DataDirectory, _error: BaseException) -> None:
    """Leave a directory as it is."""
