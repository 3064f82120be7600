"""Whether bytes are all zero: what a hole, or a file that was made long before its bytes, reads as.

Thread-safe; holds no state.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from typing_extensions import Buffer

from kafkalog.files.filesystem import FileHandle

__all__ = ["is_zero", "is_zero_behind"]

PIECE_BYTES: Final = 256 * 1024


def is_zero(data: Buffer) -> bool:
    """Say whether no byte of `data` is other than zero; no byte at all counts as zero."""
    return not np.frombuffer(memoryview(data), dtype=np.uint8).any()


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
