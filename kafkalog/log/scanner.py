"""Scan of the bytes of a segment: whole batches, damage, and the entries of its indexes.

Used by recovery (with CRC), by the rebuild of an index, and by look-ups that found a contradiction.
Works on a memoryview of the segment, or on windows of its file if that is not mapped; changes
nothing.

Thread-safety: functions on the data of the caller, without a lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path

from kafkalog._core.batch import BatchColumns
from kafkalog._core.batch_totals import BatchTotals
from kafkalog._core.index import IndexEntrySelector
from kafkalog._core.status import STATUS_CODES
from kafkalog.files.zeros import Holes
from kafkalog.log.batch_walk import (
    CrcCheck,
    OnDamage,
    WalkDamage,
    WalkedBatches,
    WalkRange,
    walk_source,
)
from kafkalog.log.byte_source import ByteSource, MappedSource
from kafkalog.log.corrupt_ranges import CorruptRange, find_resume
from kafkalog.log.judging import (
    OVERFLOW_MAX,
    RELATIVE_OFFSET_MAX,
    LogEndFacts,
    fits_after,
    has_odd_end,
    is_whole_without_offset,
    judge_batches,
    may_begin_segment,
    offsets_inside,
)
from kafkalog.log.segment_file import SegmentFile

__all__ = ["RELATIVE_OFFSET_MAX", "SegmentScan", "largest_timestamp", "scan_file", "scan_segment"]

OK = STATUS_CODES["OK"]
OFFSET_ORDER = STATUS_CODES["OFFSET_ORDER"]
BASE_OFFSET = STATUS_CODES["BASE_OFFSET"]

CHUNK_BATCHES = 4096
# Usually the last batches of a segment, if only the largest timestamp is needed.
HEADER_BATCHES = 64
# One below the largest number of 63 bits: the next offset is valid, too.
LARGEST_OFFSET = 2**63 - 2
NO_EPOCH = -1


@dataclass(slots=True)
class SegmentScan:
    """
    Result of a scan.

    Attributes:
        whole_end: end of the last whole batch.
        next_offset: one above the last offset of the last whole batch that is believed.
        free_offset: smallest offset that no batch of the segment can have, even a batch with a
            wrong offset.
        max_timestamp: largest batch timestamp, -1 for none.
        offset_of_max_timestamp: last offset of the earliest batch that has it.
        first_max_timestamp: timestamp of the first batch, the start for time-based rolling.
        batch_count, record_count: whole batches, and records by their headers; records inside
            wrappers of old formats are not counted, which would need decompression.
        has_producers: whether a batch has a producer id.
        has_markers: whether a batch ends a transaction.
        leader_epochs: each epoch that is above all before it, with the base offset of its batch;
            NO_EPOCH for a message of an old format, which has none and restarts the series.
        corrupt_ranges: corrupt ranges with whole batches after or in them.
        tail_status: why the scan ended: OK at the end of the data, else the failure there.
        offset_entries, time_entries: the index files of the segment, as bytes.
    """

    whole_end: int = 0
    next_offset: int = 0
    free_offset: int = 0
    max_timestamp: int = -1
    offset_of_max_timestamp: int = -1
    first_max_timestamp: int = -1
    batch_count: int = 0
    record_count: int = 0
    has_producers: bool = False
    has_markers: bool = False
    leader_epochs: Sequence[tuple[int, int]] = ()
    corrupt_ranges: Sequence[CorruptRange] = ()
    tail_status: int = OK
    offset_entries: bytes = b""
    time_entries: bytes = b""

    @property
    def ends_in_corrupt_range(self) -> bool:
        """True if the last whole batch is not believed."""
        return bool(self.corrupt_ranges) and self.corrupt_ranges[-1].end_position >= self.whole_end


def scan_segment(
    data: memoryview,
    path: Path,
    *,
    base_offset: int,
    interval: int,
    offset_max: int | None = None,
    end_facts: LogEndFacts | None = None,
    find_holes: Callable[[], Holes] = tuple,
) -> SegmentScan:
    """
    Scan `data`, the bytes of a segment, around every damage to its end.

    Args:
        data: all bytes of the segment.
        path: its file, for the corrupt ranges.
        base_offset: base offset of the segment.
        interval: `index.interval.bytes`.
        offset_max: largest offset that may be in the segment; any if None.
        end_facts: facts about the end of the log, for its last segment.
        find_holes: returns large holes of the file, which a search after damage skips.
    """
    limit = _limit(base_offset, offset_max)
    scanner = _Scanner(base_offset, interval, limit, end_facts)
    if scanner.run_in_order(
        MappedSource(data), lambda damage: _is_tail(data, damage, base_offset, limit, find_holes)
    ):
        return scanner.finish()
    judgement = judge_batches(
        data,
        path,
        first_offset=base_offset,
        offset_max=limit,
        following_offset=0 if offset_max is None else offset_max + 1,
        end_facts=end_facts,
        questioned=scanner.questioned,
        holes=find_holes(),
    )
    scanner.run_around(data, judgement.corrupt_ranges, judgement.whole_end)
    return replace(
        scanner.finish(),
        corrupt_ranges=judgement.corrupt_ranges,
        whole_end=judgement.whole_end,
        next_offset=judgement.next_offset,
        free_offset=judgement.free_offset,
        tail_status=judgement.tail_status,
    )


def _limit(base_offset: int, offset_max: int | None) -> int:
    """Return the largest offset that may be in a segment."""
    return min(LARGEST_OFFSET if offset_max is None else offset_max, base_offset + OVERFLOW_MAX)


def scan_file(
    file: SegmentFile,
    *,
    base_offset: int,
    interval: int,
    offset_max: int | None = None,
    end_facts: LogEndFacts | None = None,
) -> SegmentScan:
    """
    Scan a segment in its file: as `scan_segment`, and a file without damage window by window.

    Args: as of `scan_segment`.
    """
    if not file.maps:
        scanner = _Scanner(base_offset, interval, _limit(base_offset, offset_max), end_facts)
        if scanner.run_in_order(file.source(file.size_bytes), lambda _damage: False):
            return scanner.finish()
    # The extent and kind of damage can be found only with all bytes.
    return scan_segment(
        file.whole(),
        file.path,
        base_offset=base_offset,
        interval=interval,
        offset_max=offset_max,
        end_facts=end_facts,
        find_holes=file.holes,
    )


def _is_tail(
    data: memoryview,
    damage: WalkDamage,
    base_offset: int,
    limit: int,
    find_holes: Callable[[], Holes],
) -> bool:
    """Return whether a walk ended at the torn end of a segment: nothing whole follows it."""
    if damage.status in (OFFSET_ORDER, BASE_OFFSET):
        return False
    position, end = damage.position, len(data)
    resume, _ = find_resume(data, position, end, base_offset, limit, find_holes())
    return resume == end and not is_whole_without_offset(data, position)


class _Scanner:
    """
    Scanner of a segment, which collects the facts of its batches.

    Args:
        base_offset: base offset of the segment.
        interval: `index.interval.bytes`.
        limit: largest offset that may be in the segment.
        end_facts: facts about the end of the log, for its last segment.

    Attributes:
        questioned: position of the last batch, if it is a wrapper that does not fit.
    """

    def __init__(
        self, base_offset: int, interval: int, limit: int, end_facts: LogEndFacts | None
    ) -> None:
        self._base_offset = base_offset
        self._interval = interval
        self._limit = limit
        self._end_facts = end_facts
        self._columns = BatchColumns(CHUNK_BATCHES)
        self.questioned: tuple[int, ...] = ()
        self._begin()

    def _begin(self) -> None:
        self._entries = _Entries(self._base_offset, self._interval)
        self._tally = BatchTotals()
        self._next_offset, self._free_offset = self._base_offset, 0
        self._whole_end, self._tail_status = 0, OK
        # In the last segment of the log: base offset of the last batch, and end of those before.
        self._last_base = self._before_last = self._base_offset
        # Position and size of the last batch and of the one before it, for those that are wrappers.
        self._last_wrapper: tuple[int, int] | None = None
        self._wrapper_before: tuple[int, int] | None = None

    def run_in_order(self, source: ByteSource, is_tail: Callable[[WalkDamage], bool]) -> bool:
        """
        Scan bytes up to the first disorder.

        Args:
            source: all bytes of the segment.
            is_tail: returns whether a walk ended at the end of the segment.

        Returns:
            False if the segment has to be judged.
        """
        is_odd = False

        def stop(damage: WalkDamage) -> None:
            nonlocal is_odd
            self._tail_status = damage.status
            is_odd = not is_tail(damage)

        self._walk(source, 0, source.size_bytes, stop)
        if is_odd or self._end_facts is None:
            return not is_odd
        return (
            not self._has_odd_end(self._end_facts)
            and self._last_wrapper_fits(source, self._end_facts.begin_offset)
            and self._hole_is_real(source)
        )

    def _hole_is_real(self, source: ByteSource) -> bool:
        """Return whether no wrapper with a wrong offset hides a hole before the last batch."""
        if self._wrapper_before is None or self._last_base <= self._before_last:
            return True
        start, size = self._wrapper_before
        inside = offsets_inside(source.window(start, size), 0)
        if inside is None or inside[1] == self._before_last - 1:
            return True
        self.questioned = (start,)
        return False

    def _last_wrapper_fits(self, source: ByteSource, begin_offset: int) -> bool:
        """Return whether the last batch, if it is a wrapper, fits after the batch before it."""
        if self._last_wrapper is None:
            return True
        start, size = self._last_wrapper
        wrapper = source.window(start, size)
        end_before = self._before_last if start else begin_offset
        inside = None if start else offsets_inside(wrapper, 0)
        begins = inside is None or may_begin_segment(*inside, self._base_offset, end_before)
        if begins and fits_after(wrapper, 0, end_before):
            return True
        self.questioned = (start,)
        return False

    def run_around(
        self, data: memoryview, corrupt_ranges: Sequence[CorruptRange], whole_end: int
    ) -> None:
        """Scan the bytes around the corrupt ranges."""
        self._begin()
        source, position = MappedSource(data), 0
        for corrupt_range in corrupt_ranges:
            self._walk(source, position, corrupt_range.position, _was_judged)
            position = corrupt_range.end_position
        self._walk(source, position, whole_end, _was_judged)

    def _walk(self, source: ByteSource, position: int, end: int, on_damage: OnDamage) -> None:
        walk_range = WalkRange(position, end, self._next_offset, self._limit)
        for walked in walk_source(source, walk_range, self._columns, on_damage=on_damage):
            self._collect(walked)

    def _collect(self, walked: WalkedBatches) -> None:
        """Add the batches that a walk has found."""
        count, columns = walked.count, self._columns
        if walked.origin:
            columns.position[:count] += walked.origin
        self._tally.add(columns, count)
        self._entries.select(columns, walked)
        if self._end_facts is not None:
            self._record_last_batch(walked)
        self._next_offset = self._free_offset = walked.next_offset
        self._whole_end = walked.end_position

    def _record_last_batch(self, walked: WalkedBatches) -> None:
        columns, row = self._columns, walked.count - 1
        self._last_base = int(columns.base_offset[row])
        self._before_last = int(columns.last_offset[row - 1]) + 1 if row else walked.expected
        self._wrapper_before = self._wrapper_at(row - 1) if row else self._last_wrapper
        self._last_wrapper = self._wrapper_at(row)

    def _wrapper_at(self, row: int) -> tuple[int, int] | None:
        """Return position and size of a batch, if it is a wrapper."""
        columns = self._columns
        is_wrapper = columns.record_count[row] < 0
        return (int(columns.position[row]), int(columns.size_bytes[row])) if is_wrapper else None

    def _has_odd_end(self, end_facts: LogEndFacts) -> bool:
        """Return whether the known end of the log may contradict the last batch."""
        return has_odd_end(
            end_facts,
            base_offset=self._base_offset,
            expected=self._before_last,
            last_base=self._last_base,
            next_offset=self._next_offset,
        )

    def finish(self) -> SegmentScan:
        """Return the result."""
        offset_entries, time_entries = self._entries.finish()
        max_timestamp, offset_of_max_timestamp = self._entries.latest()
        tally = self._tally
        return SegmentScan(
            whole_end=self._whole_end,
            next_offset=self._next_offset,
            free_offset=self._free_offset,
            max_timestamp=max_timestamp,
            offset_of_max_timestamp=offset_of_max_timestamp,
            first_max_timestamp=tally.first_max_timestamp,
            batch_count=tally.batch_count,
            record_count=tally.record_count,
            has_producers=tally.has_producers,
            has_markers=tally.has_markers,
            leader_epochs=tally.leader_epochs,
            tail_status=self._tail_status,
            offset_entries=offset_entries,
            time_entries=time_entries,
        )


def _was_judged(damage: WalkDamage) -> None:
    raise AssertionError(f"position {damage.position} was judged to be whole")


def largest_timestamp(file: SegmentFile, position: int, next_offset: int) -> tuple[int, int] | None:
    """
    Return the largest timestamp of the batches from a position on, and the offset that has it.

    The offset is the last one of the earliest such batch; (-1, -1) without batches. Headers are
    read, no CRC is checked; None if they are not a run of whole batches.
    """
    largest, damage = (-1, -1), list[WalkDamage]()
    columns = BatchColumns(HEADER_BATCHES)
    for walked in walk_source(
        file.source(file.size_bytes),
        WalkRange(position, file.size_bytes, next_offset, LARGEST_OFFSET),
        columns,
        check_crc=CrcCheck.NEVER,
        on_damage=damage.append,
    ):
        row = int(columns.max_timestamp[: walked.count].argmax())
        latest = int(columns.max_timestamp[row]), int(columns.last_offset[row])
        largest = max(largest, latest, key=itemgetter(0))
    return None if damage else largest


class _Entries:
    """Collects the index entries of a scan, chunk by chunk."""

    def __init__(self, base_offset: int, interval: int) -> None:
        self._selector = IndexEntrySelector(base_offset, interval)
        self._offset_max = base_offset + RELATIVE_OFFSET_MAX
        self._offsets = bytearray()
        self._times = bytearray()
        # Largest timestamp of the batches that no entry can address, and the offset that has it.
        self._beyond = (-1, -1)

    def select(self, columns: BatchColumns, walked: WalkedBatches) -> None:
        # A batch that does not fit an entry is found by a walk from the entry before.
        all_rows = count = walked.count
        if walked.next_offset > self._offset_max + 1:
            count = int(columns.last_offset[:count].searchsorted(self._offset_max, side="right"))
        if walked.end_position > RELATIVE_OFFSET_MAX:
            count = int(columns.position[:count].searchsorted(RELATIVE_OFFSET_MAX, side="right"))
        if count < all_rows:
            row = count + int(columns.max_timestamp[count:all_rows].argmax())
            latest = int(columns.max_timestamp[row]), int(columns.last_offset[row])
            self._beyond = max(self._beyond, latest, key=itemgetter(0))
        offsets, times = self._selector.select(
            columns.position, columns.last_offset, columns.max_timestamp, count
        )
        self._offsets += offsets
        self._times += times

    def finish(self) -> tuple[bytes, bytes]:
        """Return the entries of both indexes."""
        times = bytes(self._times) + self._selector.final_time_entry()
        return bytes(self._offsets), times

    def latest(self) -> tuple[int, int]:
        """Return the largest timestamp, and the last offset of the earliest batch that has it."""
        selector, beyond = self._selector, self._beyond
        if beyond[0] > selector.max_timestamp:
            return beyond
        return selector.max_timestamp, selector.offset_of_max_timestamp
