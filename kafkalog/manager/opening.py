"""One partition's log: opened when it is first asked for, opened again after a failure, closed.

Thread-safety: everything from any thread; the partition's lock is held. What a log tells of a
failure comes from the thread that met it, which may hold the log's lock: it is passed on without
waiting for anything.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager

from kafkalog.errors import (
    KafkaLogError,
    LogClosedError,
    LogOfflineError,
    LogStorageError,
    UnknownTopicOrPartitionError,
)
from kafkalog.log.log import Log, partition_of
from kafkalog.log.opening import open_partition
from kafkalog.log.partition import LogEnvironment
from kafkalog.manager.checkpoint_store import DirectoryCheckpointStore
from kafkalog.manager.directory import DataDirectory, is_failure_of_disk
from kafkalog.manager.open_log_limit import OpenLogLimit
from kafkalog.manager.registry import ManagedPartition
from kafkalog.manager.settings import TopicSettings
from kafkalog.manager.supervision import FaultRegistry
from kafkalog.model import TopicPartition

__all__ = ["DISK", "OPEN", "LogOpener"]

logger = logging.getLogger(__name__)

# What the fault registry calls the opening of a log, and a log that takes no more writes.
OPEN = "open"
# What it calls an error of the disk in a call of an open log.
DISK = "disk"


class LogOpener:
    """
    Opens and closes the logs of a manager.

    Args:
        settings: what topics say.
        environment_of: returns what the log of a partition is given.
        faults: gets what goes wrong.
        open_log_limit: bounds how many logs hold files open for writing.
        on_error: called with a directory and an error that its disk answered with.
        pause_cleaning: keeps a partition from being cleaned; what goes on ends first.
    """

    def __init__(
        self,
        settings: TopicSettings,
        environment_of: Callable[[ManagedPartition], LogEnvironment],
        faults: FaultRegistry,
        open_log_limit: OpenLogLimit,
        on_error: Callable[[DataDirectory, BaseException], object],
        pause_cleaning: Callable[[TopicPartition], AbstractContextManager[object]],
    ) -> None:
        self._settings = settings
        self._environment_of = environment_of
        self._faults = faults
        self._open_log_limit = open_log_limit
        self._on_error = on_error
        self._pause_cleaning = pause_cleaning
        self._is_stopped = False

    def open(self, partition: ManagedPartition) -> Log:
        """
        Return the open log of a partition, opening it where it is not.

        A log that latched is let go and recovered, where its directory is online.

        Raises:
            UnknownTopicOrPartitionError: it was deleted meanwhile.
            LogOfflineError: its directory is offline.
            KafkaLogError: it cannot be opened; tried again with the next call.
        """
        log = partition.usable_log
        if log is not None:
            return log
        if partition.log is None:
            return self._reopen(partition)
        # Whoever cleans the log that failed may yet have a file of it under way, which a recovery
        # would meet.
        with self._pause_cleaning(partition.topic_partition):
            return self._reopen(partition)

    def stop(self) -> None:
        """Open no more logs; those that are being opened may be closed when their lock is free."""
        self._is_stopped = True

    def on_offline(self, partition: ManagedPartition, error: BaseException) -> None:
        """Take note that a log takes no more writes."""
        if partition.is_gone:
            return
        self._faults.record_failure(OPEN, partition.topic_partition, error)
        self._on_error(partition.directory, error)

    def on_storage_error(self, partition: ManagedPartition, error: BaseException) -> None:
        """
        Take note of an error that the disk answered a call of an open log with.

        Where the disk has failed that is a fault of the partition, and takes its directory offline
        at the first one. What a directory that is offline answers is no news.
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
        Close the log of a partition in order, where it is open.

        Raises:
            LogStorageError: the disk refused; the log is let go, and not in order.
        """
        with partition.lock:
            log = partition.remove_log()
            if log is None:
                return
            self._open_log_limit.remove(partition_of(log).idle_files)
            try:
                log.close()
            except (OSError, LogStorageError) as error:
                self._faults.record_failure("close", partition.topic_partition, error)
                self._on_error(partition.directory, error)
                raise

    def release_idle(self, log: Log) -> None:
        """Let a log go to rest that nobody has asked for yet."""
        files = partition_of(log).idle_files
        if files.try_release():
            self._open_log_limit.remove(files)

    def release(self, partition: ManagedPartition, error: BaseException | None = None) -> None:
        """Let the log of a partition go as it is, writing nothing more; `error` says why."""
        with partition.lock:
            log = partition.remove_log()
            if log is None:
                return
            self._open_log_limit.remove(partition_of(log).idle_files)
            if error is not None:
                partition_of(log).gate.mark_offline(error, notify=False)
            # Whatever happens here, the disk has failed before.
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
        try:
            opened = open_partition(
                DirectoryCheckpointStore.of(directory, name),
                self._settings.config_of(name.topic),
                self._environment_of(partition),
            )
        except (OSError, KafkaLogError) as error:
            partition.record_error(error)
            self._faults.record_failure(OPEN, name, error)
            self._on_error(directory, error)
            raise
        if not opened.idle_files.is_released:
            self._open_log_limit.add(opened.idle_files)
        log = Log(opened)
        partition.set_log(log)
        self._faults.clear_error(OPEN, name)
        return log

    def _ensure_usable(self, partition: ManagedPartition) -> None:
        if self._is_stopped:
            raise LogClosedError("the manager is closed")
        if partition.is_gone:
            raise UnknownTopicOrPartitionError(f"{partition.topic_partition} is no longer there")
        if not partition.directory.is_online:
            raise partition.directory.refusal()
        if partition.is_duplicate:
            assert partition.error is not None
            raise partition.error
