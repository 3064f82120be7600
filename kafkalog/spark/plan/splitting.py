"""Division of a query into tasks: ranges of offsets, each about as large as a task is to be.

    segments -> pieces within the bounds -> cut if larger than a task, between batches that an
    index names -> combined, neighbours first -> the largest first

A piece is a range of offsets in one segment. The bytes of a part of a segment are taken from the
share of its offsets; an error of that makes a task larger or smaller, and nothing else.

The ranges of a task are immutable plain data; they pickle, and go from the driver to the workers.

Thread-safety: functions of a snapshot; segments that are cut make them read an index.
"""

from __future__ import annotations

import heapq
import logging
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from kafkalog.spark.plan.bounds import Bounds
from kafkalog.spark.plan.filters import EVERYTHING, FilterSet
from kafkalog.spark.plan.log_files import SegmentCuts
from kafkalog.spark.plan.snapshot import QuerySnapshot

__all__ = ["TASKS_MAX", "CutsSegments", "LogSplit", "SplitRange", "split_and_pack"]

logger = logging.getLogger(__name__)

Int64Array = npt.NDArray[np.int64]

# More tasks than these in one query overload a driver.
TASKS_MAX: Final = 100_000
# Segments that are handled together: the temporary arrays are as long.
CHUNK_ROWS: Final = 32 * 1024


@dataclass(frozen=True, slots=True)
class SplitRange:
    """
    Records of one partition.

    Attributes:
        directory: of the partition.
        topic, partition: its name.
        start, end: offsets; the end is exclusive, and never moves: a repeated task reads the same.
        follows: True if another range of the query ends where this one begins. Damage that begins
            there is reported there.
    """

    directory: str
    topic: str
    partition: int
    start: int
    end: int
    follows: bool = False


@dataclass(frozen=True, slots=True)
class LogSplit:
    """
    The ranges of one task.

    Attributes:
        ranges: read one after the other.
        size_bytes: estimate of their bytes in the log.
    """

    ranges: tuple[SplitRange, ...]
    size_bytes: int

    @property
    def offset_count(self) -> int:
        """Number of offsets in the ranges; in a compacted log not all of them have a record."""
        return sum(each.end - each.start for each in self.ranges)


class CutsSegments(Protocol):
    """Finder of places at which a segment of a partition can be split."""

    def near(self, base_offset: int, size_bytes: int, positions: list[int]) -> list[int]: ...


@dataclass(frozen=True, eq=False)
class _Pieces:
    """Ranges of offsets in partitions, by partition and offset: columns."""

    rows: Int64Array
    starts: Int64Array
    ends: Int64Array
    sizes: Int64Array

    def __len__(self) -> int:
        return len(self.rows)


