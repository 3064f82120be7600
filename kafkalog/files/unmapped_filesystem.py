"""A disk on which nothing is mapped: what asks for a mapping gets a copy, read by `pread`.

For files of which another process owns the length. Where it cuts one that is mapped, readers get an
error; a copy has zeros for what was cut before it was read. It costs the memory of what is mapped,
so segments of a log are read piece by piece (`kafkalog.log.segment_file`): a copy of all of one is
for what happens rarely, as damage does.

Thread-safety: that of the disk behind it.
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
    """Say whether a mapping on a disk is one, and not a copy."""
    return not isinstance(filesystem, _UnmappedFileSystem)


class _UnmappedFileSystem:
    """A disk whose files are not mapped; all else is that of the disk behind it."""

    def __init__(self, filesystem: FileSystem) -> None:
        self._filesystem = filesystem

    def __getattr__(self, name: str) -> Any:
        return getattr(self._filesystem, name)

    def open(self, path: Path, *, create: bool = False, write: bool = False) -> FileHandle:
        """Open a file, as the disk behind does."""
        handle = self._filesystem.open(path, create=create, write=write)
        return cast("FileHandle", _UnmappedHandle(handle))


class _UnmappedHandle:
    """An open file that gives copies for mappings."""

    def __init__(self, handle: FileHandle) -> None:
        self._handle = handle

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)

    def map(self, size: int) -> memoryview:
        """Return a copy of the first bytes; zeros where the file has become shorter."""
        if size <= 0:
            raise ValueError(f"{self._handle.path}: cannot copy {size} bytes")
        if size > self._handle.size():
            raise ShortFileError(self._handle.path, self._handle.size(), size)
        memory = memoryview(bytearray(size))
        self._handle.pread_into(memory, 0)
        return memory.toreadonly()
