"""Checkpoints of a partition in a managed data directory.

`DirectoryCheckpointStore` reads and changes the cached checkpoints and the sessions of a
`DataDirectory`, with the promises of `kafkalog.log.checkpoint_store`: a value is on the disk before
a reader relies on it, and the shutdown marker is removed before anything changes.

Thread-safety: immutable; the directory has separate locks.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from kafkalog._engine.durable_slots import DurableSlot
from kafkalog.files.names import (
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    partition_directory_name,
)
from kafkalog.log.checkpoint_store import fingerprint_of
from kafkalog.log.partition_paths import PartitionPaths
from kafkalog.manager.directory import DataDirectory
from kafkalog.model import TopicPartition

__all__ = ["DirectoryCheckpointStore"]


@dataclass(frozen=True, slots=True)
class DirectoryCheckpointStore:
    """
    A `CheckpointStore` over the cached checkpoints of a data directory.

    Attributes:
        paths: the paths of the partition.
        data_directory: the data directory.
    """

    paths: PartitionPaths
    data_directory: DataDirectory

    @classmethod
    def of(cls, directory: DataDirectory, partition: TopicPartition) -> DirectoryCheckpointStore:
        """Return the store of a partition that is, or will be, in a directory."""
        path = directory.path / partition_directory_name(partition)
        return cls(PartitionPaths(directory.filesystem, path, directory.path, partition), directory)

    def read_recovery_point(self) -> int:
        """See `CheckpointStore`."""
        return self.data_directory.checkpoints.recovery_points.get(self.paths.topic_partition) or 0

    def read_start_offset(self) -> int | None:
        """See `CheckpointStore`."""
        return self.data_directory.checkpoints.start_offsets.get(self.paths.topic_partition)

    def read_cleaner_offset(self) -> int | None:
        """See `CheckpointStore`."""
        return self.data_directory.checkpoints.cleaner_offsets.get(self.paths.topic_partition)

    def write_cleaner_offset(self, offset: int) -> None:
        """See `CheckpointStore`."""
        self.data_directory.checkpoints.cleaner_offsets.write_through(
            self.paths.topic_partition, offset
        )

    def write_recovery_point(self, offset: int) -> None:
        """
        See `CheckpointStore`; a higher recovery point is cached.

        Records above the recovery point may be replaced by others, which were not compacted, so the
        cleaner offset is lowered first.
        """
        checkpoints = self.data_directory.checkpoints
        compacted_end = checkpoints.cleaner_offsets.get(self.paths.topic_partition)
        if compacted_end is not None and offset < compacted_end:
            checkpoints.cleaner_offsets.write_through(self.paths.topic_partition, offset)
        checkpoints.recovery_points.write_or_cache(self.paths.topic_partition, offset)

    def write_start_offset(self, offset: int | None) -> None:
        """See `CheckpointStore`; None is cached."""
        notes = self.data_directory.checkpoints.start_offsets
        if offset is None:
            notes.set(self.paths.topic_partition, None)
        else:
            notes.write_through(self.paths.topic_partition, offset)

    def publish_durable_offset(self, offset: int, is_lowered: bool = False) -> DurableSlot | None:
        """See `CheckpointStore`."""
        return self.data_directory.durable_offsets.publish(
            self.paths.directory, offset, is_lowered=is_lowered
        )

    def broker_fingerprint(self) -> bytes:
        """
        See `CheckpointStore`.

        The manager writes the high watermarks, too, and restores the time of the file, so that only
        a broker changes it.
        """
        watermarks = self.paths.filesystem.stat(
            self.paths.state_directory / HIGH_WATERMARK_CHECKPOINT
        )
        epochs = self.paths.filesystem.stat(self.paths.directory / LEADER_EPOCH_CHECKPOINT)
        times = (None if watermarks is None else watermarks.modified_ms, fingerprint_of(epochs))
        return hashlib.blake2b(repr(times).encode(), digest_size=8).digest()

    def was_closed_in_order(self) -> bool:
        """See `CheckpointStore`."""
        return self.data_directory.sessions.is_clean(self.paths.directory.name)

    def begin_session(self, tenure: object) -> bool:  # noqa: ARG002 - the directory has the lock
        """See `CheckpointStore`."""
        return self.data_directory.sessions.begin(self.paths.directory.name)

    def end_session(self, *, in_order: bool) -> None:
        """See `CheckpointStore`; the directory writes the marker when it is closed."""
        self.data_directory.sessions.end(self.paths.directory.name, in_order=in_order)
