"""Translation of OSError into the typed storage errors of `kafkalog.errors`.

This package raises OSError. The packages above it (`log`, `state`, `manager`) use `storage_errors`,
which raises a `LogStorageError` with the file, the operation and the system's answer. The OSError
is its `__cause__`.

Thread-safety: no state. This module never suppresses an error and never retries.
"""

from __future__ import annotations

import errno
import os
from types import TracebackType

from kafkalog.errors import DiskFullError, LogPermissionError, LogStorageError

__all__ = ["ShortFileError", "has_missed_file", "is_disk_full", "storage_errors", "translate"]

_PathLike = str | os.PathLike[str]

_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_PERMISSION = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class ShortFileError(OSError):
    """
    A file has fewer bytes than before: another process has truncated it.

    Args:
        path: the file.
        size: the file's size in bytes.
        byte_count: number of bytes to read.
    """

    def __init__(self, path: _PathLike, size: int, byte_count: int) -> None:
        super().__init__(f"the file must have {byte_count} bytes, got {size}")
        # Not `filename`: the system's message would replace this one.
        self.path = os.fsdecode(path)


def translate(
    error: OSError, path: _PathLike | None = None, *, doing: str = "using"
) -> LogStorageError:
    """
    Return the typed error for an OSError, which is its cause.

    Args:
        error: the error of the file system.
        path: the file or directory concerned; the OSError's own file name if None.
        doing: the operation, as a word ending in -ing ("writing", "syncing").
    """
    where = path if path is not None else error.filename
    if isinstance(error, ShortFileError):
        where = error.path
    number = error.errno
    if is_disk_full(error):
        kind: type[LogStorageError] = DiskFullError
    elif number in _NO_PERMISSION:
        kind = LogPermissionError
    else:
        kind = LogStorageError
    answer = error.strerror or (os.strerror(number) if number else str(error) or "unknown error")
    name = "" if number is None else f" ({errno.errorcode.get(number, number)})"
    subject = "the disk" if where is None else os.fsdecode(where)
    found = kind(f"{subject}: {doing} failed: {answer}{name}", errno=number, path=_text(where))
    found.__cause__ = error
    return found


def has_missed_file(error: BaseException) -> bool:
    """
    Return whether an error may be caused by a file that another process removed or truncated
    between listing and reading. The caller then lists again.
    """
    if isinstance(error, LogStorageError):
        # The error of a mapped file that was truncated has neither an errno nor a cause.
        cause = error.__cause__
        return has_missed_file(cause) if isinstance(cause, OSError) else error.errno is None
    return isinstance(error, (FileNotFoundError, ShortFileError))


def is_disk_full(error: OSError) -> bool:
    """Return whether the disk, or the quota of this user, is full."""
    return error.errno in _DISK_FULL


def _text(path: _PathLike | bytes | int | None) -> str | None:
    if path is None:
        return None
    return str(path) if isinstance(path, int) else os.fsdecode(path)


class storage_errors:  # noqa: N801 - used as a statement: `with storage_errors(path, doing=...)`
    """
    Raise every OSError of the block as a typed storage error.

    >>> with storage_errors("/data/orders-0/00000000000000000000.log", doing="syncing"):
    ...     handle.sync()
    """

    __slots__ = ("_doing", "_path")

    def __init__(self, path: _PathLike | None = None, *, doing: str = "using") -> None:
        self._path = path
        self._doing = doing

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, OSError):
            raise translate(error, self._path, doing=self._doing) from error
