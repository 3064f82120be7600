"""Accumulator of one partition: fills batches, and writes them to the log in order.

The thread that fills a batch writes it: this is the back-pressure, and needs no switch of threads.
A batch waits only if the disk is full, with the batches after it; with wait="durable" also if it is
written and not yet synced.

Batches are numbered when they are written, and the numbers are used up by a successful append. So a
retried batch has the same numbers, and a batch that is given up leaves no gap. If it is unknown
whether a batch was written (the disk failed during the append), its numbers must not be used for
other records, which the log would take for duplicates. The partition continues with another
producer id.

Records that their caller numbered are a separate batch, written in its place in the order. The
number is never changed, and uses up none of the partition: the log decides about it.

It does not complete futures: it returns acknowledgements, and the producer completes them.

Thread-safety: every method from any thread. The lock of an accumulator is held while a batch is
encoded and written, never during a sync or while a future is completed. `BufferMemory` has its own
condition.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafkalog._core.builder import BatchBuilder
from kafkalog._core.record_groups import RECORD_OVERHEAD_BYTES
from kafkalog.clients.delivery import BatchOutcome, Delivery, drop_tracebacks
from kafkalog.clients.many_records import (
    BATCH_OVERHEAD,
    PartitionRecords,
    SentMany,
    header_bytes,
)
from kafkalog.clients.producer_batch import Identity, ProducerBatch
from kafkalog.clients.producer_sequence import ProducerSequence
from kafkalog.clients.sent_range import SentRange
from kafkalog.clients.source import LogSource
from kafkalog.clients.written_round import WrittenBatch, WrittenRound
from kafkalog.clock import Clock
from kafkalog.errors import (
    DeliveryTimeoutError,
    DiskFullError,
    KafkaLogError,
    LogClosedError,
    LogOfflineError,
    LogStorageError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    RecordValidationError,
)
from kafkalog.log.log import Log
from kafkalog.model import AppendInfo, Header, TopicPartition
from kafkalog.records.codecs import Codec

__all__ = [
    "Accumulator",
    "AccumulatorSettings",
    "Acknowledgement",
    "BufferMemory",
    "IdleBuilders",
    "ProducerCounters",
    "Unsynced",
]

# Memory that a batch reserves at first, and the factor of the next reservations: thousands of
# partitions with few records each do not reserve the largest batch for each.
FIRST_RESERVED_BYTES: Final = 2048
GROWTH: Final = 8
# Builders that wait to be used again, over all partitions: each is as large as a batch.
IDLE_BUILDERS_MAX: Final = 64
SEQUENCE_MASK: Final = 2**31 - 1
_new: Final = tuple.__new__
# Records that are encoded and written in one call, which keeps the interpreter for a millisecond.
AT_ONCE_BYTES: Final = 1 << 20
# More than the length of a batch can state.
BATCH_BYTES_MAX: Final = 2**31 - 1


class BufferMemory:
    """
    Limit of the bytes of undelivered batches; slows a fast program down to a slow disk.

    Memory is reserved per batch, in steps that grow, so it costs next to nothing per record.
    Waiting threads are not queued: a thread continues once its reservation fits. A reservation
    above the limit is accepted if there is no other.

    Args:
        limit_bytes: the limit.

    Thread-safety: every method from any thread, under its own condition.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._reserved_bytes = 0
        self._lock = threading.Lock()
        self._freed = threading.Condition(self._lock)
        self._waiting_count = 0

    @property
    def reserved_bytes(self) -> int:
        """Number of reserved bytes."""
        return self._reserved_bytes

    def try_reserve(self, size: int) -> bool:
        """Reserve bytes if they are free; return whether they were."""
        # Inline code: a batch calls this several times.
        with self._lock:
            reserved_bytes = self._reserved_bytes
            if reserved_bytes and reserved_bytes + size > self.limit_bytes:
                return False
            self._reserved_bytes += size
            return True

    def reserve(self, size: int, timeout_ms: int) -> bool:
        """Reserve bytes, and wait for them up to a time; return whether they were reserved."""
        with self._freed:
            self._waiting_count += 1
            try:
                has_space = self._freed.wait_for(
                    lambda: self._fits(size), min(timeout_ms / 1000, threading.TIMEOUT_MAX)
                )
            finally:
                self._waiting_count -= 1
            if has_space:
                self._reserved_bytes += size
            return has_space

    def release(self, size: int) -> None:
        """Free reserved bytes."""
        with self._lock:
            self._reserved_bytes -= size
            if self._waiting_count:
                self._freed.notify_all()

    def _fits(self, size: int) -> bool:
        return not self._reserved_bytes or self._reserved_bytes + size <= self.limit_bytes


