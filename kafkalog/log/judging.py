"""Judgement of the batches of a segment: one judgement for recovery and for every reader.

The CRC of a batch covers its size and the number of its offsets, but not its base offset. So all
batches of a segment with a valid CRC are found first, whatever their offsets are, and the batches
that contradict the fewest others are believed:

  * The offset of a batch is wrong if it is outside the bounds of the segment.
  * Two batches contradict each other if the later one begins too low: below the end of the earlier
    one plus the offsets that the batches between the two take.
  * The largest set of batches without a contradiction is believed. Of several sets of one size, the
    set with the most batches that follow each other without a hole is believed, unless the batches
    that nothing contradicts have holes, as after compaction. If that decides nothing either, only
    the batches in all of these sets are believed. A missing record is reported; a record under a
    wrong offset would not be noticed.

With `space[i]` for the offsets that all batches before batch i take, the second rule compares two
numbers: `shift[i] = first_offset[i] - space[i]` may never fall. In a log without holes all shifts
are equal. Few batches are out of order with any other batch, and only these are compared.

A wrapper of an old format states its last offset only, and takes at least one. If a few wrappers
contradict each other, they are decompressed, and their offsets counted; so are the batches around a
wrapper whose records, as a reader found, do not fit between its neighbours (`wrapper_checks.py`).

Everything outside the believed batches is a corrupt range. A batch with a valid CRC is never part
of a torn tail, whatever its offset is.

A wrong offset that contradicts no other batch cannot be found: in the last batch, or raised or
lowered within a hole. For the last batch of a log the caller passes what else is known of the end.

Thread-safety: functions of their arguments; any thread.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from kafkalog._core.batch import BatchColumns, check_batch, scan_batches
from kafkalog._core.header import BatchHeader, parse_header
from kafkalog._core.status import STATUS_CODES, status_name
from kafkalog.errors import KafkaLogError
from kafkalog.files.zeros import PIECE_BYTES, Holes, data_between, is_zero_between
from kafkalog.layout import BATCH_LENGTH_POSITION, RECORD_BATCH_OVERHEAD
from kafkalog.log.corrupt_ranges import (
    WRAPPER_BYTES,
    CorruptRange,
    find_in_data,
    find_resume,
    first_offset_at,
)
from kafkalog.records.batch_view import BatchView

__all__ = [
    "OVERFLOW_MAX",
    "RELATIVE_OFFSET_MAX",
    "Judgement",
    "LogEndFacts",
    "fits_after",
    "has_odd_end",
    "is_whole_without_offset",
    "judge_batches",
    "may_begin_segment",
    "offsets_inside",
]

OK: Final = STATUS_CODES["OK"]
FULL: Final = STATUS_CODES["FULL"]
BASE_OFFSET: Final = STATUS_CODES["BASE_OFFSET"]
OFFSET_ORDER: Final = STATUS_CODES["OFFSET_ORDER"]

# Offsets in an index are 31 bits relative to the base of the segment.
RELATIVE_OFFSET_MAX: Final = 2**31 - 1
# No offset of a segment is further from the base: a segment has fewer bytes.
OVERFLOW_MAX: Final = 2**40
# Largest number of offsets of a batch with fewer records: no batch ever had more records.
SPARSE_MAX: Final = 2**26
ARBITRARY_OFFSET: Final = 2**40
CHUNK_BATCHES: Final = 4096
# Largest number of batches that contradict each other of which the wrappers are decompressed.
WRAPPERS_MAX: Final = 64
# Number of batches on each side of a questioned wrapper that are judged with it.
AROUND: Final = 2
# A batch weighs more than any number of possible images, and an image more than any number of
# links.
BATCH_WEIGHT: Final = 1 << 80
IMAGE_WEIGHT: Final = 1 << 40


class LogEndFacts(NamedTuple):
    """
    Facts about the end of a log.

    Attributes:
        durable_offset: everything below it was on the disk once.
        end_offset: end of the log when it was closed in order, None if it was not.
        begin_offset: one above the last offset of the segment before, 0 if unknown.
    """

    durable_offset: int = 0
    end_offset: int | None = None
    begin_offset: int = 0


@dataclass(frozen=True, slots=True)
class Judgement:
    """
    The believed part of a segment.

    Attributes:
        corrupt_ranges: the damaged ranges, in order of position; if the last one ends at
            `whole_end`, it contains a whole batch.
        whole_end: one past the last batch with a valid CRC, believed or not.
        next_offset: one above the last offset of the last believed batch.
        free_offset: the least offset that no batch here can have, even if its own offset is wrong.
        tail_status: the failed check at `whole_end`: OK at the end of the data.
    """

    corrupt_ranges: tuple[CorruptRange, ...]
    whole_end: int
    next_offset: int
    free_offset: int
    tail_status: int


# Number of damaged ranges before a run, and its shift.
_Link = tuple[int, int]


@dataclass(slots=True)
class _Run:
    """
    Adjacent batches with valid CRCs, and without a hole between their offsets.

    Attributes:
        shift: its first offset minus the offsets that all batches before it take.
        start, end: its range in the data.
        count: number of batches.
        first_offset, next_offset: offsets in the headers; the first one of a wrapper is known only
            if its records were read.
        space: number of offsets that all of its batches take.
        fits: True if its offsets are within the bounds of the segment.
        is_wrapper: True for a wrapper, which is always a run by itself.
        is_believed: True if it is believed.
        is_doubtful: True if it is not believed, but could be instead of runs that contradict it.
        may_be_image: True if it is between two damaged ranges, and may be part of either.
        slot: its number in the segment.
        damage_count: number of damaged ranges before it.
        is_questioned: True if its records do not fit, as a reader found.
    """

    shift: int
    start: int
    end: int
    count: int
    first_offset: int
    next_offset: int
    space: int
    fits: bool
    is_wrapper: bool
    is_believed: bool = True
    is_doubtful: bool = False
    may_be_image: bool = False
    slot: int = 0
    damage_count: int = 0
    is_questioned: bool = False

    @property
    def link(self) -> _Link:
        """A value that it shares with the runs that follow it, or it follows, without a hole."""
        return self.damage_count, self.shift

    @property
    def weight(self) -> int:
        """Its weight in a set of believed runs."""
        own = IMAGE_WEIGHT if self.may_be_image else BATCH_WEIGHT
        return self.count * own + self.count - 1

    def try_extend(self, after: _Run) -> bool:
        """Add the next run if it follows without a hole; return whether it was added."""
        follows = (
            self.end == after.start
            and self.shift == after.shift
            and self.fits == after.fits
            and not (self.is_wrapper or after.is_wrapper)
        )
        if follows:
            self.end, self.next_offset = after.end, after.next_offset
            self.count += after.count
            self.space += after.space
        return follows

    def mark_image(self, space_before: int) -> None:
        """Record that it may be an image, after others that take no offsets any more."""
        self.may_be_image = True
        self.shift += space_before

    def set_place(self, slot: int, damage_count: int) -> None:
        """Set its number in the segment, and the number of damaged ranges before it."""
        self.slot, self.damage_count = slot, damage_count

    def question(self) -> None:
        """Record that its records may not fit: it is judged, even if nothing contradicts it."""
        self.is_questioned = True

    def exclude(self) -> None:
        """Record that its offsets are outside of the segment."""
        self.fits = False

    def begin_at(self, first_offset: int) -> None:
        """Set its first offset, as its records state it."""
        self.first_offset = first_offset

    def set_space(self, space: int) -> None:
        """Set the number of offsets that it takes, as its records state it."""
        self.space = space

    def believe(self) -> None:
        """Record that it is believed."""
        self.is_believed, self.is_doubtful = True, False

    def reject(self) -> None:
        """Record that it is not believed, and others are."""
        self.is_believed, self.is_doubtful = False, False

    def doubt(self) -> None:
        """Record that neither it nor the runs that contradict it are believed."""
        self.is_believed, self.is_doubtful = False, True

    def record_offsets(self, data: memoryview) -> tuple[int, int] | None:
        """Return first and last offset of the records in a wrapper; None if unknown."""
        return offsets_inside(data, self.start) if self.is_wrapper else None

    def space_in(self, data: memoryview) -> int:
        """Return the number of offsets that it takes, by the records in a wrapper."""
        inside = self.record_offsets(data)
        return self.space if inside is None else _space_between(*inside)


def _space_between(first: int, last: int) -> int:
    return max(last - first + 1, 1)


def judge_batches(
    data: memoryview,
    path: Path,
    *,
    first_offset: int,
    offset_max: int,
    following_offset: int,
    end_facts: LogEndFacts | None = None,
    questioned: Collection[int] = (),
    holes: Holes = (),
) -> Judgement:
    """
    Judge all batches of a segment.

    Args:
        data: bytes of the segment, from its first to the end of the published part.
        path: its file, for the corrupt ranges.
        first_offset: smallest offset that may be in it: its base offset.
        offset_max: largest offset that may be in it.
        following_offset: offset that follows the segment, for a corrupt range that reaches its end;
            raised if its batches take more offsets.
        end_facts: facts about the end of the log, for its last segment.
        questioned: positions of wrappers whose records do not fit between their neighbours.
        holes: large holes of the file, which are not searched.
    """
    found = _Search(data, first_offset, offset_max, holes)
    found.collect()
    runs = found.runs
    if 0 < following_offset == offset_max + 1:
        runs = [*runs, found.border(following_offset)]
    damage_count, end_before = 0, 0
    for slot, run in enumerate(runs):
        damage_count += run.start != end_before or run.start == len(data)
        run.set_place(slot, damage_count)
        if run.is_wrapper and run.start in questioned:
            run.question()
        end_before = run.end
    judge = _Judge(runs, data, first_offset)
    judge.judge(0 if end_facts is None else end_facts.end_offset or 0)
    if found.runs and found.runs[-1].may_be_image and not all(run.is_believed for run in runs):
        found.keep_tail()
    free_offset = 0 if end_facts is None else judge.judge_last(end_facts)
    return _report(found, path, following_offset, free_offset)


class _Search:
    """Finds the batches with a valid CRC, whatever their offsets are."""

    def __init__(self, data: memoryview, first_offset: int, offset_max: int, holes: Holes) -> None:
        self.data = data
        self.holes = holes
        self.first_offset = first_offset
        self.offset_max = offset_max
        self.runs: list[_Run] = []
        self.damage: dict[int, int] = {}
        self.whole_end = 0
        self.tail_status = OK
        self._space = 0

    def collect(self) -> None:
        """
        Walk from batch to batch, around damage.

        Not `walk_source`, which asks for this judgement: all whole batches are found here, those
        with wrong offsets too.
        """
        data, position, end = self.data, 0, len(self.data)
        columns = BatchColumns(CHUNK_BATCHES)
        island: tuple[int, int] | None = None
        while position < end:
            columns.clear()
            walk = scan_batches(data, position, columns=columns, check_order=False)
            if walk.count:
                self._add(columns, walk.count)
                self.whole_end = walk.position
            position = walk.position
            if walk.status in (OK, FULL):
                continue
            if island is not None and not is_zero_between(data, self.holes, walk.position, end):
                self._make_island(*island)
            if self._add_without_offset(walk.position):
                position = self.whole_end
                continue
            floor = self.first_offset + self._space
            position, is_found = find_resume(
                data, position, end, floor, self.offset_max, self.holes
            )
            self.damage[walk.position] = walk.status
            if position == end:
                self.tail_status = walk.status
                return
            island = (len(self.runs), self._space) if is_found else None

    def keep_tail(self) -> None:
        """Move the end after the torn tail: without it the batches before would be rejudged."""
        data, end = self.data, len(self.data)
        for start, stop in reversed(list(data_between(self.holes, self.whole_end, end))):
            for begin in range(stop - PIECE_BYTES, start - PIECE_BYTES, -PIECE_BYTES):
                first = max(begin, start)
                size = len(bytes(data[first : begin + PIECE_BYTES]).rstrip(b"\0"))
                if size:
                    self.whole_end = first + size
                    return

    def border(self, following_offset: int) -> _Run:
        """
        Return the base of the next segment as a batch without bytes: its name is as reliable.

        It follows no batch without a hole: an opening chose it above all doubtful offsets.
        """
        end = len(self.data)
        shift = following_offset - self._space
        next_offset = following_offset + 1
        return _Run(
            shift, end, end, 1, following_offset, next_offset, 0, fits=True, is_wrapper=False
        )

    def offsets_declared(self, start: int, end: int, next_offset: int) -> int:
        """Return the number of offsets that a damaged batch between runs declares, 0 if unsure."""
        if start == end:
            return 0
        try:
            header = parse_header(self.data, start)
        except KafkaLogError:
            return 0
        is_sure = (
            header.end_position == end
            and header.base_offset == next_offset
            and header.last_offset_delta + 1 == header.record_count
        )
        return header.record_count if is_sure else 0

    def end_of_images(self, position: int, next_offset: int) -> int:
        """
        Return one above the offsets of whole batches within damaged bytes after a position.

        They are not believed, but where no batch is believed after them they may be of the log.
        """
        offsets = next_offset, min(self.offset_max, next_offset + SPARSE_MAX)
        free_offset = 0
        for start, end in self._damaged_after(position):
            at = start
            # With the offset of the batch that follows, which no CRC covers. Not up to the end of
            # the segment: such a search for each range is quadratic.
            limit = end + BATCH_LENGTH_POSITION
            while at < end:
                at = find_in_data(self.data, at, limit, offsets, self.holes)
                if not 0 <= at < end:
                    break
                header = parse_header(self.data, at)
                free_offset = max(free_offset, header.last_offset + 1)
                at = header.end_position
        return free_offset

    def _damaged_after(self, position: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges between runs after a position."""
        for run in self.runs:
            if run.start > position:
                yield position, run.start
            position = max(position, run.end)

    def _add_without_offset(self, position: int) -> bool:
        """Add a batch in which nothing is wrong but an offset that no batch can have."""
        header = _header_without_offset(self.data, position)
        if header is None:
            return False
        end, space = position + header.size_bytes, header.last_offset_delta + 1
        run = _Run(0, position, end, 1, -1, 0, space, fits=False, is_wrapper=header.is_wrapper)
        self.runs.append(run)
        self._space += space
        self.whole_end = end
        return True

    def _make_island(self, first_run: int, space: int) -> None:
        """
        Let batches between two damaged ranges weigh little, and take no offsets.

        They may be no batches of the log, but images: values of records in a damaged batch.
        """
        self._space = space
        taken = 0
        for run in self.runs[first_run:]:
            run.mark_image(taken)
            taken += run.space

    def _add(self, columns: BatchColumns, count: int) -> None:
        base, last = columns.base_offset[:count], columns.last_offset[:count]
        position, size = columns.position[:count], columns.size_bytes[:count]
        taken, records = last - base + 1, columns.record_count[:count]
        is_possible = taken <= np.maximum(records, SPARSE_MAX)
        taken = np.where(is_possible, taken, np.maximum(records, 1))
        space = np.cumsum(taken)
        shift = base - (space - taken) - self._space
        fits = (base >= self.first_offset) & (last <= self.offset_max) & is_possible
        is_wrapper = records < 0
        is_edge = (shift[1:] != shift[:-1]) | (fits[1:] != fits[:-1])
        is_edge |= is_wrapper[1:] | is_wrapper[:-1]
        starts = [0, *(np.flatnonzero(is_edge) + 1).tolist()]
        for start, stop in zip(starts, [*starts[1:], count], strict=True):
            row = stop - 1
            run = _Run(
                shift=int(shift[start]),
                start=int(position[start]),
                end=int(position[row]) + int(size[row]),
                count=stop - start,
                first_offset=int(base[start]),
                next_offset=int(last[row]) + 1,
                space=int(space[row] - space[start] + taken[start]),
                fits=bool(fits[start]),
                is_wrapper=bool(is_wrapper[start]),
            )
            if not (self.runs and self.runs[-1].try_extend(run)):
                self.runs.append(run)
        self._space += int(space[-1])


