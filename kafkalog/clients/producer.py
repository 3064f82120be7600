"""Producer of topics: collects single records in batches, writes them, and completes futures.

    send -> TopicTable -> Accumulator -> batch full -> BatchSender -> Log.append_batches -> futures
                                      -> linger.ms over, flush, close ->

`wait` defines when a record is delivered, as for a log: "written" once the operating system has it,
"durable" once it is synced.

Parts: `TopicTable` (topics, partitions, accumulators), `BatchSender` (writes, retries, syncs
and completes batches), `ProducerTransaction` (with a transactional.id).

Thread-safety: any number of threads may send; one thread at a time runs transactions. The lock
guards the closing alone; no lock is held during a write or a sync. Callbacks of futures run on the
thread that wrote the batch, with "durable" on that which synced it, and may send.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from random import Random, SystemRandom
from typing import Literal, Self, SupportsIndex, TypeAlias

from kafkalog._core.murmur2 import partition_of
from kafkalog._core.record_groups import whole_group
from kafkalog._core.timestamps import to_timestamp_ms
from kafkalog.clients.accumulator import (
    Accumulator,
    AccumulatorSettings,
    BufferMemory,
    IdleBuilders,
    ProducerCounters,
)
from kafkalog.clients.batch_sender import BatchSender, ReportFull, WaitingBatches
from kafkalog.clients.config import ProducerConfig
from kafkalog.clients.delayed_sends import DelayedSends
from kafkalog.clients.delivery import Delivery
from kafkalog.clients.group_offsets import GroupOffsets, offset_records
from kafkalog.clients.many_records import ManyRecords, PartitionRecords, SentMany, list_of
from kafkalog.clients.offset_records import CommittedOffset
from kafkalog.clients.producer_batch import Identity
from kafkalog.clients.producer_sequence import ProducerSequence, draw_producer_id
from kafkalog.clients.producer_transaction import ProducerTransaction
from kafkalog.clients.source import LogSource
from kafkalog.clients.topic_table import TopicTable
from kafkalog.clients.transactions import Coordinators
from kafkalog.clients.written_round import RoundShare, WrittenRound
from kafkalog.clock import Clock, SystemClock
from kafkalog.closing import ClosingContextManager
from kafkalog.errors import (
    ClientClosedError,
    InvalidTxnStateError,
    KafkaLogError,
    TransactionAbortedError,
)
from kafkalog.forking import forked_error, refuse_in_children
from kafkalog.log.log import Wait
from kafkalog.model import Header, TopicPartition
from kafkalog.records.codecs import Codec
from kafkalog.records.packing import TimestampsLike
from kafkalog.scheduler import Scheduler, ThreadScheduler

__all__ = ["DeliveryRules", "OnFull", "Producer"]

# Fate of records that do not fit the disk.
OnFull: TypeAlias = Literal["wait", "raise"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DeliveryRules:
    """
    Rules of deliveries.

    Attributes:
        wait: when a record is delivered: "written" or "durable".
        on_full: records that do not fit the disk "wait" for space, or "raise" from their futures.
        report_full: called with a partition and the error of records that do not fit, and with None
            once records fit, or none wait any more.
        counters: count retries and failures, those of other producers, too; new ones if None.
    """

    wait: Wait = "written"
    on_full: OnFull = "wait"
    report_full: ReportFull | None = None
    counters: ProducerCounters | None = None

    def __post_init__(self) -> None:
        if self.wait not in ("written", "durable"):
            raise ValueError(f'wait must be "written" or "durable", got {self.wait!r}')
        if self.on_full not in ("wait", "raise"):
            raise ValueError(f'on_full must be "wait" or "raise", got {self.on_full!r}')


class PreparedRecords:
    """
    Records of a call that were checked and distributed over partitions.

    Args:
        topic: the topic.
        records: the records.
        shares: those of each partition; None if they are distributed later.
    """

    __slots__ = ("records", "shares", "topic")

    def __init__(
        self,
        topic: str,
        records: ManyRecords,
        shares: Sequence[tuple[Accumulator, PartitionRecords]] | None,
    ) -> None:
        self.topic = topic
        self.records = records
        self.shares = shares


class Producer(ClosingContextManager):
    """
    Sender of records to topics, made by `LogManager.producer`.

    >>> with manager.producer() as producer:
    ...     sent = producer.send("orders", b"paid", key=b"4711")
    ...     sent.result().offset

    Args:
        source: the logs.
        config: its settings.
        rules: when a record is delivered, and what happens on a full disk.
        clock: source of timestamps and times.
        scheduler: runs delayed tasks; two separate threads of the producer if None.
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
        rules: DeliveryRules | None = None,
        clock: Clock | None = None,
        scheduler: Scheduler | None = None,
        random: Random | None = None,
        coordinators: Coordinators | None = None,
    ) -> None:
        self.config = ProducerConfig() if config is None else config
        self._clock = SystemClock() if clock is None else clock
        # Two threads: one writes batches whose time is over while the other waits for the disk.
        own = [] if scheduler else [ThreadScheduler(self._clock), ThreadScheduler(self._clock)]
        self._own_schedulers = own
        for each in own:
            # If it is dropped without `close`: its tasks are done then, because they refer to it.
            each.abandon_after(self)
        random = SystemRandom() if random is None else random
        self._lock = threading.Lock()
        self._closed = False
        self._is_inherited = False
        self._ignores_keys = self.config.partitioner_ignore_keys
        rules = DeliveryRules() if rules is None else rules
        settings = _accumulator_settings(self.config, source, self._clock, random, rules)
        self._memory = settings.memory
        self._settings = settings
        # Without a linger, the records of a call wait for no other call.
        self._writes_at_once = not (
            self.config.linger_ms or settings.transactional or settings.codec is not Codec.NONE
        )
        self._delayed = _delayed_sends(self.config, source, settings)
        self._sender = BatchSender(
            self.config,
            settings,
            scheduler or own[0],
            scheduler or own[1],
            on_write=self._refresh_topic,
            on_failure=self._record_failure,
            on_full=rules.report_full,
        )
        self._topics = TopicTable(
            source, self.config, self._clock, random, self._sender.new_accumulator
        )
        coordinators = Coordinators(GroupOffsets(source)) if coordinators is None else coordinators
        self._offsets = coordinators.groups
        self._transaction: ProducerTransaction | None = None
        if self.config.transactional_id:
            if coordinators.transactions is None:
                raise ValueError("a transactional.id needs a coordinator")
            self._transaction = ProducerTransaction(
                coordinators.transactions,
                self.config.transactional_id,
                self.config.transaction_timeout_ms,
            )
        refuse_in_children(self)

    def __repr__(self) -> str:
        return (
            f"<Producer {'closed' if self._closed else 'open'}, {len(self._topics.by_name)} topics>"
        )

    @property
    def pending_bytes(self) -> int:
        """Number of bytes of `buffer.memory` that undelivered batches have reserved."""
        return self._memory.reserved_bytes

    @property
    def available_bytes(self) -> int:
        """Number of bytes of `buffer.memory` that are free: to shed load before it is read."""
        return max(self._memory.limit_bytes - self._memory.reserved_bytes, 0)

    @property
    def is_closed(self) -> bool:
        """True if the producer was closed."""
        return self._closed

    @property
    def memory_bytes(self) -> int:
        """The largest number of bytes of undelivered batches: `buffer.memory`."""
        return self._memory.limit_bytes

    def waiting(self) -> WaitingBatches:
        """Return the batches that are full or due, and not written: they are retried."""
        return self._sender.waiting()

    def partitions_for(self, topic: str) -> tuple[int, ...]:
        """Return the partitions of a topic."""
        self._ensure_own()
        return self._topics.refresh(topic).partitions

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
        # Inline code: this runs for each record, and a call takes 4 % of it.
        found = self._topics.by_name.get(topic) or self._topics.refresh(topic)
        if partition is None:
            if key is None or self._ignores_keys:
                size = len(value or b"") + len(key or b"") + 8
                partition = found.sticky_partition(size)
            else:
                try:
                    partition = partition_of(key, len(found.accumulators))
                except TypeError:
                    raise _invalid_key(key) from None
        try:
            accumulator = found.accumulators[partition] if partition >= 0 else None
        except IndexError:
            accumulator = None
        if accumulator is None:
            accumulator = self._topics.accumulator(topic, partition)
        if self._transaction is not None:
            self._require_transaction().join(accumulator)
        if type(timestamp_ms) is not int:
            timestamp_ms = self._time_of(timestamp_ms)
        headers = None if headers is None else tuple(headers)
        delivery = accumulator.append(key, value, headers, timestamp_ms)
        while delivery is None:
            size = accumulator.bytes_for(len(value or b"") + len(key or b""))
            self._wait_for_memory(accumulator, size)
            delivery = accumulator.append(key, value, headers, timestamp_ms, size)
        if accumulator.closed:
            self._sender.write(accumulator)
        return delivery

    def send_many(
        self,
        topic: str,
        keys: Sequence[bytes | None] | None,
        values: Sequence[bytes | None],
        *,
        timestamps: TimestampsLike | None = None,
        headers: Sequence[Iterable[Header] | None] | None = None,
        partition: int | None = None,
        number: ProducerSequence | None = None,
    ) -> SentMany:
        """
        Send many records of a topic; return one future for all.

        All records are checked, and memory for all is reserved, before the first is accepted: the
        call accepts all or none. Records with a key go to the partition of the key, in their order;
        the others together to one partition.

        Args:
            topic: the topic.
            keys: bytes or None for each record, or an Arrow array; None for records without keys.
            values: bytes or None for each record, or an Arrow array.
            timestamps: one for all records, or one for each; the time of the clock if None.
            headers: for each record pairs of name and bytes, or None.
            partition: the partition of all records; None to select it by the keys.
            number: producer and sequence of the records, which are one batch then, of any size up
                to `max.message.bytes`; `partition` must be given. If the partition has a batch with
                this number, the result has its offsets, and `is_duplicate`.

        Returns:
            The future of the offsets. Records that are in one batch are stored together or refused
            together; see `SentMany` for a call of which only some records are delivered.

        Raises:
            TypeError, ValueError: a key or value is not bytes, the lists differ in length, or a
                number is given without a partition, or to a producer with a transactional.id.
            BufferExhaustedError, InvalidRecordError, InvalidTxnStateError, ClientClosedError,
                ForkedLogError, KafkaLogError: as for `send`.

        The result raises for a number: OutOfOrderSequenceError if batches before it are missing,
        its subclass DuplicateSequenceError if it is too old to know its offsets, and
        InvalidProducerEpochError if the epoch is fenced.
        """
        if self._closed:
            raise self._refusal()
        if number is not None:
            self._check_numbered(partition)
        if all(each is None for each in (number, partition, headers, timestamps)):
            sent = self._send_delayed(topic, keys, values)
            if sent is not None:
                return sent
        records = ManyRecords(keys, values, headers, timestamps, self._clock.now_ms())
        many = SentMany()
        if not records:
            return many
        shares = self._distributed(topic, records, partition)
        for accumulator, _share in shares if self._transaction is not None else ():
            self._require_transaction().join(accumulator)
        self._accept(shares, many, number, at_once=self._writes_at_once)
        return many

    def prepare_many(
        self, topic: str, keys: Sequence[bytes | None], values: Sequence[bytes | None]
    ) -> PreparedRecords:
        """
        Check records with keys, and return them for `write_prepared`: nothing is accepted yet.

        Raises:
            TypeError, ValueError, KafkaLogError: as for `send_many`.
        """
        if self._closed:
            raise self._refusal()
        records = ManyRecords(keys, values, None, None, self._clock.now_ms())
        if self._delayed is not None:
            # Only checked: they may need no distribution.
            records.for_partition(-1)
            return PreparedRecords(topic, records, None)
        return PreparedRecords(topic, records, self._distributed(topic, records, None))

    def write_prepared(self, prepared: PreparedRecords, between: Callable[[], object]) -> SentMany:
        """
        Send records, and write them now, whatever `linger.ms` is.

        Args:
            prepared: at least one record.
            between: called after each partition, for example to let other threads run.

        Raises:
            BufferExhaustedError, ClientClosedError: as for `send_many`.
            ValueError: the producer has a transactional.id.
        """
        if self._transaction is not None:
            raise ValueError("records of a transaction must be sent by send_many")
        topic, records, shares = prepared.topic, prepared.records, prepared.shares
        if shares is None:
            sent = self._send_delayed(topic, records.keys, records.values)
            if sent is not None:
                return sent
            shares = self._distributed(topic, records, None)
        many = SentMany()
        at_once = self._settings.codec is Codec.NONE
        self._accept(shares, many, None, at_once=at_once, between=between)
        return many

    def _send_delayed(
        self, topic: str, keys: Sequence[bytes | None] | None, values: Sequence[bytes | None]
    ) -> SentMany | None:
        """
        Send records whose logs get them later; None if they must be sent otherwise.

        Raises:
            TypeError, ValueError, KafkaLogError: as for `send_many`.
        """
        # Batches that wait are first: records of a partition keep their order.
        if self._delayed is None or self._sender.has_batches or keys is None:
            return None
        # The caller may change its lists before the commit.
        keys, values = list_of(keys), list_of(values)
        size_bytes = whole_group(keys, values).size_bytes
        if not values:
            return None
        found = self._topics.by_name.get(topic) or self._topics.refresh(topic)
        if not self._memory.try_reserve(size_bytes):
            return None
        call = written = None
        try:
            now_ms = self._clock.now_ms()
            partition_count = len(found.accumulators)
            call = self._delayed.accept(topic, partition_count, keys, values, now_ms, now_ms)
            if call is None:
                return None
            made = WrittenRound(call)
            made.add_reserved(size_bytes)
            many = SentMany()
            many.take(RoundShare(made, 0, len(values)))
            written = made
        finally:
            if written is None:
                self._memory.release(size_bytes)
        self._sender.take_round(written)
        self._sender.end_pass()
        return many

    def _check_numbered(self, partition: int | None) -> None:
        """Raise ValueError if a caller may not number records."""
        if partition is None:
            raise ValueError("partition must be given with a number, got None")
        if self._transaction is not None:
            name = self.config.transactional_id
            raise ValueError(f"number must be None with a transactional.id, got one for {name!r}")

    def _accept(
        self,
        shares: Sequence[tuple[Accumulator, PartitionRecords]],
        many: SentMany,
        number: ProducerSequence | None,
        *,
        at_once: bool,
        between: Callable[[], object] | None = None,
    ) -> None:
        """Reserve memory for all records of a call, then write them, or add them to batches."""
        # A round has a condition: it takes as long as ten small records.
        written = WrittenRound() if at_once and number is None else None
        left_bytes = sum([share.size_bytes for _accumulator, share in shares])
        if not self._memory.try_reserve(left_bytes):
            self._wait_for_memory(shares[0][0], left_bytes)
        try:
            for accumulator, share in shares:
                if between is not None:
                    between()
                left_bytes -= share.size_bytes
                if written is not None and accumulator.write_at_once(share, written):
                    continue
                if number is None:
                    accumulator.extend(share, many)
                else:
                    accumulator.add_numbered(share, many, number)
                if accumulator.closed:
                    self._sender.write(accumulator, is_pass=True)
        finally:
            if left_bytes:
                # The thread was interrupted: records of the other partitions are not accepted.
                self._memory.release(left_bytes)
            if written is not None and written.batches:
                count = sum([share.record_count for _accumulator, share in shares])
                many.take(RoundShare(written, 0, count))
                self._sender.take_round(written)
            self._sender.end_pass()

    def _wait_for_memory(self, accumulator: Accumulator, size: int) -> None:
        """Reserve memory; raise ClientClosedError if the producer was closed in the meantime."""
        self._sender.reserve_memory(accumulator, size)
        if self._closed:
            self._memory.release(size)
            raise self._refusal()

    def _distributed(
        self, topic: str, records: ManyRecords, partition: int | None
    ) -> list[tuple[Accumulator, PartitionRecords]]:
        """Return the records of a call with their accumulators."""
        found = self._topics.by_name.get(topic) or self._topics.refresh(topic)
        if partition is not None:
            shares = records.for_partition(partition)
        elif records.keys is None or self._ignores_keys:
            shares = records.for_partition(-1)
        else:
            shares = records.by_partition(len(found.accumulators))
        distributed = []
        if len(shares) > 1:
            shares.sort(key=_partition_of)
        for number, share in shares:
            if number < 0 and partition is None:
                number = found.sticky_partition(share.size_bytes)
            accumulators = found.accumulators
            accumulator = accumulators[number] if 0 <= number < len(accumulators) else None
            if accumulator is None:
                accumulator = self._topics.accumulator(topic, number)
            distributed.append((accumulator, share))
        return distributed

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
        return self._sender.flush(timeout_ms)

    def write_batches(self, between: Callable[[], object] | None = None) -> None:
        """
        Write all batches that are being filled, before `linger.ms` is over.

        It waits neither for the disk nor for space on it: see the futures, or `flush`. It costs
        time for the partitions of these batches only, whereas `flush` looks at all partitions.

        Args:
            between: called after the batches of each partition, for example to let other threads
                run.

        Raises:
            ForkedLogError: the producer was made by the process that this one was forked from.
        """
        self._ensure_own()
        self._sender.write_open(_nothing if between is None else between)

    @contextmanager
    def group(self, between: Callable[[], object] | None = None) -> Iterator[None]:
        """
        Write what the block sends by its end; with wait="durable" commit it together.

        For a thread that collects the requests of others: it commits at the end of the block, and
        has no need of another thread, unless it is the main thread, which a signal may interrupt
        anywhere. It waits for the commit, but not for space on a full disk: see the futures, which
        are done after the block. One thread at a time uses it.

        >>> with producer.group():
        ...     sent = producer.send_many("orders", keys, values)
        >>> ranges = sent.result()

        Args:
            between: called between two pieces of work, for example to let other threads run.

        Raises:
            ForkedLogError: the producer was made by the process that this one was forked from.
        """
        self._ensure_own()
        self._sender.begin_round()
        try:
            yield
        finally:
            self._sender.end_round(_nothing if between is None else between)

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
        transaction = self._transaction
        try:
            if transaction is not None and transaction.is_open:
                self._abort(transaction)
            self.flush(timeout_ms)
        finally:
            for each in self._own_schedulers:
                each.close()
            error = ClientClosedError(f"{self}: the record was not delivered before")
            self._sender.drop(error, is_last=True)
            if transaction is not None:
                transaction.close()

    # ------------------------------------------------------------------------------- transactions

    def begin_transaction(self) -> None:
        """
        Begin a transaction: records sent from now on are committed together, or not at all.

        Raises:
            InvalidTxnStateError: a transaction is open, or the producer has no transactional.id.
        """
        self._require_transactional().begin()

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
        transaction = self._require_transaction()
        begun = transaction.begun
        transaction.commit(begun, self.flush(timeout_ms))

    def abort_transaction(self) -> None:
        """
        Abort: readers of committed records never see records and positions of the transaction.

        Raises:
            InvalidTxnStateError: no transaction is open, or it was committed by a call that failed
                later; call `commit_transaction` again.
            InvalidProducerEpochError, LogStorageError: as for `commit_transaction`.
        """
        self._abort(self._require_transaction())

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Begin a transaction, and commit it at the end of the block; abort it at an exception."""
        self.begin_transaction()
        try:
            yield self
            self.commit_transaction()
        except BaseException:
            if self._transaction is not None and self._transaction.is_open:
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
        self._lock = threading.Lock()
        if self._transaction is not None:
            self._transaction.become_inherited()
        self._sender.become_inherited(forked_error(self))

    # ------------------------------------------------------------------------------------ private

    def _time_of(self, timestamp: SupportsIndex | datetime | None) -> int:
        return self._clock.now_ms() if timestamp is None else to_timestamp_ms(timestamp)

    def _ensure_own(self) -> None:
        if self._is_inherited:
            raise forked_error(self)

    def _refresh_topic(self, topic: str, now_ms: int) -> None:
        self._topics.refresh_if_old(topic, now_ms)

    def _record_failure(self, error: KafkaLogError) -> None:
        if self._transaction is not None:
            self._transaction.record_failure(error)

    def _require_transactional(self) -> ProducerTransaction:
        self._ensure_own()
        if self._transaction is None:
            raise InvalidTxnStateError("a producer without a transactional.id has no transactions")
        if self._closed:
            raise ClientClosedError(f"{self} has no transactions")
        return self._transaction

    def _require_transaction(self) -> ProducerTransaction:
        transaction = self._require_transactional()
        transaction.ensure_open()
        return transaction

    def _abort(self, transaction: ProducerTransaction) -> None:
        error = TransactionAbortedError("the transaction was aborted before this was written")
        self._sender.drop(error)
        transaction.abort()


def _partition_of(share: tuple[int, PartitionRecords]) -> int:
    return share[0]


def _delayed_sends(
    config: ProducerConfig, source: LogSource, settings: AccumulatorSettings
) -> DelayedSends | None:
    """Return what sends records that logs get later; None if this producer sends none."""
    commits = source.delayed_commits
    is_plain = not settings.transactional and settings.codec is Codec.NONE
    if commits is None or not settings.durable or not is_plain or config.partitioner_ignore_keys:
        return None
    return DelayedSends(commits, source)


def _nothing() -> None:
    """Do nothing between two partitions."""


def _invalid_key(key: object) -> TypeError:
    return TypeError(f"key must be bytes or None, got {type(key).__name__}")


def _accumulator_settings(
    config: ProducerConfig,
    source: LogSource,
    clock: Clock,
    random: Random,
    rules: DeliveryRules,
) -> AccumulatorSettings:
    def draw_identity() -> Identity:
        return Identity(draw_producer_id(random), 0)

    is_numbered = config.enable_idempotence and not config.transactional_id
    codec = Codec.of_config(config.compression_type)
    return AccumulatorSettings(
        source=source,
        clock=clock,
        memory=BufferMemory(config.buffer_memory),
        builders=IdleBuilders(),
        batch_size=config.batch_size,
        codec=Codec.NONE if codec is None else codec,
        delivery_timeout_ms=config.delivery_timeout_ms,
        durable=rules.wait == "durable",
        raises_when_full=rules.on_full == "raise",
        transactional=bool(config.transactional_id),
        new_identity=draw_identity if is_numbered else None,
        counters=ProducerCounters() if rules.counters is None else rules.counters,
    )
