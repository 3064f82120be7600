"""`AsyncLog`: one partition for the tasks of event loops.

Every call runs in a thread. Appends of one log run in their order, and durable ones share syncs: a
task appends, and then waits for the next sync that covers its records.

Cancellation: an append that had not begun did not happen; otherwise its records are in the log.

Thread-safety: any task of any loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import islice
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

from kafkalog._core.record import Record
from kafkalog._engine.fetch_data import FetchData
from kafkalog.aio.calls import BlockingCalls, Lane
from kafkalog.aio.shared_flush import SharedFlush
from kafkalog.errors import KafkaLogError, LogClosedError
from kafkalog.log.isolation import Isolation
from kafkalog.log.log import Log, Wait
from kafkalog.log.reading import OnCorrupt
from kafkalog.model import AppendInfo, TimestampOffset, TopicPartition

__all__ = ["AsyncLog", "LogOffsets"]

T = TypeVar("T")

# Records that a thread reads in one call of an iteration.
READ_RECORDS: Final = 500
RECORDS_PER_TURN: Final = 100


class LogOffsets(NamedTuple):
    """
    Offsets of a log.

    Attributes:
        log_start_offset, log_end_offset, high_watermark, last_stable_offset, durable_offset: as the
            properties of `Log`.
    """

    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    durable_offset: int


class AsyncLog:
    """
    One partition's records on disk. Made by `kafkalog.aio.open_log` and `AsyncLogManager.log`.

    >>> async with kafkalog.aio.open_log("data/orders-0") as log:
    ...     info = await log.append([Record(key=b"k", value=b"v")], wait="durable")
    ...     values = [record.value async for record in log.records(info.first_offset)]

    Args:
        log: the blocking log.
        calls: threads for blocking calls.
        flush: puts what was appended on the disk.
        close: releases the log, and what was made for it.

    Attributes:
        log: the blocking log, for calls that this class does not have; not on a loop.
    """

    def __init__(
        self,
        log: Log,
        calls: BlockingCalls,
        flush: Callable[[], object],
        close: Callable[[], object] | None = None,
    ) -> None:
        self.log = log
        self._calls = calls
        self._close = close
        self._lane = Lane(calls)
        self._flush = SharedFlush(log, calls, flush)

    def __repr__(self) -> str:
        return f"<AsyncLog of {self.log!r}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition, by the name of the directory."""
        return self.log.topic_partition

    async def offsets(self) -> LogOffsets:
        """Return start, end and other offsets; of a read-only log as another process moved them."""
        log = self.log
        return await self._calls.run(
            lambda: LogOffsets(
                log.log_start_offset,
                log.log_end_offset,
                log.high_watermark,
                log.last_stable_offset,
                log.durable_offset,
            )
        )

    # ----------------------------------------------------------------------------------- appending

    async def append(
        self,
        records: Iterable[Record],
        *,
        wait: Wait = "written",
        timestamp_ms: int | datetime | None = None,
    ) -> AppendInfo:
        """Append records, all of them or none; arguments and errors as for `Log.append`."""
        own = list(records)
        return await self._append(partial(self.log.append, own, timestamp_ms=timestamp_ms), wait)

    async def append_lists(
        self, keys: Any, values: Any, *, wait: Wait = "written", **arguments: Any
    ) -> AppendInfo:
        """
        Append records given as lists; arguments and errors as for `Log.append_lists`.

        The lists must not be changed until the call returns.
        """
        return await self._append(partial(self.log.append_lists, keys, values, **arguments), wait)

    async def append_columns(
        self, *columns: Any, wait: Wait = "written", **arguments: Any
    ) -> AppendInfo:
        """
        Append records given as columns; arguments and errors as for `Log.append_columns`.

        The columns must not be changed until the call returns.
        """
        return await self._append(partial(self.log.append_columns, *columns, **arguments), wait)

    async def append_batches(
        self, data: Any, *, wait: Wait = "written", **arguments: Any
    ) -> AppendInfo:
        """Append encoded batches; arguments and errors as for `Log.append_batches`."""
        return await self._append(partial(self.log.append_batches, data, **arguments), wait)

    async def flush(self) -> int:
        """Put everything appended so far on the disk; return the durable offset."""
        await self._flush.run()
        return self.log.durable_offset

    # ------------------------------------------------------------------------------------- reading

    async def get(self, offset: int, *, isolation: Isolation = "read_uncommitted") -> Record | None:
        """Return the record at an offset; see `Log.get`."""
        return await self._calls.run(lambda: self.log.get(offset, isolation=isolation))

    async def get_many(
        self, offsets: Sequence[int], *, isolation: Isolation = "read_uncommitted"
    ) -> list[Record | None]:
        """Return the record at each offset; see `Log.get_many`."""
        own = list(offsets)
        return await self._calls.run(lambda: self.log.get_many(own, isolation=isolation))

    async def read(
        self, offset: int, max_bytes: int = 1 << 20, *, isolation: Isolation = "read_uncommitted"
    ) -> FetchData:
        """Return whole batches from an offset on; see `Log.read`."""
        return await self._calls.run(lambda: self.log.read(offset, max_bytes, isolation=isolation))

    async def offset_for_timestamp(
        self, timestamp_ms: int | datetime, *, isolation: Isolation = "read_uncommitted"
    ) -> TimestampOffset | None:
        """Return the first record of that time or later; see `Log.offset_for_timestamp`."""
        return await self._calls.run(
            lambda: self.log.offset_for_timestamp(timestamp_ms, isolation=isolation)
        )

    async def records(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        on_corrupt: OnCorrupt = "raise",
        isolation: Isolation = "read_uncommitted",
    ) -> AsyncIterator[Record]:
        """
        Yield records with `start` <= offset < `end`; arguments and errors as for `Log.records`.

        A thread reads some hundred records at a time.
        """
        lane, log = Lane(self._calls), self.log

        def begin() -> Iterator[Record]:
            return log.records(start, end, on_corrupt=on_corrupt, isolation=isolation)

        records = await self._calls.run(begin, lane=lane)
        while True:
            found, error = await self._calls.run(partial(_read_some, records), lane=lane)
            for number, record in enumerate(found, start=1):
                yield record
                if number % RECORDS_PER_TURN == 0:
                    await asyncio.sleep(0)
            if error is not None:
                raise error
            if len(found) < READ_RECORDS:
                return

    # ------------------------------------------------------------------------------------- closing

    async def aclose(self) -> None:
        """
        Flush, checkpoint and release all files. Idempotent.

        A log of a manager is only left: the manager closes it.
        """
        if self._close is not None:
            try:
                await self._calls.run(self._close, lane=self._lane)
            except LogClosedError:
                # It is closed already.
                return

    # ------------------------------------------------------------------------------------- private

    async def _append(self, append: Callable[[], AppendInfo], wait: Wait) -> AppendInfo:
        if wait not in ("written", "durable"):
            raise ValueError(f'wait must be "written" or "durable", got {wait!r}')
        info = await self._calls.run(append, lane=self._lane)
        if wait == "durable" and self.log.durable_offset <= info.last_offset:
            await self._flush.run()
        return info


def _read_some(records: Iterator[Record]) -> tuple[list[Record], KafkaLogError | None]:
    """Return the next records, and the error that follows them."""
    found: list[Record] = []
    try:
        # Not `list`: the records before an error are returned.
        found.extend(islice(records, READ_RECORDS))
    except KafkaLogError as error:
        return found, error
    return found, None
