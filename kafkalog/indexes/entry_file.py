"""Index entries of an active segment: in memory for look-ups, with a file that follows later.

The file is preallocated (sparse) to its largest size and trimmed when the segment is sealed, as
Kafka does. Entries are written by `pwrite`, never through a mapping, and with a delay: look-ups of
this process use the memory, and an index is a cache of its log, so a crash costs a rebuild.

Invariants: the file never has an entry whose log bytes were not written before; the bytes of a
published view never change (growth copies into a new array).

Thread-safety: one writer, under the log's lock. Readers use the published view only.
This module never syncs (an index is derived data) and never raises for a full disk (`trim` reports
it).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from kafkalog._engine.index_buffer import IndexBuffer
from kafkalog.files.filesystem import FileHandle, FileSystem

__all__ = ["EntryFile"]

logger = logging.getLogger(__name__)


class _Sized(Protocol):
    def __len__(self) -> int: ...


View = TypeVar("View", bound=_Sized)


class EntryFile(Generic[View]):
    """
    Growing entries of one size, with their file.

    Args:
        filesystem: the disk.
        path: the index file; an old one is replaced.
        entry_size: bytes of one entry (8 or 12).
        max_bytes: `segment.index.bytes`; rounded down to whole entries.
        make_view: builds the look-up view of (entries, count).
        entries: entries that the index begins with, as bytes.
        on_error: called with each error of the disk that is not raised, because the memory answers
            look-ups.

    Attributes:
        buffer: the entries in memory; an append adds to it.
        max_entries: how many entries the index may have.

    Thread-safety: one writer, under the log's lock; `view` from any thread.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        path: Path,
        *,
        entry_size: int,
        max_bytes: int,
        make_view: Callable[[bytearray, int], View],
        entries: bytes = b"",
        on_error: Callable[[OSError], object] | None = None,
    ) -> None:
        self.max_entries = max(max_bytes // entry_size, len(entries) // entry_size)
        self._make_view = make_view
        self._viewed: tuple[tuple[bytearray, int], View] | None = None
        self._file = _IndexFile(filesystem, path, self.max_entries * entry_size, on_error)
        # The buffer holds the file, not this object: no cycle keeps the memory.
        self.buffer = IndexBuffer(entry_size, entries, self._file.write)
        self.buffer.flush()

    def __len__(self) -> int:
        return len(self.buffer)

    @property
    def view(self) -> View:
        """The look-up view of the current entries; created on first use after an append."""
        published, viewed = self.buffer.published, self._viewed
        if viewed is not None and viewed[0] is published:
            return viewed[1]
        view = self._make_view(*published)
        self._viewed = (published, view)
        return view

    def entries(self) -> bytes:
        """Return all entries."""
        return self.buffer.entries()

    def last_entry(self) -> bytes:
        """Return the last entry; the index must not be empty."""
        return self.buffer.entries(len(self.buffer) - 1)

    def rewind(self, count: int) -> None:
        """Remove the entries from `count` on, after an append that failed."""
        if count >= len(self.buffer):
            return
        # Entries already in the file are overwritten by the next ones, or zeroed now.
        stale, size = self.buffer.truncate_to(count), self.buffer.entry_size
        if stale:
            self._file.write(bytes(stale * size), count * size)

    def trim(self) -> bool:
        """
        Write the pending entries and truncate the file to them; return whether it is complete.

        The file is closed afterwards. After False the file is short or zero-padded, and the next
        open rebuilds it.
        """
        is_whole = self._file.is_open and self.buffer.flush()
        is_whole = is_whole and self._file.truncate(len(self.buffer) * self.buffer.entry_size)
        self.close()
        return is_whole

    def close(self) -> None:
        """Close the file without a change."""
        self._file.close()


class _IndexFile:
    """
    The file of a growing index: an error is logged and reported, not raised.

    The log's bytes are safe and the memory answers look-ups: an error is no reason to fail an
    append.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        path: Path,
        max_bytes: int,
        on_error: Callable[[OSError], object] | None,
    ) -> None:
        self._path = path
        self._on_error = on_error
        self._handle: FileHandle | None = None
        try:
            # A new file: readers, also of other processes, may have the old one mapped, and the
            # zero tail must not have entries of an earlier file.
            self._handle = filesystem.create_new(path)
            self._handle.truncate(max_bytes)
        except OSError as error:
            self._report_error(error, "is kept in memory only")
            self.close()

    @property
    def is_open(self) -> bool:
        """True if there is a file."""
        return self._handle is not None

    def write(self, data: bytes, position: int) -> bool:
        """Write entries; return whether that worked."""
        if self._handle is None:
            return False
        try:
            self._handle.pwrite(data, position)
        except OSError as error:
            self._report_error(error, "fell behind")
            return False
        return True

    def truncate(self, size: int) -> bool:
        """Truncate the file; return whether that worked."""
        if self._handle is None:
            return False
        try:
            self._handle.truncate(size)
        except OSError as error:
            self._report_error(error, "was not trimmed")
            return False
        return True

    def close(self) -> None:
        """Close the file without a change."""
        if self._handle is not None:
            self._handle.close()
            self._handle = None

    def _report_error(self, error: OSError, outcome: str) -> None:
        logger.warning("index %s %s: %s", self._path, outcome, error)
        if self._on_error is not None:
            self._on_error(error)
