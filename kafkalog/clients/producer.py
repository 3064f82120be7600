"""Producer of topics: collects single records in batches, writes them, and completes futures.

There is no network to wait for, and so no sender thread: the thread that fills a batch writes it. A
scheduler writes batches that are not filled in time (`linger.ms`), retries batches that did not fit
the disk, and with wait="durable" syncs the written batches, with one sync for all of a log.

    send -> partition -> accumulator -> batch full -> Log.append_batches -> futures
                                     -> linger.ms over, flush, close ->

`wait` defines when a record is delivered, as for a log: "written" once the operating system has it,
"durable" once it is synced.

A record goes to a partition as with Kafka's producers. With a key, murmur2 of the key decides: all
records of a key are in one partition. Without a key it sticks to a partition until a batch's worth
of such records went there, and then to another, drawn at random: small batches for every partition
would cost more than they spread.

Thread-safety: any number of threads may send; one thread at a time runs transactions. The lock
guards the tables of topics, tasks and pending batches; the transaction lock is held while a
partition enters a transaction. Neither is held during a write or a sync. Callbacks of futures run
on the thread that wrote the batch, and may send.
"""

from __future__ import annotations

import difflib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from random import Random, SystemRandom
from typing import Final, Self, SupportsIndex

from kafkalog._core.murmur2 import partition_of
from kafkalog._core.timestamps import to_timestamp_ms
from kafkalog.clients.accumulator import (
    Accumulator,
    AccumulatorSettings,
    Acknowledgement,
    BufferMemory,
)
from kafkalog.clients.config import ProducerConfig
from kafkalog.clients.delivery import BatchOutcome, Delivery
from kafkalog.clients.group_offsets import GroupOffsets, offset_records
from kafkalog.clients.offset_records import CommittedOffset
from kafkalog.clients.producer_batch import Identity, ProducerBatch
from kafkalog.clients.source import LogSource
from kafkalog.clients.transactions import (
    Coordinators,
    TransactionCoordinator,
    TransactionSession,
    draw_producer_id,
)
from kafkalog.clock import Clock, SystemClock
from kafkalog.closing import ClosingContextManager
from kafkalog.errors import (
    BufferExhaustedError,
    ClientClosedError,
    InvalidTxnStateError,
    KafkaLogError,
    TransactionAbortedError,
    UnknownTopicOrPartitionError,
)
from kafkalog.forking import forked_error, refuse_in_children
from kafkalog.log.log import Wait
from kafkalog.model import Header, TopicPartition
from kafkalog.records.codecs import Codec
from kafkalog.scheduler import Scheduler, ThreadScheduler

__all__ = ["Producer"]

# More than any delivery takes: `delivery.timeout.ms` ends it, and locks take no longer time.
LONGEST_SECONDS: Final = threading.TIMEOUT_MAX / 2

logger = logging.getLogger(__name__)


class _StickyPartition:
    """
    Current partition of a topic for records without a key.

    Args:
        partition_count: number of partitions of the topic.
        stick_bytes: bytes for one partition before another is drawn.
        random: draws the partitions.

    Thread-safety: every method from any thread; two threads may both draw a partition.

    Attributes:
        partition: the current partition.
    """

    __slots__ = ("_count", "_left_bytes", "_random", "_stick_bytes", "partition")

    def __init__(self, partition_count: int, stick_bytes: int, random: Random) -> None:
        self._count = partition_count
        self._stick_bytes = stick_bytes
        self._random = random
        self.partition = random.randrange(partition_count)
        self._left_bytes = stick_bytes

    def count_record(self, size: int) -> None:
        """Count a record for the current partition; draw another partition if it is full."""
        self._left_bytes -= size
        if self._left_bytes <= 0:
            self._left_bytes = self._stick_bytes
            self.partition = self._random.randrange(self._count)


class _Topic:
    """Topic to which records were sent."""

    __slots__ = ("accumulators", "partitions", "refreshed_ms", "sticky")

    def __init__(
        self, partitions: tuple[int, ...], sticky: _StickyPartition, refreshed_ms: int
    ) -> None:
        self.partitions = partitions
        self.accumulators: list[Accumulator | None] = [None] * (max(partitions) + 1)
        self.sticky = sticky
        self.refreshed_ms = refreshed_ms


