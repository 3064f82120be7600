"""File system of one manager on a disk with faults.

Every effect asks the `FaultyDisk` first, and then goes to the file system of the machine: the
engine takes the same paths, and the files are real. After `turn_off` no call has an effect, as for
a process that was killed; locks and descriptors can still be released.

Thread-safety: that of the machine's file system.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from typing_extensions import Buffer

from kafkalog.files.filesystem import FileHandle, FileSystem
from kafkalog.testing.faulty_disk import DiskCall, FaultyDisk, UnsyncedFile

__all__ = ["FaultyFileSystem"]


class FaultyFileSystem:
    """
    A `FileSystem` whose calls fail by the faults of a disk.

    Args:
        disk: the faults.
        filesystem: does the work.
    """

    def __init__(self, disk: FaultyDisk, filesystem: FileSystem) -> None:
        self._disk = disk
        self._filesystem = filesystem
        self._is_off = False

    def __getattr__(self, name: str) -> Any:
        # Calls without an effect: the underlying file system does them.
        return getattr(self._filesystem, name)

    def turn_off(self) -> None:
        """Let every later effect fail, as after a kill of the process."""
        self._is_off = True

    def check(self, call: DiskCall, path: Path) -> None:
        """Raise OSError if a call must fail."""
        if self._is_off:
            raise OSError(errno.EIO, "the test has killed the manager", str(path))
        self._disk.check(call, path)

    def open(self, path: Path, *, create: bool = False, write: bool = False) -> FileHandle:
        """Open a file; to create it is an effect."""
        if create and self._filesystem.stat(path) is None:
            self.check("create", path)
        return self._wrap(path, self._filesystem.open(path, create=create, write=write))

    def create_new(self, path: Path) -> FileHandle:
        """Create a file, in place of one with this name."""
        self.check("create", path)
        self._remove_changes(path)
        return self._wrap(path, self._filesystem.create_new(path))

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file or directory."""
        self.check("change", source)
        self._remove_changes(target)
        self._filesystem.rename(source, target)

    def unlink(self, path: Path) -> None:
        """Remove a name."""
        self.check("change", path)
        self._remove_changes(path)
        self._filesystem.unlink(path)

    def make_directory(self, path: Path) -> None:
        """Create a directory."""
        self.check("create", path)
        self._filesystem.make_directory(path)

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        self.check("change", path)
        self._filesystem.remove_directory(path)

    def sync_directory(self, directory: Path) -> None:
        """Make the names in a directory durable."""
        self.check("sync", directory)
        self._filesystem.sync_directory(directory)

    def open_filesystem_sync(self, directory: Path) -> None:
        """Return None: a power cut knows what each sync of a file has covered, and no other."""

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        """Set the time of the last modification."""
        self.check("change", path)
        self._filesystem.set_modified_ms(path, modified_ms)

    def cache_id(self, directory: Path) -> bytes:
        """Return the id of the page cache, which is a new one after each power cut."""
        found = self._filesystem.cache_id(directory)
        return found + self._disk.boot if found else found

    def _wrap(self, path: Path, handle: FileHandle) -> FileHandle:
        facts = self._filesystem.stat(path)
        file = UnsyncedFile() if facts is None else self._disk.file(facts.file_id)
        return cast("FileHandle", _FaultyHandle(self, handle, file))

    def _remove_changes(self, path: Path) -> None:
        facts = self._filesystem.stat(path)
        if facts is not None and not facts.is_directory:
            self._disk.remove_file(facts.file_id)


class _FaultyHandle:
    """An open file whose writes and syncs may fail."""

    def __init__(
        self, filesystem: FaultyFileSystem, handle: FileHandle, file: UnsyncedFile
    ) -> None:
        self._filesystem = filesystem
        self._handle = handle
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write bytes."""
        handle = self._handle
        self._filesystem.check("write", handle.path)
        size = memoryview(data).nbytes
        self._file.write(handle, position, size, lambda: handle.pwrite(data, position))

    def pwritev(self, parts: Sequence[Buffer], position: int) -> None:
        """Write the parts in sequence."""
        handle = self._handle
        self._filesystem.check("write", handle.path)
        size = sum(memoryview(part).nbytes for part in parts)
        self._file.write(handle, position, size, lambda: handle.pwritev(parts, position))

    def truncate(self, size: int) -> None:
        """Set the length."""
        handle = self._handle
        self._filesystem.check("change", handle.path)
        removed = max(handle.size() - size, 0)
        self._file.write(handle, size, removed, lambda: handle.truncate(size))

    def sync(self) -> None:
        """Make bytes and length durable."""
        self._filesystem.check("sync", self._handle.path)
        self._file.sync(self._handle.sync)
