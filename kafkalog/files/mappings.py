"""What a mapped file is called, and what is raised where the disk does not give its bytes.

`kafkalog._core.mapping` finds out that bytes were lost, and has no names; here they are.

Thread-safety: everything from any thread.
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
        path: its name when it was mapped.
        identity: its device and inode.

    Attributes:
        keeper: refers weakly to what gives the mapping to readers, and knows the file's present
            name; None where nobody does.
    """

    __slots__ = ("_identity", "_path", "keeper")

    def __init__(self, path: Path, identity: tuple[int, int]) -> None:
        self._path = path
        self._identity = identity
        self.keeper: weakref.ref[_Keeper] | None = None

    def drop(self, mapping: FileMapping) -> None:
        """See that no later reader is given the mapping."""
        keeper = self._known_keeper()
        if keeper is not None:
            keeper.drop_mapping(mapping)

    def to_error(self, mapping: FileMapping, start: int) -> LogStorageError:
        """
        Return what is raised for bytes from `start` on, of which some were lost.

        A file that has become shorter is no failure of the disk, and gives no `errno`; nor is it
        one, for all that can be told, where the name is another file's by now.
        """
        keeper = self._known_keeper()
        path = self._path if keeper is None else keeper.path
        first, end = mapping.lost or (start, start)
        position = max(start, first)
        size = self._present_size(path)
        where = f"{path}: reading position {position} failed"
        why = None
        if size is None:
            why = "the file has lost its name, and can be read no more"
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
        return None if self.keeper is None else self.keeper()

    def _present_size(self, path: Path) -> int | None:
        """Return the size of the file now, None where the name is gone or is another file's."""
        try:
            facts = path.stat()
        except OSError:
            return None
        return facts.st_size if (facts.st_dev, facts.st_ino) == self._identity else None


def map_file(descriptor: int, size: int, path: Path, identity: tuple[int, int]) -> memoryview:
    """
    Map the first bytes of a file.

    Args:
        descriptor: of the file; it may be closed afterwards.
        size: how many; not more than the file has.
        path: its name.
        identity: its device and inode.

    Raises:
        OSError: the system refuses.
    """
    return memoryview(FileMapping(descriptor, size, MappedOrigin(path, identity)))
