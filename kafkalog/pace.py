"""Pauses of threads with much to do, in which the thread of an event loop gets the interpreter.

A thread that runs Python code keeps the interpreter's lock for up to `sys.getswitchinterval()`,
5 ms, while another thread waits for it. A loop that wakes up during such work waits for that
time, and longer with several such threads. A pause of a fraction of a millisecond hands the lock
over: with one busy thread a loop was late by 5.3 ms at the median, and by 0.1 ms with pauses.

Several such threads take turns: one works, the others wait for its pause. Otherwise each pause
of one would be the work of another, and the loop would wait for all of them. A turn is a courtesy
and protects nothing: a thread that does not get it soon, because its holder waits for a disk,
works without. So there are no deadlocks with other locks.

Thread-safety: an object belongs to one thread; the turn is for all threads of the process.
"""

from __future__ import annotations

import os
import threading
import time
from types import TracebackType
from typing import Final, Self

__all__ = ["PAUSE_SECONDS", "Pace"]

# Longest work between two pauses, and the pause: a waiting thread needs about that to wake up.
WORK_SECONDS: Final = 0.0005
PAUSE_SECONDS: Final = 0.00005
# Longest time to wait for the turn: some pieces of work of other threads.
TURN_SECONDS: Final = 0.002


class _Turn:
    """The turn of this process; a new one in a forked child, where no thread would release it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self.lock = threading.Lock()


_TURN: Final = _Turn()


class Pace:
    """
    Work of a thread, with pauses.

    >>> with Pace() as pace:
    ...     for each in work:
    ...         do(each)
    ...         pace.step()
    """

    __slots__ = ("_held", "_pause_at")

    def __init__(self) -> None:
        self._pause_at = 0.0
        self._held: threading.Lock | None = None

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end()

    def begin(self) -> None:
        """Begin to work, after a wait or the first time."""
        lock = _TURN.lock
        if lock.acquire(timeout=TURN_SECONDS):
            self._held = lock
        self._pause_at = time.perf_counter() + WORK_SECONDS

    def end(self) -> None:
        """End the work, or interrupt it for a wait."""
        held, self._held = self._held, None
        if held is not None:
            held.release()

    def step(self) -> None:
        """Pause if the thread has worked long enough; to be called between two pieces of work."""
        if time.perf_counter() >= self._pause_at:
            self.end()
            time.sleep(PAUSE_SECONDS)
            self.begin()
