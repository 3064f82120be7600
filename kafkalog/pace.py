"""Pauses of a thread with much to do, in which the thread of an event loop gets the interpreter.

A thread that runs Python code keeps the interpreter's lock for up to `sys.getswitchinterval()`,
5 ms, while another thread waits for it. A loop that wakes up during such work waits for that
time, and longer with several such threads. A pause of a fraction of a millisecond hands the lock
over: with one busy thread a loop was late by 5.3 ms at the median, and by 0.1 ms with pauses.

Thread-safety: an object belongs to one thread.
"""

from __future__ import annotations

import time
from typing import Final

__all__ = ["PAUSE_SECONDS", "Pace"]

# Longest work between two pauses, and the pause: a waiting thread needs about that to wake up.
WORK_SECONDS: Final = 0.0005
PAUSE_SECONDS: Final = 0.00005


class Pace:
    """Clock of the work of a thread since its last pause."""

    __slots__ = ("_pause_at",)

    def __init__(self) -> None:
        self._pause_at = time.perf_counter() + WORK_SECONDS

    def restart(self) -> None:
        """Measure from now on: the thread has waited."""
        self._pause_at = time.perf_counter() + WORK_SECONDS

    def step(self) -> None:
        """Pause if the thread has worked long enough; to be called between two pieces of work."""
        if time.perf_counter() >= self._pause_at:
            time.sleep(PAUSE_SECONDS)
            self.restart()
