"""Limits of followers that show durable records only.

The limit of a partition is the durable offset that its writer publishes
(`kafkalog.state.durable_offsets`). Without one, it is the recovery point in the checkpoint of the
data directory, which every writer raises only after a sync: brokers do so once a minute and when
they stop, and kafkalog when it closes a log.

Thread-safety: one thread at a time.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafkalog.errors import CorruptStateError
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileFacts, FileSystem
from kafkalog.files.names import RECOVERY_POINT_CHECKPOINT
from kafkalog.model import TopicPartition
from kafkalog.state.checkpoints import OffsetCheckpoint
from kafkalog.state.durable_offsets import DurableOffset, DurableOffsetsReader

__all__ = ["NO_LIMIT", "DirectoryLimits", "DurableLimit"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DurableLimit:
    """
    Limit of a partition at a moment.

    Attributes:
        offset: everything below it is on the disk.
        published: what the writer published; None for a recovery point.
        checkpoint: facts of the checkpoint with the recovery point.
    """

    offset: int
    published: DurableOffset | None = None
    checkpoint: FileFacts | None = None


# Of a follower that shows everything that was written.
NO_LIMIT: Final = DurableLimit(2**63 - 1)


class DirectoryLimits:
    """
    Limits of the partitions whose checkpoints are in one directory.

    Args:
        filesystem: the disk.
        directory: the data directory, or a standalone partition directory.
    """

    def __init__(self, filesystem: FileSystem, directory: Path) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._published = DurableOffsetsReader(filesystem, directory)
        self._checkpoint = OffsetCheckpoint(filesystem, directory / RECOVERY_POINT_CHECKPOINT)
        self._facts: FileFacts | None = None
        self._recovery_points: dict[TopicPartition, int] = {}
        self._has_warned = False

    def refresh(self) -> frozenset[bytes] | None:
        """
        Read what has changed; return the digests of partitions with other limits, None for all.

        Raises:
            LogStorageError: the disk refused.
        """
        with storage_errors(self._directory, doing="reading the durable offsets"):
            changed = self._published.refresh()
            facts = self._filesystem.stat(self._checkpoint.path)
        if facts != self._facts:
            self._read_checkpoint(facts)
            changed = None
        return None if changed is None else frozenset(changed)

    def verify_writer(self) -> None:
        """Let the next `refresh` verify that the process with the lock is the same one."""
        self._published.verify_writer()

    def limit_of(self, partition: TopicPartition, digest: bytes) -> DurableLimit:
        """Return the limit of a partition as it was at the last `refresh`."""
        published = self._published.get(digest)
        if published is not None:
            return DurableLimit(published.offset, published)
        return DurableLimit(self._recovery_points.get(partition, 0), None, self._facts)

    def is_unchanged(self, digest: bytes, limit: DurableLimit) -> bool:
        """
        Return whether records below the limit, read by now, were on the disk.

        Raises:
            LogStorageError: the disk refused.
        """
        if limit is NO_LIMIT:
            return True
        with storage_errors(self._directory, doing="reading the durable offsets"):
            if limit.published is not None:
                return self._published.is_unchanged(digest, limit.published)
            return self._filesystem.stat(self._checkpoint.path) == limit.checkpoint

    def close(self) -> None:
        """Close the file of the durable offsets."""
        self._published.close()

    def _read_checkpoint(self, facts: FileFacts | None) -> None:
        """Read the recovery points; without them no record counts as durable."""
        self._facts = facts
        self._recovery_points = {}
        try:
            if facts is not None:
                self._recovery_points = self._checkpoint.read()
        except CorruptStateError as error:
            if not self._has_warned:
                self._has_warned = True
                logger.warning("%s is ignored: %s", self._checkpoint.path, error)
