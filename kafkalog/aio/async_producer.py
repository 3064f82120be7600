"""`AsyncProducer`: sender of records for the tasks of an event loop.

    send -> bytes reserved -> queue -> Pump (thread) -> Producer -> log, sync -> mailbox -> task

Nothing here waits for a disk, a lock or memory on the loop: a thread calls the blocking `Producer`,
and the results of a commit reach the loop together.

Thread-safety: the tasks of one loop; `aclose` from any loop. Once a loop is closed, another may use
the producer. `pending_bytes` and `available_bytes` may be read from any thread.
"""

from __future__ import annotations

import asyncio
import logging
import math
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Self

from kafkalog.aio.calls import BlockingCalls
from kafkalog.aio.loop_side import LoopSide
from kafkalog.aio.pump import Pump
from kafkalog.aio.receipt import SendReceipt
from kafkalog.aio.records_to_send import PART_BYTES, PART_RECORDS, RecordsToSend, record_bytes
from kafkalog.aio.requests import ProducerCall, Request, SendMany, SendOne, Work
from kafkalog.clients.config import ProducerConfig
from kafkalog.clients.delivery import RecordMetadata
from kafkalog.clients.many_records import SentRange
from kafkalog.clients.offset_records import CommittedOffset
from kafkalog.clients.producer import Producer
from kafkalog.clients.producer_sequence import ProducerSequence
from kafkalog.errors import ClientClosedError, InvalidTxnStateError, KafkaLogError, LogClosedError
from kafkalog.forking import forked_error, refuse_in_children
from kafkalog.model import Header, TopicPartition
from kafkalog.records.packing import TimestampsLike

__all__ = ["AsyncProducer"]

logger = logging.getLogger(__name__)

# Longest time of a timer of asyncio.
LONGEST_SECONDS: Final = 1e8


