"""What adds up in the course of a cleaning.

Thread-safety: none; it belongs to one cleaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kafkalog.cleaner.cleaning_result import CleaningResult
from kafkalog.cleaner.grouping import ENTRY_BYTES
from kafkalog.cleaner.statistics import CleaningStatistics
from kafkalog.model import TopicPartition

__all__ = ["CleaningCounters"]


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

    def add_collected(self, key_count: int, records: int, size: int) -> None:
        """Add what was read for the keys of a pass."""
        self._map_records += records
        self._map_bytes += size
        utilization = key_count * ENTRY_BYTES / self.memory_bytes
        self._utilization = max(self._utilization, utilization)

    def begin_segments(self, count: int) -> None:
        """Begin to filter so many segments; those of a first pass are what there was before."""
        self._before = self._before or count
        self._after = self._unchanged = 0

    def add_group(self, bases: Sequence[int]) -> None:
        """Add what became of a group: new segments, or the one that stays as it was."""
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
        """Return what the cleaning did; arguments as in `CleaningResult`."""
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
