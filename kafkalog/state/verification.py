"""Verification of transactions: permission for a producer to begin one in this log.

Before the first batch of a transaction is appended, its coordinator is queried whether the
transaction is open and includes this partition. The query runs outside the log's lock, so the log
creates a guard before it: the append must pass the guard, and a marker that was appended in between
makes the guard invalid. Otherwise a late batch could begin a transaction that is never ended.

Guards are positive, rise, and are never reused; 0 verifies nothing.

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
        guard: number that the append must pass.
        created_ms: time of the first request.
        lowest_sequence: smallest base sequence of the waiting batches of `producer_epoch`.
        producer_epoch: largest epoch of a request.
        supports_epoch_bump: True if each of its transactions has a new epoch (transaction version
            2), so that a transaction of a producer without batches must begin with sequence 0.
    """

    guard: int
    created_ms: int
    lowest_sequence: int
    producer_epoch: int
    supports_epoch_bump: bool

    def record(self, sequence: int, producer_epoch: int) -> None:
        """Record another batch that waits for the same verification."""
        if producer_epoch > self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.lowest_sequence = sequence
        elif producer_epoch == self.producer_epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)


class TransactionVerification:
    """
    The pending verifications of one log.

    Attributes:
        pending: producer id -> its pending verification.
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
        """Return the guard of a producer's verification, which this call begins if necessary."""
        pending = self.pending.get(producer_id)
        if pending is None:
            pending = self.pending[producer_id] = PendingVerification(
                next(_numbers), now_ms, sequence, producer_epoch, supports_epoch_bump
            )
        else:
            pending.record(sequence, producer_epoch)
        return pending.guard

    def is_verified(self, producer_id: int, guard: int) -> bool:
        """Return whether `guard` is the guard of the producer's verification."""
        pending = self.pending.get(producer_id)
        return pending is not None and guard == pending.guard

    def clear(self, producer_id: int) -> None:
        """End a producer's verification: its transaction has begun here, or has ended."""
        self.pending.pop(producer_id, None)

    def remove_older(self, created_ms: int) -> None:
        """Remove the verifications that began at `created_ms` or before."""
        stale = [key for key, each in self.pending.items() if each.created_ms <= created_ms]
        for producer_id in stale:
            del self.pending[producer_id]
