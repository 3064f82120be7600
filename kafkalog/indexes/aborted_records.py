"""Filter of aborted batches, for readers of committed records.

A producer has one transaction at a time, so its transactional batches between the first offset and
the marker of an aborted transaction are exactly those of that transaction. No marker needs to be
decoded, and batches may be checked in any order.

Thread-safety: `AbortedRecords` is immutable; a `LazyAbortedBatches` belongs to one reader.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable

from kafkalog._core.header import BatchHeader
from kafkalog.indexes.transaction_index import AbortedTransaction

__all__ = ["AbortedRecords", "LazyAbortedBatches"]


class AbortedRecords:
    """
    Ranges of offsets of aborted transactions, by producer.

    Args:
        transactions: all transactions with records in the reader's range (`collect_aborted`);
            others do no harm.
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
        """Return whether any batch may be hidden."""
        return bool(self._ranges)

    def is_hidden(self, header: BatchHeader) -> bool:
        """Return whether a batch was aborted. The caller skips control batches before."""
        ranges = self._ranges.get(header.producer_id)
        if ranges is None or not header.is_transactional:
            return False
        offset = header.base_offset
        slot = bisect_right(ranges, offset, key=_first_offset) - 1
        return slot >= 0 and offset < ranges[slot][1]


class LazyAbortedBatches(ABC):
    """
    Filter of the aborted batches of one read, which reads the indexes on demand.

    Aborted transactions are looked up one segment at a time, so that a reader of the first records
    does not wait for all indexes. Batches must be checked in the order of the log.

    Args:
        end_offset: one past the last offset of the read.
    """

    def __init__(self, end_offset: int) -> None:
        self._end_offset = end_offset
        self._aborted, self._known_end = AbortedRecords(()), -1

    def is_hidden(self, header: BatchHeader) -> bool:
        """Return whether a batch is hidden from readers of committed records; False for control
        batches, which the caller skips."""
        if not header.is_transactional or header.is_control:
            return False
        offset = header.base_offset
        if offset >= self._known_end:
            following = self._segment_after(offset)
            end = self._end_offset if following is None else min(following, self._end_offset)
            self._known_end = max(end, offset + 1)
            self._aborted = AbortedRecords(self._between(offset, self._known_end))
        return self._aborted.is_hidden(header)

    @abstractmethod
    def _segment_after(self, offset: int) -> int | None:
        """Return the base offset of the segment after that of an offset; None for the last one."""

    @abstractmethod
    def _between(self, start: int, end: int) -> Iterable[AbortedTransaction]:
        """Return the transactions that may hide batches from `start` to `end`."""


def _first_offset(span: tuple[int, int]) -> int:
    return span[0]
