"""Which batches of a segment are believed: one judgement for recovery and for every reader.

The CRC of a batch covers its size and how many offsets it takes, but not its base offset. So all
batches of a segment with a good CRC are looked for first, whatever offsets they name, and those are
believed that contradict the fewest others:

  * A batch lies where an offset of it is outside the segment's bounds.
  * Two batches contradict each other where the later one begins too low: below the end of the
    earlier one, and of those between the two, each of which takes its offsets.
  * Believed is the largest set in which no two contradict each other. Of several of one size that
    with the most batches which follow each other without a hole counts, unless those that nothing
    contradicts have holes, as compaction leaves them; where that decides nothing either, only what
    is in all of them. A record that is missing is reported; one under an offset that is not its own
    is not found by anyone.

With `space[i]` for the offsets that all batches before batch i take, the second rule is a
comparison
of two numbers: `shift[i] = first_offset[i] - space[i]` may never fall. In a log without holes all
shifts are equal. Batches that are not in order with any other are few, and only these are compared.

A wrapper of an old format names its last offset only, and takes one at least. Where a few wrappers
contradict each other, they are decompressed, and counted; so are those around one of which a reader
has found that its records do not fit between its neighbours (`wrapper_checks.py`).

Everything outside the believed batches is fenced. A batch with a good CRC is never part of a torn
tail, whatever offset it names.

What an offset contradicts nobody cannot be found out: it is in the last batch, or raised or lowered
within a hole. For the last batch of a log the caller says what else is known of the end.

Pure functions over bytes; thread-safe.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
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
    find_resume,
    first_offset_at,
)
from kafkalog.records.batch_view import BatchView

__all__ = [
    "OVERFLOW_MAX",
    "RELATIVE_OFFSET_MAX",
    "Judgement",
    "KnownEnd",
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

RELATIVE_OFFSET_MAX: Final = 2**31 - 1
# Further from the base than this no segment comes, which has at most so many bytes.
OVERFLOW_MAX: Final = 2**40
# More offsets than it has records no batch takes but one of these: more than one ever had records.
SPARSE_MAX: Final = 2**26
ARBITRARY_OFFSET: Final = 2**40
CHUNK_BATCHES: Final = 4096
# So many batches that contradict each other are decompressed, should they be wrappers.
WRAPPERS_MAX: Final = 64
# So many batches on each side of a wrapper that is in question are judged with it.
AROUND: Final = 2
# A batch counts more than any number of those that may be none, and these than any number of links.
BATCH_WEIGHT: Final = 1 << 80
IMAGE_WEIGHT: Final = 1 << 40


class KnownEnd(NamedTuple):
    """
    What is known of the end of a log.

    Attributes:
        durable_offset: all below it was on the disk once.
        end_offset: where the log ended when it was closed in order, None where it was not.
        begin_offset: one above the last offset of the segment before, 0 where none is sure.
    """

    durable_offset: int = 0
    end_offset: int | None = None
    begin_offset: int = 0


@dataclass(frozen=True, slots=True)
class Judgement:
    """
    What is believed of a segment.

    Attributes:
        corrupt_ranges: the damaged ranges, in order of position; with `whole_end` as its end the
            last one holds a whole batch.
        whole_end: one past the last batch with a good CRC, believed or not.
        next_offset: one above the last offset of the last believed batch.
        free_offset: the least offset that nothing here may have, though its own offset lies.
        tail_status: what fails behind `whole_end`: OK at the end of the data.
    """

    corrupt_ranges: tuple[CorruptRange, ...]
    whole_end: int
    next_offset: int
    free_offset: int
    tail_status: int


# Stretch and shift of a run.
_Link = tuple[int, int]


@dataclass(slots=True)
class _Run:
    """
    Batches side by side that follow each other without a hole, each with a good CRC.

    Attributes:
        shift: their first offset, without the room of all batches before.
        start, end: where they lie.
        count: how many there are.
        first_offset, next_offset: the offsets they name.
        space: offsets that all of them take.
        fits: whether their offsets are inside the segment's bounds.
        is_wrapper: whether it is one, whose first offset is not known.
        is_believed: the judgement.
        may_be_image: whether it lies between two stretches of damage, and may belong to either.
        slot: its number in the segment.
        damage_count: how many stretches of damage lie before it.
        is_doubtful: whether it might as well be believed as others are that contradict it.
        is_questioned: whether a reader has found that the records in it do not fit.
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
        """What it has in common with those that it follows, or that follow it, without a hole."""
        return self.damage_count, self.shift

    @property
    def weight(self) -> int:
        """What believing it counts."""
        own = IMAGE_WEIGHT if self.may_be_image else BATCH_WEIGHT
        return self.count * own + self.count - 1


