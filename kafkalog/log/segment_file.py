"""The bytes of one `.log` file: appended at the end, read anywhere, never changed between.

Reads are slices of a mapping of the file where it covers them, else `pread`. A log file only
grows while anybody may have it mapped: truncation makes a new file (see `truncation.py`), and only
bytes that were never published (a failed append, a torn tail at open) are cut in place.

Thread-safety: `read` from any thread, without a lock; the rest under the log's lock. A descriptor
that readers may be using is not closed but forgotten; it closes when the last of them lets go.
"""

from __future__ import annotations

from pathlib import Path

from typing_extensions import Buffer

from kafkalog.files.filesystem import FileHandle, FileSystem
from kafkalog.indexes.segment_index import ViewBudget

__all__ = ["SegmentFile"]

# A growing file is mapped anew when this much lies behind the mapping; below that `pread` serves.
REMAP_BYTES = 4 * 1024 * 1024


class SegmentFile:
    """
    One `.log` file.

    Args:
        filesystem: the disk.
        path: the file.
        size_bytes: bytes that belong to the log; what the file has behind them is ignored.
        budget: bounds how many files stay mapped.
        handle: open descriptor where the file takes appends.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        path: Path,
        size_bytes: int,
        budget: ViewBudget,
        handle: FileHandle | None = None,
    ) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self._filesystem = filesystem
        self._budget = budget
        self._handle = handle
        self._mapped: memoryview | None = None
        self._pinned = False
        self._synced_bytes = 0

    @property
    def handle(self) -> FileHandle | None:
        """The descriptor of a file that takes appends, None for a sealed one."""
        return self._handle

    def read(self, position: int, size: int) -> memoryview:
        """Return up to `size` bytes from `position`, fewer only where the file ends."""
        end = position + size
        mapped = self._mapped
        if mapped is not None and end <= len(mapped):
            return mapped[position:end]
        if self._handle is None or self.size_bytes - len(mapped or b"") >= REMAP_BYTES:
            mapped = self._map()
            if end <= len(mapped) or self._handle is None:
                return mapped[position:end]
        handle = self._handle
        if handle is None:
            # Sealed since the test above: the mapping now covers everything.
            return self._map()[position:end]
        return memoryview(handle.pread(size, position))

    def whole(self) -> memoryview:
        """Return all bytes of the log in this file, mapped."""
        return self._map()[: self.size_bytes]

    def open_for_append(self) -> None:
        """Take appends behind the present bytes."""
        if self._handle is None:
            self._handle = self._filesystem.open(self.path, write=True)

    def append(self, data: Buffer, size: int) -> None:
        """Write `data`, `size` bytes, at the end; publishing them is the caller's act."""
        self._require_handle().pwrite(data, self.size_bytes)
        self.size_bytes += size

    def cut_unpublished(self, size_bytes: int) -> None:
        """Cut the file to `size_bytes`; nobody has seen what lies behind."""
        self._require_handle().truncate(size_bytes)
        self.size_bytes = size_bytes
        self._synced_bytes = min(self._synced_bytes, size_bytes)

    def preallocate(self, size_bytes: int) -> None:
        """Extend the file with a hole, so that syncs need not commit its length each time."""
        self._require_handle().truncate(max(size_bytes, self.size_bytes))

    def sync(self) -> None:
        """Put everything written so far on the disk; nothing to do where that was done."""
        size = self.size_bytes
        if self._synced_bytes >= size or self._pinned:
            return
        handle = self._handle
        if handle is not None:
            handle.sync()
        else:
            opened = self._filesystem.open(self.path, write=True)
            try:
                opened.sync()
            finally:
                opened.close()
        self._synced_bytes = size

    def seal(self, *, trim: bool) -> None:
        """Take no more appends; `trim` cuts a preallocated tail off."""
        handle = self._handle
        if handle is None:
            return
        if trim and handle.size() > self.size_bytes:
            handle.truncate(self.size_bytes)
        self._handle = None

    def forget_view(self) -> None:
        """Drop the mapping; the next read makes another. Slices given out keep the old one."""
        if not self._pinned:
            self._mapped = None

    def pin(self) -> None:
        """Keep the bytes readable from here on, though the file loses its name."""
        self._map()
        self._pinned = True

    def close(self) -> None:
        """Let descriptor and mapping go; slices given out stay valid."""
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.close()
        self._mapped = None

    def _map(self) -> memoryview:
        size = self.size_bytes
        mapped = self._mapped
        if mapped is not None and len(mapped) >= size:
            return mapped
        if size == 0:
            return memoryview(b"")
        handle = self._handle
        if handle is not None:
            fresh = handle.map(size)
        else:
            opened = self._filesystem.open(self.path)
            try:
                fresh = opened.map(size)
            finally:
                opened.close()
        self._mapped = fresh
        if mapped is None:
            self._budget.admit(self)
        return fresh

    def _require_handle(self) -> FileHandle:
        if self._handle is None:
            raise AssertionError(f"{self.path} is sealed")
        return self._handle
