"""Splitting segments whose offsets or bytes go beyond what an index can express (KAFKA-6264).

Offsets in an index are 31 bits beside the base offset of the segment. Cleaners of brokers before
1.1 could merge segments further apart than that. Positions are 31 bits, too: a broker refuses a
larger file, which no broker makes. An opening for writing splits such a segment as a
broker does: the first batch that does not fit begins a new segment, which it names. Where not even
the first batch of all fits, that batch names the first new segment, too.

A segment is split where every byte of it is a whole batch. One that has damage is served as it is,
as readers serve all of them; so is one for whose copy the disk has no space.

Crash points, those of an exchange (`replacement`), with what the next opening makes of them:

  * while the new files are written, synced, and named in the mark: removed, being `.cleaned`;
  * between the renames to `.swap`, the lowest last: undone, the old segment stays;
  * afterwards: `startup_cleanup` completes the exchange. The opening that splits lets it do so,
    too.

Thread-safety: functions for the thread that opens the log, before anyone else has it.
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
    """The directory of a log while it is opened for writing, as a place for new segments."""

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
        context: what the log's segments share.
        segments: all of the log, judged as far as a recovery goes through them.
        end_offset: one above the last offset of the log.

    Returns:
        Base offsets of the new segments. Their files are `.swap`, and count: the caller closes
        `segments` and loads the log again. Empty where there are none.

    Raises:
        OSError: the disk refused.
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
    """Say whether a segment without damage has more than an index can express."""
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
    """Write the new segments of one, and let them count; return their base offsets."""
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
    """Copy the batches of a segment into new ones, all on the disk; return their base offsets."""
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
    """Return the entries of a transaction index; none where it cannot be read: they are rebuilt."""
    if context.filesystem.stat(context.files(segment.base_offset).transaction_index) is None:
        return []
    index = segment.transactions.index
    with suppress(CorruptIndexError):
        index.load()
        return list(index.entries())
    return []
