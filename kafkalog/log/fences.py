"""Fences: ranges of a segment whose bytes are damaged, and the way around them.

A fence begins at the first byte of the batch that failed and ends where the next whole batch with
a good CRC and a fitting offset begins, or at the end of the segment. Nothing in a fence is ever
deleted; readers raise at it or pass it, as they were asked.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from kafkalog._core.batch import check_batch, find_batch
from kafkalog._core.header import parse_header
from kafkalog._core.status import STATUS_CODES, status_meaning, status_name
from kafkalog.errors import CorruptRecordError, InvalidRecordError

__all__ = ["FencedRange", "find_fence"]

OK = STATUS_CODES["OK"]
CRC = STATUS_CODES["CRC"]
LEGACY = STATUS_CODES["LEGACY"]

# Offset, size, CRC-32 and magic of a message of format v0 or v1, and the size of the smallest.
_LEGACY_HEAD = struct.Struct(">qiIB")
LEGACY_SIZE_MIN = 26


@dataclass(frozen=True, slots=True)
class FencedRange:
    """
    A damaged range of one segment.

    Attributes:
        path: the segment file.
        position: first damaged byte.
        size_bytes: bytes fenced.
        first_offset: first offset that may be missing: one above the last whole batch before.
        next_offset: base offset of the whole batch behind, or of what follows the segment.
        reason: name of the check that failed, see `kafkalog._core.status`.
    """

    path: Path
    position: int
    size_bytes: int
    first_offset: int
    next_offset: int
    reason: str

    @property
    def end_position(self) -> int:
        """One past the last damaged byte."""
        return self.position + self.size_bytes

    @property
    def is_legacy(self) -> bool:
        """Whether these are whole messages of an old format rather than damage."""
        return self.reason == status_name(LEGACY)

    def to_error(self) -> CorruptRecordError:
        """Return the error that a reader raises at this fence."""
        meaning = status_meaning(STATUS_CODES[self.reason])
        return CorruptRecordError(
            f"{meaning}: {self.size_bytes} bytes at position {self.position} of {self.path} are "
            f"fenced; offsets {self.first_offset} to {self.next_offset - 1} may be missing "
            f'(read on_corrupt="skip" to go around)',
            path=self.path,
            position=self.position,
            base_offset=self.first_offset,
        )


def find_fence(
    data: memoryview,
    path: Path,
    *,
    position: int,
    end: int,
    status: int,
    next_offset: int,
    offset_max: int,
    following_offset: int,
    resume_min: int = 0,
) -> FencedRange:
    """
    Return the fence around the batch at `position` of `data`, which failed with `status`.

    Args:
        data: bytes of the segment from its first byte on.
        path: the segment file, for the report.
        position: start of the batch that failed.
        end: one past the last byte that belongs to the log.
        status: what the check said.
        next_offset: smallest offset that may come next.
        offset_max: largest offset that may still be in this segment.
        following_offset: offset that follows the segment, for a fence that reaches its end.
        resume_min: nothing before this position is believed.
    """
    if status == LEGACY:
        old = _legacy_fence(data, path, position, end, next_offset)
        if old is not None:
            return old
        # Damage that reads like an old message: whole old ones have a good checksum.
        status = CRC
    resume_min = max(resume_min, position + 1)
    resume = _behind_declared_length(data, position, end, next_offset, offset_max)
    if resume < resume_min:
        resume = find_batch(
            data, resume_min, end=end, offset_min=next_offset, offset_max=offset_max
        )
    if resume < 0:
        resume, behind = end, following_offset
    else:
        behind = parse_header(data, resume).base_offset
    return FencedRange(
        path=path,
        position=position,
        size_bytes=resume - position,
        first_offset=next_offset,
        next_offset=max(behind, next_offset),
        reason=status_name(status),
    )


def _legacy_fence(
    data: memoryview, path: Path, position: int, end: int, next_offset: int
) -> FencedRange | None:
    """
    Return the fence around whole messages of format v0 and v1, which are no damage.

    This version does not read them yet; their offsets count nevertheless, so that none is given
    out again. None where no message with a good checksum stands at `position`.
    """
    behind, reached = next_offset, position
    while end - reached >= LEGACY_SIZE_MIN:
        offset, size, checksum, magic = _LEGACY_HEAD.unpack_from(data, reached)
        message_end = reached + 12 + size
        if magic > 1 or size < 14 or message_end > end:
            break
        if checksum != zlib.crc32(data[reached + 16 : message_end]):
            break
        behind, reached = max(behind, offset + 1), message_end
    if reached == position:
        return None
    return FencedRange(
        path=path,
        position=position,
        size_bytes=reached - position,
        first_offset=next_offset,
        next_offset=behind,
        reason=status_name(LEGACY),
    )


def _behind_declared_length(
    data: memoryview, position: int, end: int, next_offset: int, offset_max: int
) -> int:
    """Try the place that the damaged batch's own length names: most damage leaves it whole.

    Searching byte by byte inside the payload first could stop at the image of a batch that some
    record carries as its value.
    """
    try:
        candidate = parse_header(data, position).end_position
    except (CorruptRecordError, InvalidRecordError):
        return -1
    if candidate >= end or check_batch(data[candidate:end]) != OK:
        return -1
    header = parse_header(data, candidate)
    fits = next_offset <= header.base_offset and header.last_offset <= offset_max
    return candidate if fits else -1
