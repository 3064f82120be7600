"""A worker of the cleaner: rounds on a separate thread or on a scheduler.

A round cleans the next log that is due. After a success, the next round follows at once, otherwise
after `log.cleaner.backoff.ms`. A round that raises does not end the rounds: a thread that it ended
is replaced and counted.

Thread-safety: every method from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from kafkalog.clock import Clock
from kafkalog.manager.cleaning.cleaner_buffers import CleanerBuffers
from kafkalog.manager.supervision import FaultRegistry
from kafkalog.scheduler import ScheduledTask, Scheduler, ThreadScheduler

__all__ = ["CleanerWorker"]


class CleanerWorker:
    """
    One worker.

    Args:
        name: name of its thread and of its rounds.
        buffers: cleaner and memory of the worker.
        work: runs one round; returns whether the next round should follow at once.
        faults: gets errors of a round.
        clock: measures pauses.
        scheduler: runs the rounds; if None, the worker starts a thread.
        backoff_ms: returns the pause after a round without work.
    """

    def __init__(
        self,
        name: str,
        buffers: CleanerBuffers,
        work: Callable[[str, CleanerBuffers], bool],
        faults: FaultRegistry,
        clock: Clock,
        scheduler: Scheduler | None,
        backoff_ms: Callable[[], int],
    ) -> None:
        self.name = name
        self._buffers = buffers
        self._work = work
        self._faults = faults
        self._backoff_ms = backoff_ms
        self._own: ThreadScheduler | None = None
        if scheduler is None:
            scheduler = self._own = ThreadScheduler(clock, thread_name=name)
        self._scheduler = scheduler
        self._guard = threading.Lock()
        self._next: ScheduledTask | None = None
        self._is_closed = False

    @property
    def is_alive(self) -> bool:
        """True if a thread runs, or will run, the rounds."""
        return not self._is_closed and (self._own is None or self._own.is_alive)

    @property
    def replaced_count(self) -> int:
        """Number of threads that an error of a round has ended."""
        return 0 if self._own is None else self._own.replaced_count

    def start(self, delay_ms: int) -> None:
        """
        Schedule a round after a delay.

        Raises:
            RuntimeError: the system refuses a thread.
        """
        with self._guard:
            if not self._is_closed:
                self._next = self._scheduler.schedule(self.name, self._round, delay_ms=delay_ms)

    def retire(self) -> None:
        """Run no more rounds after the present one. Waits for nothing."""
        self._end_rounds()
        if self._own is not None:
            # On its own thread, where `close` does not wait for the thread.
            self._own.schedule(self.name, self._own.close, delay_ms=0)

    def close(self) -> None:
        """Run no more rounds; wait for the present one, which the caller has aborted."""
        self._end_rounds()
        if self._own is not None:
            self._own.close()

    def _end_rounds(self) -> None:
        with self._guard:
            self._is_closed = True
            if self._next is not None:
                self._next.cancel()

    def _round(self) -> None:
        pause_ms = max(self._backoff_ms(), 1)
        try:
            if self._work(self.name, self._buffers):
                pause_ms = 0
            else:
                self._buffers.release()
        except BaseException as error:
            self._faults.record_failure(self.name, None, error, retry_after_ms=pause_ms)
            if not isinstance(error, Exception):
                raise
        else:
            self._faults.clear_error(self.name, None)
        finally:
            self.start(pause_ms)
