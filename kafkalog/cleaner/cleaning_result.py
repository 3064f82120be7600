"""What a cleaning did, and how far one on its way has come.

Thread-safety: immutable values.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafkalog.cleaner.statistics import CleaningStatistics
from kafkalog.model import TopicPartition

__all__ = ["CleaningProgress", "CleaningResult"]

_KB, _MB = 1 << 10, 1 << 20
_SECOND_MS = 1000


@dataclass(frozen=True, slots=True)
class CleaningProgress:
    """
    How far a cleaning is.

    Attributes:
        topic_partition: what is cleaned.
        stage: "reading keys", or "writing" what stays.
        done_bytes, total_bytes: of this stage; with several passes each of them has both stages.
        pass_number: from 1.
    """

    topic_partition: TopicPartition
    stage: str
    done_bytes: int
    total_bytes: int
    pass_number: int = 1


@dataclass(frozen=True, slots=True)
class CleaningResult:
    """
    What a cleaning did.

    Attributes:
        topic_partition: what was cleaned.
        first_dirty, end_offset: the offsets whose keys were read; the next cleaning begins at the
            end, which may lie below what was asked for where memory was short.
        target_end_offset: what was asked for, down to the base of a segment.
        statistics: of what was filtered, of all passes together.
        map_entries: different keys in the dirty part.
        map_records, map_bytes: records and bytes that were read for them.
        map_utilization: largest share of the memory that keys took.
        memory_bytes: what the map takes.
        passes: above 1 where the keys of a single segment did not fit; 0 if nothing was dirty.
        bytes_for_one_pass: memory with which everything would be cleaned in one pass; about so
            much where not everything was.
        segments_before, segments_after: of those that were cleaned.
        segments_unchanged: those that stay, byte for byte, as they were.
        reading_ms, duration_ms: time for the keys, and for all of it.
    """

    topic_partition: TopicPartition
    first_dirty: int
    end_offset: int
    target_end_offset: int
    statistics: CleaningStatistics
    map_entries: int
    map_records: int
    map_bytes: int
    map_utilization: float
    memory_bytes: int
    passes: int
    bytes_for_one_pass: int
    segments_before: int
    segments_after: int
    segments_unchanged: int
    reading_ms: int
    duration_ms: int

    @property
    def is_complete(self) -> bool:
        """Whether memory sufficed for everything that was dirty."""
        return self.end_offset >= self.target_end_offset

    def __str__(self) -> str:
        return self.describe()

    def describe(self) -> str:
        """Return what a broker's log says of a cleaning, in several lines."""
        statistics = self.statistics
        size, left = statistics.bytes_read, statistics.bytes_written
        writing_ms = self.duration_ms - self.reading_ms
        records, kept = statistics.records_read, statistics.records_kept
        lines = [
            (
                f"cleaned {self.topic_partition}, dirty offsets {self.first_dirty} to"
                f" {self.end_offset}: {_pace(self.map_bytes + size, self.duration_ms)}"
            ),
            (
                f"keys: {_pace(self.map_bytes, self.reading_ms)}, {self.map_records:,} records,"
                f" {self.map_entries:,} keys, {self.map_utilization:.1%} of the map"
            ),
            (
                f"rewritten: {_pace(size, writing_ms)}, {self.segments_before} segments to"
                f" {self.segments_after}, {self.segments_unchanged} of them as they were"
            ),
            (
                f"before: {_amount(size)}, {records:,} records;"
                f" after: {_amount(left)}, {kept:,} records;"
                f" {_less(size, left)} smaller, {_less(records, kept)} fewer records"
            ),
        ]
        if self.passes > 1:
            lines.append(
                f"in {self.passes} passes; {self.bytes_for_one_pass:,} bytes of memory for keys,"
                f" instead of {self.memory_bytes:,}, would do it in one"
            )
        elif not self.is_complete:
            lines.append(
                f"up to {self.end_offset} of {self.target_end_offset}, for more keys there was no"
                f" memory; about {self.bytes_for_one_pass:,} bytes, instead of"
                f" {self.memory_bytes:,}, would do all"
            )
        return "\n\t".join(lines)


def _pace(size: int, duration_ms: int) -> str:
    seconds = duration_ms / _SECOND_MS
    pace = size / max(seconds, 1 / _SECOND_MS)
    return f"{_amount(size)} in {seconds:,.1f} s ({_amount(pace)}/s)"


def _amount(size: float) -> str:
    """Return a number of bytes in the largest unit of which it has one."""
    if size < _KB:
        return f"{size:,.0f} bytes"
    return f"{size / _KB:,.1f} KB" if size < _MB else f"{size / _MB:,.1f} MB"


def _less(before: int, after: int) -> str:
    return f"{1 - after / before:.1%}" if before else "0.0%"