def has_odd_end(
    end_facts: LogEndFacts, *, base_offset: int, expected: int, last_base: int, next_offset: int
) -> bool:
    """
    Return whether the known end of a log may contradict its last batch.

    Args:
        end_facts: facts about the end.
        base_offset: of the last segment.
        expected: the end of the batches before.
        last_base: base offset of the last batch.
        next_offset: one above its last offset.
    """
    if next_offset - 1 > base_offset + RELATIVE_OFFSET_MAX:
        return True
    end_offset = end_facts.end_offset
    return last_base > expected and (
        (end_offset is not None and next_offset > end_offset)
        or expected < end_facts.durable_offset <= last_base
    )


def fits_after(data: memoryview, position: int, end_before: int) -> bool:
    """
    Return whether the records of a wrapper fit: the first follows `end_before`, if it is known.

    The last one must have the offset in the header. In magic 1 all offsets are relative to that,
    unless they would be below 0.
    """
    inside = offsets_inside(data, position)
    if inside is None:
        return True
    first, last = inside
    header = parse_header(data, position)
    return first >= end_before and last == header.last_offset


def may_begin_segment(first: int, last: int, base_offset: int, end_before: int) -> bool:
    """
    Return whether the first wrapper of a segment may have its records there.

    A broker may have named the segment by the last offset of the wrapper. If any other name is
    above its first record, its offset is wrong.

    Args:
        first, last: offsets of the records in it.
        base_offset: of the segment.
        end_before: one above the last offset before the segment, 0 if unknown.
    """
    return first >= base_offset or (last == base_offset and first >= end_before)


