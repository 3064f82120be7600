"""Paths of a partition: its directory, and the directory of its checkpoints, marker and lock.

A partition inside a data directory (a directory with `meta.properties`, a checkpoint or a shutdown
marker) uses the checkpoints, the marker and the lock of that directory, as a broker does. A
standalone partition directory has the same files within itself; a broker that is given the
directory later ignores them.

Thread-safety: immutable values and pure functions over the disk.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from kafkalog.errors import NotALogError
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import (
    CLEAN_SHUTDOWN_MARKER,
    CLEANER_OFFSET_CHECKPOINT,
    DATA_DIRECTORY_FILES,
    DURABLE_OFFSETS,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    SYNC_JOURNAL,
    DirectoryState,
    PartitionDirectory,
    is_topic_name,
    try_parse_partition_directory,
    try_parse_segment_file,
)
from kafkalog.model import TopicPartition
from kafkalog.state.checkpoints import LeaderEpochCheckpoint

__all__ = ["PartitionPaths", "find_partition_paths"]


@dataclass(frozen=True, slots=True)
class PartitionPaths:
    """
    Paths and name of a partition.

    Attributes:
        filesystem: the disk.
        directory: the partition directory.
        state_directory: directory of checkpoints, marker and lock.
        topic_partition: its name in the checkpoints.
    """

    filesystem: FileSystem
    directory: Path
    state_directory: Path
    topic_partition: TopicPartition

    @property
    def is_standalone(self) -> bool:
        """True if the partition directory is not in a data directory."""
        return self.directory == self.state_directory

    def standalone_at(self, directory: Path) -> PartitionPaths:
        """Return the paths of a standalone directory of the same partition."""
        return replace(self, directory=directory, state_directory=directory)

    def leader_epochs(self) -> LeaderEpochCheckpoint:
        """Return the file of the partition's leader epochs."""
        return LeaderEpochCheckpoint(self.filesystem, self.directory / LEADER_EPOCH_CHECKPOINT)


def find_partition_paths(filesystem: FileSystem, directory: Path) -> PartitionPaths:
    """
    Return the paths of the partition in `directory`, which need not exist yet.

    Raises:
        NotALogError: the path is a file, a data directory, a deleted, stray or moving directory
            next to another one of the same partition, or a directory without a log.
    """
    facts = filesystem.stat(directory)
    if facts is not None and not facts.is_directory:
        raise NotALogError(f"{directory} is a file, not a partition directory", path=directory)
    names = [] if facts is None else filesystem.list(directory)
    parsed = try_parse_partition_directory(directory.name)
    inside = any(
        filesystem.stat(directory.parent / name) is not None for name in DATA_DIRECTORY_FILES
    )
    if inside:
        if parsed is None:
            raise NotALogError(
                f"{directory} is in a data directory, but is not named topic-partition",
                path=directory,
            )
        _ensure_checkpointed(filesystem, directory, parsed)
        return PartitionPaths(filesystem, directory, directory.parent, parsed.topic_partition)
    if META_PROPERTIES in names:
        raise NotALogError(
            f"{directory} is a data directory: open one of its partitions", path=directory
        )
    holds_log = any(try_parse_segment_file(name) is not None for name in names)
    if names and not holds_log and not set(names) <= _OWN_FILES:
        raise NotALogError(
            f"{directory} is not a log: no segment file, but {names[0]!r} and"
            f" {len(names) - 1} others",
            path=directory,
        )
    if parsed is not None and parsed.state is DirectoryState.LIVE:
        return PartitionPaths(filesystem, directory, directory, parsed.topic_partition)
    topic = directory.name if is_topic_name(directory.name) else "log"
    return PartitionPaths(filesystem, directory, directory, TopicPartition(topic, 0))


def _ensure_checkpointed(
    filesystem: FileSystem, directory: Path, parsed: PartitionDirectory
) -> None:
    """Raise NotALogError if checkpoint entries may belong to another directory."""
    if parsed.state is DirectoryState.LIVE:
        return
    for name in filesystem.list(directory.parent):
        other = try_parse_partition_directory(name)
        if other is None or name == directory.name:
            continue
        if other.topic_partition == parsed.topic_partition:
            raise NotALogError(
                f"{directory} is next to {name}: the checkpoints of {parsed.topic_partition} in the"
                " data directory may be of that one; move this one out of the data directory to"
                " open it",
                path=directory,
            )


# Files of kafkalog in a partition directory without segments.
_OWN_FILES = frozenset(
    {
        ".lock",
        DURABLE_OFFSETS,
        SYNC_JOURNAL,
        CLEAN_SHUTDOWN_MARKER,
        RECOVERY_POINT_CHECKPOINT,
        RECOVERY_POINT_CHECKPOINT + ".tmp",
        LOG_START_OFFSET_CHECKPOINT,
        LOG_START_OFFSET_CHECKPOINT + ".tmp",
        CLEANER_OFFSET_CHECKPOINT,
        CLEANER_OFFSET_CHECKPOINT + ".tmp",
        "partition.metadata",
        LEADER_EPOCH_CHECKPOINT,
        LEADER_EPOCH_CHECKPOINT + ".tmp",
    }
)
