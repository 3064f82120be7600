"""Split of segments whose offsets or bytes exceed the limits of an index (KAFKA-6264).

Offsets in an index are 31-bit differences from the base offset of the segment. Cleaners of brokers
before 1.1 could merge segments further apart than that. Positions have 31 bits, too: a broker
refuses a larger file, which no broker makes. An opening for writing splits such a segment as a
broker does: the first batch that does not fit begins a new segment, which it names. If not even the
first batch of all fits, that batch names the first new segment, too.

A segment is split if every byte of it belongs to a whole batch. A damaged segment is served
unchanged, as readers serve all of them; so is a segment for whose copy the disk has no space.

Crash points, those of an exchange (`replacement`), with the action of the next opening:

  * while the new files are written, synced, and named in the mark: removed, being `.cleaned`;
  * between the renames to `.swap`, the lowest last: undone, the old segment stays;
  * later: `startup_cleanup` completes the exchange, also in the opening that splits.

Thread-safety: functions for the thread that opens the log, before other threads have it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress

from kafkalog.errors import CorruptIndexError, CorruptRecordError, InvalidRecordError
from kafkalog.files.errors import is_disk_full
from kafkalog.indexes.transaction_index import AbortedTransaction
from kafkalog.log.corrupt_ranges import first_offset_at
from kafkalog.log.index_lookup import read_header
from kafkalog.log.replacement import activate_exchange, mark_replaced
from kafkalog.log.scanner import RELATIVE_OFFSET_MAX
from kafkalog.log.segment import LogSegment
from kafkalog.log.segment_types import SegmentContext
from kafkalog.log.segment_writer import SEGMENT_BYTES_MAX, SegmentWriter, cleaned_context

__all__ = ["split_overflowing"]

logger = logging.getLogger(__name__)


class _OpeningLog:
    """Directory of a log that is being opened for writing, as a target of new segments."""

    is_given_up = False

    def __init__(self, context: SegmentContext) -> None:
        self.context = cleaned_context(context)

    def ensure_owner(self) -> AbstractContextManager[None]:
        return nullcontext()


def split_overflowing(
    context: SegmentContext, segments: Sequence[LogSegment], end_offset: int
) -> list[int]:
    """
    Prepare the split of all segments whose offsets overflow.

    Args:
        context: settings and parts that the segments of the log share.
        segments: all segments of the log, after their recovery.
        end_offset: one above the last offset of the log.

    Returns:
        Base offsets of the new segments. Their files are `.swap`, and valid: the caller closes
        `segments` and loads the log again. Empty without overflow.

    Raises:
        OSError: the disk failed.
    """
    is_wide = segments and end_offset - 1 - segments[0].base_offset > RELATIVE_OFFSET_MAX
    if not is_wide and all(segment.size_bytes <= SEGMENT_BYTES_MAX for segment in segments):
        return []
    ends = [*(segment.base_offset for segment in segments[1:]), end_offset]
    made: list[int] = []
    for segment, end in zip(segments, ends, strict=True):
        may_overflow = end - 1 > segment.offset_max or segment.size_bytes > SEGMENT_BYTES_MAX
        if segment.size_bytes and may_overflow and _overflows(segment):
            made += _split(context, segment)
    return made


def _overflows(segment: LogSegment) -> bool:
    """Return whether a segment without damage exceeds the limits of an index."""
    if segment.corrupt_ranges:
        return False
    is_large = segment.size_bytes > SEGMENT_BYTES_MAX
    with suppress(CorruptRecordError, InvalidRecordError, ValueError):
        end_offset = segment.end_offset_of_tail()
        if not is_large and end_offset is not None and end_offset - 1 <= segment.offset_max:
            return False
    scan = segment.scan()
    is_whole = not scan.corrupt_ranges and scan.whole_end == segment.size_bytes
    return is_whole and (is_large or scan.next_offset - 1 > segment.offset_max)


def _split(context: SegmentContext, segment: LogSegment) -> list[int]:
    """Write the new segments of one, and make them valid; return their base offsets."""
    logger.warning("%s is more than its indexes can express: it is split", segment.path)
    try:
        bases = _write(context, segment)
        mark_replaced(context, [segment], bases)
    except OSError as error:
        if not is_disk_full(error):
            raise
        logger.warning("%s is served without being split: %s", segment.path, error)
        return []
    activate_exchange(context, bases)
    return bases


def _write(context: SegmentContext, segment: LogSegment) -> list[int]:
    """Copy the batches of a segment into new, synced ones; return their base offsets."""
    data = segment.file.whole()
    header = read_header(segment.file, 0)
    base = segment.base_offset
    if header.last_offset > segment.offset_max:
        first = first_offset_at(data, 0, segment.path)
        base = max(first, base, header.last_offset - RELATIVE_OFFSET_MAX)
    facts = context.filesystem.stat(segment.path)
    modified_ms = context.clock.now_ms() if facts is None else facts.modified_ms
    writer = SegmentWriter(_OpeningLog(context), base, 2**63 - 1)
    try:
        writer.write([data])
        return writer.finish(modified_ms, _aborted(context, segment))
    except BaseException:
        writer.abandon()
        raise


def _aborted(context: SegmentContext, segment: LogSegment) -> list[AbortedTransaction]:
    """Return the entries of a transaction index; none if it cannot be read: they are rebuilt."""
    if context.filesystem.stat(context.files(segment.base_offset).transaction_index) is None:
        return []
    index = segment.transactions.index
    with suppress(CorruptIndexError):
        index.load()
        return list(index.entries())
    return []