def judge_batches(
    data: memoryview,
    path: Path,
    *,
    first_offset: int,
    offset_max: int,
    following_offset: int,
    known_end: KnownEnd | None = None,
    questioned: Collection[int] = (),
    holes: Holes = (),
) -> Judgement:
    """
    Judge all batches of a segment.

    Args:
        data: bytes of the segment, from its first to the end of what is published.
        path: its file, for the corrupt ranges.
        first_offset: smallest offset that may be in it: its base offset.
        offset_max: largest offset that may be in it.
        following_offset: offset that follows the segment, for a corrupt range that reaches its end;
            a smaller one than its batches take is raised.
        known_end: what is known of the end of the log, for its last segment.
        questioned: where wrappers begin whose records do not fit between their neighbours.
        holes: large holes of the file, which are not gone through.
    """
    found = _Search(data, first_offset, offset_max, holes)
    found.collect()
    runs = found.runs
    if 0 < following_offset == offset_max + 1:
        runs = [*runs, found.border(following_offset)]
    damage_count, end_before = 0, 0
    for slot, run in enumerate(runs):
        damage_count += run.start != end_before or run.start == len(data)
        run.slot, run.damage_count, end_before = slot, damage_count, run.end
        run.is_questioned = run.is_wrapper and run.start in questioned
    _question_wrappers(runs, data, first_offset)
    _leave_overflow_out(runs, first_offset)
    end_offset = 0 if known_end is None else known_end.end_offset or 0
    _judge(runs, data, first_offset, end_offset)
    if end_offset and not any(run.is_believed and run.next_offset == end_offset for run in runs):
        # It is known of an older end, perhaps.
        _judge(runs, data, first_offset)
    if found.runs and found.runs[-1].may_be_image and not all(run.is_believed for run in runs):
        found.keep_tail()
    free_offset = 0
    if known_end is not None:
        free_offset = _judge_last(runs, data, first_offset, known_end)
    return _report(found, path, following_offset, free_offset)


class _Search:
    """Finds the batches with a good CRC, whatever their offsets are."""

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
        """Go from batch to batch, and around what is none."""
        data, position, end = self.data, 0, len(self.data)
        columns = BatchColumns(CHUNK_BATCHES)
        island: tuple[int, int] | None = None
        while position < end:
            columns.clear()
            met = scan_batches(data, position, columns=columns, check_order=False)
            if met.count:
                self._add(columns, met.count)
                self.whole_end = met.position
            position = met.position
            if met.status in (OK, FULL):
                continue
            if island is not None and not is_zero_between(data, self.holes, met.position, end):
                self._make_island(*island)
            if self._add_without_offset(met.position):
                position = self.whole_end
                continue
            floor = self.first_offset + self._space
            position, is_found = find_resume(
                data, position, end, floor, self.offset_max, self.holes
            )
            self.damage[met.position] = met.status
            if position == end:
                self.tail_status = met.status
                return
            island = (len(self.runs), self._space) if is_found else None

    def keep_tail(self) -> None:
        """Let the torn tail be no tail: without it the batches in front would be judged again."""
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
        Return the base of the segment behind as a batch of no bytes: its name lies as seldom.

        No batch follows it without a hole: an opening chose it behind all that was in doubt.
        """
        end = len(self.data)
        shift = following_offset - self._space
        next_offset = following_offset + 1
        return _Run(
            shift, end, end, 1, following_offset, next_offset, 0, fits=True, is_wrapper=False
        )

    def _add_without_offset(self, position: int) -> bool:
        """Add a batch of which nothing is wrong but an offset that no batch can have."""
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
        Let batches between two stretches of damage count little, and take no room.

        They may be no batches of the log, but images that a damaged batch carries as its values.
        """
        self._space = space
        taken = 0
        for run in self.runs[first_run:]:
            run.may_be_image = True
            run.shift += taken
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
            self._append(run)
        self._space += int(space[-1])

    def _append(self, run: _Run) -> None:
        """Add a run, as part of the one before where it only goes on with that."""
        before = self.runs[-1] if self.runs else None
        if (
            before is not None
            and before.end == run.start
            and before.shift == run.shift
            and before.fits == run.fits
            and not (before.is_wrapper or run.is_wrapper)
        ):
            before.end, before.next_offset = run.end, run.next_offset
            before.count += run.count
            before.space += run.space
        else:
            self.runs.append(run)


