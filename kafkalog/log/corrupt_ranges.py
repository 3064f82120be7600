"""Corrupt ranges: ranges of a segment whose bytes are damaged, and the search for their ends.

A corrupt range begins at the first byte of the batch that failed and ends where the next whole
batch with a good CRC and a fitting offset begins, or at the end of the segment. Nothing in a
corrupt range is ever deleted; readers raise at it or skip it, as their caller chose.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path

from kafkalog._core.batch import check_batch, find_batch, scan_batches
from kafkalog._core.header import parse_header
from kafkalog._core.status import STATUS_CODES, status_meaning, status_name
from kafkalog.errors import CorruptRecordError, KafkaLogError
from kafkalog.files.zeros import HOLE_BYTES, Holes, data_between, is_zero_between
from kafkalog.layout import (
    BATCH_FRAME,
    FIELD_SIZE,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    MESSAGE_KEY_SIZE_POSITION_V0,
    MESSAGE_KEY_SIZE_POSITION_V1,
    MESSAGE_OVERHEAD_V0,
)
from kafkalog.records.batch_view import BatchView

__all__ = [
    "WRAPPER_BYTES",
    "CorruptRange",
    "find_corrupt_range",
    "find_in_data",
    "find_resume",
    "first_offset_at",
    "gap_around",
    "join_corrupt_ranges",
    "next_corrupt_range",
    "with_tail",
]

OK = STATUS_CODES["OK"]

_KEY_POSITIONS = (MESSAGE_KEY_SIZE_POSITION_V0, MESSAGE_KEY_SIZE_POSITION_V1)
# A believable end has a byte other than zero among this many bytes before it: codecs write some
# zeros at the end of an entry.
ZEROS = 16
# A wrapper that decompresses to more is not decompressed for its first offset: a few bytes may
# claim gigabytes.
WRAPPER_BYTES = 16 * 1024 * 1024
# Largest number of searches for batches with any offset at the end of a segment.
SEARCHES_MAX = 16
OFFSET_MAX = 2**63 - 1
_start_of = attrgetter("position")
_end_of = attrgetter("end_position")


@dataclass(frozen=True, slots=True)
class CorruptRange:
    """
    A damaged range of one segment.

    Attributes:
        path: the segment file.
        position: first damaged byte.
        size_bytes: size of the range.
        first_offset: first offset that may be missing: one above the last whole batch before.
        next_offset: base offset of the whole batch after it, or of what follows the segment. If
            that batch is a wrapper of an old format that cannot be read, its last offset.
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
        """Return the error that a reader raises at this corrupt range."""
        meaning = status_meaning(STATUS_CODES[self.reason])
        return CorruptRecordError(
            f"{meaning}: {self.size_bytes} bytes at position {self.position} of {self.path} are a "
            f"corrupt range; offsets {self.first_offset} to {self.next_offset - 1} may be missing "
            f'(use on_corrupt="skip" to skip it)',
            path=self.path,
            position=self.position,
            base_offset=self.first_offset,
        )


def with_tail(corrupt_ranges: Sequence[CorruptRange], tail: CorruptRange) -> list[CorruptRange]:
    """Return corrupt ranges and the tail of a segment, joined with an adjacent range before it."""
    if not corrupt_ranges or corrupt_ranges[-1].end_position < tail.position:
        return [
            *corrupt_ranges,
            replace(tail, next_offset=max(tail.next_offset, tail.first_offset)),
        ]
    last = corrupt_ranges[-1]
    size, next_offset = tail.end_position - last.position, max(tail.next_offset, last.next_offset)
    return [*corrupt_ranges[:-1], replace(last, size_bytes=size, next_offset=next_offset)]


def join_corrupt_ranges(
    previous: Sequence[CorruptRange], found: Sequence[CorruptRange]
) -> tuple[CorruptRange, ...]:
    """Return the corrupt ranges of both, in order; a found range replaces the ranges within it."""
    wider = sorted(found, key=_start_of)
    joined = {
        (corrupt_range.position, corrupt_range.size_bytes > 0): corrupt_range
        for corrupt_range in previous
        if not _is_within(corrupt_range, wider)
    }
    joined.update(
        ((corrupt_range.position, corrupt_range.size_bytes > 0), corrupt_range)
        for corrupt_range in found
    )
    return tuple(joined[place] for place in sorted(joined))


def next_corrupt_range(ranges: Sequence[CorruptRange], position: int) -> CorruptRange | None:
    """Return the first range, of ranges in order, that ends after a position and has bytes."""
    slot = bisect_right(ranges, position, key=_end_of)
    while slot < len(ranges) and not ranges[slot].size_bytes:
        slot += 1
    return ranges[slot] if slot < len(ranges) else None


