"""Snapshot of the directories of a query: partitions, segments, ends; in columns.

The rows of segments are in NumPy arrays, 24 bytes each, since a driver may have millions of them.
Only the ends of logs are opened, and the time indexes if a filter needs times.

Thread-safety: a snapshot is immutable. It stays in the driver, and is not pickled: the workers get
a `LogSplit`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from kafkalog.errors import KafkaLogError
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import FileKind, live_base_offset
from kafkalog.files.posix import PosixFileSystem
from kafkalog.log.aborted import last_stable_offset
from kafkalog.model import TopicPartition
from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError, of_engine
from kafkalog.spark.options import ReadOptions
from kafkalog.spark.plan.filters import EVERYTHING, FilterSet
from kafkalog.spark.plan.listing import FoundPartition, list_partitions, read_log_starts
from kafkalog.spark.plan.log_files import (
    UNKNOWN_TIMESTAMP,
    find_log_end,
    largest_timestamp,
)

__all__ = ["PartitionFacts", "QuerySnapshot", "read_partition_facts", "retry_transient"]

Int64Array = npt.NDArray[np.int64]
_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """
    Facts from one read of a partition.

    Attributes:
        log_start_offset, log_end_offset: of the log.
        visible_end: end for this reader: the log end, or the last stable offset.
        base_offsets: of the segments, rising.
        sizes: of their `.log` files; of the last one up to the log end.
    """

    log_start_offset: int
    log_end_offset: int
    visible_end: int
    base_offsets: tuple[int, ...]
    sizes: tuple[int, ...]


def read_partition_facts(
    filesystem: FileSystem, directory: str, checkpointed_start: int, isolation: str
) -> PartitionFacts:
    """
    Return the facts of a partition.

    Args:
        filesystem: the disk.
        directory: of the partition.
        checkpointed_start: the log start offset of its checkpoint, 0 without one.
        isolation: `read_committed` finds the last stable offset.

    Raises:
        FileNotFoundError: files disappeared during the read; another read finds their successors.
        KafkaLogError: the engine cannot open the log.
    """
    path, suffix = Path(directory), FileKind.LOG.value
    extents = filesystem.extents(path, suffix)
    by_base = {
        base: extent.size_bytes
        for name, extent in extents.items()
        if (base := live_base_offset(name, suffix)) is not None
    }
    if not by_base:
        start = checkpointed_start
        return PartitionFacts(start, start, start, (), ())
    bases = sorted(by_base)
    end, end_position = find_log_end(filesystem, path, bases[-1])
    by_base[bases[-1]] = end_position
    start = max(checkpointed_start, bases[0])
    end = max(end, start)
    visible = end
    if isolation == "read_committed" and end > start:
        visible = max(last_stable_offset(filesystem, path, start, end), start)
    return PartitionFacts(start, end, visible, tuple(bases), tuple(by_base[base] for base in bases))


def retry_transient(look: Callable[[], _Found], retries: int, directory: str) -> _Found:
    """
    Return the result of a read of files, with retries if the files change during it.

    Raises:
        KafkaLogSparkError: STORAGE, or the translation of the engine's error.
    """
    try:
        with storage_errors(Path(directory), doing="looking at"):
            for _attempt in range(retries):
                try:
                    return look()
                except FileNotFoundError:
                    continue
            return look()
    except KafkaLogError as error:
        raise of_engine(error, path=directory) from error


@dataclass(frozen=True, eq=False)
class QuerySnapshot:
    """
    Partitions and their segments.

    Attributes:
        directories, topics: of each partition, by topic and number.
        partitions: the numbers, int32 of shape (p,).
        log_starts, log_ends: int64 of shape (p,); the ends are those of the logs.
        visible_ends: ends for this reader; the log ends, or the last stable offsets.
        first_rows: int64 of shape (p + 1,): between two of them are a partition's segments.
        base_offsets, sizes: of the segments, int64 of shape (n,).
        largest_timestamps: in ms, int64 of shape (n,), UNKNOWN_TIMESTAMP if unknown; None if they
            were not read.
        left_out: partitions that are selected, but excluded by a filter.
        filesystem: the disk of the partitions.
    """

    directories: tuple[str, ...]
    topics: tuple[str, ...]
    partitions: npt.NDArray[np.int32]
    log_starts: Int64Array
    log_ends: Int64Array
    visible_ends: Int64Array
    first_rows: Int64Array
    base_offsets: Int64Array
    sizes: Int64Array
    largest_timestamps: Int64Array | None = None
    left_out: frozenset[tuple[str, int]] = frozenset()
    filesystem: FileSystem | None = None

    def __len__(self) -> int:
        return len(self.directories)

    @property
    def disk(self) -> FileSystem:
        """The disk for further reads."""
        return PosixFileSystem() if self.filesystem is None else self.filesystem

    def names(self) -> list[tuple[str, int]]:
        """Return topic and number of each partition."""
        return list(zip(self.topics, self.partitions.tolist(), strict=True))

    @classmethod
    def take(
        cls,
        options: ReadOptions,
        *,
        filters: FilterSet = EVERYTHING,
        filesystem: FileSystem | None = None,
    ) -> QuerySnapshot:
        """
        Take a snapshot of the partitions that the options select.

        Args:
            options: paths, topics, isolation.
            filters: partitions that they exclude are not opened.
            filesystem: the disk; the machine's if None.

        Raises:
            KafkaLogSparkError: PATH_NOT_FOUND, TOPIC_NOT_FOUND, OPTION_CONFLICT, STORAGE.
        """
        disk = PosixFileSystem() if filesystem is None else filesystem
        found = list_partitions(disk, options.paths, options.topics)
        if not options.streaming:
            _check_topics(options, found)
        partitions = [
            each for each in found if filters.matches_partition(each.topic, each.partition)
        ]
        left_out = {(each.topic, each.partition) for each in found}
        left_out.difference_update((each.topic, each.partition) for each in partitions)
        starts = read_log_starts(disk, {each.state_directory for each in partitions})
        looked = []
        for each in partitions:
            name = TopicPartition(each.topic, each.partition)
            start = starts.get((each.state_directory, name), 0)
            look = partial(read_partition_facts, disk, each.directory, start, options.isolation)
            looked.append(retry_transient(look, options.retries, each.directory))
        snapshot = cls.of(partitions, looked, left_out=frozenset(left_out), filesystem=disk)
        if filters.timestamps.is_all:
            return snapshot
        return replace(snapshot, largest_timestamps=_read_times(snapshot))

    @classmethod
    def of(
        cls,
        found: Sequence[FoundPartition],
        looked: Sequence[PartitionFacts],
        *,
        left_out: frozenset[tuple[str, int]] = frozenset(),
        filesystem: FileSystem | None = None,
    ) -> QuerySnapshot:
        """Return the snapshot of partitions with known facts."""
        counts = [len(facts.base_offsets) for facts in looked]
        first_rows = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(counts, out=first_rows[1:])
        row_count = int(first_rows[-1])
        bases = (base for facts in looked for base in facts.base_offsets)
        sizes = (size for facts in looked for size in facts.sizes)
        return cls(
            directories=tuple(each.directory for each in found),
            topics=tuple(each.topic for each in found),
            partitions=np.array([each.partition for each in found], np.int32),
            log_starts=np.array([facts.log_start_offset for facts in looked], np.int64),
            log_ends=np.array([facts.log_end_offset for facts in looked], np.int64),
            visible_ends=np.array([facts.visible_end for facts in looked], np.int64),
            first_rows=first_rows,
            base_offsets=np.fromiter(bases, np.int64, row_count),
            sizes=np.fromiter(sizes, np.int64, row_count),
            left_out=left_out,
            filesystem=filesystem,
        )

    def segments_of(self, partition_row: int) -> tuple[list[int], list[int]]:
        """Return base offsets and sizes of a partition's segments."""
        rows = slice(int(self.first_rows[partition_row]), int(self.first_rows[partition_row + 1]))
        return self.base_offsets[rows].tolist(), self.sizes[rows].tolist()


