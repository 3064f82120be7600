"""Wake-up of the tasks of a loop by other threads, at most one at a time.

Thread-safety: `notify` from any thread, without a lock; the rest on the loop.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

__all__ = ["WakeUp"]


class WakeUp:
    """Event of a loop that any thread sets."""

    def __init__(self) -> None:
        self._event: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # True from a notification until the next `clear`: another one changes nothing.
        self._is_notified = False

    def clear(self) -> None:
        """Begin to wait on the running loop: notifications from now on end it."""
        loop = asyncio.get_running_loop()
        if self._event is None or self._loop is not loop:
            self._loop, self._event = loop, asyncio.Event()
        self._event.clear()
        self._is_notified = False

    async def wait(self, seconds: float | None) -> None:
        """Wait for a notification since `clear`, at most for a time."""
        assert self._event is not None
        if self._is_notified:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()

    def notify(self) -> None:
        """Wake the task that waits, if there is one."""
        if self._is_notified:
            return
        self._is_notified = True
        loop, event = self._loop, self._event
        if loop is not None and event is not None:
            # A closed loop has no waiting task.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(event.set)