def is_whole_without_offset(data: memoryview, position: int) -> bool:
    """Return whether a batch is whole but for an offset that no batch can have."""
    return _header_without_offset(data, position) is not None


def _header_without_offset(data: memoryview, position: int) -> BatchHeader | None:
    """Return the header of a batch that would be whole with another offset, else None."""
    head = bytearray(data[position : position + RECORD_BATCH_OVERHEAD])
    head[:BATCH_LENGTH_POSITION] = bytes(BATCH_LENGTH_POSITION)
    try:
        header = parse_header(head)
    except KafkaLogError:
        return None
    end = position + header.size_bytes
    if end > len(data):
        return None
    whole = bytearray(data[position:end])
    whole[:BATCH_LENGTH_POSITION] = bytes(BATCH_LENGTH_POSITION)
    return header if check_batch(whole) == OK else None


def offsets_inside(data: memoryview, position: int) -> tuple[int, int] | None:
    """
    Return first and last offset of the records in a wrapper, None if they are unknown.

    Records that are out of order or incomplete give no offsets: a broker accepts such a wrapper
    unread, and uses the offset in its header.
    """
    entry: memoryview | bytearray
    try:
        end = parse_header(data, position).end_position
        entry = data[position:end]
    except KafkaLogError:
        # Nothing is wrong but the offset, which no batch can have.
        header = _header_without_offset(data, position)
        assert header is not None
        entry = bytearray(data[position : position + header.size_bytes])
        entry[:BATCH_LENGTH_POSITION] = ARBITRARY_OFFSET.to_bytes(BATCH_LENGTH_POSITION)
    batch = BatchView(entry, position=position)
    with contextlib.suppress(KafkaLogError):
        records = batch.records(limit_bytes=WRAPPER_BYTES)
        if records and all(before.offset < each.offset for before, each in pairwise(records)):
            return records[0].offset, records[-1].offset
    return None


