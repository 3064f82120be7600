"""Results and failures of finished cleanings.

A failure is a fault of its partition in the manager's fault registry. The next attempt follows
after `log.cleaner.backoff.ms` or later, with growing pauses. Kafka would not try again.

Thread-safety: every method from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container
from copy import copy
from typing import Final

from kafkalog.cleaner.cleaning import CleaningResult
from kafkalog.cleaner.cleaning_result import CleaningStatistics
from kafkalog.clock import Clock
from kafkalog.manager.directory import DataDirectory
from kafkalog.manager.health import Fault, Subject
from kafkalog.manager.registry import ManagedPartition
from kafkalog.manager.supervision import FaultRegistry
from kafkalog.model import TopicPartition
from kafkalog.scheduler import retry_pause_ms

__all__ = ["CLEANER", "CLEANER_RETENTION", "CleaningHistory"]

# Name of the fault of a cleaning.
CLEANER: Final = "kafka-log-cleaner"
# Name of the fault of retention in the cleaner's rounds.
CLEANER_RETENTION: Final = "kafka-log-cleaner-retention"


class CleaningHistory:
    """
    Results of cleanings.

    Args:
        faults: gets failures.
        clock: time of failures.
        backoff_ms: returns the shortest pause before the next attempt.
        on_error: called with a directory and an error of its disk.
    """

    def __init__(
        self,
        faults: FaultRegistry,
        clock: Clock,
        backoff_ms: Callable[[], int],
        on_error: Callable[[DataDirectory, BaseException], object],
    ) -> None:
        self._faults = faults
        self._clock = clock
        self._backoff_ms = backoff_ms
        self._on_error = on_error
        self._guard = threading.Lock()
        self._last: dict[str, CleaningResult] = {}
        self._count = 0
        self._totals = CleaningStatistics()

    @property
    def count(self) -> int:
        """Number of successful cleanings."""
        return self._count

    def totals(self) -> CleaningStatistics:
        """Return the sums over all successful cleanings."""
        with self._guard:
            return copy(self._totals)

    def last(self) -> dict[str, CleaningResult]:
        """Return the last cleaning of each worker, and the last one on demand."""
        with self._guard:
            return dict(self._last)

    def record_success(self, worker: str, cleaning: CleaningResult) -> None:
        """Record the result of a cleaning; an earlier fault of its partition is removed."""
        with self._guard:
            self._last[worker] = cleaning
            self._count += 1
            self._totals.add(cleaning.statistics)
        self._faults.clear_error(CLEANER, cleaning.topic_partition)

    def record_failure(self, partition: ManagedPartition, error: BaseException) -> None:
        """Record a failure of a partition, which is skipped for a while."""
        name = partition.topic_partition
        before = self._faults.get(CLEANER, name)
        failures = 1 if before is None else before.failure_count + 1
        pause_ms = max(self._backoff_ms(), retry_pause_ms(failures))
        self._faults.record_failure(CLEANER, name, error, retry_after_ms=pause_ms)
        self._on_error(partition.directory, error)

    def is_waiting(self, name: TopicPartition) -> bool:
        """Return whether a partition is skipped because it failed."""
        fault = self._faults.get(CLEANER, name)
        if fault is None or fault.next_retry_ms is None:
            return False
        # A clock that was set back ends the pause.
        return fault.last_ms <= self._clock.now_ms() < fault.next_retry_ms

    def faults(self) -> tuple[Fault, ...]:
        """Return the faults of cleanings, by partition."""
        return tuple(fault for fault in self._faults.all() if fault.task == CLEANER)

    def retain_only(self, compacted: Container[Subject]) -> None:
        """Remove faults of partitions that are no longer compacted."""
        for fault in self._faults.all():
            if fault.task in (CLEANER, CLEANER_RETENTION) and fault.subject not in compacted:
                self._faults.clear_error(fault.task, fault.subject)
