"""Text checkpoints: an offset for each partition of a data directory, leader epochs of a log.

On disk, UTF-8, each line terminated by a newline:

    0                       version
    2                       number of entries
    orders-eu 0 5100        topic partition offset        (offset checkpoints)
    orders-eu 1 0

    0
    2
    0 0                     epoch start-offset, ascending (leader-epoch-checkpoint)
    3 5010

A missing file, an empty file and a file with only a version mean "no entries". All other content
that a broker would not have written raises `CorruptStateError` with file and line; the loader of a
log treats such a file as absent and scans the log instead.

Crash points of a write (new content to `NAME.tmp`, sync, rename, sync of the directory):

  1. while `NAME.tmp` is written or synced: the old checkpoint is valid; a partial `.tmp` is never
     read, and the next write overwrites it;
  2. between rename and directory sync: old or new content, complete in both cases;
  3. afterwards: the new content.

An old recovery point costs scanning, an old cleaner offset costs cleaning; an old log start offset
brings deleted records back, so the caller waits for its write before it deletes records.

Thread-safety: writes and updates of one path exclude each other in this process, whichever object
makes them; the directory's lock excludes other processes. Reads take no lock: because of the rename
they see the old or the new file.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kafkalog.errors import CorruptStateError
from kafkalog.files.atomic_files import read_file, replace_file
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import is_topic_name
from kafkalog.model import TopicPartition

__all__ = ["EpochEntry", "LeaderEpochCheckpoint", "OffsetCheckpoint"]

VERSION: Final = 0

# 500,000 partitions with the longest topic names; a larger file is not a checkpoint.
MAX_CHECKPOINT_BYTES: Final = 128 * 1024 * 1024

_MAX_INT32: Final = 2**31 - 1
_MAX_INT64: Final = 2**63 - 1
_NUMBER = re.compile(rb"[0-9]{1,19}")

# An update reads, changes and writes a file: one lock for each file name, created on demand. The
# names are few (four in a data directory), so they are kept.
_WRITERS: dict[str, threading.Lock] = {}
os.register_at_fork(after_in_child=_WRITERS.clear)


def _writer_lock(path: Path) -> threading.Lock:
    return _WRITERS.setdefault(os.path.realpath(path), threading.Lock())


class EpochEntry(NamedTuple):
    """A leader epoch and the offset of its first record."""

    epoch: int
    start_offset: int


class _Checkpoint:
    """Common part of both kinds: the two lines at the top, and the write."""

    __slots__ = ("_filesystem", "_path")

    def __init__(self, filesystem: FileSystem, path: Path) -> None:
        self._filesystem = filesystem
        self._path = path

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._path})"

    @property
    def path(self) -> Path:
        return self._path

    def _damage(self, line_number: int, problem: str) -> CorruptStateError:
        return CorruptStateError(f"{self._path}: line {line_number}: {problem}", path=self._path)

    def _lines(self) -> Iterator[tuple[int, list[bytes]]]:
        """Yield line number and fields of each entry, after checking version and count."""
        try:
            with storage_errors(self._path, doing="reading"):
                data = read_file(self._filesystem, self._path, max_bytes=MAX_CHECKPOINT_BYTES)
        except ValueError as error:
            raise CorruptStateError(str(error), path=self._path) from error
        if not data:
            return
        lines = data.split(b"\n")
        if not lines[-1]:
            lines.pop()
        version = self._number(1, lines[0].strip(), "version", _MAX_INT32)
        if version != VERSION:
            raise self._damage(1, f"version must be {VERSION}, got {version}")
        if len(lines) == 1:
            return
        count = self._number(2, lines[1].strip(), "entry count", _MAX_INT32)
        if count != len(lines) - 2:
            raise self._damage(
                2,
                f"entry count must be {len(lines) - 2}, the number of lines after it, got {count}",
            )
        for line_number, line in enumerate(lines[2:], start=3):
            yield line_number, line.split()

    def _number(self, line_number: int, text: bytes, name: str, largest: int) -> int:
        if _NUMBER.fullmatch(text) is None or int(text) > largest:
            raise self._damage(line_number, f"{name} must be 0 to {largest}, got {_shown(text)}")
        return int(text)

    def _replace(self, entries: Sequence[str]) -> None:
        """Write the whole file. The caller has the writer lock."""
        text = "\n".join([str(VERSION), str(len(entries)), *entries, ""])
        with storage_errors(self._path, doing="replacing the checkpoint"):
            replace_file(self._filesystem, self._path, text.encode())


class OffsetCheckpoint(_Checkpoint):
    """
    One offset for each partition: recovery points, log start offsets, high watermarks, ...

    The file is shared by all partitions of a data directory, including partitions that this process
    has not opened: `update` keeps their entries.
    """

    __slots__ = ()

    def read(self) -> dict[TopicPartition, int]:
        """
        Return all entries; the last one if a partition has two.

        Raises:
            CorruptStateError: the file is damaged.
            LogStorageError: the file cannot be read.
        """
        offsets = {}
        for line_number, fields in self._lines():
            if len(fields) != 3:
                raise self._damage(
                    line_number,
                    f"a line must be 'topic partition offset', got {len(fields)} fields",
                )
            topic = fields[0].decode("utf-8", "backslashreplace")
            if not is_topic_name(topic):
                raise self._damage(line_number, f"invalid topic name {_shown(fields[0])}")
            partition = self._number(line_number, fields[1], "partition", _MAX_INT32)
            offset = self._number(line_number, fields[2], "offset", _MAX_INT64)
            offsets[TopicPartition(topic, partition)] = offset
        return offsets

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace all entries; they are on the disk when this returns."""
        with _writer_lock(self._path):
            self._write(offsets)

    def update(
        self, changes: Mapping[TopicPartition, int | None], *, replaces_damaged: bool = True
    ) -> None:
        """
        Set the entries in `changes`, remove those that are None there, and keep all others.

        Args:
            changes: the new offsets.
            replaces_damaged: True to replace a damaged file by the changes alone; False to keep the
                file and raise the error.

        Nothing is written if no entry changes.
        """
        with _writer_lock(self._path):
            damaged = False
            try:
                before = self.read()
            except CorruptStateError:
                if not replaces_damaged:
                    raise
                before = {}
                damaged = True
            after = dict(before)
            for topic_partition, offset in changes.items():
                if offset is None:
                    after.pop(topic_partition, None)
                else:
                    after[topic_partition] = offset
            if damaged or after != before:
                self._write(after)

    def _write(self, offsets: Mapping[TopicPartition, int]) -> None:
        lines = []
        for (topic, partition), offset in offsets.items():
            is_partition = is_topic_name(topic) and 0 <= partition <= _MAX_INT32
            if not is_partition or not 0 <= offset <= _MAX_INT64:
                raise ValueError(
                    "an entry must have a topic name, a partition of 31 bits and an offset of 63, "
                    f"got {topic!r} {partition} {offset}"
                )
            lines.append(f"{topic} {partition} {offset}")
        self._replace(lines)


