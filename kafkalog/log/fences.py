"""Fences: ranges of a segment whose bytes are damaged, and the way around them.

A fence begins at the first byte of the batch that failed and ends where the next whole batch with
a good CRC and a fitting offset begins, or at the end of the segment. Nothing in a fence is ever
deleted; readers raise at it or pass it, as they were asked.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kafkalog._core.batch import check_batch, find_batch
from kafkalog._core.header import parse_header
from kafkalog._core.status import STATUS_CODES, status_meaning, status_name
from kafkalog.errors import CorruptRecordError

__all__ = ["FencedRange", "find_fence"]

OK = STATUS_CODES["OK"]

# Of messages of format v0 and v1: the smallest, and where the size of the key stands.
MESSAGE_SIZE_MIN = 26
MAGIC_POSITION = 16
KEY_POSITION_V0 = 18
KEY_POSITION_V1 = 26
_FIELD_SIZE = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class FencedRange:
    """
    A damaged range of one segment.

    Attributes:
        path: the segment file.
        position: first damaged byte.
        size_bytes: bytes fenced.
        first_offset: first offset that may be missing: one above the last whole batch before.
        next_offset: base offset of the whole batch behind, or of what follows the segment. Where
            a wrapper of an old format follows, its own offset, that of its last record: it may hold
            some of the offsets below, which only its records can tell.
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


def _behind_declared_length(
    data: memoryview, position: int, end: int, next_offset: int, offset_max: int
) -> int:
    """
    Try the places that the damaged batch's own lengths name: most damage leaves them whole.

    Searching byte by byte inside the payload first could stop at the image of a batch that some
    record carries as its value, or at a message inside a wrapper that is stored as it was.
    """
    for candidate in _declared_ends(data, position, end):
        if position < candidate < end and check_batch(data[candidate:end]) == OK:
            header = parse_header(data, candidate)
            if next_offset <= header.base_offset and header.last_offset <= offset_max:
                return candidate
    return -1


def _declared_ends(data: memoryview, position: int, end: int) -> Iterator[int]:
    """Yield where the batch at `position` may end, by its header and by its fields."""
    with contextlib.suppress(CorruptRecordError):
        yield parse_header(data, position).end_position
    # An old message says its size twice: key and value fill it.
    if end - position < MESSAGE_SIZE_MIN or data[position + MAGIC_POSITION] > 1:
        return
    field = position + (KEY_POSITION_V1 if data[position + MAGIC_POSITION] else KEY_POSITION_V0)
    for _key_then_value in range(2):
        if end - field < 4:
            return
        field += 4 + max(_FIELD_SIZE.unpack_from(data, field)[0], 0)
    yield field
