"""Named background tasks, on a separate thread or on a clock that a test controls.

A failing task does not affect the others: its error is kept in `last_error`, passed to `on_error`,
and the task runs again at its next period. A task that ends the thread itself, by an exception that
is not an `Exception`, does not end the others: a new thread replaces it, and it is counted.

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
    "check_times",
    "retry_pause_ms",
    "schedule_while_alive",
]

logger = logging.getLogger(__name__)

# Pause before a failed action is retried; doubled each time.
RETRY_MS: Final = 1_000
RETRY_MAX_MS: Final = 600_000


def retry_pause_ms(failure_count: int) -> int:
    """Return the pause after `failure_count` failures in a row, at least one."""
    return min(RETRY_MS << min(failure_count - 1, 20), RETRY_MAX_MS)


def check_times(name: str, delay_ms: int, period_ms: int | None) -> None:
    """Raise ValueError unless a task may have these times."""
    if delay_ms < 0 or (period_ms is not None and period_ms < 1):
        raise ValueError(
            f"{name}: delay must not be negative and period at least 1 ms, "
            f"got {delay_ms} ms, {period_ms} ms"
        )


class ScheduledTask:
    """
    A task of a scheduler.

    Attributes:
        name: name of the task in messages.
        period_ms: time between two runs, None for a single run.
        last_error: error of its last run, None if that succeeded.
        run_count: number of runs.
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
        """True if the task will not run again."""
        return self._task is None

    def cancel(self) -> None:
        """Stop later runs; a run that has begun continues. Idempotent."""
        # The callable often refers to a whole log: release it now, not at its due time.
        self._task = None

    def run(self, on_error: Callable[[ScheduledTask, Exception], None] | None) -> None:
        """Run once, unless cancelled; schedulers call this."""
        task = self._task
        if task is None:
            return
        self.run_count += 1
        try:
            task()
        except Exception as error:  # noqa: BLE001 - supervised: kept, reported, and retried
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
            # An error handler must not end the thread that all tasks share.
            logger.exception("the error handler failed for background task %s", self.name)


class Scheduler(Protocol):
    """Runs tasks after a delay, once or periodically."""

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
            name: name in messages.
            task: called without arguments; its result is dropped.
            delay_ms: time before the first run.
            period_ms: time from the end of one run to the next; at least 1.
        """
        ...


def schedule_while_alive(
    scheduler: Scheduler, name: str, method: Callable[[], object], period_ms: int
) -> ScheduledTask:
    """Run a method every `period_ms` as long as its object lives; the task does not keep it
    alive."""
    reference = weakref.WeakMethod(method, lambda _: task.cancel())

    def call() -> None:
        found = reference()
        if found is not None:
            found()

    task = scheduler.schedule(name, call, delay_ms=period_ms, period_ms=period_ms)
    return task


class ThreadScheduler:
    """
    A scheduler with one daemon thread, started with the first task.

    Args:
        clock: measures delays; the machine's monotonic clock if None.
        on_error: called with every task that failed and its error, on the scheduler's thread.
        thread_name: name of the thread.

    Attributes:
        replaced_count: number of threads that a task ended, and that were replaced.
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
        self._owner: weakref.ref[object] | None = None

    def schedule(
        self,
        name: str,
        task: Callable[[], object],
        *,
        delay_ms: int,
        period_ms: int | None = None,
    ) -> ScheduledTask:
        """See `Scheduler.schedule`. After `close` the task is returned cancelled."""
        check_times(name, delay_ms, period_ms)
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
        """True if the thread is running or waiting."""
        if os.getpid() != self._process:
            return False
        with self._condition:
            return self._thread is not None and self._thread.is_alive()

    def close(self) -> None:
        """Run no more tasks; wait for the running one. Idempotent."""
        thread = self._stop()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def abandon(self) -> None:
        """Run no more tasks, and do not wait: a garbage collection may call it."""
        self._stop()

    def abandon_after(self, owner: object) -> None:
        """Abandon the tasks once an object is collected: its thread ends without a `close`."""
        self._owner = weakref.ref(owner, lambda _: self.abandon())

    def _stop(self) -> threading.Thread | None:
        """Stop the thread after the task that it runs; return the thread."""
        if os.getpid() != self._process:
            # The parent's thread may have had the lock when this process was forked.
            self._restart()
        with self._condition:
            self._closed = True
            self._waiting.clear()
            self._condition.notify()
            thread, self._thread = self._thread, None
        return thread

    def _restart(self) -> None:
        """Drop, in a forked child, the tasks and the thread of the parent."""
        self._process = os.getpid()
        self._condition = threading.Condition()
        self._waiting = []
        self._thread = None
        self._closed = False

    def _push(self, task: ScheduledTask, delay_ms: int) -> None:
        due_ms = self._clock.monotonic_ms() + delay_ms
        heapq.heappush(self._waiting, (due_ms, next(self._numbers), task))

    def _ensure_thread(self) -> None:
        """Start a thread if there is none; the caller has the lock."""
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
        """Start another thread, because a task ends this one."""
        with self._condition:
            if self._closed or self._thread is not threading.current_thread():
                return
            self.replaced_count += 1
            logger.critical(
                "a task ended the thread %s; another thread replaces it", self._thread_name
            )
            # If no thread can be started now, scheduling the next task tries again.
            self._thread = None
            self._ensure_thread()

    def _next_due(self) -> ScheduledTask | None:
        """Wait for the next task that is due; None once closed."""
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
                    # The longest wait that a lock of every platform supports.
                    self._condition.wait(min(remaining_ms / 1000, threading.TIMEOUT_MAX))
                    continue
                heapq.heappop(self._waiting)
                return task
            return None