class ProducerCounters:
    """
    Counts of all producers that share it, those that are closed, too.

    Attributes:
        retry_count: writes of batches again after an error.
        failure_count: batches that were not delivered.

    Thread-safety: every method from any thread.
    """

    def __init__(self) -> None:
        self.retry_count = 0
        self.failure_count = 0
        self._lock = threading.Lock()

    def add_retries(self, count: int) -> None:
        """Count writes of batches again."""
        with self._lock:
            self.retry_count += count

    def add_failure(self) -> None:
        """Count a batch that was not delivered."""
        with self._lock:
            self.failure_count += 1


class IdleBuilders:
    """
    Builders of written batches, which the accumulators of a producer use again.

    Thread-safety: every method from any thread: both are one call of a deque, which is atomic.
    """

    def __init__(self) -> None:
        self._idle = deque[BatchBuilder](maxlen=IDLE_BUILDERS_MAX)

    def __len__(self) -> int:
        return len(self._idle)

    def take(self, capacity: int) -> BatchBuilder:
        """Return an empty builder; a new one of that capacity if none is idle."""
        try:
            builder = self._idle.pop()
        except IndexError:
            return BatchBuilder(capacity=capacity)
        builder.reset()
        return builder

    def give(self, builder: BatchBuilder) -> None:
        """Keep a builder that is not used any more; of too many the oldest is dropped."""
        self._idle.append(builder)


@dataclass(frozen=True, slots=True)
class AccumulatorSettings:
    """
    Settings and parts that the accumulators of a producer share.

    Attributes:
        source: the logs.
        clock: source of the opening times of batches.
        memory: limit of the bytes of undelivered batches.
        builders: builders that are not in use.
        batch_size: largest size of a batch before compression.
        codec: codec of the batches.
        delivery_timeout_ms: time after which a batch that does not fit the disk is given up.
        durable: whether a record is acknowledged once it is synced, or once it is written.
        raises_when_full: whether a batch that does not fit the disk is given up at once.
        transactional: whether batches belong to transactions.
        new_identity: returns a new producer id for a partition; None if the transaction decides
            it, or batches are not numbered.
        counters: count retries and failures.
    """

    source: LogSource
    clock: Clock
    memory: BufferMemory
    builders: IdleBuilders
    batch_size: int
    codec: Codec
    delivery_timeout_ms: int
    durable: bool
    raises_when_full: bool
    transactional: bool
    new_identity: Callable[[], Identity] | None
    counters: ProducerCounters = field(default_factory=ProducerCounters)


class Acknowledgement(NamedTuple):
    """Result of a batch, for its futures; `error` is None if the batch is in the log."""

    outcome: BatchOutcome
    reserved_bytes: int
    info: AppendInfo | None
    error: KafkaLogError | None


class Unsynced(NamedTuple):
    """Batches that were written to a log and are not acknowledged before it is synced."""

    accumulator: Accumulator
    log: Log
    batches: list[tuple[ProducerBatch, AppendInfo]]

    @property
    def record_count(self) -> int:
        """Number of records."""
        return sum(batch.record_count for batch, _info in self.batches)


