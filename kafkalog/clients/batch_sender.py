"""Sender of a producer's batches: writes them when they are full, due, retried, or flushed.

There is no network to wait for, and so no sender thread: the thread that fills a batch writes it. A
scheduler writes batches that are not filled in time (`linger.ms`), retries batches that did not fit
the disk. With wait="durable" another scheduler commits the written batches, those of all partitions
together, while threads fill and write the next ones.

Thread-safety: every method from any thread. The lock guards the sets of accumulators, tasks and
pending batches; it is not held during a write or a sync, nor while futures are completed. It is
acquired below the lock of an accumulator.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias

from kafkalog.clients.accumulator import (
    Accumulator,
    AccumulatorSettings,
    Acknowledgement,
    Unsynced,
)
from kafkalog.clients.config import ProducerConfig
from kafkalog.clients.delivery import BatchOutcome
from kafkalog.clients.producer_batch import ProducerBatch
from kafkalog.clients.written_round import WrittenRound
from kafkalog.commit_threads import can_lead
from kafkalog.errors import BufferExhaustedError, DiskFullError, KafkaLogError
from kafkalog.log.log import Log
from kafkalog.model import TopicPartition
from kafkalog.pace import Pace
from kafkalog.scheduler import Scheduler

__all__ = ["BatchSender", "ReportFull", "WaitingBatches"]

ReportFull: TypeAlias = Callable[[TopicPartition, KafkaLogError | None], object]

# More than any delivery takes: `delivery.timeout.ms` ends it, and locks take no longer time.
LONGEST_SECONDS: Final = threading.TIMEOUT_MAX / 2
# Time after which another thread commits what the thread of a round has written.
LATE_SYNC_MS: Final = 100
# Time after which a thread that waits for memory writes the open batches again.
LONGEST_WAIT_MS: Final = 50


class WaitingBatches(NamedTuple):
    """
    Batches that are full or due, and not written.

    Attributes:
        batch_count: their number.
        oldest_ms: age of the oldest, 0 if there are none.
    """

    batch_count: int
    oldest_ms: int


class BatchSender:
    """
    Sender of the batches of one producer.

    Args:
        config: settings of the producer.
        settings: settings that its accumulators share.
        scheduler: runs delayed tasks.
        sync_scheduler: runs the syncs.
        on_write: called with the topic and the time after each write of batches.
        on_failure: called with the error of each batch that is not delivered.
        on_full: see `DeliveryRules`.
    """

    def __init__(
        self,
        config: ProducerConfig,
        settings: AccumulatorSettings,
        scheduler: Scheduler,
        sync_scheduler: Scheduler,
        *,
        on_write: Callable[[str, int], object],
        on_failure: Callable[[KafkaLogError], object],
        on_full: ReportFull | None = None,
    ) -> None:
        self._config = config
        self._settings = settings
        self._scheduler = scheduler
        self._sync_scheduler = sync_scheduler
        self._on_write = on_write
        self._on_failure = on_failure
        self._on_full = on_full
        # Partitions whose last batch did not fit the disk.
        self._full: set[TopicPartition] = set()
        self._lock = threading.Lock()
        self._accumulators: list[Accumulator] = []
        # The error of records after the close.
        self._refusal: KafkaLogError | None = None
        # Time, accumulator and number of a batch: the batch itself would keep its records alive.
        self._lingering: deque[tuple[int, Accumulator, int]] = deque()
        self._tasks: set[str] = set()
        self._retrying: set[Accumulator] = set()
        self._unsynced: set[Accumulator] = set()
        # Rounds that are not finished, and those that no commit has taken yet.
        self._rounds: set[WrittenRound] = set()
        self._unsynced_rounds: list[WrittenRound] = []
        # Batches whose futures are not completed.
        self._pending: set[BatchOutcome] = set()
        # Thread that commits at the end of its round what it writes.
        self._leader: int | None = None

    @property
    def has_batches(self) -> bool:
        """True if there are batches whose outcome is not known."""
        return bool(self._pending)

    def new_accumulator(self, where: TopicPartition, log: Log) -> Accumulator:
        """Return the accumulator of another partition, whose batches are sent from now on."""
        made = Accumulator(where, log, self._settings, self._add_open)
        with self._lock:
            self._accumulators.append(made)
            refusal = self._refusal
        if refusal is not None:
            made.drop(refusal, is_last=True)
        return made

    def write(self, accumulator: Accumulator, *, is_pass: bool = False) -> None:
        """
        Write the closed batches of a partition; what does not fit the disk is retried later.

        Args:
            accumulator: the partition.
            is_pass: whether the caller writes more, and then calls `end_pass`: one sync covers all
                of it.
        """
        now_ms = self._settings.clock.monotonic_ms()
        acknowledged, waiting = accumulator.write(now_ms)
        if waiting is not None:
            with self._lock:
                self._retrying.add(accumulator)
            self._schedule("producer-retry", self._retry, self._config.retry_backoff_ms)
        if self._settings.durable:
            with self._lock:
                self._unsynced.add(accumulator)
            if not is_pass:
                self._schedule_sync()
        full = waiting if isinstance(waiting, DiskFullError) else None
        for each in acknowledged:
            if isinstance(each.error, DiskFullError):
                full = each.error
        self._report_full(accumulator.where, full)
        self._complete(acknowledged)
        self._on_write(accumulator.where.topic, now_ms)

    def take_round(self, written: WrittenRound) -> None:
        """
        Deliver batches that were written at once, or let the next sync do it.

        Args:
            written: what `Accumulator.write_at_once` has written; not empty.
        """
        with self._lock:
            # Without a sync to wait for, written records are delivered, also after a close.
            refusal = self._refusal if self._settings.durable else None
            if refusal is None and self._settings.durable:
                # In this order: a flush waits for each of the rounds, so a sync must take it.
                self._unsynced_rounds.append(written)
                self._rounds.add(written)
        if refusal is not None:
            self._finish_round(written, dict.fromkeys(range(len(written.batches)), refusal))
        elif not self._settings.durable:
            self._finish_round(written, {})
        if self._full:
            for each in written.batches:
                self._report_full(each.partition.where, None)
        self._on_write(written.topic, self._settings.clock.monotonic_ms())

    def end_pass(self) -> None:
        """End the writes of a call: let one sync cover all of them, also of an interrupted call."""
        if self._unsynced or self._unsynced_rounds:
            self._schedule_sync()

    def write_open(self, between: Callable[[], object]) -> None:
        """
        Write the open batches before `linger.ms` is over; wait for no other thread.

        Args:
            between: called after each partition.
        """
        try:
            while (opened := self._next_lingering(None)) is not None:
                _due_ms, accumulator, number = opened
                if accumulator.close_open(number):
                    self.write(accumulator, is_pass=True)
                    between()
        finally:
            self.end_pass()

    def begin_round(self) -> None:
        """Begin a round of this thread, which ends with `end_round`."""
        self._leader = threading.get_ident()

    def end_round(self, between: Callable[[], object]) -> None:
        """Write the open batches, and commit all that were written; `between` as above."""
        try:
            self.write_open(between)
            self._leader = None
            if self._settings.durable and can_lead():
                self._sync()
        finally:
            self._leader = None
            self.end_pass()

    def flush(self, timeout_ms: int | None) -> int:
        """
        Deliver all batches; return the number of undelivered records after `timeout_ms`.

        It waits for other threads that deliver a batch, and for free disk space.
        """
        self._leave_round()
        with self._lock:
            pending: list[BatchOutcome | WrittenRound] = [*self._pending, *self._rounds]
            accumulators = list(self._accumulators)
        try:
            for accumulator in accumulators:
                if accumulator.has_batches and accumulator.close_open():
                    self.write(accumulator, is_pass=True)
        except BaseException:
            self.end_pass()
            raise
        # With a timeout another thread waits for the disk.
        if self._sync_scheduler is self._scheduler or (timeout_ms is None and can_lead()):
            self._sync()
        else:
            self.end_pass()
        seconds = LONGEST_SECONDS if timeout_ms is None else timeout_ms / 1000
        deadline = time.monotonic() + seconds
        for outcome in pending:
            # The other batches are with another thread, or wait for free disk space.
            if not outcome.is_set and not outcome.wait(max(deadline - time.monotonic(), 0)):
                return self._record_count()
        return 0

    def _record_count(self) -> int:
        """Return the number of undelivered records."""
        with self._lock:
            rounds = list(self._rounds)
        count = sum(each.record_count for each in self._all())
        return count + sum(each.record_count for each in rounds)

    def drop(self, error: KafkaLogError, *, is_last: bool = False) -> None:
        """Give up all batches that were not written; see `Accumulator.drop`."""
        with self._lock:
            if is_last:
                self._refusal = error
            accumulators = list(self._accumulators)
            rounds: list[WrittenRound] = []
            if is_last:
                rounds, self._unsynced_rounds = self._unsynced_rounds, []
        for each in rounds:
            self._finish_round(each, dict.fromkeys(range(len(each.batches)), error))
        for accumulator in accumulators:
            self._complete(accumulator.drop(error, is_last=is_last))
            self._report_full(accumulator.where, None)

    def reserve_memory(self, accumulator: Accumulator, size: int) -> None:
        """
        Reserve memory for a batch: write open batches, then wait for other threads.

        Raises:
            BufferExhaustedError: `buffer.memory` was full for `max.block.ms`.
        """
        memory = self._settings.memory
        deadline = time.monotonic() + min(self._config.max_block_ms / 1000, LONGEST_SECONDS)
        retrying: set[Accumulator] = set()
        # The sync at the end of its round would free the memory that this thread waits for.
        self._leave_round()
        self.end_pass()
        while True:
            for each in self._all():
                if each.close_open() and each not in retrying:
                    self.write(each)
                if memory.try_reserve(size):
                    return
            left_ms = max(math.ceil((deadline - time.monotonic()) * 1000), 0)
            # Other threads open batches meanwhile, which may wait long for `linger.ms`.
            if memory.reserve(size, min(left_ms, LONGEST_WAIT_MS)):
                return
            if left_ms <= LONGEST_WAIT_MS:
                break
            with self._lock:
                # These are written after `retry.backoff.ms`.
                retrying = set(self._retrying)
        raise BufferExhaustedError(
            f"{accumulator.where}: buffer.memory = {self._config.buffer_memory} was full for "
            f"max.block.ms = {self._config.max_block_ms}"
        )

    def waiting(self) -> WaitingBatches:
        """Return the batches that are closed and not written."""
        closed = [batch for each in self._all() for batch in tuple(each.closed)]
        if not closed:
            return WaitingBatches(0, 0)
        oldest_ms = min(batch.opened_ms for batch in closed)
        return WaitingBatches(len(closed), self._settings.clock.monotonic_ms() - oldest_ms)

    def become_inherited(self, error: KafkaLogError) -> None:
        """Abandon all pending batches in a forked child, with new locks."""
        self._lock = threading.Lock()
        for outcome in list(self._pending):
            outcome.abandon(error)
        for written in list(self._rounds):
            written.abandon(error)

    # ------------------------------------------------------------------------------------ private

    def _all(self) -> list[Accumulator]:
        with self._lock:
            return list(self._accumulators)

    def _add_open(self, accumulator: Accumulator, batch: ProducerBatch, number: int) -> None:
        if not number:
            # The caller writes it now.
            with self._lock:
                self._pending.add(batch.outcome)
            return
        due_ms = batch.opened_ms + self._config.linger_ms
        self._lingering.append((due_ms, accumulator, number))
        with self._lock:
            self._pending.add(batch.outcome)
        self._schedule("producer-linger", self._write_lingering, self._config.linger_ms)

    def _leave_round(self) -> None:
        """Let syncs begin before the end of the round of this thread: it waits for them."""
        if self._leader == threading.get_ident():
            self._leader = None

    def _schedule_sync(self) -> None:
        name, delay_ms = "producer-sync", 0
        if self._leader is not None and self._leader == threading.get_ident():
            # It syncs at the end of its round, unless it waits for a future before.
            name, delay_ms = "producer-late-sync", LATE_SYNC_MS
        try:
            self._schedule(name, self._sync, delay_ms, self._sync_scheduler)
        except RuntimeError:
            # The system starts no thread, as at the end of the interpreter: this one syncs.
            self._tasks.discard(name)
            self._sync()

    def _schedule(
        self,
        name: str,
        task: Callable[[], object],
        delay_ms: int,
        scheduler: Scheduler | None = None,
    ) -> None:
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

        (scheduler or self._scheduler).schedule(name, run, delay_ms=delay_ms)

    def _write_lingering(self) -> None:
        now_ms = self._settings.clock.monotonic_ms()
        try:
            pace = Pace()
            while (opened := self._next_lingering(now_ms)) is not None:
                _due_ms, accumulator, number = opened
                if accumulator.close_open(number):
                    self.write(accumulator, is_pass=True)
                    pace.step()
        finally:
            self.end_pass()
        with suppress(IndexError):
            # Else another thread has written the rest.
            left_ms = self._lingering[0][0] - now_ms
            self._schedule("producer-linger", self._write_lingering, max(left_ms, 0))

    def _next_lingering(self, now_ms: int | None) -> tuple[int, Accumulator, int] | None:
        """Remove and return an open batch: the oldest if it is due, or any if the time is None."""
        with self._lock:
            if self._lingering and (now_ms is None or self._lingering[0][0] <= now_ms):
                return self._lingering.popleft()
            return None

    def _retry(self) -> None:
        with self._lock:
            retrying, self._retrying = self._retrying, set()
        self._settings.counters.add_retries(len(retrying))
        try:
            pace = Pace()
            for accumulator in retrying:
                self.write(accumulator, is_pass=True)
                pace.step()
        finally:
            self.end_pass()

    def _sync(self) -> None:
        """Commit the written batches of all partitions together, and acknowledge them together."""
        with self._lock:
            accumulators, self._unsynced = self._unsynced, set()
            rounds, self._unsynced_rounds = self._unsynced_rounds, []
        # Emptied while they are worked through: to free all batches at once takes a millisecond.
        unsynced: deque[Unsynced] = deque()
        try:
            pace = Pace()
            for accumulator in accumulators:
                if (taken := accumulator.take_unsynced()) is not None:
                    unsynced.append(taken)
                pace.step()
            if not unsynced and not rounds:
                return
            # In order, and not as a set: neighbours in memory, and on the disk.
            logs = [each.log for each in unsynced]
            self._commit_delayed(rounds)
            for written in rounds:
                logs += written.logs
            failures = self._settings.source.commit(dict.fromkeys(logs))
        except BaseException:
            # The thread was interrupted, and what is synced is unknown: another call syncs again.
            with self._lock:
                self._unsynced |= accumulators
                self._unsynced_rounds += rounds
            self._return(unsynced)
            raise
        acknowledged: deque[Acknowledgement] = deque()
        pace = Pace()
        while unsynced:
            each = unsynced.popleft()
            acknowledged += each.accumulator.end_sync(each, failures.get(each.log))
            pace.step()
        self._complete(acknowledged, pace)
        for written in rounds:
            self._finish_round(written, written.failures(failures))
            pace.step()

    def _commit_delayed(self, rounds: Iterable[WrittenRound]) -> None:
        """Decide which records of rounds are durable that their logs do not have yet."""
        sends = [each.delayed.send for each in rounds if each.delayed is not None]
        commits = self._settings.source.delayed_commits
        if sends and commits is not None:
            commits.commit(sends)

    def _finish_round(self, written: WrittenRound, errors: Mapping[int, KafkaLogError]) -> None:
        """Acknowledge the batches of a round, but for those with an error."""
        with self._lock:
            self._rounds.discard(written)
        self._settings.memory.release(written.reserved_bytes)
        for place, error in errors.items():
            # Its numbers may be in the log.
            written.batches[place].partition.renew_identity()
            self._settings.counters.add_failure()
            self._on_failure(error)
        written.finish(errors)

    def _report_full(self, where: TopicPartition, error: KafkaLogError | None) -> None:
        if error is None and where not in self._full:
            return
        with self._lock:
            if error is None:
                self._full.discard(where)
            else:
                self._full.add(where)
        if self._on_full is not None:
            self._on_full(where, error)

    def _return(self, unsynced: Iterable[Unsynced]) -> None:
        for each in unsynced:
            each.accumulator.return_unsynced(each)
            with self._lock:
                self._unsynced.add(each.accumulator)
        self._schedule_sync()

    def _complete(self, results: Iterable[Acknowledgement], pace: Pace | None = None) -> None:
        """Complete the futures of batches; a deque of results is empty then."""
        acknowledged = results if isinstance(results, deque) else deque(results)
        # Of all, and before any future: a callback may send, and wait for memory.
        freed_bytes = 0
        for _outcome, reserved_bytes, _info, _error in acknowledged:
            freed_bytes += reserved_bytes
        if freed_bytes:
            self._settings.memory.release(freed_bytes)
        while acknowledged:
            outcome, reserved_bytes, info, error = acknowledged.popleft()
            if pace is not None:
                pace.step()
            if error is not None:
                self._settings.counters.add_failure()
                self._on_failure(error)
                outcome.fail(error)
            elif info is not None:
                outcome.succeed(
                    info.first_offset, info.log_append_time_ms, is_duplicate=info.is_duplicate
                )
            if reserved_bytes:
                with self._lock:
                    self._pending.discard(outcome)