class Producer(ClosingContextManager):
    """
    Sender of records to topics, made by `LogManager.producer`.

    >>> with manager.producer() as producer:
    ...     sent = producer.send("orders", b"paid", key=b"4711")
    ...     sent.result().offset

    Args:
        source: the logs.
        config: its settings.
        wait: when a record is delivered: "written" or "durable".
        clock: source of timestamps and times.
        scheduler: runs delayed tasks; a separate thread of the producer if None.
        random: draws producer ids, and partitions for records without a key.
        coordinators: the transaction coordinator, needed with a transactional.id, and the
            positions of groups.

    Raises:
        DiskFullError, LogOfflineError: the transactional.id could not be written to the topic.
    """

    def __init__(
        self,
        source: LogSource,
        config: ProducerConfig | None = None,
        *,
        wait: Wait = "written",
        clock: Clock | None = None,
        scheduler: Scheduler | None = None,
        random: Random | None = None,
        coordinators: Coordinators | None = None,
    ) -> None:
        if wait not in ("written", "durable"):
            raise ValueError(f'wait must be "written" or "durable", got {wait!r}')
        self.config = ProducerConfig() if config is None else config
        self._source = source
        self._clock = SystemClock() if clock is None else clock
        self._own_scheduler = ThreadScheduler(self._clock) if scheduler is None else None
        self._scheduler: Scheduler = self._own_scheduler or scheduler  # type: ignore[assignment]
        self._random = SystemRandom() if random is None else random
        self._lock = threading.Lock()
        self._transaction_lock = threading.Lock()
        self._topics: dict[str, _Topic] = {}
        self._memory = BufferMemory(self.config.buffer_memory)
        # Time, accumulator and number of a batch: the batch itself would keep its records alive.
        self._lingering: deque[tuple[int, Accumulator, int]] = deque()
        self._tasks: set[str] = set()
        self._retrying: set[Accumulator] = set()
        self._unsynced: set[Accumulator] = set()
        # Batches whose futures are not completed.
        self._pending: set[BatchOutcome] = set()
        self._closed = False
        self._is_inherited = False
        self._ignores_keys = self.config.partitioner_ignore_keys
        self._session: TransactionSession | None = None
        coordinators = Coordinators(GroupOffsets(source)) if coordinators is None else coordinators
        self._coordinator = coordinators.transactions
        self._offsets = coordinators.groups
        self._in_transaction = False
        # Set of partitions of the session when the transaction began; after its end it has another.
        self._transaction: set[TopicPartition] = set()
        self._failure: KafkaLogError | None = None
        self._settings = self._accumulator_settings(durable=wait == "durable")
        if self.config.transactional_id:
            if self._coordinator is None:
                raise ValueError("a transactional.id needs a coordinator")
            self._session = self._coordinator.open(
                self.config.transactional_id, self.config.transaction_timeout_ms
            )
        refuse_in_children(self)

    def __repr__(self) -> str:
        return f"<Producer {'closed' if self._closed else 'open'}, {len(self._topics)} topics>"

    def partitions_for(self, topic: str) -> tuple[int, ...]:
        """Return the partitions of a topic."""
        self._ensure_own()
        return self._topic(topic).partitions

    # ------------------------------------------------------------------------------------ sending

    def send(
        self,
        topic: str,
        value: bytes | None = None,
        *,
        key: bytes | None = None,
        headers: Iterable[Header] | None = None,
        timestamp_ms: int | datetime | None = None,
        partition: int | None = None,
    ) -> Delivery:
        """
        Send a record; return the future of its offset.

        Args:
            topic: the topic.
            value: the value; None for a tombstone.
            key: selects the partition, as with Kafka, unless `partition` is given.
            headers: pairs of name and bytes.
            timestamp_ms: or a datetime with a time zone; the time of the clock if None.
            partition: the partition; None to select it by the key, or in turn.

        Raises:
            BufferExhaustedError: `buffer.memory` was full for `max.block.ms`.
            InvalidRecordError: the record cannot be stored.
            InvalidTxnStateError: a producer with a transactional.id has no open transaction.
            ClientClosedError, ForkedLogError: it is closed, or belongs to the parent process.
            KafkaLogError: the topic or partition does not exist, or its log does not open.
        """
        if self._closed:
            raise self._refusal()
        found = self._topics.get(topic) or self._topic(topic)
        if partition is None:
            if key is None or self._ignores_keys:
                sticky = found.sticky
                partition = sticky.partition
                sticky.count_record(len(value or b"") + len(key or b"") + 8)
            else:
                try:
                    partition = partition_of(key, len(found.accumulators))
                except TypeError:
                    raise _no_key(key) from None
        try:
            accumulator = found.accumulators[partition] if partition >= 0 else None
        except IndexError:
            accumulator = None
        if accumulator is None:
            accumulator = self._accumulator(topic, partition)
        if self._session is not None:
            self._enter(accumulator)
        if type(timestamp_ms) is not int:
            timestamp_ms = self._time_of(timestamp_ms)
        headers = None if headers is None else tuple(headers)
        delivery = accumulator.append(key, value, headers, timestamp_ms)
        while delivery is None:
            size = accumulator.bytes_for(len(value or b"") + len(key or b""))
            self._reclaim_memory(accumulator, size)
            delivery = accumulator.append(key, value, headers, timestamp_ms, size)
        if accumulator.closed:
            self._write(accumulator)
        return delivery

    def _refusal(self) -> ClientClosedError:
        self._ensure_own()
        return ClientClosedError(f"{self} takes no records")

    def flush(self, timeout_ms: int | None = None) -> int:
        """
        Deliver all records that were sent before; return the number of undelivered records.

        The number is 0, unless the disk is full: then the call waits for free space, or until the
        batches are given up (`delivery.timeout.ms`).

        Args:
            timeout_ms: longest time to wait; None for no limit.

        Raises:
            ForkedLogError: the producer was made by the process that this one was forked from.
        """
        self._ensure_own()
        with self._lock:
            pending = list(self._pending)
        for accumulator in self._accumulators():
            if accumulator.close_open():
                self._write(accumulator)
        self._sync()
        seconds = LONGEST_SECONDS if timeout_ms is None else timeout_ms / 1000
        deadline = time.monotonic() + seconds
        for outcome in pending:
            # The other batches are with another thread, or wait for free disk space.
            if not outcome.wait(max(deadline - time.monotonic(), 0)):
                return sum(each.record_count for each in self._accumulators())
        return 0

    def close(self, timeout_ms: int | None = None) -> None:
        """
        Deliver all sent records, and refuse more. Idempotent.

        An open transaction is aborted. Records that cannot be delivered in `timeout_ms` get a
        ClientClosedError. In a forked child nothing happens: the records belong to the parent.

        Raises:
            InvalidProducerEpochError, InvalidTxnStateError, LogStorageError: the transaction could
                not be aborted; the producer is closed nevertheless.
        """
        if self._closed:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            if self._in_transaction:
                self._abort()
            self.flush(timeout_ms)
        finally:
            error = ClientClosedError(f"{self}: the record was not delivered before")
            for accumulator in self._accumulators():
                self._complete(accumulator.drop(error))
            if self._session is not None and self._coordinator is not None:
                self._coordinator.close(self._session)
            if self._own_scheduler is not None:
                self._own_scheduler.close()

    # ------------------------------------------------------------------------------- transactions

    def begin_transaction(self) -> None:
        """
        Begin a transaction: records sent from now on are committed together, or not at all.

        Raises:
            InvalidTxnStateError: a transaction is open, or the producer has no transactional.id.
        """
        session, _coordinator = self._require_session()
        if self._in_transaction:
            raise InvalidTxnStateError("a transaction is open already")
        self._failure = None
        self._transaction = session.partitions
        self._in_transaction = True

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, CommittedOffset | int], group: str
    ) -> None:
        """
        Commit positions of a group together with the records of the transaction.

        Args:
            offsets: next offset of each partition, such as `Consumer.positions` returns.
            group: name of the group.

        Raises:
            InvalidTxnStateError: no transaction is open.
            DiskFullError, LogOfflineError: as for an append.
        """
        self._require_transaction()
        topic = self._offsets.topic
        number = topic.ensure_partition_of(group)
        for record in offset_records(group, offsets, self._clock.now_ms()):
            self.send(topic.name, record.value, key=record.key, partition=number)

    def commit_transaction(self, timeout_ms: int | None = None) -> None:
        """
        Commit: readers of committed records see records and positions from now on.

        The records of the transaction are synced when the call returns, with any `wait`. After a
        LogStorageError it may be called again.

        Args:
            timeout_ms: time to wait for a full disk, as for `flush`.

        Raises:
            TransactionAbortedError: a record of it could not be delivered; call
                `abort_transaction`. Or another thread has aborted it, or closed the producer.
            InvalidTxnStateError: no transaction is open.
            InvalidProducerEpochError: another producer has the transactional.id now.
            LogStorageError: the disk failed.
        """
        session, coordinator = self._require_transaction()
        transaction = self._transaction
        left = self.flush(timeout_ms)
        if self._failure is not None or left:
            raise TransactionAbortedError(
                f"a record of the transaction was not delivered: {self._failure}"
            ) from self._failure
        coordinator.commit(session, transaction)
        self._in_transaction = False

    def abort_transaction(self) -> None:
        """
        Abort: readers of committed records never see records and positions of the transaction.

        Raises:
            InvalidTxnStateError: no transaction is open, or it was committed by a call that failed
                later; call `commit_transaction` again.
            InvalidProducerEpochError, LogStorageError: as for `commit_transaction`.
        """
        self._require_transaction()
        self._abort()

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Begin a transaction, and commit it at the end of the block; abort it at an exception."""
        self.begin_transaction()
        try:
            yield self
            self.commit_transaction()
        except BaseException:
            if self._in_transaction:
                try:
                    self.abort_transaction()
                except KafkaLogError as error:
                    # The exception of the block is more important.
                    logger.warning("%s: a transaction could not be aborted: %s", self, error)
            raise

    def become_inherited(self) -> None:
        """
        Refuse to work: this process was forked, and only its parent may use the producer.

        Futures of undelivered records get a ForkedLogError here; the parent delivers them.
        """
        self._closed = self._is_inherited = True
        self._lock, self._transaction_lock = threading.Lock(), threading.Lock()
        error = forked_error(self)
        for outcome in list(self._pending):
            outcome.abandon(error)

    # ------------------------------------------------------------------------------------ private

    def _time_of(self, timestamp: SupportsIndex | datetime | None) -> int:
        return self._clock.now_ms() if timestamp is None else to_timestamp_ms(timestamp)

    def _ensure_own(self) -> None:
        if self._is_inherited:
            raise forked_error(self)

    def _accumulator_settings(self, *, durable: bool) -> AccumulatorSettings:
        config = self.config
        codec = Codec.of_config(config.compression_type)
        return AccumulatorSettings(
            source=self._source,
            clock=self._clock,
            memory=self._memory,
            builders=[],
            batch_size=config.batch_size,
            codec=Codec.NONE if codec is None else codec,
            delivery_timeout_ms=config.delivery_timeout_ms,
            durable=durable,
            transactional=bool(config.transactional_id),
            new_identity=(
                self._draw_identity
                if config.enable_idempotence and not config.transactional_id
                else None
            ),
            on_open=self._opened,
        )

    def _draw_identity(self) -> Identity:
        return Identity(draw_producer_id(self._random), 0)

    def _topic(self, topic: str) -> _Topic:
        """Return a topic with all its current partitions."""
        topics = self._source.topics()
        partitions = tuple(sorted(topics.get(topic, ())))
        if not partitions:
            try:
                self._source.log(topic, 0)
            except UnknownTopicOrPartitionError as error:
                raise UnknownTopicOrPartitionError(_unknown(topic, topics)) from error
            partitions = (0,)
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            found = self._topics.get(topic)
            if found is not None and found.partitions == partitions:
                found.refreshed_ms = now_ms
                return found
            sticky = _StickyPartition(max(partitions) + 1, self.config.batch_size, self._random)
            made = _Topic(partitions, sticky, now_ms)
            if found is not None:
                count = min(len(found.accumulators), len(made.accumulators))
                made.accumulators[:count] = found.accumulators[:count]
            self._topics[topic] = made
            return made

    def _accumulator(self, topic: str, partition: int) -> Accumulator:
        # The topic is read again: the caller may name a partition that was added since.
        self._topic(topic)
        log = self._source.log(topic, partition)
        with self._lock:
            accumulators = self._topics[topic].accumulators
            accumulator = accumulators[partition]
            if accumulator is None:
                where = TopicPartition(topic, partition)
                accumulator = accumulators[partition] = Accumulator(where, log, self._settings)
            return accumulator

    def _accumulators(self) -> list[Accumulator]:
        with self._lock:
            topics = list(self._topics.values())
        return [each for topic in topics for each in topic.accumulators if each is not None]

    def _opened(self, accumulator: Accumulator, batch: ProducerBatch, number: int) -> None:
        due_ms = batch.opened_ms + self.config.linger_ms
        self._lingering.append((due_ms, accumulator, number))
        with self._lock:
            self._pending.add(batch.outcome)
        self._schedule("producer-linger", self._write_lingering, self.config.linger_ms)

    def _schedule(self, name: str, task: Callable[[], object], delay_ms: int) -> None:
        """Schedule a task, unless it is scheduled already."""
        if name in self._tasks:
            return
        with self._lock:
            if name in self._tasks:
                return
            self._tasks.add(name)

        def run() -> None:
            self._tasks.discard(name)
            task()

        self._scheduler.schedule(name, run, delay_ms=delay_ms)

    def _write_lingering(self) -> None:
        now_ms = self._clock.monotonic_ms()
        while self._lingering:
            due_ms, accumulator, number = self._lingering[0]
            if due_ms > now_ms:
                self._schedule("producer-linger", self._write_lingering, due_ms - now_ms)
                return
            self._lingering.popleft()
            if accumulator.close_open(number):
                self._write(accumulator)

    def _write(self, accumulator: Accumulator) -> None:
        now_ms = self._clock.monotonic_ms()
        acknowledged, waiting = accumulator.write(now_ms)
        if waiting is not None:
            with self._lock:
                self._retrying.add(accumulator)
            self._schedule("producer-retry", self._retry, self.config.retry_backoff_ms)
        if self._settings.durable:
            with self._lock:
                self._unsynced.add(accumulator)
            self._schedule("producer-sync", self._sync, 0)
        self._complete(acknowledged)
        topic = accumulator.where.topic
        if now_ms - self._topics[topic].refreshed_ms >= self.config.metadata_max_age_ms:
            with suppress(KafkaLogError):
                self._topic(topic)

    def _retry(self) -> None:
        with self._lock:
            retrying, self._retrying = self._retrying, set()
        for accumulator in retrying:
            self._write(accumulator)

    def _sync(self) -> None:
        with self._lock:
            unsynced, self._unsynced = self._unsynced, set()
        for accumulator in unsynced:
            self._complete(accumulator.sync())

    def _complete(self, acknowledged: Iterable[Acknowledgement]) -> None:
        for outcome, reserved_bytes, info, error in acknowledged:
            if error is not None:
                self._failure = error
                outcome.fail(error)
            elif info is not None:
                outcome.succeed(info.first_offset, info.log_append_time_ms)
            if reserved_bytes:
                with self._lock:
                    self._pending.discard(outcome)
                self._memory.release(reserved_bytes)

    def _reclaim_memory(self, accumulator: Accumulator, size: int) -> None:
        """Reserve memory for a batch: write open batches, then wait for other threads."""
        for each in self._accumulators():
            if each.close_open():
                self._write(each)
            if self._memory.try_reserve(size):
                return
        if not self._memory.reserve(size, self.config.max_block_ms):
            raise BufferExhaustedError(
                f"{accumulator.where}: buffer.memory = {self.config.buffer_memory} was full for "
                f"max.block.ms = {self.config.max_block_ms}"
            )

    def _require_session(self) -> tuple[TransactionSession, TransactionCoordinator]:
        self._ensure_own()
        if self._session is None or self._coordinator is None:
            raise InvalidTxnStateError("a producer without a transactional.id has no transactions")
        if self._closed:
            raise ClientClosedError(f"{self} has no transactions")
        return self._session, self._coordinator

    def _require_transaction(self) -> tuple[TransactionSession, TransactionCoordinator]:
        found = self._require_session()
        if not self._in_transaction:
            raise InvalidTxnStateError("no transaction is open")
        return found

    def _enter(self, accumulator: Accumulator) -> None:
        """Add a partition to the transaction, before its first batch is written there."""
        session, coordinator = self._require_transaction()
        if accumulator.is_in(session.partitions):
            return
        # Only one of many threads does it: the batches are numbered from 0 after it.
        with self._transaction_lock:
            if not accumulator.is_in(session.partitions):
                coordinator.add(session, [accumulator.where])
                accumulator.enter(session.partitions, session.identity)

    def _abort(self) -> None:
        session, coordinator = self._session, self._coordinator
        assert session is not None
        assert coordinator is not None
        error = TransactionAbortedError("the transaction was aborted before this was written")
        for accumulator in self._accumulators():
            self._complete(accumulator.drop(error))
        coordinator.abort(session)
        self._in_transaction = False


def _unknown(topic: str, known: Iterable[str]) -> str:
    nearest = difflib.get_close_matches(topic, sorted(known), n=1, cutoff=0.5)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    return f"topic not found: {topic!r}{hint}"


def _no_key(key: object) -> TypeError:
    return TypeError(f"key must be bytes or None, got {type(key).__name__}")
