"""The home of a partition that a manager has: its directory answers, instead of files.

The same promises as those of `kafkalog.log.partition_paths`, kept by the directory for all of its
partitions
together: what a checkpoint must say is on the disk before it counts, and the marker of a clean
shutdown is gone before anything changes.

Thread-safety: immutable; the directory has locks of its own.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from kafkalog.files.names import (
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    partition_directory_name,
)
from kafkalog.log.partition_paths import PartitionPaths, fingerprint_of
from kafkalog.manager.directory import DataDirectory
from kafkalog.model import TopicPartition

__all__ = ["DirectoryCheckpointStore"]


@dataclass(frozen=True, slots=True)
class DirectoryCheckpointStore(PartitionPaths):
    """
    A partition's place in a data directory that a manager has.

    Attributes:
        data_directory: the directory.
    """

    data_directory: DataDirectory

    @classmethod
    def of(cls, directory: DataDirectory, partition: TopicPartition) -> DirectoryCheckpointStore:
        """Return the store of a partition that is, or will be, in a directory."""
        name = partition_directory_name(partition)
        return cls(
            directory.filesystem, directory.path / name, directory.path, partition, directory
        )

    def read_recovery_point(self) -> int:
        """Return the recovery point, 0 where there is none."""
        return self.data_directory.checkpoints.recovery_points.get(self.topic_partition) or 0

    def read_start_offset(self) -> int | None:
        """Return the log start offset, None where the first segment's base says it."""
        return self.data_directory.checkpoints.start_offsets.get(self.topic_partition)

    def read_cleaner_offset(self) -> int | None:
        """Return where the next cleaning begins, None where there was none."""
        return self.data_directory.checkpoints.cleaner_offsets.get(self.topic_partition)

    def write_cleaner_offset(self, offset: int) -> None:
        """Put where the next cleaning begins; on the disk when this returns."""
        self.data_directory.checkpoints.cleaner_offsets.write_through(self.topic_partition, offset)

    def write_recovery_point(self, offset: int) -> None:
        """
        Put the recovery point; on the disk when this returns, if it falls.

        What lies above it may be replaced by other records, which nobody has compacted.
        """
        checkpoints = self.data_directory.checkpoints
        compacted_end = checkpoints.cleaner_offsets.get(self.topic_partition)
        if compacted_end is not None and offset < compacted_end:
            checkpoints.cleaner_offsets.write_through(self.topic_partition, offset)
        checkpoints.recovery_points.write_or_cache(self.topic_partition, offset)

    def write_start_offset(self, offset: int | None) -> None:
        """Put the log start offset, on the disk when this returns; None may follow later."""
        notes = self.data_directory.checkpoints.start_offsets
        if offset is None:
            notes.set(self.topic_partition, None)
        else:
            notes.write_through(self.topic_partition, offset)

    def broker_fingerprint(self) -> bytes:
        """
        Return a digest of files that a broker writes, and we seldom or never.

        The high watermarks are written here too, and get back the time that they had: a broker's
        have another one.
        """
        watermarks = self.filesystem.stat(self.state_directory / HIGH_WATERMARK_CHECKPOINT)
        epochs = self.filesystem.stat(self.directory / LEADER_EPOCH_CHECKPOINT)
        times = (None if watermarks is None else watermarks.modified_ms, fingerprint_of(epochs))
        return hashlib.blake2b(repr(times).encode(), digest_size=8).digest()

    def was_closed_in_order(self) -> bool:
        """Return whether the partition was closed in order (without a session)."""
        return self.data_directory.sessions.is_clean(self.directory.name)

    def begin_session(self, tenure: object) -> bool:  # noqa: ARG002 - the directory has the lock
        """Take the marker away, and return whether this partition was closed in order."""
        return self.data_directory.sessions.begin(self.directory.name)

    def end_session(self, *, in_order: bool) -> None:
        """Leave; the directory puts the marker back when it is closed."""
        self.data_directory.sessions.end(self.directory.name, in_order=in_order)
