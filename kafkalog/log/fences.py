"""Fences: ranges of a segment whose bytes are damaged, and the way around them.

A fence begins at the first byte of the batch that failed and ends where the next whole batch with
a good CRC and a fitting offset begins, or at the end of the segment. Nothing in a fence is ever
deleted; readers raise at it or pass it, as they were asked.
"""

from __future__ import annotations

import contextlib
import struct
from dataclasses import dataclass
from pathlib import Path

from kafkalog._core.batch import check_batch, find_batch
from kafkalog._core.header import parse_header
from kafkalog._core.status import STATUS_CODES, status_meaning, status_name
from kafkalog.errors import CorruptRecordError, KafkaLogError
from kafkalog.files.zeros import is_zero
from kafkalog.layout import LOG_OVERHEAD, MAGIC_POSITION, MESSAGE_OVERHEAD_V0
from kafkalog.records.batch_view import BatchView

__all__ = ["FencedRange", "find_fence"]

OK = STATUS_CODES["OK"]

# Where things stand in messages of format v0 and v1: the size, and the key of each.
SIZE_POSITION = 8
KEY_POSITIONS = (18, 26)
_SIZE = struct.Struct(">i")
# As many zeros an entry may end with that ends where zeros begin: codecs write some.
ZEROS = 16
# A wrapper that unpacks to more is not asked for its first offset: a few bytes may claim gigabytes.
WRAPPER_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FencedRange:
    """
    A damaged range of one segment.

    Attributes:
        path: the segment file.
        position: first damaged byte.
        size_bytes: bytes fenced.
        first_offset: first offset that may be missing: one above the last whole batch before.
        next_offset: base offset of the whole batch behind, or of what follows the segment. Of a
            wrapper of an old format that cannot be read it is the last offset.
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
    ends = _declared_ends(data, position, end)
    resume_min = max(resume_min, position + 1)
    resume = _behind_declared_length(data, ends, position, end, next_offset, offset_max)
    if resume < resume_min:
        resume_min = max(resume_min, ends.certain)
        resume = end
        if resume_min < end:
            resume = find_batch(
                data, resume_min, end=end, offset_min=next_offset, offset_max=offset_max
            )
    if resume < 0 or resume == end:
        resume, behind = end, following_offset
    else:
        behind = _first_offset(data, resume, path)
    return FencedRange(
        path=path,
        position=position,
        size_bytes=resume - position,
        first_offset=next_offset,
        next_offset=max(behind, next_offset),
        reason=status_name(status),
    )


@dataclass(frozen=True, slots=True)
class _DeclaredEnds:
    """Where a damaged batch may end: by its length, and by the key and value of an old message."""

    by_length: int
    by_fields: tuple[int, ...]
    is_old: bool

    @property
    def certain(self) -> int:
        """The end that an old message says twice, 0 where it does not."""
        return self.by_length if self.by_length in self.by_fields else 0


def _declared_ends(data: memoryview, position: int, end: int) -> _DeclaredEnds:
    """Return what the batch at `position` says of its end; key and value fill an old message."""
    if end - position < MESSAGE_OVERHEAD_V0:
        return _DeclaredEnds(0, (), is_old=False)
    by_length = position + LOG_OVERHEAD + _SIZE.unpack_from(data, position + SIZE_POSITION)[0]
    # The magic, too, may be damaged.
    by_fields = [_end_of_fields(data, position + key, end) for key in KEY_POSITIONS]
    return _DeclaredEnds(by_length, tuple(by_fields), data[position + MAGIC_POSITION] <= 1)


def _end_of_fields(data: memoryview, field: int, end: int) -> int:
    """Return the end of a key and a value, 0 where they do not say."""
    for _key_then_value in range(2):
        if end - field < _SIZE.size:
            return 0
        field += _SIZE.size + max(_SIZE.unpack_from(data, field)[0], 0)
    return field


def _behind_declared_length(
    data: memoryview,
    ends: _DeclaredEnds,
    position: int,
    end: int,
    next_offset: int,
    offset_max: int,
) -> int:
    """
    Try the places that the damaged batch's own lengths name: most damage leaves them whole.

    Searching byte by byte inside the payload first could stop at the image of a batch that some
    record carries as its value, or at a message inside a wrapper that is stored as it was. Where
    nothing lies behind such a place of an old message, it is `end`, and nothing is searched for:
    a wrapper that a crash tore would else become the messages in it.
    """
    nothing_behind = False
    for candidate in (ends.by_length, *ends.by_fields):
        if not position < candidate <= end:
            continue
        if is_zero(data[candidate:end]):
            # A place far inside the zeros of a preallocated file is not where an entry ended.
            at_the_end = candidate == end or any(data[candidate - ZEROS : candidate])
            nothing_behind |= at_the_end and (ends.is_old or candidate == ends.certain)
        elif check_batch(data[candidate:end]) == OK:
            header = parse_header(data, candidate)
            if next_offset <= header.base_offset and header.last_offset <= offset_max:
                return candidate
    return end if nothing_behind else -1


def _first_offset(data: memoryview, position: int, path: Path) -> int:
    """Return the first offset of a whole batch; a wrapper's own where it cannot tell the first."""
    header = parse_header(data, position)
    batch = BatchView(data[position : header.end_position], path=path, position=position)
    with contextlib.suppress(KafkaLogError):
        # The view keeps what comes out.
        batch.payload(WRAPPER_BYTES, strict=False)
        return batch.base_offset
    return header.base_offset
