"""Damage in a file that is read piece by piece: how far it reaches, and whether it is any.

The rules are those of `kafkalog.log.fences`, which look at all of a segment. Here pieces are read
until the next whole batch was found, so that one bad batch in a segment of a gigabyte costs some
megabytes of memory.

Thread-safety: functions over an open file, and frozen values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from kafkalog._core.batch import check_batch, find_batch
from kafkalog._core.header import parse_header
from kafkalog._core.status import STATUS_CODES
from kafkalog.errors import CorruptRecordError, InvalidRecordError
from kafkalog.files.filesystem import FileHandle
from kafkalog.files.zeros import is_zero
from kafkalog.layout import LOG_OVERHEAD, MAGIC_POSITION, MAGIC_V2, RECORD_BATCH_OVERHEAD
from kafkalog.log.fences import FencedRange, find_fence
from kafkalog.log.ranges.on_disk import SegmentOnDisk

__all__ = ["Damage", "declared_size", "ends_in_zeros", "examine", "too_large"]

OK: Final = STATUS_CODES["OK"]
MAGIC: Final = STATUS_CODES["MAGIC"]

PIECE_BYTES: Final = 4 * 1024 * 1024
# From here on pieces overlap by half: a batch of more than that may be missed behind damage of more
# than that, and what follows it is found.
PIECE_BYTES_MAX: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Damage:
    """
    Bytes that a reader cannot use.

    Attributes:
        fence: where, and which offsets may be missing.
        unknown_magic: of a batch that may be whole, in a format that nobody here knows; else None.
        batch_bytes: size of a batch that is larger than allowed; else None.
    """

    fence: FencedRange
    unknown_magic: int | None = None
    batch_bytes: int | None = None


def declared_size(head: memoryview) -> int | None:
    """Return the size that a batch says it has, None where its header is damaged."""
    try:
        return parse_header(head).size_bytes
    except (CorruptRecordError, InvalidRecordError):
        return None


def ends_in_zeros(handle: FileHandle, position: int, size: int) -> bool:
    """Say whether only zeros follow: room that was made ahead of appends."""
    while position < size:
        piece = handle.pread(min(PIECE_BYTES, size - position), position)
        if not piece:
            return True
        if not is_zero(piece):
            return False
        position += len(piece)
    return True


def too_large(
    handle: FileHandle,
    segment: SegmentOnDisk,
    position: int,
    batch_bytes: int,
    next_offset: int,
) -> Damage:
    """Return what stands for a batch that is whole by its header, and larger than allowed."""
    head = memoryview(handle.pread(RECORD_BATCH_OVERHEAD, position))
    fence = FencedRange(
        path=segment.files.log,
        position=position,
        size_bytes=batch_bytes,
        first_offset=next_offset,
        next_offset=max(parse_header(head).next_offset, next_offset),
        reason="TOO_LARGE",
    )
    return Damage(fence, batch_bytes=batch_bytes)


def examine(
    handle: FileHandle,
    segment: SegmentOnDisk,
    *,
    position: int,
    size: int,
    status: int,
    next_offset: int,
    resume_min: int,
    following: int,
) -> Damage:
    """
    Return how far the damage reaches that begins with the batch at `position`.

    Args:
        handle: the open `.log`.
        segment: whose it is.
        position: of the batch that failed.
        size: bytes of the file.
        status: what the check said.
        next_offset: smallest offset that may come next.
        resume_min: nothing before this position is believed.
        following: the offset behind the range of damage that reaches the end of the file.
    """
    piece_bytes = PIECE_BYTES
    while True:
        wanted = min(piece_bytes, size - position)
        data = memoryview(handle.pread(wanted, position))
        is_all = len(data) < wanted or position + wanted >= size
        fence = find_fence(
            data,
            segment.files.log,
            position=0,
            end=len(data),
            status=status,
            next_offset=next_offset,
            offset_max=segment.offset_max,
            following_offset=following,
            resume_min=max(resume_min - position, 0),
        )
        if is_all or fence.size_bytes < len(data):
            break
        if piece_bytes >= PIECE_BYTES_MAX:
            resume = _search(handle, segment, position + len(data) // 2, size, next_offset)
            end, behind = (size, following) if resume is None else resume
            fence = replace(fence, size_bytes=end - position, next_offset=max(behind, next_offset))
            break
        piece_bytes *= 2
    magic = _unknown_magic(handle, data, position, size) if status == MAGIC else None
    return Damage(replace(fence, position=position), unknown_magic=magic)


def _search(
    handle: FileHandle, segment: SegmentOnDisk, position: int, size: int, next_offset: int
) -> tuple[int, int] | None:
    """Return position and first offset of the first whole batch from `position` on."""
    while position < size:
        data = memoryview(handle.pread(min(PIECE_BYTES_MAX, size - position), position))
        found = find_batch(data, 0, offset_min=next_offset, offset_max=segment.offset_max)
        if found >= 0:
            return position + found, parse_header(data, found).base_offset
        if len(data) < PIECE_BYTES_MAX:
            return None
        position += len(data) // 2
    return None


def _unknown_magic(handle: FileHandle, data: memoryview, position: int, size: int) -> int | None:
    """
    Return the magic of a batch that may be whole in a format of the future, None if it is damaged.

    The CRC does not cover the magic: a batch of today of which that byte alone was hit has the sum
    of today. One of the future has a length that leads to another batch, or to the end.
    """
    if len(data) < RECORD_BATCH_OVERHEAD:
        return None
    length = int.from_bytes(data[LOG_OVERHEAD - 4 : LOG_OVERHEAD], "big", signed=True)
    end = LOG_OVERHEAD + length
    if length <= 0 or position + end > size:
        return None
    known = bytearray(data[: min(end, len(data))])
    magic, known[MAGIC_POSITION] = known[MAGIC_POSITION], MAGIC_V2
    if check_batch(known) == OK:
        return None
    behind = handle.pread(RECORD_BATCH_OVERHEAD, position + end)
    if not behind:
        return magic
    same = len(behind) > MAGIC_POSITION and behind[MAGIC_POSITION] == magic
    return magic if same or declared_size(memoryview(behind)) is not None else None
