"""One pass over the bytes of a segment: what is whole, what is damaged, what its indexes must say.

Used by recovery (with CRC), by the rebuild of an index, and by look-ups that met something odd.
Works on a memoryview of the segment, or on windows of its file where that is not mapped; changes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path

from kafkalog._core.batch import BatchColumns, scan_batches
from kafkalog._core.batch_totals import BatchTotals
from kafkalog._core.index import IndexEntrySelector
from kafkalog._core.status import STATUS_CODES
from kafkalog.files.zeros import Holes
from kafkalog.log.corrupt_ranges import CorruptRange, find_resume
from kafkalog.log.judging import (
    OVERFLOW_MAX,
    RELATIVE_OFFSET_MAX,
    KnownEnd,
    fits_after,
    has_odd_end,
    is_whole_without_offset,
    judge_batches,
    may_begin_segment,
    offsets_inside,
)
from kafkalog.log.segment_file import SegmentFile
from kafkalog.log.walk import WalkResult, walk_batches

__all__ = ["RELATIVE_OFFSET_MAX", "SegmentScan", "largest_timestamp", "scan_file", "scan_segment"]

OK = STATUS_CODES["OK"]
FULL = STATUS_CODES["FULL"]
TRUNCATED = STATUS_CODES["TRUNCATED"]
OFFSET_ORDER = STATUS_CODES["OFFSET_ORDER"]
BASE_OFFSET = STATUS_CODES["BASE_OFFSET"]

CHUNK_BATCHES = 4096
# Of a file that is not mapped, at a time.
WINDOW_BYTES = 1 << 20
# One below the largest of 63 bits: the offset behind it is one, too.
LARGEST_OFFSET = 2**63 - 2
NO_EPOCH = -1


@dataclass(slots=True)
class SegmentScan:
    """
    What a scan found.

    Attributes:
        whole_end: one past the last whole batch.
        next_offset: one above the last offset of the last whole batch that is believed.
        free_offset: the least offset that no batch here may have, though its own offset lies.
        max_timestamp: largest batch timestamp, -1 where there is none.
        offset_of_max_timestamp: last offset of the earliest batch that has it.
        first_max_timestamp: timestamp of the first batch, which time-based rolling counts from.
        batch_count, record_count: whole batches, and records that their headers declare; those
            inside wrappers of old formats are not counted, which only decompression could do.
        has_producers: whether a batch names a producer.
        has_markers: whether one ends a transaction.
        leader_epochs: each epoch that is above all before it, with the base offset of its batch;
            NO_EPOCH where a message of an old format, which has none, begins that count anew.
        corrupt_ranges: damaged ranges with whole batches behind or in them.
        tail_status: why the scan ended: OK at the end of the data, else what failed there.
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
    leader_epochs: list[tuple[int, int]] = field(default_factory=list)
    corrupt_ranges: list[CorruptRange] = field(default_factory=list)
    tail_status: int = OK
    offset_entries: bytes = b""
    time_entries: bytes = b""

    @property
    def ends_in_corrupt_range(self) -> bool:
        """Whether the last whole batch is one that is not believed."""
        return bool(self.corrupt_ranges) and self.corrupt_ranges[-1].end_position >= self.whole_end


def scan_segment(
    data: memoryview,
    path: Path,
    *,
    base_offset: int,
    interval: int,
    offset_max: int | None = None,
    known_end: KnownEnd | None = None,
    find_holes: Callable[[], Holes] = tuple,
) -> SegmentScan:
    """
    Scan `data`, the bytes of a segment, around every damage to its end.

    Args:
        data: all bytes of the segment.
        path: its file, for the corrupt ranges.
        base_offset: of the segment.
        interval: `index.interval.bytes`.
        offset_max: largest offset that may be in the segment; any if None.
        known_end: what is known of the end of the log, for its last segment.
        find_holes: returns large holes of the file, which a search behind damage leaves out.
    """
    limit = _limit(base_offset, offset_max)
    scanner = _Scanner(base_offset, interval, limit, known_end)
    scan, is_odd = scanner.run_fast_path(data, find_holes)
    if not is_odd:
        return scan
    judgement = judge_batches(
        data,
        path,
        first_offset=base_offset,
        offset_max=limit,
        following_offset=0 if offset_max is None else offset_max + 1,
        known_end=known_end,
        questioned=scanner.questioned,
        holes=find_holes(),
    )
    scan = scanner.run_around(data, judgement.corrupt_ranges, judgement.whole_end)
    scan.corrupt_ranges = list(judgement.corrupt_ranges)
    scan.whole_end, scan.next_offset = judgement.whole_end, judgement.next_offset
    scan.free_offset, scan.tail_status = judgement.free_offset, judgement.tail_status
    return scan


