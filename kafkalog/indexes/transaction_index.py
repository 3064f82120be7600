"""Transaction index of one segment: its aborted transactions, in memory and in a file.

On disk, `.txnindex`: entries of 34 bytes, big-endian, without a header and without gaps.

    i16 version (0), i64 producer id, i64 first offset, i64 last offset (of the abort marker),
    i64 last stable offset when the marker was appended

An entry is in the segment of its marker. There is no checksum; order and range are the only signs
of damage:

  * last offsets rise strictly, and begin at or above the segment's base offset;
  * a transaction begins below its marker, and its last stable offset is at most the marker's next
    offset;
  * last stable offsets never fall: a later transaction begins after the earlier markers.

A follower broker that gets several transactions in one fetch counts a transaction that begins after
a marker as open at that marker. It may write entries that break the last two rules, and that end
searches too early. They count as damage like others.

A file that breaks one of these rules, or ends within an entry, raises `CorruptIndexError`. The
index is a cache of the log: the loader of a segment replays its batches instead
(`kafkalog.log.producer_replay`) and passes the entries to `replace`. A missing file means no
entries; only the log can prove that this is correct.

Crash points:

  1. after `append`, before `sync`: an entry is complete, torn, or missing. Entries below the
     recovery point are not affected, since a segment is synced with its index before the point
     moves, and the batches above it are replayed at the next start;
  2. during `truncate_to`: entries of markers that the log lost at the same time may be left; the
     replay at the next start removes them;
  3. during `replace`, and during a `sync` that follows a failed one: the old file or the new file,
     complete (`kafkalog.files.atomic_files`).

Thread-safety: one writer, under the log's lock. `collect`, `entries` and `len` may be called by any
thread at any time: they use the entries that were published last, whose bytes never change.
This module never reads the log, and never fails an append because of the disk: an entry that could
not be written is kept in memory and written by the next `append` or `sync`.
"""

from __future__ import annotations

import logging
import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog.errors import CorruptIndexError
from kafkalog.files.atomic_files import read_file, replace_file
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileHandle, FileSystem

__all__ = [
    "ENTRY_LAYOUT",
    "ENTRY_SIZE",
    "AbortedTransaction",
    "TransactionIndex",
    "collect_aborted",
    "decode_entries",
    "encode_entries",
]

# Fields of an entry, with the `struct` formats of their types.
_FIELDS: Final = {"version": "h", "producer": "q", "first": "q", "last": "q", "stable": "q"}
_LAYOUT: Final = np.dtype([(name, f">{code}") for name, code in _FIELDS.items()])
ENTRY_LAYOUT: Final = struct.Struct(f">{''.join(_FIELDS.values())}")
ENTRY_SIZE: Final = ENTRY_LAYOUT.size
VERSION: Final = 0

# Fifteen million entries: a segment of 2 GiB cannot have more markers with their records.
_MAX_INDEX_BYTES: Final = 512 * 1024 * 1024
_FIRST_CAPACITY: Final = 16
# Entries that a search reads from the array at once: most searches need few.
_CHUNK_ENTRIES: Final = 32
_MAX_INT64: Final = 2**63 - 1

# Column of the rows in memory that a search compares.
_LAST_OFFSET: Final = 2

logger = logging.getLogger(__name__)


