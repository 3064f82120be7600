"""Data directories of a manager: open, offline, online, close, and their common identity.

Order of a start: every directory is locked and read; then cluster, node, directory ids and settings
of topics are compared; only then files are written. A directory whose disk refuses, or whose files
are damaged, stays offline. A directory of another owner is an error, because this manager could
write contradicting files to the other directories.

Rules of a broker for `meta.properties`: all directories have the same cluster and node, and no two
have the same directory id. A directory without the file gets a copy with a new directory id; if no
directory has the file, new ids are created. A file of version 0 is kept, with a directory id added.

A failure concerns one directory; the others continue. A failure of the disk is noticed by a thread
that uses a log and may hold that log's lock, so taking the directory offline waits for nothing. The
logs of an offline directory refuse writes, and are closed when it is brought online or the manager
closes.

A partition in two data directories is opened from neither, because only the operator can decide
which copy is right, unless one copy was left by a move. See `TopicAdministration.recheck`.

Crash points: those of `directory` and `settings`, and those of replacing a `meta.properties`.
Between two directories, one has the old state and the other the new one; the next start completes
it.

Thread-safety: `mark_offline` and `on_error` from any thread; the rest under the manager's lock.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from kafkalog.clock import Clock
from kafkalog.errors import (
    ConfigError,
    CorruptStateError,
    KafkaLogError,
    LogLockedError,
    LogOfflineError,
    LogStorageError,
    UnknownTopicOrPartitionError,
)
from kafkalog.files.directories import Paths, as_paths
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import partition_directory_name
from kafkalog.log.log import partition_of
from kafkalog.log.report import RecoveryReport
from kafkalog.manager.deleted_directories import DeletedDirectories
from kafkalog.manager.deletion_marks import PartitionMark, read_marks
from kafkalog.manager.directory import DataDirectory, is_failure_of_disk, is_missing
from kafkalog.manager.health import DirectoryHealth, StrayPartition
from kafkalog.manager.incarnations import (
    SortedPartitions,
    read_partitions,
    sort_partitions,
    stray_error,
)
from kafkalog.manager.move_notes import MoveNotes
from kafkalog.manager.opening import OPEN, LogOpener
from kafkalog.manager.recovery import RecoveryProgress, for_each, recover
from kafkalog.manager.registry import ManagedPartition, PartitionRegistry
from kafkalog.manager.settings import TopicSettings
from kafkalog.manager.supervision import FaultRegistry
from kafkalog.model import TopicPartition
from kafkalog.state.kafka_uuid import format_id, new_id
from kafkalog.state.meta_properties import MetaProperties
from kafkalog.topic_configs import TopicConfigs

__all__ = ["DirectoryGroup", "Identity", "agree", "as_directories", "block_duplicate"]

logger = logging.getLogger(__name__)

Identity = tuple[str, int]
T = TypeVar("T")

DEFAULT_NODE_ID = 1
# Name of the fault of a checkpoint that cannot be read.
CHECKPOINT = "checkpoint"


def as_directories(paths: Paths, filesystem: FileSystem) -> list[DataDirectory]:
    """Return the directories of paths; ConfigError without a path, or with one twice."""
    found: dict[str, DataDirectory] = {}
    for path in as_paths(paths):
        real = os.path.realpath(path)
        if real in found:
            raise ConfigError(
                f"{path} and {found[real].path} are the same data directory", path=path
            )
        found[real] = DataDirectory(path, filesystem)
    if not found:
        raise ConfigError("a manager needs a data directory: log.dirs is empty")
    return list(found.values())


class DirectoryGroup:
    """
    All data directories of a manager.

    Args:
        directories: the directories, not opened yet.
        registry: gets their partitions.
        settings: settings of topics.
        faults: gets failures.
        clock: time of written files.
        on_progress: called with each partition that is recovered.
    """

    def __init__(
        self,
        directories: Sequence[DataDirectory],
        registry: PartitionRegistry,
        settings: TopicSettings,
        faults: FaultRegistry,
        clock: Clock,
        *,
        on_progress: Callable[[RecoveryProgress], object] | None,
    ) -> None:
        self.all = tuple(directories)
        self.by_path: Mapping[Path, DataDirectory] = {each.path: each for each in directories}
        self._registry = registry
        self._settings = settings
        self._faults = faults
        self._clock = clock
        self._on_progress = on_progress
        self.moves = MoveNotes(self.all)
        self._strays: dict[DataDirectory, list[StrayPartition]] = {}
        # Directories in which a partition of a deleted topic could not be deleted.
        self.unfinished: set[DataDirectory] = set()

    @property
    def _thread_count(self) -> int:
        """Threads for each directory when logs are recovered or closed."""
        return self._settings.config.num_recovery_threads_per_data_dir

    @property
    def online(self) -> list[DataDirectory]:
        """The online directories."""
        return [directory for directory in self.all if directory.is_online]

    @property
    def strays(self) -> tuple[StrayPartition, ...]:
        """Partitions that are not served because they belong to other topics, by path."""
        found = [
            each
            for directory, strays in self._strays.items()
            for each in strays
            if not _was_removed(directory, each.path)
        ]
        return tuple(sorted(found, key=lambda each: each.path))

    def offline_keys(self) -> frozenset[str]:
        """Return keys of known directories that are not online and may have partitions."""
        online = {key for each in self.all if each.is_online for key in each.keys}
        return self.known_keys() - online

    def known_keys(self) -> frozenset[str]:
        """Return a key of every directory that belongs, or ever belonged, to the manager."""
        directories = self._settings.known_directories
        keys = set(directories)
        for each in self.all:
            if each.directory_id is not None:
                keys.add(each.directory_id)
            elif str(each.path) not in directories.values():
                keys.add(str(each.path))
        return frozenset(keys)

    def set_strays(self, strays: Iterable[StrayPartition]) -> None:
        """Replace the partitions that are not served, of all directories."""
        found: dict[DataDirectory, list[StrayPartition]] = {each: [] for each in self.all}
        for stray in strays:
            found[self.by_path[stray.path.parent]].append(stray)
        self._strays = found

    def ensure_not_stray(self, topic: str) -> None:
        """Raise InconsistentTopicIdError if a stray partition has a topic's name."""
        for stray in self.strays:
            if stray.topic_partition.topic == topic:
                raise stray_error(stray)

    def explain_unknown(
        self, error: UnknownTopicOrPartitionError, name: TopicPartition | None = None
    ) -> KafkaLogError:
        """Return the error for an unknown partition; a directory that was not read may have it."""
        for stray in self.strays:
            if stray.topic_partition == name:
                return stray_error(stray)
        unread = [each for each in self.all if not each.was_read]
        if not unread:
            return error
        return LogOfflineError(
            f"{error}, but {unread[0].path} is offline, and its content is not known:"
            f" {unread[0].error}",
            path=unread[0].path,
        )

    def is_usable(self, path: Path) -> bool:
        """Return whether the directory at a path is online."""
        return self.by_path[path].is_online

    def open(
        self,
        topic_configs: TopicConfigs | None,
        *,
        cluster_id: str | None,
        node_id: int | None,
    ) -> Identity:
        """
        Open all directories; return cluster and node. A directory that fails is offline afterwards.

        Raises:
            LogLockedError, ConfigError, LogStorageError, CorruptStateError: see `LogManager`; the
                caller must release the directories then.
        """
        _open_directories(self.all)
        identity = _register_directory(
            self.all, self._settings, self._clock, cluster_id=cluster_id, node_id=node_id
        )
        self._settings.save(self.all)
        if topic_configs is not None:
            configs = self._settings.configs
            for topic in topic_configs.topics:
                configs = configs.without_topic(topic)
                configs = configs.with_topic(topic, dict(topic_configs.overrides_of(topic)))
            self._settings.change(configs, self.all)
        return identity

    def add_directory(
        self,
        directories: Sequence[DataDirectory],
        opener: LogOpener,
        deleted_directories: DeletedDirectories,
    ) -> list[TopicPartition]:
        """
        Register the partitions of opened directories; recover those not closed in order.

        Returns partitions that were deleted, of topics deleted while the directory was offline.
        """

        def recovered(partition: ManagedPartition) -> RecoveryReport:
            log = opener.open(partition)
            # Otherwise the last recovered logs would use up the limit of logs with open files.
            opener.release_idle(log)
            return log.recovery_report

        delay_ms = self._settings.config.log.file_delete_delay_ms
        work = []
        found = self._sort(directories)
        for directory in directories:
            if directory.is_online:
                self._load_moves(directory, deleted_directories)
        registered, left = _register_partitions(
            found.live, self._registry, self._faults, self.moves
        )
        self._delete_returned(left, deleted_directories, delay_ms)
        self.moves.block_doubtful(self._registry)
        self.moves.resolve(self._registry)
        for directory in directories:
            if not directory.is_online:
                continue
            for name in directory.inventory.deleted:
                deleted_directories.add(directory.path / name, delay_ms=delay_ms)
            if not directory.sessions.had_marker:
                own = [each for each in registered if each.directory is directory]
                work.append((directory, [each for each in own if not each.is_duplicate]))
        self._settings.keep_ids(found.ids, self.all)
        deleted = self._delete_returned(found.deleted, deleted_directories, delay_ms)
        recover(work, recovered, thread_count=self._thread_count, on_progress=self._on_progress)
        for directory, _partitions in work:
            # The next recovery need not repeat this one.
            with contextlib.suppress(LogStorageError):
                directory.checkpoints.recovery_points.write()
        return deleted

    def _load_moves(
        self, directory: DataDirectory, deleted_directories: DeletedDirectories
    ) -> None:
        """Read the notes of moves of a directory; unfinished copies are removed."""
        try:
            for path in self.moves.load(directory):
                deleted_directories.add(path, delay_ms=0)
        except LogStorageError as error:
            self.mark_offline(directory, error)

    def _sort(self, directories: Sequence[DataDirectory]) -> SortedPartitions:
        """Compare the topic ids in opened directories, and classify their partitions."""
        found: list[ManagedPartition] = []
        marks: dict[ManagedPartition, PartitionMark] = {}
        deleting = self._settings.deleting
        for directory in directories:
            try:
                partitions = read_partitions(directory, self._faults)
                marks |= read_marks(
                    each for each in partitions if each.topic_partition.topic in deleting
                )
                found += partitions
                directory.mark_read()
            except LogStorageError as error:
                self.mark_offline(directory, error)
        result = sort_partitions(
            found,
            self._registry,
            self._settings.ids,
            deleting,
            marks,
            all_read=all(each.was_read for each in self.all),
        )
        for stray in result.strays:
            logger.error("%s", stray_error(stray))
        for topic, over in result.over.items():
            left = tuple(note for note in deleting[topic] if note not in over)
            self._settings.resolve(topic, self._settings.configs, self.all, deletions=left)
        for directory in directories:
            for checkpoint in directory.checkpoints.all:
                if checkpoint.error is not None:
                    self._faults.record_failure(CHECKPOINT, checkpoint.path, checkpoint.error)
                else:
                    self._faults.remove(checkpoint.path)
            self._strays[directory] = [
                each for each in result.strays if each.path.parent == directory.path
            ]
        return result

    def _delete_returned(
        self,
        partitions: Sequence[ManagedPartition],
        deleted_directories: DeletedDirectories,
        delay_ms: int,
    ) -> list[TopicPartition]:
        """
        Delete partitions whose topics were deleted while their directories were offline.

        Crash points: those of `DataDirectory.rename_deleted`, for each partition. The note of the
        deletion stays until all partitions of a directory are deleted.
        """
        deleted = []
        for partition in partitions:
            directory = partition.directory
            self.unfinished.discard(directory)
            try:
                deleted_directories.add(
                    directory.rename_deleted(partition.topic_partition), delay_ms=delay_ms
                )
            except LogStorageError as error:
                logger.warning("%s of a deleted topic was not deleted: %s", partition, error)
                self.unfinished.add(directory)
                self.on_error(directory, error)
                continue
            deleted.append(partition.topic_partition)
        return deleted

    def bring_online(self, directory: DataDirectory, identity: Identity, opener: LogOpener) -> None:
        """
        Reopen an offline directory; the caller registers its partitions afterwards.

        Raises:
            ConfigError, LogStorageError, LogLockedError, CorruptStateError: see `LogManager`.
        """
        with storage_errors(directory.path, doing="opening the data directory"):
            if directory.filesystem.stat(directory.path) is None:
                # A new directory would lack the content of the old one.
                raise directory.vanished_error()
        self._unregister_partitions(directory, opener)
        directory.release()
        try:
            directory.open()
            _register_directory(
                self.all,
                self._settings,
                self._clock,
                cluster_id=identity[0],
                node_id=identity[1],
            )
        except BaseException as error:
            directory.fail(error)
            directory.keep_offline(error)
            directory.release()
            raise
        if not directory.is_online:
            raise directory.refusal()
        self._settings.save(self.all)

    def on_error(self, directory: DataDirectory, error: BaseException) -> None:
        """Take a directory offline if an error means that it failed or was removed."""
        if is_failure_of_disk(error):
            self.mark_offline(directory, error)
        elif is_missing(error) and directory.is_online and directory.has_vanished():
            self.mark_offline(directory, directory.vanished_error())

    def on_error_at(self, path: Path, error: BaseException) -> None:
        """Call `on_error` for the directory at a path."""
        self.on_error(self.by_path[path], error)

    def mark_offline(self, directory: DataDirectory, error: BaseException) -> None:
        """Take a directory offline; its logs refuse writes. Waits for nothing."""
        if directory.fail(error):
            for partition in self._registry.in_directory(directory):
                log = partition.log
                if log is not None:
                    partition_of(log).gate.mark_offline(error, notify=False)

    def close_logs(self, opener: LogOpener) -> list[BaseException]:
        """Close all logs in order, or release those of offline directories; return failures."""
        failures: list[BaseException] = []

        def close(partition: ManagedPartition) -> None:
            if not partition.directory.is_online:
                opener.release(partition, partition.directory.error)
                return
            try:
                opener.close(partition)
            except LogStorageError as error:
                logger.warning("%s was not closed in order: %s", partition.topic_partition, error)
                failures.append(error)

        for_each(
            [(each, self._registry.in_directory(each)) for each in self.all],
            close,
            thread_count=self._thread_count,
            name="kafkalog-closing",
        )
        return failures

    def close(self) -> list[BaseException]:
        """Write checkpoints and markers, and release the locks; return failures."""
        failures: list[BaseException] = []
        for directory in self.all:
            try:
                directory.close()
            except LogStorageError as error:
                logger.warning("%s was not closed in order: %s", directory.path, error)
                failures.append(error)
        return failures

    def release(self) -> None:
        """Release the locks without writing."""
        for directory in self.all:
            directory.release()

    def health(self) -> tuple[DirectoryHealth, ...]:
        """Return the health of the directories."""
        counts, open_counts = self._registry.counts(), self._registry.open_counts()
        return tuple(
            DirectoryHealth(
                path=directory.path,
                is_online=directory.is_online,
                error=directory.error,
                partition_count=counts[directory],
                open_count=open_counts[directory],
                kept_aside=tuple(directory.inventory.kept_aside),
                unknown=tuple(directory.inventory.unknown),
            )
            for directory in self.all
        )

    def _unregister_partitions(self, directory: DataDirectory, opener: LogOpener) -> None:
        for partition in self._registry.in_directory(directory):
            with partition.lock:
                # A thread that waits for the lock to open it raises, or finds its replacement.
                partition.mark_gone()
                opener.release(partition, directory.error)
            self._faults.remove(partition.topic_partition)
            self._registry.remove(partition)
        directory.mark_unread()
        self._strays.pop(directory, None)
        self._faults.remove(directory.path)


