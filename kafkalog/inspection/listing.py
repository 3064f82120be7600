"""`list_partitions`: the partitions of data directories, from names, sizes and a few headers.

Of each partition the directory is listed, and the first and the last batch are found by headers. No
log is opened and no CRC is verified: damage within a log is found by `kafkalog dump`. Nothing is
changed and no lock is taken; a broker or another process may write at the same time.

Thread-safety: pure functions over the disk, immutable values.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, NamedTuple

from kafkalog._core.header import BatchHeader
from kafkalog.codec_table import CODEC_NAMES
from kafkalog.errors import CorruptStateError, LogStorageError
from kafkalog.files.directories import Paths
from kafkalog.files.errors import storage_errors, translate
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import (
    LOG_START_OFFSET_CHECKPOINT,
    TOPIC_OVERRIDES,
    DirectoryState,
    FileKind,
    live_base_offset,
    segment_file_name,
)
from kafkalog.files.posix import PosixFileSystem
from kafkalog.inspection.segment_headers import segment_ends
from kafkalog.inspection.targets import PartitionTarget, find_partitions
from kafkalog.model import TopicPartition
from kafkalog.state.checkpoints import OffsetCheckpoint

__all__ = ["ListedProblem", "PartitionListing", "list_partitions"]

_ATTEMPTS: Final = 5
_LOG: Final = FileKind.LOG.value
_HEALTH_BY_STATE: Final = {
    DirectoryState.LIVE: "ok",
    DirectoryState.DELETE: "deleted",
    DirectoryState.FUTURE: "moving",
    DirectoryState.STRAY: "stray",
}


class ListedProblem(NamedTuple):
    """
    A file that cannot be used as it is.

    Attributes:
        path: the file or directory.
        position: first byte of the problem; None if it concerns the whole file.
        message: the problem.
    """

    path: Path
    position: int | None
    message: str


@dataclass(frozen=True, slots=True)
class PartitionListing:
    """
    A partition directory, by names, sizes and headers.

    Attributes:
        path: the directory.
        topic_partition: its topic and number.
        state: LIVE, or the state in its name: DELETE, FUTURE (being moved) or STRAY.
        size_bytes: size of its segments.
        disk_bytes: size of all its files.
        segment_count: number of its segments.
        start_offset: the log start offset; None without a segment.
        end_offset: one past the last offset; None if the headers do not show it.
        first_timestamp_ms: timestamp in the header of the first batch: of its first record, or the
            largest of an old format; None without one.
        last_timestamp_ms: largest timestamp of the last batch; None without one.
        codec: codec of the last batch; None without a batch.
        leader_epoch: leader epoch of the last batch; None if it has none.
        settings: settings of its topic that `.kafkalog_topics` has, by Kafka's keys.
        problems: files that cannot be used as they are.
    """

    path: Path
    topic_partition: TopicPartition
    state: DirectoryState = DirectoryState.LIVE
    size_bytes: int = 0
    disk_bytes: int = 0
    segment_count: int = 0
    start_offset: int | None = None
    end_offset: int | None = None
    first_timestamp_ms: int | None = None
    last_timestamp_ms: int | None = None
    codec: str | None = None
    leader_epoch: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[ListedProblem, ...] = ()

    @property
    def health(self) -> str:
        """One word: "damaged" with a problem, else "ok", "empty", "deleted", "moving", "stray"."""
        if self.problems:
            return "damaged"
        if self.state is DirectoryState.LIVE and self.end_offset == self.start_offset:
            return "empty"
        return _HEALTH_BY_STATE[self.state]


def list_partitions(
    paths: Paths = ".",
    *,
    topics: str | Iterable[str] = (),
    filesystem: FileSystem | None = None,
) -> list[PartitionListing]:
    """
    Return the partitions of data directories and partition directories, by topic and number.

    >>> for each in kafkalog.list_partitions("data"):
    ...     print(each.topic_partition, each.size_bytes, each.start_offset, each.end_offset)

    Only names, sizes and the headers of the first and the last batch are read. A partition with a
    file that cannot be read is in the list, with its problems.

    Args:
        paths: data directories or partition directories; `topic@directory` for one topic.
        topics: patterns of topic names as of a shell, as `"orders-*"`; all topics if empty.
        filesystem: the disk; the machine's if None.

    Raises:
        NotALogError: a path does not exist, or is neither a data directory nor a partition.
        UnknownTopicOrPartitionError: a data directory does not have the named topic.
        LogStorageError: a data directory cannot be read.
    """
    filesystem = PosixFileSystem() if filesystem is None else filesystem
    patterns = (topics,) if isinstance(topics, str) else tuple(topics)
    targets = (paths,) if isinstance(paths, str | os.PathLike) else tuple(paths)
    found = [each for target in targets for each in find_partitions(filesystem, target)]
    if patterns:
        found = [each for each in found if _matches(each.name.topic_partition.topic, patterns)]
    states = {
        directory: _read_state(filesystem, directory)
        for directory in dict.fromkeys(each.state_directory for each in found)
    }
    listed = (_list_partition(filesystem, each, states[each.state_directory]) for each in found)
    return [each for each in listed if each is not None]


def _matches(topic: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(topic, pattern) for pattern in patterns)


class _State(NamedTuple):
    """Files of a data directory: log start offsets, settings of topics, problems of the files."""

    start_offsets: Mapping[TopicPartition, int]
    settings: Mapping[str, Mapping[str, str]]
    problems: tuple[ListedProblem, ...]


def _read_state(filesystem: FileSystem, directory: Path) -> _State:
    problems = []
    start_offsets: Mapping[TopicPartition, int] = {}
    settings: Mapping[str, Mapping[str, str]] = {}
    checkpoint = OffsetCheckpoint(filesystem, directory / LOG_START_OFFSET_CHECKPOINT)
    try:
        start_offsets = checkpoint.read()
    except (CorruptStateError, LogStorageError) as error:
        problems.append(ListedProblem(checkpoint.path, None, str(error)))
    overrides = directory / TOPIC_OVERRIDES
    try:
        settings = _read_settings(filesystem, directory)
    except (CorruptStateError, LogStorageError) as error:
        problems.append(ListedProblem(overrides, None, str(error)))
    return _State(start_offsets, settings, tuple(problems))


def _read_settings(filesystem: FileSystem, directory: Path) -> Mapping[str, Mapping[str, str]]:
    with storage_errors(directory, doing="reading"):
        if filesystem.stat(directory / TOPIC_OVERRIDES) is None:
            return {}
    # Its module imports those of the manager, which takes as long as a list of a thousand.
    from kafkalog.manager.overrides import read_overrides

    saved = read_overrides(filesystem, directory)
    return {} if saved is None else saved.topics


def _list_partition(
    filesystem: FileSystem, found: PartitionTarget, state: _State
) -> PartitionListing | None:
    """Return a listing; None for a file with the name of a partition, or if it was deleted."""
    for _ in range(_ATTEMPTS):
        # A segment may be deleted or replaced after its directory was listed.
        with contextlib.suppress(FileNotFoundError):
            return _list_once(filesystem, found, state)
    problem = ListedProblem(
        found.path, None, f"{found.path}: a segment disappeared in each of {_ATTEMPTS} attempts"
    )
    return PartitionListing(
        found.path, found.name.topic_partition, found.name.state, problems=(problem,)
    )


def _list_once(
    filesystem: FileSystem, found: PartitionTarget, state: _State
) -> PartitionListing | None:
    """As `_list_partition`; FileNotFoundError if a listed segment disappeared."""
    path, name = found.path, found.name
    topic_partition = name.topic_partition
    settings = state.settings.get(topic_partition.topic, {})
    try:
        files = filesystem.extents(path, "")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        problem = ListedProblem(path, None, str(translate(error, path, doing="listing")))
        return PartitionListing(
            path, topic_partition, name.state, settings=settings, problems=(problem,)
        )
    sizes: dict[int, int] = {}
    disk_bytes = 0
    problems = list(state.problems)
    for each, extent in files.items():
        if not extent.refusal:
            disk_bytes += extent.size_bytes
        base_offset = live_base_offset(each, _LOG) if each.endswith(_LOG) else None
        if base_offset is not None and extent.refusal:
            problems.append(ListedProblem(path / each, None, f"{path / each}: {extent.refusal}"))
        elif base_offset is not None:
            sizes[base_offset] = extent.size_bytes
    if len(sizes) > 1:
        sizes = dict(sorted(sizes.items()))
    ends = _read_ends(filesystem, path, sizes)
    first, last = ends.first, ends.last
    start_offset = None
    if sizes:
        start_offset = max(next(iter(sizes)), state.start_offsets.get(topic_partition, 0))
    return PartitionListing(
        path,
        topic_partition,
        name.state,
        size_bytes=sum(sizes.values()),
        disk_bytes=disk_bytes,
        segment_count=len(sizes),
        start_offset=start_offset,
        end_offset=ends.end_offset,
        first_timestamp_ms=None if first is None else _timestamp(first),
        last_timestamp_ms=None if last is None else _optional(last.max_timestamp),
        codec=None if last is None else _codec_name(last.codec),
        leader_epoch=None if last is None else _optional(last.partition_leader_epoch),
        settings=settings,
        problems=(*problems, *ends.problems),
    )


class _Ends(NamedTuple):
    """First and last batch of a log, its end offset, and the problems that were found."""

    first: BatchHeader | None
    last: BatchHeader | None
    end_offset: int | None
    problems: tuple[ListedProblem, ...]


def _read_ends(filesystem: FileSystem, path: Path, sizes: Mapping[int, int]) -> _Ends:
    """
    Return the first and the last batch of the segments with bytes; sizes by base offset.

    Raises:
        FileNotFoundError: a segment disappeared.
    """
    filled = [base for base, size in sizes.items() if size > 0]
    last_base = next(reversed(sizes), None)
    segment = path
    try:
        # An active segment without a batch may have zeros for its future batches.
        for base in reversed(filled):
            segment = path / _log_name(base)
            found = segment_ends(filesystem, segment, base, sizes[base])
            if found.last is not None or found.problem:
                break
        else:
            return _Ends(None, None, last_base, ())
        problems = []
        if found.problem:
            problems.append(ListedProblem(segment, found.position, found.problem))
        first = found.first
        if base != filled[0]:
            segment = path / _log_name(filled[0])
            first = segment_ends(
                filesystem, segment, filled[0], sizes[filled[0]], has_last=False
            ).first
        if first is None and (found.position > 0 or base != filled[0]):
            problems.append(ListedProblem(segment, 0, "not a batch"))
    except FileNotFoundError:
        raise
    except OSError as error:
        message = str(translate(error, segment, doing="reading"))
        return _Ends(None, None, None, (ListedProblem(segment, None, message),))
    end_offset = last_base
    if base == last_base:
        end_offset = None if found.last is None else found.last.next_offset
    return _Ends(first, found.last, end_offset, tuple(problems))


def _log_name(base_offset: int) -> str:
    return segment_file_name(base_offset, FileKind.LOG)


def _timestamp(header: BatchHeader) -> int | None:
    """Return the first timestamp of a batch; a delete horizon replaces it in a cleaned batch."""
    if header.delete_horizon_ms is not None or header.base_timestamp < 0:
        return _optional(header.max_timestamp)
    return header.base_timestamp


def _optional(number: int) -> int | None:
    """Return a number of a header, None for the -1 of an unknown one."""
    return number if number >= 0 else None


def _codec_name(number: int) -> str:
    return CODEC_NAMES[number] if number < len(CODEC_NAMES) else f"codec{number}"
