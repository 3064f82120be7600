"""The segments of a log as a pass reads them: a snapshot, in runs of whole batches.

Every batch is checked before it is in a run. Damage ends the reading with an error that names it.

Thread-safety: as for reading: any thread, while another writes. It never takes the log's lock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kafkalog._core.batch import BatchColumns
from kafkalog._engine.snapshot import LogSnapshot
from kafkalog.cleaner.grouping import group_segments
from kafkalog.cleaner.selection import SegmentCleaningFacts
from kafkalog.config import LogConfig
from kafkalog.log.batch_walk import ResumePoint
from kafkalog.log.conversion.source import SegmentSource
from kafkalog.log.reading import after_damage, start_position
from kafkalog.records.conversion.conversion_units import FileRecords

__all__ = ["boundary_of", "grouped", "read_runs", "segments_between"]

_RUN_BATCHES: Final = 4096


def boundary_of(snapshot: LogSnapshot, offset: int) -> int:
    """Return the base offset of the segment that holds an offset; all below it may be cleaned."""
    slot = max(snapshot.segments.floor_slot(offset), 0)
    return snapshot.segments.segments[slot].base_offset


def segments_between(snapshot: LogSnapshot, start: int, end: int) -> list[SegmentSource]:
    """Return the segments from the segment that holds `start`, to bases below `end`."""
    if start >= end:
        return []
    found = []
    for slot in range(max(snapshot.segments.floor_slot(start), 0), len(snapshot.segments)):
        segment = snapshot.segments.segments[slot]
        if segment.base_offset >= end:
            break
        begins = max(start, segment.base_offset)
        found.append(SegmentSource(segment, snapshot.read_bound(slot), begins))
    return found


def grouped(
    sources: Sequence[SegmentSource],
    facts: Sequence[SegmentCleaningFacts],
    config: LogConfig,
    end_offset: int,
) -> list[list[SegmentSource]]:
    """
    Divide segments into groups, each of which becomes one segment.

    Args:
        sources: the segments; facts: their facts.
        config: settings of the log.
        end_offset: end offset of the last segment.
    """
    by_base = {source.segment.base_offset: source for source in sources}
    groups = group_segments(
        facts,
        segment_bytes=config.segment_bytes,
        index_bytes=config.segment_index_bytes,
        end_offset=end_offset,
    )
    return [[by_base[each.base_offset] for each in group] for group in groups]


def read_runs(source: SegmentSource, run_bytes: int) -> Iterator[FileRecords]:
    """
    Yield the batches of a segment in runs of about so many bytes, a larger batch by itself.

    Raises:
        CorruptRecordError: at damage, after everything before it.
        OSError: the disk failed.
    """
    segment, bound, start_offset = source
    position: int | None = 0
    if start_offset > segment.base_offset:
        position = start_position(segment, start_offset, bound, "raise")
    if position is None:
        return
    start = ResumePoint(position, segment.base_offset)
    for walked in segment.walk(
        start,
        bound,
        BatchColumns(_RUN_BATCHES),
        after_damage(segment, bound, "raise"),
        window_bytes=run_bytes,
    ):
        yield FileRecords(walked.run, segment.path, walked.position)
