"""Statistics, progress and result of a cleaning.

Thread-safety: results and progress are immutable values. `CleaningStatistics` and
`CleaningCounters` belong to the thread of one cleaning; other threads read counts that grow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from kafkalog._core.offset_map import ENTRY_BYTES
from kafkalog.model import TopicPartition

__all__ = ["CleaningCounters", "CleaningProgress", "CleaningResult", "CleaningStatistics"]

_KB, _MB = 1 << 10, 1 << 20
_SECOND_MS = 1000


@dataclass(slots=True)
class CleaningStatistics:
    """
    Counts of the second pass, of one chunk or of several added up.

    Attributes:
        bytes_read, bytes_written: sizes of the batches before and after.
        batches_read: batches that were filtered; a plain message of an old format is a batch.
        batches_copied: batches that stay byte for byte.
        batches_rewritten: batches that lost records, or got a delete horizon.
        batches_emptied: batches of which only the header stays.
        records_read, records_kept: control records too.
        superseded: records dropped because a later record has their key.
        tombstones_expired: records without a value dropped after their retention time.
        keyless_dropped: records dropped because a compacted log cannot keep records without a key.
        aborted_dropped: records dropped because their transaction was aborted.
        control_dropped: control records dropped because nothing is left of their transactions.
        tombstones_kept: records without a value that stay.
        horizons_set: batches that got a delete horizon: this cleaning is the first to find their
            tombstones or marker.
        batches_grown: rewritten batches that became larger than they were and than
            `max.message.bytes`: codecs here may compress less well than the producer's did.
    """

    bytes_read: int = 0
    bytes_written: int = 0
    batches_read: int = 0
    batches_copied: int = 0
    batches_rewritten: int = 0
    batches_emptied: int = 0
    records_read: int = 0
    records_kept: int = 0
    superseded: int = 0
    tombstones_expired: int = 0
    keyless_dropped: int = 0
    aborted_dropped: int = 0
    control_dropped: int = 0
    tombstones_kept: int = 0
    horizons_set: int = 0
    batches_grown: int = 0

    def add(self, other: CleaningStatistics) -> None:
        """Add other counts to these."""
        for name in _NAMES:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def add_difference(self, counts: CleaningStatistics, base: CleaningStatistics) -> None:
        """Add what `counts` has more than `base`."""
        for name in _NAMES:
            difference = getattr(counts, name) - getattr(base, name)
            setattr(self, name, getattr(self, name) + difference)

    def add_bytes(self, read: int, written: int) -> None:
        """Add the sizes of a run before and after."""
        self.bytes_read += read
        self.bytes_written += written

    def as_dict(self) -> dict[str, int]:
        """Return all counts by attribute."""
        return {name: getattr(self, name) for name in _NAMES}


_NAMES = tuple(field.name for field in fields(CleaningStatistics))


@dataclass(frozen=True, slots=True)
class CleaningProgress:
    """
    Progress of a cleaning.

    Attributes:
        topic_partition: the log.
        stage: "reading keys", or "writing" the retained records.
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
    Result of a cleaning.

    Attributes:
        topic_partition: the log.
        first_dirty, end_offset: the offsets whose keys were read; the next cleaning starts at the
            end, which is below `target_end_offset` if memory was short.
        target_end_offset: the requested end, rounded down to the base of a segment.
        statistics: counts of the second pass, of all passes together.
        map_entries: different keys in the dirty part.
        map_records, map_bytes: records and bytes that were read for them.
        map_utilization: largest share of the memory that keys took.
        memory_bytes: size of the map.
        passes: above 1 if the keys of a single segment did not fit; 0 if nothing was dirty.
        bytes_for_one_pass: memory that would clean everything in one pass; an estimate if not
            everything was cleaned.
        segments_before, segments_after: number of cleaned segments, and of their replacements.
        segments_unchanged: number of segments that stay byte for byte.
        reading_ms, duration_ms: time of the first pass, and of the whole cleaning.
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
        """Return whether the memory was enough for the whole dirty part."""
        return self.end_offset >= self.target_end_offset

    def __str__(self) -> str:
        return self.describe()

    def describe(self) -> str:
        """Return the text that a broker logs after a cleaning, in several lines."""
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


@dataclass(slots=True)
class CleaningCounters:
    """
    Counts of a cleaning; see `CleaningResult`.

    Attributes:
        memory_bytes: for the map of keys.
    """

    memory_bytes: int
    statistics: CleaningStatistics = field(default_factory=CleaningStatistics)
    passes: int = 0
    reading_ms: int = 0
    map_entries: int = 0
    _map_records: int = 0
    _map_bytes: int = 0
    _utilization: float = 0.0
    _before: int = 0
    _after: int = 0
    _unchanged: int = 0

    def add_collected(self, key_count: int, records: int, size: int, duration_ms: int) -> None:
        """Add the keys of a pass, and the records, bytes and time that were read for them."""
        self.reading_ms += duration_ms
        self._map_records += records
        self._map_bytes += size
        utilization = key_count * ENTRY_BYTES / self.memory_bytes
        self._utilization = max(self._utilization, utilization)

    def begin_pass(self, key_count: int, segment_count: int) -> None:
        """Start the second pass over segments, with the keys of this pass."""
        self.passes += 1
        self.map_entries += key_count
        # The segments of the first of several passes are the ones from before the cleaning.
        self._before = self._before or segment_count
        self._after = self._unchanged = 0

    def add_group(self, bases: Sequence[int]) -> None:
        """Add the output of a group: bases of new segments; none for an unchanged segment."""
        self._after += len(bases) or 1
        self._unchanged += not bases

    def result(
        self,
        topic_partition: TopicPartition,
        *,
        first_dirty: int,
        end_offset: int,
        target_end_offset: int,
        bytes_for_one_pass: int,
        duration_ms: int,
    ) -> CleaningResult:
        """Return the result of the cleaning; arguments as in `CleaningResult`."""
        return CleaningResult(
            topic_partition=topic_partition,
            first_dirty=first_dirty,
            end_offset=end_offset,
            target_end_offset=target_end_offset,
            statistics=self.statistics,
            map_entries=self.map_entries,
            map_records=self._map_records,
            map_bytes=self._map_bytes,
            map_utilization=self._utilization,
            memory_bytes=self.memory_bytes,
            passes=self.passes,
            bytes_for_one_pass=bytes_for_one_pass,
            segments_before=self._before,
            segments_after=self._after,
            segments_unchanged=self._unchanged,
            reading_ms=self.reading_ms,
            duration_ms=duration_ms,
        )


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
