"""Tracker of the transactions of a cleaning, batch by batch (CleanedTransactionMetadata in Kafka).

One tracker reads the dirty part while the offset map is filled, another all rewritten segments.
Both get the aborted transactions of the transaction indexes before the first batch of a
transaction. To find them may read every segment, so it is done only if a transaction occurs. State:

- aborted transactions that have not begun yet, by first offset;
- for each producer its current aborted transaction, and whether batches of it were read;
- producers in a transaction that was not aborted.

A marker may be removed if no batch of its transaction was read before it, that is, one cleaning
after its records were removed; an emptied batch that stays for its sequence numbers counts as a
batch. An aborted transaction with batches stays in the transaction index of the new segment.

Thread-safety: none; it belongs to one cleaning.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np

from kafkalog.cleaner.decoded_chunks import DecodedChunk
from kafkalog.indexes.transaction_index import AbortedTransaction
from kafkalog.layout import CONTROL_MASK, TRANSACTIONAL_MASK
from kafkalog.records.control import ControlType

__all__ = ["TransactionTracker"]

_ENDS: Final = (ControlType.ABORT, ControlType.COMMIT)


class TransactionTracker:
    """
    Tracker of the batches of producers, which must be passed in the order of their offsets.

    Args:
        find_aborted: returns aborted transactions; called once, at the first batch of a transaction
            or control batch. None if the caller uses `add_aborted`.
    """

    def __init__(
        self, find_aborted: Callable[[], Iterable[AbortedTransaction]] | None = None
    ) -> None:
        self._find_aborted = find_aborted
        self._kept: list[AbortedTransaction] = []
        self._pending: list[tuple[int, int, AbortedTransaction]] = []
        self._count = 0
        self._aborted: dict[int, AbortedTransaction] = {}
        self._aborted_with_data: set[int] = set()
        self._committed: set[int] = set()

    def add_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Add aborted transactions, before the first batch that may belong to them."""
        for transaction in transactions:
            # Numbered, so that transactions of one first offset keep their order.
            self._count += 1
            heapq.heappush(self._pending, (transaction.first_offset, self._count, transaction))

    def pop_kept(self) -> list[AbortedTransaction]:
        """Return the aborted transactions that keep batches: entries of the new index; once."""
        kept, self._kept = self._kept, []
        return kept

    def judge(self, chunk: DecodedChunk) -> Iterator[tuple[int, bool, bool]]:
        """
        Yield a decision for each control batch and each batch of a transaction.

        Yields:
            (number in the chunk, whether it is a control batch, whether it is gone: aborted data,
            or a marker that may be removed).
        """
        special = chunk.has_bits(TRANSACTIONAL_MASK | CONTROL_MASK)
        if not special.any():
            return
        control = chunk.has_bits(CONTROL_MASK)
        producer_id, last_offset = chunk.header("producer_id"), chunk.header("last_offset")
        for batch in np.flatnonzero(special).tolist():
            producer, offset = int(producer_id[batch]), int(last_offset[batch])
            if control[batch]:
                kind = chunk.control_type(batch)
                yield batch, True, self.may_drop_marker(producer, offset, kind)
            else:
                yield batch, False, self.is_aborted(producer, offset)

    def is_aborted(self, producer_id: int, last_offset: int) -> bool:
        """
        Return whether a transactional batch of data was aborted.

        Args:
            producer_id: producer of the batch.
            last_offset: last offset of the batch.
        """
        self._begin_up_to(last_offset)
        if producer_id in self._aborted:
            self._aborted_with_data.add(producer_id)
            return True
        self._committed.add(producer_id)
        return False

    def may_drop_marker(self, producer_id: int, last_offset: int, kind: ControlType | None) -> bool:
        """
        Return whether nothing of the transaction of a marker is left.

        Args:
            producer_id: producer of the marker.
            last_offset: last offset of its batch.
            kind: type of the marker; None for a control batch that was emptied.
        """
        self._begin_up_to(last_offset)
        if kind is None:
            return True
        if kind not in _ENDS:
            return False
        if kind is ControlType.COMMIT:
            has_data = producer_id in self._committed
            self._committed.discard(producer_id)
            return not has_data
        transaction = self._aborted.pop(producer_id, None)
        if transaction is None or producer_id not in self._aborted_with_data:
            return True
        self._aborted_with_data.discard(producer_id)
        self._kept.append(transaction)
        return False

    def _begin_up_to(self, offset: int) -> None:
        if self._find_aborted is not None:
            find_aborted, self._find_aborted = self._find_aborted, None
            self.add_aborted(find_aborted())
        while self._pending and self._pending[0][0] <= offset:
            transaction = heapq.heappop(self._pending)[2]
            self._aborted.setdefault(transaction.producer_id, transaction)
