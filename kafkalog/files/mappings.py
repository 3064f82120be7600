"""The origin of a mapping: the name of its file, and the error if bytes of it were lost.

`kafkalog._core.mapping` detects that bytes were lost, but has no names of files; they are here.

Thread-safety: every function may be called from any thread.
"""

from __future__ import annotations

import errno
import os
import weakref
from pathlib import Path
from typing import Protocol

from kafkalog._core.mapping import FileMapping
from kafkalog.errors import LogStorageError

__all__ = ["MappedOrigin", "map_file"]


class _Keeper(Protocol):
    @property
    def path(self) -> Path: ...
    def drop_mapping(self, mapping: FileMapping) -> None: ...


class MappedOrigin:
    """
    The file that a mapping shows.

    Args:
        path: the file's name when it was mapped.
        identity: its device and inode.

    Thread-safety: `set_keeper` is called once, before the mapping is given to readers.
    """

    __slots__ = ("_identity", "_keeper", "_path")

    def __init__(self, path: Path, identity: tuple[int, int]) -> None:
        self._path = path
        self._identity = identity
        self._keeper: weakref.ref[_Keeper] | None = None

    def set_keeper(self, keeper: weakref.ref[_Keeper]) -> None:
        """Set the object that gives the mapping to readers and has the file's current name."""
        self._keeper = keeper

    def drop(self, mapping: FileMapping) -> None:
        """Make sure that no later reader is given the mapping."""
        keeper = self._known_keeper()
        if keeper is not None:
            keeper.drop_mapping(mapping)

    def to_error(self, mapping: FileMapping, start: int) -> LogStorageError:
        """
        Return the error to raise if some of the bytes from `start` on were lost.

        A file that has become shorter is not a failure of the disk, and the error has no `errno`.
        The same applies if the name belongs to another file by now: no failure can be proved.
        """
        keeper = self._known_keeper()
        path = self._path if keeper is None else keeper.path
        first, end = mapping.lost or (start, start)
        position = max(start, first)
        size = self._present_size(path)
        where = f"{path}: reading position {position} failed"
        why = None
        if size is None:
            why = "the file has lost its name and cannot be read any more"
        elif size < end:
            why = f"the file was cut to {size} bytes, and {mapping.size} of it are in use"
        if why is not None:
            return LogStorageError(f"{where}: {why}", path=path, position=position)
        answer = os.strerror(errno.EIO)
        error = LogStorageError(
            f"{where}: {answer} (EIO)", errno=errno.EIO, path=path, position=position
        )
        error.__cause__ = OSError(errno.EIO, answer, str(path))
        return error

    def _known_keeper(self) -> _Keeper | None:
        return None if self._keeper is None else self._keeper()

    def _present_size(self, path: Path) -> int | None:
        """Return the file's current size, None if the name is gone or belongs to another file."""
        try:
            facts = path.stat()
        except OSError:
            return None
        return facts.st_size if (facts.st_dev, facts.st_ino) == self._identity else None


def map_file(descriptor: int, size: int, path: Path, identity: tuple[int, int]) -> memoryview:
    """
    Map the first bytes of a file.

    Args:
        descriptor: descriptor of the file; it may be closed afterwards.
        size: number of bytes to map; not more than the file has.
        path: name of the file.
        identity: device and inode of the file.

    Raises:
        OSError: the system refuses.
    """
    return memoryview(FileMapping(descriptor, size, MappedOrigin(path, identity)))