class _Judge:
    """
    Decides which runs of a segment are believed.

    Args:
        runs: all runs of the segment, in order.
        data: bytes of the segment.
        first_offset: its base offset.
    """

    def __init__(self, runs: list[_Run], data: memoryview, first_offset: int) -> None:
        self._runs = runs
        self._data = data
        self._first_offset = first_offset
        # Largest offset that index entries can name.
        self._limit = first_offset + RELATIVE_OFFSET_MAX

    def judge(self, end_offset: int) -> None:
        """Judge all runs; none that ends above `end_offset` is believed, unless that is 0."""
        self._question_wrappers()
        self._exclude_overflow()
        self._judge_below(end_offset)
        is_reached = any(run.is_believed and run.next_offset == end_offset for run in self._runs)
        if end_offset and not is_reached:
            # It may be an older end.
            self._judge_below(0)

    def _question_wrappers(self) -> None:
        """
        Read the records of wrappers that follow damage, or exceed the limit of a segment.

        Or follow a run that cannot be in the segment. Batches before the damage may have their
        offsets, because readers compare a wrapper with adjacent batches only.
        """
        end_before, next_offset, is_after_misfit = 0, 0, False
        for run in self._runs:
            if run.is_wrapper and run.fits and (run.start > end_before or is_after_misfit):
                inside = run.record_offsets(self._data)
                if inside is not None:
                    run.begin_at(inside[0])
                    if inside[0] < max(next_offset, self._first_offset):
                        run.question()
            is_after_misfit = not run.fits
            if run.is_wrapper and run.next_offset - 1 > self._limit:
                run.question()
            end_before = run.end
            if run.fits:
                next_offset = run.next_offset

    def _exclude_overflow(self) -> None:
        """
        Exclude batches beyond the limit of a segment if as many batches contradict them.

        Old cleaners have made segments whose last batches exceed the limit. Nothing follows them.
        """
        runs, limit = self._runs, self._limit
        beyond = [slot for slot, run in enumerate(runs) if run.fits and run.next_offset - 1 > limit]
        if not beyond:
            return
        count = sum(runs[slot].count for slot in beyond)
        before = [run for run in runs[: beyond[0]] if run.fits]
        shift = before[-1].shift if before else self._first_offset
        after = [run for run in runs[beyond[0] :] if run.fits and run.next_offset - 1 <= limit]
        if sum(run.count for run in after) >= count or any(run.shift == shift for run in after):
            for slot in beyond:
                runs[slot].exclude()

    def _judge_below(self, end_offset: int) -> None:
        """Judge all runs; none that ends above `end_offset` is believed, unless that is 0."""
        has_holes = self._judge_shifts(end_offset)
        self._question_lone(has_holes=has_holes)
        if any(run.may_be_image for run in self._runs):
            _resolve_images([run for run in self._runs if run.is_believed])

    def _question_lone(self, *, has_holes: bool) -> None:
        """
        Doubt a batch between two holes if the runs that contradict it outweigh it.

        These runs are possible images, which weigh less than any batch, and several batches in a
        row, which others outweigh. In a log without holes, after damage where no two batches follow
        each other, any batch is such a run. The runs that contradict the batch become doubtful,
        too.
        """
        runs = self._runs
        others = [
            run
            for run in runs
            if run.fits and (run.may_be_image or (run.count > 1 and not run.is_believed))
        ]
        rivals = [
            run
            for run in runs
            if run.fits
            and run.damage_count
            and not (run.is_believed or run.may_be_image)
            and run.count == 1
        ]
        if not (others or rivals):
            return
        believed = [run for run in runs if run.is_believed and not run.may_be_image]
        links = [(0, self._first_offset), *(run.link for run in believed), None]
        lone = [
            run
            for slot, run in enumerate(believed)
            if run.count == 1 < run.end - run.start
            and run.link not in (links[slot], links[slot + 2])
        ]
        in_file = sum(run.start < run.end for run in believed)
        if len(lone) == in_file and not (has_holes or any(run.is_wrapper for run in runs)):
            others += rivals
        doubtful = _contradicted(lone, others)
        for run in [*doubtful, *_contradicted(others, doubtful)]:
            run.doubt()

    def _judge_shifts(self, end_offset: int) -> bool:
        """As `_judge_below`, by the shifts alone; return whether offsets have holes."""
        fitting = []
        for run in self._runs:
            if run.fits and not 0 < end_offset < run.next_offset:
                run.believe()
                fitting.append(run)
            else:
                run.reject()
        if not fitting:
            return False
        shifts = np.array([run.shift for run in fitting], np.int64)
        highest_before = np.maximum.accumulate(shifts)
        lowest_after = np.minimum.accumulate(shifts[::-1])[::-1]
        is_settled = (shifts >= highest_before) & (shifts <= lowest_after)
        for slot, run in enumerate(fitting):
            if run.is_questioned:
                is_settled[max(slot - AROUND, 0) : slot + AROUND + 1] = False
        unsettled = np.flatnonzero(~is_settled)
        has_holes = self._has_holes({fitting[slot].slot for slot in np.flatnonzero(is_settled)})
        if not unsettled.size:
            return has_holes
        edges = np.flatnonzero(np.diff(unsettled) > 1) + 1
        for part in np.split(unsettled, edges):
            first, stop = int(part[0]), int(part[-1]) + 1
            self._judge_part(fitting, first, stop, has_holes=has_holes)
        return has_holes

    def _has_holes(self, settled: Collection[int]) -> bool:
        """
        Return whether the offsets of the runs that nothing contradicts have holes.

        A hole that may be due to damage, or is next to a wrapper, does not count.

        Args:
            settled: slots of the runs that nothing contradicts.
        """
        shift: int | None = self._first_offset
        damage_count = 0
        for run in self._runs:
            if run.damage_count != damage_count or run.is_wrapper:
                shift = None
            if run.slot in settled:
                if shift is not None and shift != run.shift:
                    return True
                shift = None if run.is_wrapper else run.shift
            damage_count = run.damage_count
        return False

    def _judge_part(self, fitting: list[_Run], first: int, stop: int, *, has_holes: bool) -> None:
        """Judge runs that contradict each other, and none of the runs around them."""
        part = fitting[first:stop]
        before = fitting[first - 1].link if first else (0, self._first_offset)
        after = fitting[stop].link if stop < len(fitting) else None
        shifts: list[int | None] = [run.shift for run in part]
        # With the runs around them, which may contradict them once wrappers are counted.
        start, end = max(first - 1, 0), min(stop + 1, len(fitting))
        while (counted := self._count_part(fitting, start, end)) is not None:
            part, shifts, low = counted
            before, after = (fitting[start - 1].damage_count if start else 0, low), None
            if not start or not part[0].is_wrapper:
                break
            inside = part[0].record_offsets(self._data)
            if (part[0].first_offset if inside is None else inside[0]) >= low:
                break
            start -= 1
        chosen = _choose(shifts, part, before, after, has_links=not has_holes)
        if chosen.doubtful:
            # A run beyond the limit is not believed if anything else is as likely.
            near = [
                None
                if slot in chosen.doubtful and part[slot].next_offset - 1 > self._limit
                else shift
                for slot, shift in enumerate(shifts)
            ]
            if near != shifts:
                chosen = _choose(near, part, before, after, has_links=not has_holes)
        for slot, run in enumerate(part):
            if slot in chosen.sure:
                run.believe()
            elif slot in chosen.doubtful:
                run.doubt()
            else:
                run.reject()

    def _count_part(
        self, fitting: list[_Run], first: int, stop: int
    ) -> tuple[list[_Run], list[int | None], int] | None:
        """
        Return runs, their shifts with wrappers counted, and the least offset that may follow.

        None if there are no wrappers, or too many. Runs between them or before them that cannot be
        believed take offsets as well.
        """
        slot = fitting[first].slot if first else 0
        block = self._runs[slot : fitting[stop - 1].slot + 1]
        if len(block) > WRAPPERS_MAX or not any(run.is_wrapper for run in block):
            return None
        part = fitting[first:stop]
        start, low = 0, self._first_offset
        if first:
            start = fitting[first - 1].slot + 1
            # In v0 the records state the end, whatever the header of the wrapper states.
            inside = fitting[first - 1].record_offsets(self._data)
            low = fitting[first - 1].next_offset if inside is None else inside[1] + 1
        return part, self._counted(self._runs[start : part[-1].slot + 1], part, low), low

    def _counted(self, runs: Sequence[_Run], part: Sequence[_Run], low: int) -> list[int | None]:
        """
        Return shifts with wrappers counted; None for a wrapper that contradicts itself.

        Args:
            runs: all runs from the offset `low` on, also the ones that cannot be believed.
            part: the runs whose shifts are returned.
            low: the least offset that may follow.
        """
        slots = {run.slot for run in part}
        is_questioned = any(run.is_questioned for run in part)
        shifts: list[int | None] = []
        taken = 0
        for run in runs:
            first, is_possible = run.first_offset, True
            inside = run.record_offsets(self._data)
            if inside is not None:
                first, last = inside
                run.set_space(_space_between(first, last))
                # A segment that a broker has named by the last offset of its first wrapper.
                begins_below = run.start == 0 and not run.is_questioned and is_questioned
                is_possible = last == run.next_offset - 1 and (first >= low or begins_below)
            if run.slot in slots:
                shifts.append(first - taken if is_possible else None)
            taken += 0 if run.may_be_image else run.space
        return shifts

    def judge_last(self, end_facts: LogEndFacts) -> int:
        """
        Judge the last batch of a log by the facts about the end of the log.

        It is rejected if it is alone after a hole that cannot exist, and with it wrappers before it
        whose records have other offsets than their headers: these hide the hole.

        Returns:
            The least offset that it cannot have if it is rejected, else 0.
        """
        believed = [run for run in self._runs if run.is_believed]
        if not believed or believed[-1].count > 1 or believed[-1] is not self._runs[-1]:
            return 0
        last = believed[-1]
        before = believed[:-1]
        while before and self._contradicts_itself(before[-1]):
            before.pop()
        expected = before[-1].next_offset if before else self._first_offset
        begins, end_offset = last.first_offset, end_facts.end_offset
        limit = end_facts.durable_offset if end_offset is None else end_offset
        inside = last.record_offsets(self._data)
        if inside is not None:
            begins = inside[0]
            last.set_space(_space_between(*inside))
            if inside[1] != last.next_offset - 1:
                last.reject()
                return max(expected + last.space, limit)
        if begins <= expected:
            return 0
        above = begins + 1 if end_offset is None else last.next_offset
        is_wrong = expected < limit < above
        if last.next_offset - 1 > self._limit:
            is_one_bit = (begins ^ expected).bit_count() == 1
            is_beyond = last.next_offset > self._first_offset + OVERFLOW_MAX
            is_wrong = is_wrong or is_one_bit or is_beyond
        if not is_wrong:
            return 0
        for run in believed[len(before) :]:
            run.reject()
        return max(expected + last.space, limit)

    def _contradicts_itself(self, run: _Run) -> bool:
        """Return whether the last record in a wrapper has another offset than its header."""
        inside = run.record_offsets(self._data)
        return inside is not None and inside[1] != run.next_offset - 1


