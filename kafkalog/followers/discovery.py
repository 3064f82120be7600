"""Partitions in the data directories of a follower, as they come and go.

A partition is known by its directory: another directory of its name is another partition, unless it
has the same topic id, as after a move to another disk.

Thread-safety: one thread at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from kafkalog.errors import CorruptStateError, LogStorageError, NotALogError
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileFacts, FileSystem
from kafkalog.files.names import (
    DirectoryState,
    partition_directory_name,
    try_parse_partition_directory,
)
from kafkalog.log.partition_paths import PartitionPaths, find_partition_paths
from kafkalog.model import TopicPartition
from kafkalog.state.partition_metadata import read_partition_metadata

__all__ = ["DiscoveredPartition", "PartitionDiscovery", "followed_name"]

logger = logging.getLogger(__name__)


class DiscoveredPartition(NamedTuple):
    """
    A partition directory.

    Attributes:
        where: the partition.
        paths: its directory, and the directory of its checkpoints.
        facts: facts of its directory.
        topic_id: the id of its topic; None if it has none, or it cannot be read.
    """

    where: TopicPartition
    paths: PartitionPaths
    facts: FileFacts
    topic_id: UUID | None


def followed_name(name: str) -> TopicPartition | None:
    """Return the partition in the name of a live partition directory; None for other names."""
    parsed = try_parse_partition_directory(name)
    if parsed is None or parsed.state is not DirectoryState.LIVE:
        return None
    return parsed.topic_partition


class PartitionDiscovery:
    """
    Finds partitions by listing data directories.

    Args:
        filesystem: the disk.
        directories: the data directories; they need not exist yet.
        follows: returns whether a partition is to be followed.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        directories: tuple[Path, ...],
        follows: Callable[[TopicPartition], bool],
    ) -> None:
        self.directories = directories
        self._filesystem = filesystem
        self._follows = follows
        self._marks: dict[Path, tuple[int, ...] | None] = {}

    def names_in(self, directory: Path) -> list[TopicPartition]:
        """
        Return the partitions to follow in a directory; none if it does not exist.

        Raises:
            LogStorageError: the disk refused.
        """
        with storage_errors(directory, doing="listing"):
            self._marks[directory] = self._filesystem.change_mark(directory)
            try:
                names = self._filesystem.list(directory)
            except FileNotFoundError:
                return []
        found = (followed_name(name) for name in names)
        return sorted(each for each in found if each is not None and self._follows(each))

    def changed_directories(self) -> Iterator[Path]:
        """Yield the directories that have changed since `names_in`, or perhaps have."""
        for directory in self.directories:
            with storage_errors(directory, doing="reading"):
                mark = self._filesystem.change_mark(directory)
            if mark is None or mark != self._marks.get(directory):
                yield directory

    def has_directory(self, path: Path, file_id: int) -> bool:
        """Return whether a path is still that of the directory with a number."""
        with storage_errors(path, doing="reading"):
            facts = self._filesystem.stat(path)
        return facts is not None and facts.file_id == file_id

    def find(self, directory: Path, where: TopicPartition) -> DiscoveredPartition | None:
        """
        Return a partition of a data directory; None if it is not there, or not to be followed.

        Raises:
            LogStorageError: the disk refused.
        """
        if not self._follows(where):
            return None
        path = directory / partition_directory_name(where)
        with storage_errors(path, doing="reading"):
            facts = self._filesystem.stat(path)
            if facts is None or not facts.is_directory:
                return None
            try:
                paths = find_partition_paths(self._filesystem, path)
            except (NotALogError, FileNotFoundError):
                # It was removed in between; or it is the directory of something else.
                return None
        return DiscoveredPartition(where, paths, facts, self._topic_id(path))

    def find_anywhere(self, where: TopicPartition) -> DiscoveredPartition | None:
        """Return a partition of any of the data directories."""
        for directory in self.directories:
            found = self.find(directory, where)
            if found is not None:
                return found
        return None

    def _topic_id(self, path: Path) -> UUID | None:
        try:
            return read_partition_metadata(self._filesystem, path)
        except (CorruptStateError, LogStorageError) as error:
            logger.info("%s: its topic id is unknown: %s", path, error)
            return None
