"""Holes: offsets that are missing between two segments, without a damaged byte.

In a log that was never compacted every offset is in some batch, except offsets that a writer left
out. So a segment that ends below the base offset of the next one has lost its last batches: it was
cut at the boundary of a batch, by a power cut or by a person. The hole is reported as a corrupt
range of zero bytes; readers continue after it.

A log counts as compacted if its settings have `compact`, if a cleaner offset is checkpointed, or if
a segment has holes between its batches, records removed from them, or a wrapper of an old format,
whose header does not have its number of offsets. Cleaning begins at the start of a log, so the
segment before the hole is read first, and then the nearest segments that are not empty, earlier
segments first.

Thread-safety: functions over a segment; any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from kafkalog._core.batch import BatchColumns
from kafkalog.errors import CorruptRecordError, InvalidRecordError
from kafkalog.log.batch_walk import CrcCheck, WalkRange, walk_source
from kafkalog.log.corrupt_ranges import CorruptRange

if TYPE_CHECKING:
    from kafkalog.log.segment import LogSegment
    from kafkalog.log.segment_file import SegmentFile

__all__ = ["find_hole", "record_hole", "record_holes"]

OFFSET_MAX: Final = 2**63 - 1
CHUNK_BATCHES: Final = 4096
# Number of segments that are searched for traces of a compaction; each costs a read of all headers
# of its batches.
SEGMENTS_SEARCHED: Final = 4


def record_holes(segments: Sequence[LogSegment]) -> None:
    """
    Record the holes after all segments but the last; the last batches of each are read.

    A segment whose last batches cannot be read is read as a whole.

    Raises:
        OSError, LogStorageError: the disk refused.
    """
    if not segments or segments[0].context.can_have_holes():
        return
    for segment, follower in pairwise(segments):
        try:
            next_offset = segment.end_offset_of_tail()
        except (CorruptRecordError, InvalidRecordError, ValueError):
            next_offset = None
        if next_offset is None:
            next_offset = segment.scan().next_offset
        record_hole(segments, segment, next_offset, follower.base_offset)


def record_hole(
    segments: Sequence[LogSegment], segment: LogSegment, next_offset: int, following_offset: int
) -> None:
    """
    Record a hole after a segment, for a reader that has reached its end.

    Args: as of `find_hole`.
    """
    if next_offset >= following_offset or any(
        corrupt_range.next_offset >= following_offset for corrupt_range in segment.corrupt_ranges
    ):
        return
    segment.add_corrupt_ranges(find_hole(segments, segment, next_offset, following_offset))


def find_hole(
    segments: Sequence[LogSegment], segment: LogSegment, next_offset: int, following_offset: int
) -> list[CorruptRange]:
    """
    Return the corrupt range of a hole after a segment; empty if a compaction may have made it.

    Args:
        segments: all of the log, in order.
        segment: the segment before the hole.
        next_offset: one above its last offset.
        following_offset: base offset of the next segment.
    """
    context = segment.context
    if context.allows_missing_before(following_offset) or context.can_have_holes():
        return []
    if any(_has_holes(near.file, near.base_offset) for near in _nearest(segments, segment)):
        context.mark_holes_possible()
        return []
    return [
        CorruptRange(
            path=segment.path,
            position=segment.size_bytes,
            size_bytes=0,
            first_offset=next_offset,
            next_offset=following_offset,
            reason="TRUNCATED",
        )
    ]


def _nearest(segments: Sequence[LogSegment], segment: LogSegment) -> list[LogSegment]:
    """Return a few segments that are not empty: `segment`, the earlier ones, the later ones."""
    base_offset = segment.base_offset
    before = [each for each in segments if each.base_offset <= base_offset]
    after = [each for each in segments if each.base_offset > base_offset]
    holding = [each for each in (*reversed(before), *after) if each.size_bytes]
    return holding[:SEGMENTS_SEARCHED]


def _has_holes(file: SegmentFile, expected: int) -> bool:
    """Return whether offsets are missing in a segment, before its last batch."""
    size, columns = file.size_bytes, BatchColumns(CHUNK_BATCHES)
    for walked in walk_source(
        file.source(size),
        WalkRange(0, size, 0, OFFSET_MAX),
        columns,
        check_crc=CrcCheck.NEVER,
        on_damage=lambda _damage: None,
    ):
        if _leaves_out(columns, walked.count, expected):
            return True
        expected = walked.next_offset
    return False


def _leaves_out(columns: BatchColumns, count: int, expected: int) -> bool:
    """Return whether offsets from `expected` on are missing in batches, or between them."""
    base, last = columns.base_offset[:count], columns.last_offset[:count]
    records = columns.record_count[:count]
    # The number of offsets of a wrapper of an old format is unknown: it may have holes.
    if (records < last - base + 1).any():
        return True
    return bool(count and (int(base[0]) > expected or (base[1:] > last[:-1] + 1).any()))
