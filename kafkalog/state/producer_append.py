"""The batches of one append as their producers' state sees them: checked, and then committed.

What is checked depends on who appends:

    SEQUENCES   a producer's batches: duplicates are found, epochs and sequences have to fit
    EPOCHS      a coordinator's batches and markers, which have no sequences
    NONE        batches that another log, or this one before a restart, has accepted: nothing is
                refused, whatever is odd is logged

A duplicate is a batch with the epoch and the exact sequences of one of the last five that the
producer had here before the append. It is no error: the caller writes nothing and answers with the
offsets of `duplicates`.

Thread-safety: one append belongs to one thread, which holds the log's lock.
"""

from __future__ import annotations

import logging
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.errors import (
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
)

if TYPE_CHECKING:
    from kafkalog.state.producers import ProducerStates

__all__ = ["CompletedTransaction", "ProducerAppend", "ProducerChecks"]

logger = logging.getLogger(__name__)


class ProducerChecks(IntEnum):
    """What the batches of an append have to pass; the larger includes the smaller."""

    NONE = 0
    EPOCHS = 1
    SEQUENCES = 2


class CompletedTransaction(NamedTuple):
    """
    A transaction that had batches, and now its marker.

    Attributes:
        producer_id: whose it was.
        first_offset: its first record.
        last_offset: its marker.
        is_aborted: whether the marker says that it never was.
        last_stable_offset: first offset of the earliest transaction of another producer that is
            ongoing, or the marker's next offset; -1 before `commit`.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool
    last_stable_offset: int = -1


class ProducerAppend:
    """
    An append under way; made by `ProducerStates.begin_append`.

    Attributes:
        duplicates: batches that are there already; where there are any, nothing is to be written.
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
        # Producers whose verification ends with this append: its transaction begins, or is over.
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
        Add a data batch of a producer, with the offsets that it is to get.

        Args:
            producer_id, producer_epoch, base_sequence: of its header; sequence -1 for none.
            first_offset, last_offset: its offsets in the log.
            timestamp_ms: its largest timestamp.
            is_transactional: whether it is part of a transaction.

        Raises:
            ProducerStateError: it may not be appended.
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
            # The next batch of a producer at work, and nothing more to look at: the usual case.
            if (
                self._is_verifying
                or self.duplicates
                or not batches
                or producer_epoch != entry.producer_epoch
                or base_sequence != (batches[-1].last_sequence + 1) & MAX_SEQUENCE
            ):
                if self._is_duplicate(entry, producer_epoch, base_sequence, last_sequence):
                    return
                self._check_data(entry, producer_epoch, base_sequence, is_transactional)
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
        Add the marker that ends a producer's transaction; without one it only moves the epochs.

        Raises:
            InvalidProducerEpochError: a newer epoch of the producer was here.
            TransactionCoordinatorFencedError: a newer coordinator was.
        """
        entry = self._entry_of(producer_id)
        self._check_epoch(entry, producer_epoch)
        if coordinator_epoch < entry.coordinator_epoch:
            self._refuse_or_log(
                TransactionCoordinatorFencedError,
                entry,
                f"a marker of coordinator epoch {coordinator_epoch} behind one of"
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
        """Where the first transaction begins that the append opens."""
        return self._started[0][0] if self._started else None

    def commit(self) -> list[CompletedTransaction]:
        """
        Make the log's state what the batches, now written, have made of it.

        Returns the completed transactions, with what each made stable; those that were aborted
        belong into the transaction index.
        """
        states = self._states
        states.entries.update(self._entries)
        for producer_id in self._verified:
            states.verification.clear(producer_id)
        if self._started or self.completed:
            return states.record_transactions(self._started, self.completed)
        return []

    # Checks.

    def _is_duplicate(
        self, entry: ProducerEntry, producer_epoch: int, base_sequence: int, last_sequence: int
    ) -> bool:
        if base_sequence < 0 or self._checks != ProducerChecks.SEQUENCES:
            return False
        # Against what was there before this append: two equal batches within it are none.
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
        self, entry: ProducerEntry, producer_epoch: int, base_sequence: int, is_transactional: bool
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
                problem = "a transaction that nobody has verified"
                raise self._error(InvalidTxnStateError, entry.producer_id, problem)
        self._check_epoch(entry, producer_epoch)
        if self._checks == ProducerChecks.SEQUENCES:
            self._check_sequence(entry, producer_epoch, base_sequence)

    def _check_epoch(self, entry: ProducerEntry, producer_epoch: int) -> None:
        if producer_epoch < entry.producer_epoch:
            self._refuse_or_log(
                InvalidProducerEpochError,
                entry,
                f"epoch {producer_epoch} after epoch {entry.producer_epoch}",
            )

    def _check_sequence(
        self, entry: ProducerEntry, producer_epoch: int, base_sequence: int
    ) -> None:
        pending = self._states.verification.pending.get(entry.producer_id)
        if pending is not None:
            if pending.supports_epoch_bump and base_sequence != 0 and not entry.batches:
                raise self._out_of_order(
                    entry, base_sequence, "the first of a transaction has to be 0"
                )
            if base_sequence > pending.lowest_sequence:
                raise self._out_of_order(
                    entry, base_sequence, f"{pending.lowest_sequence} waits to be appended first"
                )
        if entry.producer_epoch == NO_EPOCH:
            # Its batches may be gone with their segments: any sequence may be the next one.
            return
        if producer_epoch != entry.producer_epoch:
            if base_sequence != 0:
                raise self._out_of_order(
                    entry, base_sequence, f"epoch {producer_epoch} has to begin with 0"
                )
        else:
            expected = (entry.last_sequence + 1) & MAX_SEQUENCE
            if base_sequence != expected:
                raise self._out_of_order(entry, base_sequence, f"{expected} is the next one")

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
