"""Verified transactions: who may begin one in this log.

Before the first batch of a transaction is appended, its coordinator is asked whether the
transaction is open and holds this partition. The question is asked outside the log's lock, so the
log gives out a guard first: the append has to show it, and a marker that came in between has made
it worthless. Otherwise a batch that was late could begin a transaction that nobody ends.

Guards are positive, rise, and are never given out twice; 0 verifies nothing.

Thread-safety: called under the log's lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Final

__all__ = ["NO_GUARD", "PendingVerification", "TransactionVerification"]

NO_GUARD: Final = 0

_numbers: Final = count(1)


@dataclass(slots=True)
class PendingVerification:
    """
    A producer whose transaction is being verified.

    Attributes:
        guard: what the append has to show.
        created_ms: when it was given out first.
        lowest_sequence: smallest base sequence of the batches that wait, of `producer_epoch`.
        producer_epoch: largest epoch that asked.
        supports_epoch_bump: whether each of its transactions has an epoch of its own (transaction
            version 2), so that one that is not known here has to begin with sequence 0.
    """

    guard: int
    created_ms: int
    lowest_sequence: int
    producer_epoch: int
    supports_epoch_bump: bool

    def record(self, sequence: int, producer_epoch: int) -> None:
        """Take note of another batch that waits for the same verification."""
        if producer_epoch > self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.lowest_sequence = sequence
        elif producer_epoch == self.producer_epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)


class TransactionVerification:
    """
    The verifications of one log that are under way.

    Attributes:
        pending: producer id -> what waits for its answer.
    """

    __slots__ = ("pending",)

    def __init__(self) -> None:
        self.pending: dict[int, PendingVerification] = {}

    def begin(
        self,
        producer_id: int,
        sequence: int,
        producer_epoch: int,
        now_ms: int,
        *,
        supports_epoch_bump: bool = False,
    ) -> int:
        """Return the guard of a producer's verification, begun by this call if there is none."""
        pending = self.pending.get(producer_id)
        if pending is None:
            pending = self.pending[producer_id] = PendingVerification(
                next(_numbers), now_ms, sequence, producer_epoch, supports_epoch_bump
            )
        else:
            pending.record(sequence, producer_epoch)
        return pending.guard

    def is_verified(self, producer_id: int, guard: int) -> bool:
        """Return whether `guard` is the one that the producer was given."""
        pending = self.pending.get(producer_id)
        return pending is not None and guard == pending.guard

    def clear(self, producer_id: int) -> None:
        """End a producer's verification: its transaction has begun here, or is over."""
        self.pending.pop(producer_id, None)

    def remove_older(self, created_ms: int) -> None:
        """Forget the verifications that were begun at `created_ms` or before."""
        stale = [key for key, each in self.pending.items() if each.created_ms <= created_ms]
        for producer_id in stale:
            del self.pending[producer_id]
