"""`LogManager`: facade over the partitions of many topics in many data directories.

A manager owns its directories: their locks, identities, checkpoints and shutdown markers. After a
clean stop, a start reads only the files of the directories, and each log is opened by its first
use. After any other stop, several threads recover all logs during the start.

A disk that fails takes only its own directory offline: logs in it refuse writes, stay readable if
the disk permits, and return with `bring_online`. A full disk takes no directory offline. A
partition that cannot be opened is reported by `health()`; the others work.

Thread-safety: every method from any thread. After `fork`, the child has no manager: its logs refuse
writes, and it must make a manager itself.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, TypedDict, Unpack

from kafkalog.cleaner.cleaning import CleaningProgress, CleaningResult
from kafkalog.cleaner.explain import CompactionExplanation
from kafkalog.cleaner.plan_model import CompactionPlan
from kafkalog.clients.clients import Clients, OpenPositions
from kafkalog.clients.consumer import Consumer, LostRecords
from kafkalog.clients.internal_topics import InternalTopicSettings
from kafkalog.clients.positions_file import PositionsFile
from kafkalog.clients.producer import OnFull, Producer
from kafkalog.clock import Clock, SystemClock
from kafkalog.closing import ClosingContextManager, warn_unless_closed
from kafkalog.config import LogConfig
from kafkalog.errors import (
    ConfigError,
    KafkaLogError,
    LogClosedError,
    UnknownTopicOrPartitionError,
)
from kafkalog.files.directories import Paths
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.pool import FilePool
from kafkalog.files.posix import PosixFileSystem
from kafkalog.log.deletion import SegmentDeletion
from kafkalog.log.log import Log, Wait, partition_of
from kafkalog.log.partition import LogEnvironment
from kafkalog.log.reader import LogReader
from kafkalog.log.reading import OnCorrupt
from kafkalog.log.retention import RetentionPolicy
from kafkalog.log.scan.options import ScanArguments, make_options
from kafkalog.log.scan.scan import Scan, ScannedLog
from kafkalog.manager.background import BackgroundThreads
from kafkalog.manager.background_tasks import BackgroundTasks
from kafkalog.manager.cleaning.compaction import Compaction
from kafkalog.manager.cleaning.health import CleanerHealth
from kafkalog.manager.cleaning.states import CleaningStates
from kafkalog.manager.delayed_commits import DELAYED_APPEND, DelayedCommits
from kafkalog.manager.deleted_directories import DeletedDirectories
from kafkalog.manager.directory import DataDirectory
from kafkalog.manager.directory_group import DirectoryGroup, as_directories
from kafkalog.manager.followed_directories import FollowedDirectories
from kafkalog.manager.group_commit import DirectoryCommitters
from kafkalog.manager.health import (
    FULL,
    READ,
    HealthFinding,
    ManagerHealth,
    TaskHealth,
    damage,
    late_transactions,
    recoveries,
    repaired,
)
from kafkalog.manager.health_rules import (
    cleaner_stuck,
    full_disks,
    retention_overdue,
    slow_disks,
)
from kafkalog.manager.manager_gate import ManagerGate
from kafkalog.manager.metrics.collector import MetricsCollector, MetricsSources
from kafkalog.manager.metrics.disk_space import free_space
from kafkalog.manager.metrics.meters import ManagerMeters
from kafkalog.manager.metrics.partitions import PartitionReader
from kafkalog.manager.metrics.snapshot import MetricsSnapshot
from kafkalog.manager.moving import PartitionMover
from kafkalog.manager.open_log_limit import OpenLogLimit, default_open_log_limit
from kafkalog.manager.opening import LogOpener
from kafkalog.manager.recovery import RecoveryProgress
from kafkalog.manager.registry import ManagedPartition, PartitionRegistry
from kafkalog.manager.settings import TopicSettings
from kafkalog.manager.supervision import Supervisor
from kafkalog.manager.topics import TopicAdministration
from kafkalog.manager_config import ManagerConfig
from kafkalog.model import LoweredEpochs, TopicPartition
from kafkalog.scheduler import Scheduler, ThreadScheduler
from kafkalog.settings import ConfigChange
from kafkalog.topic_configs import TopicConfigs

__all__ = ["LogManager", "ManagerOptions"]

logger = logging.getLogger(__name__)


class ManagerOptions(TypedDict, total=False):
    """Keyword arguments of `LogManager`; its docstring has their meaning."""

    read_only: bool
    topic_configs: TopicConfigs | None
    clock: Clock | None
    scheduler: Scheduler | None
    filesystem: FileSystem | None
    retention: Sequence[RetentionPolicy] | None
    on_progress: Callable[[RecoveryProgress], object] | None
    on_deletion: Callable[[SegmentDeletion], object] | None
    cluster_id: str | None
    node_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dependencies:
    """Keyword arguments with their defaults; an unknown name is a TypeError."""

    read_only: bool = False
    topic_configs: TopicConfigs | None = None
    clock: Clock | None = None
    scheduler: Scheduler | None = None
    filesystem: FileSystem | None = None
    retention: Sequence[RetentionPolicy] | None = None
    on_progress: Callable[[RecoveryProgress], object] | None = None
    on_deletion: Callable[[SegmentDeletion], object] | None = None
    cluster_id: str | None = None
    node_id: int | None = None

    def __post_init__(self) -> None:
        if not self.read_only:
            return
        for name in ("topic_configs", "retention", "on_progress", "on_deletion"):
            if getattr(self, name) is not None:
                raise ConfigError(
                    f"{name} must be None for a read-only manager: nothing is changed"
                )


class LogManager(ClosingContextManager):
    """
    Partitions of many topics in many data directories.

    >>> with kafkalog.LogManager([tmp / "data"]) as manager:
    ...     manager.create_topic("orders", 3, {"retention.ms": "-1"})
    ...     info = manager.log("orders", 0).append([Record(key=b"k", value=b"v")])

    Args:
        directories: data directories, one path or several; a missing directory is created. If
            empty, `log.dirs` of the config.
        config: settings; Kafka's defaults if None.
        read_only: read directories that another process writes, a broker or a program with
            kafkalog: nothing is locked, created or changed, partitions come and go, and every
            change is refused. Without `topic_configs`, `retention` and the callbacks.
        topic_configs: settings of topics that differ from the defaults. They replace the stored
            settings of these topics; without `config`, their defaults become `config.log`.
        clock: source of time; the clock of the machine if None.
        scheduler: runs background work; if None, the manager starts `background.threads` threads.
        filesystem: the disk; the file system of the machine if None.
        retention: policies for all logs, instead of the sizes and times in their settings.
        on_progress: called with each partition that is recovered during the start.
        on_deletion: called with each segment that left its log, by the thread that deleted it.
        cluster_id, node_id: required values of `meta.properties`; if None, the values of the files
            count, or new ones are created.

    Raises:
        LogLockedError: another process or manager has one of the directories.
        ConfigError: the directories contradict each other, the settings break a rule of Kafka, or
            an argument has no meaning for a read-only manager.
        LogStorageError, CorruptStateError: no directory could be opened.

    Thread-safety: every method from any thread.
    """

    def __init__(
        self,
        directories: Paths = (),
        config: ManagerConfig | None = None,
        **options: Unpack[ManagerOptions],
    ) -> None:
        dependencies = _Dependencies(**options)
        config = _config_of(config, dependencies.topic_configs)
        self._filesystem = (
            PosixFileSystem() if dependencies.filesystem is None else dependencies.filesystem
        )
        self._clock = clock = SystemClock() if dependencies.clock is None else dependencies.clock
        self._retention = None if dependencies.retention is None else tuple(dependencies.retention)
        self._on_deletion = dependencies.on_deletion
        self._cleaning_states = states = CleaningStates()
        self._gate = ManagerGate(states, is_read_only=dependencies.read_only)
        self._clients = self._make_clients(config, dependencies.scheduler)
        scheduler = self._make_scheduler(dependencies.scheduler, config.background_threads)
        self._supervisor = supervisor = Supervisor(scheduler, clock)
        self._registry = registry = PartitionRegistry()
        self._settings = settings = TopicSettings(config, clock, self._on_directory_error)
        self._directories = group = DirectoryGroup(
            as_directories(directories or config.log_dirs, self._filesystem),
            registry,
            settings,
            supervisor.faults,
            clock,
            on_progress=dependencies.on_progress,
        )
        self._meters = meters = ManagerMeters(group.by_path, registry.__contains__)
        self._pool, self._open_log_limit = _make_pool(self._filesystem, config.log)
        self._opener = opener = LogOpener(
            settings,
            self._environment_of,
            supervisor.faults,
            self._open_log_limit,
            None if dependencies.read_only else group.on_error,
            states.paused,
            meters,
        )
        self._followed: FollowedDirectories | None = None
        self._deleted_directories = deleted = DeletedDirectories(
            self._filesystem, supervisor, group.is_usable, group.on_error_at
        )
        self._topics = TopicAdministration(
            group, registry, settings, opener, deleted, supervisor.faults
        )
        self._mover = PartitionMover(group, registry, settings, opener, deleted, self._gate)
        self._background_tasks = BackgroundTasks(
            registry, group.by_path, opener.open, group.on_error, states.is_busy
        )
        self._compaction = self._compaction_on(scheduler)
        thread_count = config.commit_threads if _has_threads(scheduler) else 1
        self._committers = DirectoryCommitters(group.all, meters.disks, thread_count)
        self.delayed_commits = self._make_delayed_commits()
        self._metrics = self._make_metrics()
        self._start(dependencies)
        self._end_warning = self._warn_unless_closed()

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "open"
        return f"<LogManager {state}, {len(self._registry)} partitions in {self._paths}>"

    @property
    def _paths(self) -> str:
        return ", ".join(str(path) for path in self._directories.by_path)

    # -------------------------------------------------------------------------------- properties

    @property
    def is_closed(self) -> bool:
        """True if the manager was closed."""
        return self._gate.is_closed

    @property
    def config(self) -> ManagerConfig:
        """The current settings of the manager."""
        return self._settings.config

    @property
    def topic_configs(self) -> TopicConfigs:
        """The current settings of the topics."""
        return self._settings.configs

    @property
    def cluster_id(self) -> str:
        """The cluster id of the directories."""
        return self._identity[0]

    @property
    def node_id(self) -> int:
        """The node id of the directories."""
        return self._identity[1]

    def topics(self) -> dict[str, tuple[int, ...]]:
        """Return the topics with the numbers of their partitions, in ascending order."""
        return self._current().topics()

    def partitions(self) -> tuple[TopicPartition, ...]:
        """Return the names of all partitions, in order."""
        return tuple(each.topic_partition for each in self._current().all())

    def directory_of(self, topic: str, partition: int) -> Path:
        """Return the data directory of a partition, or raise UnknownTopicOrPartitionError."""
        return self._current().get(TopicPartition(topic, partition)).directory.path

    def log(self, topic: str, partition: int = 0) -> Log:
        """
        Return the log of a partition; all callers get the same log, opened by the first call.

        The manager closes it. After a failure that ended its writes, or after `Log.close`, the next
        call recovers the partition and returns a new log.

        Raises:
            UnknownTopicOrPartitionError: the partition does not exist.
            LogOfflineError: its directory is offline; or the partition is unknown, and a directory
                that could not be opened may have it.
            LogStorageError, NotALogError: it cannot be opened; the next call tries again.
            LogClosedError: the manager is closed.
            ForkedLogError: it is not open, and the manager was made by the parent of this process.
        """
        self._gate.ensure_open()
        try:
            found = self._current().get(TopicPartition(topic, partition))
        except UnknownTopicOrPartitionError as error:
            raise self._directories.explain_unknown(
                error, TopicPartition(topic, partition)
            ) from None
        if found.is_duplicate and self._followed is None:
            found = self._topics.recheck(found)
        log = found.usable_log
        if log is None:
            # A thread of the parent of a forked child may have been opening it.
            self._gate.ensure_owner_process()
            log = self._opener.open(found)
        return log

    def scan(
        self, topics: str | Iterable[str] | None = None, **arguments: Unpack[ScanArguments]
    ) -> Scan:
        """
        Return the records of many partitions as columns, partition by partition.

        Each log is opened when the scan reaches it.

        Args:
            topics: name or names of topics; all topics if None. New partitions are not added later.
            arguments: columns, filters, isolation and other arguments of `Log.scan`.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist.
        """
        self._gate.ensure_open()
        by_topic = self._current().topics()
        if isinstance(topics, str):
            topics = (topics,)
        names = [
            TopicPartition(topic, partition)
            for topic in (by_topic if topics is None else topics)
            for partition in by_topic.get(topic, (0,))
        ]
        for name in names:
            self._registry.get(name)
        sources = [ScannedLog(name, partial(self._reader_of, name)) for name in names]
        return Scan(sources, make_options(**arguments))

    def _reader_of(self, name: TopicPartition) -> LogReader:
        """Open a log when it is its turn in a scan."""
        return partition_of(self.log(*name)).reader

    def has_files(self, topic: str, partition: int) -> bool:
        """
        Return whether a partition may hold records: its log is open, or its directory has segments.

        Raises:
            UnknownTopicOrPartitionError: the partition does not exist.
            LogStorageError: the directory cannot be listed.
        """
        found = self._current().get(TopicPartition(topic, partition))
        if found.log is not None or not found.directory.is_online:
            return True
        directory = found.directory.path / str(found.topic_partition)
        with storage_errors(directory, doing="listing"):
            return any(name.endswith(".log") for name in self._filesystem.list(directory))

    def health(self) -> ManagerHealth:
        """
        Return the state of directories, tasks, cleaner and logs, and all present faults.

        `ManagerConfig.health` has the thresholds of its findings.
        """
        self._gate.ensure_owner_process()
        supervisor, registry = self._supervisor, self._current()
        limit_ms = self._settings.config.transaction_max_timeout_ms
        tasks, cleaner = supervisor.health(), self._compaction.health()
        return ManagerHealth(
            self._directories.health(),
            tasks,
            supervisor.faults.all(),
            cleaner,
            damage=damage(registry),
            late_transactions=late_transactions(registry, limit_ms),
            stray_partitions=self._directories.strays,
            recoveries=recoveries(registry),
            held_bytes=self._pool.retired_bytes,
            repaired=repaired(registry),
            findings=tuple(self._findings(tasks, cleaner)),
        )

    def _findings(
        self, tasks: Sequence[TaskHealth], cleaner: CleanerHealth
    ) -> Iterator[HealthFinding]:
        limits, now_ms = self._settings.config.health, self._clock.now_ms()
        yield from slow_disks(self._meters.disks, limits)
        online = [each.path for each in self._directories.online]
        spaces = {path: space for path in online if (space := free_space(path)) is not None}
        yield from full_disks(spaces, limits)
        if self._gate.is_read_only:
            # Its writer compacts and deletes.
            return
        yield from cleaner_stuck(cleaner, limits)
        yield from retention_overdue(self._metrics.retention_debts(), tasks, now_ms, limits)

    def metrics(self, *, partitions: bool = True, groups: bool = True) -> MetricsSnapshot:
        """
        Return all metrics as they are now; `docs/metrics.md` lists them.

        No log is opened for it, except those of `__consumer_offsets` that have records. Counters
        never decrease while the manager is open, also when a log is reopened.

        >>> manager.metrics().value("kafkalog_log_appended_records_total", topic="orders")
        1.0

        Args:
            partitions: whether each partition has samples; if False, those of a topic are merged,
                with those of partitions that were deleted.
            groups: whether to read the lag of groups.

        Raises:
            LogClosedError: the manager is closed.
        """
        self._gate.ensure_owner_process()
        self._gate.ensure_open()
        return self._metrics.collect(partitions=partitions, groups=groups)

    # ------------------------------------------------------------------------------- durability

    def flush(
        self, partitions: Iterable[TopicPartition | tuple[str, int]] | None = None
    ) -> dict[TopicPartition, int]:
        """
        Put everything that was appended to partitions on the disk.

        The logs of a data directory are synced side by side (`kafkalog.commit.threads`), and those
        of other callers with them: a file system merges such syncs, so that they take a fraction of
        the time of `Log.flush` one after another. It is no transaction: after a power cut during
        the call some of the partitions may be durable and others not.

        Args:
            partitions: their names; all partitions if None. A log that is not open has nothing
                to be synced.

        Returns:
            the durable offset of each log that was open.

        Raises:
            UnknownTopicOrPartitionError: a partition does not exist; nothing was synced.
            LogStorageError, LogOfflineError: the disk refused. The message has the first such
                partition, whose log is offline; the rest was synced as well.
        """
        self._gate.ensure_writable()
        found = (
            self._registry.all()
            if partitions is None
            else [self._registry.get(TopicPartition(*each)) for each in partitions]
        )
        logs = {each.topic_partition: log for each in found if (log := each.log) is not None}
        for log in logs.values():
            gate = partition_of(log).gate
            if gate.state.has_delayed:
                gate.ensure_writable()
        for error in self.commit(list(logs.values())).values():
            raise error
        return {name: log.durable_offset for name, log in logs.items()}

    def commit(self, logs: Collection[Log]) -> dict[Log, KafkaLogError]:
        """
        Put everything that was appended to open logs of this manager on the disk.

        As `flush`, for callers that have the logs, and need the result of each.

        Returns:
            the logs that failed, with their errors.
        """
        self._gate.ensure_not_read_only()
        return self._committers.commit(logs)

    # --------------------------------------------------------------------------------- creating

    def create_topic(
        self,
        topic: str,
        partition_count: int = 1,
        config: Mapping[str, str] | None = None,
        *,
        directory: str | PathLike[str] | None = None,
    ) -> None:
        """
        Create a topic with all of its partitions, or raise and create none.

        Each partition goes to the directory with the fewest partitions. If a crash leaves some of
        the partitions, the next start creates the others.

        Args:
            topic: its name.
            partition_count: number of partitions; they are numbered from 0.
            config: settings that differ from the defaults: dotted key -> text.
            directory: the data directory of all partitions. After a crash, the next start ignores
                it for the partitions that it creates.

        Raises:
            TopicExistsError: the topic has a partition already.
            InvalidTopicError: the name is not allowed.
            ConfigError: a setting is unknown, or its value is wrong.
            DiskFullError, LogStorageError, LogOfflineError: no directory could take a partition.
        """
        with self._gate.changing():
            found = None if directory is None else self._directory_at(directory)
            self._topics.create_topic(topic, partition_count, config, found)
        self._compaction.on_topic_created(topic)

    def create_partition(
        self, topic: str, partition: int, *, directory: str | PathLike[str] | None = None
    ) -> Log:
        """
        Create one partition of a new or an existing topic, and return its log.

        Args:
            topic, partition: its name.
            directory: its data directory; the directory with the fewest partitions if None.

        Raises:
            TopicExistsError: the partition exists.
            InvalidTopicError, LogStorageError, LogOfflineError: as `create_topic`.
        """
        with self._gate.changing():
            found = None if directory is None else self._directory_at(directory)
            made = self._topics.create_partition(TopicPartition(topic, partition), found)
        self._compaction.on_topic_created(topic)
        return self._opener.open(made)

    def delete_topic(self, topic: str) -> None:
        """
        Delete all partitions of a topic, and its settings.

        Partitions in a directory that is offline, or was missing at the start of the manager, are
        deleted when the directory returns, also by a later start: a note of the deletion is kept.

        The files are removed after `file.delete.delay.ms`; readers keep their open files. If a
        crash or an error leaves some of the partitions, another call or the next start deletes
        them. If a broker used the topic before that start, the topic stays. Positions of groups in
        the topic are removed, so that a later topic of this name is read from its start.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist.
            LogOfflineError: the topic is unknown, and a directory that is offline may have it.
            DiskFullError: a directory is offline, and the note of the deletion does not fit on the
                disk; nothing was deleted.
            LogStorageError: the disk refused; partitions with lower numbers are deleted.
        """
        self._gate.ensure_writable()
        names = [each.topic_partition for each in self._registry.of_topic(topic)]
        if not names:
            raise self._directories.explain_unknown(
                UnknownTopicOrPartitionError(f"topic not found: {topic}")
            )
        try:
            with self._gate.without_cleaning(lambda: self._registry.of_topic(topic)):
                self._topics.delete_topic(topic)
        finally:
            self._remove_positions(names)

    def delete_partition(self, topic: str, partition: int) -> None:
        """Delete one partition, with the rules and errors of `delete_topic`."""
        name = TopicPartition(topic, partition)
        with self._gate.without_cleaning(lambda: [self._registry.get(name)]):
            self._topics.delete_partition(name)
        self._clients.remove_partitions([name])

    def move_partition(self, topic: str, partition: int, directory: str | PathLike[str]) -> None:
        """
        Move a partition to another data directory, as a broker's AlterReplicaLogDirs.

        The partition is copied while it is in use, and closed for the last part of the copy.
        Afterwards `log` returns the log in the new directory; producers and consumers continue
        without a change, and a `Log` from an earlier call is closed. Offsets, segments, producers,
        epochs and checkpoints are unchanged. The files in the old directory are removed after
        `file.delete.delay.ms`. A failure before the commit leaves the partition in the old
        directory; a crash leaves it complete in one of the two directories.

        Args:
            topic, partition: its name.
            directory: the new data directory; no effect if the partition is in it already.

        Raises:
            UnknownTopicOrPartitionError: the partition does not exist.
            ConfigError: the manager does not have the directory.
            LogOfflineError: one of the two directories is offline.
            LogClosedError: during the copy, the manager was closed, or the partition reopened.
            DiskFullError, LogStorageError: the disk refused; the partition was not moved.
        """
        with self._gate.changing():
            found = self._directory_at(directory)
        self._mover.move(TopicPartition(topic, partition), found)

    def reconfigure(self, topic: str, changes: Mapping[str, str | None]) -> ConfigChange:
        """
        Change settings of a topic, now and after restarts.

        Args:
            topic: its name.
            changes: dotted key -> text, or None to return to the default.

        Returns:
            The changed settings, and when each takes effect.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist.
            ConfigError: a key is unknown, or a value is wrong; nothing was changed.
            LogStorageError: no directory could store the change; nothing was changed.
        """
        with self._gate.changing():
            change = self._topics.reconfigure(topic, changes)
        self._compaction.on_settings_changed()
        return change

    def reconfigure_defaults(self, changes: Mapping[str, str | None]) -> ConfigChange:
        """
        Change defaults, now and after restarts.

        The new defaults apply to every topic without a setting for the key. They override the
        config of this manager and of later ones, as a broker's dynamic settings override its file.

        >>> manager.reconfigure_defaults({"log.retention.ms": "3600000"}).at_once
        ('retention.ms',)

        Args:
            changes: a broker's key -> text, or None to return to the config of the manager.

        Returns:
            The changed settings, under the names of topic settings, and when each takes effect.

        Raises:
            ConfigError: a key is unknown, or is read only when a manager is made, or a value is
                wrong or contradicts a topic; nothing was changed.
            LogStorageError: no directory could store the change; nothing was changed.
        """
        with self._gate.changing():
            change = self._topics.reconfigure_defaults(changes)
            if self._own_scheduler is not None:
                self._own_scheduler.set_thread_count(self.config.background_threads)
        self._compaction.on_settings_changed()
        return change

    # ------------------------------------------------------------------------ producing, consuming

    def producer(
        self, *, wait: Wait = "written", on_full: OnFull = "wait", **settings: Any
    ) -> Producer:
        """
        Return a producer of records for all topics; close it, or use it in a `with`.

        Args:
            wait: state in which a record counts as delivered: "written" or "durable".
            on_full: what happens to records that do not fit the disk: "wait" for space, up to
                `delivery.timeout.ms`, or "raise" a DiskFullError from their futures at once.
            settings: fields of `ProducerConfig`.

        Raises:
            ConfigError: a setting is unknown, or its value is wrong.
            LogStorageError: an unfinished transaction of the transactional_id could not be
                completed.
        """
        self._gate.ensure_writable()
        return self._clients.producer(wait=wait, on_full=on_full, **settings)

    def new_producer_id(self) -> int:
        """
        Return a producer id that is given only once, for a client that numbers its batches.

        A server answers Kafka's InitProducerId with it, and epoch 0. Ids are random numbers from
        2^61 to 2^62 - 1, so that no call after a restart or a crash returns one of before.
        """
        self._gate.ensure_writable()
        return self._clients.new_producer_id()

    def consumer(
        self,
        group: str = "",
        *,
        on_corrupt: OnCorrupt = "raise",
        on_lost: Callable[[LostRecords], object] | None = None,
        positions_file: str | PathLike[str] | None = None,
        **settings: Any,
    ) -> Consumer:
        """
        Return a consumer, which subscribes to topics or is assigned partitions; close it.

        Args:
            group: name under which its positions are stored; "" to store no positions.
            on_corrupt: "raise" at damage, or "skip".
            on_lost: called with the records before a position that the log no longer has.
            positions_file: file for the positions that this consumer commits, outside of the data
                directories; None for `__consumer_offsets`, in which a read-only manager commits
                nothing. Without a position in the file, a partition is read from the position that
                the group has committed in the directories.
            settings: fields of `ConsumerConfig`.

        Raises:
            ConfigError: as for `producer`; or the file is in a data directory, or has the positions
                of another group.
            CorruptStateError: the file is damaged.
            ReadOnlyLogError: `enable.auto.commit` without a file, and the manager is read-only.
        """
        self._gate.ensure_open()
        return self._clients.consumer(
            group,
            on_corrupt=on_corrupt,
            on_lost=on_lost,
            open_positions=None
            if positions_file is None
            else self._positions_opener(group, positions_file),
            **settings,
        )

    def lower_leader_epochs(self, highest: int = 0) -> LoweredEpochs:
        """
        Lower every leader epoch above `highest`, in all partitions and positions of groups.

        For a hand-over to a broker whose controller has lower epochs (`Log.lower_leader_epochs`).
        A position keeps its offset, metadata and time of commit, and loses its epoch, so that the
        next reader of the group does not wait for a leader of that epoch.

        Raises:
            ValueError: `highest` is negative.
            LogOfflineError, LogStorageError: a partition cannot be changed; another call changes
                the rest.
        """
        self._gate.ensure_writable()
        positions = self._clients.lower_epochs(highest)
        changed = batches = 0
        for topic, partition in self.partitions():
            count = 0
            if self.has_files(topic, partition):
                count = self.log(topic, partition).lower_leader_epochs(highest)
            batches += count
            changed += count > 0
        return LoweredEpochs(changed, batches, positions)

    # --------------------------------------------------------------------------------- compaction

    def compact(
        self,
        topic: str,
        partition: int = 0,
        *,
        include_active: bool = False,
        on_progress: Callable[[CleaningProgress], object] | None = None,
    ) -> CleaningResult:
        """
        Compact a partition now, in the calling thread.

        The dirty ratio does not matter; `min.compaction.lag.ms` and open transactions do. If a
        cleaner thread is cleaning the partition, the call waits for its end and cleans the rest.
        The limit of bytes per second applies, as does the key memory of one thread: if the memory
        does not suffice for the dirty part, the result is not `is_complete`, and the next call
        continues there.

        Args:
            topic, partition: the partition.
            include_active: roll the active segment first, so that it is compacted, too.
            on_progress: called with the progress; its exception ends the cleaning and is raised.

        Raises:
            UnknownTopicOrPartitionError: the partition does not exist.
            ConfigError: `compact` is not in its `cleanup.policy`.
            LogCleaningAbortedError: during the cleaning, the partition was truncated, deleted or
                got another policy, or the manager was closed. Nothing is lost; segments that were
                replaced already stay replaced.
            DiskFullError, LogStorageError, LogOfflineError: the disk refused.
        """
        self._gate.ensure_writable()
        return self._compaction.compact(
            self._partition(topic, partition),
            include_active=include_active,
            on_progress=on_progress,
        )

    def plan_compaction(
        self,
        topic: str,
        partition: int = 0,
        *,
        include_active: bool = False,
        on_progress: Callable[[int, int], object] | None = None,
    ) -> CompactionPlan:
        """
        Return what `compact` would do now, for any `cleanup.policy`. Nothing is changed.

        Arguments and errors as for `kafkalog.plan_compaction`.

        Raises:
            UnknownTopicOrPartitionError: the partition does not exist.
        """
        return self._compaction.plan_compaction(
            self._partition(topic, partition),
            include_active=include_active,
            on_progress=on_progress,
        )

    def explain_compaction(
        self, topic: str, partition: int, offset: int, *, include_active: bool = False
    ) -> CompactionExplanation:
        """
        Return the rule that keeps or removes the record at an offset, if `compact` ran now.

        Arguments and errors as for `kafkalog.explain_compaction`.

        Raises:
            UnknownTopicOrPartitionError: the partition does not exist.
        """
        return self._compaction.explain_compaction(
            self._partition(topic, partition), offset, include_active=include_active
        )

    # -------------------------------------------------------------------------------- directories

    def bring_online(self, directory: str | PathLike[str]) -> None:
        """
        Reopen a directory that went offline; no effect if it is online.

        Its logs from earlier calls are closed; `log` returns new ones. Partitions that were not
        closed in order are recovered.

        Raises:
            ConfigError: the manager does not have the directory, or its cluster id changed.
            LogStorageError, LogLockedError, CorruptStateError: it cannot be opened; it stays
                offline.
        """
        with self._gate.changing():
            found = self._directory_at(directory)
            if found.is_online:
                return
        with self._gate.without_cleaning(lambda: self._topics.partitions_affected_by(found)):
            if not found.is_online:
                self._directories.bring_online(found, self._identity, self._opener)
                deleted = self._directories.add_directory(
                    [found], self._opener, self._deleted_directories
                )
                self._begin_journals([found])
                self._remove_positions(deleted + self._topics.finish())
        self._compaction.start(self.config.cleaner.backoff_ms)

    def close(self) -> None:
        """
        Close producers and logs, write checkpoints and the shutdown marker of each directory.

        Idempotent. A failure concerns one directory, which the next start recovers.

        Raises:
            LogStorageError: a directory could not be closed in order; all others are closed.
        """
        self._end_warning()
        gate = self._gate
        if not gate.is_owner_process:
            # Without the lock: a thread of the parent may have held it at the fork.
            gate.mark_closed()
            self._directories.release()
            return
        if not gate.is_closed:
            self._clients.close()
        with gate.lock:
            if not gate.mark_closed():
                return
        self._compaction.close()
        self._supervisor.close()
        if self._own_scheduler is not None:
            self._own_scheduler.close()
        self._committers.close()
        with gate.lock:
            for directory in self._directories.all if self._followed is None else ():
                self._background_tasks.record_high_watermarks(directory)
            self._opener.stop()
            failures = self._directories.close_logs(self._opener)
            failures += self._directories.close()
            self._pool.close()
        if failures:
            raise failures[0]

    # ---------------------------------------------------------------------------------- private

    def _start(self, dependencies: _Dependencies) -> None:
        group = self._directories
        try:
            if dependencies.read_only:
                self._followed = FollowedDirectories(
                    group, self._registry, self._settings, self._opener, self._supervisor.faults
                )
                self._identity = self._followed.open(
                    cluster_id=dependencies.cluster_id, node_id=dependencies.node_id
                )
                return
            self._identity = group.open(
                dependencies.topic_configs,
                cluster_id=dependencies.cluster_id,
                node_id=dependencies.node_id,
            )
            # Before the logs are opened: an error of a write before that is not reported to it.
            self._committers.use_filesystem_syncs(self._filesystem, self.config.commit_syncfs_logs)
            deleted = group.add_directory(group.online, self._opener, self._deleted_directories)
            self._begin_journals(group.all)
            self._committers.start_checkpoints(self._supervisor, self.config)
            self._remove_positions(deleted + self._topics.finish())
            self._background_tasks.start(self._supervisor, self._settings.config)
            self._compaction.start(self.config.log_initial_task_delay_ms)
        except BaseException:
            self._gate.mark_closed()
            self._compaction.close()
            self._committers.close()
            self._supervisor.close()
            if self._own_scheduler is not None:
                self._own_scheduler.close()
            for partition in self._registry.all():
                self._opener.release(partition, LogClosedError("the start of the manager failed"))
            group.release()
            raise

    def _make_delayed_commits(self) -> DelayedCommits | None:
        config, supervisor = self.config, self._supervisor
        if not config.journal_enable or not config.journal_linger_ms or self._gate.is_read_only:
            return None
        return DelayedCommits(
            self._filesystem,
            config.journal_linger_ms,
            journal_of=self._committers.journal_of,
            commit_logs=self._committers.commit,
            schedule=partial(supervisor.once, DELAYED_APPEND),
            faults=supervisor.faults,
        )

    def _begin_journals(self, directories: Iterable[DataDirectory]) -> None:
        self._committers.begin_journals(
            directories, self.config, self._supervisor, self._on_journal_failure
        )

    def _on_journal_failure(self, directory: DataDirectory, error: BaseException) -> None:
        self._directories.mark_offline(directory, error)

    def _warn_unless_closed(self) -> Callable[[], object]:
        has_written = not self._gate.is_read_only
        return warn_unless_closed(self, f"manager of {self._paths}", has_written=has_written)

    def _make_scheduler(self, scheduler: Scheduler | None, thread_count: int) -> Scheduler:
        """Return the caller's scheduler, or new threads, which the manager closes."""
        self._own_scheduler: BackgroundThreads | None = None
        if scheduler is None:
            scheduler = self._own_scheduler = BackgroundThreads(self._clock, thread_count)
        return scheduler

    def _make_clients(self, config: ManagerConfig, scheduler: Scheduler | None) -> Clients:
        return Clients(
            self,
            clock=self._clock,
            scheduler=scheduler,
            on_unreadable=self._on_unreadable,
            on_full=self._on_full,
            internal_topics=InternalTopicSettings(
                config.offsets_topic_num_partitions,
                config.transaction_state_log_num_partitions,
                # Topics that a broker made have no settings here: its cluster has them.
                is_own=lambda topic: (
                    not self._gate.is_read_only and bool(self._settings.configs.overrides_of(topic))
                ),
                is_read_only=self._gate.is_read_only,
            ),
        )

    def _compaction_on(self, scheduler: Scheduler) -> Compaction:
        # Cleaner threads for a scheduler with threads: a long cleaning would delay other tasks.
        return Compaction(
            self._registry,
            self._settings,
            self._cleaning_states,
            self._opener,
            self._background_tasks.apply_retention,
            self._supervisor,
            None if _has_threads(scheduler) else scheduler,
        )

    def _environment_of(self, partition: ManagedPartition) -> LogEnvironment:
        config, name = self._settings.config, partition.topic_partition
        return LogEnvironment(
            clock=self._clock,
            scheduler=self._supervisor.scheduler_for(name),
            pool=self._pool,
            directory_lock=None if self._gate.is_read_only else partition.directory.lock,
            retention=self._retention,
            on_deletion=self._on_deletion,
            on_offline=lambda error: self._opener.on_offline(partition, error),
            on_storage_error=lambda error: self._opener.on_storage_error(partition, error),
            on_reopen=self._open_log_limit.add,
            withdraw_commits=partial(partition.directory.journal.withdrawn, str(name)),
            pause_cleaning=lambda: self._cleaning_states.paused(name),
            producer_expiration_ms=config.producer_id_expiration_ms,
            producer_check_ms=config.producer_id_expiration_check_interval_ms,
            meters=self._meters.of(name, partition.directory.path),
        )

    def _make_metrics(self) -> MetricsCollector:
        sources = MetricsSources(
            meters=self._meters,
            partitions=PartitionReader(self._registry, self._filesystem),
            directories=self._directories,
            deleted_directories=self._deleted_directories,
            pool=self._pool,
            clients=self._clients,
            compaction=self._compaction,
            supervisor=self._supervisor,
        )
        return MetricsCollector(sources, self._clock.now_ms)

    def _remove_positions(self, deleted: Sequence[TopicPartition]) -> None:
        """Remove positions of groups in deleted partitions, unless the names are in use again."""
        self._clients.remove_partitions([each for each in deleted if each not in self._registry])

    def _on_full(self, where: TopicPartition, error: KafkaLogError | None) -> None:
        if error is None:
            self._supervisor.faults.clear_error(FULL, where)
        else:
            self._supervisor.faults.record_failure(FULL, where, error)

    def _on_unreadable(self, where: TopicPartition, error: BaseException) -> None:
        self._supervisor.faults.record_failure(READ, where, error)

    def _partition(self, topic: str, partition: int) -> ManagedPartition:
        self._gate.ensure_open()
        return self._current().get(TopicPartition(topic, partition))

    def _current(self) -> PartitionRegistry:
        """Return the partitions; a read-only manager first looks for changes of their writer."""
        if self._followed is not None and not self.is_closed:
            # The lock of a look may have been held by a thread of the parent at a fork.
            self._gate.ensure_owner_process()
            self._followed.refresh()
        return self._registry

    def _positions_opener(self, group: str, file: str | PathLike[str]) -> OpenPositions:
        """Return what opens a file with the positions of a group."""
        path = Path(file).absolute()
        for directory in self._directories.by_path:
            if path.resolve().is_relative_to(directory.resolve()):
                raise ConfigError(
                    f"positions_file must be outside of the data directories, got {path}", path=path
                )

        def topic_id_of(name: TopicPartition) -> uuid.UUID | None:
            registry = self._current()
            return registry.get(name).topic_id if name in registry else None

        return lambda committed: PositionsFile(
            path, group, self._filesystem, committed, topic_id_of
        )

    def _directory_at(self, path: str | PathLike[str]) -> DataDirectory:
        found = self._directories.by_path.get(Path(path).absolute())
        if found is None:
            raise ConfigError(f"not a data directory of this manager: {path}")
        return found

    def _on_directory_error(self, directory: DataDirectory, error: BaseException) -> None:
        self._directories.on_error(directory, error)


def _make_pool(filesystem: FileSystem, config: LogConfig) -> tuple[FilePool, OpenLogLimit]:
    files_max, mappings_max = config.open_files_max, config.mappings_max
    pool = FilePool(filesystem, max_open_files=files_max, max_mappings=mappings_max)
    return pool, OpenLogLimit(default_open_log_limit(files_max + 2 * mappings_max))


def _has_threads(scheduler: Scheduler) -> bool:
    return isinstance(scheduler, BackgroundThreads | ThreadScheduler)


def _config_of(config: ManagerConfig | None, topic_configs: TopicConfigs | None) -> ManagerConfig:
    """Return the settings; raise ConfigError if the arguments have different defaults."""
    if topic_configs is None:
        return config or ManagerConfig()
    if config is None:
        return ManagerConfig(log=topic_configs.defaults)
    if topic_configs.defaults != config.log:
        raise ConfigError("the defaults of topic_configs are not those of config.log")
    return config
