"""Atomic files: checkpoints, metadata, snapshots and rebuilt indexes, replaced as a whole.

Replacing writes `NAME.tmp`, syncs it, renames it over `NAME` and syncs the directory. After a crash

  1. before the rename reached the disk, `NAME` has its old content; a `NAME.tmp` with any content
     may be left, which the next replacement removes;
  2. after it, `NAME` has the new content, complete: its bytes were on the disk before the name was.

Without `durable` nothing is synced: other processes and a restart after a kill see the old or the
new content, but a power cut may leave the name with zeros or a part of the content, which a
checksum must detect.

Thread-safety: no state; two replacements of one file must not run at the same time, since they
share the temporary name. Errors pass as OSError. It never writes into `NAME` itself.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from typing_extensions import Buffer

from kafkalog.files.filesystem import FileHandle, FileSystem
from kafkalog.files.names import temporary_path
from kafkalog.files.zeros import PIECE_BYTES, Holes, is_zero, pieces_between

__all__ = [
    "DirectorySyncError",
    "read_file",
    "replace_file",
    "sync_directory_names",
    "write_synced",
]


class DirectorySyncError(OSError):
    """The directory could not be synced; a later sync that succeeds may hide the loss of names."""


def read_file(filesystem: FileSystem, path: Path, *, max_bytes: int) -> bytes | None:
    """
    Return a file's content, or None if the file does not exist.

    Raises:
        ValueError: the file is larger than `max_bytes`; nothing was read.
        OSError: the disk reported an error.
    """
    try:
        handle = filesystem.open(path)
    except FileNotFoundError:
        return None
    try:
        size = handle.size()
        if size > max_bytes:
            raise ValueError(f"{path}: the size must be <= {max_bytes} bytes, got {size}")
        return handle.pread(size, 0)
    finally:
        handle.close()


def replace_file(
    filesystem: FileSystem,
    path: Path,
    data: Buffer,
    *,
    durable: bool = True,
    holes: Holes = (),
    before: FileHandle | None = None,
) -> None:
    """
    Replace a file's content by `data`; if `durable`, it is on the disk when this returns.

    Args:
        filesystem: the disk.
        path: the file.
        data: the new content.
        durable: True to sync the file and its directory.
        holes: ranges of `data` that are zeros; they are not read, and become holes.
        before: a file whose content precedes `data`, with its holes.

    Raises:
        DirectorySyncError: the directory could not be synced; the file was replaced.
        OSError: the disk reported an error; the file is as before.
    """
    temporary = temporary_path(path)
    handle = _create_temporary(filesystem, temporary)
    try:
        try:
            start = 0 if before is None else _copy(handle, before)
            _write(handle, start, memoryview(data).cast("B"), holes)
            if durable:
                handle.sync()
        finally:
            handle.close()
        filesystem.rename(temporary, path)
    except OSError:
        # Free the space: the cause may be a full disk. The first error is raised.
        with contextlib.suppress(OSError):
            filesystem.unlink(temporary)
        raise
    if not durable:
        return
    sync_directory_names(filesystem, path.parent)


def _create_temporary(filesystem: FileSystem, path: Path) -> FileHandle:
    """Create a temporary file; a file of its name, such as a crash leaves, is removed."""
    try:
        return filesystem.create_new(path)
    except IsADirectoryError:
        # A directory was not made by kafkalog, which must not remove it.
        filesystem.rename(path, path.with_name(f"{path.name}.broken"))
        return filesystem.create_new(path)


def _copy(handle: FileHandle, source: FileHandle) -> int:
    """Copy a file without its holes; return its size."""
    size = source.size()
    handle.truncate(size)
    position = source.next_data(0)
    while position is not None and position < size:
        piece = source.pread(min(PIECE_BYTES, size - position), position)
        if not is_zero(piece):
            handle.pwrite(piece, position)
        position = source.next_data(position + len(piece)) if piece else None
    return size


def _write(handle: FileHandle, at: int, data: memoryview, holes: Holes) -> None:
    """Write the last content of a new file; zero pieces of large content become holes."""
    if len(data) <= PIECE_BYTES:
        handle.pwrite(data, at)
        return
    handle.truncate(at + len(data))
    for start, end in pieces_between(holes, 0, len(data)):
        if not is_zero(data[start:end]):
            handle.pwrite(data[start:end], at + start)


def sync_directory_names(filesystem: FileSystem, directory: Path) -> None:
    """
    Sync the names in a directory.

    Raises:
        DirectorySyncError: the disk reported an error.
    """
    try:
        filesystem.sync_directory(directory)
    except OSError as error:
        raise DirectorySyncError(error.errno, error.strerror, str(directory)) from error


def write_synced(filesystem: FileSystem, path: Path, data: Buffer) -> None:
    """Write and sync a new file that has no reader yet; the caller syncs its name."""
    handle = filesystem.create_new(path)
    try:
        handle.pwrite(data, 0)
        handle.sync()
    finally:
        handle.close()