class AsyncProducer:
    """
    Sender of records to topics, made by `AsyncLogManager.producer`.

    >>> async with manager.producer(wait="durable") as producer:
    ...     ranges = await producer.send_many("orders", keys, values)

    Args:
        open_producer: makes the blocking producer; called by a thread at the first request.
        config: its settings.
        calls: threads for blocking calls.
        writes_at_once: whether batches are written as soon as the thread has no other request.

    Thread-safety: see the module.
    """

    def __init__(
        self,
        open_producer: Callable[[], Producer],
        config: ProducerConfig,
        calls: BlockingCalls,
        *,
        writes_at_once: bool,
    ) -> None:
        self.config = config
        self._calls = calls
        self._pump = Pump(open_producer, writes_at_once=writes_at_once, name=_NAME)
        self._side: LoopSide | None = None
        self._is_closed = False
        self._is_inherited = False
        # Of a producer that is dropped without `aclose` the thread ends.
        weakref.finalize(self, self._pump.end)
        refuse_in_children(self)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "open"
        return f"<AsyncProducer {state}, {self.pending_bytes} bytes pending>"

    @property
    def is_closed(self) -> bool:
        """True if the producer was closed."""
        return self._is_closed

    @property
    def pending_bytes(self) -> int:
        """Number of bytes of records that were sent, and are not delivered."""
        return 0 if self._side is None else self._side.budget.pending_bytes

    @property
    def available_bytes(self) -> int:
        """
        Number of bytes of `buffer.memory` that are free; 0 while calls wait for space.

        A service compares it with the length of a request before it reads its body.
        """
        side = self._side
        return self.config.buffer_memory if side is None else side.budget.available_bytes

    @property
    def waiting_count(self) -> int:
        """Number of calls that wait for space."""
        return 0 if self._side is None else self._side.budget.waiting_count

    async def __aenter__(self) -> Self:
        """
        Open the producer: errors of it are raised here, and not by the first `send`.

        After such an error the producer is closed.
        """
        try:
            await self._call(_nothing)
        except KafkaLogError:
            # No `__aexit__` follows, which would end the thread.
            self._is_closed = True
            self._pump.end()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    # ------------------------------------------------------------------------------------ sending

    async def send(
        self,
        topic: str,
        value: bytes | None = None,
        *,
        key: bytes | None = None,
        headers: Iterable[Header] | None = None,
        timestamp_ms: int | datetime | None = None,
        partition: int | None = None,
        timeout: float | None = None,
        receipt: SendReceipt | None = None,
    ) -> RecordMetadata:
        """
        Send a record; return its position once it is delivered.

        Args:
            topic, value, key, headers, timestamp_ms, partition: as for `Producer.send`.
            timeout: seconds to wait for space in `buffer.memory`; `max.block.ms` if None, 0 for
                none. It does not limit the delivery.
            receipt: shows whether the record was accepted, also after a cancellation.

        Raises:
            BufferExhaustedError: there was no space in time.
            DiskFullError: with `on_full="raise"`, the record does not fit the disk.
            DeliveryTimeoutError: it did not fit for `delivery.timeout.ms`.
            ClientClosedError, ForkedLogError: the producer is closed, or belongs to the parent.
            KafkaLogError: as for `Producer.send`.
        """
        side = self._use_side()
        found = None if headers is None else tuple(headers)
        size = record_bytes(key, value, found)
        if not side.budget.try_reserve(size):
            await self._reserve(side, size, timeout)
        work = SendOne(
            topic,
            value=value,
            key=key,
            headers=found,
            timestamp_ms=timestamp_ms,
            partition=partition,
        )
        sent: RecordMetadata = await self._run(side, work, size, receipt)
        return sent

    async def send_many(
        self,
        topic: str,
        keys: Sequence[bytes | None] | None,
        values: Sequence[bytes | None],
        timestamps: TimestampsLike | None = None,
        headers: Sequence[Iterable[Header] | None] | None = None,
        *,
        partition: int | None = None,
        number: ProducerSequence | None = None,
        timeout: float | None = None,
        receipt: SendReceipt | None = None,
    ) -> list[SentRange]:
        """
        Send many records of a topic; return their offsets once all are delivered.

        All records are checked, and memory for all is reserved, before the first is accepted. The
        records of a call keep their order within each partition, and follow those of earlier calls.
        A call of more than a thousand records, or a mebibyte, is written in parts: records without
        a key may go to one partition for each part.

        Args:
            topic, keys, values, timestamps, headers, partition, number: as for
                `Producer.send_many`, also
                columns of Arrow, and arrays of NumPy that hold bytes. They must not be changed
                until the call returns.
            timeout, receipt: as for `send`.

        Returns:
            partition, first offset and number of the records of each range, in the order of the
            first records of the partitions.

        Raises:
            TypeError, ValueError: a key or value is not bytes, or the columns differ in length; or
                a call with a number has more than one part, or no partition.
            KafkaLogError: as for `send`: the error of the first record that is not in the log.
                The receipt has the ranges that are, and the rows that are not.
        """
        side = self._use_side()
        records = RecordsToSend(keys, values, timestamps, headers)
        if not records.record_count:
            return []
        if records.is_small:
            records.measure()
        else:
            await self._calls.run(records.measure)
        if number is not None and len(records.parts) > 1:
            raise ValueError(
                f"a call with a number must have at most {PART_RECORDS} records and {PART_BYTES}"
                f" bytes, got {records.record_count} and {records.size_bytes}"
            )
        if self._is_closed or not side.budget.try_reserve(records.size_bytes):
            await self._reserve(side, records.size_bytes, timeout)
        work = SendMany(topic, records, partition, number)
        ranges: list[SentRange] = await self._run(side, work, records.size_bytes, receipt)
        return ranges

    async def partitions_for(self, topic: str) -> tuple[int, ...]:
        """Return the partitions of a topic."""
        found: tuple[int, ...] = await self._call(lambda producer: producer.partitions_for(topic))
        return found

    async def flush(self, timeout: float | None = None) -> int:
        """
        Deliver all records that were sent before, also by calls that were cancelled since.

        Args:
            timeout: seconds to wait at most; None for no limit.

        Returns:
            the number of undelivered records: 0, unless the time was over.
        """
        side = self._use_side()
        self._call_later(Producer.write_batches)
        return await side.in_flight.wait_for_earlier(timeout)

    # ------------------------------------------------------------------------------- transactions

    async def begin_transaction(self) -> None:
        """
        Begin a transaction: records sent from now on are committed together, or not at all.

        Raises:
            InvalidTxnStateError: a transaction is open, or the producer has no transactional.id.
        """
        await self._call(Producer.begin_transaction)

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, CommittedOffset | int], group: str
    ) -> None:
        """Commit positions of a group with the transaction; see the method of `Producer`."""
        own = dict(offsets)
        await self._call(lambda producer: producer.send_offsets_to_transaction(own, group))

    async def commit_transaction(self, timeout: float | None = None) -> None:
        """
        Commit: the records of the transaction are synced when the call returns.

        A call that is cancelled after it began commits, or fails, without its task.

        Args:
            timeout: seconds to wait for a full disk; None for no limit but `delivery.timeout.ms`.

        Raises:
            TransactionAbortedError, InvalidTxnStateError, InvalidProducerEpochError,
                LogStorageError: as for `Producer.commit_transaction`.
        """
        timeout_ms = None if timeout is None else int(_checked_timeout(timeout) * 1000)
        await self._call(lambda producer: producer.commit_transaction(timeout_ms))

    async def abort_transaction(self) -> None:
        """Abort: readers of committed records never see the records of the transaction."""
        await self._call(Producer.abort_transaction)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """
        Begin a transaction, and commit it at the end of the block; abort it at an exception.

        A cancelled block is aborted, also during the commit unless it has been decided: the next
        transaction begins after that.
        """
        block = _TransactionBlock()
        try:
            await self._call(block.begin)
            yield self
            await self._call(block.commit)
        except BaseException as error:
            if isinstance(error, Exception):
                try:
                    await self._call(block.abort)
                except ClientClosedError:
                    # The close aborts it.
                    pass
                except asyncio.CancelledError:
                    self._call_later(block.abort)
                    raise
            else:
                self._call_later(block.abort)
            raise

    # ------------------------------------------------------------------------------------ closing

    async def aclose(self, timeout: float | None = None) -> None:
        """
        Deliver all sent records, and refuse more. Idempotent; from any loop.

        Calls that wait for space get a ClientClosedError. An open transaction is aborted. A call
        that is cancelled continues without its task, as does the closing.

        Args:
            timeout: seconds for the deliveries; records that are not delivered then get a
                ClientClosedError. If None, `delivery.timeout.ms` and `max.block.ms` limit it.

        Raises:
            KafkaLogError: as for `Producer.close`; the producer is closed nevertheless.
        """
        if self._is_inherited:
            return
        config = self.config
        seconds = (config.delivery_timeout_ms + config.max_block_ms) / 1000
        if timeout is not None:
            seconds = _checked_timeout(timeout)
        self._is_closed = True
        side = self._side
        is_own_loop = side is not None and side.loop is asyncio.get_running_loop()
        if side is not None and is_own_loop:
            side.budget.refuse_waiting(self._refusal())
        try:
            await self._calls.run(lambda: self._pump.close(seconds))
        except LogClosedError:
            # The manager has closed it.
            return
        if side is not None and is_own_loop:
            # All are done; the loop has not delivered all results yet.
            await side.in_flight.wait_for_earlier()

    def become_inherited(self) -> None:
        """Refuse to work: this process was forked, and only its parent may use the producer."""
        self._is_inherited = self._is_closed = True

    # ------------------------------------------------------------------------------------ private

    def _use_side(self) -> LoopSide:
        """Return the state of the running loop; raise if it may not use the producer."""
        if self._is_closed:
            raise self._refusal()
        loop, side = asyncio.get_running_loop(), self._side
        if side is None or side.loop is not loop:
            if side is not None and not side.loop.is_closed():
                raise RuntimeError(f"{self} belongs to another event loop, which is open")
            side = self._side = LoopSide(loop, self.config.buffer_memory)
        return side

    async def _reserve(self, side: LoopSide, size: int, timeout: float | None) -> None:
        if timeout is None:
            timeout = self.config.max_block_ms / 1000
        if self._is_closed:
            raise self._refusal()
        await side.budget.reserve(size, _checked_timeout(timeout))
        if self._is_closed:
            side.budget.release(size)
            raise self._refusal()

    async def _run(
        self, side: LoopSide, work: Work, size: int, receipt: SendReceipt | None = None
    ) -> Any:
        request, future = side.new_request(work, size)
        if receipt is not None and isinstance(work, SendOne | SendMany):
            receipt.show(request, work)
        self._put(request)
        try:
            return await future
        except asyncio.CancelledError as error:
            error.add_note(_cancellation_note(request))
            raise
        finally:
            # An error refers to this frame, and the future, which the request has, to the error.
            del future, request

    async def _call(self, function: Callable[[Producer], Any]) -> Any:
        return await self._run(self._use_side(), ProducerCall(function), 0)

    def _call_later(self, function: Callable[[Producer], Any]) -> None:
        """Make a call after all earlier requests, and do not wait for it."""
        if not self._is_closed:
            request, future = self._use_side().new_request(ProducerCall(function), 0)
            # No task waits for it.
            future.cancel()
            self._put(request)

    def _put(self, request: Request) -> None:
        try:
            self._pump.put(request)
        except BaseException:
            # The system starts no more threads: the request frees its memory.
            request.try_withdraw()
            raise

    def _refusal(self) -> KafkaLogError:
        if self._is_inherited:
            return forked_error(self)
        return ClientClosedError(f"{self} takes no records")


