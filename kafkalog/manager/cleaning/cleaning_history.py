"""What is known of cleanings that ended: their figures, and what they failed at.

A failure is an entry of the manager's fault registry, bound to its partition; the next try comes
after the cleaner's pause at least, and later each time. In Kafka it would be the last try.

Thread-safety: every method from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container
from typing import Final

from kafkalog.cleaner.cleaning import CleaningResult
from kafkalog.clock import Clock
from kafkalog.manager.directory import DataDirectory
from kafkalog.manager.health import Fault, Subject
from kafkalog.manager.registry import ManagedPartition
from kafkalog.manager.supervision import FaultRegistry
from kafkalog.model import TopicPartition
from kafkalog.scheduler import retry_pause_ms

__all__ = ["CLEANER", "CLEANER_RETENTION", "CleaningHistory"]

# What the fault registry calls the cleaning of a log.
CLEANER: Final = "kafka-log-cleaner"
# And the retention of a compacted log in the cleaner's rounds.
CLEANER_RETENTION: Final = "kafka-log-cleaner-retention"


class CleaningHistory:
    """
    The outcomes of cleanings.

    Args:
        faults: keeps what fails.
        clock: dates it.
        backoff_ms: returns the shortest time to the next try.
        on_error: called with a directory and an error that its disk answered with.
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

    @property
    def count(self) -> int:
        """How many cleanings went well."""
        return self._count

    def last(self) -> dict[str, CleaningResult]:
        """Return the last cleaning of each worker, and the last one that was asked for."""
        with self._guard:
            return dict(self._last)

    def record_success(self, worker: str, cleaning: CleaningResult) -> None:
        """Keep the outcome of a cleaning; what its partition failed at before is over."""
        with self._guard:
            self._last[worker] = cleaning
            self._count += 1
        self._faults.clear_error(CLEANER, cleaning.topic_partition)

    def record_failure(self, partition: ManagedPartition, error: BaseException) -> None:
        """Keep what a partition failed at; it is left alone for a while."""
        name = partition.topic_partition
        before = self._faults.get(CLEANER, name)
        failures = 1 if before is None else before.failure_count + 1
        pause_ms = max(self._backoff_ms(), retry_pause_ms(failures))
        self._faults.record_failure(CLEANER, name, error, retry_after_ms=pause_ms)
        self._on_error(partition.directory, error)

    def is_waiting(self, name: TopicPartition) -> bool:
        """Say whether a partition is left alone for now, since it failed."""
        fault = self._faults.get(CLEANER, name)
        if fault is None or fault.next_retry_ms is None:
            return False
        # Not longer where somebody has set the clock back.
        return fault.last_ms <= self._clock.now_ms() < fault.next_retry_ms

    def faults(self) -> tuple[Fault, ...]:
        """Return what fails now, by partition."""
        return tuple(fault for fault in self._faults.all() if fault.task == CLEANER)

    def retain_only(self, compacted: Container[Subject]) -> None:
        """Strike out what was compacted once, and is no longer."""
        for fault in self._faults.all():
            if fault.task in (CLEANER, CLEANER_RETENTION) and fault.subject not in compacted:
                self._faults.clear_error(fault.task, fault.subject)
