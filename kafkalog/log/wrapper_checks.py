"""Check of the offsets of wrappers of old formats against the batches around them.

A wrapper names the offset of its last record, and no checksum covers that. Headers show a wrong
offset only if it passes that of a neighbour. So a reader that comes to a wrapper decompresses it
and its neighbours, and the offset is wrong if

  * its last record has another offset: in magic 0 each record has one; in magic 1 they count back
    from the offset of the wrapper, unless that leads below 0: a broker takes them as they are then;
  * its first record, which in magic 1 follows from the offset, is below the end of the batch
    before.

The judgement of the segment (`judging.py`) decides which of two neighbours is wrong. Ranges of
positions that are in order are cached, and not decompressed again.

A wrapper that decompresses to more than `WRAPPER_BYTES`, cannot be decoded, or was written out of
order is not judged here; readers of its records find the damage.

Thread-safety: from any thread without a lock; two may check the same wrappers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from kafkalog._core.batch import BatchColumns
from kafkalog._core.header import BatchHeader
from kafkalog.errors import CorruptRecordError, InvalidRecordError
from kafkalog.log.index_lookup import ReadsAt, read_whole_header
from kafkalog.log.judging import may_begin_segment, offsets_inside
from kafkalog.records.memory_walk import walk_memory

__all__ = [
    "QUESTIONED_MAX",
    "Neighbour",
    "WrapperChecks",
    "has_wrapper",
    "neighbour_at",
    "neighbours_in",
]

# Number of misfits of a segment up to which it is judged; each further one is a corrupt range.
QUESTIONED_MAX: Final = 16

# Number of batches before those that a reader comes to: the first is compared with the second.
BEFORE: Final = 2
CHUNK_BATCHES: Final = 4096
RANGES_MAX: Final = 64


class Neighbour(NamedTuple):
    """
    Fields of the header of a batch.

    Attributes:
        position, end: its place in the file.
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
    """Return whether a wrapper is among the first rows."""
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
    Wrappers of a segment that fit between their neighbours.

    Args:
        file: bytes of the segment.
        base_offset: of the segment.
        start_before: returns the position of a batch before a given one, by an index; 0 if none is
            known.
        end_before: returns one above the last offset of the segment before, 0 if that is not sure,
            None while it is not known.
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
        # The last ones of the last call: a reader continues after them.
        self._latest: tuple[Neighbour, ...] = ()

    def find_misfit(
        self, batches: Sequence[Neighbour], start: int, end: int
    ) -> tuple[Neighbour, int] | None:
        """
        Return the first wrapper that does not fit, with the end of the batch before it.

        Args:
            batches: adjacent batches, at least one.
            start: nothing before it is read: damage ends there, or the segment begins.
            end: nothing from there on is read.
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
        """Return whether the batches of a range were found to fit."""
        return any(begin <= start and end <= stop for begin, stop in self._ranges)

    def _fits(self, wrapper: Neighbour, before: Neighbour | None) -> bool | None:
        """Return whether a wrapper fits after another batch; None if that cannot be decided."""
        data = self._file.read(wrapper.position, wrapper.end - wrapper.position)
        if len(data) < wrapper.end - wrapper.position:
            return None  # The file was cut during the check.
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
        """Return the batches before one, back to the first header that is out of order."""
        latest = self._latest
        if latest and latest[-1].end == first.position:
            neighbours = [each for each in latest if each.position >= start]
            if len(neighbours) == BEFORE or (neighbours and neighbours[0].position == start):
                return neighbours
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
        columns = BatchColumns(CHUNK_BATCHES)
        # Damage ends the rows: the caller compares where they end.
        with suppress(CorruptRecordError, InvalidRecordError):
            for step in walk_memory(data, columns):
                yield from neighbours_in(columns, step.count, begin)

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
    """Return the neighbour that a header describes."""
    end = position + header.size_bytes
    return Neighbour(position, end, header.next_offset, header.is_wrapper, header.magic)
