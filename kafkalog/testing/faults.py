"""Faults on demand: a full disk, a failed sync, damaged and torn batches.

A full disk and a failed sync are errors of the system calls that the engine makes. Damage is a
change of the real bytes of a segment. The engine is the same as in production.

Thread-safety: every method from any thread.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from kafkalog._core.batch import BatchColumns
from kafkalog.errors import CorruptRecordError, InvalidRecordError
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import (
    LOCK_FILE,
    FileKind,
    SegmentFiles,
    live_base_offset,
    partition_directory_name,
)
from kafkalog.model import TopicPartition
from kafkalog.records.memory_walk import walk_memory
from kafkalog.testing.faulty_disk import DiskFault, FaultyDisk

__all__ = ["Faults"]


class _BatchPlace(NamedTuple):
    """File of a batch, the position of its first byte, and its size."""

    path: Path
    position: int
    size_bytes: int


class Faults:
    """
    Faults of the disk of a test; `ManagerFactory.faults`, and the fixture `kafkalog_faults`.

    Args:
        root: directory with the data directories of the test.
        disk: the disk of the managers.
        filesystem: the file system of the machine.
    """

    def __init__(self, root: Path, disk: FaultyDisk, filesystem: FileSystem) -> None:
        self._root = root
        self._disk = disk
        self._filesystem = filesystem

    @contextmanager
    def full_disk(self, directory: Path | None = None) -> Iterator[None]:
        """
        Let the disk be full until the end of the `with`.

        `Log.append` raises DiskFullError, and the log stays online. A producer waits and retries
        every `retry.backoff.ms`, or fails its records with `on_full="raise"`.

        Args:
            directory: the data directory on the full disk; all data directories if None.
        """
        place = self._root if directory is None else Path(directory)
        fault = DiskFault(
            frozenset({"write", "create"}), lambda path: path.is_relative_to(place), errno.ENOSPC
        )
        self._disk.add(fault)
        try:
            yield
        finally:
            self._disk.remove(fault)

    def fail_next_sync(self, topic: str, partition: int = 0) -> None:
        """
        Let the next sync of a segment of a partition fail with EIO.

        The caller of the flush or durable append gets LogStorageError. The log and its data
        directory are offline until `LogManager.bring_online`.
        """
        name = partition_directory_name(TopicPartition(topic, partition))
        suffix = FileKind.LOG.value
        fault = DiskFault(
            frozenset({"sync"}),
            lambda path: path.parent.name == name and path.suffix == suffix,
            errno.EIO,
            is_once=True,
        )
        self._disk.add(fault)

    def damage(self, topic: str, partition: int, offset: int) -> None:
        """
        Flip a bit in the stored batch that has an offset.

        Readers raise CorruptRecordError at the batch, or skip it with on_corrupt="skip". `Log.get`
        need not repeat the checksum of a batch that it has read before.

        Raises:
            ValueError: the partition has no files, or no batch with this offset.
        """
        found = self._find_batch(TopicPartition(topic, partition), offset)
        position = found.position + found.size_bytes - 1
        with found.path.open("r+b") as file:
            file.seek(position)
            value = file.read(1)[0]
            file.seek(position)
            file.write(bytes([value ^ 1]))

    def tear_tail(self, topic: str, partition: int = 0) -> None:
        """
        Cut the last batch of a partition in half, as a crash during its write.

        The next opening truncates the torn batch, and reports it in `Log.recovery_report`. A batch
        that was durable becomes a corrupt range instead, because no crash tears such a batch.

        Raises:
            ValueError: the partition has no files or no batches, or a manager has it open: kill the
                manager before.
        """
        name = TopicPartition(topic, partition)
        directory = self._directory_of(name)
        holder = self._filesystem.lock_holder(directory.parent / LOCK_FILE)
        if holder is not None:
            raise ValueError(f"{name} must not be open: kill or close its manager first")
        segments = [path for path in self._segments(directory) if path.stat().st_size]
        batches = list(_batches_of(segments[-1])) if segments else []
        if not batches:
            raise ValueError(f"{name} must have a batch to tear, got an empty log")
        last = batches[-1][1]
        os.truncate(last.path, last.position + last.size_bytes // 2)

    def _find_batch(self, name: TopicPartition, offset: int) -> _BatchPlace:
        for path in reversed(self._segments(self._directory_of(name))):
            for offsets, place in _batches_of(path):
                if offset in offsets:
                    return place
        raise ValueError(f"offset must be that of a record of {name}, got {offset}")

    def _directory_of(self, name: TopicPartition) -> Path:
        found = sorted(self._root.glob(f"**/{partition_directory_name(name)}"))
        if len(found) != 1:
            raise ValueError(f"{name} must be in one data directory of the test, got {len(found)}")
        return found[0]

    def _segments(self, directory: Path) -> list[Path]:
        offsets = sorted(
            base_offset
            for name in self._filesystem.list(directory)
            if (base_offset := live_base_offset(name, FileKind.LOG.value)) is not None
        )
        return [SegmentFiles(directory, each).log for each in offsets]


def _batches_of(path: Path) -> Iterator[tuple[range, _BatchPlace]]:
    """Return the offsets of each batch of a segment with its place, up to damage or zeros."""
    columns = BatchColumns(1024)
    try:
        for step in walk_memory(path.read_bytes(), columns, check_order=False):
            for row in range(step.count):
                offsets = range(int(columns.base_offset[row]), int(columns.last_offset[row]) + 1)
                position, size = int(columns.position[row]), int(columns.size_bytes[row])
                yield offsets, _BatchPlace(path, position, size)
    except (CorruptRecordError, InvalidRecordError):
        # Zeros of a preallocated file, or earlier damage: the batches before it are found.
        return