def _contradicted(runs: Sequence[_Run], others: Sequence[_Run]) -> list[_Run]:
    """
    Return the runs that any of the others contradicts.

    Two contradict each other if the later one begins below the end of the earlier one.
    """
    found: dict[int, _Run] = {}
    end = 0
    for run, is_other in _merged(runs, others):
        end = max(end, run.next_offset) if is_other else end
        if not is_other and run.first_offset < end:
            found[run.slot] = run
    begin = RELATIVE_OFFSET_MAX << 32
    for run, is_other in reversed(_merged(runs, others)):
        begin = min(begin, run.first_offset) if is_other else begin
        if not is_other and begin < run.next_offset:
            found[run.slot] = run
    return list(found.values())


def _merged(runs: Sequence[_Run], others: Sequence[_Run]) -> list[tuple[_Run, bool]]:
    """Return all runs in order, each with True if it is one of the others."""
    both = [*((run, False) for run in runs), *((run, True) for run in others)]
    return sorted(both, key=lambda each: each[0].slot)


def _resolve_images(believed: list[_Run]) -> None:
    """
    Reject possible images that overlap: their offsets do not count, so no shift shows it.

    Of two runs that overlap the lighter one is rejected, and both if they weigh the same.
    """
    kept: list[_Run] = []
    for run in believed:
        while kept and run.first_offset < kept[-1].next_offset:
            before = kept[-1]
            if not (before.may_be_image or run.may_be_image):
                break
            if before.weight < run.weight:
                kept.pop().reject()
                continue
            if before.weight == run.weight:
                kept.pop().doubt()
                run.doubt()
            else:
                run.reject()
            break
        if run.is_believed:
            kept.append(run)