def _open_directories(directories: Sequence[DataDirectory]) -> None:
    """
    Open all directories; a directory that cannot be opened is offline, with its error.

    Raises:
        LogLockedError, NotALogError: as `DataDirectory.open`; no directory is open then.
        LogStorageError, CorruptStateError: no directory could be opened.
    """
    try:
        for directory in directories:
            try:
                directory.open()
            except LogLockedError:
                raise
            except (LogStorageError, CorruptStateError) as error:
                directory.keep_offline(error)
                logger.warning("data directory %s is offline: %s", directory.path, error)
    except BaseException:
        for directory in directories:
            directory.release()
        raise
    first = directories[0].error
    if first is not None and not any(directory.is_online for directory in directories):
        raise first


def _register_directory(
    directories: Sequence[DataDirectory],
    settings: TopicSettings,
    clock: Clock,
    *,
    cluster_id: str | None,
    node_id: int | None,
) -> Identity:
    """
    Compare the online directories; write missing identities; return cluster and node.

    Raises:
        ConfigError: they contradict each other, the arguments, or Kafka's rules for settings.
    """
    for directory in directories:
        if not directory.is_online:
            continue
        try:
            settings.load([directory])
        except (CorruptStateError, LogStorageError) as error:
            # Without the settings of its topics, its partitions must not be opened.
            directory.fail(error)
    online = [directory for directory in directories if directory.is_online]
    cluster, node = agree(
        {directory.path: directory.meta for directory in online},
        cluster_id=cluster_id,
        node_id=node_id,
    )
    for directory in online:
        try:
            directory.complete_meta(cluster, node, now_ms=clock.now_ms())
        except LogStorageError as error:
            directory.fail(error)
    return cluster, node