_NAME: Final = "an AsyncProducer"


def _cancellation_note(request: Request) -> str:
    if request.try_withdraw():
        return "The call had not begun: nothing of it is in the log."
    return "The call had begun, and ends without its task: its records are in the log, or will be."


def _checked_timeout(timeout: float) -> float:
    if math.isnan(timeout) or timeout < 0:
        raise ValueError(f"timeout must be >= 0 s, got {timeout}")
    return min(timeout, LONGEST_SECONDS)


def _nothing(producer: Producer) -> None:
    """Open the producer, and do nothing with it."""


class _TransactionBlock:
    """Transaction of an `async with`: its steps, on the thread of the pump."""

    def __init__(self) -> None:
        self._is_open = False

    def begin(self, producer: Producer) -> None:
        """Begin it."""
        producer.begin_transaction()
        self._is_open = True

    def commit(self, producer: Producer) -> None:
        """Commit it."""
        producer.commit_transaction()
        self._is_open = False

    def abort(self, producer: Producer) -> None:
        """Abort it if it has begun and is not committed; the error of its block comes first."""
        if not self._is_open:
            return
        self._is_open = False
        try:
            producer.abort_transaction()
        except InvalidTxnStateError as error:
            # It was ended within the block, or is committed but for its markers.
            logger.info("a transaction was not aborted: %s", error)
        except KafkaLogError as error:
            logger.warning("a transaction could not be aborted: %s", error)
