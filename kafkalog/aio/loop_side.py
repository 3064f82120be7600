"""State of a producer that belongs to one event loop.

Thread-safety: none; all calls on the thread of the loop.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from kafkalog.aio.byte_budget import ByteBudget
from kafkalog.aio.in_flight import Generation, InFlight
from kafkalog.aio.mailbox import LoopMailbox
from kafkalog.aio.requests import Request, Work

__all__ = ["LoopSide"]


class LoopSide:
    """
    Requests of the tasks of one loop.

    Args:
        loop: the loop.
        limit_bytes: limit of the bytes that undelivered requests hold.

    Attributes:
        loop: the loop.
        budget: the bytes.
        in_flight: the requests that are not done.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, limit_bytes: int) -> None:
        self.loop = loop
        self.budget = ByteBudget(limit_bytes)
        self.in_flight = InFlight()
        self._mailbox = LoopMailbox(loop)

    def new_request(self, work: Work, size: int) -> tuple[Request, asyncio.Future[Any]]:
        """
        Return a request and the future of its task.

        Args:
            work: what is to be done.
            size: bytes that were reserved for it; they are freed at its end.
        """
        generation = self.in_flight.add(work.record_count)
        future = self.loop.create_future()
        on_end = partial(self._end, generation, size, work.record_count)
        return Request(work, future, self._mailbox, on_end), future

    def _end(self, generation: Generation, size: int, record_count: int) -> None:
        if size:
            self.budget.release(size)
        self.in_flight.remove(generation, record_count)
