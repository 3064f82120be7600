"""Event loops of tests, with a manager of `kafkalog.aio`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import kafkalog
from kafkalog import aio
from kafkalog.aio.pending_open import PendingOpen
from tests.support.held_disk import WAIT_SECONDS, HeldDisk

__all__ = ["Loops", "eventually", "values_of"]

T = TypeVar("T")


class Loops:
    """
    Event loops that use one data directory.

    Args:
        path: the directory.
        disk: its disk.
    """

    def __init__(
        self, path: Path, disk: HeldDisk, config: kafkalog.ManagerConfig | None = None
    ) -> None:
        self.path = path
        self._disk = disk
        self._config = config

    def open(self) -> PendingOpen[aio.AsyncLogManager]:
        """Return the manager, to be awaited or entered."""
        return aio.open_manager([self.path], self._config, filesystem=self._disk.filesystem)

    def run(self, main: Callable[[aio.AsyncLogManager], Awaitable[T]], partitions: int = 3) -> T:
        """Run a coroutine on a new loop, with a manager."""

        async def run() -> T:
            async with self.open() as manager:
                await manager.create_topic("t", partitions, exist_ok=True)
                async with asyncio.timeout(10 * WAIT_SECONDS):
                    return await main(manager)

        return asyncio.run(run())

    def values(self, topic: str = "t") -> list[bytes | None]:
        """Return the values in the partitions of a topic, after the manager was closed."""
        return values_of(self.path, topic)


def values_of(path: Path, topic: str = "t") -> list[bytes | None]:
    """Return the values in the partitions of a topic, one partition after the other."""
    with kafkalog.LogManager([path]) as manager:
        partitions = manager.topics().get(topic, ())
        return [
            record.value for number in partitions for record in manager.log(topic, number).records()
        ]


async def eventually(is_true: Callable[[], bool]) -> None:
    """Let other tasks run until something is true."""
    end = time.monotonic() + WAIT_SECONDS
    while not is_true():
        assert time.monotonic() < end
        await asyncio.sleep(0.002)