def has_odd_end(
    known_end: KnownEnd, *, base_offset: int, expected: int, last_base: int, next_offset: int
) -> bool:
    """
    Say whether what is known of a log's end may contradict its last batch.

    Args:
        known_end: that.
        base_offset: of the last segment.
        expected: the end of the batches before.
        last_base: base offset of the last batch.
        next_offset: one above its last offset.
    """
    if next_offset - 1 > base_offset + RELATIVE_OFFSET_MAX:
        return True
    end_offset = known_end.end_offset
    return last_base > expected and (
        (end_offset is not None and next_offset > end_offset)
        or expected < known_end.durable_offset <= last_base
    )


def fits_after(data: memoryview, position: int, end_before: int) -> bool:
    """
    Say whether the first record in a wrapper is behind the batch before, as far as records say.

    And whether the last one is what the wrapper names. In magic 1 all hang on that name, as long as
    it leads to no offset below 0.
    """
    inside = offsets_inside(data, position)
    if inside is None:
        return True
    first, last = inside
    header = parse_header(data, position)
    return first >= end_before and last == header.last_offset


def may_begin_segment(first: int, last: int, base_offset: int, end_before: int) -> bool:
    """
    Say whether the first wrapper of a segment may have its records there.

    A broker may have named the segment by the last offset of it. Under any other name that is
    above its first record, its offset lies.

    Args:
        first, last: offsets of the records in it.
        base_offset: of the segment.
        end_before: one above the last offset before the segment, 0 where none is sure.
    """
    return first >= base_offset or (last == base_offset and first >= end_before)


def is_whole_without_offset(data: memoryview, position: int) -> bool:
    """Say whether a batch is whole but for an offset that no batch can have."""
    return _header_without_offset(data, position) is not None


def _header_without_offset(data: memoryview, position: int) -> BatchHeader | None:
    """Return the header of a batch that would be whole with another offset, None for none."""
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


def _question_wrappers(runs: Sequence[_Run], data: memoryview, first_offset: int) -> None:
    """
    Ask the wrappers for their records that lie behind damage, or beyond what a segment may hold.

    Or behind what cannot be in the segment. What lies in front of the damage may have their
    offsets, for readers hold a wrapper against what it touches only.
    """
    limit = first_offset + RELATIVE_OFFSET_MAX
    end_before, next_offset, is_behind_misfit = 0, 0, False
    for run in runs:
        if run.is_wrapper and run.fits and (run.start > end_before or is_behind_misfit):
            inside = offsets_inside(data, run.start)
            if inside is not None:
                run.first_offset = inside[0]
                run.is_questioned |= inside[0] < max(next_offset, first_offset)
        is_behind_misfit = not run.fits
        run.is_questioned |= run.is_wrapper and run.next_offset - 1 > limit
        end_before = run.end
        if run.fits:
            next_offset = run.next_offset


def _leave_overflow_out(runs: list[_Run], first_offset: int) -> None:
    """
    Let batches further from the base than a segment's may be not fit, where as many contradict.

    There are segments of old cleaners in which the last batches are. Behind them comes nothing.
    """
    limit = first_offset + RELATIVE_OFFSET_MAX
    beyond = [slot for slot, run in enumerate(runs) if run.fits and run.next_offset - 1 > limit]
    if not beyond:
        return
    count = sum(runs[slot].count for slot in beyond)
    before = [run for run in runs[: beyond[0]] if run.fits]
    shift = before[-1].shift if before else first_offset
    behind = [run for run in runs[beyond[0] :] if run.fits and run.next_offset - 1 <= limit]
    if sum(run.count for run in behind) >= count or any(run.shift == shift for run in behind):
        for slot in beyond:
            runs[slot].fits = False


def _judge(runs: list[_Run], data: memoryview, first_offset: int, end_offset: int = 0) -> None:
    """Say of each run whether it is believed; none that ends above `end_offset` but if it is 0."""
    has_holes = _judge_shifts(runs, data, first_offset, end_offset)
    _question_lone(runs, first_offset, has_holes=has_holes)
    if any(run.may_be_image for run in runs):
        _resolve_images([run for run in runs if run.is_believed])


