"""Follower for programs of asyncio: `async for` over the records that another process appends.

All work on files is done in one thread for each follower. The event loop itself watches the
descriptor of the follower, so that an idle follower costs no thread a wake-up, but for the safety
poll.

Cancellation: records that the thread has read for a cancelled call are returned by the next call.

Thread-safety: one task at a time of one loop; `wakeup` from any thread.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Self, TypeVar, Unpack

from kafkalog._core.record import Record
from kafkalog.clients.consumer import LostRecords
from kafkalog.clients.offset_records import CommittedOffset
from kafkalog.errors import ClientClosedError
from kafkalog.files.directories import Paths
from kafkalog.followers.follower import Follower
from kafkalog.followers.options import (
    FollowArguments,
    FollowedRecords,
    FollowOptions,
    make_options,
)
from kafkalog.model import TopicPartition

__all__ = ["AsyncFollower", "follow"]

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")
# A follower without a timeout waits this long, and then again.
_LONGEST_MS = 2**40


class AsyncFollower:
    """
    Follower of logs in a coroutine; made by `follow`.

    >>> async with follow("/data", "orders") as follower:
    ...     async for partition, records, next_offset in follower:
    ...         await process(records)

    It opens at `async with`, or with its first use.

    Args:
        directories: the data directories.
        options: see `kafkalog.follow`. Callbacks are called in the follower's thread.
    """

    def __init__(self, directories: Paths, options: FollowOptions) -> None:
        self._directories = directories
        self._options = options
        self._executor: ThreadPoolExecutor | None = None
        self._follower: Follower | None = None
        self._is_closed = False
        # Of a task that waits.
        self._ready: asyncio.Event | None = None
        # A call of the thread whose result was not returned yet.
        self._pending: asyncio.Future[list[FollowedRecords]] | None = None

    def __repr__(self) -> str:
        if self._is_closed:
            return "<AsyncFollower closed>"
        return f"<AsyncFollower {self._follower or 'not open yet'}>"

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    @property
    def is_closed(self) -> bool:
        """True if the follower was closed."""
        return self._is_closed

    @property
    def lost(self) -> list[LostRecords]:
        """The last ranges that were lost, at most a thousand."""
        return [] if self._follower is None else list(self._follower.lost)

    def partitions(self) -> tuple[TopicPartition, ...]:
        """Return the partitions that are there now, in order; none before it is open."""
        return () if self._follower is None else self._follower.partitions()

    async def positions(self) -> dict[TopicPartition, CommittedOffset]:
        """Return the positions of all partitions; see `Follower.positions`."""
        follower = await self._open()
        pending: list[FollowedRecords] = []
        if self._pending is not None:
            pending = await asyncio.shield(self._pending)
        found = follower.positions()
        # Records that no call has returned yet, since the caller was cancelled.
        for piece in pending:
            found[piece.partition] = CommittedOffset(piece.records[0].offset)
        return found

    async def seek(self, partition: TopicPartition | tuple[str, int], offset: int) -> None:
        """Continue at an offset, as after a corrupt range."""
        follower = await self._open()
        await self._run(partial(follower.seek, partition, offset))

    async def poll(
        self, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[Record]]:
        """Return the next records by partition; see `Follower.poll`."""
        count = self._options.max_records if max_records is None else max_records
        result: dict[TopicPartition, list[Record]] = {}
        for each in await self._poll(timeout_ms, count, pieces_max=self._options.max_records):
            result.setdefault(each.partition, []).extend(each.records)
        return result

    async def pieces(self, timeout_ms: int | None = None) -> AsyncIterator[FollowedRecords]:
        """Yield records as they arrive; see `Follower.pieces`."""
        wait_ms = _LONGEST_MS if timeout_ms is None else timeout_ms
        while not self._is_closed:
            try:
                found = await self._poll(wait_ms, None, pieces_max=1)
            except ClientClosedError:
                return
            if not found:
                return
            for piece in found:
                yield piece

    def __aiter__(self) -> AsyncIterator[FollowedRecords]:
        """Yield records as they arrive, until the follower is closed or woken."""
        return self.pieces()

    def wakeup(self) -> None:
        """Make the current or the next waiting call return nothing; from any thread."""
        if self._follower is not None:
            self._follower.wakeup()

    async def aclose(self) -> None:
        """End a waiting call, and release all files. Idempotent."""
        self._is_closed = True
        follower, executor = self._follower, self._executor
        self._executor = None
        if executor is None:
            return
        if follower is not None:
            while self._ready is not None:
                self._ready.set()
                await asyncio.sleep(0)
            await asyncio.shield(asyncio.wrap_future(executor.submit(follower.close)))
        executor.shutdown(wait=False)

    # ------------------------------------------------------------------------------------ private

    async def _open(self) -> Follower:
        if self._is_closed:
            raise ClientClosedError(f"{self} was used after close")
        if self._follower is None:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(1, "kafkalog-follow")
            opened = self._executor.submit(self._open_now)
            await asyncio.shield(asyncio.wrap_future(opened))
        assert self._follower is not None
        return self._follower

    def _open_now(self) -> None:
        """Open the follower once, in its thread, also for a call that was cancelled."""
        if self._follower is None and not self._is_closed:
            self._follower = Follower(self._directories, self._options)

    async def _run(self, function: Callable[[], _Result]) -> _Result:
        executor = self._executor
        if executor is None:
            raise ClientClosedError(f"{self} was used after close")
        return await asyncio.shield(asyncio.wrap_future(executor.submit(function)))

    async def _poll(
        self, timeout_ms: int, count: int | None, pieces_max: int
    ) -> list[FollowedRecords]:
        follower = await self._open()
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            if self._pending is None:
                if self._executor is None:
                    raise ClientClosedError(f"{self} was used after close")
                call = partial(follower.collect, count, pieces_max)
                self._pending = asyncio.wrap_future(self._executor.submit(call))
            try:
                found = await asyncio.shield(self._pending)
            except asyncio.CancelledError:
                # The next call returns the result.
                raise
            except BaseException:
                self._pending = None
                raise
            self._pending = None
            left = deadline - time.monotonic()
            if follower.clear_wakeup() or found or left <= 0 or self._is_closed:
                return found
            await self._wait(follower, min(left, max(follower.seconds_to_sweep(), 0.0005)))

    async def _wait(self, follower: Follower, seconds: float) -> None:
        """Wait until the follower may find something, or for a time."""
        loop = asyncio.get_running_loop()
        descriptor = follower.fileno()
        self._ready = asyncio.Event()
        loop.add_reader(descriptor, self._ready.set)
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ready.wait(), seconds)
        finally:
            # A descriptor that was readable and is watched again is reported again.
            loop.remove_reader(descriptor)
            self._ready = None


def follow(
    directories: Paths,
    topics: str | Iterable[str] | None = None,
    **arguments: Unpack[FollowArguments],
) -> AsyncFollower:
    """
    Follow logs that another process writes, in a coroutine.

    Args:
        directories, topics, arguments: as for `kafkalog.follow`.

    Raises:
        ValueError, TypeError: an argument is wrong. Errors of the disk are raised by the first use.
    """
    return AsyncFollower(directories, make_options(topics, **arguments))