class _Chosen(NamedTuple):
    """Slots of the runs in all of the heaviest sets, and in some of them."""

    sure: set[int]
    doubtful: set[int]


def _choose(
    shifts: Sequence[int | None],
    runs: Sequence[_Run],
    before: _Link,
    after: _Link | None,
    *,
    has_links: bool,
) -> _Chosen:
    """
    Return the runs in the heaviest sets whose shifts do not fall.

    Args:
        shifts: of the runs; None for a run that cannot be believed.
        runs: the runs, which have weights.
        before, after: links of the believed runs around them.
        has_links: True if two runs that follow each other without a hole weigh more.
    """
    slots = [slot for slot, shift in enumerate(shifts) if shift is not None]
    values = [shift for shift in shifts if shift is not None]
    weights = [runs[slot].weight for slot in slots]
    if not slots:
        return _Chosen(set(), set())
    link = int(has_links)
    links = [(runs[slot].damage_count, shift) for slot, shift in zip(slots, values, strict=True)]
    up = _heaviest(links, weights, before, link)
    mirrored = [(damage_count, -shift) for damage_count, shift in reversed(links)]
    end = None if after is None else (after[0], -after[1])
    down = _heaviest(mirrored, weights[::-1], end, link)[::-1]
    totals = [first + second - own for first, second, own in zip(up, down, weights, strict=True)]
    best = max(totals)
    found = sorted((n for n, total in enumerate(totals) if total == best), key=up.__getitem__)
    sure = set(found)
    # Each run has a range of the sum, which ends with its own weight. Two runs whose ranges overlap
    # exclude each other, and neither is in all of the heaviest sets.
    widest = found[0]
    for number in found[1:]:
        if up[number] - weights[number] < up[widest]:
            sure -= {number, widest}
        if up[number] > up[widest]:
            widest = number
    return _Chosen({slots[number] for number in sure}, {slots[n] for n in found if n not in sure})


