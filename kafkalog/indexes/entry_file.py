"""The entries of an active segment's index: in memory for look-ups, in a file behind them.

The file is preallocated (sparse) to its largest size and trimmed when the segment is sealed, as
Kafka does. Entries reach it by `pwrite`, never through a mapping, and a little late: look-ups of
this process use the memory, and an index is a cache of its log, so a crash costs a rebuild.

Invariants: the file never holds an entry whose log bytes were not written before; the bytes of a
published view never change (growth copies into a new array).

Thread-safety: one writer, under the log's lock. Readers use the published view only.
Never does: syncing (an index is derived data), raising for a full disk (`trim` reports it).
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


class EntryFile(IndexBuffer, Generic[View]):
    """
    A growing run of fixed-size entries with its file.

    Args:
        filesystem: the disk.
        path: the index file; an old one is replaced.
        entry_size: bytes of one entry (8 or 12).
        max_bytes: `segment.index.bytes`; rounded down to whole entries.
        make_view: builds the look-up view of (entries, count).
        entries: entries that the index begins with, as bytes.
        on_error: called with each error of the disk that is not raised, since the memory answers.
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
        super().__init__(entry_size, entries)
        self.path = path
        self.max_entries = max(max_bytes // entry_size, len(entries) // entry_size)
        self._make_view = make_view
        self._viewed: tuple[tuple[bytearray, int], View] | None = None
        self._handle: FileHandle | None = None
        self._filesystem = filesystem
        self._on_error = on_error
        self._open_file(entries)

    @property
    def view(self) -> View:
        """The look-up view of the entries so far; made when somebody asks after an append."""
        published, viewed = self.published, self._viewed
        if viewed is not None and viewed[0] is published:
            return viewed[1]
        view = self._make_view(*published)
        self._viewed = (published, view)
        return view

    def last_entry(self) -> bytes:
        """Return the last entry; there must be one."""
        return self.entries(len(self) - 1)

    def rewind(self, count: int) -> None:
        """Forget the entries from `count` on (an append that failed)."""
        if count >= len(self):
            return
        self.truncate_to(count)
        # Entries already in the file are overwritten by the next ones, or zeroed now.
        stale = self._written - count
        self._written = min(self._written, count)
        if stale > 0 and self._handle is not None:
            self._write(bytes(stale * self.entry_size), count * self.entry_size)

    def write_behind(self) -> bool:
        """Write the entries that wait; say whether that worked."""
        if len(self) > self._written:
            waiting = self.entries(self._written)
            if not self._write(waiting, self._written * self.entry_size):
                return False
            self._written = len(self)
        return True

    def trim(self) -> bool:
        """
        Write what waits and cut the file to its entries; say whether the file is whole.

        The file is closed afterwards. False leaves a file that the next open finds short or
        zero-padded and rebuilds.
        """
        whole = self._handle is not None and self.write_behind()
        if whole and self._handle is not None:
            try:
                self._handle.truncate(len(self) * self.entry_size)
            except OSError as error:
                self._report_error(error, "was not trimmed")
                whole = False
        self.close()
        return whole

    def close(self) -> None:
        """Let the file go as it is."""
        if self._handle is not None:
            self._handle.close()
            self._handle = None

    def _open_file(self, entries: bytes) -> None:
        try:
            # A fresh file: readers, also of other processes, may have the old one mapped, and
            # entries of an earlier life must not stand in the zero tail.
            self._handle = self._filesystem.create_new(self.path)
            self._handle.truncate(self.max_entries * self.entry_size)
        except OSError as error:
            self._report_error(error, "is kept in memory only")
            self.close()
        if entries and self._write(entries, 0):
            self._written = len(self)

    def _write(self, data: bytes, position: int) -> bool:
        if self._handle is None:
            return False
        try:
            self._handle.pwrite(data, position)
        except OSError as error:
            # The log's bytes are safe and the memory answers look-ups: not worth failing an append.
            self._report_error(error, "fell behind")
            return False
        return True

    def _report_error(self, error: OSError, outcome: str) -> None:
        """Log an error that is not raised, and report it."""
        logger.warning("index %s %s: %s", self.path, outcome, error)
        if self._on_error is not None:
            self._on_error(error)
