"""Directories: paths given by callers, creation, removal, and lists of segment files.

Creation makes the names durable, so that a crash does not lose a directory.

Thread-safety: no state. Errors pass as OSError.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable
from os import PathLike
from pathlib import Path

from kafkalog.errors import ConfigError
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import FileKind, SegmentFileName, try_parse_segment_file

__all__ = [
    "Paths",
    "as_paths",
    "ensure_no_link",
    "live_offsets",
    "make_directories",
    "remove_tree",
    "segment_files",
]

# One path, or several paths.
Paths = str | PathLike[str] | Iterable[str | PathLike[str]]


def as_paths(paths: Paths) -> tuple[Path, ...]:
    """
    Return absolute paths; a single path is not split into its characters.

    Raises:
        ConfigError: a path is empty.
        TypeError: a path is not text.
    """
    if isinstance(paths, str | bytes | PathLike):
        paths = (os.fspath(paths),)
    found = []
    for each in paths:
        text = os.fspath(each)
        if not isinstance(text, str):
            raise TypeError(f"paths must be text, got {type(text).__name__}: {text!r}")
        if not text:
            raise ConfigError("a path must not be empty")
        found.append(Path(text).absolute())
    return tuple(found)


def make_directories(filesystem: FileSystem, directory: Path) -> None:
    """
    Create a directory and its missing parents; all their names are on the disk afterwards.

    The name of the first parent that exists is synced, too: the process that created it may have
    crashed before its own sync.
    """
    if filesystem.stat(directory) is None:
        make_directories(filesystem, directory.parent)
        with contextlib.suppress(FileExistsError):
            filesystem.make_directory(directory)
    # Not allowed if this process may not read the parent: then it created no name there.
    with contextlib.suppress(PermissionError):
        filesystem.sync_directory(directory.parent)


def ensure_no_link(filesystem: FileSystem, directory: Path) -> None:
    """
    Raise OSError (ELOOP) if a directory to write in is a symbolic link.

    A user with permission to write in its parent could otherwise redirect a writer, with the
    writer's rights, to another directory.
    """
    if filesystem.is_link(directory):
        reason = "a symbolic link, which is not followed for writing"
        raise OSError(errno.ELOOP, reason, str(directory))


def remove_tree(filesystem: FileSystem, directory: Path) -> None:
    """
    Remove a directory with its content; do nothing if it does not exist.

    Links are removed, not followed; the same applies to `directory` itself. Crash points: after any
    name; a second call removes the rest. Nothing is synced.
    """
    if filesystem.is_link(directory):
        filesystem.unlink(directory)
        return
    try:
        names = filesystem.list(directory)
    except FileNotFoundError:
        return
    for name in names:
        path = directory / name
        try:
            filesystem.unlink(path)
        except IsADirectoryError:
            remove_tree(filesystem, path)
        except FileNotFoundError:
            continue
    with contextlib.suppress(FileNotFoundError):
        filesystem.remove_directory(directory)


def segment_files(filesystem: FileSystem, directory: Path) -> list[SegmentFileName]:
    """Return the names of all segment files in a partition directory, in any state, sorted."""
    parsed = map(try_parse_segment_file, filesystem.list(directory))
    return [name for name in parsed if name is not None]


def live_offsets(filesystem: FileSystem, directory: Path, kind: FileKind) -> list[int]:
    """Return the offsets in the names of all live files of one kind, ascending."""
    # A live file's name ends with its kind; in a log of many segments most names have another kind.
    names = (name for name in filesystem.list(directory) if name.endswith(kind))
    return sorted(
        parsed.base_offset for parsed in map(try_parse_segment_file, names) if parsed is not None
    )
