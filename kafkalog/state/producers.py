"""State of a log's producers and their transactions, and the checks of an append against it.

An append takes three steps, all under the log's lock:

    append = states.begin_append(checks)      changes nothing ...
    append.add_data(...), .add_marker(...)    ... nor do these, which refuse invalid batches
    append.commit()                           after the batches were written

Between the first and the last step the entries of the append's producers are in the append,
chained, so that several batches of one producer follow from each other; an append that is dropped
without `commit` has no effect.

Checks depend on the origin of the append:

    SEQUENCES   a producer's batches: duplicates are found, epochs and sequences must fit
    EPOCHS      a coordinator's batches and markers, which have no sequences
    NONE        batches that another log, or this one before a restart, has accepted: no batch is
                refused, a contradiction is logged

A duplicate is a batch with the epoch and the exact sequences of one of the last five batches that
the producer had here before the append. It is not an error: the caller writes nothing and answers
with the offsets of `duplicates`.

A transaction is *ongoing* from its first batch to its marker, and *unreplicated* from then until
the high watermark is above the marker. The first offset of the earliest of both kinds is the first
unstable offset: a reader of committed records stops there.

Invariants: the state covers the offsets below `end_offset` and no others; the first offsets of
ongoing transactions are those of the entries that have one.

Thread-safety: no lock inside. Every call is made under the log's lock; one append belongs to one
thread. Entries are immutable. This module never touches a disk and never reads a clock.
"""

from __future__ import annotations

import logging
from bisect import insort
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from os import PathLike
from typing import NamedTuple

from kafkalog._engine.producer_window import after_next, is_next
from kafkalog.errors import (
    DuplicateSequenceError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    ProducerStateError,
    TransactionCoordinatorFencedError,
)
from kafkalog.state.producer_entry import (
    MAX_SEQUENCE,
    NO_EPOCH,
    NO_SEQUENCE,
    ProducedBatch,
    ProducerEntry,
    sequence_before,
)
from kafkalog.state.producer_snapshot import ProducerSnapshotEntry
from kafkalog.state.verification import NO_GUARD, TransactionVerification

__all__ = [
    "CompletedTransaction",
    "OpenTransaction",
    "ProducerAppend",
    "ProducerChecks",
    "ProducerStates",
]

logger = logging.getLogger(__name__)


class ProducerChecks(IntEnum):
    """Checks of the batches of an append; a larger value includes the smaller ones."""

    NONE = 0
    EPOCHS = 1
    SEQUENCES = 2


