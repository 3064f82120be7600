"""Zero bytes and holes: the content of files whose data was never written.

A hole, or a file that was preallocated, reads as zeros. To read a hole fills memory with its zeros,
page by page. A file may have holes of gigabytes with data after them, and no search for a batch, or
for a byte that is not zero, reads them.

Thread-safety: no state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from typing_extensions import Buffer

from kafkalog._core.mapping import check_bytes
from kafkalog.files.filesystem import FileHandle

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "HOLE_BYTES",
    "PIECE_BYTES",
    "Holes",
    "data_between",
    "end_of_data",
    "find_holes",
    "is_zero",
    "is_zero_after",
    "is_zero_between",
    "pieces_between",
]

PIECE_BYTES: Final = 256 * 1024
HOLE_BLOCK_BYTES: Final = 4096
# Smaller holes are read: this takes milliseconds.
HOLE_BYTES: Final = 16 << 20

# (start, end) of each hole, in order.
Holes = Sequence[tuple[int, int]]


def is_zero(data: Buffer) -> bool:
    """
    Return whether all bytes of `data` are zero; True for no bytes.

    Raises:
        LogStorageError: the data is mapped, and the disk does not return it.
    """
    # Imported on use: it takes longer than reading the state files of a data directory.
    import numpy as np

    found = np.frombuffer(memoryview(data), dtype=np.uint8)
    has_more = _is_any(found[:PIECE_BYTES]) or any(
        _is_any(found[start : start + PIECE_BYTES])
        for start in range(PIECE_BYTES, len(found), PIECE_BYTES)
    )
    check_bytes(data)
    return not has_more


def _is_any(data: npt.NDArray[np.uint8]) -> bool:
    """Return whether a byte is not zero, by comparing eight at a time."""
    count = len(data) // 8 * 8
    return bool(data[:count].view("u8").any() or data[count:].any())


def is_zero_after(handle: FileHandle, position: int, end: int = 2**63 - 1) -> bool:
    """
    Return whether all bytes of a file from `position` to `end`, or to its end, are zero.

    Holes are skipped: reading one would fill memory with its zeros, page by page.

    Raises:
        OSError: the file cannot be read.
    """
    found = handle.next_data(position)
    while found is not None and found < end:
        piece = handle.pread(min(PIECE_BYTES, end - found), found)
        if not is_zero(piece):
            return False
        found = handle.next_data(found + len(piece)) if piece else None
    return True


def end_of_data(handle: FileHandle, size: int) -> int:
    """
    Return the start of the hole at the end of a file, to a block; `size` if there is none.

    A written piece of zeros at the end belongs to the hole before it: a recovery may have written
    the last byte again. The function queries the system and reads little: it makes a few calls,
    however large the hole is.

    Args:
        handle: the file.
        size: end of the file, or of the part of it that counts.

    Raises:
        OSError: the system reported an error.
    """
    if size == 0:
        return 0
    start = max(size - HOLE_BLOCK_BYTES, 0)
    if _has_data(handle, size - 1, size) and is_zero(handle.pread(size - start, start)):
        end = _end_of_blocks(handle, start)
        return size if end == start else end
    return _end_of_blocks(handle, size)


def _has_data(handle: FileHandle, position: int, end: int) -> bool:
    found = handle.next_data(position)
    return found is not None and found < end


def _end_of_blocks(handle: FileHandle, size: int) -> int:
    if not size or _has_data(handle, size - 1, size):
        return size
    # There may be data before `lower`; there is none from `upper` on.
    lower, upper = 0, size
    while upper - lower > HOLE_BLOCK_BYTES:
        middle = (lower + upper) // 2
        found = handle.next_data(middle)
        if found is None or found >= size:
            upper = middle
        else:
            lower = min(found + HOLE_BLOCK_BYTES, upper)
    return upper


def find_holes(handle: FileHandle, size: int) -> Holes:
    """
    Return large holes in the first `size` bytes of a file.

    The function makes one system call for each `HOLE_BYTES` of data, and one for each hole. The
    start of a hole may be missing from it, and a hole smaller than `2 * HOLE_BYTES` may be missed.

    Raises:
        OSError: the system reported an error.
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
    """Yield (start, end) of the parts of a range that are not holes."""
    for first, stop in holes:
        if stop <= start:
            continue
        if first >= end:
            break
        if first > start:
            yield start, first
        start = stop
    if start < end:
        yield start, end


def pieces_between(holes: Holes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of `data_between` in pieces of at most `PIECE_BYTES`."""
    for first, stop in data_between(holes, start, end):
        for begin in range(first, stop, PIECE_BYTES):
            yield begin, min(begin + PIECE_BYTES, stop)


def is_zero_between(data: memoryview, holes: Holes, start: int, end: int) -> bool:
    """
    Return whether all bytes of a range are zero, without reading its holes.

    Raises:
        LogStorageError: the data is mapped, and the disk does not return it.
    """
    pieces: Iterator[Buffer] = (data[first:stop] for first, stop in data_between(holes, start, end))
    return all(map(is_zero, pieces))
