"""Periodic tasks of a manager, with their subjects.

    kafka-log-retention                 for each partition: apply retention; the first run after
                                        an open also searches for missing offsets
    kafka-log-flusher                   for each partition without `flush.ms`
    kafka-recovery-point-checkpoint     for each directory: recovery points
    kafka-log-start-offset-checkpoint   for each directory: log starts; entries that equal the base
                                        of the first segment are removed
    replica-high-watermark-checkpoint   for each directory: high watermarks

Periods and the first delay are Kafka's settings; without `log.flush.scheduler.interval.ms`, the
flusher does not run. Each log has separate timers for `flush.ms` and for expired producers, on the
same scheduler and with the same fault registry.

Thread-safety: run by the supervisor; actions take the locks of what they work on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from kafkalog.errors import LogClosedError, LogOfflineError, UnknownTopicOrPartitionError
from kafkalog.log.log import Log, partition_of
from kafkalog.manager.directory import DataDirectory
from kafkalog.manager.registry import ManagedPartition, PartitionRegistry
from kafkalog.manager.supervision import Supervisor
from kafkalog.manager_config import ManagerConfig
from kafkalog.model import TopicPartition
from kafkalog.settings import LONG_MAX

__all__ = ["BackgroundTasks"]

RETENTION = "kafka-log-retention"
FLUSHER = "kafka-log-flusher"
RECOVERY_POINTS = "kafka-recovery-point-checkpoint"
START_OFFSETS = "kafka-log-start-offset-checkpoint"
HIGH_WATERMARKS = "replica-high-watermark-checkpoint"


class BackgroundTasks:
    """
    Actions of the periodic tasks.

    Args:
        registry: the partitions.
        directories: by path.
        open_log: returns the log of a partition, which it opens if necessary.
        on_error: called with a directory and an error of its disk.
        is_being_cleaned: returns whether a partition is being cleaned; retention skips it then.
    """

    def __init__(
        self,
        registry: PartitionRegistry,
        directories: Mapping[Path, DataDirectory],
        open_log: Callable[[ManagedPartition], Log],
        on_error: Callable[[DataDirectory, BaseException], object],
        is_being_cleaned: Callable[[TopicPartition], bool],
    ) -> None:
        self._registry = registry
        self._directories = directories
        self._open_log = open_log
        self._on_error = on_error
        self._is_left_alone = is_being_cleaned

    def start(self, supervisor: Supervisor, config: ManagerConfig) -> None:
        """Schedule the tasks; the first runs follow after `log.initial.task.delay.ms`."""
        delay_ms = config.log_initial_task_delay_ms
        supervisor.every(
            RETENTION,
            config.log_retention_check_interval_ms,
            self._usable_partitions,
            self.apply_retention,
            delay_ms=delay_ms,
        )
        if config.log_flush_scheduler_interval_ms < LONG_MAX:
            supervisor.every(
                FLUSHER,
                config.log_flush_scheduler_interval_ms,
                self._usable_partitions,
                self.flush,
                delay_ms=delay_ms,
            )
        for name, period_ms, action in (
            (
                RECOVERY_POINTS,
                config.log_flush_offset_checkpoint_interval_ms,
                self.write_recovery_points,
            ),
            (
                START_OFFSETS,
                config.log_flush_start_offset_checkpoint_interval_ms,
                self.write_start_offsets,
            ),
            (
                HIGH_WATERMARKS,
                config.replica_high_watermark_checkpoint_interval_ms,
                self.write_high_watermarks,
            ),
        ):
            supervisor.every(name, period_ms, self._online, action, delay_ms=delay_ms)

    def apply_retention(self, name: TopicPartition) -> None:
        """
        Apply retention to one partition, unless it is being cleaned.

        A cleaning whose segments are deleted has no result. Once after each open, the ends of the
        remaining segments are checked, so that `health()` reports holes that no reader has reached.
        """
        if self._is_left_alone(name):
            return
        try:
            partition = self._registry.get(name)
            log = self._open_log(partition)
            if log.apply_retention():
                # Otherwise the checkpoint would keep a line for each log with deleted segments, and
                # be written for each of them.
                partition_of(log).truncator.drop_log_start_checkpoint()
            log.find_holes()
        except (UnknownTopicOrPartitionError, LogClosedError, LogOfflineError):
            # Deleted, closed or failed in the meantime; a failure is reported where it occurred.
            return

    def flush(self, name: TopicPartition) -> None:
        """Flush one partition if its log is open, has no `flush.ms`, and has unsynced records."""
        with contextlib.suppress(UnknownTopicOrPartitionError, LogClosedError, LogOfflineError):
            log = self._registry.get(name).usable_log
            if log is None or log.config.flush_ms < LONG_MAX:
                return
            if log.log_end_offset > partition_of(log).flusher.synced_offset:
                log.flush()

    def write_recovery_points(self, path: Path) -> None:
        """Write the recovery points of a directory."""
        directory = self._directories[path]
        for log in self._open_logs(directory):
            partition_of(log).flusher.checkpoint_recovery_point()
        self._write(directory, directory.checkpoints.recovery_points.write)

    def write_start_offsets(self, path: Path) -> None:
        """Write the log starts of a directory."""
        directory = self._directories[path]
        notes = directory.checkpoints.start_offsets
        for log in self._open_logs(directory):
            if notes.get(log.topic_partition) is not None:
                partition_of(log).truncator.drop_log_start_checkpoint()
        self._write(directory, notes.write)

    def write_high_watermarks(self, path: Path) -> None:
        """Write the high watermarks of a directory."""
        directory = self._directories[path]
        self.record_high_watermarks(directory)
        self._write(directory, directory.write_high_watermarks)

    def record_high_watermarks(self, directory: DataDirectory) -> None:
        """Cache the high watermarks of the open logs."""
        notes = directory.checkpoints.high_watermarks
        for log in self._open_logs(directory):
            with contextlib.suppress(LogClosedError):
                notes.set(log.topic_partition, log.high_watermark)

    def _open_logs(self, directory: DataDirectory) -> Iterable[Log]:
        for partition in self._registry.in_directory(directory):
            log = partition.usable_log
            if log is not None:
                yield log

    def _usable_partitions(self) -> list[TopicPartition]:
        return [
            partition.topic_partition
            for partition in self._registry.all()
            if partition.directory.is_online and not partition.is_duplicate
        ]

    def _online(self) -> list[Path]:
        return [path for path, directory in self._directories.items() if directory.is_online]

    def _write(self, directory: DataDirectory, action: Callable[[], object]) -> None:
        if not directory.is_online:
            return
        try:
            # Otherwise the files would be created in a new directory of this name.
            directory.ensure_there()
            action()
        except Exception as error:
            self._on_error(directory, error)
            raise