def gap_around(ranges: Sequence[CorruptRange], first: int, last: int, end: int) -> tuple[int, int]:
    """Return start and end of the gap between ranges, in order, that has the bytes of batches."""
    before = bisect_right(ranges, first, key=_end_of)
    slot_after = bisect_left(ranges, last, key=_start_of)
    start = ranges[before - 1].end_position if before else 0
    return start, min(end, ranges[slot_after].position) if slot_after < len(ranges) else end


def _is_within(corrupt_range: CorruptRange, found: Sequence[CorruptRange]) -> bool:
    """Return whether a corrupt range is within one of the others, which are in order."""
    slot = bisect_right(found, corrupt_range.position, key=_start_of) - 1
    return (
        slot >= 0
        and corrupt_range.size_bytes > 0
        and corrupt_range.end_position <= found[slot].end_position
    )


def find_corrupt_range(
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
    holes: Holes = (),
) -> CorruptRange:
    """
    Return the corrupt range around the batch at `position` of `data`, which failed with `status`.

    Args:
        data: bytes of the segment from its first byte on.
        path: the segment file, for the report.
        position: start of the batch that failed.
        end: one past the last byte that belongs to the log.
        status: result of the check that failed.
        next_offset: smallest offset that may come next.
        offset_max: largest offset that may still be in this segment.
        following_offset: offset that follows the segment, for a corrupt range that reaches its end.
        resume_min: nothing before this position is believed.
        holes: large holes of the file, which are not searched.
    """
    ends = _declared_ends(data, position, end)
    resume_min = max(resume_min, position + 1)
    offsets = (next_offset, offset_max)
    resume = _after_declared_length(data, ends, position, end, offsets, holes)
    if resume < resume_min:
        resume_min = max(resume_min, ends.certain)
        resume = end
        if resume_min < end:
            resume = find_in_data(data, resume_min, end, offsets, holes)
    if resume < 0 or resume == end:
        resume, resume_offset = end, following_offset
    else:
        resume_offset = first_offset_at(data, resume, path)
    return CorruptRange(
        path=path,
        position=position,
        size_bytes=resume - position,
        first_offset=next_offset,
        next_offset=max(resume_offset, next_offset),
        reason=status_name(status),
    )


def find_resume(
    data: memoryview,
    position: int,
    end: int,
    offset_min: int,
    offset_max: int,
    holes: Holes = (),
) -> tuple[int, bool]:
    """
    Return where the next batch with a good CRC begins, and whether it was searched for.

    At an end that the lengths of the damaged batch declare, a batch may have any offset. Elsewhere
    a batch with an offset of the range is searched for; then a batch with any offset from which
    whole batches reach to the end.

    Args:
        data: bytes of the segment from its first byte on.
        position: start of the batch that failed.
        end: one past the last byte that belongs to the log; returned if no batch is found.
        offset_min, offset_max: the range of offsets that is searched for.
        holes: large holes of the file, which are not searched.
    """
    ends = _declared_ends(data, position, end)
    following = BATCH_FRAME.unpack_from(data, position)[0] + 1 if ends.is_old else 0
    for offsets in ((offset_min, offset_max), (0, OFFSET_MAX)):
        resume = _after_declared_length(data, ends, position, end, offsets, holes)
        if resume == end and offset_min < following <= offset_max:
            # The length may be false; no image of a batch has the offset that follows this one.
            inside = _batches_up_to(data, position + 1, end, (following, following), holes)
            if inside >= 0:
                return inside, True
        if resume >= 0:
            return resume, False
    start = max(position + 1, ends.certain)
    resume = find_in_data(data, start, end, (offset_min, offset_max), holes) if start < end else -1
    low = max(offset_min, BATCH_FRAME.unpack_from(data, position)[0] + 1) if ends.certain else 0
    if ends.certain and low <= offset_max:
        # Bytes of it may be missing; an offset after its own is not of a message within it.
        last = end if resume < 0 else resume
        inside = _batches_up_to(data, position + 1, last, (low, offset_max), holes)
        resume = resume if inside < 0 else inside
    if resume < 0:
        resume = _batches_up_to(data, start, end, (0, OFFSET_MAX), holes)
    return (end, False) if resume < 0 else (resume, True)


