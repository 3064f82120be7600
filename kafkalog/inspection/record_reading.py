"""`read_records`: records of a range of offsets or times of any partitions, damage skipped.

Each log is opened read-only, one after the other, so another process may write at the same time.
Of the records only the current batch is in memory; records decode key, value and headers on access.

Thread-safety: an iterator belongs to one thread at a time.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple, TypeVar

from kafkalog._core.record import Record
from kafkalog.errors import LogStorageError, OffsetOutOfRangeError
from kafkalog.files.directories import Paths, as_paths
from kafkalog.files.errors import has_missed_file, storage_errors
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import DirectoryState, FileKind, live_base_offset
from kafkalog.files.posix import PosixFileSystem
from kafkalog.inspection.targets import PartitionTarget, find_partitions
from kafkalog.log.corrupt_ranges import CorruptRange
from kafkalog.log.isolation import Isolation, check_isolation
from kafkalog.log.log import Log
from kafkalog.log.opening import open_log
from kafkalog.model import TopicPartition

__all__ = [
    "FoundRecord",
    "RecordSelection",
    "last_records",
    "log_range",
    "open_found",
    "read_present",
    "read_records",
    "report_damage",
    "resume_after_deletion",
    "select_found",
    "to_milliseconds",
]

# Openings of a log whose segments a writer deletes or replaces at the same time.
_ATTEMPTS: Final = 5
_Item = TypeVar("_Item")

# Offsets before the end that are read first for the last records; more are read if they do not do.
_FIRST_LAST_OFFSETS: Final = 64


class FoundRecord(NamedTuple):
    """
    A record of a partition.

    Attributes:
        partition: the partition.
        record: the record.
    """

    partition: TopicPartition
    record: Record


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSelection:
    """
    Selection of records of each partition.

    Attributes:
        start, end: first offset, and one past the last; those of the log if None.
        since_ms, until_ms: first timestamp, and one past the last.
        key: only records with this key.
        last: number of records at the end of each partition; a search does not use it.
        isolation: as for `Log.records`.

    Raises:
        ValueError: a number is out of its range.
    """

    start: int | None = None
    end: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    key: bytes | None = None
    last: int | None = None
    isolation: Isolation = "read_uncommitted"

    def __post_init__(self) -> None:
        check_isolation(self.isolation)
        for name in ("start", "end", "since_ms", "until_ms", "last"):
            number = getattr(self, name)
            if number is not None and (type(number) is not int or number < 0):
                raise ValueError(f"{name} must be an int >= 0, got {number!r}")

    def has(self, record: Record) -> bool:
        """Return whether a record has the times and the key."""
        if self.since_ms is not None and record.timestamp_ms < self.since_ms:
            return False
        if self.until_ms is not None and record.timestamp_ms >= self.until_ms:
            return False
        return self.key is None or record.key == self.key


def read_records(
    paths: Paths,
    *,
    start: int | None = None,
    end: int | None = None,
    last: int | None = None,
    limit: int | None = None,
    since: int | datetime | None = None,
    until: int | datetime | None = None,
    key: bytes | None = None,
    partitions: Iterable[int] | None = None,
    isolation: Isolation = "read_uncommitted",
    on_damage: Callable[[CorruptRange], object] | None = None,
    filesystem: FileSystem | None = None,
) -> Iterator[FoundRecord]:
    """
    Yield records of partitions, one partition after the other, each in the order of its offsets.

    >>> for partition, record in kafkalog.read_records("orders@data", since=yesterday):
    ...     print(partition, record.offset, record.value)

    Nothing is changed or locked. Corrupt ranges are skipped and reported.

    Args:
        paths: partition directories, data directories, or names as `topic@directory`.
        start: first offset; a log that begins later is read from its start.
        end: one past the last offset.
        last: number of records at the end of each partition, of those that all else selects.
        limit: largest number of records.
        since: first timestamp, in ms since 1970 or as an aware datetime.
        until: one past the last timestamp.
        key: only records with this key.
        partitions: only partitions with these numbers.
        isolation: "read_committed" leaves out open and aborted transactions.
        on_damage: called with each corrupt range that was skipped.
        filesystem: the disk; the machine's if None.

    Raises:
        NotALogError: a path does not exist, or is neither a data directory nor a partition.
        UnknownTopicOrPartitionError: a data directory does not have the named topic.
        LogStorageError: the disk refused.
        ValueError: an argument is out of its range.
    """
    selection = RecordSelection(
        start=start,
        end=end,
        last=last,
        since_ms=to_milliseconds(since),
        until_ms=to_milliseconds(until),
        key=key,
        isolation=isolation,
    )
    if limit is not None and limit < 0:
        raise ValueError(f"limit must be >= 0, got {limit}")
    filesystem = PosixFileSystem() if filesystem is None else filesystem
    found = select_found(filesystem, paths, partitions)
    return _read(filesystem, found, selection, limit, on_damage)


def select_found(
    filesystem: FileSystem, paths: Paths, partitions: Iterable[int] | None = None
) -> list[PartitionTarget]:
    """Return the live partitions of paths and names; a path of a partition in any state."""
    targets = (paths,) if isinstance(paths, str | os.PathLike) else tuple(paths)
    numbers = None if partitions is None else frozenset(partitions)
    chosen = []
    for target in targets:
        found = find_partitions(filesystem, target)
        for each in found:
            if (each.path,) != as_paths(target) and not _is_live(filesystem, each):
                continue
            if numbers is None or each.name.topic_partition.partition in numbers:
                chosen.append(each)
    return chosen


def _is_live(filesystem: FileSystem, found: PartitionTarget) -> bool:
    """Return whether a name of a data directory is that of a live partition."""
    if found.name.state is not DirectoryState.LIVE:
        return False
    with storage_errors(found.path, doing="reading"):
        facts = filesystem.stat(found.path)
    return facts is not None and facts.is_directory


@contextlib.contextmanager
def open_found(filesystem: FileSystem, found: PartitionTarget) -> Iterator[Log | None]:
    """Yield the log of a partition, read-only; None if it has no segment yet, or was deleted."""
    with storage_errors(found.path, doing="listing"):
        try:
            files = filesystem.extents(found.path, FileKind.LOG.value)
        except FileNotFoundError:
            files = {}
    if not any(live_base_offset(name, FileKind.LOG) is not None for name in files):
        yield None
        return
    log = _open(filesystem, found)
    try:
        yield log
    finally:
        log.close()


def _open(filesystem: FileSystem, found: PartitionTarget) -> Log:
    """Open a log; again if a segment was deleted or replaced during the opening."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return open_log(found.path, read_only=True, filesystem=filesystem)
        except LogStorageError as error:
            if not has_missed_file(error):
                raise
    return open_log(found.path, read_only=True, filesystem=filesystem)


