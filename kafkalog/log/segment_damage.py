"""The damage in a segment of an open log, and the judgement of the batches that readers walk.

`SegmentDamage` remembers corrupt ranges. They are found one by one, where a reader comes to bytes
that are no batch, or all at once by a judgement of the segment (`judging.py`): then every batch
outside them is believed. `SegmentJudge` is what a walk asks (`batch_walk.py`).

Invariants: corrupt ranges do not overlap and are in order of position. A judgement counts for the
bytes that there were; appends come after them.

Thread-safety: from any thread without a lock. Ranges are replaced as one tuple; two threads that
find the same damage write the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from kafkalog._core.batch import BatchColumns
from kafkalog._core.status import STATUS_CODES, status_name
from kafkalog._engine.snapshot import ReadBound
from kafkalog.files.zeros import Holes
from kafkalog.log.batch_walk import WalkDamage
from kafkalog.log.corrupt_ranges import (
    CorruptRange,
    find_corrupt_range,
    gap_around,
    join_corrupt_ranges,
    next_corrupt_range,
    with_tail,
)
from kafkalog.log.judging import OVERFLOW_MAX, judge_batches
from kafkalog.log.segment_file import SegmentFile
from kafkalog.log.segment_types import SegmentContext
from kafkalog.log.walk import WalkResult
from kafkalog.log.wrapper_checks import (
    QUESTIONED_MAX,
    Neighbour,
    WrapperChecks,
    has_wrapper,
    neighbours_in,
)

__all__ = ["SegmentDamage", "SegmentJudge", "judge_published"]

OFFSET_ORDER = STATUS_CODES["OFFSET_ORDER"]


class SegmentDamage:
    """
    Known damage of a segment.

    Args:
        context: settings and parts that the segments of the log share.
        base_offset: of the segment.
        file: its `.log` file.

    Attributes:
        ranges: the corrupt ranges that are known, in order of position.
    """

    __slots__ = ("_base_offset", "_context", "_file", "_judged_bytes", "_questioned", "ranges")

    def __init__(self, context: SegmentContext, base_offset: int, file: SegmentFile) -> None:
        self.ranges: tuple[CorruptRange, ...] = ()
        self._context = context
        self._base_offset = base_offset
        self._file = file
        # All damage in the first bytes is known.
        self._judged_bytes = 0
        # Positions of wrappers that do not fit between their neighbours.
        self._questioned: frozenset[int] = frozenset()

    def add(self, found: Sequence[CorruptRange]) -> None:
        """Remember corrupt ranges."""
        if not found:
            return
        self.ranges = join_corrupt_ranges(self.ranges, found)
        # Readers that find records without a look at the ranges must not be used any more.
        self._context.report_damage()

    def mark_judged(self) -> None:
        """Record that all damage in the present bytes is known, as after a scan."""
        self._judged_bytes = self._file.size_bytes

    def is_judged(self, bound: ReadBound) -> bool:
        """Return whether all damage that a reader may come to is known."""
        return self._judged_bytes >= bound.end

    def limit(self, bound: ReadBound) -> int:
        """Return the largest offset that may be in the segment."""
        return min(bound.following_offset - 1, self._base_offset + OVERFLOW_MAX)

    def range_from(self, position: int) -> CorruptRange | None:
        """Return the first corrupt range that ends after a position, None where none does."""
        return next_corrupt_range(self.ranges, position) if self.ranges else None

    def is_between(self, start: int, position: int) -> bool:
        """Return whether a walk from `start` to the batch at `position` meets a corrupt range."""
        found = self.range_from(start)
        return found is not None and found.position <= position

    def range_at(
        self, position: int, bound: ReadBound, status: int, next_offset: int, resume_min: int = 0
    ) -> CorruptRange:
        """Return the corrupt range that holds a position; it is found and added if need be."""
        for each in self.ranges:
            if each.position <= position < each.end_position:
                return each
        found = find_corrupt_range(
            self._file.whole(),
            self._file.path,
            position=position,
            end=bound.end,
            status=status,
            next_offset=next_offset,
            offset_max=self.limit(bound),
            following_offset=bound.following_offset,
            resume_min=resume_min,
            holes=self._file.holes(),
        )
        self.add([found])
        return found

    def question(self, position: int, end_before: int, bound: ReadBound) -> None:
        """
        Judge the segment, because a wrapper does not fit between its neighbours.

        Args:
            position: where it begins.
            end_before: one above the last offset before.
            bound: how far the segment may be read.
        """
        if position in self._questioned or len(self._questioned) >= QUESTIONED_MAX:
            # The judgement of the segment has found nothing in it, or was asked too often.
            self.range_at(position, bound, OFFSET_ORDER, end_before)
        else:
            self._questioned |= {position}
            self.judge(bound)

    def judge(self, bound: ReadBound) -> None:
        """Find all corrupt ranges of what may be read."""
        file = self._file
        data = file.whole()[: bound.end]
        self.add(
            judge_published(
                data,
                file.path,
                bound,
                base_offset=self._base_offset,
                questioned=self._questioned,
                holes=file.holes(),
            )
        )
        if len(data) == bound.end:
            self._judged_bytes = bound.end


def judge_published(
    data: memoryview,
    path: Path,
    bound: ReadBound,
    *,
    base_offset: int,
    questioned: Collection[int],
    holes: Holes,
) -> Sequence[CorruptRange]:
    """
    Return all corrupt ranges of the published part of a segment, also of a part without an end.

    Args:
        data: its bytes; fewer than `bound` has if the file was cut.
        path: its file.
        bound: the end of the published part, and the offset that follows it.
        base_offset: of the segment.
        questioned: positions of wrappers that do not fit between their neighbours.
        holes: large holes of the file.
    """
    judgement = judge_batches(
        data,
        path,
        first_offset=base_offset,
        offset_max=min(bound.following_offset - 1, base_offset + OVERFLOW_MAX),
        following_offset=bound.following_offset,
        questioned=questioned,
        holes=holes,
    )
    found, whole_end = judgement.corrupt_ranges, judgement.whole_end
    if not whole_end < bound.end == len(data):
        return found
    tail = CorruptRange(
        path=path,
        position=whole_end,
        size_bytes=bound.end - whole_end,
        first_offset=judgement.next_offset,
        next_offset=max(bound.following_offset, judgement.free_offset),
        reason=status_name(judgement.tail_status),
    )
    return tuple(with_tail(found, tail))


class SegmentJudge:
    """
    The judge of walks over the readable part of one segment.

    Args:
        damage: what is known of the segment.
        bound: how far it may be read.
        checks: returns which wrappers of the segment fit between their neighbours.
    """

    __slots__ = ("_bound", "_checks", "_damage", "_misfit", "end")

    def __init__(
        self, damage: SegmentDamage, bound: ReadBound, checks: Callable[[], WrapperChecks]
    ) -> None:
        self.end = bound.end
        self._damage = damage
        self._bound = bound
        self._checks = checks
        self._misfit: tuple[Neighbour, int] | None = None

    @property
    def is_final(self) -> bool:
        """True if all damage before the end is known."""
        return self._damage.is_judged(self._bound)

    def corrupt_range_from(self, position: int) -> CorruptRange | None:
        """Return the first corrupt range that ends after a position."""
        return self._damage.range_from(position)

    def judge(self, _damage: WalkDamage, /) -> None:
        """Find all damage, so that all readers believe the same batches."""
        self._damage.judge(self._bound)

    def accepts(
        self, walk: WalkResult, origin: int, _expected: int, columns: BatchColumns, /
    ) -> bool:
        """Return whether the wrappers of a walk fit between the batches around them."""
        if not has_wrapper(columns, walk.count):
            return True
        return self.fits(neighbours_in(columns, walk.count, origin))

    def fits(self, batches: Sequence[Neighbour]) -> bool:
        """Return whether the wrappers among batches fit. The first misfit is kept."""
        first, last = batches[0].position, batches[-1].end
        start, end = gap_around(self._damage.ranges, first, last, self.end)
        self._misfit = self._checks().find_misfit(batches, start, end)
        return self._misfit is None

    def judge_refused(self) -> None:
        """Judge the segment, because a wrapper does not fit."""
        if self._misfit is not None:
            wrapper, end_before = self._misfit
            self._damage.question(wrapper.position, end_before, self._bound)
