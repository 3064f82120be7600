"""Partitions made and deleted on the disk.

Crash points of making: after the directory, with or without `partition.metadata`: an empty
partition, whose creation is made up for when it is opened; its caller had no answer.

Crash points of deleting: before the renaming is on the disk, nothing happened; after it, the next
start removes the directory, and forgets what the checkpoints say of the partition. On a full disk
they go on saying it for a while, and a partition of that name cannot be made meanwhile.

Thread-safety: the manager's lock is held.
"""

from __future__ import annotations

import contextlib
import uuid
from pathlib import Path

from kafkalog.files.directories import remove_tree
from kafkalog.files.errors import storage_errors
from kafkalog.files.names import DirectoryState, partition_directory_name
from kafkalog.manager.directory import DataDirectory
from kafkalog.manager.registry import ManagedPartition
from kafkalog.model import TopicPartition
from kafkalog.state.partition_metadata import write_partition_metadata

__all__ = ["make_partition", "rename_deleted", "undo_partition", "unregister_partition"]


def make_partition(
    directory: DataDirectory, partition: TopicPartition, topic_id: uuid.UUID
) -> None:
    """
    Make the directory of a new partition; on the disk when this returns.

    Raises:
        LogStorageError: the disk refused, or something has that name; nothing is left of it.
    """
    filesystem = directory.filesystem
    name = partition_directory_name(partition)
    path = directory.path / name
    directory.ensure_there()
    # What is left there of one that had this name must not speak of this one.
    directory.checkpoints.remove(partition)
    with storage_errors(path, doing="creating"):
        filesystem.make_directory(path)
        try:
            write_partition_metadata(filesystem, path, topic_id)
            filesystem.sync_directory(directory.path)
        except BaseException:
            with contextlib.suppress(OSError):
                remove_tree(filesystem, path)
            raise
    directory.inventory.partitions[name] = partition
    directory.sessions.add(name)
    directory.checkpoints.recovery_points.set(partition, 0)


def undo_partition(partition: ManagedPartition) -> None:
    """Remove a partition that was just made, as far as the disk lets us."""
    directory = partition.directory
    name = partition_directory_name(partition.topic_partition)
    with contextlib.suppress(OSError):
        remove_tree(directory.filesystem, directory.path / name)
        # A part of a topic must not be back after a crash, when nobody notes any longer that it is.
        directory.filesystem.sync_directory(directory.path)
    unregister_partition(directory, partition.topic_partition)


def unregister_partition(directory: DataDirectory, partition: TopicPartition) -> None:
    """Take note that a directory has a partition no more; its checkpoints follow when written."""
    name = partition_directory_name(partition)
    directory.inventory.partitions.pop(name, None)
    directory.sessions.remove(name)
    for notes in directory.checkpoints.all:
        notes.set(partition, None)


def rename_deleted(partition: ManagedPartition) -> Path:
    """
    Give a partition's directory the name of a deleted one; return it. On the disk when it returns.

    What the checkpoints say of the partition is forgotten with their next writing, which must come
    before another one gets its name.

    Raises:
        LogStorageError: the disk refused; after a crash the partition may have either name.
    """
    directory, filesystem = partition.directory, partition.directory.filesystem
    name = partition_directory_name(partition.topic_partition)
    deleted_path = directory.path / partition_directory_name(
        partition.topic_partition, DirectoryState.DELETE
    )
    with storage_errors(directory.path / name, doing="deleting"):
        filesystem.rename(directory.path / name, deleted_path)
        try:
            filesystem.sync_directory(directory.path)
        except OSError:
            # Whoever asks for its log must not find that it has none, and make it anew.
            with contextlib.suppress(OSError):
                filesystem.rename(deleted_path, directory.path / name)
            raise
    unregister_partition(directory, partition.topic_partition)
    return deleted_path