def _read_times(snapshot: QuerySnapshot) -> Int64Array:
    """Read the largest time of every sealed segment from its time index."""
    disk, first_rows = snapshot.disk, snapshot.first_rows.tolist()
    times = np.full(len(snapshot.base_offsets), UNKNOWN_TIMESTAMP, np.int64)
    for row, directory in enumerate(snapshot.directories):
        path = Path(directory)
        for segment in range(first_rows[row], first_rows[row + 1] - 1):
            base = int(snapshot.base_offsets[segment])
            look = partial(largest_timestamp, disk, path, base)
            times[segment] = retry_transient(look, 0, directory)
    return times


def _check_topics(options: ReadOptions, found: Sequence[FoundPartition]) -> None:
    """Raise if named topics or partitions do not exist."""
    topics = {each.topic for each in found}
    selection = options.topics
    missing: list[str] = [topic for topic in selection.topics if topic not in topics]
    if selection.kind == "assign":
        present = {(each.topic, each.partition) for each in found}
        missing = [
            f"{topic}-{number}"
            for topic, number in selection.partitions
            if (topic, number) not in present
        ]
    if missing:
        raise KafkaLogSparkError(
            ErrorCode.TOPIC_NOT_FOUND,
            f"not found: {', '.join(missing[:5])} in {', '.join(options.paths)}",
            topics=missing[:100],
            paths=list(options.paths),
        )
