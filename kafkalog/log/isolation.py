"""Isolation levels: the offsets that readers may reach, and the records that are hidden from them.

    log_end            all records, as a follower's fetch from a broker
    read_uncommitted   all records below the high watermark
    read_committed     all records below the last stable offset, except aborted ones

The high watermark is the log end, unless the embedding program has set it. The last stable offset
is the first offset of the earliest transaction that is open, or whose marker is not below the high
watermark yet; without such a transaction, the high watermark.

Readers take no lock, so their visibility is one immutable value, published in this order:

  * the begin of a transaction is published before its first batch;
  * its end is published after its marker, and after the entry of the transaction index.

A reader reads the value, then the log's snapshot, and checks that the value is still the same
object: then no transaction has begun or ended between the two.

A producer has one transaction at a time, so its transactional batches between the first offset and
the marker of an aborted transaction are exactly those of that transaction. No marker is decoded to
hide a batch. `kafkalog.log.aborted` finds the transactions.

Thread-safety: `publish` under the log's lock, everything else from any thread. An
`AbortedBatches` belongs to one reader.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from kafkalog._core.batch import BatchColumns
from kafkalog._core.header import BatchHeader, parse_header
from kafkalog.indexes.transaction_index import AbortedTransaction
from kafkalog.layout import MAGIC_V2, TRANSACTIONAL_MASK
from kafkalog.records.batch_view import BatchView
from kafkalog.records.message_run import Part

if TYPE_CHECKING:
    from kafkalog._engine.snapshot import LogSnapshot

__all__ = [
    "AbortedBatches",
    "AbortedRecords",
    "Isolation",
    "StableOffsets",
    "Visibility",
    "check_isolation",
]

Isolation = Literal["log_end", "read_uncommitted", "read_committed"]

# Offset, and end of the read, to: end of the answered part, and its aborted transactions.
_Find = Callable[[int, int], tuple[int, list[AbortedTransaction]]]


@dataclass(frozen=True, slots=True, eq=False)
class Visibility:
    """
    Published limits of readers; compared by identity.

    Attributes:
        high_watermark: None if it is the log end.
        first_unstable_offset: None if no transaction is unstable.
    """

    high_watermark: int | None = None
    first_unstable_offset: int | None = None

    def high_watermark_of(self, snapshot: LogSnapshot) -> int:
        """Return the offset below which uncommitted records may be read."""
        if self.high_watermark is None:
            return snapshot.end_offset
        return max(min(self.high_watermark, snapshot.end_offset), snapshot.start_offset)

    def last_stable_offset_of(self, snapshot: LogSnapshot) -> int:
        """Return the offset below which committed records may be read."""
        high_watermark = self.high_watermark_of(snapshot)
        if self.first_unstable_offset is None:
            return high_watermark
        return max(min(self.first_unstable_offset, high_watermark), snapshot.start_offset)

    def limit_of(self, snapshot: LogSnapshot, isolation: Isolation) -> int:
        """Return the offset that ends the reads of an isolation level."""
        if isolation == "read_committed":
            return self.last_stable_offset_of(snapshot)
        if isolation == "log_end":
            return snapshot.end_offset
        return self.high_watermark_of(snapshot)


class StableOffsets:
    """The published visibility of one log."""

    __slots__ = ("visibility",)

    def __init__(self) -> None:
        self.visibility = Visibility()

    def publish(self, high_watermark: int | None, first_unstable_offset: int | None) -> None:
        """Publish the limits if they have changed."""
        seen = self.visibility
        if (seen.high_watermark, seen.first_unstable_offset) != (
            high_watermark,
            first_unstable_offset,
        ):
            self.visibility = Visibility(high_watermark, first_unstable_offset)

    def read(self, snapshot: Callable[[], LogSnapshot]) -> tuple[Visibility, LogSnapshot]:
        """Return a visibility and a snapshot of the log that belong together."""
        while True:
            visibility = self.visibility
            taken = snapshot()
            if self.visibility is visibility:
                return visibility, taken


def check_isolation(isolation: str) -> None:
    """Raise ValueError for anything but Kafka's two levels, and the log end."""
    if isolation not in ("read_uncommitted", "read_committed", "log_end"):
        raise ValueError(
            'isolation must be "read_uncommitted", "read_committed" or "log_end",'
            f" got {isolation!r}"
        )


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


def _first_offset(span: tuple[int, int]) -> int:
    return span[0]


class AbortedBatches:
    """
    Filter of the aborted batches of one read. Batches must be checked in the order of the log.

    Args:
        find: returns the aborted transactions from an offset on, and up to where they are complete.
        end_offset: one past the last offset of the read.
    """

    def __init__(self, find: _Find, end_offset: int) -> None:
        self._find = find
        self._end_offset = end_offset
        self._aborted, self._known_end = AbortedRecords(()), -1

    def is_hidden(self, header: BatchHeader) -> bool:
        """Return whether a batch is hidden from readers of committed records; False for control
        batches, which the caller skips."""
        if not header.is_transactional or header.is_control:
            return False
        if header.base_offset >= self._known_end:
            self._known_end, found = self._find(header.base_offset, self._end_offset)
            self._aborted = AbortedRecords(found)
        return self._aborted.is_hidden(header)

    def leave_out(
        self, keep_mask: NDArray[np.bool_], batches: BatchColumns, data: memoryview
    ) -> None:
        """Clear the flags of the aborted batches among the wanted rows of a walk over `data`."""
        count = len(keep_mask)
        is_transactional = batches.attributes[:count] & TRANSACTIONAL_MASK != 0
        checked = keep_mask & is_transactional & (batches.magic[:count] == MAGIC_V2)
        for row in np.flatnonzero(checked).tolist():
            if self.is_hidden(parse_header(data, int(batches.position[row]))):
                keep_mask[row] = False

    def visible(self, parts: Iterator[Part]) -> Iterator[Part]:
        """Yield the parts that are not aborted; control batches stay."""
        for part in parts:
            # Old formats have no transactions.
            if not isinstance(part, BatchView) or not self.is_hidden(part.header):
                yield part
