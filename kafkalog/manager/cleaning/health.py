"""How the cleaner of a manager is doing.

Thread-safety: immutable values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kafkalog.cleaner.cleaning import CleaningProgress, CleaningResult
from kafkalog.model import TopicPartition

__all__ = ["CleanerHealth", "CleaningUnderWay", "UncleanablePartition"]


@dataclass(frozen=True, slots=True)
class CleaningUnderWay:
    """
    A cleaning that goes on.

    Attributes:
        topic_partition: of what.
        thread_name: by whom.
        is_aborted: whether it was told to end.
        progress: how far it is; None before it said anything.
    """

    topic_partition: TopicPartition
    thread_name: str
    is_aborted: bool
    progress: CleaningProgress | None


@dataclass(frozen=True, slots=True)
class UncleanablePartition:
    """
    A partition whose cleaning failed, and has not gone well since.

    Attributes:
        topic_partition: its name.
        directory: its data directory.
        error: what happened last.
        failure_count: how often in a row.
        next_retry_ms: when it is tried again.
        size_bytes: of what could be cleaned: the segments from the last cleaning on, but for the
            active one, whether or not its log is open; 0 where they cannot be listed.
    """

    topic_partition: TopicPartition
    directory: Path
    error: BaseException
    failure_count: int
    next_retry_ms: int | None
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CleanerHealth:
    """
    What `LogManager.health` tells of compaction.

    Attributes:
        is_enabled: `log.cleaner.enable`.
        thread_count: threads that were started: as many as there are logs to be compacted, at most
            `log.cleaner.threads`.
        alive_count: those of them that live.
        replaced_count: threads that ended by an error, and others took over from.
        compacted_count: partitions that are to be compacted, and may be used.
        under_way: cleanings that go on, by partition.
        uncleanable: partitions whose cleaning fails, by name.
        last_look_ms: when all logs were looked at the last time, None before the first.
        time_since_last_look_ms: how long ago that is.
        max_dirty_percent: share of what could be cleaned in the dirtiest log, then.
        max_delay_ms: for how long the most urgent log has had to be cleaned, then.
        cleaning_count: cleanings that went well.
        last_cleanings: the last one of each thread by its name, and the last one that was asked
            for, as "compact".
        throttled_ms: how long threads have waited for the limit of bytes a second, in all.
        memory_bytes: what one thread may have for keys.
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

    @property
    def dead_count(self) -> int:
        """Threads that were started, died, and have not been replaced."""
        return self.thread_count - self.alive_count

    @property
    def uncleanable_bytes(self) -> dict[Path, int]:
        """Bytes that could be cleaned in the logs whose cleaning fails, by data directory."""
        sums: dict[Path, int] = {}
        for each in self.uncleanable:
            sums[each.directory] = sums.get(each.directory, 0) + each.size_bytes
        return sums

    @property
    def recopy_percent(self) -> float:
        """Bytes written for 100 read, over the last cleanings."""
        statistics = [each.statistics for each in self.last_cleanings.values()]
        read = sum(each.bytes_read for each in statistics)
        return 100.0 * sum(each.bytes_written for each in statistics) / read if read else 0.0

    @property
    def max_memory_percent(self) -> float:
        """Share of a thread's memory that the keys of the last cleanings needed at most."""
        # Not the map's utilization: it is made no larger than the log needs it.
        needed = max((each.bytes_for_one_pass for each in self.last_cleanings.values()), default=0)
        return 100.0 * needed / self.memory_bytes if self.memory_bytes else 0.0

    @property
    def max_duration_ms(self) -> int:
        """How long the longest of the last cleanings took."""
        return max((each.duration_ms for each in self.last_cleanings.values()), default=0)
