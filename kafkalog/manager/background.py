"""Threads of a manager's background work, so that a slow sync does not delay retention.

One timer thread hands due tasks to worker threads. A worker is started if no worker is idle and
their number is below the limit; otherwise the task waits for a free worker. A task never runs twice
at the same time; different tasks may run at the same time.

After `fork` the child has none of the threads, and none of the tasks.

Thread-safety: every method from any thread.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeVar

from kafkalog.clock import Clock
from kafkalog.scheduler import ScheduledTask, ThreadScheduler

__all__ = ["BackgroundThreads", "started_thread", "taken_from"]

logger = logging.getLogger(__name__)

Item = TypeVar("Item")


def started_thread(name: str, target: Callable[[], object]) -> threading.Thread | None:
    """Return a daemon thread, None where the system starts no more."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


def taken_from(items: deque[Item]) -> Iterator[Item]:
    """Remove and yield items until none is left, in any number of threads."""
    while items:
        try:
            item = items.popleft()
        except IndexError:
            return
        yield item


class BackgroundThreads:
    """
    A `Scheduler` with several daemon threads.

    Args:
        clock: measures delays.
        thread_count: largest number of worker threads, at least 1.

    Attributes:
        thread_count: the same; changed by `set_thread_count`.
    """

    def __init__(self, clock: Clock, thread_count: int) -> None:
        self.thread_count = thread_count
        self._timer = ThreadScheduler(clock)
        self._begin()

    def schedule(
        self,
        name: str,
        task: Callable[[], object],
        *,
        delay_ms: int,
        period_ms: int | None = None,
    ) -> ScheduledTask:
        """See `Scheduler.schedule`. After `close` the task is returned cancelled."""
        if period_ms is not None and period_ms < 1:
            raise ValueError(f"{name}: period must be at least 1 ms, got {period_ms} ms")
        if os.getpid() != self._process:
            # New locks: a thread of the parent may have held the old ones at the fork.
            self._begin()
        scheduled = ScheduledTask(name, task, period_ms)
        self._time(scheduled, delay_ms)
        return scheduled

    def set_thread_count(self, thread_count: int) -> None:
        """Permit another number of threads; surplus threads end once they are idle."""
        self.thread_count = thread_count

    def close(self) -> None:
        """Run no more tasks; wait for those that are running. Idempotent."""
        if os.getpid() != self._process:
            self._begin()
        with self._condition:
            self._is_closed = True
            self._due.clear()
            self._condition.notify_all()
            threads = list(self._threads)
        self._timer.close()
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._condition = threading.Condition()
        self._due: deque[ScheduledTask] = deque()
        self._threads: set[threading.Thread] = set()
        # Threads that are idle or starting.
        self._idle_count = 0
        self._is_closed = False

    def _time(self, scheduled: ScheduledTask, delay_ms: int) -> None:
        """Pass a task to a worker when it is due."""
        timed = self._timer.schedule(
            scheduled.name, lambda: self._hand_over(scheduled), delay_ms=delay_ms
        )
        if timed.is_cancelled:
            scheduled.cancel()

    def _hand_over(self, scheduled: ScheduledTask) -> None:
        with self._condition:
            if scheduled.is_cancelled or self._is_closed:
                return
            self._due.append(scheduled)
            free = self.thread_count - len(self._threads)
            for _ in range(min(len(self._due) - self._idle_count, free)):
                thread = threading.Thread(
                    target=self._work, name="kafkalog-background", daemon=True
                )
                thread.start()
                self._threads.add(thread)
                self._idle_count += 1
            self._condition.notify()

    def _work(self) -> None:
        scheduled = self._next()
        while scheduled is not None:
            try:
                scheduled.run(None)
            except BaseException:
                # An exception outside Exception ends this thread; another one runs the task next.
                logger.critical("background task %s ended its thread", scheduled.name)
                with self._condition:
                    self._threads.discard(threading.current_thread())
                raise
            finally:
                if not scheduled.is_cancelled and scheduled.period_ms is not None:
                    self._time(scheduled, scheduled.period_ms)
            with self._condition:
                self._idle_count += 1
            scheduled = self._next()

    def _next(self) -> ScheduledTask | None:
        """Wait for a due task and return it; None if this thread must end."""
        with self._condition:
            while not self._due:
                if self._is_closed or len(self._threads) > self.thread_count:
                    self._threads.discard(threading.current_thread())
                    self._idle_count -= 1
                    return None
                self._condition.wait()
            self._idle_count -= 1
            return self._due.popleft()
