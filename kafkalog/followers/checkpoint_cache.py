"""Checkpoints of a data directory that a follower has read, for all of its partitions.

A checkpoint has a line for each partition of its directory, and is replaced as a whole. So it is
read again only if another file has its name.

Thread-safety: one thread at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileFacts, FileSystem
from kafkalog.model import TopicPartition
from kafkalog.state.checkpoints import OffsetCheckpoint

__all__ = ["CheckpointCache"]


class CheckpointCache:
    """
    Content of checkpoints, by their paths.

    Args:
        filesystem: the disk.
    """

    def __init__(self, filesystem: FileSystem) -> None:
        self._filesystem = filesystem
        self._contents: dict[Path, tuple[FileFacts | None, Mapping[TopicPartition, int]]] = {}

    def read(self, checkpoint: OffsetCheckpoint) -> Mapping[TopicPartition, int]:
        """
        Return the offsets of a checkpoint.

        Raises:
            CorruptStateError: it is damaged.
            LogStorageError: the disk refused.
        """
        path = checkpoint.path
        with storage_errors(path, doing="reading"):
            facts = self._filesystem.stat(path)
        cached = self._contents.get(path)
        if cached is not None and cached[0] == facts:
            return cached[1]
        offsets = checkpoint.read()
        self._contents[path] = facts, offsets
        return offsets
