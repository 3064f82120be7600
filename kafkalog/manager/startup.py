"""How a manager's directories are opened: at the start, and when one comes back.

Order: every directory is locked and read; then they are held against each other (cluster, node,
ids, settings of topics); only then anything is written. A directory whose disk refuses, or whose
files are damaged, stays offline; one that somebody else has is an error, for what this manager
would make of the others could contradict it.

Thread-safety: the manager's lock is held.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence

from kafkalog.clock import Clock
from kafkalog.errors import (
    ConfigError,
    CorruptStateError,
    LogLockedError,
    LogStorageError,
)
from kafkalog.files.directories import Paths, as_paths
from kafkalog.files.filesystem import FileSystem
from kafkalog.manager.directory import DataDirectory
from kafkalog.manager.duplicates import block_duplicate
from kafkalog.manager.identity import agree
from kafkalog.manager.move_notes import MoveNotes
from kafkalog.manager.registry import ManagedPartition, PartitionRegistry
from kafkalog.manager.settings import TopicSettings
from kafkalog.manager.supervision import FaultRegistry

__all__ = [
    "Identity",
    "as_directories",
    "open_directories",
    "register_directory",
    "register_partitions",
]

logger = logging.getLogger(__name__)

Identity = tuple[str, int]


def as_directories(paths: Paths, filesystem: FileSystem) -> list[DataDirectory]:
    """Return the directories of some paths; ConfigError where there is none, or one twice."""
    found: dict[str, DataDirectory] = {}
    for path in as_paths(paths):
        real = os.path.realpath(path)
        if real in found:
            raise ConfigError(f"{path} and {found[real].path} are one data directory", path=path)
        found[real] = DataDirectory(path, filesystem)
    if not found:
        raise ConfigError("a manager needs a data directory: log.dirs is empty")
    return list(found.values())


def open_directories(directories: Sequence[DataDirectory]) -> None:
    """
    Open all directories; those that cannot be opened are offline afterwards, with the error.

    Raises:
        LogLockedError, NotALogError: as `DataDirectory.open`; none is open then.
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


def register_directory(
    directories: Sequence[DataDirectory],
    settings: TopicSettings,
    clock: Clock,
    *,
    cluster_id: str | None,
    node_id: int | None,
) -> Identity:
    """
    Hold the online directories against each other; return the cluster and the node.

    Raises:
        ConfigError: they contradict each other, what is asked for, or Kafka's rules for settings.
    """
    for directory in directories:
        if not directory.is_online:
            continue
        try:
            settings.load([directory])
        except (CorruptStateError, LogStorageError) as error:
            # Without its settings of topics nothing of it may be opened.
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


def register_partitions(
    partitions: Iterable[ManagedPartition],
    registry: PartitionRegistry,
    faults: FaultRegistry,
    moves: MoveNotes,
) -> tuple[list[ManagedPartition], list[ManagedPartition]]:
    """
    Take partitions of directories that were opened into the registry.

    Where another directory has a partition too, neither copy is opened: which one is right only
    the operator knows, unless one was moved to the other's directory.

    Returns:
        Those that were taken, and those that a move has left behind, which are to be deleted.
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
