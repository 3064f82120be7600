"""A log's producers, transactions, high watermark and leader epochs, as its users see them.

Also how these follow the log where it changes: its start moves up, it is truncated. They come last,
when the segments are what they shall be; an error there latches the log, for appends would be
judged by what is gone.

Thread-safety: everything public from any thread; what changes anything takes the log's lock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kafkalog.errors import LogStorageError, ReadOnlyLogError
from kafkalog.log.epochs import LogEpochs
from kafkalog.log.local_log import LocalLog
from kafkalog.log.partition_paths import PartitionPaths
from kafkalog.log.producers import LogProducers, ongoing
from kafkalog.log.standing import LogStanding
from kafkalog.log.surroundings import LogEnvironment
from kafkalog.log.tail import ReadOnlyTail
from kafkalog.model import ActiveProducer, OngoingTransaction
from kafkalog.scheduler import ScheduledTask, Scheduler, schedule_while_alive
from kafkalog.state.leader_epochs import EpochEnd
from kafkalog.state.producer_state_manager import ProducerStateManager

__all__ = ["TransactionalLog"]

logger = logging.getLogger(__name__)


class TransactionalLog(LogStanding):
    """
    A log with producers and leaders.

    Args:
        paths, local, tail, epochs: as for `LogReader`.
        producers: its producers' state; None for a log that is open read-only.
        scheduler: runs the look for silent producers, once there is one.
        environment: says how often.
    """

    _watchers: tuple[tuple[Callable[[], object]], ...]

    def __init__(
        self,
        paths: PartitionPaths,
        local: LocalLog,
        tail: ReadOnlyTail | None,
        epochs: LogEpochs,
        producers: ProducerStateManager | None,
        scheduler: Scheduler,
        environment: LogEnvironment,
    ) -> None:
        super().__init__(paths, local, tail, epochs)
        self._on_offline = environment.on_offline
        self._not_compacted = environment.pause_cleaning
        self._scheduler = scheduler
        self._producer_check_ms = environment.producer_check_ms
        self._expiry_task: ScheduledTask | None = None
        self._state: LogProducers | None = None
        if producers is not None:
            self._state = LogProducers(local, producers, self._stable, self._watch_producers)

    @property
    def _producers(self) -> LogProducers:
        if self._state is None:
            raise ReadOnlyLogError(f"{self.directory} is open read-only", path=self.directory)
        return self._state

    @property
    def leader_epoch(self) -> int:
        """What the log's own appends are stamped with; rises with an unclean stop."""
        return self._epochs.current

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """
        Return the largest leader epoch not above `epoch`, and the offset behind its last record.

        Who follows this log finds there where the two part. Both are -1 where nothing is known.
        """
        snapshot = self._snapshot()
        return self._known_epochs(snapshot).end_offset_for(epoch, snapshot.end_offset)

    def list_transactions(self) -> list[OngoingTransaction]:
        """
        Return the transactions without a marker, the earliest first.

        A log that is only read tells them from its writer's batches.

        Raises:
            LogClosedError, LogOfflineError: as for a write.
            LogStorageError: the disk refused.
        """
        if self._read_only_producers is not None:
            return ongoing(self._read_only_transactions(), self._local.context.clock.now_ms())
        with self._write_lock:
            self._ensure_in_charge()
            return self._producers.transactions()

    def list_producers(self) -> list[ActiveProducer]:
        """
        Return what the log knows of its idempotent and transactional producers, by rising id.

        A producer that was silent for `producer.id.expiration.ms` is forgotten.

        Raises:
            ReadOnlyLogError, LogClosedError: as for a write.
        """
        with self._write_lock:
            self._ensure_in_charge()
            return self._producers.active()

    def find_producer(self, producer_id: int) -> ActiveProducer | None:
        """
        Return what the log knows of one producer, None where it knows nothing.

        Raises:
            ReadOnlyLogError, LogClosedError: as for a write.
        """
        with self._write_lock:
            self._ensure_in_charge()
            return self._producers.find(producer_id)

    def begin_verification(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        *,
        supports_epoch_bump: bool = False,
    ) -> int:
        """
        Return the guard that the append of a batch has to show which begins a transaction.

        For servers, with `kafkalog.verify.transactions`. Before a client's transactional batch is
        appended, ask here, then ask the coordinator whether the transaction is open and has this
        partition, and then call `append_batches(guard=)`. A marker that comes in between makes the
        guard worthless, so that no batch opens a transaction behind its own end. Batches of one
        producer that wait together get one guard, and the one with the lowest sequence goes first.

        Args:
            producer_id, producer_epoch, base_sequence: of the batch's header.
            supports_epoch_bump: whether each transaction of the producer has an epoch of its own
                (transaction version 2): one that is not known here begins with sequence 0 then.

        Returns:
            A positive number; 0 where the producer's transaction is open in this log: nothing needs
            to be verified.

        Raises:
            ReadOnlyLogError, LogClosedError: as for a write.
        """
        with self._write_lock:
            self._ensure_in_charge()
            return self._producers.begin_verification(
                producer_id, producer_epoch, base_sequence, supports_epoch_bump
            )

    def set_high_watermark(self, offset: int | None) -> int:
        """
        Let readers see what lies below `offset`, and nothing above; return the high watermark.

        For those who copy the log elsewhere: what could be lost with it alone is not shown yet, and
        a transaction is stable when its marker lies below.

        Args:
            offset: brought into the log's range; None for the log end, wherever that will be.
        """
        if offset is not None and offset < 0:
            raise ValueError(f"{offset} is no offset")
        with self._write_lock:
            self._ensure_writable()
            snapshot = self._local.snapshot
            if offset is not None:
                offset = max(min(offset, snapshot.end_offset), snapshot.start_offset)
            self._producers.set_high_watermark(offset)
            # Behind it: a `get` that comes between makes none that stay.
            self._invalidate_readers()
        self._notify_watchers()
        return self.high_watermark

    def expire_after(self, expiration_ms: int) -> None:
        """Let a producer be forgotten after another time of silence than now."""
        with self._write_lock:
            self._producers.expire_after(expiration_ms)

    def watch(self, on_change: Callable[[], object]) -> Callable[[], None]:
        """
        Have a function called when there may be more to read; return one that ends it.

        That is after each append of this process, its transactions' markers among them, after the
        high watermark was set, after a truncation, and when the log is closed. It is called by the
        thread that did it, without any lock, before a wait for the disk; it must be quick, and must
        not raise. What another process appends is not told.
        """
        entry = (on_change,)  # compared by identity: one function may be given twice
        with self._write_lock:
            self._watchers = (*self._watchers, entry)

        def unwatch() -> None:
            with self._write_lock:
                self._watchers = tuple(each for each in self._watchers if each is not entry)

        return unwatch

    def _notify_watchers(self) -> None:
        for (on_change,) in self._watchers:
            try:
                on_change()
            except Exception:
                # Whoever listens must not make an append fail that is in the log.
                logger.exception("%s: whoever was told of a change failed", self.directory)

    def _ensure_in_charge(self) -> None:
        """Raise as `_ensure_writable` does; nothing is going to be written."""
        self._ensure_writable()

    def _watch_producers(self) -> None:
        self._expiry_task = schedule_while_alive(
            self._scheduler, "expire-producers", self._expire_producers, self._producer_check_ms
        )

    def _expire_producers(self) -> None:
        with self._write_lock:
            if not self._closed and self._may_write():
                self._producers.expire()

    @contextmanager
    def _moving_start(self) -> Iterator[None]:
        """Around what rolls the log, or moves its start up."""
        before = self._local.snapshot
        try:
            yield
        finally:
            if self._local.snapshot is not before:
                self._producers.on_roll(before)
            if self._local.snapshot.start_offset > before.start_offset:
                self._epochs.truncate_from_start(self._local.snapshot.start_offset)
                self._producers.on_start_moved(before)

    @contextmanager
    def _truncating(self) -> Iterator[None]:
        """Around what cuts the log, or empties it."""
        before = self._local.snapshot
        self._epochs.begin_truncation()
        self._producers.block_committed_reads()
        try:
            yield
        finally:
            after = self._local.snapshot
            if after is before:
                self._producers.withdraw()
            elif after.end_offset < before.end_offset:
                self._epochs.bump()
        self._epochs.end_truncation()
        try:
            if after.segments.segments[0].base_offset >= after.end_offset == after.start_offset:
                self._epochs.clear()
                self._producers.reset()
            else:
                self._epochs.truncate_from_end(after.end_offset)
                self._producers.on_truncation()
        except (OSError, LogStorageError) as error:
            self._mark_offline(error)
            raise
