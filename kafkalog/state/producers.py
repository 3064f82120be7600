"""What a log knows of its producers and their transactions, and the checks that follow from it.

An append takes three steps, all under the log's lock:

    append = states.begin_append(checks)      nothing is changed by this ...
    append.add_data(...), .add_marker(...)    ... nor by these, which refuse what may not be there
    append.commit()                           after the batches were written

Between first and last the entries of the append's producers stand in the append, chained, so that
several batches of one producer follow from each other; what is dropped without `commit` never was.

A transaction is *ongoing* from its first batch to its marker, and *unreplicated* from then until
the high watermark is above the marker. The first offset of the earliest of both kinds is the first
unstable offset: no reader of committed records may go there.

Invariants: the state covers the offsets below `end_offset` and no others; the first offsets of
ongoing transactions are those of the entries that have one.

Thread-safety: none of its own, every call is made under the log's lock. Entries are immutable.
Never does: touching a disk, reading a clock.
"""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from os import PathLike
from typing import NamedTuple

from kafkalog.state.producer_append import CompletedTransaction, ProducerAppend, ProducerChecks
from kafkalog.state.producer_entry import ProducerEntry
from kafkalog.state.producer_snapshot import ProducerSnapshotEntry
from kafkalog.state.verification import NO_GUARD, TransactionVerification

__all__ = ["OpenTransaction", "ProducerStates"]


class OpenTransaction(NamedTuple):
    """
    A transaction without a marker.

    Attributes:
        producer_id, producer_epoch: whose it is.
        first_offset: its first record.
        last_timestamp_ms: of the producer's last batch.
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
        end_offset: where the log begins that nothing is known of yet.
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
        Return the state of an append that is about to be made.

        Args:
            checks: what its batches have to pass.
            verify_transactions: whether a transaction may begin only with the guard of a
                verification.
            guard: of the verification that its transaction passed (`begin_verification`).
        """
        return ProducerAppend(self, checks, guard, verify_transactions)

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
        Return the guard that the append of a transactional batch has to show.

        `NO_GUARD` for a producer whose transaction is open here: nothing needs to be verified.
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

    def record_transactions(
        self, started: Iterable[tuple[int, int]], completed: Iterable[CompletedTransaction]
    ) -> list[CompletedTransaction]:
        """
        Take over what an append began and ended; `ProducerAppend.commit` calls it.

        Args:
            started: (first offset, producer id) of transactions, in order.
            completed: transactions whose markers it brought, in order.

        Returns the latter with the offset up to which each made everything stable. A transaction
        that begins behind a marker has no part in that, although it is of the same append.
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
        """Say that the state covers all offsets below `end_offset`, batches without a producer too.

        Raises:
            ValueError: it covers more already.
        """
        if end_offset < self.end_offset:
            raise ValueError(f"{self} cannot cover less, up to {end_offset}")
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
        """Return the offset below which readers of committed records may go."""
        unstable = self.first_unstable_offset
        return high_watermark if unstable is None else min(unstable, high_watermark)

    @property
    def oldest_transaction_timestamp_ms(self) -> int:
        """Time of the last batch of who has the transaction open for longest, -1 for none."""
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
        """Forget what is replicated now; say whether the first unstable offset may have moved."""
        kept = [each for each in self._unreplicated if each[1] >= high_watermark]
        moved = len(kept) < len(self._unreplicated)
        self._unreplicated = kept
        return moved

    def raise_start(self, log_start_offset: int) -> None:
        """Take note that the log begins at `log_start_offset` now."""
        self.advance_high_watermark(log_start_offset)
        self.end_offset = max(self.end_offset, log_start_offset)

    def _stable_without(self, transaction: CompletedTransaction) -> int:
        for first_offset, producer_id in self._ongoing.items():
            if producer_id != transaction.producer_id:
                return first_offset
        return transaction.last_offset + 1

    # The whole of it.

    def snapshot_entries(self) -> Iterator[ProducerSnapshotEntry]:
        """Yield what a snapshot at `end_offset` says, in the order in which the producers came."""
        return map(ProducerEntry.to_snapshot, self.entries.values())

    def load(self, entries: Iterable[ProducerSnapshotEntry], end_offset: int) -> None:
        """Begin anew with what a snapshot says; none is the beginning of a log at `end_offset`."""
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
        """Forget everything; verifications stay, which are no part of the log."""
        self.entries = {}
        self._ongoing.clear()
        self._unreplicated = []
        self.end_offset = end_offset

    def remove_expired(self, now_ms: int, expiration_ms: int) -> int:
        """
        Forget producers without an open transaction that were silent for `expiration_ms`.

        Their last batch's own timestamp counts. Returns how many were forgotten.
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
