"""A directory that appears whole or not at all: where a converted log or data directory is built.

It is built next to the target as `.TARGET.converting`, and gets its name when everything in it is
on the disk. Crash points: any before the rename leave that directory, which is not a log and may be
removed; after it, the directory is there, whole.

Thread-safety: none; one caller.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kafkalog.errors import LogStorageError
from kafkalog.files.atomic_files import read_file, replace_file
from kafkalog.files.directories import remove_tree
from kafkalog.files.filesystem import FileSystem

__all__ = ["building", "copy_file"]

_SMALL_FILE_MAX: Final = 1 << 30


@contextlib.contextmanager
def building(filesystem: FileSystem, target: Path) -> Iterator[Path]:
    """
    Give a fresh directory to build in; it becomes `target` when the block ends without an error.

    Raises:
        LogStorageError: `target` exists, or the rest of an earlier attempt does.
    """
    temporary = target.with_name(f".{target.name}.converting")
    if filesystem.stat(target) is not None:
        raise _exists(target, "nothing is overwritten: choose a directory that does not exist")
    if filesystem.stat(temporary) is not None:
        raise _exists(temporary, "an earlier attempt left it, or one is running: remove it first")
    filesystem.make_directory(temporary)
    try:
        yield temporary
        filesystem.sync_directory(temporary)
        filesystem.rename(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            remove_tree(filesystem, temporary)
        raise
    filesystem.sync_directory(target.parent)


def copy_file(filesystem: FileSystem, source: Path, target: Path) -> bool:
    """Copy a small file, onto the disk; return False where there is none."""
    data = read_file(filesystem, source, max_bytes=_SMALL_FILE_MAX)
    if data is None:
        return False
    replace_file(filesystem, target, data)
    return True


def _exists(path: Path, what_to_do: str) -> LogStorageError:
    return LogStorageError(f"{path} exists; {what_to_do}", errno=errno.EEXIST, path=path)
