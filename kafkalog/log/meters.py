"""Meters of a log: what is counted and timed on its paths, for the metrics of its manager.

A log without a manager has meters, too, which nothing reads.

Thread-safety: immutable; counters and histograms as their classes.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Final

from kafkalog._engine.counters import LogCounters
from kafkalog._engine.histogram import Histogram

__all__ = [
    "SIZE_BOUNDS",
    "TIME_BOUNDS_NS",
    "DiskMeters",
    "LogMeters",
    "SyncTimes",
    "size_histogram",
    "timer",
]

# 1, 2 and 5 times the powers of ten: from a microsecond to ten seconds, and one to ten thousand.
_STEPS: Final = (1, 2, 5)
TIME_BOUNDS_NS: Final = (*(step * 10**power for power in range(3, 10) for step in _STEPS), 10**10)
SIZE_BOUNDS: Final = (*(step * 10**power for power in range(4) for step in _STEPS), 10**4)

# Syncs by which `health()` judges a disk.
LATEST_SYNCS: Final = 100
SYNCS_MIN: Final = 10


def timer() -> Histogram:
    """Return a histogram of times in nanoseconds."""
    return Histogram(TIME_BOUNDS_NS)


def size_histogram() -> Histogram:
    """Return a histogram of numbers, as of callers that share a sync."""
    return Histogram(SIZE_BOUNDS)


class SyncTimes:
    """
    Times of the syncs of one data directory, and those that run now.

    A disk that hangs ends no sync: only the running ones show it.

    Attributes:
        histogram: times of all successful syncs.

    Thread-safety: every method from any thread: each changes one entry of a dictionary or a deque.
    """

    def __init__(self) -> None:
        self.histogram = timer()
        self._numbers = itertools.count()
        # Number -> start.
        self._running: dict[int, int] = {}
        # End and duration of the latest.
        self._latest: deque[tuple[int, int]] = deque(maxlen=LATEST_SYNCS)

    def begin(self) -> int:
        """Record the start of a sync; return its number for `end`."""
        number = next(self._numbers)
        self._running[number] = perf_counter_ns()
        return number

    def end(self, number: int, *, has_succeeded: bool = True) -> None:
        """Record the end of a sync."""
        now_ns = perf_counter_ns()
        duration_ns = now_ns - self._running.pop(number, now_ns)
        if has_succeeded:
            self.histogram.observe(duration_ns)
            self._latest.append((now_ns, duration_ns))

    def longest_running_ns(self) -> int:
        """Return the time since the start of the oldest running sync, 0 if none runs."""
        started = list(self._running.values())
        return perf_counter_ns() - min(started) if started else 0

    def slow_ns(self, within_ns: int) -> int:
        """Return the time that one in ten of the latest syncs exceeds; 0 for fewer than ten."""
        now_ns = perf_counter_ns()
        times = sorted(time for end_ns, time in tuple(self._latest) if now_ns - end_ns < within_ns)
        return times[len(times) * 9 // 10 - 1] if len(times) >= SYNCS_MIN else 0


@dataclass(frozen=True, slots=True)
class DiskMeters:
    """
    Times of all logs of one data directory.

    Attributes:
        append: time of one append of 16, with the wait for the log's lock, without a wait for the
            disk.
        open: time of each opening of a log, with its recovery.
        syncs: time of each sync of a log: its files, transaction indexes and names; and of each
            sync of a commit journal.
        commit: time of each wait of a caller for the disk.
        sync_callers: number of callers that each sync of a log served.
        commit_logs: number of logs of each group commit.
        commit_requests: number of requests of each group commit.
    """

    append: Histogram = field(default_factory=timer)
    open: Histogram = field(default_factory=timer)
    syncs: SyncTimes = field(default_factory=SyncTimes)
    commit: Histogram = field(default_factory=timer)
    sync_callers: Histogram = field(default_factory=size_histogram)
    commit_logs: Histogram = field(default_factory=size_histogram)
    commit_requests: Histogram = field(default_factory=size_histogram)


@dataclass(frozen=True, slots=True)
class LogMeters:
    """
    Meters of one log.

    Attributes:
        counters: of the partition; they continue in the next log of it.
        disk: of the data directory.
    """

    counters: LogCounters = field(default_factory=LogCounters)
    disk: DiskMeters = field(default_factory=DiskMeters)
