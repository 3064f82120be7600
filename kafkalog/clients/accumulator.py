"""The records of one partition on their way into its log: filled into batches, written in order.

Who fills a batch writes it: that is the back-pressure of a log that takes what it is given, and it
costs no switch of threads. What waits is a batch that the disk has no room for, with those behind
it, and with wait="durable" those that are written and not yet on the disk.

Batches are numbered when they are written, and the numbers used up when that went well. So a batch
that is tried again has its numbers again, and one that is given up leaves no gap. Where nobody
knows whether a batch was written (the disk failed under it), its numbers must not come again with
other records: the log would take them for those. The partition goes on under another producer id.

Thread-safety: every method from any thread. The lock is held while a batch is encoded and written,
never while the disk is waited for or a future is told: that is left to the caller.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kafkalog._core.builder import BatchBuilder
from kafkalog.clients.delivery import BatchOutcome, Delivery
from kafkalog.clients.producer_batch import Identity, ProducerBatch
from kafkalog.clients.source import LogSource
from kafkalog.clock import Clock
from kafkalog.errors import (
    DeliveryTimeoutError,
    KafkaLogError,
    LogClosedError,
    LogOfflineError,
    LogStorageError,
    OutOfOrderSequenceError,
    RecordValidationError,
)
from kafkalog.log.log import Log
from kafkalog.model import AppendInfo, Header, TopicPartition
from kafkalog.records.codecs import Codec

__all__ = ["Accumulator", "AccumulatorSettings", "Acknowledgement", "BufferMemory"]

# More than the lengths, deltas and attributes of any record without headers take.
RECORD_OVERHEAD: Final = 24
# Builders that wait to be used again, over all partitions: each is as large as a batch.
IDLE_BUILDERS_MAX: Final = 64
SEQUENCE_MASK: Final = 2**31 - 1


class BufferMemory:
    """
    A number of bytes, some of them taken.

    Args:
        limit_bytes: how many there are.

    A batch that alone is larger than all of them is let through when nothing else is on its way.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._reserved_bytes = 0
        self._freed = threading.Condition()

    @property
    def reserved_bytes(self) -> int:
        """How many are taken."""
        return self._reserved_bytes

    def try_reserve(self, size: int) -> bool:
        """Take bytes if they are there; say whether they were."""
        with self._freed:
            return self._try_reserve(size)

    def reserve(self, size: int, timeout_ms: int) -> bool:
        """Take bytes, waiting for them that long; say whether they came."""
        with self._freed:
            return self._freed.wait_for(
                lambda: self._try_reserve(size), min(timeout_ms / 1000, threading.TIMEOUT_MAX)
            )

    def release(self, size: int) -> None:
        """Give bytes back."""
        with self._freed:
            self._reserved_bytes -= size
            self._freed.notify_all()

    def _try_reserve(self, size: int) -> bool:
        if self._reserved_bytes and self._reserved_bytes + size > self.limit_bytes:
            return False
        self._reserved_bytes += size
        return True


@dataclass(frozen=True, slots=True)
class AccumulatorSettings:
    """
    What the accumulators of a producer share.

    Attributes:
        source: the logs.
        clock: says when batches begin.
        memory: how much may be on its way.
        builders: those that are not in use.
        batch_size: of a batch before compression.
        codec: of the batches.
        delivery_timeout_ms: when a batch that the disk has no room for is given up.
        durable: whether a record is told when it is on the disk, or when it is written.
        transactional: whether batches belong to transactions.
        new_identity: gives the numbers of a partition another owner; None where the producer
            decides it, or nothing is numbered.
        on_open: told of each batch that begins, and its number, with the lock held.
    """

    source: LogSource
    clock: Clock
    memory: BufferMemory
    builders: list[BatchBuilder]
    batch_size: int
    codec: Codec
    delivery_timeout_ms: int
    durable: bool
    transactional: bool
    new_identity: Callable[[], Identity] | None
    on_open: Callable[[Accumulator, ProducerBatch, int], object]


class Acknowledgement(NamedTuple):
    """A batch whose records' futures may be told; `error` is None where it is in the log."""

    outcome: BatchOutcome
    reserved_bytes: int
    info: AppendInfo | None
    error: KafkaLogError | None


