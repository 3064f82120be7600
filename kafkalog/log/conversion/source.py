"""Batches of a log as runs, for a walk over all of it: conversion and its verification.

A run is a slice of one segment in the mapped file, whole batches with their CRCs checked: nothing
is copied, and nothing is decoded here.

Thread-safety: as for reading: any thread, while another writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from kafkalog._core.batch import BatchColumns
from kafkalog._engine.snapshot import LogSnapshot, ReadBound
from kafkalog.files.errors import storage_errors
from kafkalog.log.batch_walk import ResumePoint
from kafkalog.log.reading import OnCorrupt, after_damage, start_position
from kafkalog.log.segment import LogSegment
from kafkalog.records.conversion.conversion_units import FileRecords

__all__ = ["SegmentSource", "segment_runs", "sources"]

# Batches of a run, a few megabytes of usual ones: progress is reported after each.
_RUN_BATCHES: Final = 256


class SegmentSource(NamedTuple):
    """
    Segment that is read as a whole.

    Attributes:
        segment: the segment.
        bound: its readable range.
        start_offset: the first batch has this offset.
    """

    segment: LogSegment
    bound: ReadBound
    start_offset: int


def sources(snapshot: LogSnapshot) -> list[SegmentSource]:
    """
    Return the segments of a log, from the segment with its start offset on.

    Segments without batches are among them: their names are facts of the log.
    """
    first = max(snapshot.segments.floor_slot(snapshot.start_offset), 0)
    found = []
    for slot in range(first, len(snapshot.segments)):
        segment = snapshot.segments.segments[slot]
        start = snapshot.start_offset if slot == first else segment.base_offset
        found.append(SegmentSource(segment, snapshot.read_bound(slot), start))
    return found


def segment_runs(source: SegmentSource, on_corrupt: OnCorrupt) -> Iterator[FileRecords]:
    """
    Yield the batches of a segment.

    Raises:
        CorruptRecordError: at damage, with on_corrupt="raise".
        LogStorageError: the disk failed.
    """
    segment, bound, start_offset = source
    with storage_errors(segment.path, doing="reading"):
        position: int | None = 0
        if start_offset > segment.base_offset:
            position = start_position(segment, start_offset, bound, on_corrupt)
        if position is None:
            return
        start, on_damage = (
            ResumePoint(position, segment.base_offset),
            after_damage(segment, bound, on_corrupt),
        )
        for walked in segment.walk(start, bound, BatchColumns(_RUN_BATCHES), on_damage):
            yield FileRecords(walked.run, segment.path, walked.position)
