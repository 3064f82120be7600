"""Flush of a log that the waiting tasks share: one sync covers all that appended before it began.

Thread-safety: the tasks of one loop; those of another loop have separate flushes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kafkalog.aio.calls import BlockingCalls
from kafkalog.aio.requests import error_for_task
from kafkalog.log.log import Log

__all__ = ["SharedFlush"]


class SharedFlush:
    """
    Flush of one log.

    Args:
        log: the log.
        calls: threads for blocking calls.
        flush: puts what was appended on the disk.
    """

    def __init__(self, log: Log, calls: BlockingCalls, flush: Callable[[], object]) -> None:
        self._log = log
        self._calls = calls
        self._flush = flush
        # The flush that is running, and the tasks for which it began too early.
        self._running: asyncio.Task[None] | None = None
        self._waiting: list[asyncio.Future[None]] = []

    async def run(self) -> None:
        """
        Put everything that was appended before the call on the disk.

        Raises:
            LogStorageError, LogOfflineError: the disk refused.
        """
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        running = self._running
        if running is not None and running.get_loop() is not loop:
            if not running.get_loop().is_closed():
                await self._calls.run(self._flush)
                return
            running, self._waiting = None, []
        self._waiting.append(waiter)
        if running is None:
            self._running = loop.create_task(self._run_all())
        await waiter

    async def _run_all(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, []
                error: BaseException | None = None
                try:
                    await self._calls.run(self._flush)
                except BaseException as raised:  # noqa: BLE001 - raised by the waiting tasks
                    error = raised
                for waiter in waiting:
                    if waiter.done():
                        continue
                    if error is None:
                        waiter.set_result(None)
                    elif isinstance(error, Exception):
                        waiter.set_exception(error_for_task(error))
                    else:
                        waiter.cancel()
                if error is not None and not isinstance(error, Exception):
                    raise error
        finally:
            self._running = None
            for waiter in self._waiting:
                waiter.cancel()
            self._waiting = []
