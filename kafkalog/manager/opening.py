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
from kafkalog.log.log import Log
from kafkalog.log.opening import open_at_home
from kafkalog.log.surroundings import Surroundings
from kafkalog.manager.awake import AwakeLogs
from kafkalog.manager.directory import DataDirectory, is_failure_of_disk
from kafkalog.manager.registry import ManagedPartition
from kafkalog.manager.settings import TopicSettings
from kafkalog.manager.supervision import Ledger
from kafkalog.model import TopicPartition

__all__ = ["DISK", "OPEN", "LogOpener"]

logger = logging.getLogger(__name__)

# What the ledger calls the opening of a log, and a log that takes no more writes.
OPEN = "open"
# What it calls an error of the disk in a call of an open log.
DISK = "disk"


class LogOpener:
    """
    Opens and closes the logs of a manager.

    Args:
        settings: what topics say.
        surroundings: returns what the log of a partition is given.
        ledger: gets what goes wrong.
        awake: bounds how many logs hold files open for writing.
        on_error: called with a directory and an error that its disk answered with.
        undisturbed: keeps a partition from being cleaned; what goes on ends first.
    """

    def __init__(
        self,
        settings: TopicSettings,
        surroundings: Callable[[ManagedPartition], Surroundings],
        ledger: Ledger,
        awake: AwakeLogs,
        on_error: Callable[[DataDirectory, BaseException], object],
        undisturbed: Callable[[TopicPartition], AbstractContextManager[object]],
    ) -> None:
        self._settings = settings
        self._surroundings = surroundings
        self._ledger = ledger
        self._awake = awake
        self._on_error = on_error
        self._undisturbed = undisturbed
        self._is_shut = False

    def opened(self, partition: ManagedPartition) -> Log:
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
            return self._opened_anew(partition)
        # Whoever cleans the log that failed may yet have a file of it under way, which a recovery
        # would meet.
        with self._undisturbed(partition.topic_partition):
            return self._opened_anew(partition)

    def shut(self) -> None:
        """Open no more logs; those that are being opened may be closed when their lock is free."""
        self._is_shut = True

    def failed(self, partition: ManagedPartition, error: BaseException) -> None:
        """Take note that a log takes no more writes."""
        if partition.is_gone:
            return
        self._ledger.failed(OPEN, partition.topic_partition, error)
        self._on_error(partition.directory, error)

    def met(self, partition: ManagedPartition, error: BaseException) -> None:
        """
        Take note of an error that the disk answered a call of an open log with.

        Where the disk has failed that is a fault of the partition, and takes its directory offline
        at the first one. What a directory that is offline answers is no news.
        """
        if partition.is_gone or isinstance(error, LogOfflineError):
            return
        if is_failure_of_disk(error):
            self._ledger.failed(DISK, partition.topic_partition, error)
        self._on_error(partition.directory, error)

    def close(self, partition: ManagedPartition) -> None:
        """
        Close the log of a partition in order, where it is open.

        Raises:
            LogStorageError: the disk refused; the log is let go, and not in order.
        """
        with partition.lock:
            log, partition.log = partition.log, None
            if log is None:
                return
            self._awake.forget(log)
            try:
                log.close()
            except (OSError, LogStorageError) as error:
                self._ledger.failed("close", partition.topic_partition, error)
                self._on_error(partition.directory, error)
                raise

    def rest(self, log: Log) -> None:
        """Let a log go to rest that nobody has asked for yet."""
        if log.try_rest():
            self._awake.forget(log)

    def let_go(self, partition: ManagedPartition, error: BaseException | None = None) -> None:
        """Let the log of a partition go as it is, writing nothing more; `error` says why."""
        with partition.lock:
            log, partition.log = partition.log, None
            if log is None:
                return
            self._awake.forget(log)
            if error is not None:
                log.take_offline(error)
            # Whatever happens here, the disk has failed before.
            with contextlib.suppress(OSError, KafkaLogError):
                log.close()

    def _opened_anew(self, partition: ManagedPartition) -> Log:
        with partition.lock:
            self._ensure_usable(partition)
            log = partition.usable_log
            if log is not None:
                return log
            self.let_go(partition)
            return self._open(partition)

    def _open(self, partition: ManagedPartition) -> Log:
        directory, name = partition.directory, partition.topic_partition
        try:
            log = open_at_home(
                directory.home_of(name),
                self._settings.config_of(name.topic),
                self._surroundings(partition),
            )
        except (OSError, KafkaLogError) as error:
            partition.error = error
            self._ledger.failed(OPEN, name, error)
            self._on_error(directory, error)
            raise
        if not log.is_resting:
            self._awake.woke(log)
        partition.log, partition.error = log, None
        self._ledger.went_well(OPEN, name)
        return log

    def _ensure_usable(self, partition: ManagedPartition) -> None:
        if self._is_shut:
            raise LogClosedError("the manager is closed")
        if partition.is_gone:
            raise UnknownTopicOrPartitionError(f"{partition.topic_partition} is no longer there")
        if not partition.directory.is_online:
            raise partition.directory.refusal()
        if partition.is_blocked:
            assert partition.error is not None
            raise partition.error