def log_range(log: Log, selection: RecordSelection) -> tuple[int, int]:
    """Return the offsets of a log to read; equal ones for nothing."""
    lower, upper = log.log_start_offset, log.high_watermark
    if selection.isolation == "read_committed":
        upper = log.last_stable_offset
    start = lower if selection.start is None else min(max(selection.start, lower), upper)
    end = upper if selection.end is None else max(min(selection.end, upper), start)
    if selection.since_ms is not None:
        found = log.offset_for_timestamp(selection.since_ms, isolation=selection.isolation)
        start = end if found is None else min(max(start, found.offset), end)
    return start, end


def to_milliseconds(time: int | datetime | None) -> int | None:
    """Return a time in ms since 1970; ValueError for a datetime without a time zone."""
    if not isinstance(time, datetime):
        return time
    if time.tzinfo is None:
        raise ValueError(f"a datetime must have a time zone, got {time!r}")
    return int(time.timestamp() * 1000)


def _read(
    filesystem: FileSystem,
    found: Iterable[PartitionTarget],
    selection: RecordSelection,
    limit: int | None,
    on_damage: Callable[[CorruptRange], object] | None,
) -> Iterator[FoundRecord]:
    left = limit
    for each in found:
        if left == 0:
            return
        with open_found(filesystem, each) as log:
            if log is None:
                continue
            start, end = log_range(log, selection)
            try:
                for record in last_records(log, start, end, selection):
                    yield FoundRecord(each.name.topic_partition, record)
                    if left is not None:
                        left -= 1
                        if left == 0:
                            break
            finally:
                if on_damage is not None:
                    report_damage(log, start, end, on_damage)


def report_damage(
    log: Log, start: int, end: int, on_damage: Callable[[CorruptRange], object]
) -> None:
    """Report the corrupt ranges of a log that overlap a range of offsets."""
    for each in log.corrupt_ranges():
        if each.first_offset < end and start <= max(each.first_offset, each.next_offset - 1):
            on_damage(each)


def last_records(log: Log, start: int, end: int, selection: RecordSelection) -> Iterator[Record]:
    """Yield the selected records with `start` <= offset < `end`; the last ones if so selected."""
    if selection.last is not None:
        start = _start_of_last(log, start, end, selection)
    return _records(log, start, end, selection)


def _records(log: Log, start: int, end: int, selection: RecordSelection) -> Iterator[Record]:
    return filter(selection.has, read_present(log, start, end, selection.isolation))


def read_present(log: Log, start: int, end: int, isolation: Isolation) -> Iterator[Record]:
    """Yield the records with `start` <= offset < `end` that the log still has."""

    def read(start: int, end: int) -> Iterator[Record]:
        return log.records(start, end, on_corrupt="skip", isolation=isolation)

    return resume_after_deletion(log, start, end, read, lambda record: record.offset)


def resume_after_deletion(
    log: Log,
    start: int,
    end: int,
    read: Callable[[int, int], Iterator[_Item]],
    last_offset: Callable[[_Item], int],
) -> Iterator[_Item]:
    """
    Yield what `read` returns for a range of offsets.

    Records that are deleted during the read, by retention or another process, are left out: the
    read continues at the new log start offset.

    Args:
        log: the log.
        start, end: first offset, and one past the last.
        read: returns items from an offset to another.
        last_offset: returns the last offset of an item.
    """
    while start < end:
        try:
            for item in read(start, end):
                start = last_offset(item) + 1
                yield item
        except OffsetOutOfRangeError:
            if log.log_start_offset <= start:
                raise
            start = log.log_start_offset
        else:
            return


def _start_of_last(log: Log, start: int, end: int, selection: RecordSelection) -> int:
    """
    Return the offset of the first of the last records.

    Offsets have gaps, and records may be filtered, so twice as many offsets are read each time.
    """
    assert selection.last is not None
    count = min(selection.last, end - start)
    if count == 0:
        return end
    span = max(count, _FIRST_LAST_OFFSETS)
    while True:
        first = max(end - span, start)
        offsets = deque(
            (each.offset for each in _records(log, first, end, selection)), maxlen=count
        )
        if len(offsets) == count or first == start:
            return offsets[0] if offsets else end
        span *= 2
