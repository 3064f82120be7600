"""A manual clock, which only a test moves, and a scheduler that runs on it.

Deterministic: tasks run on the thread that advances the scheduler, in the order of their due
times, and of their scheduling where those are equal.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

from kafkalog.scheduler import ScheduledTask

__all__ = ["START_MS", "ManualClock", "ManualScheduler"]

# A round moment in 2023, the one of the examples in the format description.
START_MS = 1_700_000_000_000


class ManualClock:
    """A clock whose two times move together, or apart where a test asks for it."""

    def __init__(self, now_ms: int = START_MS, monotonic_ms: int = 0) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, duration_ms: int) -> None:
        """Let time pass."""
        if duration_ms < 0:
            raise ValueError(f"time does not go back: {duration_ms} ms")
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
        errors: what tasks raised, in order.
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
        if delay_ms < 0 or (period_ms is not None and period_ms < 1):
            raise ValueError(f"{name}: delay {delay_ms} ms, period {period_ms} ms")
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
        """Run what is due now, also what those tasks schedule without delay; return how many."""
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
