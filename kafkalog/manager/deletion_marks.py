"""Marks of partitions at their deletion, which reveal that a broker has used them since.

If a crash interrupts the deletion of a topic, the next start of a manager continues it. A broker
that used the data directories in between ignores the note of the deletion: it creates missing
partitions under the same topic id and appends to the others. Records that it acknowledged must not
be deleted. The note therefore has a mark of each readable partition. A partition that does not fit
its mark shows that a broker had the topic, and ends the deletion.

| part of the mark | change by a broker that leads the partition |
|---|---|
| the latest leader epoch | incremented at its start |
| the base offset and the size of the last segment | increased by appends |
| the header of the first batch, with its CRC | different if it created the partition |

A power failure may shorten a log, even to zero bytes, or its epochs, but never extends them. A copy
of the data directory has the same marks.

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
from kafkalog.layout import MESSAGE_OVERHEAD_V0
from kafkalog.manager.directory import is_failure_of_disk
from kafkalog.manager.registry import ManagedPartition
from kafkalog.state.checkpoints import LeaderEpochCheckpoint

__all__ = ["PartitionMark", "read_marks"]

SUFFIX = ".log"
# No entry of any format is smaller; the CRC of the batch is in it, in v0, v1 and v2.
HEADER_BYTES = MESSAGE_OVERHEAD_V0


class PartitionMark(NamedTuple):
    """
    State of a partition when its deletion was recorded.

    Attributes:
        first_sum: CRC-32C of the beginning of its first segment, 0 without a batch.
        base_offset: base offset of its last segment, 0 without a segment.
        size_bytes: size of that segment.
        leader_epoch: its latest leader epoch, -1 without an epoch.
    """

    first_sum: int
    base_offset: int
    size_bytes: int
    leader_epoch: int

    def is_of(self, later: PartitionMark) -> bool:
        """Return whether a later mark is of the same partition, without newer records."""
        return (
            later.first_sum in (self.first_sum, 0)
            and (later.base_offset, later.size_bytes) <= (self.base_offset, self.size_bytes)
            and later.leader_epoch <= self.leader_epoch
        )

    def to_text(self) -> str:
        """Return the text that `from_text` parses."""
        return ".".join(map(str, self))

    @classmethod
    def from_text(cls, text: str) -> PartitionMark:
        """Return the mark of a text, or raise ValueError."""
        numbers = text.split(".")
        if len(numbers) != len(cls._fields):
            raise ValueError(f"mark of a partition must have 4 numbers, got {text[:80]!r}")
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
    # A damaged file of epochs is ignored; the log has the other parts of the mark.
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
        # Another kind of file has no batch.
        return 0
    return crc32c(data) if len(data) == HEADER_BYTES and any(data) else 0
