"""Pauses of a thread with much to do, in which the thread of an event loop gets the interpreter.

A thread that runs Python code keeps the interpreter's lock for up to `sys.getswitchinterval()`,
5 ms, while another thread waits for it. A loop that wakes up during such work waits for that
time, and longer with several such threads. A pause of a fraction of a millisecond hands the lock
over: with one busy thread a loop was late by 5.3 ms at the median, and by 0.1 ms with pauses.

They take a fifth of the time of a commit of many logs. So there are none before the first object of
`kafkalog.aio` is made in the process, nor after the last one is gone. And only work counts: while a
thread waits for the disk, or for the interpreter, others have that.

Thread-safety: an object belongs to one thread.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

__all__ = ["PAUSE_SECONDS", "Pace", "paced", "pause_for"]

Item = TypeVar("Item")

# Longest work between two pauses, and the pause: a waiting thread needs about that to wake up.
WORK_SECONDS: Final = 0.0005
PAUSE_SECONDS: Final = 0.00005
# Short pieces of work between two looks at the clock, which takes as long as a piece.
PIECES: Final = 8


class _Loops:
    """Number of objects whose loops other threads must make pauses for."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self.count += count


_loops: Final = _Loops()


def pause_for(user: object) -> None:
    """Let all threads of this library pause as long as an object exists: it works for a loop."""
    _loops.add(1)
    weakref.finalize(user, _loops.add, -1)


class Pace:
    """Clock of the work of the calling thread since its last pause."""

    __slots__ = ("_begun", "_check_at")

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Measure from now on: the thread has waited."""
        self._begun = time.thread_time()
        self._check_at = time.perf_counter() + WORK_SECONDS

    def step(self) -> None:
        """Pause if the thread has worked long enough; to be called between two pieces of work."""
        # The other clock takes longer; it cannot have advanced by more.
        if _loops.count and time.perf_counter() >= self._check_at:
            self._check()

    def _check(self) -> None:
        worked = time.thread_time() - self._begun
        if worked < WORK_SECONDS:
            self._check_at = time.perf_counter() + WORK_SECONDS - worked
            return
        time.sleep(PAUSE_SECONDS)
        self.restart()


def paced(items: Iterable[Item], pace: Pace) -> Iterable[Item]:
    """Return items, each of which is a few microseconds of work, with pauses in between."""
    # A generator takes a third of a microsecond for each.
    return _paced(items, pace) if _loops.count else items


def _paced(items: Iterable[Item], pace: Pace) -> Iterator[Item]:
    for number, item in enumerate(items, 1):
        yield item
        if not number % PIECES:
            pace.step()
