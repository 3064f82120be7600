"""Early write-back of a file that is still being written, and removal from the page cache.

A file of gigabytes that is written at once fills the page cache with bytes that are not read soon,
at the cost of other programs; and the sync at its end must write all of it. Linux can start the
write-back of a range, wait for one (`sync_file_range`), and drop written pages (`posix_fadvise`).
On other systems the functions do nothing, and the sync at the end does everything.

Neither function makes a byte durable: the disk's own cache is not flushed, and the length of the
file is not synced. A failed write-back is reported to the call that waits for it, and not again by
the sync that follows: so the call raises it.

Thread-safety: pure functions over a descriptor, which the caller keeps open.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Callable
from typing import Any, Final, TypeAlias

__all__ = ["SYNC_FILE_RANGE", "begin", "drop_cache", "find_function"]

_WAIT_BEFORE, _WRITE, _WAIT_AFTER = 1, 2, 4
# Errors of a file system, or of a kernel in a sandbox, without this call.
_UNKNOWN: Final = frozenset({errno.ENOSYS, errno.EINVAL, errno.ESPIPE, errno.EOPNOTSUPP})

RangeSync: TypeAlias = Callable[..., Any]


def find_function(platform: str = sys.platform) -> RangeSync | None:
    """Return `sync_file_range` of the C library, None where there is none."""
    if platform != "linux":
        return None
    function = getattr(ctypes.CDLL(None, use_errno=True), "sync_file_range", None)
    if function is not None:
        function.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return function


SYNC_FILE_RANGE: Final = find_function()


def begin(
    descriptor: int, position: int, size: int, *, function: RangeSync | None = SYNC_FILE_RANGE
) -> None:
    """
    Start the write-back of a range of a file.

    Args:
        descriptor: the open file.
        position: where the range begins.
        size: its bytes.
        function: the call of the system, None where it has none.

    Raises:
        OSError: the system could not start it.
    """
    _call(function, descriptor, position, size, _WRITE)


def drop_cache(
    descriptor: int, position: int, size: int, *, function: RangeSync | None = SYNC_FILE_RANGE
) -> None:
    """
    Wait until the system has written a range, and drop its whole pages from the page cache.

    Args:
        descriptor, position, size, function: as for `begin`.

    Raises:
        OSError: the write-back failed; the next sync need not report it again.
    """
    flags = _WAIT_BEFORE | _WRITE | _WAIT_AFTER
    if _call(function, descriptor, position, size, flags):
        os.posix_fadvise(descriptor, position, size, os.POSIX_FADV_DONTNEED)


def _call(
    function: RangeSync | None, descriptor: int, position: int, size: int, flags: int
) -> bool:
    """Return whether the system supports the call."""
    if function is None:
        return False
    while function(descriptor, position, size, flags):
        number = ctypes.get_errno()
        if number in _UNKNOWN:
            return False
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))
    return True
