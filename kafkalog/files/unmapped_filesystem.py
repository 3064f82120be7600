"""A disk without mappings: a caller that maps a file gets a copy, read by `pread`.

Used for files whose length another process controls. If that process truncates a mapped file,
readers get an error; a copy has zeros for bytes that were truncated before they were read. A copy
costs the memory of its bytes, so segments of a log are read in pieces, see
`kafkalog.log.segment_file`: a copy of a whole segment is for rare cases, such as damage.

Thread-safety: that of the underlying disk.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from kafkalog.files.errors import ShortFileError
from kafkalog.files.filesystem import FileHandle, FileSystem

__all__ = ["maps_files", "without_mappings"]


def without_mappings(filesystem: FileSystem) -> FileSystem:
    """Return the same disk, without mappings."""
    return cast("FileSystem", _UnmappedFileSystem(filesystem))


def maps_files(filesystem: FileSystem) -> bool:
    """Return whether a disk really maps files instead of copying them."""
    return not isinstance(filesystem, _UnmappedFileSystem)


class _UnmappedFileSystem:
    """A disk whose files are not mapped; all other calls go to the underlying disk."""

    def __init__(self, filesystem: FileSystem) -> None:
        self._filesystem = filesystem

    def __getattr__(self, name: str) -> Any:
        return getattr(self._filesystem, name)

    def open(self, path: Path, *, create: bool = False, write: bool = False) -> FileHandle:
        """Open a file on the underlying disk."""
        handle = self._filesystem.open(path, create=create, write=write)
        return cast("FileHandle", _UnmappedHandle(handle))


class _UnmappedHandle:
    """An open file that returns copies instead of mappings."""

    def __init__(self, handle: FileHandle) -> None:
        self._handle = handle

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)

    def map(self, size: int) -> memoryview:
        """Return a copy of the first bytes; zeros where it has become shorter."""
        if size <= 0:
            raise ValueError(f"{self._handle.path}: bytes to copy must be at least 1, got {size}")
        if size > self._handle.size():
            raise ShortFileError(self._handle.path, self._handle.size(), size)
        memory = memoryview(bytearray(size))
        self._handle.pread_into(memory, 0)
        return memory.toreadonly()
