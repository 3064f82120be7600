"""Unfinished exchanges of segments in a directory: the decision whether each one counts.

An exchange of segments, by a broker or by this library, ends with renames: `.cleaned` becomes
`.swap`, old segments leave, `.swap` becomes the live name. This module judges the files that a stop
leaves in between; it changes nothing.

A `.swap` file at or above a `.cleaned` file does not count: its exchange was not complete. The
others count

  * by a marker (`replaced_markers.py`), if it names each `.swap` file and each old segment that
    exists, all of them by their identity;
  * without a marker, as a broker leaves them: if they are **covering**. They end where the old
    segments end; if an old segment has offsets there, it has every batch of the `.swap` files,
    under the same offset and of the same producer; and no old segment reaches into the next one or
    has offsets of another, as files under each other's names do. If the old segment of the same
    base offset has left already, its exchange had begun, and no other file has its records: then
    it is enough that the old segments that still exist have the batches.

The bytes of a file that counts are read to their end, with every CRC, before a writer lets it
replace anything. If a file is refused, the old segments stay.

Thread-safety: pure functions over the disk. Errors pass as OSError.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog._core.batch import BatchColumns
from kafkalog._core.status import status_name
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import (
    MAX_OFFSET,
    FileKind,
    FileState,
    SegmentFiles,
    try_parse_segment_file,
)
from kafkalog.files.zeros import end_of_data
from kafkalog.layout import MAGIC_V2
from kafkalog.log.batch_walk import WalkDamage, WalkRange, walk_source
from kafkalog.log.byte_source import MappedSource
from kafkalog.log.replaced_markers import (
    ReplacedMarker,
    identity_of,
    read_replaced_marker,
    replaced_marker_path,
)
from kafkalog.log.scanner import scan_segment

__all__ = ["Exchange", "PresentSegments", "judge_exchanges", "present_segments"]

# Reasons of corrupt ranges that have whole batches.
_FOREIGN: Final = frozenset({"BASE_OFFSET", "OFFSET_ORDER"})
_SCANNED_BATCHES: Final = 4096
_NO_INTERVAL: Final = 2**31 - 1
# Number of times that a directory is listed again because files vanished; then the caller retries.
_ATTEMPTS: Final = 5


class PresentSegments(NamedTuple):
    """
    The segments that a reader finds.

    Attributes:
        bases: their base offsets, ascending.
        swapped: bases whose files still have the suffix `.swap`.
    """

    bases: list[int]
    swapped: frozenset[int] = frozenset()


@dataclass(slots=True)
class Exchange:
    """
    Judgement of `.swap` files that belong together.

    Attributes:
        swaps: base offsets of the `.swap` files, ascending.
        leaving: base offsets of live segments that they replace, without those in `swaps`.
        refusal: the reason why they do not count, None if they count.
        is_marked: whether a marker names them; any of the old segments may have left then.
    """

    swaps: list[int]
    leaving: set[int] = field(default_factory=set)
    refusal: str | None = None
    is_marked: bool = False


@dataclass(slots=True)
class _Listing:
    """Base offsets of `.log` files by state, without `.swap` files that a `.cleaned` refutes."""

    live: set[int]
    swaps: list[int]
    marks: list[int]


def present_segments(filesystem: FileSystem, directory: Path) -> PresentSegments:
    """
    Return the segments of a directory as the next opening for writing leaves them.

    A reader during an exchange gets the old segments or the new ones: no record twice, and no hole.
    Files are not read to their end here.
    """
    for _attempt in range(_ATTEMPTS):
        try:
            return _present(filesystem, directory)
        except FileNotFoundError:
            # The log's writer has renamed a file after the listing.
            continue
    return _present(filesystem, directory)


def _present(filesystem: FileSystem, directory: Path) -> PresentSegments:
    listing = _list(filesystem, directory)
    live = listing.live
    if not listing.swaps:
        return PresentSegments(sorted(live))
    marked, rest = _marked(filesystem, directory, listing)
    # While the old segment exists, readers use it instead of the unfinished exchange of a broker.
    waiting = [base for base in rest if base not in live]
    swapped: set[int] = set()
    for exchange in marked:
        swapped.update(exchange.swaps)
        live = live - exchange.leaving
    for exchange in _judged(filesystem, directory, live, waiting):
        if exchange.refusal is None:
            swapped.update(exchange.swaps)
            live = live - exchange.leaving
    return PresentSegments(sorted(live | swapped), frozenset(swapped))


def judge_exchanges(filesystem: FileSystem, directory: Path) -> list[Exchange]:
    """Return the judgement of the `.swap` files of a directory; every byte of them is read."""
    listing = _list(filesystem, directory)
    marked, rest = _marked(filesystem, directory, listing)
    found: list[Exchange] = []
    live = listing.live
    for exchange in marked:
        damaged = [
            scan
            for scan in (_scan(filesystem, directory, base) for base in exchange.swaps)
            if scan.damage is not None
        ]
        if damaged:
            rest = sorted({*rest, *exchange.swaps})
            continue
        found.append(exchange)
        live = live - exchange.leaving
    return [*found, *_judged(filesystem, directory, live, rest)]


def _list(filesystem: FileSystem, directory: Path) -> _Listing:
    names = filesystem.list(directory)
    live = _log_bases(names, FileState.LIVE)
    swaps = _log_bases(names, FileState.SWAP)
    if not swaps:
        return _Listing(live, [], [])
    cleaned = [
        parsed.base_offset
        for parsed in map(try_parse_segment_file, names)
        if parsed is not None and parsed.state is FileState.CLEANED
    ]
    first_cleaned = min(cleaned, default=None)
    counting = [base for base in swaps if first_cleaned is None or base < first_cleaned]
    return _Listing(live, sorted(counting), sorted(_log_bases(names, FileState.COVERED)))


def _log_bases(names: list[str], state: FileState) -> set[int]:
    # In a log of many segments most names do not end with this suffix.
    suffix = FileKind.LOG.value + state.value
    parsed = (try_parse_segment_file(name) for name in names if name.endswith(suffix))
    return {name.base_offset for name in parsed if name is not None}


# --------------------------------------------------------------------------------------- marked


def _marked(
    filesystem: FileSystem, directory: Path, listing: _Listing
) -> tuple[list[Exchange], list[int]]:
    """Return the exchanges that markers confirm, and the swaps that no marker names."""
    found: list[Exchange] = []
    rest = list(listing.swaps)
    for base in listing.marks:
        mark = read_replaced_marker(filesystem, replaced_marker_path(directory, base))
        if mark is None or not _counts(filesystem, directory, listing, mark, rest):
            continue
        fresh = {each.base_offset for each in mark.fresh}
        leaving = {each.base_offset for each in mark.leaving} & listing.live
        found.append(Exchange(sorted(fresh & set(rest)), leaving - fresh, is_marked=True))
        rest = [each for each in rest if each not in fresh]
    return found, rest


def _counts(
    filesystem: FileSystem,
    directory: Path,
    listing: _Listing,
    mark: ReplacedMarker,
    swaps: Sequence[int],
) -> bool:
    """Return whether all new files of a marker exist, and no old files but those that it names."""
    fresh = {each.base_offset for each in mark.fresh}
    if not fresh & set(swaps):
        return False
    try:
        for each in mark.fresh:
            state = FileState.SWAP if each.base_offset in swaps else FileState.LIVE
            files = SegmentFiles(directory, each.base_offset, state)
            if identity_of(filesystem, files) != each:
                return False
        named = set(mark.leaving)
        renamed = fresh - set(swaps)
        old = {each.base_offset for each in mark.leaving} & listing.live
        return all(
            identity_of(filesystem, SegmentFiles(directory, base)) in named
            for base in old - renamed
        )
    except FileNotFoundError:
        return False


# ------------------------------------------------------------------------------------- unmarked


class _Scan(NamedTuple):
    """
    Result of a scan of a file of batches.

    Attributes:
        next_offset: offset after its last whole batch.
        damage: description of the damage, None if the file is whole.
        is_foreign: whether it has whole batches with offsets that do not belong in the file.
    """

    next_offset: int
    damage: str | None
    is_foreign: bool


def _scan(
    filesystem: FileSystem, directory: Path, base: int, state: FileState = FileState.SWAP
) -> _Scan:
    path = SegmentFiles(directory, base, state).log
    data, size = _data(filesystem, path)
    scan = scan_segment(data, path, base_offset=base, interval=_NO_INTERVAL)
    damage = None
    if scan.corrupt_ranges:
        first = scan.corrupt_ranges[0]
        damage = f"is damaged at position {first.position} ({first.reason})"
    elif scan.whole_end < size:
        damage = f"ends at position {scan.whole_end} ({status_name(scan.tail_status)})"
    is_foreign = any(corrupt_range.reason in _FOREIGN for corrupt_range in scan.corrupt_ranges)
    return _Scan(scan.next_offset, damage, is_foreign)


def _data(filesystem: FileSystem, path: Path) -> tuple[memoryview, int]:
    """Return the bytes of a file without the hole at its end, and its size."""
    handle = filesystem.open(path)
    try:
        size = handle.size()
        end = end_of_data(handle, size)
        return handle.map(end) if end else memoryview(b""), size
    finally:
        handle.close()


class _Live:
    """
    The live segments of a directory that no judged exchange replaces.

    Attributes:
        bases: their base offsets, ascending.
    """

    def __init__(self, filesystem: FileSystem, directory: Path, bases: Iterable[int]) -> None:
        self.bases = sorted(bases)
        self._filesystem = filesystem
        self._directory = directory
        self._scans: dict[int, _Scan] = {}

    def end_of(self, base: int) -> int:
        """Return the offset after the last whole batch of a segment."""
        return self._scan(base).next_offset

    def is_foreign(self, base: int) -> bool:
        """Return whether a segment has whole batches with offsets that do not belong in it."""
        return self._scan(base).is_foreign

    def _scan(self, base: int) -> _Scan:
        if base not in self._scans:
            self._scans[base] = _scan(self._filesystem, self._directory, base, FileState.LIVE)
        return self._scans[base]

    def replace(self, leaving: set[int], swaps: Iterable[tuple[int, int]]) -> None:
        """Replace segments by swaps, given as pairs of base and end."""
        self._scans.update((base, _Scan(end, None, is_foreign=False)) for base, end in swaps)
        self.bases = sorted({*self.bases, *(base for base, _end in swaps)} - leaving)

    def within(self, first: int, end: int) -> list[int]:
        """Return the bases from `first` to below `end`, with `first` in any case."""
        stop = bisect_left(self.bases, max(end, first + 1))
        return self.bases[bisect_left(self.bases, first) : stop]

    def after(self, base: int) -> int | None:
        """Return the lowest base above another one."""
        return next((each for each in self.bases if each > base), None)

    def before(self, base: int) -> int | None:
        """Return the highest base below another one."""
        slot = bisect_left(self.bases, base)
        return self.bases[slot - 1] if slot else None


def _judged(
    filesystem: FileSystem, directory: Path, bases: Iterable[int], swaps: Sequence[int]
) -> list[Exchange]:
    """Return the exchanges of swaps without a marker."""
    if not swaps:
        return []
    found: list[Exchange] = []
    whole: list[tuple[int, int]] = []
    for base in swaps:
        scan = _scan(filesystem, directory, base)
        if scan.damage is not None:
            found.append(Exchange([base], refusal=f"it {scan.damage}"))
        else:
            whole.append((base, scan.next_offset))
    live = _Live(filesystem, directory, bases)
    while whole:
        count, old = _first_group(whole, live)
        group = whole[:count]
        del whole[:count]
        group_bases = [base for base, _end in group]
        refusal = _refusal(filesystem, directory, group, old, live)
        leaving = set(old) - set(group_bases) if refusal is None else set()
        if refusal is None:
            live.replace(leaving, group)
        found.append(Exchange(group_bases, leaving, refusal))
    return found


def _first_group(swaps: Sequence[tuple[int, int]], live: _Live) -> tuple[int, list[int]]:
    """Return how many of the first swaps replace the same old segments, and these segments."""
    first, end = swaps[0]
    count = 1
    while True:
        old = live.within(first, end)
        old_end = max([end, *map(live.end_of, old)])
        if count == len(swaps) or swaps[count][0] >= old_end:
            return count, old
        end = max(end, swaps[count][1])
        count += 1


def _refusal(
    filesystem: FileSystem,
    directory: Path,
    group: Sequence[tuple[int, int]],
    old: Sequence[int],
    live: _Live,
) -> str | None:
    """Return the reason why swaps do not replace the old segments, None if they do."""
    first, end = group[0][0], group[-1][1]
    for (_base, before_end), (base, _end) in pairwise(group):
        if before_end > base:
            return f"it overlaps the one at offset {base}"
    before = live.before(first)
    if before is not None and live.end_of(before) > first:
        return f"it is within the segment at offset {before}"
    if not old:
        return None
    if (reason := _confusion(old, live)) is not None:
        return reason
    if first in old:
        old_end = max(map(live.end_of, old))
        following = live.after(old[-1])
        if end > old_end and (following is None or end > following):
            return f"it goes to offset {end}, beyond the end of what it replaces, {old_end}"
        if end < old_end:
            return f"it ends at offset {end}, before the end of what it replaces, {old_end}"
    for base in old:
        missing = _foreign_batch(
            filesystem, directory, [swap for swap, _end in group], base, live.end_of(base)
        )
        if missing is not None:
            return f"its batch that ends at offset {missing} is not in the segment at {base}"
    return None


def _confusion(old: Sequence[int], live: _Live) -> str | None:
    """Return which old segment may have the name of another one, None if no segment has."""
    for base, next_base in pairwise([*old, MAX_OFFSET]):
        if live.is_foreign(base):
            return f"the segment at {base} that it replaces has batches with offsets of another"
        if live.end_of(base) > next_base:
            return f"the segment at {base} that it replaces reaches into the one at {next_base}"
    return None


def _foreign_batch(
    filesystem: FileSystem, directory: Path, swaps: Sequence[int], old: int, end: int
) -> int | None:
    """Return the last offset of a batch that an old segment should have and lacks, or None."""
    old_rows, is_whole = _coordinates(filesystem, directory, old, FileState.LIVE)
    if not is_whole:
        # The batches of a damaged segment are not all known.
        return None
    for swap in swaps:
        rows, _is_whole = _coordinates(filesystem, directory, swap, FileState.SWAP)
        inside = rows[(rows[:, _LAST] >= old) & (rows[:, _LAST] < end)]
        slots = np.searchsorted(old_rows[:, _LAST], inside[:, _LAST])
        for row, slot in zip(inside, slots.tolist(), strict=True):
            if not _is_same(row, old_rows[slot]):
                return int(row[_LAST])
    return None


_LAST: Final = 1
_MAGIC: Final = 2


def _is_same(row: npt.NDArray[np.int64], other: npt.NDArray[np.int64]) -> bool:
    """Return whether a batch may be the rest of another one after a cleaning."""
    if row[_MAGIC] < MAGIC_V2:
        # The rest of a wrapper ends at any of its offsets; the caller found the wrapper.
        return bool(other[_MAGIC] < MAGIC_V2)
    return bool(np.array_equal(row, other))


def _coordinates(
    filesystem: FileSystem, directory: Path, base: int, state: FileState
) -> tuple[npt.NDArray[np.int64], bool]:
    """Return the fields of each batch that a cleaning keeps, and whether the file is whole."""
    data, _ = _data(filesystem, SegmentFiles(directory, base, state).log)
    columns = BatchColumns(_SCANNED_BATCHES)
    parts: list[npt.NDArray[np.int64]] = [np.empty((0, 7), dtype=np.int64)]
    damage: list[WalkDamage] = []
    for walked in walk_source(
        MappedSource(data),
        WalkRange(0, len(data), base, MAX_OFFSET - 1),
        columns,
        on_damage=damage.append,
    ):
        fields = (
            columns.base_offset,
            columns.last_offset,
            columns.magic,
            columns.producer_id,
            columns.producer_epoch,
            columns.base_sequence,
            columns.leader_epoch,
        )
        parts.append(np.stack([each[: walked.count].astype(np.int64) for each in fields], axis=1))
    return np.concatenate(parts), not damage
