"""Waits for the disk that requests share: one commit covers all that was appended before it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from kafkalog import KafkaLogError, Log, LogManager
from kafkalog.aio import AsyncLogManager

__all__ = ["SharedCommits"]

Failures = Mapping[Log, KafkaLogError]


class SharedCommits:
    """
    Commits of the logs of a manager. A wait during a commit is for the next one.

    Args:
        manager: has the logs.

    Thread-safety: the tasks of one loop.
    """

    def __init__(self, manager: AsyncLogManager) -> None:
        self._manager = manager
        self._waiting: list[tuple[Collection[Log], asyncio.Future[Failures]]] = []
        self._running: asyncio.Task[None] | None = None

    async def wait(self, logs: Collection[Log]) -> Failures:
        """Put what was appended to logs on the disk; return those that failed, with the errors."""
        waiter: asyncio.Future[Failures] = asyncio.get_running_loop().create_future()
        self._waiting.append((logs, waiter))
        if self._running is None:
            self._running = asyncio.create_task(self._commit_all())
        return await waiter

    async def _commit_all(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, []
                failures = await self._commit({log for logs, _ in waiting for log in logs})
                for _, waiter in waiting:
                    if not waiter.done():
                        waiter.set_result(failures)
        finally:
            self._running = None
            for _, waiter in self._waiting:
                waiter.cancel()

    async def _commit(self, logs: set[Log]) -> Failures:
        def commit(manager: LogManager) -> Failures:
            return manager.commit(logs)

        try:
            return await self._manager.run(commit)
        except KafkaLogError as error:
            return dict.fromkeys(logs, error)