def split_and_pack(
    snapshot: QuerySnapshot,
    bounds: Bounds,
    *,
    split_bytes: int,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
    filters: FilterSet = EVERYTHING,
) -> list[LogSplit]:
    """
    Return the tasks of a query, the largest first.

    Args:
        snapshot: of the partitions.
        bounds: start and end.
        split_bytes: about the largest size of a task.
        min_partitions: lowest number of tasks, as long as there are offsets.
        max_records_per_partition: largest number of offsets of a task.
        filters: records that they exclude are not read.
    """
    chosen = list(_chunks(snapshot))
    if min_partitions is not None:
        # A size that gives about as many tasks; if some are missing then, tasks are halved.
        total = sum(int(_pieces(snapshot, bounds, filters, *each).sizes.sum()) for each in chosen)
        split_bytes = max(min(split_bytes, -(-total // min_partitions)), 1)
    limit = 2**63 - 1 if max_records_per_partition is None else max_records_per_partition
    parts = []
    for first, stop in chosen:
        pieces = _cut_large(snapshot, _pieces(snapshot, bounds, filters, first, stop), split_bytes)
        if max_records_per_partition is not None:
            pieces = _cut_by_count(pieces, max_records_per_partition)
        parts.append(_joined(pieces, split_bytes, limit))
    runs = _concatenated(parts)
    del parts
    splits = list(_splits(snapshot, runs, _pack(runs, split_bytes, limit)))
    if min_partitions is not None:
        splits = split_at_least(splits, min_partitions)
    if len(splits) > TASKS_MAX:
        logger.warning(
            "%d tasks in one query; a larger splitBytes than %d makes fewer",
            len(splits),
            split_bytes,
        )
    splits.sort(key=lambda split: split.size_bytes, reverse=True)
    return splits


def _chunks(snapshot: QuerySnapshot) -> Iterator[tuple[int, int]]:
    """Yield ranges of partitions that together have about CHUNK_ROWS segments."""
    first, count = 0, len(snapshot)
    while first < count:
        limit = snapshot.first_rows[first] + CHUNK_ROWS
        stop = int(snapshot.first_rows.searchsorted(limit, "right")) - 1
        stop = min(max(stop, first + 1), first + CHUNK_ROWS, count)
        yield first, stop
        first = stop


def _pieces(
    snapshot: QuerySnapshot, bounds: Bounds, filters: FilterSet, first: int, stop: int
) -> _Pieces:
    """Return the part of each segment of some partitions within the bounds."""
    offsets = filters.offsets
    edges = snapshot.first_rows[first : stop + 1]
    segments = slice(int(edges[0]), int(edges[-1]))
    counts = np.diff(edges)
    rows = np.repeat(np.arange(first, stop), counts)
    bases = snapshot.base_offsets[segments]
    # A segment ends where the next one of its partition begins.
    segment_ends = np.append(bases[1:], 0)
    has_any = np.flatnonzero(counts)
    segment_ends[edges[1:][has_any] - edges[0] - 1] = snapshot.log_ends[first + has_any]
    starts = np.maximum(np.maximum(bounds.starts[rows], max(offsets.first, 0)), bases)
    ends = np.minimum(np.minimum(bounds.ends[rows], min(offsets.last, 2**63 - 2) + 1), segment_ends)
    kept = starts < ends
    if snapshot.largest_timestamps is not None and not filters.timestamps.is_all:
        kept &= snapshot.largest_timestamps[segments] >= filters.timestamps.first
    shares = (ends - starts) / np.maximum(segment_ends - bases, 1)
    sizes = np.maximum((snapshot.sizes[segments] * shares).astype(np.int64), 1)
    return _Pieces(rows[kept], starts[kept], ends[kept], sizes[kept])


def _concatenated(parts: list[_Pieces]) -> _Pieces:
    if not parts:
        nothing = np.empty(0, np.int64)
        return _Pieces(nothing, nothing, nothing, nothing)
    return _Pieces(
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.starts for part in parts]),
        np.concatenate([part.ends for part in parts]),
        np.concatenate([part.sizes for part in parts]),
    )


def _cut_large(snapshot: QuerySnapshot, pieces: _Pieces, split_bytes: int) -> _Pieces:
    """Split pieces larger than a task, at the places of an index."""
    large = np.flatnonzero(pieces.sizes > split_bytes)
    if not len(large):
        return pieces
    cut_at: list[list[int]] = []
    directory, cuts = None, SegmentCuts(snapshot.disk, "")
    for piece in large.tolist():
        row, start = int(pieces.rows[piece]), int(pieces.starts[piece])
        if snapshot.directories[row] != directory:
            directory = snapshot.directories[row]
            cuts = SegmentCuts(snapshot.disk, directory)
        cut_at.append(_cuts_of(snapshot, cuts, row, start, int(pieces.ends[piece]), split_bytes))
    return _parted(pieces, large, cut_at)


def _cuts_of(
    snapshot: QuerySnapshot, cuts: CutsSegments, row: int, start: int, end: int, split_bytes: int
) -> list[int]:
    """Return the offsets that split a range within one segment, evenly by bytes."""
    first, stop = int(snapshot.first_rows[row]), int(snapshot.first_rows[row + 1])
    segment = first + int(snapshot.base_offsets[first:stop].searchsorted(start, "right")) - 1
    base, size = int(snapshot.base_offsets[segment]), int(snapshot.sizes[segment])
    next_base = snapshot.base_offsets[segment + 1] if segment + 1 < stop else snapshot.log_ends[row]
    span = max(int(next_base) - base, 1)
    from_byte, to_byte = (start - base) * size // span, (end - base) * size // span
    count = -((from_byte - to_byte) // split_bytes)
    step = (to_byte - from_byte) / count
    positions = [from_byte + round(step * number) for number in range(1, count)]
    found = [offset for offset in cuts.near(base, size, positions) if start < offset < end]
    if found or count < 2:
        return found
    # No index: a task that begins within a batch decodes it, and skips the records before its
    # start.
    step = (end - start) / count
    guessed = {start + round(step * number) for number in range(1, count)}
    return sorted(offset for offset in guessed if start < offset < end)


def _parted(pieces: _Pieces, chosen: Int64Array, cut_at: list[list[int]]) -> _Pieces:
    """Return the pieces, the chosen ones split at offsets."""
    counts = np.ones(len(pieces), np.int64)
    counts[chosen] += [len(cuts) for cuts in cut_at]
    rows, starts, ends, sizes = (
        np.repeat(column, counts)
        for column in (pieces.rows, pieces.starts, pieces.ends, pieces.sizes)
    )
    first = np.cumsum(counts) - counts
    for piece, cuts in zip(chosen.tolist(), cut_at, strict=True):
        if cuts:
            at = int(first[piece])
            starts[at + 1 : at + 1 + len(cuts)] = cuts
            ends[at : at + len(cuts)] = cuts
    whole = np.repeat(pieces.ends - pieces.starts, counts)
    sizes = np.maximum((sizes * ((ends - starts) / whole)).astype(np.int64), 1)
    return _Pieces(rows, starts, ends, sizes)


def _cut_by_count(pieces: _Pieces, offsets_max: int) -> _Pieces:
    """Split pieces with more offsets than a task may have."""
    spans = pieces.ends - pieces.starts
    counts = -(-spans // offsets_max)
    part = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = np.repeat(pieces.starts, counts) + part * offsets_max
    ends = np.minimum(starts + offsets_max, np.repeat(pieces.ends, counts))
    whole = np.repeat(spans, counts)
    sizes = np.repeat(pieces.sizes, counts) * ((ends - starts) / whole)
    return _Pieces(
        np.repeat(pieces.rows, counts), starts, ends, np.maximum(sizes.astype(np.int64), 1)
    )


def _joined(pieces: _Pieces, split_bytes: int, offsets_max: int) -> _Pieces:
    """Return runs: neighbours that one task reads as one range of offsets."""
    if not len(pieces):
        return pieces
    sizes, spans = np.cumsum(pieces.sizes), np.cumsum(pieces.ends - pieces.starts)
    # Ends of runs: another partition begins, or a hole that a filter made.
    is_edge = (pieces.rows[1:] != pieces.rows[:-1]) | (pieces.starts[1:] != pieces.ends[:-1])
    edges = [*(np.flatnonzero(is_edge) + 1).tolist(), len(pieces)]
    total, seen = sizes.tolist(), spans.tolist()
    firsts: list[int] = []
    at = 0
    for edge in edges:
        while at < edge:
            firsts.append(at)
            size, count = (total[at - 1], seen[at - 1]) if at else (0, 0)
            stop = bisect_right(total, size + split_bytes, at, edge)
            stop = bisect_right(seen, count + offsets_max, at, stop)
            at = max(stop, at + 1)
    first = np.array(firsts, np.int64)
    stops = np.append(first[1:], len(pieces))
    return _Pieces(
        pieces.rows[first],
        pieces.starts[first],
        pieces.ends[stops - 1],
        sizes[stops - 1] - sizes[first] + pieces.sizes[first],
    )


def _pack(runs: _Pieces, split_bytes: int, offsets_max: int) -> list[list[int]]:
    """Return the runs of each task: the largest first, each into the task that it fills best."""
    order = np.argsort(-runs.sizes, kind="stable").tolist()
    sizes, counts = runs.sizes.tolist(), (runs.ends - runs.starts).tolist()
    tasks: list[list[int]] = []
    offsets_left: list[int] = []
    open_tasks: list[tuple[int, int]] = []
    for run in order:
        size, count = sizes[run], counts[run]
        at = bisect_left(open_tasks, (size, 0))
        while at < len(open_tasks) and offsets_left[open_tasks[at][1]] < count:
            at += 1
        if at < len(open_tasks):
            left, task = open_tasks.pop(at)
            tasks[task].append(run)
        else:
            left, task = split_bytes, len(tasks)
            tasks.append([run])
            offsets_left.append(offsets_max)
        offsets_left[task] -= count
        if left > size and offsets_left[task] > 0:
            insort(open_tasks, (left - size, task))
    return tasks


def _splits(snapshot: QuerySnapshot, runs: _Pieces, tasks: list[list[int]]) -> Iterator[LogSplit]:
    rows, starts, ends = runs.rows.tolist(), runs.starts.tolist(), runs.ends.tolist()
    sizes, numbers = runs.sizes.tolist(), snapshot.partitions.tolist()
    # Neighbours are adjacent here, whatever tasks they belong to.
    follows = (runs.rows[1:] == runs.rows[:-1]) & (runs.starts[1:] == runs.ends[:-1])
    is_successor = [False, *follows.tolist()]
    directories, topics = snapshot.directories, snapshot.topics
    for task in tasks:
        ranges = tuple(
            SplitRange(
                directories[rows[run]],
                topics[rows[run]],
                numbers[rows[run]],
                starts[run],
                ends[run],
                is_successor[run],
            )
            for run in sorted(task)
        )
        yield LogSplit(ranges, sum(sizes[run] for run in task))


def split_at_least(splits: list[LogSplit], count: int) -> list[LogSplit]:
    """Halve the tasks with the most bytes until there are `count`, as long as that is possible."""
    heap = [(-split.size_bytes, number, split) for number, split in enumerate(splits)]
    heapq.heapify(heap)
    done: list[LogSplit] = []
    number = len(heap)
    while heap and len(heap) + len(done) < count:
        _size, _number, split = heapq.heappop(heap)
        halves = _halved(split)
        if len(halves) == 1:
            done.append(split)
            continue
        for half in halves:
            number += 1
            heapq.heappush(heap, (-half.size_bytes, number, half))
    return done + [split for _size, _number, split in heap]


def _halved(split: LogSplit) -> list[LogSplit]:
    """Return two tasks with about as many offsets each, or the one where it has a single offset."""
    half = split.offset_count // 2
    if half == 0:
        return [split]
    left: list[SplitRange] = []
    right: list[SplitRange] = []
    for each in split.ranges:
        taken = min(each.end - each.start, half)
        half -= taken
        middle = each.start + taken
        for side, start, end in ((left, each.start, middle), (right, middle, each.end)):
            if start < end:
                follows = each.follows or start > each.start
                side.append(replace(each, start=start, end=end, follows=follows))
    sizes = [split.size_bytes // 2, split.size_bytes - split.size_bytes // 2]
    return [
        LogSplit(tuple(ranges), max(size, 1))
        for ranges, size in zip((left, right), sizes, strict=True)
    ]
