"""Mailbox of an event loop: results of other threads, delivered with few wake-ups of the loop.

Results that arrive before the loop runs are delivered together, by one `call_soon_threadsafe`. A
callback of the loop delivers no more than a share of them, and the rest in later callbacks, so that
other tasks run in between. What is posted to a closed loop is dropped.

Thread-safety: `post` from any thread, also while the loop runs; without a lock. A result is added
before the flag is read, and the flag is cleared before results are removed: none is left.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable
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
        self.post_all((result,))

    def post_all(self, results: Iterable[Callable[[], object]]) -> None:
        """Call functions on the loop soon, in their order, as `post` does."""
        self._results.extend(results)
        if self._is_scheduled:
            return
        self._is_scheduled = True
        try:
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:
            # The loop is closed: no task waits for the results.
            self._is_scheduled = False
            self._results.clear()

    def wait_until_delivered(self, timeout: float) -> None:
        """
        Wait until all that was posted before is delivered; not on the thread of the loop.

        Args:
            timeout: seconds to wait at most, as for a loop that is closed or busy.
        """
        if not self._results:
            return
        undelivered = threading.Lock()
        undelivered.acquire()
        self.post(undelivered.release)
        if self._results:
            undelivered.acquire(timeout=timeout)

    def _deliver(self) -> None:
        self._is_scheduled = False
        results = self._results
        for _ in range(min(len(results), RESULTS_MAX)):
            results.popleft()()
        if results:
            self._is_scheduled = True
            self._loop.call_soon(self._deliver)
