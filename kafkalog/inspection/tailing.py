"""`tail_records`: the last records of partitions, and then those that are appended.

Thread-safety: an iterator belongs to one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkalog.errors import ConfigError, KafkaLogError, NotALogError
from kafkalog.files.directories import Paths
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import DirectoryState, partition_directory_name
from kafkalog.files.posix import PosixFileSystem
from kafkalog.inspection.record_reading import (
    FoundRecord,
    RecordSelection,
    last_records,
    log_range,
    open_found,
    report_damage,
    select_found,
)
from kafkalog.inspection.targets import PartitionTarget
from kafkalog.log.corrupt_ranges import CorruptRange
from kafkalog.log.isolation import Isolation
from kafkalog.model import TopicPartition

if TYPE_CHECKING:
    from kafkalog.clients.consumer import LostRecords

__all__ = ["tail_records"]

# Time without a record after which `on_idle` is called.
_IDLE_MS: Final = 250


def tail_records(
    paths: Paths,
    *,
    last: int = 10,
    follow: bool = False,
    key: bytes | None = None,
    isolation: Isolation = "read_uncommitted",
    on_damage: Callable[[CorruptRange], object] | None = None,
    on_failure: Callable[[KafkaLogError], object] | None = None,
    on_lost: Callable[[LostRecords], object] | None = None,
    on_idle: Callable[[], object] | None = None,
    partitions: Iterable[int] | None = None,
) -> Iterator[FoundRecord]:
    """
    Yield the last records of partitions, and with `follow` those that are appended, without end.

    Nothing is changed or locked. No record is yielded twice, and none is left out in between.

    Args:
        paths: partition directories, data directories, or names as `topic@directory`.
        last: number of records at the end of each partition.
        follow: whether to wait for more records.
        key: only records with this key.
        isolation: "read_committed" leaves out open and aborted transactions.
        on_damage: called with each corrupt range that was skipped.
        on_failure: called with the error of a partition that is left out; it is raised if None.
        on_lost: called with offsets that a followed log does not have any more.
        on_idle: called before the first wait for records, and a few times a second from then on.
        partitions: only partitions with these numbers.

    Raises:
        NotALogError: a path does not exist, or is neither a data directory nor a partition; or
            there is no partition to follow.
        UnknownTopicOrPartitionError: a data directory does not have the named topic.
        ConfigError: a directory to follow is not named topic-partition, or a partition is in two.
        LogStorageError: the disk refused.
        ValueError: an argument is out of its range.
    """
    selection = RecordSelection(last=last, key=key, isolation=isolation)
    filesystem = PosixFileSystem()
    found = select_found(filesystem, paths, partitions)
    if follow and not found:
        raise NotALogError("a path to follow must have a partition, got none")
    directories = _directories(found) if follow else ()
    ends: dict[TopicPartition, int] = {}
    for each in found:
        where = each.name.topic_partition
        try:
            ends[where] = yield from _read_last(filesystem, each, selection, on_damage)
        except KafkaLogError as error:
            if on_failure is None:
                raise
            on_failure(error)
    if not follow or not ends:
        return
    yield from _follow(directories, ends, selection, on_lost, on_idle)


def _read_last(
    filesystem: FileSystem,
    found: PartitionTarget,
    selection: RecordSelection,
    on_damage: Callable[[CorruptRange], object] | None,
) -> Generator[FoundRecord, None, int]:
    """Yield the last records of a partition; return the offset after them."""
    with open_found(filesystem, found) as log:
        if log is None:
            return 0
        start, end = log_range(log, selection)
        for record in last_records(log, start, end, selection):
            yield FoundRecord(found.name.topic_partition, record)
        if on_damage is not None:
            report_damage(log, start, end, on_damage)
        return end


def _follow(
    directories: Sequence[Path],
    ends: Mapping[TopicPartition, int],
    selection: RecordSelection,
    on_lost: Callable[[LostRecords], object] | None,
    on_idle: Callable[[], object] | None,
) -> Iterator[FoundRecord]:
    """Yield the records from `ends` on as they are appended."""
    # Only now: without `follow` the clients and their imports are not needed.
    from kafkalog.followers.follower import follow as follow_partitions

    with follow_partitions(
        directories,
        partitions=list(ends),
        start=ends,
        isolation=selection.isolation,
        on_corrupt="skip",
        on_lost=on_lost,
    ) as follower:
        while True:
            if on_idle is not None:
                on_idle()
            for where, records, _ in follower.pieces(timeout_ms=_IDLE_MS):
                for record in records:
                    if selection.has(record):
                        yield FoundRecord(where, record)
                if on_idle is not None:
                    on_idle()


def _directories(found: Sequence[PartitionTarget]) -> tuple[Path, ...]:
    """Return the data directories of partitions to follow."""
    seen: dict[TopicPartition, Path] = {}
    for each in found:
        where = each.name.topic_partition
        is_live = each.name.state is DirectoryState.LIVE
        if not is_live or each.path.name != partition_directory_name(where):
            raise ConfigError(
                f"a directory to follow must be named topic-partition, as orders-0, got {each.path}"
            )
        if seen.setdefault(where, each.path) != each.path:
            raise ConfigError(f"{where} is in two directories: {seen[where]} and {each.path}")
    return tuple(dict.fromkeys(path.parent for path in seen.values()))