def _heaviest(
    links: Sequence[_Link], weights: Sequence[int], before: _Link | None, link: int
) -> list[int]:
    """
    Return for each run the weight of the heaviest set that ends with it.

    `link` is added for each two neighbours in the set with the same shift and no damage between
    them.
    """
    # Shifts and weights of the sets that no set with a smaller shift outweighs, both rising.
    ends: list[int] = []
    best: list[int] = []
    same = {} if before is None else {before: 0}
    found = []
    for key, weight in zip(links, weights, strict=True):
        shift = key[1]
        place = bisect_right(ends, shift)
        total = best[place - 1] if place else 0
        if key in same:
            total = max(total, same[key] + link)
        total += weight
        found.append(total)
        same[key] = max(same.get(key, 0), total)
        if place and best[place - 1] >= total:
            continue
        place = stop = bisect_left(ends, shift)
        while stop < len(ends) and best[stop] <= total:
            stop += 1
        ends[place:stop], best[place:stop] = [shift], [total]
    return found


def _report(found: _Search, path: Path, following_offset: int, free_offset: int) -> Judgement:
    """Return the judgement, with the ranges between the believed batches."""
    corrupt_ranges: list[CorruptRange] = []
    position, next_offset = 0, found.first_offset
    taken, reason = 0, OK

    def add_corrupt_range(end: int, after: int) -> None:
        status = found.damage.get(position, reason)
        corrupt_ranges.append(
            CorruptRange(
                path=path,
                position=position,
                size_bytes=end - position,
                first_offset=next_offset,
                next_offset=max(after, next_offset),
                reason=status_name(status),
            )
        )

    # One above the last offset, if the first doubtful run and all runs after it were believed.
    doubtful = 0
    end_before = 0
    for run in found.runs:
        taken += found.offsets_declared(end_before, run.start, next_offset + taken)
        end_before = run.end
        if doubtful:
            doubtful += run.space_in(found.data)
        if run.is_doubtful:
            doubtful = max(doubtful, run.next_offset)
        if not run.is_believed:
            if run.start == position:
                is_inside = 0 < run.next_offset <= found.offset_max + 1
                reason = OFFSET_ORDER if is_inside else BASE_OFFSET
            taken += run.space_in(found.data)
            continue
        if run.start > position:
            add_corrupt_range(run.start, first_offset_at(found.data, run.start, path))
        position, next_offset, taken = run.end, run.next_offset, 0
    free_offset = max(free_offset, doubtful, next_offset + taken)
    free_offset = max(free_offset, found.end_of_images(position, next_offset))
    if position < found.whole_end:
        add_corrupt_range(found.whole_end, max(following_offset, free_offset))
    return Judgement(
        corrupt_ranges=tuple(corrupt_ranges),
        whole_end=found.whole_end,
        next_offset=next_offset,
        free_offset=free_offset,
        tail_status=found.tail_status,
    )
