"""Health of a manager's cleaner.

Thread-safety: immutable values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kafkalog.cleaner.cleaning import CleaningProgress, CleaningResult
from kafkalog.cleaner.cleaning_result import CleaningStatistics
from kafkalog.model import TopicPartition

__all__ = ["CleanerHealth", "CleaningUnderWay", "DirtyLog", "UncleanablePartition"]


@dataclass(frozen=True, slots=True)
class CleaningUnderWay:
    """
    A running cleaning.

    Attributes:
        topic_partition: the partition.
        thread_name: name of the cleaning thread.
        is_aborted: whether it must end.
        progress: its progress; None before the first report.
    """

    topic_partition: TopicPartition
    thread_name: str
    is_aborted: bool
    progress: CleaningProgress | None


@dataclass(frozen=True, slots=True)
class UncleanablePartition:
    """
    A partition whose last cleaning failed.

    Attributes:
        topic_partition: its name.
        directory: its data directory.
        error: the latest error.
        failure_count: number of failures in a row.
        next_retry_ms: time of the next attempt.
        size_bytes: size of the segments since the last cleaning, without the active one; 0 if they
            cannot be listed.
    """

    topic_partition: TopicPartition
    directory: Path
    error: BaseException
    failure_count: int
    next_retry_ms: int | None
    size_bytes: int


@dataclass(frozen=True, slots=True)
class DirtyLog:
    """
    A compacted log at the last selection.

    Attributes:
        topic_partition: its name.
        dirty_ratio: share of it that was not cleaned.
        cleanable_bytes: size of that part, without the active segment.
        is_due: whether it may be selected.
    """

    topic_partition: TopicPartition
    dirty_ratio: float
    cleanable_bytes: int
    is_due: bool


@dataclass(frozen=True, slots=True)
class CleanerHealth:
    """
    Health of compaction in `LogManager.health`.

    Attributes:
        is_enabled: `log.cleaner.enable`.
        thread_count: number of started threads: one for each compacted partition, up to
            `log.cleaner.threads`.
        alive_count: number of these threads that are alive.
        replaced_count: number of threads that ended by an error and were replaced.
        compacted_count: number of compacted partitions that may be used.
        under_way: running cleanings, by partition.
        uncleanable: partitions whose cleaning fails, by name.
        last_look_ms: time of the last selection among all logs, None before the first.
        time_since_last_look_ms: time since then.
        max_dirty_percent: share of cleanable bytes in the dirtiest log at the last selection.
        max_delay_ms: delay of the most overdue log at the last selection.
        cleaning_count: number of successful cleanings.
        last_cleanings: the last cleaning of each thread by its name, and the last cleaning on
            demand as "compact".
        throttled_ms: total time that threads have waited for the limit of bytes per second.
        memory_bytes: largest memory of one thread for keys.
        candidates: compacted logs at the last selection, with their dirty parts.
        totals: sums over all successful cleanings.
    """

    is_enabled: bool
    thread_count: int
    alive_count: int
    replaced_count: int
    compacted_count: int
    under_way: tuple[CleaningUnderWay, ...]
    uncleanable: tuple[UncleanablePartition, ...]
    last_look_ms: int | None
    time_since_last_look_ms: int | None
    max_dirty_percent: float
    max_delay_ms: int
    cleaning_count: int
    last_cleanings: Mapping[str, CleaningResult] = field(default_factory=dict)
    throttled_ms: int = 0
    memory_bytes: int = 0
    candidates: tuple[DirtyLog, ...] = ()
    totals: CleaningStatistics = field(default_factory=CleaningStatistics)

    @property
    def dead_count(self) -> int:
        """Number of threads that ended by an error and were not replaced."""
        return self.thread_count - self.alive_count

    @property
    def uncleanable_bytes(self) -> dict[Path, int]:
        """Cleanable bytes of the logs whose cleaning fails, by data directory."""
        sums: dict[Path, int] = {}
        for each in self.uncleanable:
            sums[each.directory] = sums.get(each.directory, 0) + each.size_bytes
        return sums

    @property
    def recopy_percent(self) -> float:
        """Bytes written per 100 bytes read, over the last cleanings."""
        statistics = [each.statistics for each in self.last_cleanings.values()]
        read = sum(each.bytes_read for each in statistics)
        return 100.0 * sum(each.bytes_written for each in statistics) / read if read else 0.0

    @property
    def max_memory_percent(self) -> float:
        """Largest share of a thread's memory that the keys of the last cleanings needed."""
        # The utilization of the map would not show it, because the map is sized for its log.
        needed = max((each.bytes_for_one_pass for each in self.last_cleanings.values()), default=0)
        return 100.0 * needed / self.memory_bytes if self.memory_bytes else 0.0

    @property
    def max_duration_ms(self) -> int:
        """Duration of the longest of the last cleanings."""
        return max((each.duration_ms for each in self.last_cleanings.values()), default=0)
