"""Directories: made so that a crash does not lose them, removed with what is in them.

Thread-safety: no state. Errors pass as OSError.
"""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path

from kafkalog.files.filesystem import FileSystem

__all__ = ["ensure_no_link", "make_directories", "remove_tree"]


def make_directories(filesystem: FileSystem, directory: Path) -> None:
    """
    Create a directory and the missing ones above it; all their names are on the disk afterwards.

    So is the name of the first one that is there: whoever made it may not have come so far.
    """
    if filesystem.stat(directory) is None:
        make_directories(filesystem, directory.parent)
        with contextlib.suppress(FileExistsError):
            filesystem.make_directory(directory)
    # Not allowed where this process may not read the directory above: then it made no name there.
    with contextlib.suppress(PermissionError):
        filesystem.sync_directory(directory.parent)


def ensure_no_link(filesystem: FileSystem, directory: Path) -> None:
    """
    Raise OSError (ELOOP) where a directory that is to be written in is a symbolic link.

    A user who may write in the directory around it could lead a writer, with its rights, elsewhere.
    """
    if filesystem.is_link(directory):
        reason = "a symbolic link, which is not followed for writing"
        raise OSError(errno.ELOOP, reason, str(directory))


def remove_tree(filesystem: FileSystem, directory: Path) -> None:
    """
    Remove a directory with everything in it; nothing to do where it is gone.

    Links are removed, not followed, nor is `directory` if it is one. Crash points: after any name;
    what is left is removed by doing it again. Nothing is synced.
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
