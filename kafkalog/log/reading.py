"""Reads of a log: positions of offsets and timestamps, slices of segments, batches around damage.

All functions work on one `LogSnapshot` taken at the start, so a reader needs no lock and sees one
consistent log during writes.

At damage `on_corrupt="raise"` returns everything before it and then raises the typed error;
`"skip"` continues after the corrupt range with the next whole batch.

Thread-safety: functions on an immutable snapshot, without a lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

import numpy as np

from kafkalog._core.batch import BatchColumns, scan_batches
from kafkalog._core.header import BatchHeader, parse_header
from kafkalog._core.record import Record
from kafkalog._core.time_read import first_record_at
from kafkalog._engine.fetch_data import FetchData
from kafkalog.errors import CorruptRecordError, InvalidRecordError, UnsupportedCodecError
from kafkalog.layout import CODEC_MASK, MAGIC_V2, RECORD_BATCH_OVERHEAD
from kafkalog.log.batch_walk import OnDamage, ResumePoint, WalkDamage, WalkedBatches
from kafkalog.log.fetch import FETCH_PARTS
from kafkalog.log.holes import record_hole
from kafkalog.model import TimestampOffset
from kafkalog.records.batch_view import BatchView
from kafkalog.records.codecs import is_codec_of
from kafkalog.records.message_run import MessageRun

if TYPE_CHECKING:
    from kafkalog._engine.snapshot import LogSnapshot, ReadBound
    from kafkalog.log.segment import LogSegment

__all__ = [
    "OnCorrupt",
    "WalkStart",
    "after_damage",
    "fetch",
    "find_latest",
    "find_timestamp",
    "find_timestamp_in",
    "reaching_slots",
    "read_batches",
    "read_parts",
    "start_position",
    "try_records",
    "walk_ahead",
    "walk_place",
    "walk_whole_segment",
]

OnCorrupt = Literal["raise", "skip"]

_Decoded = TypeVar("_Decoded")
_Part = TypeVar("_Part", bound=BatchView | MessageRun)

# Amount that is checked ahead of the batch that a reader gets: bytes of small batches, number of
# large ones. More batches cost memory, and save no time.
WALK_BYTES = 1024 * 1024
WALK_BATCHES = 64
WALK_BATCHES_MAX = 1024


def fetch(
    snapshot: LogSnapshot, offset: int, max_bytes: int, *, min_one_batch: bool, end_offset: int
) -> FetchData:
    """
    Return the slice that begins with the batch holding `offset`.

    It is empty at `end_offset` and above, and holds no batch that reaches it.

    Raises:
        CorruptRecordError: the offset is in a corrupt range.
    """
    segments = snapshot.segments
    first = max(segments.floor_slot(offset), 0) if offset < snapshot.end_offset else len(segments)
    for slot in range(first, len(segments)):
        segment, bound = segments.segments[slot], snapshot.read_bound(slot)
        position = segment.find_position(offset, bound)
        if position is None:
            continue
        available = _end_position(segment, end_offset, bound) - position
        size = max(min(available, max_bytes), 0)
        if min_one_batch and size < available:
            size = max(size, segment.batch_size_at(position))
        break
    else:
        segment, bound = segments.active, snapshot.read_bound(len(segments) - 1)
        position, size = bound.end, 0
    return FetchData(
        segment,
        FETCH_PARTS,
        start_offset=offset,
        position=position,
        size_bytes=size,
        bound=bound,
        log_start_offset=snapshot.start_offset,
        log_end_offset=snapshot.end_offset,
    )


def _end_position(segment: LogSegment, end_offset: int, bound: ReadBound) -> int:
    """Return the position of the first batch that reaches `end_offset`."""
    if end_offset >= bound.following_offset:
        return bound.end
    position = segment.find_position(end_offset, bound)
    return bound.end if position is None else position


def read_batches(
    snapshot: LogSnapshot,
    start_offset: int,
    end_offset: int,
    *,
    on_corrupt: OnCorrupt,
) -> Iterator[BatchView]:
    """
    Yield whole batches, CRC checked, from the batch with `start_offset` on.

    Args:
        snapshot: snapshot of the log.
        start_offset: first offset to read; the first batch may begin below it.
        end_offset: batches that begin at or above it are left out.
        on_corrupt: what to do at damage.

    Raises:
        CorruptRecordError: at damage, with on_corrupt="raise".
    """
    read = partial(_segment_batches, on_corrupt=on_corrupt)
    return _read_segments(snapshot, start_offset, end_offset, on_corrupt, read)


def read_parts(
    snapshot: LogSnapshot,
    start_offset: int,
    end_offset: int,
    *,
    on_corrupt: OnCorrupt,
) -> Iterator[BatchView | MessageRun]:
    """Yield batches as `read_batches`, but plain messages of the old formats in runs."""
    read = partial(_segment_parts, end_offset=end_offset, on_corrupt=on_corrupt)
    return _read_segments(snapshot, start_offset, end_offset, on_corrupt, read)


def _read_segments(
    snapshot: LogSnapshot,
    start_offset: int,
    end_offset: int,
    on_corrupt: OnCorrupt,
    read: Callable[[WalkStart, int, int], Iterator[_Part]],
) -> Iterator[_Part]:
    """Yield the parts that `read` returns for each segment, up to the first at the end offset."""
    segments = snapshot.segments.segments
    expected, before = 0, None
    for walk_start in walk_starts(snapshot, start_offset, end_offset, on_corrupt):
        if before is not None and walk_start.bound.end:
            record_hole(segments, before, expected, walk_start.segment.base_offset)
        before, expected = walk_start.segment, max(expected, walk_start.next_offset)
        ahead = walk_ahead(walk_start, end_offset - max(expected, start_offset))
        for part in read(walk_start, expected, ahead):
            if isinstance(part, MessageRun):
                begins = part.first_offset
            else:
                # A wrapper has its last offset; its first may be the next one.
                header = part.header
                begins = expected if header.is_wrapper else header.base_offset
            if begins >= end_offset:
                return
            expected = part.next_offset
            yield part


class WalkStart(NamedTuple):
    """
    Start of a read in a segment.

    Attributes:
        segment: the segment.
        bound: its readable range.
        position: position of the first batch.
        next_offset: smallest possible base offset of it.
        first_size: its size by its header, 0 if that is damaged.
    """

    segment: LogSegment
    bound: ReadBound
    position: int
    next_offset: int
    first_size: int


def walk_starts(
    snapshot: LogSnapshot, start_offset: int, end_offset: int, on_corrupt: OnCorrupt
) -> Iterator[WalkStart]:
    """Yield the start in each segment that may have offsets of the range."""
    slot = max(snapshot.segments.floor_slot(start_offset), 0)
    for number in range(slot, len(snapshot.segments)):
        segment = snapshot.segments.segments[number]
        bound = snapshot.read_bound(number)
        if segment.base_offset >= end_offset:
            return
        position, expected = 0, segment.base_offset
        if number == slot:
            found = start_position(segment, start_offset, bound, on_corrupt)
            if found is None:
                continue
            position = found
        head = _header_at(segment, position, bound)
        if number == slot:
            # Batches before it are not walked, but they end below both.
            begins = 0 if head is None else head.base_offset
            expected = max(min(start_offset, begins), expected)
        yield WalkStart(segment, bound, position, expected, 0 if head is None else head.size_bytes)


def walk_ahead(walk_start: WalkStart, offset_count: int, walk_bytes: int = WALK_BYTES) -> int:
    """
    Return the number of batches to check ahead of a reader of at most `offset_count` offsets.

    About `walk_bytes` if all are as large as the first, but several even of large ones.
    """
    size = walk_start.first_size
    ahead = min(max(walk_bytes // size, WALK_BATCHES), WALK_BATCHES_MAX) if size else WALK_BATCHES
    # A batch has at least one offset: no more batches are needed than offsets.
    return min(max(offset_count, 1), ahead)


def start_position(
    segment: LogSegment, offset: int, bound: ReadBound, on_corrupt: OnCorrupt
) -> int | None:
    """Return the position of the batch with `offset`, None if no batch is at or above it."""
    try:
        return segment.find_position(offset, bound)
    except CorruptRecordError:
        if on_corrupt == "raise":
            raise
    # The offset is in a corrupt range: begin after it.
    ends = [
        f.end_position for f in segment.corrupt_ranges if f.first_offset <= offset < f.next_offset
    ]
    return max(ends) if ends and max(ends) < bound.end else None


def _header_at(segment: LogSegment, position: int, bound: ReadBound) -> BatchHeader | None:
    """Return the header at `position`, None if it is damaged or missing."""
    head = segment.file.read(position, min(RECORD_BATCH_OVERHEAD, bound.end - position))
    try:
        return parse_header(head)
    except (CorruptRecordError, InvalidRecordError):
        return None


def _segment_batches(
    walk_start: WalkStart, expected: int, ahead: int, *, on_corrupt: OnCorrupt
) -> Iterator[BatchView]:
    columns = BatchColumns(ahead)
    for walked in walk_place(walk_start, expected, columns, on_corrupt):
        yield from _views(walked, walk_start.segment.path, columns, 0, walked.count)


def _segment_parts(
    walk_start: WalkStart, expected: int, ahead: int, *, end_offset: int, on_corrupt: OnCorrupt
) -> Iterator[BatchView | MessageRun]:
    path, columns = walk_start.segment.path, BatchColumns(ahead)
    for walked in walk_place(walk_start, expected, columns, on_corrupt):
        for first, stop, is_plain in _slices(columns, walked.count):
            if is_plain:
                offsets = columns.base_offset[first:stop]
                wanted_stop = first + max(int(offsets.searchsorted(end_offset)), 1)
                yield _run_of(walked, path, columns, first, wanted_stop)
                if wanted_stop < stop:
                    return
            else:
                yield from _views(walked, path, columns, first, stop)


def walk_place(
    walk_start: WalkStart, expected: int, columns: BatchColumns, on_corrupt: OnCorrupt
) -> Iterator[WalkedBatches]:
    """Walk a segment from a position on; offsets below `expected` were read before."""
    start, on_damage = (
        ResumePoint(walk_start.position, expected),
        after_damage(walk_start.segment, walk_start.bound, on_corrupt),
    )
    return walk_start.segment.walk(start, walk_start.bound, columns, on_damage)


def _views(
    walked: WalkedBatches, path: Path, columns: BatchColumns, first: int, stop: int
) -> Iterator[BatchView]:
    """Yield the batches of a walk one by one."""
    data, origin = walked.data, walked.origin
    starts = columns.position[first:stop].tolist()
    sizes = columns.size_bytes[first:stop].tolist()
    for start, size in zip(starts, sizes, strict=True):
        yield BatchView(data[start : start + size], path=path, position=origin + start)


def _slices(columns: BatchColumns, count: int) -> Iterator[tuple[int, int, bool]]:
    """Yield (first, stop, whether plain messages of old formats) of adjacent rows."""
    is_old = columns.magic[:count] < MAGIC_V2
    if not is_old.any():
        yield 0, count, False
        return
    is_plain = is_old & (columns.attributes[:count] & CODEC_MASK == 0)
    starts = [0, *(np.flatnonzero(is_plain[1:] != is_plain[:-1]) + 1).tolist(), count]
    for first, stop in pairwise(starts):
        yield first, stop, bool(is_plain[first])


def _run_of(
    walked: WalkedBatches, path: Path, columns: BatchColumns, first: int, stop: int
) -> MessageRun:
    position, last_position = int(columns.position[first]), int(columns.position[stop - 1])
    return MessageRun(
        walked.data[position : last_position + int(columns.size_bytes[stop - 1])],
        path=path,
        position=walked.origin + position,
        last_position=walked.origin + last_position,
        first_offset=int(columns.base_offset[first]),
        last_offset=int(columns.last_offset[stop - 1]),
    )


def walk_whole_segment(
    segment: LogSegment, bound: ReadBound, columns: BatchColumns
) -> Iterator[WalkedBatches]:
    """Walk a segment from its start on, around damage."""
    start = ResumePoint(0, segment.base_offset)
    return segment.walk(start, bound, columns, after_damage(segment, bound, "skip"))


def after_damage(segment: LogSegment, bound: ReadBound, on_corrupt: OnCorrupt) -> OnDamage:
    """
    Return the reaction of a reader to damage: raise, or continue after the corrupt range.

    Args:
        segment: the segment, which caches the corrupt range.
        bound: its readable range.
        on_corrupt: "raise" or "skip".
    """

    def go_on(damage: WalkDamage) -> ResumePoint:
        found = segment.corrupt_range_at(
            damage.position, bound, damage.status, damage.next_offset, damage.resume_min
        )
        if on_corrupt == "raise":
            raise found.to_error()
        return ResumePoint(found.end_position, max(damage.next_offset, found.next_offset))

    return go_on


def find_timestamp(
    snapshot: LogSnapshot, timestamp_ms: int, end_offset: int, check_crcs: bool = True
) -> TimestampOffset | None:
    """
    Return the first record, by offset, whose timestamp is at or above `timestamp_ms`.

    None if it is not below `end_offset`. Batches in corrupt ranges are skipped. With
    `check_crcs=False` the CRC of a batch that is found directly is not checked.
    """
    start_offset = snapshot.start_offset
    for slot in reaching_slots(snapshot, timestamp_ms, end_offset):
        segment, bound = snapshot.segments.segments[slot], snapshot.read_bound(slot)
        reader = segment.time_reader(bound)
        plain = None
        if not (segment.corrupt_ranges and check_crcs):
            plain = reader.find_time(timestamp_ms, start_offset, check_crcs)
        if plain is not None:
            found = TimestampOffset(*plain[:2], plain[2] if plain[2] >= 0 else None)
        else:
            other = find_timestamp_in(segment, timestamp_ms, bound, start_offset)
            if other is None:
                continue
            found = other[0]
        return found if found.offset < end_offset else None
    return None


def reaching_slots(
    snapshot: LogSnapshot, timestamp_ms: int, end_offset: int, first: int = 0
) -> Iterator[int]:
    """Yield the slots of segments, from `first` on, that may have records at or above a time."""
    for slot in range(first, len(snapshot.segments)):
        segment, bound = snapshot.segments.segments[slot], snapshot.read_bound(slot)
        if segment.base_offset >= end_offset:
            return
        if bound.following_offset <= snapshot.start_offset or bound.end == 0:
            continue
        if slot + 1 == len(snapshot.segments) or segment.max_timestamp >= timestamp_ms:
            yield slot


def find_latest(snapshot: LogSnapshot, end_offset: int) -> TimestampOffset | None:
    """Return the first record, by offset, with the largest timestamp below `end_offset`."""
    for walks_active in (False, True):
        largest = -1
        for slot, segment in enumerate(snapshot.segments.segments):
            following = snapshot.read_bound(slot).following_offset
            start = max(segment.base_offset, snapshot.start_offset)
            end = min(following, end_offset)
            is_whole = (start, end) == (segment.base_offset, following)
            if is_whole and not (walks_active and slot + 1 == len(snapshot.segments)):
                largest = max(largest, segment.max_timestamp)
            elif start < end:
                largest = max(largest, _max_timestamp_between(snapshot, segment, start, end))
        found = find_timestamp(snapshot, largest, end_offset) if largest >= 0 else None
        # The active segment may have a larger one by now than the snapshot: walk it then.
        if found is not None or largest < 0:
            return found
    # No record has the timestamp of the headers: a batch emptied by a compaction keeps its own.
    largest = _max_timestamp_of_records(snapshot, end_offset)
    return find_timestamp(snapshot, largest, end_offset) if largest >= 0 else None


def _max_timestamp_of_records(snapshot: LogSnapshot, end_offset: int) -> int:
    """Return the largest timestamp of a record; batches whose headers have a larger are decoded."""
    largest, start_offset = -1, snapshot.start_offset
    limit_bytes = snapshot.segments.active.decompressed_max_bytes
    for batch in read_batches(snapshot, start_offset, end_offset, on_corrupt="skip"):
        if batch.header.max_timestamp > largest and batch.header.record_count:
            inside = _timestamps_between(batch, limit_bytes, start_offset, end_offset)
            largest = max(largest, *inside, -1)
    return largest


def _max_timestamp_between(
    snapshot: LogSnapshot, segment: LogSegment, start_offset: int, end_offset: int
) -> int:
    """Return the largest timestamp in a part of a segment."""
    largest, expected = -1, segment.base_offset
    for batch in read_batches(snapshot, start_offset, end_offset, on_corrupt="skip"):
        header = batch.header
        base_offset = expected if header.is_wrapper else header.base_offset
        if start_offset <= base_offset and header.next_offset <= end_offset:
            largest = max(largest, header.max_timestamp)
        else:
            limit_bytes = segment.decompressed_max_bytes
            inside = _timestamps_between(batch, limit_bytes, start_offset, end_offset)
            largest = max(largest, *inside, -1)
        expected = header.next_offset
    return largest


def _timestamps_between(
    batch: BatchView, limit_bytes: int, start_offset: int, end_offset: int
) -> list[int]:
    records = try_records(batch, limit_bytes, strict=False) or []
    return [each.timestamp_ms for each in records if start_offset <= each.offset < end_offset]


def find_timestamp_in(
    segment: LogSegment, timestamp_ms: int, bound: ReadBound, start_offset: int
) -> tuple[TimestampOffset, BatchView] | None:
    """Return the first record of a segment at or above a time, with its batch, None for none."""
    position = 0
    while True:
        found = segment.find_timestamp(timestamp_ms, bound, position)
        if found is None:
            return None
        batch = _batch_at(segment, found, bound)
        if batch is None:
            # Damage: its length or its timestamp led here, perhaps past other batches.
            found = segment.find_timestamp_slow_path(timestamp_ms, bound, position)
            batch = None if found is None else _batch_at(segment, found, bound)
            if found is None or batch is None:
                return None
        position = found + batch.header.size_bytes
        record = _first_record_at(batch, timestamp_ms, start_offset, segment.decompressed_max_bytes)
        # A header may have a larger timestamp than any of its records: continue.
        if record is not None:
            epoch = batch.header.partition_leader_epoch
            return TimestampOffset(*record, epoch if epoch >= 0 else None), batch


def try_records(batch: BatchView, limit_bytes: int, *, strict: bool = True) -> list[Record] | None:
    """
    Return the records of a batch, None if it cannot be decoded although its CRC is right.

    Raises:
        UnsupportedCodecError: a library is missing; to skip the batch would hide it.
    """
    return _tried(batch, lambda: batch.records(limit_bytes=limit_bytes, strict=strict))


def _tried(batch: BatchView, decode: Callable[[], _Decoded]) -> _Decoded | None:
    try:
        return decode()
    except CorruptRecordError:
        return None
    except UnsupportedCodecError:
        if is_codec_of(batch.header.magic, batch.header.codec):
            raise
        return None


def _batch_at(segment: LogSegment, position: int, bound: ReadBound) -> BatchView | None:
    """Return the whole batch at `position`, CRC checked, None where there is none."""
    header = _header_at(segment, position, bound)
    if header is None:
        return None
    window = segment.file.read(position, min(header.size_bytes, bound.end - position))
    if scan_batches(window).count != 1:
        return None
    return BatchView(window, path=segment.path, position=position)


def _first_record_at(
    batch: BatchView, timestamp_ms: int, start_offset: int, limit_bytes: int
) -> tuple[int, int] | None:
    """Return timestamp and offset of the first record at or above a time, None for none."""
    if batch.header.magic == MAGIC_V2:
        payload = _tried(batch, lambda: batch.payload(limit_bytes, strict=False))
        if payload is None:
            return None
        data, start, end = payload
        return first_record_at(data, batch.header, start, end, timestamp_ms, start_offset)
    for record in try_records(batch, limit_bytes, strict=False) or []:
        if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
            return record.timestamp_ms, record.offset
    return None