def _limit(base_offset: int, offset_max: int | None) -> int:
    """Return the largest offset that may be in a segment."""
    return min(LARGEST_OFFSET if offset_max is None else offset_max, base_offset + OVERFLOW_MAX)


def scan_file(
    file: SegmentFile,
    *,
    base_offset: int,
    interval: int,
    offset_max: int | None = None,
    known_end: KnownEnd | None = None,
) -> SegmentScan:
    """
    Scan a segment in its file: as `scan_segment`, and a file without damage window by window.

    Args: as of `scan_segment`.
    """
    if not file.maps:
        limit = _limit(base_offset, offset_max)
        scan = _Scanner(base_offset, interval, limit, known_end).run_over_windows(file)
        if scan is not None:
            return scan
    # What damage is, and how far it reaches, only all that follows tells.
    return scan_segment(
        file.whole(),
        file.path,
        base_offset=base_offset,
        interval=interval,
        offset_max=offset_max,
        known_end=known_end,
        find_holes=file.holes,
    )


class _Scanner:
    """Goes over a segment, and puts together what its batches say."""

    def __init__(
        self, base_offset: int, interval: int, limit: int, known_end: KnownEnd | None
    ) -> None:
        self._base_offset = base_offset
        self._interval = interval
        self._limit = limit
        self._known_end = known_end
        self._columns = BatchColumns(CHUNK_BATCHES)
        # Where the last batch begins, if it is a wrapper that does not fit.
        self.questioned: tuple[int, ...] = ()
        self._begin()

    def _begin(self) -> None:
        self._entries = _Entries(self._base_offset, self._interval)
        self._tally = BatchTotals()
        self._scan = SegmentScan(next_offset=self._base_offset)
        # Of the log's last segment: the last batch's base offset, and the end of those before it.
        self._last_base = self._before_last = self._base_offset
        # Where it lies, if it is a wrapper.
        self._last_wrapper: tuple[int, int] | None = None

    def run_fast_path(
        self, data: memoryview, find_holes: Callable[[], Holes]
    ) -> tuple[SegmentScan, bool]:
        """Scan bytes as long as they are in order; say whether more has to be known of them."""
        position, end = 0, len(data)
        while position < end:
            walk = self._walk(data, position)
            self._collect(walk)
            position = walk.position
            if walk.status in (OK, FULL):
                continue
            if walk.status in (OFFSET_ORDER, BASE_OFFSET):
                return self._scan, True
            low, high = self._base_offset, self._limit
            resume, _ = find_resume(data, position, end, low, high, find_holes())
            if resume < end or is_whole_without_offset(data, position):
                return self._scan, True
            self._scan.tail_status = walk.status
            break
        is_odd = self._has_odd_end()
        if self._last_wrapper is not None:
            start, stop = self._last_wrapper
            is_odd |= not self._last_fits(data[start:stop])
        return self._finished(), is_odd

    def _last_fits(self, wrapper: memoryview) -> bool:
        """Hold the last batch, a wrapper, against the one before: nothing behind it speaks."""
        assert self._last_wrapper is not None and self._known_end is not None
        start, _ = self._last_wrapper
        end_before = self._before_last if start else self._known_end.begin_offset
        inside = None if start else offsets_inside(wrapper, 0)
        begins = inside is None or may_begin_segment(*inside, self._base_offset, end_before)
        if begins and fits_after(wrapper, 0, end_before):
            return True
        self.questioned = (start,)
        return False

    def run_over_windows(self, file: SegmentFile) -> SegmentScan | None:
        """Return what a scan finds; None where there is damage, or a torn tail."""
        size, position, wanted = file.size_bytes, 0, WINDOW_BYTES
        while position < size:
            data, _origin = file.window(position, wanted, size)
            walk = self._walk(data, 0)
            is_cut = walk.status == TRUNCATED and position + len(data) < size
            if walk.status not in (OK, FULL) and not is_cut:
                return None
            if not walk.count:
                # A batch that is larger than the window.
                wanted *= 2
                continue
            self._columns.position[: walk.count] += position
            self._collect(replace(walk, position=position + walk.position))
            position, wanted = position + walk.position, WINDOW_BYTES
        if self._has_odd_end():
            return None
        if self._last_wrapper is not None:
            start, stop = self._last_wrapper
            if not self._last_fits(file.read(start, stop - start)):
                return None
        return self._finished()

    def run_around(
        self, data: memoryview, corrupt_ranges: Sequence[CorruptRange], whole_end: int
    ) -> SegmentScan:
        """Scan what lies around the damaged ranges."""
        self._begin()
        position = 0
        for start, stop in [
            *((f.position, f.end_position) for f in corrupt_ranges),
            (whole_end, 0),
        ]:
            while position < start:
                walk = self._walk(data[:start], position)
                self._collect(walk)
                position = walk.position
                if walk.status not in (OK, FULL):
                    raise AssertionError(f"position {position} was judged to be whole")
            position = stop
        return self._finished()

    def _walk(self, data: memoryview, position: int) -> WalkResult:
        self._columns.clear()
        return walk_batches(
            data,
            position,
            self._columns,
            next_offset=self._scan.next_offset,
            offset_max=self._limit,
        )

    def _collect(self, walk: WalkResult) -> None:
        """Take in the batches that a walk has found."""
        count, columns, scan = walk.count, self._columns, self._scan
        if not count:
            return
        self._tally.add(columns, count)
        self._entries.select(columns, count)
        if self._known_end is not None:
            self._record_last_batch(count)
        scan.next_offset = scan.free_offset = walk.next_offset
        scan.whole_end = walk.position

    def _record_last_batch(self, count: int) -> None:
        columns, before = self._columns, self._scan.next_offset
        if count > 1:
            before = int(columns.last_offset[count - 2]) + 1
        self._last_base, self._before_last = int(columns.base_offset[count - 1]), before
        self._last_wrapper = None
        if columns.record_count[count - 1] < 0:
            start = int(columns.position[count - 1])
            self._last_wrapper = start, start + int(columns.size_bytes[count - 1])

    def _has_odd_end(self) -> bool:
        """Say whether what is known of the log's end may contradict the last batch."""
        known_end = self._known_end
        if known_end is None:
            return False
        return has_odd_end(
            known_end,
            base_offset=self._base_offset,
            expected=self._before_last,
            last_base=self._last_base,
            next_offset=self._scan.next_offset,
        )

    def _finished(self) -> SegmentScan:
        self._entries.finish(self._scan)
        _collect(self._scan, self._tally)
        return self._scan


