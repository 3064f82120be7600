"""Wrappers of old formats, held against the batches around them.

A wrapper names the offset of its last record, and no sum covers that. Headers alone show it only
where the name passes a neighbour's. So a reader that comes to a wrapper decompresses it and what
stands beside it, and a name lies where

  * its last record has another offset: in magic 0 each has its own; in magic 1 they count from the
    name back, but where that leads below 0, for a broker takes them as they are then;
  * its first record, of which in magic 1 the name decides, is below the end of the batch before.

Which of two neighbours it is that lies, the judgement of the segment says (`judging.py`). What is
in order is remembered as ranges of positions, and not decompressed again.

What unpacks to more than `WRAPPER_BYTES`, cannot be decoded, or was written out of order, says
nothing here; readers of its records meet what is wrong with it.

Thread-safety: from any thread without a lock; two may check the same wrappers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from kafkalog._core.batch import BatchColumns, scan_batches
from kafkalog._core.header import BatchHeader
from kafkalog.log.index_lookup import ReadsAt, read_whole_header
from kafkalog.log.judging import may_begin_segment, offsets_inside

__all__ = [
    "QUESTIONED_MAX",
    "Neighbour",
    "WrapperChecks",
    "has_wrapper",
    "neighbour_at",
    "neighbours_in",
]

# For so many wrappers that do not fit a segment is judged; of more, each is fenced alone.
QUESTIONED_MAX: Final = 16

# Batches in front of those that a reader comes to: the first is held against the second.
BEFORE: Final = 2
CHUNK_BATCHES: Final = 4096
RANGES_MAX: Final = 64


class Neighbour(NamedTuple):
    """
    What the header of a batch says.

    Attributes:
        position, end: where it lies in the file.
        next_offset: one above the last offset that it names.
        is_wrapper: whether it is a wrapper of an old format.
        magic: its format.
    """

    position: int
    end: int
    next_offset: int
    is_wrapper: bool
    magic: int


def has_wrapper(columns: BatchColumns, count: int) -> bool:
    """Say whether a wrapper is among the first rows."""
    return bool((columns.record_count[:count] < 0).any())


def neighbours_in(columns: BatchColumns, count: int, origin: int) -> list[Neighbour]:
    """Return the first rows, whose positions count from `origin` of the file."""
    starts = (columns.position[:count] + origin).tolist()
    sizes, last = columns.size_bytes[:count].tolist(), columns.last_offset[:count].tolist()
    are_wrappers = (columns.record_count[:count] < 0).tolist()
    rows = zip(starts, sizes, last, are_wrappers, columns.magic[:count].tolist(), strict=True)
    return [
        Neighbour(start, start + size, offset + 1, is_wrapper, magic)
        for start, size, offset, is_wrapper, magic in rows
    ]


class WrapperChecks:
    """
    Which wrappers of a segment were found to fit between their neighbours.

    Args:
        file: bytes of the segment.
        base_offset: of the segment.
        start_before: returns where a walk over headers may begin, by an offset: a batch in front of
            a position, 0 where none is known.
        end_before: returns one above the last offset of the segment before, 0 where none is sure;
            None as long as that is not known.
    """

    def __init__(
        self,
        file: ReadsAt,
        base_offset: int,
        start_before: Callable[[int, int], int],
        end_before: Callable[[int], int | None],
    ) -> None:
        self._file = file
        self._base_offset = base_offset
        self._start_before = start_before
        self._end_before = end_before
        self._ranges: tuple[tuple[int, int], ...] = ()
        # The last ones of those that were asked for last: a reader comes to what is behind them.
        self._latest: tuple[Neighbour, ...] = ()

    def find_misfit(
        self, batches: Sequence[Neighbour], start: int, end: int
    ) -> tuple[Neighbour, int] | None:
        """
        Return the first wrapper that does not fit, with the end of the batch before it.

        Args:
            batches: side by side, at least one.
            start: nothing before it is looked at: damage ends there, or the segment begins.
            end: nothing from there on is looked at.
        """
        first, last = batches[0].position, batches[-1].end
        if self._are_cached(first, last):
            return None
        up_to = [*self._before(batches[0], start), *batches]
        before, is_sure = None, True
        for each in [*up_to, *self._after(last, end)]:
            if each.is_wrapper and not self._are_cached(each.position, each.end):
                fits = self._fits(each, before)
                if fits is False:
                    end_before = 0 if before is None else before.next_offset
                    return each, max(end_before, self._base_offset)
                is_sure &= fits is not None
            before = each
        if is_sure:
            self._cache_range(first, last)
        self._latest = tuple(up_to[-BEFORE:])
        return None

    def _are_cached(self, start: int, end: int) -> bool:
        """Say whether the batches of a range were found to fit."""
        return any(begin <= start and end <= stop for begin, stop in self._ranges)

    def _fits(self, wrapper: Neighbour, before: Neighbour | None) -> bool | None:
        """Say whether a wrapper fits behind another batch; None as long as that is not known."""
        data = self._file.read(wrapper.position, wrapper.end - wrapper.position)
        if len(data) < wrapper.end - wrapper.position:
            return None  # The file was cut meanwhile.
        inside = offsets_inside(data, 0)
        if inside is None:
            return True
        first, last = inside
        if last + 1 != wrapper.next_offset:
            return False
        if before is not None:
            return first >= before.next_offset
        if wrapper.position or first >= self._base_offset:
            return first >= self._base_offset
        end_before = self._end_before(self._base_offset)
        if end_before is None:
            return None
        return may_begin_segment(first, last, self._base_offset, end_before)

    def _before(self, first: Neighbour, start: int) -> list[Neighbour]:
        """Return the batches in front of one, as far as their headers are in order."""
        latest = self._latest
        if latest and latest[-1].end == first.position:
            known = [each for each in latest if each.position >= start]
            if len(known) == BEFORE or (known and known[0].position == start):
                return known
        found: list[Neighbour] = []
        position, offset = first.position, first.next_offset - 1
        while position > start and len(found) < BEFORE:
            begin = max(self._start_before(offset, position), start)
            rows = list(self._rows(begin, position))
            if not rows or rows[-1].end != position:
                break
            found[:0] = rows[-BEFORE:]
            position = rows[0].position if len(rows) < BEFORE else rows[-BEFORE].position
        return found[-BEFORE:]

    def _rows(self, begin: int, end: int) -> Iterator[Neighbour]:
        data = self._file.read(begin, end - begin)
        columns, position = BatchColumns(CHUNK_BATCHES), 0
        while position < len(data):
            columns.clear()
            met = scan_batches(data, position, columns=columns, check_crc=False)
            if not met.count:
                return
            yield from neighbours_in(columns, met.count, begin)
            position = met.position

    def _after(self, position: int, end: int) -> list[Neighbour]:
        header = read_whole_header(self._file, position, end) if position < end else None
        return [] if header is None else [neighbour_at(position, header)]

    def _cache_range(self, begin: int, end: int) -> None:
        """Join a range with those that it touches; a new tuple, so that readers need no lock."""
        kept = []
        for first, last in self._ranges:
            if last < begin or end < first:
                kept.append((first, last))
            else:
                begin, end = min(begin, first), max(end, last)
        self._ranges = (*kept[1 - RANGES_MAX :], (begin, end))


def neighbour_at(position: int, header: BatchHeader) -> Neighbour:
    """Return what a header says."""
    end = position + header.size_bytes
    return Neighbour(position, end, header.next_offset, header.is_wrapper, header.magic)