class Accumulator:
    """
    The way into one partition.

    Args:
        where: the partition.
        log: its log.
        settings: what all accumulators share.

    Attributes:
        closed: batches that are to be written, in order.
    """

    def __init__(self, where: TopicPartition, log: Log, settings: AccumulatorSettings) -> None:
        self.where = where
        self.log = log
        self.closed: deque[ProducerBatch] = deque()
        self._transaction: object = None
        self._settings = settings
        self._lock = threading.Lock()
        self._open: ProducerBatch | None = None
        self._open_number = 0
        self._unsynced: list[tuple[ProducerBatch, AppendInfo]] = []
        self._size_limit = min(settings.batch_size, log.config.max_message_bytes)
        self._identity = Identity()
        self._next_sequence = -1
        if settings.new_identity is not None:
            self._number(settings.new_identity())

    def __repr__(self) -> str:
        return f"<Accumulator for {self.where}, {self.record_count} records>"

    @property
    def record_count(self) -> int:
        """Records that are under way."""
        with self._lock:
            batches = [*self.closed, *(batch for batch, _info in self._unsynced)]
            if self._open is not None:
                batches.append(self._open)
            return sum(len(batch.deliveries) for batch in batches)

    def is_in(self, transaction: object) -> bool:
        """Return whether the partition belongs to a transaction."""
        return self._transaction is transaction

    def enter(self, transaction: object, identity: Identity) -> None:
        """Let the partition belong to a transaction, whose batches are numbered from 0."""
        with self._lock:
            self._number(identity)
            self._transaction = transaction

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header] | None,
        timestamp_ms: int,
        reserved_bytes: int = 0,
    ) -> Delivery | None:
        """
        Add a record; None where a batch has to begin and there is no memory for it.

        Args:
            key, value, headers, timestamp_ms: the record.
            reserved_bytes: memory that the caller took for a batch; given back if none begins.

        Raises:
            InvalidRecordError: the record cannot be encoded.
        """
        # In one piece: this runs for each record, and a call takes as long as the encoding.
        size = RECORD_OVERHEAD
        if key is not None:
            size += len(key)
        if value is not None:
            size += len(value)
        if headers:
            size += sum(len(name) + len(field or b"") + 8 for name, field in headers)
        with self._lock:
            batch = self._open
            if batch is None or batch.builder.size_bytes + size > self._size_limit:
                record = (key, value, headers, timestamp_ms)
                return self._begin(self.bytes_for(size), reserved_bytes, record)
            if reserved_bytes:
                self._settings.memory.release(reserved_bytes)
            batch.builder.append(key, value, timestamp_ms, headers)
            deliveries = batch.deliveries
            delivery = Delivery(batch.outcome, len(deliveries), timestamp_ms)
            deliveries.append(delivery)
            return delivery

    def bytes_for(self, size: int) -> int:
        """Return the memory that a batch takes which begins with a record of `size`."""
        return max(self._settings.batch_size, size)

    def close_open(self, number: int | None = None) -> bool:
        """Close the batch that is being filled, if it has that number; say if there are closed."""
        with self._lock:
            if number is None or number == self._open_number:
                self._close_open()
            return bool(self.closed)

    def write(self, now_ms: int) -> tuple[list[Acknowledgement], KafkaLogError | None]:
        """
        Write the closed batches; return what became of them, and why one has to wait.

        With wait="durable" those that were written are kept for `sync`.
        """
        acknowledged: list[Acknowledgement] = []
        with self._lock:
            while self.closed:
                batch = self.closed[0]
                try:
                    info = self._append(batch)
                except RecordValidationError as error:
                    acknowledged += self._drop_refused(batch, error)
                    continue
                except KafkaLogError as error:
                    if error.retriable and now_ms - batch.opened_ms < self._timeout_ms:
                        return acknowledged, error
                    acknowledged.append(self._give_up(batch, error))
                    continue
                self.closed.popleft()
                if len(self._settings.builders) < IDLE_BUILDERS_MAX:
                    self._settings.builders.append(batch.builder)
                if self._settings.durable:
                    self._unsynced.append((batch, info))
                else:
                    acknowledged.append(self._done(batch, info))
        return acknowledged, None

    def sync(self) -> list[Acknowledgement]:
        """Wait until what was written is on the disk; return what may be told."""
        with self._lock:
            waiting, self._unsynced = self._unsynced, []
            log = self.log
        if not waiting:
            return []
        error: KafkaLogError | None = None
        try:
            log.flush()
        except KafkaLogError as failure:
            error = failure
        acknowledged = []
        with self._lock:
            for batch, info in waiting:
                # A log that was closed in order is on the disk as well.
                if error is None or info.last_offset < log.durable_offset:
                    acknowledged.append(self._done(batch, info))
                else:
                    self._renew_identity()
                    acknowledged.append(self._acknowledge(batch, None, error))
        return acknowledged

    def drop(self, error: KafkaLogError) -> list[Acknowledgement]:
        """Give up what was not written."""
        with self._lock:
            self._close_open()
            dropped, self.closed = list(self.closed), deque()
            return [self._acknowledge(batch, None, error) for batch in dropped]

    # ------------------------------------------------------------------ private, the lock is held

    @property
    def _timeout_ms(self) -> int:
        return self._settings.delivery_timeout_ms

    def _begin(
        self,
        size_bytes: int,
        reserved_bytes: int,
        record: tuple[bytes | None, bytes | None, Sequence[Header] | None, int],
    ) -> Delivery | None:
        """Begin a batch with a record, if there is memory for it."""
        self._close_open()
        if not reserved_bytes:
            if not self._settings.memory.try_reserve(size_bytes):
                return None
            reserved_bytes = size_bytes
        now_ms = self._settings.clock.monotonic_ms()
        batch = ProducerBatch(self.where, self._reuse_builder(), reserved_bytes, now_ms)
        try:
            delivery = batch.append(*record)
        except BaseException:
            self._settings.memory.release(reserved_bytes)
            raise
        self._open = batch
        self._open_number += 1
        self._settings.on_open(self, batch, self._open_number)
        return delivery

    def _close_open(self) -> None:
        if self._open is not None:
            self.closed.append(self._open)
            self._open = None

    def _reuse_builder(self) -> BatchBuilder:
        try:
            builder = self._settings.builders.pop()
        except IndexError:
            return BatchBuilder(capacity=self._settings.batch_size)
        builder.reset()
        return builder

    def _append(self, batch: ProducerBatch) -> AppendInfo:
        try:
            info = self._append_to(self.log, batch)
        except (LogClosedError, LogOfflineError):
            # The directory may have been opened again since: then it is another object.
            log = self._settings.source.log(*self.where)
            if log is self.log:
                raise
            self.log = log
            info = self._append_to(log, batch)
        except OutOfOrderSequenceError:
            if self._settings.new_identity is None:
                raise
            # What came before is gone from the log: cut by a crash, or forgotten for its age.
            self._renew_identity()
            info = self._append_to(self.log, batch)
        if self._next_sequence >= 0:
            self._next_sequence = (self._next_sequence + len(batch.deliveries)) & SEQUENCE_MASK
        return info

    def _append_to(self, log: Log, batch: ProducerBatch) -> AppendInfo:
        settings = self._settings
        data = batch.encoded(
            settings.codec,
            self._identity,
            self._next_sequence,
            transactional=settings.transactional,
        )
        return log.append_batches(data)

    def _drop_refused(
        self, batch: ProducerBatch, error: RecordValidationError
    ) -> list[Acknowledgement]:
        """Give up the records that the log's settings refuse, and keep the others of the batch."""
        faults = {each.index: each.message for each in error.record_errors}
        if not faults or len(faults) >= len(batch.deliveries):
            return [self._give_up(batch, error)]
        acknowledged = []
        for slot, message in faults.items():
            outcome = BatchOutcome(self.where, batch.outcome.condition)
            batch.deliveries[slot].move(outcome, 0)
            refusal = type(error)(
                f"{self.where}: {message}", record_errors=error.record_errors, path=error.path
            )
            acknowledged.append(Acknowledgement(outcome, 0, None, refusal))
        batch.without(faults, BatchBuilder())
        return acknowledged

    def _give_up(self, batch: ProducerBatch, error: KafkaLogError) -> Acknowledgement:
        self.closed.popleft()
        if error.retriable:
            return self._acknowledge(batch, None, self._timeout_error(error))
        if isinstance(error, LogStorageError):
            self._renew_identity()
        return self._acknowledge(batch, None, error)

    def _timeout_error(self, cause: KafkaLogError) -> DeliveryTimeoutError:
        error = DeliveryTimeoutError(
            f"{self.where}: given up after delivery.timeout.ms = {self._timeout_ms}: {cause}",
            path=cause.path,
        )
        error.__cause__ = cause
        return error

    def _renew_identity(self) -> None:
        if self._settings.new_identity is not None:
            self._number(self._settings.new_identity())

    def _number(self, identity: Identity) -> None:
        self._identity = identity
        self._next_sequence = 0 if identity.producer_id >= 0 else -1

    def _done(self, batch: ProducerBatch, info: AppendInfo) -> Acknowledgement:
        return self._acknowledge(batch, info, None)

    def _acknowledge(
        self, batch: ProducerBatch, info: AppendInfo | None, error: KafkaLogError | None
    ) -> Acknowledgement:
        return Acknowledgement(batch.outcome, batch.reserved_bytes, info, error)
