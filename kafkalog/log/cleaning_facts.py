"""Facts of a log at one moment, by which a log and its segments are selected for cleaning.

Thread-safety: immutable values; `cleaning_facts` works on a snapshot, without a lock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from kafkalog._engine.snapshot import LogSnapshot
from kafkalog.log.index_lookup import read_header
from kafkalog.log.segment import LogSegment
from kafkalog.log.segment_types import SegmentContext

__all__ = ["LogCleaningFacts", "SegmentCleaningFacts", "cleaning_facts", "segment_facts"]


@dataclass(frozen=True, slots=True)
class SegmentCleaningFacts:
    """
    Facts of a segment that need no read of its batches.

    Attributes:
        base_offset: its name.
        size_bytes, offset_index_bytes, time_index_bytes: used, without preallocated space.
        first_timestamp_ms: of its first batch, -1 for none.
        largest_timestamp_ms: of its records, -1 for none.
    """

    base_offset: int
    size_bytes: int
    offset_index_bytes: int = 0
    time_index_bytes: int = 0
    first_timestamp_ms: int = -1
    largest_timestamp_ms: int = -1


@dataclass(frozen=True, slots=True)
class LogCleaningFacts:
    """
    A log at one moment.

    Attributes:
        segments: all of them in order; the last is the active one, which is never cleaned.
        log_start_offset, log_end_offset: first offset, and that of the next record.
        last_stable_offset: up to here every transaction is decided.
    """

    segments: Sequence[SegmentCleaningFacts]
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int

    @property
    def active_base_offset(self) -> int:
        """The base offset of the active segment."""
        return self.segments[-1].base_offset

    def sealed_from(self, offset: int) -> Sequence[SegmentCleaningFacts]:
        """Return the sealed segments, from the segment that contains an offset."""
        return self._between(offset, self.active_base_offset)

    def _between(self, start: int, end: int) -> Sequence[SegmentCleaningFacts]:
        """Return the segments that begin below `end`, from the segment that contains `start`."""
        if start >= end:
            return ()
        first = bisect_right(self.segments, start, key=_base_of) - 1
        chosen = self.segments[max(0, first) :]
        return [segment for segment in chosen if segment.base_offset < end]

    def bytes_between(self, start: int, end: int) -> int:
        """Return the size of these segments."""
        return sum(segment.size_bytes for segment in self._between(start, end))


def cleaning_facts(
    context: SegmentContext,
    snapshot: LogSnapshot,
    last_stable_offset: int,
    *,
    with_times: bool = True,
) -> LogCleaningFacts:
    """
    Return the facts by which a log is selected for cleaning.

    Args:
        context: what its segments share.
        snapshot: the log.
        last_stable_offset: of the same moment, or of one before it.
        with_times: whether to find out timestamps, which may cost a read of each segment; -1
            without. As with a broker, a segment whose records have none is as old as its file.

    Raises:
        OSError, CorruptRecordError: a segment cannot be read.
    """
    segments = tuple(
        segment_facts(context, segment, snapshot.read_bound(slot).end, with_times=with_times)
        for slot, segment in enumerate(snapshot.segments.segments)
    )
    return LogCleaningFacts(
        segments,
        log_start_offset=snapshot.start_offset,
        log_end_offset=snapshot.end_offset,
        last_stable_offset=min(last_stable_offset, snapshot.end_offset),
    )


def segment_facts(
    context: SegmentContext, segment: LogSegment, size_bytes: int, *, with_times: bool = False
) -> SegmentCleaningFacts:
    """Return the facts of one segment; arguments and errors as for `cleaning_facts`."""
    first = largest = -1
    if with_times and size_bytes:
        first = read_header(segment.file, 0).max_timestamp
        largest = segment.max_timestamp
        if largest < 0:
            facts = context.filesystem.stat(segment.path)
            largest = -1 if facts is None else facts.modified_ms
    files = context.files(segment.base_offset)
    offset_index, time_index = map(context.filesystem.stat, (files.offset_index, files.time_index))
    return SegmentCleaningFacts(
        base_offset=segment.base_offset,
        size_bytes=size_bytes,
        # The files of a sealed segment have no preallocated space.
        offset_index_bytes=0 if offset_index is None else offset_index.size_bytes,
        time_index_bytes=0 if time_index is None else time_index.size_bytes,
        first_timestamp_ms=first,
        largest_timestamp_ms=largest,
    )


def _base_of(segment: SegmentCleaningFacts) -> int:
    return segment.base_offset