class LeaderEpochCheckpoint(_Checkpoint):
    """The leader epochs of one log and their start offsets, both ascending."""

    __slots__ = ()

    def read(self, *, rising: bool = True) -> list[EpochEntry]:
        """
        Return the entries in the order of the file.

        Args:
            rising: True if epochs and offsets must rise. Brokers read files in which they do
                not, and let later entries replace contradicting ones (`LeaderEpochs.load`).

        Raises:
            CorruptStateError: the file is damaged, or its entries do not rise although they must.
            LogStorageError: the file cannot be read.
        """
        entries: list[EpochEntry] = []
        for line_number, fields in self._lines():
            if len(fields) != 2:
                raise self._damage(
                    line_number, f"a line must be 'epoch start-offset', got {len(fields)} fields"
                )
            epoch = self._number(line_number, fields[0], "leader epoch", _MAX_INT32)
            start_offset = self._number(line_number, fields[1], "offset", _MAX_INT64)
            if rising and entries and not _rises(entries[-1], EpochEntry(epoch, start_offset)):
                raise self._damage(
                    line_number, f"epoch {epoch} from offset {start_offset} follows {entries[-1]}"
                )
            entries.append(EpochEntry(epoch, start_offset))
        return entries

    def write(self, entries: Iterable[EpochEntry]) -> None:
        """Replace all entries, which must rise; they are on the disk when this returns."""
        lines = []
        last: EpochEntry | None = None
        for entry in entries:
            if not (0 <= entry.epoch <= _MAX_INT32 and 0 <= entry.start_offset <= _MAX_INT64):
                raise ValueError(
                    f"an entry must have an epoch of 31 bits and an offset of 63, got {entry}"
                )
            if last is not None and not _rises(last, entry):
                raise ValueError(f"entries must rise, got {entry} after {last}")
            lines.append(f"{entry.epoch} {entry.start_offset}")
            last = entry
        with _writer_lock(self._path):
            self._replace(lines)


def _rises(lower: EpochEntry, upper: EpochEntry) -> bool:
    return lower.epoch < upper.epoch and lower.start_offset < upper.start_offset


def _shown(text: bytes) -> str:
    return repr(text[:40].decode("ascii", "backslashreplace"))
