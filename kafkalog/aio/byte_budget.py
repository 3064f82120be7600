"""Limit of the bytes that the requests of a producer hold, and the tasks that wait for space.

Requests get space in the order in which they asked for it, so that requests of one task keep their
order. A request above the limit gets it once no other request holds any.

Thread-safety: none; it belongs to the thread of one event loop.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from kafkalog.errors import BufferExhaustedError, KafkaLogError

__all__ = ["ByteBudget"]


class ByteBudget:
    """
    Limit of bytes.

    Args:
        limit_bytes: the limit.

    Attributes:
        pending_bytes: bytes that are reserved.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.pending_bytes = 0
        self._waiting: OrderedDict[asyncio.Future[None], int] = OrderedDict()

    @property
    def available_bytes(self) -> int:
        """Number of bytes that are free; 0 while requests wait for space."""
        if self._waiting:
            return 0
        return max(self.limit_bytes - self.pending_bytes, 0)

    @property
    def waiting_count(self) -> int:
        """Number of requests that wait for space."""
        return len(self._waiting)

    def try_reserve(self, size: int) -> bool:
        """Reserve bytes if they are free and no request waits; return whether they were."""
        if self._waiting or not self._fits(size):
            return False
        self.pending_bytes += size
        return True

    async def reserve(self, size: int, timeout: float) -> None:
        """
        Reserve bytes; wait for them if necessary. A cancelled call has reserved nothing.

        Args:
            size: number of bytes.
            timeout: seconds to wait at most.

        Raises:
            BufferExhaustedError: they were not free in time.
        """
        if self.try_reserve(size):
            return
        if timeout <= 0:
            raise self._exhausted(timeout)
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting[waiter] = size
        timer = loop.call_later(timeout, self._expire, waiter, timeout)
        try:
            await waiter
        except BaseException:
            if self._waiting.pop(waiter, None) is not None:
                self._grant()
            elif not waiter.cancelled() and waiter.exception() is None:
                # Cancelled after it had got the bytes.
                self.release(size)
            raise
        finally:
            timer.cancel()

    def release(self, size: int) -> None:
        """Free reserved bytes."""
        self.pending_bytes -= size
        if self._waiting:
            self._grant()

    def refuse_waiting(self, error: KafkaLogError) -> None:
        """Raise an error from all calls that wait."""
        waiting, self._waiting = self._waiting, OrderedDict()
        for waiter in waiting:
            if not waiter.done():
                waiter.set_exception(error)

    def _fits(self, size: int) -> bool:
        return not self.pending_bytes or self.pending_bytes + size <= self.limit_bytes

    def _grant(self) -> None:
        while self._waiting:
            waiter, size = next(iter(self._waiting.items()))
            if waiter.done():
                # Cancelled: its task removes nothing any more.
                del self._waiting[waiter]
                continue
            if not self._fits(size):
                return
            del self._waiting[waiter]
            self.pending_bytes += size
            waiter.set_result(None)

    def _expire(self, waiter: asyncio.Future[None], timeout: float) -> None:
        if self._waiting.pop(waiter, None) is not None and not waiter.done():
            waiter.set_exception(self._exhausted(timeout))
            # It may have been the first, and larger than the next.
            self._grant()

    def _exhausted(self, timeout: float) -> BufferExhaustedError:
        return BufferExhaustedError(
            f"buffer.memory = {self.limit_bytes} was full for {timeout:g} s: "
            f"{self.pending_bytes} bytes are not delivered"
        )
