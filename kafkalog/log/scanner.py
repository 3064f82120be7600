"""One pass over the bytes of a segment: what is whole, what is damaged, what its indexes must say.

Used by recovery (with CRC), by the rebuild of an index, and by look-ups that met something odd.
Works on a memoryview of the segment, or on windows of its file where that is not mapped; changes
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from kafkalog._core.batch import BatchColumns, scan_batches
from kafkalog._core.batch_tally import BatchTally
from kafkalog._core.index import IndexEntrySelector
from kafkalog._core.status import STATUS_CODES
from kafkalog.log.fences import FencedRange, find_fence
from kafkalog.log.segment_file import SegmentFile
from kafkalog.log.walk import walk_batches

__all__ = ["SegmentScan", "largest_timestamp", "scan_file", "scan_segment"]

OK = STATUS_CODES["OK"]
FULL = STATUS_CODES["FULL"]
TRUNCATED = STATUS_CODES["TRUNCATED"]

CHUNK_BATCHES = 4096
# Of a file that is not mapped, at a time.
WINDOW_BYTES = 1 << 20
RELATIVE_OFFSET_MAX = 2**31 - 1
NO_EPOCH = -1


@dataclass(slots=True)
class SegmentScan:
    """
    What a scan found.

    Attributes:
        whole_end: one past the last whole batch.
        next_offset: one above the last offset of the last whole batch.
        max_timestamp: largest batch timestamp, -1 where there is none.
        offset_of_max_timestamp: last offset of the earliest batch that has it.
        first_max_timestamp: timestamp of the first batch, which time-based rolling counts from.
        batch_count, record_count: whole batches, and records that their headers declare; those
            inside wrappers of old formats are not counted, which only decompression could do.
        has_producers: whether a batch names a producer.
        has_markers: whether one ends a transaction.
        leader_epochs: each epoch that is above all before it, with the base offset of its batch;
            NO_EPOCH where a message of an old format, which has none, begins that count anew.
        fences: damaged ranges with whole batches behind them.
        tail_status: why the scan ended: OK at the end of the data, else what failed there.
        offset_entries, time_entries: the index files of the segment, as bytes.
    """

    whole_end: int = 0
    next_offset: int = 0
    max_timestamp: int = -1
    offset_of_max_timestamp: int = -1
    first_max_timestamp: int = -1
    batch_count: int = 0
    record_count: int = 0
    has_producers: bool = False
    has_markers: bool = False
    leader_epochs: list[tuple[int, int]] = field(default_factory=list)
    fences: list[FencedRange] = field(default_factory=list)
    tail_status: int = OK
    offset_entries: bytes = b""
    time_entries: bytes = b""


def scan_segment(
    data: memoryview,
    path: Path,
    *,
    base_offset: int,
    interval: int,
    next_offset: int | None = None,
    offset_max: int | None = None,
) -> SegmentScan:
    """
    Scan `data`, the bytes of a segment, around every damage to its end.

    Args:
        data: all bytes of the segment.
        path: its file, for the fences.
        base_offset: of the segment.
        interval: `index.interval.bytes`.
        next_offset: smallest offset that may come first; the base offset if None.
        offset_max: largest offset that may be in the segment; what 32 bits allow if None.
    """
    limit = base_offset + RELATIVE_OFFSET_MAX
    limit = limit if offset_max is None else min(limit, offset_max)
    scan = SegmentScan(next_offset=base_offset if next_offset is None else next_offset)
    columns = BatchColumns(CHUNK_BATCHES)
    entries = _Entries(IndexEntrySelector(base_offset, interval))
    tally = BatchTally()
    position, end = 0, len(data)
    while position < end:
        columns.clear()
        walk = walk_batches(data, position, columns, next_offset=scan.next_offset, offset_max=limit)
        if walk.count:
            tally.add(columns, walk.count)
            entries.select(columns, walk.count)
            scan.next_offset = walk.next_offset
            scan.whole_end = walk.position
        position = walk.position
        if walk.status in (OK, FULL):
            continue
        fence = find_fence(
            data,
            path,
            position=position,
            end=end,
            status=walk.status,
            next_offset=scan.next_offset,
            offset_max=limit,
            following_offset=scan.next_offset,
            resume_min=walk.resume_min,
        )
        position = fence.end_position
        if position >= end:
            scan.tail_status = STATUS_CODES[fence.reason]
            break
        scan.fences.append(fence)
    entries.finish(scan)
    _take(scan, tally)
    return scan


def scan_file(
    file: SegmentFile,
    *,
    base_offset: int,
    interval: int,
    next_offset: int | None = None,
    offset_max: int | None = None,
) -> SegmentScan:
    """
    Scan a segment in its file: as `scan_segment`, and a file without damage window by window.

    Args: as of `scan_segment`.
    """
    limit = base_offset + RELATIVE_OFFSET_MAX
    limit = limit if offset_max is None else min(limit, offset_max)
    first_offset = base_offset if next_offset is None else next_offset
    scan = None
    if not file.maps:
        scan = _scan_windows(file, base_offset, interval, first_offset, limit)
    if scan is None:
        # What damage is, and how far it reaches, only all that follows tells.
        scan = scan_segment(
            file.whole(),
            file.path,
            base_offset=base_offset,
            interval=interval,
            next_offset=next_offset,
            offset_max=offset_max,
        )
    return scan


def _scan_windows(
    file: SegmentFile, base_offset: int, interval: int, next_offset: int, limit: int
) -> SegmentScan | None:
    """Return what a scan finds; None where there is damage, or a torn tail."""
    scan = SegmentScan(next_offset=next_offset)
    columns = BatchColumns(CHUNK_BATCHES)
    entries = _Entries(IndexEntrySelector(base_offset, interval))
    tally = BatchTally()
    size, position, wanted = file.size_bytes, 0, WINDOW_BYTES
    while position < size:
        data, _origin = file.window(position, wanted, size)
        columns.clear()
        walk = walk_batches(data, 0, columns, next_offset=scan.next_offset, offset_max=limit)
        is_cut = walk.status == TRUNCATED and position + len(data) < size
        if walk.status not in (OK, FULL) and not is_cut:
            return None
        if not walk.count:
            # A batch that is larger than the window.
            wanted *= 2
            continue
        columns.position[: walk.count] += position
        tally.add(columns, walk.count)
        entries.select(columns, walk.count)
        scan.next_offset = walk.next_offset
        position, wanted = position + walk.position, WINDOW_BYTES
        scan.whole_end = position
    entries.finish(scan)
    _take(scan, tally)
    return scan


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

    def __init__(self, selector: IndexEntrySelector) -> None:
        self._selector = selector
        self._offsets = bytearray()
        self._times = bytearray()

    def select(self, columns: BatchColumns, count: int) -> None:
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


def _take(scan: SegmentScan, tally: BatchTally) -> None:
    """Put what the batches say together into the result."""
    scan.first_max_timestamp = tally.first_max_timestamp
    scan.batch_count, scan.record_count = tally.batch_count, tally.record_count
    scan.has_producers, scan.has_markers = tally.has_producers, tally.has_markers
    scan.leader_epochs = tally.leader_epochs
