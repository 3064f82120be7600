"""A cleaner that cleans nothing: it runs callbacks of a test, and answers as a real one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

from kafkalog import Log, TopicPartition
from kafkalog.cleaner.cleaning_result import CleaningStatistics
from kafkalog.cleaner.selection import CleanableRange

__all__ = ["FakeCleaner", "FakeCleaners", "FakeCleaning", "Stage"]

WAIT_SECONDS = 30


@dataclass
class FakeCleaning:
    """The parts of a cleaning's answer that a manager reads."""

    topic_partition: TopicPartition
    first_dirty: int
    end_offset: int
    statistics: CleaningStatistics = field(
        default_factory=lambda: CleaningStatistics(bytes_read=200, bytes_written=50)
    )
    bytes_for_one_pass: int = 1 << 20
    duration_ms: int = 7

    def describe(self) -> str:
        """As in the log."""
        return f"{self.topic_partition} is clean up to {self.end_offset}"


@dataclass
class Stage:
    """
    The actions of a cleaning while it runs.

    Attributes:
        log, span, check, throttle, `tell`: what the cleaner was given.
    """

    log: Log
    span: CleanableRange
    check: Callable[[], None]
    throttle: Callable[[int], object]
    tell: Callable[[Any], object]


class FakeCleaners:
    """
    Makes cleaners, and remembers what they did.

    Attributes:
        made: arguments of each that was made.
        spans: each cleaning that was begun: partition, first dirty and first uncleanable offset.
        play: done within a cleaning.
    """

    def __init__(self) -> None:
        self.made: list[dict[str, Any]] = []
        self.spans: list[tuple[str, int, int]] = []
        self.threads: list[str] = []
        self.play: Callable[[Stage], object] = lambda _stage: None
        self._allocated = WeakSet[FakeCleaner]()

    @property
    def allocated_count(self) -> int:
        """The number of cleaners that a thread still holds, each with its memory."""
        return len(self._allocated)

    def __call__(self, config: object, **arguments: Any) -> FakeCleaner:
        self.made.append({"config": config, **arguments})
        cleaner = FakeCleaner(self, arguments["throttle"])
        self._allocated.add(cleaner)
        return cleaner


class FakeCleaner:
    """One of them."""

    def __init__(self, crew: FakeCleaners, throttle: Callable[[int], object]) -> None:
        self._crew = crew
        self._throttle = throttle

    def clean(
        self,
        log: Log,
        span: CleanableRange,
        *,
        check: Callable[[], None],
        on_progress: Callable[[Any], object],
    ) -> FakeCleaning:
        """Run the callback of the test."""
        name = log.topic_partition
        self._crew.spans.append((str(name), span.first_dirty, span.first_uncleanable))
        self._crew.threads.append(threading.current_thread().name)
        check()
        self._crew.play(Stage(log, span, check, self._throttle, on_progress))
        check()
        return FakeCleaning(name, span.first_dirty, span.first_uncleanable)