class AbortedTransaction(NamedTuple):
    """
    A transaction that was aborted.

    Attributes:
        producer_id: id of its producer.
        first_offset: offset of its first record, perhaps segments before its marker.
        last_offset: offset of its abort marker.
        last_stable_offset: the first offset of the earliest transaction of another producer that
            was open when the marker was appended, or the marker's next offset.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_entries(entries: Iterable[AbortedTransaction]) -> bytes:
    """Return entries as the content of a file; ValueError if one breaks a rule of the index."""
    rows = _rows_of(entries)
    problem = _problem_of(rows, 0)
    if problem is not None:
        raise ValueError(f"entry {problem[0]}: {problem[1]}")
    return _encode_rows(rows)


def decode_entries(
    data: bytes, base_offset: int, *, path: Path | None = None
) -> list[AbortedTransaction]:
    """
    Return the entries of a segment's file content.

    Raises:
        CorruptIndexError: a version is unknown, order or range is broken, or the last entry is
            incomplete; the error has the position.
    """
    return _transactions(_decode_rows(data, base_offset, path))


class TransactionIndex:
    """
    The aborted transactions whose markers are in one segment.

    Args:
        filesystem: the disk.
        path: the `.txnindex` file; created with the first entry.
        base_offset: base offset of the segment.
        read_only: True to leave the disk unchanged.
        on_error: called with each error of the disk that `append` does not raise.

    It begins empty: call `load` for a segment that exists already.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        path: Path,
        base_offset: int,
        *,
        read_only: bool = False,
        on_error: Callable[[OSError], object] | None = None,
    ) -> None:
        self.path = path
        self.base_offset = base_offset
        self._filesystem = filesystem
        self._read_only = read_only
        self._on_error = on_error
        self._handle: FileHandle | None = None
        self._written = 0
        self._has_stale_tail = False
        self._unsynced_name = False
        self._unsynced_bytes = False
        self._has_failed_sync = False
        self._published = (np.empty((_FIRST_CAPACITY, 4), dtype=np.int64), 0)

    def __len__(self) -> int:
        return self._published[1]

    def __repr__(self) -> str:
        return f"<TransactionIndex {self.path} of {len(self)} entries>"

    def entries(self) -> list[AbortedTransaction]:
        """Return all entries, in the order of their markers."""
        rows, count = self._published
        return _transactions(rows[:count])

    def load(self) -> None:
        """
        Load the entries of the file; a missing file has none.

        Raises:
            CorruptIndexError: the file is damaged; the index is unchanged.
            LogStorageError: the file cannot be read.
        """
        try:
            with storage_errors(self.path, doing="reading"):
                data = read_file(self._filesystem, self.path, max_bytes=_MAX_INDEX_BYTES)
        except ValueError as error:
            raise CorruptIndexError(str(error), path=self.path) from error
        self._publish(_decode_rows(data or b"", self.base_offset, self.path))
        self._written = len(self)

    def append(self, transaction: AbortedTransaction) -> None:
        """
        Add the transaction whose marker was just appended to the segment.

        Raises:
            ValueError: the entry breaks a rule of the index; nothing was added.
        """
        rows, count = self._published
        fresh = _rows_of((transaction,))
        problem = _problem_of(np.concatenate((rows[count - 1 : count], fresh)), self.base_offset)
        if problem is not None:
            raise ValueError(f"{self.path}: {transaction}: {problem[1]}")
        if count == len(rows):
            # A new array: readers keep the old one, whose rows do not change.
            larger = np.empty((2 * count, 4), dtype=np.int64)
            larger[:count] = rows
            rows = larger
        rows[count] = fresh[0]
        self._published = (rows, count + 1)
        try:
            self._write_missing()
        except OSError as error:
            logger.warning("transaction index %s lacks entries: %s", self.path, error)
            if self._on_error is not None:
                self._on_error(error)

    def collect(self, start_offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """
        Return the transactions that may hide records from `start_offset` up to `end_offset`.

        Also returned is whether they are complete: after False the caller continues with the next
        segment, whose index may have more.
        """
        rows, count = self._published
        found: list[AbortedTransaction] = []
        slot = _slot_from(rows, count, start_offset)
        for start in range(slot, count, _CHUNK_ENTRIES):
            chunk = rows[start : min(start + _CHUNK_ENTRIES, count)]
            for transaction in _transactions(chunk):
                if transaction.first_offset < end_offset:
                    found.append(transaction)
                if transaction.last_stable_offset >= end_offset:
                    return found, True
        return found, False

    def truncate_to(self, offset: int) -> None:
        """
        Remove the transactions whose markers are at or above `offset`.

        Raises:
            LogStorageError: the file could not be truncated; the memory was.
        """
        rows, count = self._published
        kept = _slot_from(rows, count, offset)
        if kept == count:
            return
        # Into a new array: later entries overwrite removed rows, which readers may still use.
        self._publish(rows[:kept])
        if self._written > kept:
            self._written = kept
            self._has_stale_tail = True
        with storage_errors(self.path, doing="truncating"):
            self._write_missing()

    def replace(self, entries: Iterable[AbortedTransaction]) -> None:
        """
        Replace the content by entries of a replay of the segment, also on the disk.

        Raises:
            ValueError: the entries break a rule of the index.
            LogStorageError: the file could not be written; the memory has the entries.
        """
        rows = _rows_of(entries)
        problem = _problem_of(rows, self.base_offset)
        if problem is not None:
            raise ValueError(f"{self.path}: entry {problem[0]}: {problem[1]}")
        self._publish(rows)
        if self._read_only:
            return
        self._written = 0
        with storage_errors(self.path, doing="replacing the transaction index"):
            self._replace_file()

    def sync(self) -> None:
        """
        Write and sync all entries, also those that earlier writes could not write.

        After a sync that failed, a new file replaces the old one: blocks whose write-back failed
        may be lost although they were written again and that sync succeeded (ext4).

        Raises:
            LogStorageError: the disk reported an error.
        """
        with storage_errors(self.path, doing="syncing"):
            if self._has_failed_sync and not self._read_only:
                self._replace_file()
            self._write_missing()
            if self._unsynced_bytes:
                self._sync_bytes()
            if self._unsynced_name:
                self._filesystem.sync_directory(self.path.parent)
                self._unsynced_name = False

    def retire(self) -> None:
        """Stop all writes: the file will be replaced or removed."""
        self._read_only = True
        self._unsynced_name = self._unsynced_bytes = self._has_failed_sync = False
        self.close()

    def close(self) -> None:
        """Close the file without a change; the next write opens it again."""
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.close()

    def _publish(self, rows: npt.NDArray[np.int64]) -> None:
        capacity = max(_FIRST_CAPACITY, 2 * len(rows))
        fresh = np.empty((capacity, 4), dtype=np.int64)
        fresh[: len(rows)] = rows
        self._published = (fresh, len(rows))

    def _replace_file(self) -> None:
        """Write all entries into a new file, which replaces an existing one."""
        self.close()
        rows, count = self._published
        # An existing file is kept even if empty: its removal would need a sync, too.
        if count or self._filesystem.stat(self.path) is not None:
            replace_file(self._filesystem, self.path, _encode_rows(rows[:count]))
        self._written = count
        self._has_stale_tail = self._unsynced_name = self._unsynced_bytes = False
        self._has_failed_sync = False

    def _sync_bytes(self) -> None:
        try:
            self._open_handle().sync()
        except OSError:
            # After a failed sync its bytes count as clean, and no later sync covers them.
            self._has_failed_sync = True
            raise
        self._unsynced_bytes = False

    def _write_missing(self) -> None:
        """Write the entries that the file lacks, over bytes of earlier entries."""
        rows, count = self._published
        if self._read_only or (self._written == count and not self._has_stale_tail):
            return
        handle = self._open_handle()
        self._unsynced_bytes = True
        if self._has_stale_tail:
            handle.truncate(self._written * ENTRY_SIZE)
            self._has_stale_tail = False
        if self._written < count:
            handle.pwrite(_encode_rows(rows[self._written : count]), self._written * ENTRY_SIZE)
            self._written = count

    def _open_handle(self) -> FileHandle:
        handle = self._handle
        if handle is None:
            if self._filesystem.stat(self.path) is None:
                self._unsynced_name = True
            handle = self._handle = self._filesystem.open(self.path, create=True, write=True)
            # The rest of an earlier file of this name, or of a write that failed.
            self._has_stale_tail |= handle.size() > self._written * ENTRY_SIZE
        return handle


def collect_aborted(
    indexes: Iterable[TransactionIndex], start_offset: int, end_offset: int
) -> list[AbortedTransaction]:
    """
    Return the transactions that may hide records from `start_offset` up to `end_offset`.

    Args:
        indexes: the indexes of the segment of `start_offset` and of later segments, in order; the
            iteration ends as soon as the result is complete.
        start_offset: first offset of the read.
        end_offset: one past the last offset of the read.
    """
    found: list[AbortedTransaction] = []
    for index in indexes:
        transactions, is_complete = index.collect(start_offset, end_offset)
        found += transactions
        if is_complete:
            break
    return found


def _slot_from(rows: npt.NDArray[np.int64], count: int, offset: int) -> int:
    """Return the first slot whose marker is at or above `offset`."""
    return bisect_left(range(count), offset, key=lambda slot: int(rows[slot, _LAST_OFFSET]))


def _rows_of(entries: Iterable[AbortedTransaction]) -> npt.NDArray[np.int64]:
    rows = list(entries)
    if any(not -_MAX_INT64 <= number <= _MAX_INT64 for row in rows for number in row):
        raise ValueError("all numbers of an aborted transaction must fit 64 bits")
    return np.array(rows, dtype=np.int64).reshape(-1, 4)


def _transactions(rows: npt.NDArray[np.int64]) -> list[AbortedTransaction]:
    return [AbortedTransaction(*row) for row in rows.tolist()]


def _encode_rows(rows: npt.NDArray[np.int64]) -> bytes:
    return b"".join(ENTRY_LAYOUT.pack(VERSION, *row) for row in rows.tolist())


def _decode_rows(data: bytes, base_offset: int, path: Path | None) -> npt.NDArray[np.int64]:
    count, rest = divmod(len(data), ENTRY_SIZE)
    named = "the transaction index" if path is None else str(path)
    entries = np.frombuffer(data, dtype=_LAYOUT, count=count)
    columns = [entries[name].astype(np.int64) for name in _LAYOUT.names or ()]
    rows = np.stack(columns[1:], axis=1)
    problem = _problem_of(rows, base_offset)
    unknown = np.flatnonzero(columns[0] != VERSION)
    if len(unknown) and (problem is None or unknown[0] <= problem[0]):
        version = int(columns[0][unknown[0]])
        problem = int(unknown[0]), f"version must be {VERSION}, got {version}"
    if problem is None and rest:
        problem = count, f"an entry must have {ENTRY_SIZE} bytes, got {rest}"
    if problem is not None:
        slot, what = problem
        raise CorruptIndexError(
            f"{named}: entry {slot} at position {slot * ENTRY_SIZE}: {what}",
            path=path,
            position=slot * ENTRY_SIZE,
            base_offset=base_offset,
        )
    return rows


def _problem_of(rows: npt.NDArray[np.int64], base_offset: int) -> tuple[int, str] | None:
    """Return slot and description of the first entry that breaks a rule, None if all are valid."""
    producer, first, last, stable = (rows[:, column] for column in range(4))
    previous_last = np.concatenate((np.full(1, base_offset - 1, np.int64), last))[:-1]
    previous_stable = np.concatenate((np.zeros(1, np.int64), stable))[:-1]
    rules: Sequence[tuple[npt.NDArray[np.bool_], str]] = (
        (producer < 0, "a negative producer id"),
        (first < 0, "a negative first offset"),
        (
            last <= previous_last,
            "a marker that is not above the previous one, or below the segment",
        ),
        (first >= last, "a transaction that does not begin below its marker"),
        (stable < previous_stable, "a last stable offset below the previous one"),
        (stable - 1 > last, "a last stable offset above its marker"),
    )
    broken = [(int(np.argmax(flags)), what) for flags, what in rules if flags.any()]
    return min(broken, default=None, key=lambda each: each[0])
