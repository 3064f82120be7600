"""Offsets that are missing between two segments, with no damaged byte to tell of them.

Of a log that was never compacted every offset is in some batch, but for those that a writer left
out. So a segment that ends below the base offset of the next one has lost its last batches: it was
cut at the boundary of a batch, by a power cut or by somebody. That is reported as a fence of no
bytes; readers go on behind it.

A log counts as compacted where its settings say so, where a cleaner has noted how far it came, or
where a segment has holes between its batches, records taken out of them, or a wrapper of an old
format, which does not say how many offsets it takes.

Thread-safety: functions over a segment; any thread.
"""

from __future__ import annotations

from kafkalog._core.batch import BatchColumns, scan_batches
from kafkalog._core.status import STATUS_CODES
from kafkalog.log.fences import FencedRange
from kafkalog.log.segment import LogSegment
from kafkalog.log.segment_types import SegmentContext

__all__ = ["find_hole", "note_hole"]

FULL = STATUS_CODES["FULL"]

CHUNK_BATCHES = 4096


def note_hole(segment: LogSegment, next_offset: int, following_offset: int) -> None:
    """Fence a hole behind a segment, for a reader that has come to its end."""
    if (
        following_offset in segment.context.left_out
        or next_offset >= following_offset
        or any(fence.next_offset >= following_offset for fence in segment.fences)
    ):
        return
    segment.add_fences(find_hole(segment.context, segment, next_offset, following_offset))


def find_hole(
    context: SegmentContext, segment: LogSegment, next_offset: int, following_offset: int
) -> list[FencedRange]:
    """
    Return the fence of a hole behind a segment, or nothing where a compaction may have made it.

    Args:
        context: what the log's segments share.
        segment: the segment.
        next_offset: one above its last offset.
        following_offset: base offset of the next segment.
    """
    if context.may_have_holes is None:
        policies = context.config.cleanup_policy
        context.may_have_holes = "compact" in policies or context.was_cleaned()
    if context.may_have_holes:
        return []
    if _has_holes(segment):
        context.may_have_holes = True
        return []
    return [
        FencedRange(
            path=segment.path,
            position=segment.size_bytes,
            size_bytes=0,
            first_offset=next_offset,
            next_offset=following_offset,
            reason="TRUNCATED",
        )
    ]


def _has_holes(segment: LogSegment) -> bool:
    """Say whether offsets are missing in a segment, before its last batch."""
    if not segment.size_bytes:
        return False
    data, position, expected = segment.file.whole(), 0, segment.base_offset
    columns = BatchColumns(CHUNK_BATCHES)
    while True:
        columns.clear()
        met = scan_batches(data, position, columns=columns, check_crc=False)
        count, position = met.count, met.position
        base, last = columns.base_offset[:count], columns.last_offset[:count]
        records = columns.record_count[:count]
        # How many offsets a wrapper of an old format takes is not known: it may have holes.
        if (records < last - base + 1).any():
            return True
        if (base[1:] > last[:-1] + 1).any() or (count and int(base[0]) > expected):
            return True
        if met.status != FULL:
            return False
        expected = met.next_offset
