"""How far readers may go, and which records they are not shown.

    read_uncommitted   everything below the high watermark
    read_committed     everything below the last stable offset, without what was aborted

The high watermark is the log end, unless whoever embeds the log says otherwise. The last stable
offset is the first offset of the earliest transaction that is open, or whose marker is not below
the high watermark yet; where there is none, the high watermark.

Readers take no lock, so what they may see is one immutable value, published in this order:

  * that a transaction begins, before its first batch is;
  * that it ended, after its marker was, and after the entry of the transaction index.

A reader takes the value, the log's snapshot, and looks whether the value is still the same object:
then no transaction has begun or ended between the two.

Thread-safety: `publish` under the log's lock, everything else from any thread. A filter belongs to
one reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from kafkalog._core.header import BatchHeader
from kafkalog.indexes.aborted_records import AbortedRecords
from kafkalog.log.local_log import Snapshot
from kafkalog.log.segment_types import SegmentContext
from kafkalog.log.transactions import aborted_between
from kafkalog.records.batch_view import BatchView
from kafkalog.records.message_run import Part

__all__ = [
    "AbortedBatches",
    "Isolation",
    "StableOffsets",
    "Visibility",
    "check_isolation",
    "without_aborted",
]

Isolation = Literal["read_uncommitted", "read_committed"]


@dataclass(frozen=True, slots=True, eq=False)
class Visibility:
    """
    What is published; compared by identity.

    Attributes:
        high_watermark: None where it is the log end.
        first_unstable_offset: None where nothing is unstable.
    """

    high_watermark: int | None = None
    first_unstable_offset: int | None = None

    def high_watermark_of(self, snapshot: Snapshot) -> int:
        """Return the offset below which uncommitted records may be read."""
        if self.high_watermark is None:
            return snapshot.end_offset
        return max(min(self.high_watermark, snapshot.end_offset), snapshot.start_offset)

    def last_stable_offset_of(self, snapshot: Snapshot) -> int:
        """Return the offset below which committed records may be read."""
        high_watermark = self.high_watermark_of(snapshot)
        if self.first_unstable_offset is None:
            return high_watermark
        return max(min(self.first_unstable_offset, high_watermark), snapshot.start_offset)

    def limit_of(self, snapshot: Snapshot, isolation: Isolation) -> int:
        """Return how far a reader may go."""
        if isolation == "read_committed":
            return self.last_stable_offset_of(snapshot)
        return self.high_watermark_of(snapshot)


class StableOffsets:
    """The published visibility of one log."""

    __slots__ = ("visibility",)

    def __init__(self) -> None:
        self.visibility = Visibility()

    def publish(self, high_watermark: int | None, first_unstable_offset: int | None) -> None:
        """Publish, where something has changed."""
        seen = self.visibility
        if (seen.high_watermark, seen.first_unstable_offset) != (
            high_watermark,
            first_unstable_offset,
        ):
            self.visibility = Visibility(high_watermark, first_unstable_offset)

    def take(self, snapshot: Callable[[], Snapshot]) -> tuple[Visibility, Snapshot]:
        """Return a visibility and a snapshot of the log that belong together."""
        while True:
            visibility = self.visibility
            taken = snapshot()
            if self.visibility is visibility:
                return visibility, taken


def check_isolation(isolation: str) -> None:
    """Raise ValueError for anything but Kafka's two names."""
    if isolation not in ("read_uncommitted", "read_committed"):
        raise ValueError(f'isolation is "read_uncommitted" or "read_committed", not {isolation!r}')


class AbortedBatches:
    """
    Which batches of a read were aborted.

    What was aborted is looked up a segment at a time, so that a reader of the first records does
    not wait for all indexes. Batches are asked about in the order of the log.

    Args:
        context: where the transaction indexes are.
        snapshot: the log as it is read.
        end_offset: one past the last offset that is read.
    """

    def __init__(self, context: SegmentContext, snapshot: Snapshot, end_offset: int) -> None:
        self._context = context
        self._snapshot = snapshot
        self._end_offset = end_offset
        self._aborted, self._known_end = AbortedRecords(()), -1

    def hides(self, header: BatchHeader) -> bool:
        """Return whether a reader of committed records is not shown a batch; none of control is."""
        if not header.is_transactional or header.is_control:
            return False
        offset = header.base_offset
        if offset >= self._known_end:
            snapshot = self._snapshot
            following = snapshot.segments.base_after(max(snapshot.segments.floor_slot(offset), 0))
            end = self._end_offset
            self._known_end = end if following is None else min(following, end)
            between = aborted_between(self._context, snapshot, offset, self._known_end)
            self._aborted = AbortedRecords(between)
        return self._aborted.hides(header)


def without_aborted(
    parts: Iterator[Part], context: SegmentContext, snapshot: Snapshot, end_offset: int
) -> Iterator[Part]:
    """Yield what is read without the batches of aborted transactions; control batches stay."""
    aborted = AbortedBatches(context, snapshot, end_offset)
    for part in parts:
        # Old formats know no transactions.
        if not isinstance(part, BatchView) or not aborted.hides(part.header):
            yield part
