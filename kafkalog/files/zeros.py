"""Whether bytes are all zero: what a hole, or a file that was made long before its bytes, reads as.

Thread-safe; holds no state.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from typing_extensions import Buffer

from kafkalog._core.mapping import check_bytes
from kafkalog.files.filesystem import FileHandle

__all__ = ["end_of_data", "is_zero", "is_zero_behind"]

PIECE_BYTES: Final = 256 * 1024
HOLE_BLOCK_BYTES: Final = 4096


def is_zero(data: Buffer) -> bool:
    """
    Say whether no byte of `data` is other than zero; no byte at all counts as zero.

    Raises:
        LogStorageError: the data is mapped, and the disk does not give it.
    """
    found = not np.frombuffer(memoryview(data), dtype=np.uint8).any()
    check_bytes(data)
    return found


def is_zero_behind(handle: FileHandle, position: int) -> bool:
    """
    Say whether no byte of a file from `position` on is other than zero.

    Holes are passed over: reading one would fill memory with its zeros, page by page.

    Raises:
        OSError: the file cannot be read.
    """
    found = handle.next_data(position)
    while found is not None:
        piece = handle.pread(PIECE_BYTES, found)
        if not is_zero(piece):
            return False
        found = handle.next_data(found + len(piece)) if piece else None
    return True


def end_of_data(handle: FileHandle, size: int) -> int:
    """
    Return where the hole at the end of a file begins, to a block; `size` where there is none.

    Only the system is asked, nothing is read: that takes a few calls, however large the hole is.

    Args:
        handle: the file.
        size: where it ends.

    Raises:
        OSError: the system refuses.
    """
    if size == 0 or handle.next_data(size - 1) is not None:
        return size
    # Data lies before `lower`, at most; from `upper` on none does.
    lower, upper = 0, size
    while upper - lower > HOLE_BLOCK_BYTES:
        middle = (lower + upper) // 2
        found = handle.next_data(middle)
        if found is None:
            upper = middle
        else:
            lower = min(found + HOLE_BLOCK_BYTES, upper)
    return upper
