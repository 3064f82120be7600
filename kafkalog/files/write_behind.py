"""Bytes go to the disk while their file is still being written, and out of memory behind it.

A file of gigabytes that is written at once fills the page cache with what nobody asks for soon, at
the cost of what others do; and at its end a sync has all of it to write. Linux can be told to begin
with a range, and to wait for one (`sync_file_range`), and that it may let go of what it has written
(`posix_fadvise`). Elsewhere nothing happens here, and the sync at the end does everything.

None of it makes a byte durable: neither the disk's own cache is emptied nor the length of the file
kept. A failed write-back that is waited for is told here, and not again by the sync that follows:
so it is raised.

Thread-safety: pure functions over a descriptor, which the caller keeps open.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Callable
from typing import Any, Final

__all__ = ["begin", "drop_cache"]

_WAIT_BEFORE, _WRITE, _WAIT_AFTER = 1, 2, 4
# A file system, or a kernel in a sandbox, that does not know the call.
_UNKNOWN: Final = frozenset({errno.ENOSYS, errno.EINVAL, errno.ESPIPE, errno.EOPNOTSUPP})


def begin(descriptor: int, position: int, size: int) -> None:
    """
    Have the system begin to write a range of a file to the disk.

    Raises:
        OSError: it could not.
    """
    _call(descriptor, position, size, _WRITE)


def drop_cache(descriptor: int, position: int, size: int) -> None:
    """
    Wait until the system has written a range, and let it forget the whole pages in it.

    Raises:
        OSError: it could not write; the next sync need not say so again.
    """
    if _call(descriptor, position, size, _WAIT_BEFORE | _WRITE | _WAIT_AFTER):
        os.posix_fadvise(descriptor, position, size, os.POSIX_FADV_DONTNEED)


def _call(descriptor: int, position: int, size: int, flags: int) -> bool:
    """Say whether the system knows the call."""
    if _sync_file_range is None:
        return False
    while _sync_file_range(descriptor, position, size, flags):
        number = ctypes.get_errno()
        if number in _UNKNOWN:
            return False
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))
    return True


def _find_function() -> Callable[..., Any] | None:
    if sys.platform != "linux":
        return None
    function = getattr(ctypes.CDLL(None, use_errno=True), "sync_file_range", None)
    if function is not None:
        function.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return function


_sync_file_range = _find_function()
