"""The first and the last batch of a segment by headers alone, without an opened log.

The walk over the last batches begins at the last entry of the offset index, and reads offset,
length and format of each batch. No CRC is verified and no record is decoded. Another process may
append at the same time: a batch that is not whole yet is read again.

A walk of columns (`walk_source`) needs NumPy, whose import takes longer than a list of hundreds of
partitions.

Thread-safety: pure functions over the disk.
"""

from __future__ import annotations

import errno
import time
from pathlib import Path
from typing import Final, NamedTuple

from kafkalog._core.header import BatchHeader, parse_header
from kafkalog.errors import CorruptRecordError, InvalidRecordError
from kafkalog.files.filesystem import FileHandle, FileSystem
from kafkalog.files.names import FileKind, segment_file_name
from kafkalog.layout import (
    BATCH_FRAME,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    MAGIC_V2,
    MESSAGE_OVERHEAD_V0,
    OFFSET_INDEX_ENTRY,
    RECORD_BATCH_OVERHEAD,
)

__all__ = ["SegmentEnds", "segment_ends"]

# Holds every batch of the default index interval.
_WINDOW_BYTES: Final = 64 * 1024
# A segment up to this size is read from its start, without its index.
_WALK_WITHOUT_INDEX_BYTES: Final = _WINDOW_BYTES
_ZEROS: Final = "zeros"
# Time for a writer to finish an append.
_PAUSES_SECONDS: Final = (0.0, 0.001, 0.01)


class SegmentEnds(NamedTuple):
    """
    First and last batch of a segment.

    Attributes:
        first: header of the first batch; None if the segment does not begin with a batch.
        last: header of the last whole batch; None without one.
        position: first byte that is not part of a whole batch.
        problem: description of the bytes from there on; empty if there are none, or only zeros.
    """

    first: BatchHeader | None
    last: BatchHeader | None
    position: int
    problem: str = ""


def segment_ends(
    filesystem: FileSystem, path: Path, base_offset: int, size_bytes: int, *, has_last: bool = True
) -> SegmentEnds:
    """
    Return the first and the last batch of a segment.

    Args:
        filesystem: the disk.
        path: the segment.
        base_offset: the offset in its name; no batch has an earlier one.
        size_bytes: its size, of which a larger part is skipped by the offset index.
        has_last: False to find the first batch only.

    Raises:
        FileNotFoundError: the file was deleted, or replaced by a smaller one.
    """
    start = 0
    if has_last and size_bytes > _WALK_WITHOUT_INDEX_BYTES:
        start = _index_position(
            filesystem, path.with_name(segment_file_name(base_offset, FileKind.OFFSET_INDEX))
        )
    handle = filesystem.open(path)
    try:
        if handle.size() < size_bytes:
            raise FileNotFoundError(errno.ENOENT, "replaced by a smaller file", str(path))
        first = _header_at(handle, 0)
        if not has_last:
            return SegmentEnds(first, None, 0)
        found = _last_batch(handle, base_offset, start)
        last = None if found.position < 0 else _header_at(handle, found.position)
        if found.position >= 0 and last is None:
            return SegmentEnds(first, None, found.position, "not a batch")
        return SegmentEnds(first, last, found.end, found.problem)
    finally:
        handle.close()


class _Walked(NamedTuple):
    """Position of the last whole batch, -1 for none; its end; the problem of the bytes after it."""

    position: int
    end: int
    problem: str


def _header_at(handle: FileHandle, position: int) -> BatchHeader | None:
    try:
        return parse_header(handle.pread(RECORD_BATCH_OVERHEAD, position))
    except (CorruptRecordError, InvalidRecordError):
        return None


def _index_position(filesystem: FileSystem, path: Path) -> int:
    """
    Return the position in the last entry of an offset index, 0 without an entry.

    The index of an active segment has zeros after its entries.
    """
    try:
        handle = filesystem.open(path)
    except FileNotFoundError:
        return 0
    size = OFFSET_INDEX_ENTRY.size
    try:
        lower, upper = -1, handle.size() // size - 1
        if upper < 0:
            return 0
        found = 0
        middle = upper
        while lower < upper:
            entry = handle.pread(size, middle * size)
            position = OFFSET_INDEX_ENTRY.unpack(entry)[1] if len(entry) == size else 0
            if position > 0:
                found, lower = position, middle
            else:
                upper = middle - 1
            middle = (lower + upper + 1) // 2
        return found
    finally:
        handle.close()


def _last_batch(handle: FileHandle, base_offset: int, start: int) -> _Walked:
    """
    Find the last whole batch of a segment.

    Args:
        handle: the segment.
        base_offset: the offset in its name.
        start: position of a batch; if it proves wrong, the walk begins at 0.
    """
    found = _Walked(-1, 0, "")
    for seconds in _PAUSES_SECONDS:
        if seconds:
            time.sleep(seconds)
        found = _walk(handle, base_offset, start)
        if start and (found.problem or found.position < 0):
            found, start = _walk(handle, base_offset, 0), 0
        if not found.problem:
            break
    return found


def _walk(handle: FileHandle, base_offset: int, start: int) -> _Walked:
    size = handle.size()
    position, last, problem = start, -1, ""
    while position < size and not problem:
        window = handle.pread(min(_WINDOW_BYTES, size - position), position)
        at = 0
        while at + MAGIC_POSITION < len(window):
            offset, length = BATCH_FRAME.unpack_from(window, at)
            end = position + at + LOG_OVERHEAD + length
            if (
                offset < base_offset
                or length < MESSAGE_OVERHEAD_V0 - LOG_OVERHEAD
                or window[at + MAGIC_POSITION] > MAGIC_V2
            ):
                problem = "not a batch" if any(window[at:]) else _ZEROS
                break
            if end > size:
                problem = "an incomplete batch"
                break
            last = position + at
            at = end - position
        else:
            if at == 0:
                problem = "an incomplete batch" if any(window) else _ZEROS
        position += at
    return _Walked(last, position, "" if problem == _ZEROS else problem)