def agree(
    found: Mapping[Path, MetaProperties | None],
    *,
    cluster_id: str | None = None,
    node_id: int | None = None,
) -> tuple[str, int]:
    """
    Return the common cluster and node of directories; new ones if no file has them.

    Args:
        found: content of each directory's `meta.properties`, None without the file.
        cluster_id, node_id: required values; None to accept the values of the files.

    Raises:
        ConfigError: the files contradict each other or the required values.
    """
    cluster = _one_of("cluster.id", cluster_id, {p: m.cluster_id for p, m in found.items() if m})
    node = _one_of("node.id", node_id, {p: m.node_id for p, m in found.items() if m})
    ids: dict[object, Path] = {}
    for path, meta in found.items():
        if meta is None or meta.directory_id is None:
            continue
        other = ids.setdefault(meta.directory_id, path)
        if other != path:
            raise ConfigError(
                f"{path} and {other} have the same directory.id, {format_id(meta.directory_id)}:"
                " one is a copy of the other; remove the line from the copy's meta.properties",
                path=path,
            )
    return cluster or format_id(new_id()), DEFAULT_NODE_ID if node is None else node


def _one_of(key: str, requirement: T | None, found: Mapping[Path, T | None]) -> T | None:
    """Return the value that is required or found, None without any."""
    first: Path | None = None
    for path, value in found.items():
        if value is None:
            continue
        if requirement is None:
            requirement, first = value, path
        elif value != requirement:
            other = "as required" if first is None else f"as in {first}"
            raise ConfigError(
                f"{path}: {key} must be {requirement} {other}, got {value}", path=path
            )
    return requirement