def find_in_data(
    data: memoryview, position: int, end: int, offsets: tuple[int, int], holes: Holes
) -> int:
    """
    Return where the first batch with offsets of a range begins from a position on, -1 if none does.

    No batch begins in a hole, except with the zeros of its offset, and a batch that ends more than
    `HOLE_BYTES` within a hole is not searched for.
    """
    low, high = offsets
    for start, stop in data_between(holes, position, end):
        begin = max(position, start - BATCH_FRAME.size)
        limit = min(end, stop + HOLE_BYTES)
        found = find_batch(data, begin, end=limit, offset_min=low, offset_max=high)
        if found >= 0:
            return found
    return -1


def _batches_up_to(
    data: memoryview, position: int, end: int, offsets: tuple[int, int], holes: Holes
) -> int:
    """
    Return the start of whole batches that reach to the end, the first in a range; -1 for none.

    The values in a torn batch may look like batches, but they end within it.
    """
    for _attempt in range(SEARCHES_MAX):
        found = find_in_data(data, position, end, offsets, holes) if position < end else -1
        if found < 0:
            return -1
        position = scan_batches(data, found, end=end, check_order=False).position
        if position == end or is_zero_between(data, holes, position, end):
            return found
    return -1


@dataclass(frozen=True, slots=True)
class _DeclaredEnds:
    """Possible ends of a damaged batch: by its length, and by key and value of an old message."""

    by_length: int
    by_fields: tuple[int, ...]
    magic: int

    @property
    def is_old(self) -> bool:
        """True if the magic is that of an old message."""
        return self.magic <= 1

    @property
    def believable_fields(self) -> Sequence[int]:
        """Ends by key and value that the magic allows; the nearer one first."""
        if self.magic < len(self.by_fields):
            return self.by_fields[self.magic : self.magic + 1]
        return sorted(self.by_fields)

    @property
    def certain(self) -> int:
        """The end on which the two lengths of an old message agree, 0 if they do not."""
        return self.by_length if self.by_length in self.by_fields else 0


def _declared_ends(data: memoryview, position: int, end: int) -> _DeclaredEnds:
    """Return the declared ends of the batch at `position`; key and value fill an old message."""
    if end - position < MESSAGE_OVERHEAD_V0:
        return _DeclaredEnds(0, (), 2)
    by_length = position + LOG_OVERHEAD + BATCH_FRAME.unpack_from(data, position)[1]
    # The magic, too, may be damaged.
    by_fields = [_end_of_fields(data, position + key, end) for key in _KEY_POSITIONS]
    return _DeclaredEnds(by_length, tuple(by_fields), data[position + MAGIC_POSITION])


def _end_of_fields(data: memoryview, field: int, end: int) -> int:
    """Return the end of a key and a value, 0 if their lengths are not valid."""
    for _key_then_value in range(2):
        if end - field < FIELD_SIZE.size:
            return 0
        field += FIELD_SIZE.size + max(FIELD_SIZE.unpack_from(data, field)[0], 0)
    return field


def _after_declared_length(
    data: memoryview,
    ends: _DeclaredEnds,
    position: int,
    end: int,
    offsets: tuple[int, int],
    holes: Holes,
) -> int:
    """
    Try the positions that the lengths of the damaged batch declare: most damage leaves them whole.

    A search byte by byte inside the payload could stop at the image of a batch that some record
    carries as its value, or at a message inside a wrapper that is stored uncompressed. If nothing
    follows such a position of an old message, it is `end`, and nothing is searched for: a wrapper
    that a crash tore would otherwise become the messages in it.
    """
    nothing_after = False
    for candidate in (ends.by_length, *ends.believable_fields):
        if not position < candidate <= end:
            continue
        if is_zero_between(data, holes, candidate, end):
            # A position far inside the zeros of a preallocated file is not the end of an entry.
            at_the_end = candidate == end or any(data[candidate - ZEROS : candidate])
            nothing_after |= at_the_end and (ends.is_old or candidate == ends.certain)
        elif check_batch(data[candidate:end]) == OK:
            header = parse_header(data, candidate)
            if offsets[0] <= header.base_offset and header.last_offset <= offsets[1]:
                return candidate
    return end if nothing_after else -1


def first_offset_at(data: memoryview, position: int, path: Path) -> int:
    """Return the first offset of a whole batch; the offset of a wrapper that cannot be read."""
    header = parse_header(data, position)
    batch = BatchView(data[position : header.end_position], path=path, position=position)
    with contextlib.suppress(KafkaLogError):
        # The view caches the payload.
        batch.payload(WRAPPER_BYTES, strict=False)
        return batch.base_offset
    return header.base_offset
