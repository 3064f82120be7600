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

Thread-safety: `publish` under the log's lock, everything else from any thread. A filter belongs to
one reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kafkalog.indexes.aborted_records import LazyAbortedBatches
from kafkalog.indexes.transaction_index import AbortedTransaction
from kafkalog.log.segment_types import SegmentContext
from kafkalog.log.transactions import aborted_between
from kafkalog.records.batch_view import BatchView
from kafkalog.records.message_run import Part

if TYPE_CHECKING:
    from kafkalog._engine.snapshot import LogSnapshot

__all__ = [
    "AbortedBatches",
    "Isolation",
    "StableOffsets",
    "Visibility",
    "check_isolation",
    "without_aborted",
]

Isolation = Literal["log_end", "read_uncommitted", "read_committed"]


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


class AbortedBatches(LazyAbortedBatches):
    """
    The aborted batches of a read of an open log.

    Args:
        context: context of the segments, with their transaction indexes.
        snapshot: the log as it is read.
        end_offset: one past the last offset that is read.
    """

    def __init__(self, context: SegmentContext, snapshot: LogSnapshot, end_offset: int) -> None:
        super().__init__(end_offset)
        self._context = context
        self._snapshot = snapshot

    def _segment_after(self, offset: int) -> int | None:
        segments = self._snapshot.segments
        return segments.base_after(max(segments.floor_slot(offset), 0))

    def _between(self, start: int, end: int) -> list[AbortedTransaction]:
        return aborted_between(self._context, self._snapshot, start, end)


def without_aborted(
    parts: Iterator[Part], context: SegmentContext, snapshot: LogSnapshot, end_offset: int
) -> Iterator[Part]:
    """Yield the parts of a read without batches of aborted transactions; control batches stay."""
    aborted = AbortedBatches(context, snapshot, end_offset)
    for part in parts:
        # Old formats have no transactions.
        if not isinstance(part, BatchView) or not aborted.is_hidden(part.header):
            yield part
