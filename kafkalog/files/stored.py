"""Comparison of the bytes that reads of a file return with the bytes on the disk itself.

After a failed write-back the page cache continues to return bytes that the disk lacks. Writing them
again where they are does not always help: on ext4 a block whose first write failed stays marked as
unwritten while its page is in memory, so the second write and its sync succeed, and the block reads
as zeros once the page has left memory. A direct read (`O_DIRECT`) does not use the page cache and
shows it.

A direct read is a proof only if the kernel really makes one. File systems may serve it
from the page cache instead (ext4 with journaled data, inline data or encryption; Btrfs with
compression; network and FUSE file systems). So it counts only on the file systems named here, and
on files for which `statx` states an alignment of direct reads (Linux 6.1 and later). Everywhere
else the answer is False.

Thread-safety: pure functions over files of the system. Nothing is written.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from kafkalog.files.mounts import MOUNTS, find_mount

__all__ = ["is_stored"]

DIRECT_FILE_SYSTEMS: Final = frozenset({"ext4", "xfs"})
PIECE_BYTES: Final = 1024 * 1024

# Of <linux/stat.h>: the mask, and both alignments in `struct statx`.
_STATX_DIOALIGN: Final = 0x2000
_STATX_BYTES: Final = 256
_MASK: Final = struct.Struct("=I")
_ALIGNMENTS: Final = struct.Struct("=II")
_ALIGNMENTS_AT: Final = 152
_AT_EMPTY_PATH: Final = 0x1000
_O_DIRECT: Final[int] = getattr(os, "O_DIRECT", 0)


def is_stored(path: Path, position: int, *, mounts: Path = MOUNTS) -> bool:
    """
    Return whether the disk has the bytes that reads of a file return, from `position` to its end.

    Args:
        path: a regular file without dirty bytes: it was synced after the last write.
        position: position of the first byte to compare.
        mounts: the system's table of mounted file systems.

    Returns:
        False if the bytes differ, if the disk fails to read them, and if the system cannot read
        past its cache.

    Raises:
        OSError: the file cannot be opened, or reads through the cache fail.
    """
    if sys.platform != "linux" or not _has_direct_reads(path, mounts):
        return False
    cached = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        size = os.fstat(cached).st_size
        if position >= size:
            return True
        alignment = _direct_alignment(cached)
        if not 0 < alignment <= PIECE_BYTES:
            return False
        try:
            direct = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | _O_DIRECT)
        except OSError:
            return False
        try:
            return _is_same(cached, direct, alignment, position, size)
        finally:
            os.close(direct)
    finally:
        os.close(cached)


def _is_same(cached: int, direct: int, alignment: int, position: int, size: int) -> bool:
    """
    Compare two descriptors of one file piece by piece; False if the direct one fails.

    Holes are skipped: the disk has no bytes there, and a dirty page in memory is not a hole.
    """
    shown = bytearray(PIECE_BYTES)
    # A separate mapping begins at a page, as direct reads require.
    with mmap.mmap(-1, PIECE_BYTES) as stored:
        while (start := _next_data(cached, position, size)) < size:
            start -= start % alignment
            byte_count = min(PIECE_BYTES, size - start)
            position = start + byte_count
            if _read_all(cached, shown, byte_count, start) < byte_count:
                return False
            try:
                # A direct read may end at the end of the file only: it is never continued.
                count = os.preadv(direct, [stored], start)
            except OSError:
                return False
            if count < byte_count or stored[:byte_count] != shown[:byte_count]:
                return False
    return True


def _next_data(descriptor: int, position: int, size: int) -> int:
    """Return the position of the next data from a position on, `size` if there is none."""
    try:
        return min(os.lseek(descriptor, position, os.SEEK_DATA), size)
    except OSError as error:
        return size if error.errno == errno.ENXIO else position


def _read_all(descriptor: int, target: bytearray, size: int, position: int) -> int:
    done = 0
    with memoryview(target) as view:
        while done < size:
            count = os.preadv(descriptor, [view[done:size]], position + done)
            if not count:
                break
            done += count
    return done


def _has_direct_reads(path: Path, mounts: Path) -> bool:
    try:
        table = mounts.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return False
    mount = find_mount(os.path.realpath(path.parent), table)
    return mount is not None and mount.kind in DIRECT_FILE_SYSTEMS


def _direct_alignment(descriptor: int) -> int:
    """Return the alignment of positions of direct reads; 0 if the file has no direct reads."""
    if _statx is None:
        return 0
    facts = ctypes.create_string_buffer(_STATX_BYTES)
    if _statx(descriptor, b"", _AT_EMPTY_PATH, _STATX_DIOALIGN, facts):
        return 0
    if not _MASK.unpack_from(facts, 0)[0] & _STATX_DIOALIGN:
        return 0
    memory, position = _ALIGNMENTS.unpack_from(facts, _ALIGNMENTS_AT)
    return max(position, mmap.PAGESIZE) if memory and position else 0


def _find_function() -> Callable[..., Any] | None:
    if sys.platform != "linux":
        return None
    function = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)
    if function is not None:
        function.argtypes = [
            ctypes.c_int,
            ctypes.c_char_p,
            ctypes.c_int,
            ctypes.c_uint,
            ctypes.c_char_p,
        ]
    return function


_statx = _find_function()
