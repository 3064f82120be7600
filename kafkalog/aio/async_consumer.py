"""`AsyncConsumer`: reader of records for a task of an event loop.

A thread reads the records, a bounded number at a time. The task waits without a thread, and is
woken by the append of another task or thread. All calls of one consumer run one after the other.

Cancellation: a `poll` that is cancelled while a thread reads sets the positions back, so the next
`poll` returns the same records.

Thread-safety: one task at a time reads; other calls from any task of the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from kafkalog._core.record import Record
from kafkalog.aio.calls import BlockingCalls, Lane
from kafkalog.aio.wake_up import WakeUp
from kafkalog.clients.config import ConsumerConfig
from kafkalog.clients.consumer import Consumer, ConsumerRecord
from kafkalog.clients.offset_records import CommittedOffset
from kafkalog.errors import ClientClosedError, LogClosedError
from kafkalog.forking import forked_error, refuse_in_children
from kafkalog.log.log import Wait
from kafkalog.model import TopicPartition

__all__ = ["AsyncConsumer", "Records"]

T = TypeVar("T")
Records = dict[TopicPartition, list[Record]]

# Most records that a thread reads in one call: it keeps the interpreter from the loop.
READ_RECORDS_MAX: Final = 1000
# After so many records of an iteration other tasks run.
RECORDS_PER_TURN: Final = 100


class AsyncConsumer:
    """
    Reader of the records of topics or partitions, made by `AsyncLogManager.consumer`.

    >>> async with manager.consumer("billing", auto_offset_reset="earliest") as consumer:
    ...     await consumer.subscribe("orders")
    ...     async for partition, record in consumer:
    ...         await charge(record.value)
    ...         await consumer.commit()

    Args:
        open_consumer: makes the blocking consumer; called by a thread at the first call.
        config: its settings.
        calls: threads for blocking calls.

    Thread-safety: see the module.
    """

    def __init__(
        self,
        open_consumer: Callable[[], Consumer],
        config: ConsumerConfig,
        calls: BlockingCalls,
    ) -> None:
        self.config = config
        self._open_consumer = open_consumer
        self._calls = calls
        self._lane = Lane(calls)
        self._wake_up = WakeUp()
        self._consumer: Consumer | None = None
        self._is_woken = False
        self._is_closed = False
        self._is_inherited = False
        refuse_in_children(self)

    def __repr__(self) -> str:
        return f"<AsyncConsumer {'closed' if self._is_closed else 'open'}>"

    async def __aenter__(self) -> Self:
        """Open the consumer: errors of it are raised here."""
        await self._call(_nothing)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    # ----------------------------------------------------------------------------------- positions

    async def subscribe(self, *topics: str | Iterable[str]) -> None:
        """Read all partitions of topics, also later ones; see `Consumer.subscribe`."""
        names = [each if isinstance(each, str) else list(each) for each in topics]
        await self._call(lambda consumer: consumer.subscribe(*names))

    async def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Read these partitions; see `Consumer.assign`."""
        names = list(partitions)
        await self._call(lambda consumer: consumer.assign(names))

    async def assignment(self) -> tuple[TopicPartition, ...]:
        """Return the assigned partitions."""
        return await self._call(Consumer.assignment)

    async def pause(self, *partitions: TopicPartition) -> None:
        """Stop reading partitions until `resume`; all if none is named."""
        await self._call(lambda consumer: consumer.pause(*partitions))

    async def resume(self, *partitions: TopicPartition) -> None:
        """Read partitions again; all if none is named."""
        await self._call(lambda consumer: consumer.resume(*partitions))
        self._wake_up.notify()

    async def position(self, partition: TopicPartition) -> int:
        """Return the offset after the last record that was returned."""
        return await self._call(lambda consumer: consumer.position(partition))

    async def positions(self) -> dict[TopicPartition, CommittedOffset]:
        """Return the positions of all partitions, for `commit` or a transaction."""
        return await self._call(Consumer.positions)

    async def lag(self, partition: TopicPartition) -> int:
        """Return the number of offsets from the position to the end of readable records."""
        return await self._call(lambda consumer: consumer.lag(partition))

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the position."""
        await self._call(lambda consumer: consumer.seek(partition, offset))
        self._wake_up.notify()

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue at the log start; in all partitions if none is named."""
        await self._call(lambda consumer: consumer.seek_to_beginning(*partitions))
        self._wake_up.notify()

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue at the end of readable records; in all partitions if none is named."""
        await self._call(lambda consumer: consumer.seek_to_end(*partitions))

    async def seek_to_time(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Continue at the first record of that time or later, or at the end."""
        await self._call(lambda consumer: consumer.seek_to_time(timestamp_ms, *partitions))
        self._wake_up.notify()

    async def committed(self, partition: TopicPartition) -> CommittedOffset | None:
        """Return the committed position of the group; None if it has none."""
        return await self._call(lambda consumer: consumer.committed(partition))

    async def all_committed(self) -> dict[TopicPartition, CommittedOffset]:
        """Return all committed positions of the group; see `Consumer.all_committed`."""
        return await self._call(lambda consumer: consumer.all_committed())

    async def commit(
        self,
        offsets: Mapping[TopicPartition, CommittedOffset | int | None] | None = None,
        *,
        wait: Wait = "written",
    ) -> None:
        """
        Commit positions of the group, all of them or none; see `Consumer.commit`.

        In an `async for` over records the position is after the record that was yielded last.
        """
        own = None if offsets is None else dict(offsets)
        await self._call(lambda consumer: consumer.commit(own, wait=wait))

    # ------------------------------------------------------------------------------------- reading

    async def poll(self, timeout: float | None = 0, max_records: int | None = None) -> Records:
        """
        Return the next records by partition, and set the positions after them.

        Args:
            timeout: seconds to wait for the first record; None for no limit.
            max_records: largest number of records; at most `max.poll.records` and a thousand.

        Raises:
            OffsetOutOfRangeError, NoOffsetForPartitionError, CorruptRecordError: as for
                `Consumer.poll`.
            ClientClosedError, ForkedLogError: it is closed, or belongs to the parent process.
        """
        self._ensure_open()
        count = min(self.config.max_poll_records, READ_RECORDS_MAX, max_records or READ_RECORDS_MAX)
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        while True:
            self._wake_up.clear()
            found, interval_ms = await self._calls.run(
                lambda: self._read(count), undo=self._undo_read, lane=self._lane
            )
            if found or self._is_closed or self._is_woken:
                self._is_woken = False
                return found
            seconds = None if interval_ms is None else interval_ms / 1000
            if deadline is not None:
                left = deadline - loop.time()
                if left <= 0:
                    return found
                seconds = left if seconds is None else min(seconds, left)
            await self._wake_up.wait(seconds)
            if self._is_closed or self._is_woken:
                self._is_woken = False
                return {}

    async def batches(
        self, max_records: int | None = None
    ) -> AsyncIterator[tuple[TopicPartition, list[Record]]]:
        """
        Yield lists of records with their partition as they come, until `aclose` or `wakeup`.

        The positions are after all lists of one `poll`.
        """
        while not self._is_closed:
            found = await self.poll(None, max_records)
            if not found:
                return
            for each in found.items():
                yield each

    async def records(self, timeout: float | None = None) -> AsyncGenerator[ConsumerRecord, None]:
        """
        Yield records as they come; the position is after the record that was yielded last.

        Args:
            timeout: end after so many seconds without a record; None to end with `aclose` or
                `wakeup`.
        """
        while not self._is_closed:
            found = await self.poll(timeout)
            if not found:
                return
            assert self._consumer is not None
            handed_out = self._consumer.hand_out(found)
            try:
                for number, record in enumerate(handed_out, start=1):
                    yield record
                    if number % RECORDS_PER_TURN == 0:
                        await asyncio.sleep(0)
            finally:
                # Records that were not yielded are read again.
                handed_out.close()

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Yield records as they come, until `aclose` or `wakeup`."""
        async with aclosing(self.records()) as records:
            async for record in records:
                yield record

    def wakeup(self) -> None:
        """Make the current or the next waiting `poll` return nothing."""
        self._is_woken = True
        self._wake_up.notify()

    async def aclose(self) -> None:
        """
        Release the logs; with `enable.auto.commit` commit the positions. Idempotent.

        A waiting `poll` returns nothing, and an iteration ends.
        """
        if self._is_inherited or self._is_closed:
            return
        self._is_closed = True
        self._wake_up.notify()
        try:
            await self._calls.run(self._close, lane=self._lane)
        except LogClosedError:
            # The manager was closed.
            return

    def become_inherited(self) -> None:
        """Refuse to work: this process was forked, and only its parent may use the consumer."""
        self._is_inherited = self._is_closed = True

    # ------------------------------------------------------------------------------------- private

    def _ensure_open(self) -> None:
        if self._is_inherited:
            raise forked_error(self)
        if self._is_closed:
            raise ClientClosedError(f"{self} was used after close")

    async def _call(self, function: Callable[[Consumer], T]) -> T:
        self._ensure_open()
        return await self._calls.run(lambda: function(self._opened()), lane=self._lane)

    # In a thread of the lane.

    def _opened(self) -> Consumer:
        if self._consumer is None:
            consumer = self._open_consumer()
            consumer.notify_with(self._wake_up.notify)
            self._consumer = consumer
        return self._consumer

    def _read(self, count: int) -> tuple[Records, int | None]:
        """Return the records that are there, and the longest time to wait for more."""
        consumer = self._opened()
        return consumer.poll(0, count), consumer.look_interval_ms

    def _undo_read(self, read: tuple[Records, int | None]) -> None:
        assert self._consumer is not None
        found, _interval_ms = read
        for partition, records in found.items():
            self._consumer.seek(partition, records[0].offset)

    def _close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()


def _nothing(consumer: Any) -> None:
    """Open the consumer, and do nothing with it."""