def _register_partitions(
    partitions: Iterable[ManagedPartition],
    registry: PartitionRegistry,
    faults: FaultRegistry,
    moves: MoveNotes,
) -> tuple[list[ManagedPartition], list[ManagedPartition]]:
    """
    Register partitions of opened directories.

    Returns:
        The registered partitions, and old copies of moved partitions, which must be deleted.
    """
    registered: list[ManagedPartition] = []
    left: list[ManagedPartition] = []
    for partition in partitions:
        other = registry.add(partition)
        if other is None:
            registered.append(partition)
            continue
        loser = moves.loser(partition, other)
        if loser is None:
            block_duplicate(other, partition.directory, faults)
            continue
        left.append(loser)
        if loser is other:
            other.mark_gone()
            registry.replace(other, partition)
            registered = [each for each in registered if each is not other]
            registered.append(partition)
            faults.remove(partition.topic_partition)
    return registered, left


def block_duplicate(
    partition: ManagedPartition, rival: DataDirectory, faults: FaultRegistry
) -> None:
    """Block a partition because another data directory has it, too."""
    name = partition.topic_partition
    error = LogOfflineError(
        f"{name} is in {partition.directory.path} and in {rival.path}: move one of the two out of"
        " its data directory, and open it again",
        path=rival.path / partition_directory_name(name),
    )
    partition.block(error, rival)
    faults.record_failure(OPEN, name, error)


def _was_removed(directory: DataDirectory, path: Path) -> bool:
    """Return whether an operator has moved a stray partition away."""
    try:
        return directory.is_online and directory.filesystem.stat(path) is None
    except OSError:
        return False
