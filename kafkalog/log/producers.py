"""Producers of a log that is open for writing: checked before an append, updated after it.

An append with a producer's batches goes

    begin       its batches are checked against the state; nothing changes. Duplicates end it here.
    announce    readers of committed records stop before a transaction that begins
    ...         the batches are written and published
    commit      the state, the transaction indexes, then the visibility of readers are updated;
    or withdraw, if the write failed

An append without any costs the question whether it has some. A log that never had a producer has no
snapshot file, and none is written: where there is no snapshot at all, there was no producer below
the segment that holds the recovery point. That stays true since

  * a snapshot is taken where a segment begins, once a producer is known, and is on the disk before
    the recovery point is raised to that segment (`make_durable`);
  * another, on the disk too, ends every opening that was not in order, and every closing.

Crash points: those of `kafkalog.state.snapshot_files`. What a crash leaves of snapshots above the
log's end the next opening removes, and what they lacked it replays.

Thread-safety: everything under the log's lock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from kafkalog._core.memory_records import MemoryRecords
from kafkalog._engine.snapshot import LogSnapshot
from kafkalog.errors import DiskFullError, InvalidTxnStateError, LogStorageError
from kafkalog.log.isolation import StableOffsets
from kafkalog.log.local_log import LocalLog
from kafkalog.log.producer_replay import aborted_of, add_batch, replay_segments
from kafkalog.log.transactions import add_aborted
from kafkalog.model import (
    NOTHING_REWRITTEN,
    ActiveProducer,
    AppendInfo,
    AppendOrigin,
    OngoingTransaction,
)
from kafkalog.records.batch_view import BatchView
from kafkalog.records.control import encode_marker
from kafkalog.state.producer_entry import ProducedBatch, ProducerEntry
from kafkalog.state.producer_state_manager import ProducerStateManager
from kafkalog.state.producers import (
    CompletedTransaction,
    OpenTransaction,
    ProducerAppend,
    ProducerChecks,
)
from kafkalog.state.verification import NO_GUARD

__all__ = ["LogProducers", "PendingAppend", "duplicate_info", "ongoing"]

logger = logging.getLogger(__name__)

_CHECKS = {
    AppendOrigin.EMBEDDED: ProducerChecks.SEQUENCES,
    AppendOrigin.CLIENT: ProducerChecks.SEQUENCES,
    AppendOrigin.COORDINATOR: ProducerChecks.EPOCHS,
    AppendOrigin.REPLICATION: ProducerChecks.NONE,
}


# Whose transactions are verified. Producers of this process are: they register partitions first.
_VERIFIED = (AppendOrigin.CLIENT, AppendOrigin.COORDINATOR)


class PendingAppend:
    """Current append: its batches of producers, and the state after them."""

    __slots__ = ("append", "batches")

    def __init__(self, append: ProducerAppend, batches: list[BatchView]) -> None:
        self.append = append
        self.batches = batches

    @property
    def duplicates(self) -> tuple[ProducedBatch, ...]:
        """Batches that are in the log already; where there are any, nothing is written."""
        return self.append.duplicates


class LogProducers:
    """
    The producers of one log.

    Args:
        local: its segments.
        manager: their state, as it is at the log end.
        stable: where readers look.
        watch: called once, with the first producer that the log knows: from then on silent ones
            have to be looked for (`expire`).

    Attributes:
        states: the state in memory.
    """

    def __init__(
        self,
        local: LocalLog,
        manager: ProducerStateManager,
        stable: StableOffsets,
        watch: Callable[[], object],
    ) -> None:
        self._local = local
        self._manager = manager
        self.states = manager.states
        self._stable = stable
        self._high_watermark: int | None = None
        # Snapshots that a power cut may take yet; bases of segments for which none was written.
        self._unsynced: list[int] = []
        self._missing_snapshots: list[int] = (
            [manager.states.end_offset] if manager.needs_snapshot else []
        )
        self._watch: Callable[[], object] | None = watch
        self._watch_if_known()
        self._publish()

    def __repr__(self) -> str:
        return f"<LogProducers of {self._manager}>"

    @property
    def is_known(self) -> bool:
        """True if the log has, or once had, a producer."""
        return bool(self.states.entries) or self._manager.files.latest_offset is not None

    # Appending.

    def begin(
        self, run: MemoryRecords, origin: AppendOrigin, guard: int = NO_GUARD
    ) -> PendingAppend:
        """
        Hold a run, stamped with its offsets, against the state.

        Args:
            run, origin: the append.
            guard: of the verification that its transaction passed.

        Raises:
            ProducerStateError: it may not be appended.
        """
        verifies = self._local.context.config.verify_transactions and origin in _VERIFIED
        append = self.states.begin_append(
            _CHECKS[origin], verify_transactions=verifies, guard=guard
        )
        batches = []
        data, position = memoryview(run.data), 0
        for facts in run.batches:
            batch = BatchView(data[position : position + facts.size_bytes], position=position)
            position += facts.size_bytes
            if batch.header.producer_id >= 0:
                add_batch(append, batch)
                batches.append(batch)
        return PendingAppend(append, batches)

    def announce(self, pending: PendingAppend) -> None:
        """Let readers of committed records stop before a transaction that begins."""
        if self.states.first_unstable_offset is None:
            first = pending.append.first_started_offset
            if first is not None:
                self._stable.publish(self._high_watermark, first)

    def withdraw(self) -> None:
        """Take an announcement back: nothing was written."""
        self._publish()

    def block_committed_reads(self) -> None:
        """Let readers of committed records see nothing until the state is right again."""
        if self.is_known:
            self._stable.publish(self._high_watermark, 0)

    def commit(self, pending: PendingAppend, before: LogSnapshot) -> None:
        """
        Take over what was written and published.

        Args:
            pending: the append.
            before: the log before it.
        """
        fresh = _bases_after(self._local.snapshot, before)
        completed: list[CompletedTransaction] = []
        if not fresh:
            completed = pending.append.commit()
        else:
            # Each segment gets its snapshot: the batches that lie before it, accepted already.
            rest = pending.batches
            for base in [*fresh, None]:
                inside = [b for b in rest if base is None or b.header.base_offset < base]
                rest = rest[len(inside) :]
                part = self.states.begin_append(ProducerChecks.NONE)
                for batch in inside:
                    add_batch(part, batch)
                completed += part.commit()
                if base is not None:
                    self._begin_segment(base)
        snapshot = self._local.snapshot
        self.states.advance_to(snapshot.end_offset)
        add_aborted(self._local.context, snapshot, list(aborted_of(completed)))
        self._publish()
        self._watch_if_known()

    def on_roll(self, before: LogSnapshot) -> None:
        """Take the snapshots of segments that were begun, by nothing with a producer."""
        if self.is_known:
            for base in _bases_after(self._local.snapshot, before):
                self._begin_segment(base)

    # Transactions.

    def transactions(self) -> list[OngoingTransaction]:
        """Return the open transactions, the earliest first."""
        return ongoing(self.states.open_transactions(), self._local.context.clock.now_ms())

    def active(self) -> list[ActiveProducer]:
        """Return the producers that are known, in the order of their ids."""
        return [_active(entry) for _id, entry in sorted(self.states.entries.items())]

    def find(self, producer_id: int) -> ActiveProducer | None:
        """Return what is known of a producer, None where nothing is."""
        entry = self.states.entries.get(producer_id)
        return None if entry is None else _active(entry)

    def abort_marker(self, producer_id: int) -> bytes:
        """
        Return the batch that aborts a producer's open transaction.

        Raises:
            InvalidTxnStateError: it has none.
        """
        entry = self.states.entries.get(producer_id)
        if entry is None or entry.transaction_first_offset is None:
            path = self._local.context.directory
            raise InvalidTxnStateError(
                f"{path}: producer {producer_id} has no open transaction",
                producer_id=producer_id,
                path=path,
            )
        return encode_marker(
            producer_id,
            entry.producer_epoch,
            max(entry.coordinator_epoch, 0),
            self._local.context.clock.now_ms(),
            is_abort=True,
        )

    def begin_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, supports_epoch_bump: bool
    ) -> int:
        """Return the guard of a verification, `NO_GUARD` where the transaction is open here."""
        return self.states.begin_verification(
            producer_id,
            producer_epoch,
            base_sequence,
            self._local.context.clock.now_ms(),
            supports_epoch_bump=supports_epoch_bump,
        )

    def set_high_watermark(self, offset: int | None) -> None:
        """Let readers see offsets below `offset`; None for the current log end."""
        self._high_watermark = offset
        self._publish()

    # Changes of the log.

    def on_truncation(self) -> None:
        """
        Go back with a log that was truncated, to the newest snapshot and from there by replay.

        Raises:
            OSError, LogStorageError: the disk refused; nothing may be appended.
        """
        snapshot = self._local.snapshot
        if self._high_watermark is not None:
            self._high_watermark = min(self._high_watermark, snapshot.end_offset)
        if self.is_known:
            now_ms = self._local.context.clock.now_ms()
            first_offset = snapshot.segments.segments[0].base_offset
            self._manager.truncate_and_reload(first_offset, snapshot.end_offset, now_ms)
            replay_segments(self.states, snapshot)
            try:
                self._manager.take_snapshot()
            except DiskFullError as error:
                logger.warning("no producer snapshot after a truncation: %s", error)
                self._missing_snapshots.append(snapshot.end_offset)
        else:
            self.states.clear(snapshot.end_offset)
        self._discard_above(snapshot.end_offset)
        self._publish()

    def reset(self) -> None:
        """
        Remove all producers: the log is empty, and continues at another offset.

        Raises:
            LogStorageError: the disk refused; nothing may be appended.
        """
        if self._high_watermark is not None:
            self._high_watermark = self._local.snapshot.end_offset
        self._manager.reset(self._local.snapshot.end_offset)
        self._discard_above(-1)
        self._publish()

    def on_start_moved(self, before: LogSnapshot) -> None:
        """Follow a log that begins higher than `before`; files of its segments were renamed."""
        snapshot = self._local.snapshot
        here = set(snapshot.segments.bases)
        for base in before.segments.bases:
            if base not in here:
                self._manager.files.mark_deleted(base)
        self._manager.raise_start(snapshot.start_offset)
        self._publish()

    def expire_after(self, expiration_ms: int) -> None:
        """Let producers be forgotten after another time of silence."""
        self._manager.expire_after(expiration_ms)

    def mark_snapshots_deleted(self, offsets: Iterable[int]) -> None:
        """
        Rename the snapshots of segments that others replaced; what the disk refuses stays.

        The newest snapshot of all stays in any case: without one a log never had a producer.
        """
        for offset in offsets:
            if offset == self._manager.files.latest_offset:
                continue
            try:
                self._manager.files.mark_deleted(offset)
            except LogStorageError as error:
                logger.warning("the producer snapshot at offset %d stays: %s", offset, error)
                self._local.context.report(error)

    def last_entries(self) -> dict[int, ProducerEntry]:
        """Return what is known of each producer, by its id."""
        return dict(self.states.entries)

    def expire(self) -> int:
        """Forget producers that were silent for long; return how many."""
        return self._manager.remove_expired(self._local.context.clock.now_ms())

    def make_durable(self) -> bool:
        """
        Sync the snapshots of all segments; return whether there is one for each.

        The recovery point may be raised only then: below it nothing is replayed.

        Raises:
            LogStorageError: the disk refused.
        """
        if self._unsynced:
            unsynced, self._unsynced = self._unsynced, []
            try:
                self._manager.files.sync(unsynced)
            except LogStorageError:
                # No later sync of these is believed: the next snapshot has all that they have.
                self._missing_snapshots += unsynced
                raise
        # Without any, a recovery takes it that there was no producer below the recovery point.
        has_none = bool(self.states.entries) and self._manager.files.latest_offset is None
        return not self._missing_snapshots and not has_none

    def retain_snapshot(self, end_offset: int) -> bool:
        """Return whether a truncation leaves a snapshot, if the log has producers."""
        kept = any(each <= end_offset for each in self._manager.files.offsets)
        return kept or not self.is_known

    def close(self) -> None:
        """
        Write the snapshot that spares the next opening a replay.

        Raises:
            LogStorageError: the disk refused.
        """
        if self.is_known:
            self.states.advance_to(self._local.snapshot.end_offset)
            self._manager.take_snapshot()

    def _begin_segment(self, base_offset: int) -> None:
        if not self.is_known:
            return
        self.states.advance_to(max(base_offset, self.states.end_offset))
        try:
            if self._manager.take_snapshot(durable=False):
                self._unsynced.append(base_offset)
            self._missing_snapshots.clear()
        except LogStorageError as error:
            # No reason to refuse what is appended: the recovery point waits for the next one.
            logger.warning("no producer snapshot at offset %d: %s", base_offset, error)
            self._local.context.report(error)
            self._missing_snapshots.append(base_offset)

    def _discard_above(self, end_offset: int) -> None:
        self._unsynced = [each for each in self._unsynced if each <= end_offset]
        self._missing_snapshots = [each for each in self._missing_snapshots if each <= end_offset]

    def _watch_if_known(self) -> None:
        if self._watch is not None and self.states.entries:
            watch, self._watch = self._watch, None
            watch()

    def _publish(self) -> None:
        states = self.states
        if states.first_unstable_offset is not None:
            end = self._local.snapshot.end_offset
            states.advance_high_watermark(
                end if self._high_watermark is None else self._high_watermark
            )
        self._stable.publish(self._high_watermark, states.first_unstable_offset)


def duplicate_info(
    duplicates: Sequence[ProducedBatch], run: MemoryRecords, *, is_log_append_time: bool
) -> AppendInfo:
    """Return the answer to an append that was made before."""
    first, last = duplicates[0], duplicates[-1]
    newest = max(duplicates, key=lambda each: each.timestamp_ms)
    return AppendInfo(
        first_offset=first.first_offset,
        last_offset=last.last_offset,
        record_count=run.record_count,
        batch_count=len(run.batches),
        size_bytes=0,
        log_append_time_ms=last.timestamp_ms if is_log_append_time else None,
        max_timestamp_ms=newest.timestamp_ms,
        shallow_offset_of_max_timestamp=newest.last_offset if newest.timestamp_ms >= 0 else -1,
        rewriting=NOTHING_REWRITTEN if run.rewriting is None else run.rewriting,
        is_duplicate=True,
    )


def ongoing(transactions: Iterable[OpenTransaction], now_ms: int) -> list[OngoingTransaction]:
    """Return open transactions with their age."""
    return [
        OngoingTransaction(
            each.producer_id,
            each.producer_epoch,
            each.first_offset,
            each.last_timestamp_ms,
            max(now_ms - each.last_timestamp_ms, 0),
        )
        for each in transactions
    ]


def _active(entry: ProducerEntry) -> ActiveProducer:
    return ActiveProducer(
        entry.producer_id,
        entry.producer_epoch,
        entry.last_sequence if entry.batches else -1,
        entry.last_timestamp_ms,
        entry.coordinator_epoch,
        entry.transaction_first_offset,
    )


def _bases_after(snapshot: LogSnapshot, before: LogSnapshot) -> list[int]:
    """Return the bases of the segments that a log has more than before, ascending."""
    if snapshot.segments is before.segments:
        return []
    last_base = before.segments.bases[-1]
    return [base for base in snapshot.segments.bases if base > last_base]
