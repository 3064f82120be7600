"""Syncs of a whole file system on Linux: one `syncfs` for any number of files.

The kernel counts the failed writes of a file system, and each open descriptor has the number that
its last `syncfs` has seen. So the descriptor is opened once, before the writes, and kept: a new one
would not get an error that another program has seen already. A process that is forked shares the
number with its parent, and must not call `sync`.

`syncfs` writes what other programs have written to the same file system, too: it takes as long as
that, and raises their errors.

Crash points: anything written since the last sync is on the disk or not, in any order. Only the
return of `sync` makes a difference.

Thread-safety: every method from any thread, `close` after the last `sync`. A failed sync is not
retried.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

from kafkalog.files.mounts import reports_errors_of_syncfs

__all__ = ["SYNCFS", "PosixFilesystemSync", "find_function", "open_filesystem_sync"]

SyncFunction: TypeAlias = Callable[..., Any]


def find_function(platform: str = sys.platform) -> SyncFunction | None:
    """Return `syncfs` of the C library, which `os` has not; None where there is none."""
    if platform != "linux":
        return None
    function = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if function is not None:
        function.argtypes = [ctypes.c_int]
    return function


SYNCFS: Final = find_function()


class PosixFilesystemSync:
    """
    Syncs of the file system that has a directory.

    Args:
        directory: it is held open.
        function: the call of the system.

    Raises:
        OSError: the directory cannot be opened.
    """

    def __init__(self, directory: Path, function: SyncFunction) -> None:
        self._directory = directory
        self._function = function
        self._descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._device = os.fstat(self._descriptor).st_dev

    def covers(self, directory: Path) -> bool:
        """Return whether a directory is in this file system; OSError if it cannot be read."""
        return directory.stat().st_dev == self._device

    def sync(self) -> None:
        """Make everything durable that was written before the call; OSError as `FilesystemSync`."""
        if self._descriptor < 0:
            raise ValueError(f"{self._directory}: its file system must be open for a sync")
        if self._function(self._descriptor):
            number = ctypes.get_errno()
            reason = f"{os.strerror(number)} in a sync of the whole file system"
            raise OSError(number, reason, str(self._directory))

    def close(self) -> None:
        """Close the directory. Idempotent."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def open_filesystem_sync(
    directory: Path,
    *,
    function: SyncFunction | None = SYNCFS,
    reports_errors: Callable[[Path], bool] = reports_errors_of_syncfs,
) -> PosixFilesystemSync | None:
    """
    Return syncs of the file system of a directory; None where they may hide an error.

    Raises:
        OSError: the directory cannot be opened.
    """
    if function is None or not reports_errors(directory):
        return None
    return PosixFilesystemSync(directory, function)
