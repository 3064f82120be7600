"""The segments of a log as an immutable snapshot.

Writers, under the log's lock, build a new snapshot and publish it with one attribute store.
Readers take it once for each operation: it stays unchanged during rolls, deletions and truncations.

Thread-safety: immutable values.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from kafkalog.log.segment import LogSegment

__all__ = ["LogSegments"]


class LogSegments:
    """Segments in order of their base offsets. Immutable; thread-safe."""

    __slots__ = ("_bases", "segments")

    def __init__(self, segments: Iterable[LogSegment]) -> None:
        self.segments = tuple(sorted(segments, key=lambda segment: segment.base_offset))
        self._bases = tuple(segment.base_offset for segment in self.segments)
        if len(set(self._bases)) != len(self._bases):
            raise AssertionError(f"two segments with one base offset: {self._bases}")

    def __len__(self) -> int:
        return len(self.segments)

    @property
    def active(self) -> LogSegment:
        """The segment that takes appends: the last."""
        return self.segments[-1]

    def floor_slot(self, offset: int) -> int:
        """Return the slot of the last segment whose base is at most `offset`, -1 for none."""
        return bisect_right(self._bases, offset) - 1

    @property
    def bases(self) -> tuple[int, ...]:
        """The base offsets of the segments, rising."""
        return self._bases

    def base_after(self, slot: int) -> int | None:
        """Return the base offset of the segment after `slot`, None for the last."""
        return self._bases[slot + 1] if slot + 1 < len(self._bases) else None

    def with_segment(self, segment: LogSegment) -> LogSegments:
        """Return a snapshot with `segment` added."""
        if not self._bases or segment.base_offset <= self._bases[-1]:
            return LogSegments((*self.segments, segment))
        # A roll: the rest is in order, and only copied.
        grown = LogSegments(())
        grown.segments = (*self.segments, segment)
        grown._bases = (*self._bases, segment.base_offset)
        return grown

    def without(self, leaving: Iterable[LogSegment]) -> LogSegments:
        """Return a snapshot without the segments `leaving`."""
        gone = set(map(id, leaving))
        return LogSegments(segment for segment in self.segments if id(segment) not in gone)
