"""Meters of all logs and directories of a manager; they outlive the logs.

The next log of a partition continues the counts of the one before. Counts of partitions that were
deleted stay in the sum of their topic, as long as the topic exists, and then in the sum of all, so
that sums never decrease either.

Thread-safety: every method from any thread; the lock is held for moments.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kafkalog._engine.counters import LogCounters
from kafkalog.log.meters import DiskMeters, LogMeters
from kafkalog.log.report import RecoveryReport
from kafkalog.model import TopicPartition

__all__ = ["COUNTS", "ManagerMeters", "OpeningCounts"]

# The counts of a log, by attribute of `LogCounters`.
COUNTS: Final = (
    "append_count",
    "appended_batches",
    "appended_records",
    "appended_bytes",
    "read_records",
    "read_bytes",
    "deleted_segments",
    "deleted_bytes",
)

# Partitions that were deleted and are still listed, beyond twice the number of the existing ones.
_SLACK: Final = 64


@dataclass(frozen=True, slots=True)
class OpeningCounts:
    """
    Counts of openings of logs.

    Attributes:
        clean, recovered, failed: number by result.
        scanned_bytes, truncated_bytes: extent of the recoveries.
    """

    clean: int = 0
    recovered: int = 0
    failed: int = 0
    scanned_bytes: int = 0
    truncated_bytes: int = 0


class ManagerMeters:
    """
    Meters of a manager.

    Args:
        directories: paths of the data directories.
        is_present: returns whether a partition exists.

    Attributes:
        disks: meters of each data directory.
        openings: counts of openings; replaced by each.
    """

    def __init__(
        self, directories: Iterable[Path], is_present: Callable[[TopicPartition], bool]
    ) -> None:
        self._is_present = is_present
        self.disks: Final = {path: DiskMeters() for path in directories}
        self.openings = OpeningCounts()
        self._lock = threading.Lock()
        self._counters: dict[TopicPartition, LogCounters] = {}
        # Sums of partitions that were deleted, by topic; "" for deleted topics.
        self._removed: dict[str, dict[str, int]] = {}
        # Number of counters from which those of deleted partitions are summed up.
        self._limit = _SLACK

    def of(self, name: TopicPartition, directory: Path) -> LogMeters:
        """Return the meters for the log of a partition in a data directory."""
        with self._lock:
            counters = self._counters.get(name)
            if counters is None:
                if len(self._counters) >= self._limit:
                    self._drop_deleted()
                counters = self._counters[name] = LogCounters()
        return LogMeters(counters, self.disks[directory])

    def counters_of(self, name: TopicPartition) -> dict[str, int]:
        """Return the counts of a partition; zeros if its log was never open."""
        counters = self._counters.get(name)
        return dict.fromkeys(COUNTS, 0) if counters is None else _counts(counters)

    def counts_of_others(self, present: Collection[TopicPartition]) -> dict[str, dict[str, int]]:
        """Return the sums of deleted partitions by topic; "" has those of deleted topics."""
        present = frozenset(present)
        topics = {name.topic for name in present}
        found: dict[str, dict[str, int]] = {}
        with self._lock:
            removed = [(topic, dict(counts)) for topic, counts in self._removed.items()]
            removed += [
                (name.topic, _counts(counters))
                for name, counters in self._counters.items()
                if name not in present
            ]
        for topic, counts in removed:
            _add(found, topic if topic in topics else "", counts)
        return found

    def record_opening(self, report: RecoveryReport) -> None:
        """Count a log that was opened."""
        truncated = sum(each.size_bytes for each in report.cut)
        with self._lock:
            counts = self.openings
            self.openings = replace(
                counts,
                clean=counts.clean + report.clean,
                recovered=counts.recovered + (not report.clean),
                scanned_bytes=counts.scanned_bytes + report.scanned_bytes,
                truncated_bytes=counts.truncated_bytes + truncated,
            )

    def record_failed_opening(self) -> None:
        """Count a log that could not be opened."""
        with self._lock:
            self.openings = replace(self.openings, failed=self.openings.failed + 1)

    def _drop_deleted(self) -> None:
        """Keep only the sums of deleted partitions; the lock is held."""
        # A partition is registered before its log is opened, and gets its counters then.
        for name in [each for each in self._counters if not self._is_present(each)]:
            _add(self._removed, name.topic, _counts(self._counters.pop(name)))
        topics = {name.topic for name in self._counters}
        for topic in [each for each in self._removed if each and each not in topics]:
            _add(self._removed, "", self._removed.pop(topic))
        self._limit = 2 * len(self._counters) + _SLACK


def _counts(counters: LogCounters) -> dict[str, int]:
    return {each: getattr(counters, each) for each in COUNTS}


def _add(sums: dict[str, dict[str, int]], topic: str, counts: dict[str, int]) -> None:
    found = sums.setdefault(topic, dict.fromkeys(COUNTS, 0))
    for each, count in counts.items():
        found[each] += count