class CompletedTransaction(NamedTuple):
    """
    A transaction with batches and a marker.

    Attributes:
        producer_id: id of its producer.
        first_offset: offset of its first record.
        last_offset: offset of its marker.
        is_aborted: True if the marker aborts it.
        last_stable_offset: first offset of the earliest transaction of another producer that is
            ongoing, or the marker's next offset; -1 before `commit`.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool
    last_stable_offset: int = -1


class OpenTransaction(NamedTuple):
    """
    A transaction without a marker.

    Attributes:
        producer_id, producer_epoch: id and epoch of its producer.
        first_offset: offset of its first record.
        last_timestamp_ms: timestamp of the producer's last batch.
    """

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_timestamp_ms: int


class ProducerStates:
    """
    The producers of one log.

    Args:
        path: the log's directory, for errors.
        end_offset: start offset of a log whose batches are not covered yet.
    """

    def __init__(
        self,
        path: str | PathLike[str] | None = None,
        *,
        end_offset: int = 0,
    ) -> None:
        self.path = path
        self.verification = TransactionVerification()
        self.end_offset = end_offset
        self.entries: dict[int, ProducerEntry] = {}
        # First offset -> producer id, ascending: a transaction begins at the end of the log.
        self._ongoing: OrderedDict[int, int] = OrderedDict()
        # (First offset, marker's offset), sorted.
        self._unreplicated: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self.entries)

    def __repr__(self) -> str:
        return (
            f"<ProducerStates below {self.end_offset}: {len(self.entries)} producers,"
            f" {len(self._ongoing)} open transactions>"
        )

    # Appending.

    def begin_append(
        self,
        checks: ProducerChecks,
        *,
        verify_transactions: bool = False,
        guard: int = NO_GUARD,
    ) -> ProducerAppend:
        """
        Return the state of a new append.

        Args:
            checks: checks of its batches.
            verify_transactions: True if a transaction may begin only with the guard of a
                verification.
            guard: guard of the verification of its transaction (`begin_verification`).
        """
        return ProducerAppend(self, checks, guard, verify_transactions)

    def find_next(
        self, producer_id: int, producer_epoch: int, base_sequence: int
    ) -> ProducerEntry | None:
        """
        Return the entry of a producer, if a batch is its next one in sequence.

        None where more has to be checked: for another batch, and in a log with transactions or
        verifications.
        """
        entry = self.entries.get(producer_id)
        if (
            entry is None
            or self._ongoing
            or self._unreplicated
            or self.verification.pending
            or not is_next(entry, producer_epoch, base_sequence)
        ):
            return None
        return entry

    def record_next(
        self, entry: ProducerEntry, last_offset: int, offset_delta: int, timestamp_ms: int
    ) -> None:
        """
        Record the next batch of a producer, which is the last one of the log.

        Args:
            entry: what `find_next` returned.
            last_offset: its last offset.
            offset_delta: its first offset, from the last one back.
            timestamp_ms: its largest timestamp.
        """
        self.entries[entry[0]] = after_next(entry, last_offset, offset_delta, timestamp_ms)
        self.end_offset = last_offset + 1

    def begin_verification(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        now_ms: int,
        *,
        supports_epoch_bump: bool = False,
    ) -> int:
        """
        Return the guard that the append of a transactional batch must pass.

        `NO_GUARD` for a producer whose transaction is open here: no verification is needed.
        """
        entry = self.entries.get(producer_id)
        if (
            entry is not None
            and entry.producer_epoch == producer_epoch
            and entry.transaction_first_offset is not None
        ):
            return NO_GUARD
        return self.verification.begin(
            producer_id,
            base_sequence,
            producer_epoch,
            now_ms,
            supports_epoch_bump=supports_epoch_bump,
        )

    def record_producers(
        self, entries: Mapping[int, ProducerEntry], verified: Iterable[int]
    ) -> None:
        """
        Record the producers of an append; `ProducerAppend.commit` calls it.

        Args:
            entries: their entries after the append, by producer id.
            verified: producers whose verification ends with the append.
        """
        self.entries.update(entries)
        for producer_id in verified:
            self.verification.clear(producer_id)

    def record_transactions(
        self, started: Iterable[tuple[int, int]], completed: Iterable[CompletedTransaction]
    ) -> list[CompletedTransaction]:
        """
        Record the transactions that an append began and ended; `ProducerAppend.commit` calls it.

        Args:
            started: (first offset, producer id) of transactions, in order.
            completed: transactions whose markers are in the append, in order.

        Returns the completed transactions with their last stable offsets. A transaction that begins
        after a marker does not affect the offset of that marker, even in the same append.
        """
        done = []
        waiting = iter(started)
        begun = next(waiting, None)
        for transaction in completed:
            while begun is not None and begun[0] < transaction.last_offset:
                self._ongoing[begun[0]] = begun[1]
                begun = next(waiting, None)
            stable = self._stable_without(transaction)
            self._ongoing.pop(transaction.first_offset, None)
            insort(self._unreplicated, (transaction.first_offset, transaction.last_offset))
            done.append(transaction._replace(last_stable_offset=stable))
        if begun is not None:
            self._ongoing[begun[0]] = begun[1]
            self._ongoing.update(waiting)
        return done

    def advance_to(self, end_offset: int) -> None:
        """
        Set the end of the state: it covers all offsets below, also batches without a producer.

        Raises:
            ValueError: the state covers more already.
        """
        if end_offset < self.end_offset:
            raise ValueError(f"end offset must be >= {self.end_offset}, got {end_offset}")
        self.end_offset = end_offset

    # Transactions.

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the earliest transaction that is ongoing or unreplicated."""
        ongoing = next(iter(self._ongoing), None)
        if not self._unreplicated:
            return ongoing
        earliest = self._unreplicated[0][0]
        return earliest if ongoing is None else min(earliest, ongoing)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the end of the records that readers of committed records may see."""
        unstable = self.first_unstable_offset
        return high_watermark if unstable is None else min(unstable, high_watermark)

    @property
    def oldest_transaction_timestamp_ms(self) -> int:
        """Timestamp of the last batch of the producer with the earliest open transaction, or -1."""
        for producer_id in self._ongoing.values():
            return self.entries[producer_id].last_timestamp_ms
        return -1

    def open_transactions(self) -> list[OpenTransaction]:
        """Return the ongoing transactions, the earliest first."""
        found = []
        for first_offset, producer_id in self._ongoing.items():
            entry = self.entries[producer_id]
            found.append(
                OpenTransaction(
                    producer_id, entry.producer_epoch, first_offset, entry.last_timestamp_ms
                )
            )
        return found

    def advance_high_watermark(self, high_watermark: int) -> bool:
        """Remove replicated transactions; return whether `first_unstable_offset` may differ."""
        kept = [each for each in self._unreplicated if each[1] >= high_watermark]
        moved = len(kept) < len(self._unreplicated)
        self._unreplicated = kept
        return moved

    def raise_start(self, log_start_offset: int) -> None:
        """Set the log start offset to `log_start_offset`."""
        self.advance_high_watermark(log_start_offset)
        self.end_offset = max(self.end_offset, log_start_offset)

    def _stable_without(self, transaction: CompletedTransaction) -> int:
        for first_offset, producer_id in self._ongoing.items():
            if producer_id != transaction.producer_id:
                return first_offset
        return transaction.last_offset + 1

    # The whole state.

    def snapshot_entries(self) -> Iterator[ProducerSnapshotEntry]:
        """Yield the entries of a snapshot at `end_offset`, in the order of their insertion."""
        return map(ProducerEntry.to_snapshot, self.entries.values())

    def load(self, entries: Iterable[ProducerSnapshotEntry], end_offset: int) -> None:
        """Replace the state by the entries of a snapshot that ends at `end_offset`."""
        self.clear(end_offset)
        loaded = map(ProducerEntry.from_snapshot, entries)
        self.entries = {entry.producer_id: entry for entry in loaded}
        self._ongoing = OrderedDict(
            sorted(
                (entry.transaction_first_offset, entry.producer_id)
                for entry in self.entries.values()
                if entry.transaction_first_offset is not None
            )
        )

    def clear(self, end_offset: int) -> None:
        """Remove all entries; verifications stay, because they are not part of the log."""
        self.entries = {}
        self._ongoing.clear()
        self._unreplicated = []
        self.end_offset = end_offset

    def remove_expired(self, now_ms: int, expiration_ms: int) -> int:
        """
        Remove producers without an open transaction and without a batch for `expiration_ms`.

        The timestamp in their last batch counts. Returns the number of removed producers.
        """
        limit = now_ms - expiration_ms
        expired = [
            producer_id
            for producer_id, entry in self.entries.items()
            if entry.last_timestamp_ms <= limit and entry.transaction_first_offset is None
        ]
        for producer_id in expired:
            del self.entries[producer_id]
        self.verification.remove_older(limit)
        return len(expired)


class ProducerAppend:
    """
    An append in progress; made by `ProducerStates.begin_append`.

    Attributes:
        duplicates: batches that the log has already; if there are any, the caller writes nothing.
        completed: transactions that the append's markers end.
    """

    __slots__ = (
        "_checks",
        "_entries",
        "_guard",
        "_is_verifying",
        "_started",
        "_states",
        "_verified",
        "_verifies",
        "completed",
        "duplicates",
    )

    def __init__(
        self, states: ProducerStates, checks: ProducerChecks, guard: int, verifies: bool
    ) -> None:
        self._states = states
        self._checks = checks
        self._guard = guard
        self._verifies = verifies
        self._is_verifying = verifies or states.verification.pending
        self._entries: dict[int, ProducerEntry] = {}
        # Producers whose verification ends with this append: a transaction begins or ends.
        self._verified: list[int] = []
        self._started: list[tuple[int, int]] = []
        self.completed: list[CompletedTransaction] = []
        self.duplicates: tuple[ProducedBatch, ...] = ()

    def add_data(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        first_offset: int,
        last_offset: int,
        timestamp_ms: int,
        is_transactional: bool = False,
    ) -> None:
        """
        Add a data batch of a producer, with its future offsets.

        Args:
            producer_id, producer_epoch, base_sequence: fields of its header; sequence -1 for none.
            first_offset, last_offset: its offsets in the log.
            timestamp_ms: its largest timestamp.
            is_transactional: True if it is part of a transaction.

        Raises:
            ProducerStateError: the batch must not be appended.
        """
        delta = last_offset - first_offset
        last_sequence = NO_SEQUENCE
        if base_sequence >= 0:
            last_sequence = (base_sequence + delta) & MAX_SEQUENCE
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._states.entries.get(producer_id) or ProducerEntry(producer_id)
        if self._checks:
            batches = entry.batches
            # The usual case: the next batch in sequence, without verification or duplicates.
            if (
                self._is_verifying
                or self.duplicates
                or not batches
                or producer_epoch != entry.producer_epoch
                or base_sequence != (batches[-1].last_sequence + 1) & MAX_SEQUENCE
            ):
                if self._is_duplicate(entry, producer_epoch, base_sequence, last_sequence):
                    return
                self._check_data(
                    entry, producer_epoch, (base_sequence, last_sequence), is_transactional
                )
        if is_transactional:
            self._verified.append(producer_id)
        transaction = entry.transaction_first_offset
        if transaction is None:
            if is_transactional:
                transaction = first_offset
                self._started.append((first_offset, producer_id))
        elif not is_transactional:
            self._refuse_or_log(
                InvalidTxnStateError, entry, "a batch outside of its open transaction"
            )
        self._entries[producer_id] = entry.with_batch(
            producer_epoch, last_sequence, last_offset, delta, timestamp_ms, transaction
        )

    def add_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        offset: int,
        timestamp_ms: int,
        *,
        is_abort: bool,
    ) -> None:
        """
        Add the marker that ends a producer's transaction; without one it only changes the epochs.

        Raises:
            InvalidProducerEpochError: the log has a newer epoch of the producer.
            TransactionCoordinatorFencedError: the log has a newer epoch of the coordinator.
        """
        entry = self._entry_of(producer_id)
        self._check_epoch(entry, producer_epoch)
        if coordinator_epoch < entry.coordinator_epoch:
            self._refuse_or_log(
                TransactionCoordinatorFencedError,
                entry,
                f"a marker of coordinator epoch {coordinator_epoch} after epoch"
                f" {entry.coordinator_epoch}",
            )
        first_offset = entry.transaction_first_offset
        if first_offset is not None:
            self.completed.append(CompletedTransaction(producer_id, first_offset, offset, is_abort))
        self._verified.append(producer_id)
        self._entries[producer_id] = entry.with_marker(
            producer_epoch, coordinator_epoch, timestamp_ms
        )

    @property
    def first_started_offset(self) -> int | None:
        """First offset of the first transaction that the append begins."""
        return self._started[0][0] if self._started else None

    def commit(self) -> list[CompletedTransaction]:
        """
        Apply the append to the log's state, after its batches were written.

        Returns the completed transactions with their last stable offsets; the caller adds the
        aborted ones to the transaction index.
        """
        states = self._states
        states.record_producers(self._entries, self._verified)
        if self._started or self.completed:
            return states.record_transactions(self._started, self.completed)
        return []

    # Checks.

    def _is_duplicate(
        self, entry: ProducerEntry, producer_epoch: int, base_sequence: int, last_sequence: int
    ) -> bool:
        if base_sequence < 0 or self._checks != ProducerChecks.SEQUENCES:
            return False
        # Compared with the state before the append: equal batches within it are no duplicates.
        stored = self._states.entries.get(entry.producer_id)
        if stored is None:
            return False
        batch = stored.find_duplicate(producer_epoch, base_sequence, last_sequence)
        if batch is None:
            return False
        if self._entries:
            raise self._mixed(entry.producer_id)
        self.duplicates += (batch,)
        return True

    def _check_data(
        self,
        entry: ProducerEntry,
        producer_epoch: int,
        sequences: tuple[int, int],
        is_transactional: bool,
    ) -> None:
        states = self._states
        if self.duplicates:
            raise self._mixed(entry.producer_id)
        if is_transactional and self._verifies:
            ongoing = (
                entry.transaction_first_offset is not None
                and entry.producer_epoch == producer_epoch
            )
            if not ongoing and not states.verification.is_verified(entry.producer_id, self._guard):
                problem = "a transaction that was not verified"
                raise self._error(InvalidTxnStateError, entry.producer_id, problem)
        self._check_epoch(entry, producer_epoch)
        if self._checks == ProducerChecks.SEQUENCES:
            self._check_sequence(entry, producer_epoch, *sequences)

    def _check_epoch(self, entry: ProducerEntry, producer_epoch: int) -> None:
        if producer_epoch < entry.producer_epoch:
            self._refuse_or_log(
                InvalidProducerEpochError,
                entry,
                f"epoch {producer_epoch} after epoch {entry.producer_epoch}",
            )

    def _check_sequence(
        self, entry: ProducerEntry, producer_epoch: int, base_sequence: int, last_sequence: int
    ) -> None:
        pending = self._states.verification.pending.get(entry.producer_id)
        if pending is not None:
            if pending.supports_epoch_bump and base_sequence != 0 and not entry.batches:
                raise self._out_of_order(
                    entry, base_sequence, "the first of a transaction must be 0"
                )
            if base_sequence > pending.lowest_sequence:
                raise self._out_of_order(
                    entry, base_sequence, f"{pending.lowest_sequence} must be appended first"
                )
        if entry.producer_epoch == NO_EPOCH:
            # Its batches may be deleted with their segments: any sequence may be the next one.
            return
        if producer_epoch != entry.producer_epoch:
            if base_sequence != 0:
                raise self._out_of_order(
                    entry, base_sequence, f"epoch {producer_epoch} must begin with 0"
                )
        else:
            expected = (entry.last_sequence + 1) & MAX_SEQUENCE
            if base_sequence != expected:
                if _is_past(entry, base_sequence, last_sequence):
                    raise self._error(
                        DuplicateSequenceError,
                        entry.producer_id,
                        f"sequence {base_sequence} after {entry.last_sequence}, of no recent batch:"
                        f" the next one must be {expected}",
                    )
                raise self._out_of_order(entry, base_sequence, f"the next one must be {expected}")

    def _entry_of(self, producer_id: int) -> ProducerEntry:
        entry = self._entries.get(producer_id) or self._states.entries.get(producer_id)
        return ProducerEntry(producer_id) if entry is None else entry

    def _refuse_or_log(
        self, error_type: type[ProducerStateError], entry: ProducerEntry, problem: str
    ) -> None:
        error = self._error(error_type, entry.producer_id, problem)
        if self._checks:
            raise error
        logger.warning("%s", error)

    def _out_of_order(
        self, entry: ProducerEntry, base_sequence: int, reason: str
    ) -> ProducerStateError:
        problem = f"sequence {base_sequence} after {entry.last_sequence}: {reason}"
        return self._error(OutOfOrderSequenceError, entry.producer_id, problem)

    def _mixed(self, producer_id: int) -> ProducerStateError:
        problem = "some batches of the append are in the log already, others are not"
        return self._error(OutOfOrderSequenceError, producer_id, problem)

    def _error(
        self, error_type: type[ProducerStateError], producer_id: int, problem: str
    ) -> ProducerStateError:
        path = self._states.path
        where = "" if path is None else f"{path}: "
        return error_type(
            f"{where}producer {producer_id}: {problem}", producer_id=producer_id, path=path
        )


def _is_past(entry: ProducerEntry, base_sequence: int, last_sequence: int) -> bool:
    """Return whether a batch ends at or before the last one of its producer, by less than 2^30."""
    if entry.last_sequence < 0:
        return False
    # Distances back from the last sequence; the numbers start again from 0.
    last_back = sequence_before(entry.last_sequence, last_sequence)
    base_back = sequence_before(entry.last_sequence, base_sequence)
    return last_back <= base_back <= MAX_SEQUENCE // 2
