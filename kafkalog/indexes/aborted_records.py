"""Which batches readers of committed records do not see: those of transactions that were aborted.

A producer has one transaction at a time, so its transactional batches between the first offset and
the marker of an aborted one are exactly those of that transaction. No marker needs to be decoded,
and batches may be asked about in any order.

Thread-safety: immutable.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from kafkalog._core.header import BatchHeader
from kafkalog.indexes.transaction_index import AbortedTransaction

__all__ = ["AbortedRecords"]


class AbortedRecords:
    """
    What aborted transactions hide.

    Args:
        transactions: all whose records a reader may meet (`collect_aborted`); more do no harm.
    """

    __slots__ = ("_ranges",)

    def __init__(self, transactions: Iterable[AbortedTransaction]) -> None:
        ranges: dict[int, list[tuple[int, int]]] = {}
        for producer_id, first_offset, last_offset, _ in transactions:
            ranges.setdefault(producer_id, []).append((first_offset, last_offset))
        for each in ranges.values():
            each.sort()
        self._ranges = ranges

    def __bool__(self) -> bool:
        """Return whether anything is hidden."""
        return bool(self._ranges)

    def hides(self, header: BatchHeader) -> bool:
        """Return whether a batch was aborted. Control batches are not asked about: none is seen."""
        ranges = self._ranges.get(header.producer_id)
        if ranges is None or not header.is_transactional:
            return False
        offset = header.base_offset
        slot = bisect_right(ranges, offset, key=_first_offset) - 1
        return slot >= 0 and offset < ranges[slot][1]


def _first_offset(span: tuple[int, int]) -> int:
    return span[0]