class Accumulator:
    """
    Accumulator of one partition.

    Args:
        where: the partition.
        log: its log.
        settings: settings that all accumulators share.
        on_open: called with each new batch and a number for `close_open`, with the lock held; 0
            for a batch that is closed already.

    Attributes:
        closed: batches to be written, in order.
    """

    def __init__(
        self,
        where: TopicPartition,
        log: Log,
        settings: AccumulatorSettings,
        on_open: Callable[[Accumulator, ProducerBatch, int], object],
    ) -> None:
        self.where = where
        self.log = log
        self.closed: deque[ProducerBatch] = deque()
        self._transaction: object = None
        self._settings = settings
        self._on_open = on_open
        self._lock = threading.Lock()
        # Of all outcomes: a condition for each batch would be ten more objects.
        self._condition = threading.Condition()
        self._open: ProducerBatch | None = None
        self._refusal: KafkaLogError | None = None
        self._open_number = 0
        self._open_bytes = 0
        # Limit of the open batch: the largest size of a batch, or the memory reserved for it.
        self._open_limit = 0
        self._unsynced: list[tuple[ProducerBatch, AppendInfo]] = []
        # Number of records of batches that are being synced.
        self._syncing_records = 0
        self._size_limit = min(settings.batch_size, log.config.max_message_bytes)
        self._first_bytes = min(FIRST_RESERVED_BYTES, settings.batch_size)
        self._identity = Identity()
        self._next_sequence = -1
        if settings.new_identity is not None:
            self._number(settings.new_identity())

    def __repr__(self) -> str:
        return f"<Accumulator for {self.where}, {self.record_count} records>"

    @property
    def record_count(self) -> int:
        """Number of undelivered records."""
        with self._lock:
            batches = [*self.closed, *(batch for batch, _info in self._unsynced)]
            if self._open is not None:
                batches.append(self._open)
            return self._syncing_records + sum(batch.record_count for batch in batches)

    @property
    def has_batches(self) -> bool:
        """True if a batch is open, or closed and not written; without a lock."""
        return self._open is not None or bool(self.closed)

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
        Add a record; return None if it needs a new batch and the memory for it is not free.

        Args:
            key, value, headers, timestamp_ms: the record.
            reserved_bytes: memory that the caller reserved for a batch; freed if none begins.

        Raises:
            InvalidRecordError: the record cannot be encoded.
        """
        # Inline code: this runs for each record, and a call takes as long as the encoding.
        size = RECORD_OVERHEAD_BYTES
        if key is not None:
            size += len(key)
        if value is not None:
            size += len(value)
        if headers:
            size += header_bytes(headers)
        with self._lock:
            batch = self._open
            if batch is None or (
                self._open_bytes + size > self._open_limit and not self._grow(batch, size)
            ):
                record = (key, value, headers, timestamp_ms)
                return self._begin(self.bytes_for(size), reserved_bytes, record)
            if reserved_bytes:
                self._settings.memory.release(reserved_bytes)
            try:
                self._open_bytes = batch.builder.append(key, value, timestamp_ms, headers)
                entries = batch.entries
                delivery = Delivery(batch.outcome, len(entries), timestamp_ms)
                entries.append(delivery)
            except BaseException:
                batch.drop_unlisted()
                raise
            return delivery

    def extend(self, records: PartitionRecords, many: SentMany) -> None:
        """
        Add the records of a call; close the batches that are full.

        Args:
            records: the records. The caller has reserved `records.size_bytes` for them, which is
                the memory of the batches from now on.
            many: the future of the call.
        """
        count, start, left_bytes = records.record_count, 0, records.size_bytes
        try:
            with self._lock:
                while start < count:
                    is_new = self._open is None
                    batch = self._open or self._new_batch(0)
                    part = batch.extend(records, start, self._size_limit, many)
                    if part is None:
                        self._close_open()
                        continue
                    stop = start + part.record_count
                    used_bytes = left_bytes if stop == count else records.bytes_between(start, stop)
                    left_bytes -= used_bytes
                    start = stop
                    batch.reserve(used_bytes)
                    if is_new:
                        self._set_open(batch)
                    else:
                        self._open_bytes = batch.builder.size_bytes
                        self._open_limit = min(self._size_limit, batch.reserved_bytes)
        finally:
            if left_bytes:
                # The thread was interrupted: the other records are not accepted.
                self._settings.memory.release(left_bytes)

    def write_at_once(self, records: PartitionRecords, written: WrittenRound) -> bool:
        """
        Write the records of a call in batches of their own, which are never open.

        Args:
            records: the records; the caller has reserved their memory.
            written: gets the batches, and the memory.

        Returns:
            False, and nothing has changed, if they must be added by `extend` instead: other batches
            wait before them, they are too large, the log has to change the batches, or the append
            failed. The batches of `extend` have the same numbers then.
        """
        timestamp_ms, size_bytes = records.timestamp_ms, records.size_bytes
        if timestamp_ms is None or size_bytes > AT_ONCE_BYTES:
            return False
        group, batches = records.group, written.batches
        is_known, reserved_bytes = False, written.reserved_bytes
        # Inline code, as in `append`: a call for each of a thousand partitions is a millisecond.
        try:
            with self._lock:
                if self._open is not None or self.closed or self._refusal is not None:
                    is_known = True
                    return False
                producer = (*self._identity, self._next_sequence)
                info = self.log.append_group(group, timestamp_ms, self._size_limit, producer)
                if info is None:
                    is_known = True
                    return False
                count = info.record_count
                if self._next_sequence >= 0:
                    self._next_sequence = (self._next_sequence + count) & SEQUENCE_MASK
                is_known = True
                place = self.where.partition, info.first_offset, count, info.is_duplicate
                sent = _new(SentRange, place)
                rows = records.rows(0, count)
                batches.append(_new(WrittenBatch, (self, self.log, sent, rows)))
            written.add_reserved(size_bytes)
        except KafkaLogError:
            return False
        except BaseException:
            if not is_known:
                # Interrupted: other records must not have the numbers of a batch that may be there.
                self.renew_identity()
            if written.reserved_bytes == reserved_bytes:
                self._settings.memory.release(size_bytes)
            raise
        return True

    def renew_identity(self) -> None:
        """Number later batches by another producer id: those of some batch may be in the log."""
        with self._lock:
            self._renew_identity()

    def add_numbered(
        self, records: PartitionRecords, many: SentMany, number: ProducerSequence
    ) -> None:
        """
        Add the records of a call as one batch that the caller numbered, which is closed.

        Arguments and memory as for `extend`.

        Raises:
            RecordTooLargeError: the records do not fit one batch.
        """
        batch: ProducerBatch | None = None
        try:
            if records.size_bytes > BATCH_BYTES_MAX:
                raise RecordTooLargeError(
                    f"{self.where}: numbered records must fit a batch of {BATCH_BYTES_MAX} bytes, "
                    f"got {records.size_bytes} bytes"
                )
            with self._lock:
                self._close_open()
                batch = self._new_batch(0, number)
                batch.extend(records, 0, BATCH_BYTES_MAX, many)
                self.closed.append(batch)
                batch.reserve(records.size_bytes)
                self._on_open(self, batch, 0)
        finally:
            if batch is None or not batch.reserved_bytes:
                # The records are not accepted, or the thread was interrupted.
                self._settings.memory.release(records.size_bytes)

    def bytes_for(self, size: int) -> int:
        """Return the memory to reserve for a batch whose first record has `size` bytes."""
        size += BATCH_OVERHEAD
        return size if size > self._first_bytes else self._first_bytes

    def close_open(self, number: int | None = None) -> bool:
        """Close the open batch if it has that number; return whether there are closed batches."""
        with self._lock:
            if number is None or number == self._open_number:
                self._close_open()
            return bool(self.closed)

    def write(self, now_ms: int) -> tuple[list[Acknowledgement], KafkaLogError | None]:
        """
        Write the closed batches; return acknowledgements, and the error of a batch that must wait.

        With wait="durable" written batches are acknowledged by `end_sync`.
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
                    if isinstance(error, DiskFullError):
                        drop_tracebacks(error)
                    if self._may_wait(error) and now_ms - batch.opened_ms < self._timeout_ms:
                        return acknowledged, error
                    acknowledged.append(self._give_up(batch, error))
                    continue
                self.closed.popleft()
                if batch.number is None or batch.builder.size_bytes <= self._size_limit:
                    # A larger builder, of numbered records, would keep its memory.
                    self._settings.builders.give(batch.builder)
                if self._settings.durable:
                    self._unsynced.append((batch, info))
                else:
                    acknowledged.append(self._done(batch, info))
        return acknowledged, None

    def take_unsynced(self) -> Unsynced | None:
        """Return the written batches, to be synced by the caller; None if there are none."""
        with self._lock:
            batches, self._unsynced = self._unsynced, []
            if not batches:
                return None
            taken = Unsynced(self, self.log, batches)
            self._syncing_records += taken.record_count
            return taken

    def return_unsynced(self, unsynced: Unsynced) -> None:
        """Undo `take_unsynced`: it is not known what is synced."""
        with self._lock:
            self._syncing_records -= unsynced.record_count
            self._unsynced = [*unsynced.batches, *self._unsynced]

    def end_sync(self, unsynced: Unsynced, error: KafkaLogError | None) -> list[Acknowledgement]:
        """
        Return the acknowledgements of batches after the sync of their log.

        Args:
            unsynced: what `take_unsynced` returned.
            error: what the sync raised, None if it succeeded.
        """
        acknowledged = []
        with self._lock:
            self._syncing_records -= unsynced.record_count
            for batch, info in unsynced.batches:
                # The close of a log syncs it as well.
                if error is None or info.last_offset < unsynced.log.durable_offset:
                    acknowledged.append(self._done(batch, info))
                else:
                    self._renew_after(batch)
                    acknowledged.append(self._acknowledge(batch, None, error))
        return acknowledged

    def drop(self, error: KafkaLogError, *, is_last: bool = False) -> list[Acknowledgement]:
        """
        Give up all batches that were not written.

        Args:
            error: the error of their futures.
            is_last: whether written batches that are not known to be durable are given up as well,
                and records that are added later raise the error.
        """
        with self._lock:
            self._close_open()
            dropped, self.closed = list(self.closed), deque()
            if is_last:
                self._refusal = error
                dropped += [batch for batch, _info in self._unsynced]
                self._unsynced = []
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
        """Begin a batch with a record, if its memory can be reserved."""
        self._close_open()
        if not reserved_bytes:
            if not self._settings.memory.try_reserve(size_bytes):
                return None
            reserved_bytes = size_bytes
        try:
            batch = self._new_batch(reserved_bytes)
            delivery = batch.append(*record)
        except BaseException:
            self._settings.memory.release(reserved_bytes)
            raise
        self._set_open(batch)
        return delivery

    def _new_batch(
        self, reserved_bytes: int, number: ProducerSequence | None = None
    ) -> ProducerBatch:
        """Return an empty batch; raise the error of records after the close."""
        if self._refusal is not None:
            raise self._refusal
        now_ms = self._settings.clock.monotonic_ms()
        builder = self._settings.builders.take(self._first_bytes)
        return ProducerBatch(self.where, builder, reserved_bytes, now_ms, number, self._condition)

    def _set_open(self, batch: ProducerBatch) -> None:
        self._open = batch
        self._open_bytes = batch.builder.size_bytes
        reserved_bytes, size_limit = batch.reserved_bytes, self._size_limit
        self._open_limit = reserved_bytes if reserved_bytes < size_limit else size_limit
        self._open_number += 1
        self._on_open(self, batch, self._open_number)

    def _grow(self, batch: ProducerBatch, size: int) -> bool:
        """Reserve more memory for the open batch; return whether a record fits then."""
        limit_bytes, reserved_bytes = self._size_limit, batch.reserved_bytes
        needed_bytes = self._open_bytes + size
        if needed_bytes > limit_bytes:
            return False
        target_bytes = GROWTH * reserved_bytes
        if target_bytes > limit_bytes:
            target_bytes = limit_bytes
        if target_bytes < needed_bytes:
            target_bytes = needed_bytes
        if not self._settings.memory.try_reserve(target_bytes - reserved_bytes):
            return False
        batch.reserve(target_bytes - reserved_bytes)
        self._open_limit = target_bytes
        return True

    def _close_open(self) -> None:
        if self._open is not None:
            self.closed.append(self._open)
            self._open = None

    def _append(self, batch: ProducerBatch) -> AppendInfo:
        try:
            info = self._append_to(self.log, batch)
        except (LogClosedError, LogOfflineError):
            # The directory may have been reopened since: then the log is another object.
            log = self._settings.source.log(*self.where)
            if log is self.log:
                raise
            self.log = log
            info = self._append_to(log, batch)
        except OutOfOrderSequenceError:
            if self._settings.new_identity is None or batch.number is not None:
                raise
            # Earlier batches are gone from the log: truncated by a crash, or the producer expired.
            self._renew_identity()
            info = self._append_to(self.log, batch)
        if self._next_sequence >= 0 and batch.number is None:
            self._next_sequence = (self._next_sequence + batch.record_count) & SEQUENCE_MASK
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
        """Give up the records that the settings of the log refuse; keep the others of the batch."""
        faults = {each.index: each.message for each in error.record_errors}
        # A part of a call is refused whole.
        refused = {batch.entries[slot]: message for slot, message in faults.items()}
        if refused.keys() >= set(batch.entries) or not refused:
            return [self._give_up(batch, error)]
        acknowledged = []
        for entry, message in refused.items():
            outcome = BatchOutcome(self.where, batch.outcome.condition)
            entry.move(outcome, 0)
            refusal = type(error)(
                f"{self.where}: {message}", record_errors=error.record_errors, path=error.path
            )
            acknowledged.append(Acknowledgement(outcome, 0, None, refusal))
        batch.take_out(refused, BatchBuilder())
        return acknowledged

    def _give_up(self, batch: ProducerBatch, error: KafkaLogError) -> Acknowledgement:
        self.closed.popleft()
        if self._may_wait(error):
            return self._acknowledge(batch, None, self._timeout_error(error))
        if isinstance(error, LogStorageError) and not error.retriable:
            self._renew_after(batch)
        return self._acknowledge(batch, None, error)

    def _may_wait(self, error: KafkaLogError) -> bool:
        """Return whether a batch is tried again after an error."""
        is_full = isinstance(error, DiskFullError)
        return error.retriable and not (is_full and self._settings.raises_when_full)

    def _timeout_error(self, cause: KafkaLogError) -> DeliveryTimeoutError:
        error = DeliveryTimeoutError(
            f"{self.where}: given up after delivery.timeout.ms = {self._timeout_ms}: {cause}",
            path=cause.path,
        )
        error.__cause__ = cause
        return error

    def _renew_identity(self) -> None:
        """Number later batches by another producer id: those of one may be in the log."""
        if self._settings.new_identity is not None:
            self._number(self._settings.new_identity())

    def _renew_after(self, batch: ProducerBatch) -> None:
        """Renew the identity after a batch that used its numbers, and is not acknowledged."""
        if batch.number is None:
            self._renew_identity()

    def _number(self, identity: Identity) -> None:
        self._identity = identity
        self._next_sequence = 0 if identity.producer_id >= 0 else -1

    def _done(self, batch: ProducerBatch, info: AppendInfo) -> Acknowledgement:
        return self._acknowledge(batch, info, None)

    def _acknowledge(
        self, batch: ProducerBatch, info: AppendInfo | None, error: KafkaLogError | None
    ) -> Acknowledgement:
        return Acknowledgement(batch.outcome, batch.reserved_bytes, info, error)