def largest_timestamp(file: SegmentFile, position: int, next_offset: int) -> tuple[int, int] | None:
    """
    Return the largest timestamp of the batches from a position on, and the offset that has it.

    Of the earliest of them the last offset, (-1, -1) where there is none. Headers are read, no sum
    is checked; None where they are no run of whole batches.
    """
    found, size, wanted = (-1, -1), file.size_bytes, WINDOW_BYTES
    while position < size:
        data, origin = file.window(position, size if file.maps else wanted, size)
        met = scan_batches(data, position - origin, check_crc=False, next_offset=next_offset)
        is_cut = met.status == TRUNCATED and origin + len(data) < size
        if met.status != OK and not is_cut:
            return None
        if not met.count:
            wanted *= 2
            continue
        if met.max_timestamp > found[0]:
            found = met.max_timestamp, met.offset_of_max_timestamp
        position, next_offset, wanted = origin + met.position, met.next_offset, WINDOW_BYTES
    return found


class _Entries:
    """Collects the index entries of a scan, chunk by chunk."""

    def __init__(self, base_offset: int, interval: int) -> None:
        self._selector = IndexEntrySelector(base_offset, interval)
        self._offset_max = base_offset + RELATIVE_OFFSET_MAX
        self._offsets = bytearray()
        self._times = bytearray()
        # Largest timestamp of the batches that no entry can name, and the offset that has it.
        self._beyond = (-1, -1)

    def select(self, columns: BatchColumns, count: int) -> None:
        # What does not fit an entry is found by a walk from the one before.
        all_rows = count
        if columns.last_offset[count - 1] > self._offset_max:
            count = int(columns.last_offset[:count].searchsorted(self._offset_max, side="right"))
        if count and columns.position[count - 1] > RELATIVE_OFFSET_MAX:
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

    def finish(self, scan: SegmentScan) -> None:
        """Put entries and largest timestamp into the result."""
        scan.offset_entries = bytes(self._offsets)
        scan.time_entries = bytes(self._times) + self._selector.final_time_entry()
        scan.max_timestamp = self._selector.max_timestamp
        scan.offset_of_max_timestamp = self._selector.offset_of_max_timestamp
        if self._beyond[0] > scan.max_timestamp:
            scan.max_timestamp, scan.offset_of_max_timestamp = self._beyond


def _collect(scan: SegmentScan, tally: BatchTotals) -> None:
    """Put what the batches say together into the result."""
    scan.first_max_timestamp = tally.first_max_timestamp
    scan.batch_count, scan.record_count = tally.batch_count, tally.record_count
    scan.has_producers, scan.has_markers = tally.has_producers, tally.has_markers
    scan.leader_epochs = tally.leader_epochs
