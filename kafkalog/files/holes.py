"""Large holes within a file: what a search through its bytes leaves out.

To read a hole fills memory with its zeros, page by page. A file may have holes of gigabytes with
data behind them, and no search for a batch, or for a byte that is not zero, is to go through them.

Thread-safe; holds no state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from typing_extensions import Buffer

from kafkalog.files.filesystem import FileHandle
from kafkalog.files.zeros import PIECE_BYTES, is_zero

__all__ = ["HOLE_BYTES", "Holes", "data_between", "find_holes", "is_zero_between", "pieces_between"]

# Smaller holes are read: that takes milliseconds.
HOLE_BYTES: Final = 16 << 20

# (start, end) of each, in order.
Holes = Sequence[tuple[int, int]]


def find_holes(handle: FileHandle, size: int) -> Holes:
    """
    Return large holes in the first `size` bytes of a file.

    The system is asked once for each `HOLE_BYTES` of data, and once for each hole. Of a hole the
    beginning may be left out, and one smaller than twice that may be missed.

    Raises:
        OSError: the system refuses.
    """
    holes, position = [], 0
    while position < size:
        found = handle.next_data(position)
        end = size if found is None else min(found, size)
        if end - position >= HOLE_BYTES:
            holes.append((position, end))
        position = max(end, position + HOLE_BYTES)
    return holes


def data_between(holes: Holes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of what lies between the holes of a range, and around them."""
    for first, behind in holes:
        if behind <= start:
            continue
        if first >= end:
            break
        if first > start:
            yield start, first
        start = behind
    if start < end:
        yield start, end


def pieces_between(holes: Holes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """As `data_between`, in pieces of at most `PIECE_BYTES`."""
    for first, behind in data_between(holes, start, end):
        for begin in range(first, behind, PIECE_BYTES):
            yield begin, min(begin + PIECE_BYTES, behind)


def is_zero_between(data: memoryview, holes: Holes, start: int, end: int) -> bool:
    """
    Say whether no byte of a range is other than zero, without a look into the holes.

    Raises:
        LogStorageError: the data is mapped, and the disk does not give it.
    """
    pieces: Iterator[Buffer] = (data[first:stop] for first, stop in data_between(holes, start, end))
    return all(map(is_zero, pieces))
