"""Dry run of a cleaning: both passes over a log, without writing.

The first pass fills the map as a cleaning would, within the same memory. The second pass uses the
same filter for every batch, and counts the bytes that it returns.

Thread-safety: none; one caller at a time.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from kafkalog._core.offset_map import OffsetMap
from kafkalog.cleaner.cleaning_result import CleaningStatistics
from kafkalog.cleaner.decoded_chunks import DecodedChunk
from kafkalog.cleaner.grouping import parts_for
from kafkalog.cleaner.keys import KeyCollector
from kafkalog.cleaner.log_to_clean import LogToClean
from kafkalog.cleaner.offset_map_buffer import OffsetMapBuffer
from kafkalog.cleaner.record_filter import RecordFilter, RetentionMask
from kafkalog.cleaner.selection import CleanableRange
from kafkalog.layout import CONTROL_MASK, MAGIC_V2

__all__ = [
    "FirstPass",
    "SecondPass",
    "collect_keys",
    "estimate_keys",
    "first_pass",
    "second_pass",
]

# If a log has too many keys, one of this many parts is counted to estimate their number: enough
# keys for a sample, and few enough to stay in the cache.
_SAMPLED_PARTS: Final = 64
_SAMPLED_KEYS: Final = 64

_PART_COUNT_MAX: Final = 2**32 - 1

# Called with the number of bytes that were read.
OnBytes = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class FirstPass:
    """
    Result of a first pass.

    Attributes:
        end_offset: end of the cleaning.
        parts: ranges of hashes, as (number, count), each of which takes a pass; normally one.
        usable: number of keys that fit the map.
        key_count: different keys of the whole dirty part.
        is_estimate: whether `key_count` was estimated from a sample.
        records_read, bytes_read: of one pass over the keys.
    """

    end_offset: int
    parts: tuple[tuple[int, int], ...]
    usable: int
    key_count: int
    is_estimate: bool
    records_read: int
    bytes_read: int
    _target: LogToClean
    _first_dirty: int
    _map_buffer: OffsetMapBuffer
    _map: OffsetMap | None

    def empty_map(self) -> OffsetMap:
        """Return a map without keys: every key belongs to another part."""
        offset_map = self._map_buffer.new_map(part_count=_PART_COUNT_MAX)
        offset_map.advance_to(self.end_offset - 1)
        return offset_map

    def maps(self) -> Iterator[OffsetMap]:
        """Yield the map of each part; it is valid until the next one is made."""
        if self._map is not None:
            yield self._map
            return
        for part, part_count in self.parts:
            offset_map = self._map_buffer.new_map(part=part, part_count=part_count)
            collect_keys(self._target, self._first_dirty, self.end_offset, offset_map)
            offset_map.advance_to(self.end_offset - 1)
            yield offset_map


def first_pass(
    target: LogToClean,
    first_dirty: int,
    end_offset: int,
    map_buffer: OffsetMapBuffer,
    on_bytes: OnBytes | None = None,
) -> FirstPass:
    """
    Read the keys from one offset up to another, the base of a segment.

    If they do not fit the map, the cleaning ends after the last key that does; if that is within
    the first segment, it cleans this segment in several parts.

    Raises:
        CorruptRecordError: a batch is damaged.
        LogStorageError: the disk failed.
    """
    offset_map = map_buffer.new_map()
    records, size, is_whole = collect_keys(target, first_dirty, end_offset, offset_map, on_bytes)
    usable, key_count = offset_map.usable, len(offset_map)
    parts: tuple[tuple[int, int], ...] = ((0, 1),)
    if is_whole:
        offset_map.advance_to(end_offset - 1)
    else:
        reached = offset_map.latest_offset + 1
        key_count = estimate_keys(target, first_dirty, end_offset, map_buffer)
        slot = target.slot_of(first_dirty)
        segment, following = target.facts.segments[slot : slot + 2]
        if reached < following.base_offset:
            reached = following.base_offset
            guess = max(usable + 1, usable * segment.size_bytes // max(1, size))
            parts = _parts(
                target, first_dirty, reached, map_buffer, max(2, parts_for(guess, usable))
            )
        else:
            # The sample used the memory, so the keys are read again.
            offset_map = map_buffer.new_map()
            collect_keys(target, first_dirty, end_offset, offset_map)
        end_offset = reached
    return FirstPass(
        end_offset,
        parts,
        usable,
        key_count,
        not is_whole,
        records,
        size,
        target,
        first_dirty,
        map_buffer,
        offset_map if len(parts) == 1 else None,
    )


def _parts(
    target: LogToClean,
    first_dirty: int,
    end_offset: int,
    map_buffer: OffsetMapBuffer,
    part_count: int,
) -> tuple[tuple[int, int], ...]:
    """Return parts that fit; a part that does not fit is divided."""
    waiting = deque((part, part_count) for part in range(part_count))
    parts = []
    while waiting:
        part, count = waiting.popleft()
        offset_map = map_buffer.new_map(part=part, part_count=count)
        if collect_keys(target, first_dirty, end_offset, offset_map)[2]:
            parts.append((part, count))
        else:
            waiting.extendleft([(2 * part + 1, 2 * count), (2 * part, 2 * count)])
    return tuple(parts)


def estimate_keys(
    target: LogToClean, first_dirty: int, end_offset: int, map_buffer: OffsetMapBuffer
) -> int:
    """Estimate the number of different keys: the keys of one part times the number of parts."""
    usable = map_buffer.new_map().usable
    part_count = max(2, min(_SAMPLED_PARTS, usable // _SAMPLED_KEYS))
    while True:
        offset_map = map_buffer.new_map(part_count=part_count)
        _, _, is_whole = collect_keys(target, first_dirty, end_offset, offset_map)
        if is_whole:
            return max(usable + 1, len(offset_map) * part_count)
        part_count *= 4


def collect_keys(
    target: LogToClean,
    first_dirty: int,
    end_offset: int,
    offset_map: OffsetMap,
    on_bytes: OnBytes | None = None,
) -> tuple[int, int, bool]:
    """
    Add the keys between two offsets to a map.

    Returns:
        Records and bytes read, and whether all keys fit.
    """
    collector = KeyCollector(
        offset_map,
        target.tracker(first_dirty, end_offset),
        limit_bytes=target.config.decompressed_max_bytes,
    )
    size = 0
    for slot in target.slots_between(first_dirty, end_offset):
        for run in target.runs(slot, first_dirty, end_offset):
            size += len(run.data)
            if not collector.add(run, start_offset=first_dirty):
                return collector.records_read, size, False
            if on_bytes is not None:
                on_bytes(len(run.data))
    return collector.records_read, size, True


@dataclass(slots=True)
class SecondPass:
    """
    Counts of a second pass.

    Attributes:
        statistics: counts of all segments.
        segments: by slot: records before, bytes after, records after.
        tombstones, markers: number that stays, of format v2, by delete horizon.
        old_tombstones: number that stays, by slot.
    """

    statistics: CleaningStatistics
    segments: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    tombstones: Counter[int] = field(default_factory=Counter)
    markers: Counter[int] = field(default_factory=Counter)
    old_tombstones: Counter[int] = field(default_factory=Counter)

    def add_difference(self, part: SecondPass, alone: SecondPass) -> None:
        """Add the changes of one part of the keys, without changes that need no keys (`alone`)."""
        self.statistics.add_difference(part.statistics, alone.statistics)
        for slot, before in self.segments.items():
            _, size, count = part.segments[slot]
            _, size_alone, count_alone = alone.segments[slot]
            self.segments[slot] = (
                before[0],
                before[1] + size - size_alone,
                before[2] + count - count_alone,
            )
        for name in ("tombstones", "markers", "old_tombstones"):
            counter: Counter[int] = getattr(self, name)
            counter.update(getattr(part, name))
            counter.subtract(getattr(alone, name))


def second_pass(
    target: LogToClean, first: FirstPass, span: CleanableRange, on_bytes: OnBytes | None = None
) -> SecondPass:
    """
    Filter every segment up to the end of the first pass, and count.

    With several parts of the keys, each part is filtered separately. The sums of records are exact
    then; bytes and horizons are approximate, since a real cleaning rewrites a batch that loses
    records of two parts in two passes.

    Raises:
        CorruptRecordError: a batch is damaged.
        LogStorageError: the disk failed.
    """
    found = [_filtered(target, first, each, span, on_bytes) for each in first.maps()]
    if len(found) == 1:
        return found[0]
    nothing = first.empty_map()
    alone = _filtered(target, first, nothing, span, None)
    summed = _filtered(target, first, nothing, span, None)
    for part in found:
        summed.add_difference(part, alone)
    return summed


def _filtered(
    target: LogToClean,
    first: FirstPass,
    offset_map: OffsetMap,
    span: CleanableRange,
    on_bytes: OnBytes | None,
) -> SecondPass:
    boundary, start = target.boundary(span), target.facts.segments[0].base_offset
    counts = _RetentionCounts()
    record_filter = RecordFilter(
        offset_map,
        target.rules(boundary),
        target.tracker(start, boundary),
        limit_bytes=target.config.decompressed_max_bytes,
        on_chunk=counts.add,
    )
    statistics = record_filter.statistics
    segments: dict[int, tuple[int, int, int]] = {}
    old_tombstones = Counter[int]()
    for slot in target.slots_between(start, first.end_offset):
        before = (statistics.records_read, statistics.bytes_written, statistics.records_kept)
        old_before = counts.old_tombstones
        stay = target.old_tombstones_stay(slot, span.first_dirty)
        for run in target.runs(slot):
            record_filter.filter(run, old_tombstones_stay=stay)
            if on_bytes is not None:
                on_bytes(len(run.data))
        after = (statistics.records_read, statistics.bytes_written, statistics.records_kept)
        records, written, kept = (end - begin for begin, end in zip(before, after, strict=True))
        segments[slot] = (records, written, kept)
        if old := counts.old_tombstones - old_before:
            old_tombstones[slot] = old
    return SecondPass(statistics, segments, counts.tombstones, counts.markers, old_tombstones)


class _RetentionCounts:
    """
    Counts of tombstones and markers that stay, by the end of their retention.

    Attributes:
        tombstones: of batches of format v2, the count of tombstones by delete horizon.
        markers: control records that stay only until their delete horizon, by that.
        old_tombstones: tombstones of the old formats, which have no horizon.
    """

    def __init__(self) -> None:
        self.tombstones: Counter[int] = Counter()
        self.markers: Counter[int] = Counter()
        self.old_tombstones = 0

    def add(self, chunk: DecodedChunk, mask: RetentionMask) -> None:
        """Count what stays of a chunk."""
        is_control = chunk.has_bits(CONTROL_MASK)
        is_tombstone = mask.keep & (chunk.columns.value_size < 0)
        counts = np.diff(chunk.first_rows)
        if not is_tombstone.any() and not is_control.any():
            return
        tombstones = chunk.counts(is_tombstone & ~np.repeat(is_control, counts))
        markers = chunk.counts(mask.keep & np.repeat(is_control, counts))
        is_old = chunk.magic < MAGIC_V2
        self.old_tombstones += int(tombstones[is_old].sum())
        waiting = ~is_old & (mask.has_horizon != 0)
        for counter, found in ((self.tombstones, tombstones), (self.markers, markers)):
            for batch in np.flatnonzero(waiting & (found > 0)).tolist():
                counter[int(mask.horizons[batch])] += int(found[batch])