def _question_lone(runs: Sequence[_Run], first_offset: int, *, has_holes: bool) -> None:
    """
    Doubt a batch between two holes that more contradict than it has on its side.

    That is what may be images, which count less than any batch, or several batches in a row, which
    still others outweigh; and behind damage where no two follow each other, in a log without holes,
    any batch. They are in doubt with it.
    """
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
    links = [(0, first_offset), *(run.link for run in believed), None]
    lone = [
        run
        for slot, run in enumerate(believed)
        if run.count == 1 < run.end - run.start and run.link not in (links[slot], links[slot + 2])
    ]
    in_file = sum(run.start < run.end for run in believed)
    if len(lone) == in_file and not (has_holes or any(run.is_wrapper for run in runs)):
        others += rivals
    doubted = _contradicted(lone, others)
    for run in [*doubted, *_contradicted(others, doubted)]:
        run.is_believed, run.is_doubtful = False, True


def _contradicted(runs: Sequence[_Run], others: Sequence[_Run]) -> list[_Run]:
    """
    Return those that any of the others contradicts.

    Two contradict each other where the later one begins below the end of the earlier one.
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
    """Return both in order, each with whether it is of the others."""
    both = [*((run, False) for run in runs), *((run, True) for run in others)]
    return sorted(both, key=lambda each: each[0].slot)


def _resolve_images(believed: list[_Run]) -> None:
    """
    Leave out what overlaps and may be images: their room counts for nothing, so no shift says it.

    Of two that overlap the lighter one goes, and both where they weigh the same.
    """
    kept: list[_Run] = []
    for run in believed:
        while kept and run.first_offset < kept[-1].next_offset:
            before = kept[-1]
            if not (before.may_be_image or run.may_be_image):
                break
            if before.weight <= run.weight:
                before.is_believed = False
                before.is_doubtful = before.weight == run.weight
                kept.pop()
            if run.weight <= before.weight:
                run.is_believed = False
                run.is_doubtful = before.weight == run.weight
                break
        if run.is_believed:
            kept.append(run)


def _judge_shifts(runs: list[_Run], data: memoryview, first_offset: int, end_offset: int) -> bool:
    """As `_judge`, by the shifts alone; return whether batches were left out of the segment."""
    for run in runs:
        run.is_believed = run.fits and not 0 < end_offset < run.next_offset
        run.is_doubtful = False
    fitting = [run for run in runs if run.is_believed]
    if not fitting:
        return False
    shifts = np.array([run.shift for run in fitting], np.int64)
    highest_before = np.maximum.accumulate(shifts)
    lowest_behind = np.minimum.accumulate(shifts[::-1])[::-1]
    is_settled = (shifts >= highest_before) & (shifts <= lowest_behind)
    for slot, run in enumerate(fitting):
        if run.is_questioned:
            is_settled[max(slot - AROUND, 0) : slot + AROUND + 1] = False
    unsettled = np.flatnonzero(~is_settled)
    settled = {fitting[slot].slot for slot in np.flatnonzero(is_settled)}
    has_holes = _has_holes(runs, settled, first_offset)
    if not unsettled.size:
        return has_holes
    edges = np.flatnonzero(np.diff(unsettled) > 1) + 1
    for part in np.split(unsettled, edges):
        first, stop = int(part[0]), int(part[-1]) + 1
        _judge_part(runs, fitting, first, stop, data, first_offset, has_holes=has_holes)
    return has_holes


def _has_holes(runs: Sequence[_Run], settled: Collection[int], first_offset: int) -> bool:
    """
    Say whether the batches that nothing contradicts have offsets with holes.

    A hole that damaged bytes may have had the batches of is none, nor one around wrappers.

    Args:
        runs: all of the segment.
        settled: the slots of those that nothing contradicts.
        first_offset: the segment's base.
    """
    shift: int | None = first_offset
    damage_count = 0
    for run in runs:
        if run.damage_count != damage_count or run.is_wrapper:
            shift = None
        if run.slot in settled:
            if shift is not None and shift != run.shift:
                return True
            shift = None if run.is_wrapper else run.shift
        damage_count = run.damage_count
    return False


def _judge_part(
    all_runs: list[_Run],
    runs: list[_Run],
    first: int,
    stop: int,
    data: memoryview,
    first_offset: int,
    *,
    has_holes: bool,
) -> None:
    """Judge runs that contradict each other, and none of those around them."""
    part = runs[first:stop]
    before = runs[first - 1].link if first else (0, first_offset)
    behind = runs[stop].link if stop < len(runs) else None
    shifts: list[int | None] = [run.shift for run in part]
    # With the batches around them, which may turn out to contradict them.
    start, end = max(first - 1, 0), min(stop + 1, len(runs))
    while (counted := _count_part(all_runs, runs, start, end, data, first_offset)) is not None:
        part, shifts, low = counted
        before, behind = (runs[start - 1].damage_count if start else 0, low), None
        if not start or not part[0].is_wrapper or _begin_inside(part[0], data) >= low:
            break
        start -= 1
    chosen = _choose(shifts, part, before, behind, has_links=not has_holes)
    if chosen.doubtful:
        # Beyond what a segment may hold is beyond belief where anything else is as good.
        limit = first_offset + RELATIVE_OFFSET_MAX
        near = [
            None if slot in chosen.doubtful and part[slot].next_offset - 1 > limit else shift
            for slot, shift in enumerate(shifts)
        ]
        if near != shifts:
            chosen = _choose(near, part, before, behind, has_links=not has_holes)
    for slot, run in enumerate(part):
        run.is_believed = slot in chosen.sure
        run.is_doubtful = slot in chosen.doubtful


def _count_part(
    all_runs: list[_Run],
    runs: list[_Run],
    first: int,
    stop: int,
    data: memoryview,
    first_offset: int,
) -> tuple[list[_Run], list[int | None], int] | None:
    """
    Return runs, their shifts with wrappers counted, and the least offset that may come.

    None where there are no wrappers, or too many. Those between them, or in front of all, that
    cannot be believed take offsets as well.
    """
    slot = runs[first].slot if first else 0
    block = all_runs[slot : runs[stop - 1].slot + 1]
    if len(block) > WRAPPERS_MAX or not any(run.is_wrapper for run in block):
        return None
    part = runs[first:stop]
    # In v0 the records tell the end, whatever the wrapper names.
    low = _end_inside(runs[first - 1], data) if first else first_offset
    start = runs[first - 1].slot + 1 if first else 0
    return part, _counted(all_runs[start : part[-1].slot + 1], part, data, low), low


def _begin_inside(run: _Run, data: memoryview) -> int:
    """Return the first offset of a run, that of the records in a wrapper."""
    inside = offsets_inside(data, run.start) if run.is_wrapper else None
    return run.first_offset if inside is None else inside[0]


def _end_inside(run: _Run, data: memoryview) -> int:
    """Return one above the last offset of a run, that of the records in a wrapper."""
    inside = offsets_inside(data, run.start) if run.is_wrapper else None
    return run.next_offset if inside is None else inside[1] + 1


def _counted(
    runs: Sequence[_Run], part: Sequence[_Run], data: memoryview, low: int
) -> list[int | None]:
    """
    Return shifts with wrappers counted; None of one that contradicts itself.

    Args:
        runs: all from behind the offset `low` on, those that are not to be believed as well.
        part: for which of them shifts are returned.
        data: bytes of the segment.
        low: the least offset that may come.
    """
    wanted = {run.slot for run in part}
    is_asked = any(run.is_questioned for run in part)
    shifts: list[int | None] = []
    taken = 0
    for run in runs:
        first, is_possible = run.first_offset, True
        inside = offsets_inside(data, run.start) if run.is_wrapper else None
        if inside is not None:
            first, last = inside
            run.space = max(last - first + 1, 1)
            # A segment that a broker has named by the last offset of its first wrapper.
            begins_below = run.start == 0 and not run.is_questioned and is_asked
            is_possible = last == run.next_offset - 1 and (first >= low or begins_below)
        if run.slot in wanted:
            shifts.append(first - taken if is_possible else None)
        taken += 0 if run.may_be_image else run.space
    return shifts


def offsets_inside(data: memoryview, position: int) -> tuple[int, int] | None:
    """
    Return first and last offset of the records in a wrapper, None where they do not say.

    Records that were written out of order, or not to their end, say nothing: a broker takes such a
    wrapper as it is, and goes by the offset that it names.
    """
    entry: memoryview | bytearray
    try:
        end = parse_header(data, position).end_position
        entry = data[position:end]
    except KafkaLogError:
        # It is only the offset that no batch can have.
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


class _Chosen(NamedTuple):
    """Those in all of the heaviest sets, and those in some of them."""

    sure: set[int]
    doubtful: set[int]


def _choose(
    shifts: Sequence[int | None],
    runs: Sequence[_Run],
    before: _Link,
    behind: _Link | None,
    *,
    has_links: bool,
) -> _Chosen:
    """
    Return which runs are in the heaviest sets whose shifts do not fall.

    Args:
        shifts: of the runs; None for one that is not to be believed.
        runs: what they weigh.
        before, behind: those that are believed around them.
        has_links: whether two that follow each other without a hole count more.
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
    end = None if behind is None else (behind[0], -behind[1])
    down = _heaviest(mirrored, weights[::-1], end, link)[::-1]
    totals = [first + second - own for first, second, own in zip(up, down, weights, strict=True)]
    best = max(totals)
    found = sorted((n for n, total in enumerate(totals) if total == best), key=up.__getitem__)
    sure = set(found)
    # Each takes the place in the sum from what is before it to itself; two at one place exclude
    # each other, and neither is in all of the heaviest sets.
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

    `link` is added for each two side by side in the set that have the same shift, and no damage
    between them.
    """
    # Shifts and weights of the sets that none with a smaller shift outweighs, both rising.
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


def _judge_last(runs: list[_Run], data: memoryview, first_offset: int, known_end: KnownEnd) -> int:
    """
    Judge the last batch of a log by what is known of the end of that.

    It lies where it stands alone behind a hole, and the hole is one that cannot be.

    Returns:
        The least offset that it cannot have if it lies, 0 where it is believed.
    """
    believed = [run for run in runs if run.is_believed]
    if not believed or believed[-1].count > 1 or believed[-1] is not runs[-1]:
        return 0
    last = believed[-1]
    expected = believed[-2].next_offset if len(believed) > 1 else first_offset
    begins, end_offset = last.first_offset, known_end.end_offset
    limit = known_end.durable_offset if end_offset is None else end_offset
    overflows = last.next_offset - 1 > first_offset + RELATIVE_OFFSET_MAX
    if last.is_wrapper:
        inside = offsets_inside(data, last.start)
        if inside is not None:
            begins, last.space = inside[0], max(inside[1] - inside[0] + 1, 1)
            if inside[1] != last.next_offset - 1:
                last.is_believed = False
                return max(expected + last.space, limit)
    if begins <= expected:
        return 0
    above = begins + 1 if end_offset is None else last.next_offset
    lies = expected < limit < above
    if overflows:
        is_one_bit = (begins ^ expected).bit_count() == 1
        lies = lies or is_one_bit or last.next_offset > first_offset + OVERFLOW_MAX
    if not lies:
        return 0
    last.is_believed = False
    return max(expected + last.space, limit)


def _space_of(run: _Run, data: memoryview) -> int:
    """Return how many offsets a run takes, wrappers counted."""
    inside = offsets_inside(data, run.start) if run.is_wrapper else None
    return run.space if inside is None else max(inside[1] - inside[0] + 1, 1)


def _report(found: _Search, path: Path, following_offset: int, free_offset: int) -> Judgement:
    """Put the ranges between the believed batches together."""
    corrupt_ranges: list[CorruptRange] = []
    position, next_offset = 0, found.first_offset
    taken, reason = 0, OK

    def corrupt_range(end: int, behind: int) -> None:
        status = found.damage.get(position, reason)
        corrupt_ranges.append(
            CorruptRange(
                path=path,
                position=position,
                size_bytes=end - position,
                first_offset=next_offset,
                next_offset=max(behind, next_offset),
                reason=status_name(status),
            )
        )

    # One above the last offset, if what is in doubt were believed, and what is behind it.
    doubtful = 0
    for run in found.runs:
        if doubtful:
            doubtful += _space_of(run, found.data)
        if run.is_doubtful:
            doubtful = max(doubtful, run.next_offset)
        if not run.is_believed:
            if run.start == position:
                is_inside = 0 < run.next_offset <= found.offset_max + 1
                reason = OFFSET_ORDER if is_inside else BASE_OFFSET
            taken += _space_of(run, found.data)
            continue
        if run.start > position:
            corrupt_range(run.start, first_offset_at(found.data, run.start, path))
        position, next_offset, taken = run.end, run.next_offset, 0
    free_offset = max(free_offset, doubtful, next_offset + taken)
    if position < found.whole_end:
        corrupt_range(found.whole_end, max(following_offset, free_offset))
    return Judgement(
        corrupt_ranges=tuple(corrupt_ranges),
        whole_end=found.whole_end,
        next_offset=next_offset,
        free_offset=free_offset,
        tail_status=found.tail_status,
    )
