"""The division of batches among segments, one after the other: the rules, in plain Python.

The reference of `RollPlanner`. A model of the segments of one log, without files.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from kafkalog._core.batch_metadata import BatchFacts

__all__ = ["SegmentFiles", "SlowSegment", "SlowStaging", "StagingRules"]

# Base offset, size, batches, and both index files.
SegmentFiles = tuple[int, int, list[BatchFacts], bytes, bytes]


@dataclass(frozen=True)
class StagingRules:
    """Settings that count."""

    segment_bytes: int
    interval_bytes: int
    roll_after_ms: int
    index_bytes: int

    @property
    def offset_entries_max(self) -> int:
        return self.index_bytes // 8

    @property
    def time_entries_max(self) -> int:
        return self.index_bytes // 12


class SlowSegment:
    """One segment: its batches, and its index entries."""

    def __init__(self, base_offset: int, created_ms: int) -> None:
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.size_bytes = 0
        self.batches: list[BatchFacts] = []
        self.offsets: list[bytes] = []
        self.times: list[tuple[int, int]] = []
        self.newest = (-1, -1)
        self.first_timestamp = -1
        self.bytes_since_entry = 0

    def time_entries(self) -> bytes:
        """The time index as its file has it."""
        return b"".join(
            struct.pack(">qi", time, offset - self.base_offset) for time, offset in self.times
        )

    def must_roll(self, batch: BatchFacts, rules: StagingRules, now_ms: int) -> bool:
        """Ask the four conditions."""
        if not 0 <= batch.last_offset - self.base_offset < 2**31:
            return True
        if not self.size_bytes:
            return False
        if self.size_bytes + batch.size_bytes > rules.segment_bytes:
            return True
        waited = now_ms - self.created_ms
        if self.first_timestamp >= 0:
            waited = batch.max_timestamp - self.first_timestamp
        return (
            waited > rules.roll_after_ms
            or len(self.offsets) >= rules.offset_entries_max
            or len(self.times) >= rules.time_entries_max - 1
        )

    def take(self, batch: BatchFacts, rules: StagingRules) -> None:
        """Append a batch, and the entries that are due with it."""
        if not self.size_bytes:
            self.first_timestamp = batch.max_timestamp
        if batch.max_timestamp > self.newest[0]:
            self.newest = batch.max_timestamp, batch.shallow_offset
        if self.bytes_since_entry > rules.interval_bytes:
            self.bytes_since_entry = 0
            if len(self.offsets) < rules.offset_entries_max:
                relative = batch.last_offset - self.base_offset
                self.offsets.append(struct.pack(">ii", relative, self.size_bytes))
            if len(self.times) < rules.time_entries_max - 1:
                self.add_time_entry(rules)
        self.bytes_since_entry += batch.size_bytes
        self.size_bytes += batch.size_bytes
        self.batches.append(batch)

    def add_time_entry(self, rules: StagingRules) -> None:
        """Enter the largest timestamp so far, if it is new and the index is not full."""
        last = self.times[-1][0] if self.times else -1
        if self.newest[0] > last and len(self.times) < rules.time_entries_max:
            self.times.append(self.newest)


class SlowStaging:
    """The segments of a log that batches are appended to."""

    def __init__(self, rules: StagingRules, base_offset: int, now_ms: int) -> None:
        self.rules = rules
        self.segments = [SlowSegment(base_offset, now_ms)]

    def append(self, batches: Iterable[BatchFacts], now_ms: int) -> None:
        """Append batches, each in the segment where it belongs."""
        for batch in batches:
            if self.segments[-1].must_roll(batch, self.rules, now_ms):
                self.segments[-1].add_time_entry(self.rules)
                self.segments.append(SlowSegment(batch.base_offset, now_ms))
            self.segments[-1].take(batch, self.rules)

    def close(self) -> None:
        """Seal the last segment."""
        self.segments[-1].add_time_entry(self.rules)

    def files(self) -> list[SegmentFiles]:
        """Return what the segments are."""
        return [
            (
                segment.base_offset,
                segment.size_bytes,
                segment.batches,
                b"".join(segment.offsets),
                segment.time_entries(),
            )
            for segment in self.segments
        ]
