"""Named background tasks, on a thread of their own or on a clock that a test moves.

A failing task takes nobody with it: its error is kept in `last_error`, handed to `on_error`, and
the task runs again at its next period. A task that ends the very thread, by what is no `Exception`,
does not end the others: another thread takes over, and it is counted.

Thread-safety: every method may be called from any thread. Tasks run one after another, never two at
once. After `fork` the child has no thread; the first task scheduled there starts one.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import os
import threading
import weakref
from collections.abc import Callable
from typing import Final, Protocol

from kafkalog.clock import Clock, SystemClock

__all__ = [
    "ScheduledTask",
    "Scheduler",
    "ThreadScheduler",
    "retry_pause_ms",
    "schedule_while_alive",
]

logger = logging.getLogger(__name__)

# Pause before something that failed is tried again; doubled each time.
RETRY_MS: Final = 1_000
RETRY_MAX_MS: Final = 600_000


def retry_pause_ms(failure_count: int) -> int:
    """Return how long to wait after so many failures in a row, one at least."""
    return min(RETRY_MS << min(failure_count - 1, 20), RETRY_MAX_MS)


class ScheduledTask:
    """
    A task that was handed to a scheduler.

    Attributes:
        name: what it is called in messages.
        period_ms: time between two runs, None for a single run.
        last_error: what its last run raised, None where it went well.
        run_count: how often it ran.
    """

    def __init__(self, name: str, task: Callable[[], object], period_ms: int | None) -> None:
        self.name = name
        self.period_ms = period_ms
        self.last_error: Exception | None = None
        self.run_count = 0
        self._task: Callable[[], object] | None = task

    def __repr__(self) -> str:
        state = "cancelled" if self.is_cancelled else f"ran {self.run_count} times"
        return f"<ScheduledTask {self.name} {state}>"

    @property
    def is_cancelled(self) -> bool:
        """Whether it will not run again."""
        return self._task is None

    def cancel(self) -> None:
        """Run no more; a run that has begun goes on. Idempotent."""
        # The callable often holds a whole log: let it go now, not when its time would have come.
        self._task = None

    def run(self, on_error: Callable[[ScheduledTask, Exception], None] | None) -> None:
        """Run once, unless cancelled; schedulers call this."""
        task = self._task
        if task is None:
            return
        self.run_count += 1
        try:
            task()
        except Exception as error:  # noqa: BLE001 - supervised: kept, told, and tried again
            self.last_error = error
            logger.warning("background task %s failed: %s", self.name, error)
            if on_error is not None:
                self._report(on_error, error)
        else:
            self.last_error = None
        if self.period_ms is None:
            self.cancel()

    def _report(
        self, on_error: Callable[[ScheduledTask, Exception], None], error: Exception
    ) -> None:
        try:
            on_error(self, error)
        except Exception:
            # Whoever listens must not be able to end the thread that all tasks share.
            logger.exception("the error handler failed for background task %s", self.name)


class Scheduler(Protocol):
    """Runs tasks later, and again."""

    def schedule(
        self,
        name: str,
        task: Callable[[], object],
        *,
        delay_ms: int,
        period_ms: int | None = None,
    ) -> ScheduledTask:
        """
        Run `task` once after `delay_ms`, then every `period_ms` if that is given.

        Args:
            name: for messages.
            task: called without arguments; what it returns is dropped.
            delay_ms: before the first run.
            period_ms: from the end of one run to the next; at least 1.
        """
        ...


def schedule_while_alive(
    scheduler: Scheduler, name: str, method: Callable[[], object], period_ms: int
) -> ScheduledTask:
    """Run a method every `period_ms` for as long as its object lives; the task does not hold it."""
    reference = weakref.WeakMethod(method, lambda _: task.cancel())

    def call() -> None:
        found = reference()
        if found is not None:
            found()

    task = scheduler.schedule(name, call, delay_ms=period_ms, period_ms=period_ms)
    return task


class ThreadScheduler:
    """
    A scheduler with one daemon thread, started when the first task comes.

    Args:
        clock: measures delays; the machine's monotonic clock if None.
        on_error: called with every task that failed and its error, on the scheduler's thread.
        thread_name: what the thread is called.

    Attributes:
        replaced_count: threads that a task ended, and others took over from.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        on_error: Callable[[ScheduledTask, Exception], None] | None = None,
        thread_name: str = "kafkalog-scheduler",
    ) -> None:
        self.replaced_count = 0
        self._clock = SystemClock() if clock is None else clock
        self._thread_name = thread_name
        self._on_error = on_error
        self._process = os.getpid()
        self._condition = threading.Condition()
        self._waiting: list[tuple[int, int, ScheduledTask]] = []
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._closed = False

    def schedule(
        self,
        name: str,
        task: Callable[[], object],
        *,
        delay_ms: int,
        period_ms: int | None = None,
    ) -> ScheduledTask:
        """See `Scheduler.schedule`. After `close` the task is returned cancelled."""
        if delay_ms < 0 or (period_ms is not None and period_ms < 1):
            raise ValueError(f"{name}: delay {delay_ms} ms, period {period_ms} ms")
        scheduled = ScheduledTask(name, task, period_ms)
        if os.getpid() != self._process:
            self._restart()
        with self._condition:
            if self._closed:
                scheduled.cancel()
                return scheduled
            self._push(scheduled, delay_ms)
            self._ensure_thread()
            self._condition.notify()
        return scheduled

    @property
    def is_alive(self) -> bool:
        """Whether there is a thread, which works or waits."""
        if os.getpid() != self._process:
            return False
        with self._condition:
            return self._thread is not None and self._thread.is_alive()

    def close(self) -> None:
        """Run no more tasks; wait for the one that is running. Idempotent."""
        thread = self._stop()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def abandon(self) -> None:
        """Run no more tasks, and wait for none: a garbage collection may call it."""
        self._stop()

    def _stop(self) -> threading.Thread | None:
        """Return the thread, which ends behind the task that it runs."""
        if os.getpid() != self._process:
            # The parent's thread may have held the lock when this process was forked off.
            self._restart()
        with self._condition:
            self._closed = True
            self._waiting.clear()
            self._condition.notify()
            thread, self._thread = self._thread, None
        return thread

    def _restart(self) -> None:
        """Forget, in a forked child, the tasks and the thread of the parent."""
        self._process = os.getpid()
        self._condition = threading.Condition()
        self._waiting = []
        self._thread = None
        self._closed = False

    def _push(self, task: ScheduledTask, delay_ms: int) -> None:
        due_ms = self._clock.monotonic_ms() + delay_ms
        heapq.heappush(self._waiting, (due_ms, next(self._numbers), task))

    def _ensure_thread(self) -> None:
        """Start a thread where there is none; the lock is held."""
        if self._thread is None:
            thread = threading.Thread(target=self._work, name=self._thread_name, daemon=True)
            thread.start()
            self._thread = thread

    def _work(self) -> None:
        try:
            while True:
                task = self._next_due()
                if task is None:
                    return
                try:
                    task.run(self._on_error)
                finally:
                    with self._condition:
                        if not (task.is_cancelled or self._closed or task.period_ms is None):
                            self._push(task, task.period_ms)
        except BaseException:
            self._replace_thread()
            raise

    def _replace_thread(self) -> None:
        """Start another thread; this one dies of a task."""
        with self._condition:
            if self._closed or self._thread is not threading.current_thread():
                return
            self.replaced_count += 1
            logger.critical("a task ended the thread %s; another one takes over", self._thread_name)
            # Where the machine gives none now, the next task that is scheduled asks again.
            self._thread = None
            self._ensure_thread()

    def _next_due(self) -> ScheduledTask | None:
        """Wait for the next task whose time has come; None once closed."""
        with self._condition:
            while not self._closed:
                if not self._waiting:
                    self._condition.wait()
                    continue
                due_ms, _number, task = self._waiting[0]
                if task.is_cancelled:
                    heapq.heappop(self._waiting)
                    continue
                remaining_ms = due_ms - self._clock.monotonic_ms()
                if remaining_ms > 0:
                    # The longest wait that every platform's lock takes.
                    self._condition.wait(min(remaining_ms / 1000, threading.TIMEOUT_MAX))
                    continue
                heapq.heappop(self._waiting)
                return task
            return None
