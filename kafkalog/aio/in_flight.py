"""Requests of a producer that are not done, in generations: a flush waits for the earlier ones.

A request costs two additions, however many there are: each flush begins a generation, and waits
until all generations before it have ended.

Thread-safety: none; it belongs to the thread of one event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque

__all__ = ["Generation", "InFlight"]


class Generation:
    """
    Requests between two flushes.

    Attributes:
        open_count: number of those that are not done.
        record_count: number of their records.
    """

    __slots__ = ("_ended", "open_count", "record_count")

    def __init__(self) -> None:
        self.open_count = 0
        self.record_count = 0
        self._ended: list[asyncio.Future[None]] = []

    def add(self, record_count: int) -> None:
        """Count a request."""
        self.open_count += 1
        self.record_count += record_count

    def remove(self, record_count: int) -> None:
        """Count the end of a request."""
        self.open_count -= 1
        self.record_count -= record_count

    def wake_at_end(self, waiter: asyncio.Future[None]) -> None:
        """Complete a future once this generation and all before have ended."""
        self._ended.append(waiter)

    def remove_waiter(self, waiter: asyncio.Future[None]) -> None:
        """Forget a future that no task waits for any more."""
        if waiter in self._ended:
            self._ended.remove(waiter)

    def end(self) -> None:
        """Complete the futures."""
        for waiter in self._ended:
            if not waiter.done():
                waiter.set_result(None)


class InFlight:
    """Requests that are not done."""

    def __init__(self) -> None:
        self._generations = deque([Generation()])

    @property
    def record_count(self) -> int:
        """Number of records of requests that are not done."""
        return sum(each.record_count for each in self._generations)

    def add(self, record_count: int) -> Generation:
        """Count a request; return its generation, for `remove`."""
        generation = self._generations[-1]
        generation.add(record_count)
        return generation

    def remove(self, generation: Generation, record_count: int) -> None:
        """Count the end of a request."""
        generation.remove(record_count)
        if not generation.open_count and len(self._generations) > 1:
            self._end_generations()

    async def wait_for_earlier(self, timeout: float | None = None) -> int:
        """
        Wait until all requests before this call are done.

        Args:
            timeout: seconds to wait at most; None for no limit.

        Returns:
            the number of records of those that are not.
        """
        generations = self._generations
        last = generations[-1]
        if last.open_count:
            generations.append(Generation())
        elif len(generations) == 1:
            return 0
        else:
            last = generations[-2]
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        last.wake_at_end(ended)
        try:
            await asyncio.wait([ended], timeout=timeout)
        finally:
            last.remove_waiter(ended)
        return 0 if ended.done() else self._count_up_to(last)

    def _count_up_to(self, last: Generation) -> int:
        count = 0
        for generation in self._generations:
            count += generation.record_count
            if generation is last:
                break
        return count

    def _end_generations(self) -> None:
        while len(self._generations) > 1 and not self._generations[0].open_count:
            self._generations.popleft().end()
