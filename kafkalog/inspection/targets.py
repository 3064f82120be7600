"""Partitions of a path or a name that an operator gives.

    data                  a data directory: all its partitions
    data/orders-0         a partition directory
    orders@data           the partitions of a topic; data/orders is the same
    orders-0@data         one of them

A name that is not found is an error with the nearest name. Nothing is opened, created or locked.

Thread-safety: pure functions over the disk.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from kafkalog.errors import NotALogError, UnknownTopicOrPartitionError
from kafkalog.files.directories import as_paths
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import (
    DATA_DIRECTORY_FILES,
    LOCK_FILE,
    DirectoryState,
    PartitionDirectory,
    is_topic_name,
    try_parse_partition_directory,
    try_parse_segment_file,
)
from kafkalog.model import TopicPartition

__all__ = ["PartitionTarget", "find_partitions", "nearest_name"]

# Names that are compared with a mistyped one; the comparison of a million would take seconds.
_COMPARED_MAX: Final = 20_000
_OWN_ENTRIES: Final = frozenset({LOCK_FILE, "lost+found"})


class PartitionTarget(NamedTuple):
    """
    A partition directory.

    Attributes:
        path: its absolute path.
        name: its parsed name.
        state_directory: directory of its checkpoints: the data directory, or for a standalone
            partition the same path.
    """

    path: Path
    name: PartitionDirectory
    state_directory: Path


def find_partitions(
    filesystem: FileSystem, target: str | os.PathLike[str]
) -> tuple[PartitionTarget, ...]:
    """
    Return the partitions of a path or name, by topic and number, in every state.

    Raises:
        NotALogError: the path does not exist, or is neither a data directory nor a partition.
        UnknownTopicOrPartitionError: the data directory does not have the topic or the partition.
        LogStorageError: the disk refused.
    """
    (path,) = as_paths(target)
    with storage_errors(path, doing="listing"):
        facts = filesystem.stat(path)
        if facts is None:
            return _find_named(filesystem, os.fspath(target), path)
        if not facts.is_directory:
            raise NotALogError(f"not a directory: {path}", path=path)
        names = filesystem.list(path)
        if _is_partition(path, names):
            return (_partition_at(filesystem, path),)
        return _partitions_in(path, names)


def nearest_name(name: str, names: Iterable[str]) -> str | None:
    """Return the name that resembles `name` most, None if none of them does."""
    # Only after an error; a command without one starts faster.
    from difflib import get_close_matches

    candidates = [each for _, each in zip(range(_COMPARED_MAX), names, strict=False)]
    return next(iter(get_close_matches(name, candidates, 1)), None)


def _is_partition(directory: Path, names: list[str]) -> bool:
    """Return True for a partition directory, False for a data directory; else NotALogError."""
    if any(try_parse_segment_file(name) is not None for name in names):
        return True
    if any(name in DATA_DIRECTORY_FILES for name in names):
        return False
    if any(try_parse_partition_directory(name) is not None for name in names):
        return False
    if try_parse_partition_directory(directory.name) is not None:
        return True
    if _OWN_ENTRIES.issuperset(names):
        return False
    raise NotALogError(
        f"{directory} is neither a data directory nor a partition: no segment file and no"
        f" partition directory, but {names[0]!r} and {len(names) - 1} others",
        path=directory,
    )


def _partition_at(filesystem: FileSystem, path: Path) -> PartitionTarget:
    parsed = try_parse_partition_directory(path.name)
    if parsed is None:
        topic = path.name if is_topic_name(path.name) else "log"
        return PartitionTarget(path, PartitionDirectory(TopicPartition(topic, 0)), path)
    parent = path.parent
    is_inside = any(filesystem.stat(parent / name) is not None for name in DATA_DIRECTORY_FILES)
    return PartitionTarget(path, parsed, parent if is_inside else path)


def _partitions_in(directory: Path, names: list[str]) -> tuple[PartitionTarget, ...]:
    parsed = ((name, try_parse_partition_directory(name)) for name in names)
    found = [
        PartitionTarget(directory / name, parts, directory)
        for name, parts in parsed
        if parts is not None
    ]
    found.sort(key=lambda each: (each.name.topic_partition, each.path.name))
    return tuple(found)


def _find_named(filesystem: FileSystem, text: str, path: Path) -> tuple[PartitionTarget, ...]:
    """Return the partitions of `topic@directory` or `directory/topic`; an error else."""
    for name, directory in _splits(text, path):
        facts = filesystem.stat(directory) if is_topic_name(name) else None
        if facts is None or not facts.is_directory:
            continue
        names = filesystem.list(directory)
        with contextlib.suppress(NotALogError):
            if not _is_partition(directory, names):
                return _select(directory, name, _partitions_in(directory, names))
    raise _missing(filesystem, path)


def _splits(text: str, path: Path) -> Iterator[tuple[str, Path]]:
    """Yield the names and directories that a text may stand for."""
    name, at, directory = text.partition("@")
    if at and directory:
        yield name, Path(directory).absolute()
    yield path.name, path.parent


def _select(
    directory: Path, name: str, partitions: tuple[PartitionTarget, ...]
) -> tuple[PartitionTarget, ...]:
    live = [each for each in partitions if each.name.state is DirectoryState.LIVE]
    found = tuple(
        each for each in live if name in (each.name.topic_partition.topic, each.path.name)
    )
    if found:
        return found
    topics = dict.fromkeys(each.name.topic_partition.topic for each in live)
    nearest = nearest_name(name, [*topics, *(each.path.name for each in live)])
    hint = "" if nearest is None else f"; the nearest name is {nearest}"
    raise UnknownTopicOrPartitionError(f"{directory} has no topic or partition {name}{hint}")


def _missing(filesystem: FileSystem, path: Path) -> NotALogError:
    """Return the error for a path that does not exist, with the nearest name if there is one."""
    missing = path
    while filesystem.stat(missing.parent) is None:
        missing = missing.parent
    nearest = None
    with contextlib.suppress(OSError):
        nearest = nearest_name(missing.name, filesystem.list(missing.parent))
    hint = "" if nearest is None else f"; the nearest name is {missing.parent / nearest}"
    return NotALogError(f"no such file or directory: {path}{hint}", path=path)
