"""Selection and order of the files of a path, with the reader of each.

The name of a file decides how it is dumped; a partition directory is dumped file by file in the
order of names; a data directory first its own files, then its partitions, deleted and stray ones
included. Files with unknown names are skipped in a directory and refused as an argument.

Nothing is ever written, created or locked: a broker may use the directory at the same time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafkalog.errors import NotALogError
from kafkalog.files import names
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import FileKind, FileState

from . import indexes
from .facts import Fact, FileFact, LogStartFact
from .logs import RecordReader, segment_batches
from .small_files import SMALL_FILES

__all__ = ["DumpOptions", "dump_path"]

# A snapshot of a KRaft metadata log: batches of control and data records, offsets from 0.
_METADATA_SNAPSHOT: Final = re.compile(r"\d{20}-\d{10}\.checkpoint|bootstrap\.checkpoint")

_CONTENTS: Final = {
    FileKind.LOG: "log",
    FileKind.OFFSET_INDEX: "offset index",
    FileKind.TIME_INDEX: "time index",
    FileKind.TRANSACTION_INDEX: "transaction index",
    FileKind.SNAPSHOT: "producer snapshot",
}


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """
    Options for each file.

    Attributes:
        batches: True to show batches.
        others: True to show files other than segments (indexes, snapshots, checkpoints, ...).
        records: decoder of a batch's records, None for no records.
    """

    batches: bool = True
    others: bool = True
    records: RecordReader | None = None


def dump_path(filesystem: FileSystem, path: Path, options: DumpOptions) -> Iterator[Fact]:
    """
    Yield the facts about a file or directory.

    Raises:
        NotALogError: the path does not exist, or contains nothing of a log.
        LogStorageError: the disk refused.
    """
    with storage_errors(path, doing="looking at"):
        facts = filesystem.stat(path)
    if facts is None:
        raise NotALogError(f"{path}: no such file or directory", path=path)
    if facts.is_directory:
        yield from _directory(filesystem, path, options)
        return
    content = content_of(path.name)
    if content is None:
        raise NotALogError(f"{path}: not the name of a file of a Kafka log", path=path)
    yield from _file(filesystem, path, content, options)


def content_of(name: str) -> str | None:
    """Return the kind of a file of this name, or None for names that Kafka does not use."""
    segment = names.try_parse_segment_file(name)
    if segment is not None:
        return _CONTENTS[segment.kind]
    if _METADATA_SNAPSHOT.fullmatch(name):
        return "metadata snapshot"
    small = SMALL_FILES.get(name)
    return None if small is None else small[0]


def is_cut_tail(name: str) -> bool:
    """Return True for a file of bytes that recovery cut off: dumped only if it is an argument."""
    segment = names.try_parse_segment_file(name)
    return segment is not None and segment.state is FileState.BROKEN


def _directory(filesystem: FileSystem, directory: Path, options: DumpOptions) -> Iterator[Fact]:
    partitions: list[Path] = []
    found = names.try_parse_partition_directory(directory.name) is not None
    with storage_errors(directory, doing="listing"):
        entries = filesystem.list(directory)
    for name in entries:
        path = directory / name
        with storage_errors(path, doing="looking at"):
            facts = filesystem.stat(path)
        if facts is None:
            continue  # deleted during the dump by the process that uses the directory
        content = content_of(name)
        if not facts.is_directory and content is not None and not is_cut_tail(name):
            found = True
            yield from _file(filesystem, path, content, options)
        elif facts.is_directory and names.try_parse_partition_directory(name) is not None:
            partitions.append(path)
    for path in partitions:
        for fact in _partition(filesystem, path, options):
            found = True
            yield fact
    if not found:
        raise NotALogError(
            f"{directory}: must be a partition directory or contain partitions",
            path=directory,
        )


def _partition(filesystem: FileSystem, directory: Path, options: DumpOptions) -> Iterator[Fact]:
    with storage_errors(directory, doing="listing"):
        entries = filesystem.list(directory)
    for name in entries:
        content = content_of(name)
        if content is not None and not is_cut_tail(name):
            yield from _file(filesystem, directory / name, content, options)


def _file(filesystem: FileSystem, path: Path, content: str, options: DumpOptions) -> Iterator[Fact]:
    is_log = content in ("log", "metadata snapshot")
    if not is_log and not options.others:
        return
    with storage_errors(path, doing="reading"):
        if path.name in SMALL_FILES:
            facts = filesystem.stat(path)
            yield FileFact(path, 0 if facts is None else facts.size_bytes, content)
            yield from SMALL_FILES[path.name][1](filesystem, path)
            return
        segment = names.try_parse_segment_file(path.name)
        base_offset = 0 if segment is None else segment.base_offset
        data = mapped(filesystem, path)
        yield FileFact(path, len(data), content, base_offset)
        if is_log:
            yield LogStartFact(base_offset)
            yield from segment_batches(
                data, path, base_offset, show_batches=options.batches, records=options.records
            )
        elif content == "offset index":
            yield from indexes.offset_index(data, base_offset, beside(filesystem, path))
        else:
            yield from _READERS[content](data, base_offset)


_READERS: Final[dict[str, Callable[[memoryview, int], Iterator[Fact]]]] = {
    "time index": indexes.time_index,
    "transaction index": indexes.transaction_index,
    "producer snapshot": lambda data, _: indexes.producer_snapshot(data),
}


def mapped(filesystem: FileSystem, path: Path) -> memoryview:
    """Return a view of a file's bytes; pages come in as they are read."""
    handle = filesystem.open(path)
    try:
        size = handle.size()
        return handle.map(size) if size else memoryview(b"")
    finally:
        handle.close()


def beside(filesystem: FileSystem, index: Path) -> memoryview | None:
    """Return a view of the segment that an index belongs to, None if it does not exist."""
    name = index.name.replace(FileKind.OFFSET_INDEX.value, FileKind.LOG.value, 1)
    try:
        return mapped(filesystem, index.with_name(name))
    except FileNotFoundError:
        return None
