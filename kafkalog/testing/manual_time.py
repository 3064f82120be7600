"""Time that a test moves: a clock, a scheduler on it, and both as one object for a manager.

Deterministic: tasks run on the thread that advances the scheduler, in the order of their due
times, and of their scheduling where those are equal.

Thread-safety: a clock and a scheduler are advanced by one thread; any thread may read the time and
schedule tasks.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from kafkalog.clock import SystemClock
from kafkalog.scheduler import ScheduledTask, check_times

__all__ = ["START_MS", "ManualClock", "ManualScheduler", "ManualTime"]

# A round moment in 2023, the one of the examples in the format description.
START_MS: Final = 1_700_000_000_000


class ManualClock:
    """A clock whose two times move together, or apart where a test asks for it."""

    def __init__(self, now_ms: int = START_MS, monotonic_ms: int = 0) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms

    def now_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        return self._now_ms

    def monotonic_ms(self) -> int:
        """Return milliseconds since the start of the clock."""
        return self._monotonic_ms

    def advance(self, duration_ms: int) -> None:
        """Let time pass; ValueError for a negative duration."""
        if duration_ms < 0:
            raise ValueError(f"duration must be >= 0 ms, got {duration_ms}")
        self._now_ms += duration_ms
        self._monotonic_ms += duration_ms

    def set_now(self, now_ms: int) -> None:
        """Set the wall clock alone, back too, as an operator may."""
        self._now_ms = now_ms


class ManualScheduler:
    """
    A `Scheduler` whose tasks run when a test advances its clock.

    Attributes:
        clock: the clock it runs on.
        errors: name and error of each run of a task that failed, in order.
    """

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.clock = ManualClock() if clock is None else clock
        self.errors: list[tuple[str, Exception]] = []
        self._waiting: list[tuple[int, int, ScheduledTask]] = []
        self._numbers = itertools.count()

    def schedule(
        self,
        name: str,
        task: Callable[[], object],
        *,
        delay_ms: int,
        period_ms: int | None = None,
    ) -> ScheduledTask:
        """See `kafkalog.scheduler.Scheduler.schedule`."""
        check_times(name, delay_ms, period_ms)
        scheduled = ScheduledTask(name, task, period_ms)
        self._push(scheduled, delay_ms)
        return scheduled

    @property
    def pending(self) -> list[tuple[str, int]]:
        """Name and remaining delay of every task that waits, the next one first."""
        now_ms = self.clock.monotonic_ms()
        waiting = [entry for entry in sorted(self._waiting) if not entry[2].is_cancelled]
        return [(task.name, due_ms - now_ms) for due_ms, _number, task in waiting]

    def run_due(self) -> int:
        """Run the due tasks, and those that they schedule without delay; return their number."""
        count = 0
        while self._waiting and self._waiting[0][0] <= self.clock.monotonic_ms():
            _due_ms, _number, task = heapq.heappop(self._waiting)
            if task.is_cancelled:
                continue
            task.run(self._keep)
            count += 1
            if not task.is_cancelled and task.period_ms is not None:
                self._push(task, task.period_ms)
        return count

    def advance(self, duration_ms: int) -> int:
        """Advance the time, stopping at every due time; return the number of tasks that ran."""
        end_ms = self.clock.monotonic_ms() + duration_ms
        count = self.run_due()
        while self._waiting and self._waiting[0][0] <= end_ms:
            self.clock.advance(max(self._waiting[0][0] - self.clock.monotonic_ms(), 0))
            count += self.run_due()
        self.clock.advance(end_ms - self.clock.monotonic_ms())
        return count

    def _keep(self, task: ScheduledTask, error: Exception) -> None:
        self.errors.append((task.name, error))

    def _push(self, task: ScheduledTask, delay_ms: int) -> None:
        due_ms = self.clock.monotonic_ms() + delay_ms
        heapq.heappush(self._waiting, (due_ms, next(self._numbers), task))


class ManualTime:
    """
    The time of a manager in a test: a `Clock`, and the scheduler of its background tasks.

    The wall clock moves only by `advance` and `set_now`, so that timestamps and retention are
    exact. Waits of a program, such as `Consumer.poll(100)`, end in real time as well: otherwise a
    poll of an empty topic would never return.

    Args:
        start_ms: first time of the wall clock, in milliseconds since 1970-01-01 UTC.

    Attributes:
        scheduler: runs the background tasks of managers when the time advances.
    """

    def __init__(self, start_ms: int = START_MS) -> None:
        self.scheduler = ManualScheduler(ManualClock(start_ms))
        self._machine = SystemClock()
        self._begin_ms = self._machine.monotonic_ms()

    def __repr__(self) -> str:
        return f"<ManualTime {self.now_ms()} ms, {len(self.scheduler.pending)} tasks>"

    def now_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        return self.scheduler.clock.now_ms()

    def monotonic_ms(self) -> int:
        """Return the sum of the advanced time and the time that has really passed."""
        real_ms = self._machine.monotonic_ms() - self._begin_ms
        return self.scheduler.clock.monotonic_ms() + real_ms

    def advance(self, duration: int | timedelta) -> int:
        """
        Let time pass, and run each background task at its due time.

        Args:
            duration: milliseconds, or a timedelta.

        Returns:
            The number of tasks that ran.

        Raises:
            ValueError: the duration is negative.
        """
        return self.scheduler.advance(_milliseconds(duration))

    def jump(self, duration: int | timedelta) -> int:
        """
        Let time pass at once, and run each due task a single time, as after a suspended machine.

        For long durations: the tasks of a manager run 20,000 times on a day, which takes `advance`
        about a second. Arguments, result and errors as for `advance`.
        """
        self.scheduler.clock.advance(_milliseconds(duration))
        return self.scheduler.run_due()

    def set_now(self, now_ms: int) -> None:
        """Set the wall clock alone, back too, as an operator may."""
        self.scheduler.clock.set_now(now_ms)


def _milliseconds(duration: int | timedelta) -> int:
    """Return a duration in milliseconds; ValueError if it is negative."""
    if isinstance(duration, timedelta):
        duration = duration // timedelta(milliseconds=1)
    if duration < 0:
        raise ValueError(f"duration must be >= 0 ms, got {duration}")
    return duration
