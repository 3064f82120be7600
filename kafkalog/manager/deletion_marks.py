"""What tells a partition that was to be deleted from what a broker has made of it since.

The note of a deletion that a crash cut short is carried out by the next start of a manager. A
broker that had the data directories in between knows nothing of the note: it makes partitions that
are missing, under the same topic id, and appends to the others. What it acknowledged must not go
with the note. So the note keeps a mark of each partition that it can read, and a partition that
does not fit its mark shows that a broker had the topic: the deletion, which had not ended, is over.

| of a partition | a broker that leads it |
|---|---|
| the latest leader epoch | raises it when it starts |
| the base offset and the size of the last segment | lets them grow when it appends |
| the header of the first batch, with its sum | writes another one where it made the partition |

A power cut may shorten a log, also to nothing, or its epochs; it does not let them grow. A copy of
the data directory has the same marks.

Thread-safety: pure functions over the disk; the manager's lock is held.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from kafkalog._core.crc32c import value as crc32c
from kafkalog.errors import CorruptStateError
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import (
    LEADER_EPOCH_CHECKPOINT,
    SegmentFiles,
    live_base_offset,
    partition_directory_name,
)
from kafkalog.manager.directory import is_failure_of_disk
from kafkalog.manager.registry import ManagedPartition
from kafkalog.state.checkpoints import LeaderEpochCheckpoint

__all__ = ["PartitionMark", "read_marks"]

SUFFIX = ".log"
# The smallest entry of any format; it has the sum of the whole batch in v0, v1 and v2.
HEADER_BYTES = 26


class PartitionMark(NamedTuple):
    """
    What a partition was when its deletion was noted.

    Attributes:
        first_sum: CRC-32C of the beginning of its first segment, 0 where there is no batch.
        base_offset: of its last segment, 0 where it has none.
        size_bytes: of that segment.
        leader_epoch: the latest one, -1 where it has none.
    """

    first_sum: int
    base_offset: int
    size_bytes: int
    leader_epoch: int

    def is_of(self, later: PartitionMark) -> bool:
        """Return whether a mark taken later is of the same partition, with no more in it."""
        return (
            later.first_sum in (self.first_sum, 0)
            and (later.base_offset, later.size_bytes) <= (self.base_offset, self.size_bytes)
            and later.leader_epoch <= self.leader_epoch
        )

    def to_text(self) -> str:
        """Return the text that `from_text` takes."""
        return ".".join(map(str, self))

    @classmethod
    def from_text(cls, text: str) -> PartitionMark:
        """Return what a text describes; ValueError where it describes none."""
        numbers = text.split(".")
        if len(numbers) != len(cls._fields):
            raise ValueError(f"{text[:80]!r}, where the mark of a partition belongs")
        return cls(*map(int, numbers))


def read_marks(partitions: Iterable[ManagedPartition]) -> dict[ManagedPartition, PartitionMark]:
    """
    Return the marks of partitions in directories that are online.

    Raises:
        LogStorageError: the disk refused.
    """
    found = {}
    for each in partitions:
        filesystem = each.directory.filesystem
        path = each.directory.path / partition_directory_name(each.topic_partition)
        with storage_errors(path, doing="reading"):
            found[each] = _read_mark(filesystem, path)
    return found


def _read_mark(filesystem: FileSystem, path: Path) -> PartitionMark:
    bases = sorted(
        base_offset
        for name in filesystem.list(path)
        if (base_offset := live_base_offset(name, SUFFIX)) is not None
    )
    epoch = -1
    # A damaged file tells nothing; the log does.
    with contextlib.suppress(CorruptStateError):
        checkpoint = LeaderEpochCheckpoint(filesystem, path / LEADER_EPOCH_CHECKPOINT)
        epoch = max((entry.epoch for entry in checkpoint.read(rising=False)), default=-1)
    if not bases:
        return PartitionMark(0, 0, 0, epoch)
    first, last = (SegmentFiles(path, base_offset).log for base_offset in (bases[0], bases[-1]))
    facts = filesystem.stat(last)
    size_bytes = 0 if facts is None else facts.size_bytes
    return PartitionMark(_read_first_sum(filesystem, first), bases[-1], size_bytes, epoch)


def _read_first_sum(filesystem: FileSystem, path: Path) -> int:
    try:
        handle = filesystem.open(path)
        try:
            data = handle.pread(HEADER_BYTES, 0)
        finally:
            handle.close()
    except OSError as error:
        if is_failure_of_disk(error):
            raise
        # No regular file, for one: it has no batch.
        return 0
    return crc32c(data) if len(data) == HEADER_BYTES and any(data) else 0
