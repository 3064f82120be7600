"""Reads of the files of one partition, with `pread` and without mappings.

The end of a log, the position of an offset in a segment and the first record of a time are found by
a few small reads each.

A log that a writer has open ends after its last whole batch: the bytes after it are being written.
If they can be anything else, or the checkpoints contradict the last batch, the engine opens the
log, with copies for mappings, and decides.

Thread-safety: functions over the disk; a writer may append at the same time. Errors pass as
OSError.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kafkalog._core.batch import BatchColumns, find_timestamp
from kafkalog._core.header import parse_header
from kafkalog._core.index import (
    OffsetIndexView,
    TimeIndexView,
    check_offset_index,
    check_time_index,
)
from kafkalog._core.status import STATUS_CODES
from kafkalog.errors import CorruptRecordError, InvalidRecordError
from kafkalog.files.atomic_files import read_file
from kafkalog.files.filesystem import FileHandle, FileSystem
from kafkalog.files.names import FileKind, segment_file_name
from kafkalog.files.unmapped_filesystem import without_mappings
from kafkalog.indexes.kinds import OFFSET_INDEX, TIME_INDEX
from kafkalog.layout import RECORD_BATCH_OVERHEAD
from kafkalog.log.batch_walk import WalkDamage, WalkedBatches, WalkRange, walk_source
from kafkalog.log.byte_source import PreadSource
from kafkalog.log.corrupt_ranges import find_resume
from kafkalog.log.index_lookup import read_whole_header, walk_headers
from kafkalog.log.ranges.damage import end_facts_of, last_batch_is_odd
from kafkalog.log.ranges.on_disk import HandleReader, SegmentOnDisk, wrapper_checks_of
from kafkalog.log.ranges.reader import all_batches
from kafkalog.log.scan.conditions import Integers
from kafkalog.log.scan.rows import check_crcs
from kafkalog.log.wrapper_checks import neighbours_in
from kafkalog.records.batch_view import BatchView

__all__ = [
    "UNKNOWN_TIMESTAMP",
    "SegmentCuts",
    "find_log_end",
    "follow_log_end",
    "largest_timestamp",
    "offset_for_timestamp",
]

OK: Final = STATUS_CODES["OK"]
TRUNCATED: Final = STATUS_CODES["TRUNCATED"]

# For a segment whose times were not looked up: no filter leaves it out.
UNKNOWN_TIMESTAMP: Final = 2**63 - 1

_MAX_INDEX_BYTES: Final = 64 * 1024 * 1024
# The distance of two index entries is 4 KiB as a rule, and so is what is read after the last.
_TAIL_BYTES: Final = 64 * 1024
_BATCHES: Final = 4096


def _open(
    filesystem: FileSystem, directory: Path, base_offset: int, kind: FileKind
) -> FileHandle | None:
    try:
        return filesystem.open(directory / segment_file_name(base_offset, kind))
    except FileNotFoundError:
        return None


def _last_entry(handle: FileHandle, layout: struct.Struct) -> tuple[int, int] | None:
    """
    Return the last entry of an index, None of an empty one.

    An index of a writer has its full size, with zeros after its last entry.
    """
    count = handle.size() // layout.size
    if count == 0:
        return None
    data = handle.pread(layout.size, (count - 1) * layout.size)
    if any(data):
        return _unpacked(layout, data)
    low, high = 0, count - 1
    while low < high:
        middle = (low + high) // 2
        if any(handle.pread(layout.size, middle * layout.size)):
            low = middle + 1
        else:
            high = middle
    return _entry_at(handle, layout, low - 1) if low else None


def _entry_at(handle: FileHandle, layout: struct.Struct, slot: int) -> tuple[int, int] | None:
    return _unpacked(layout, handle.pread(layout.size, slot * layout.size))


def _unpacked(layout: struct.Struct, data: bytes) -> tuple[int, int] | None:
    """Return an entry, None if the file has become shorter."""
    if len(data) != layout.size:
        return None
    first, second = layout.unpack(data)
    return first, second


def find_log_end(filesystem: FileSystem, directory: Path, base_offset: int) -> tuple[int, int]:
    """
    Return the log end offset and the size of the last segment up to there.

    Args:
        filesystem: the disk.
        directory: of the partition.
        base_offset: of its last segment.

    Raises:
        FileNotFoundError: the segment is gone.
        KafkaLogError: the engine cannot open the log.
    """
    log = filesystem.open(directory / segment_file_name(base_offset, FileKind.LOG))
    try:
        size = log.size()
        if size == 0:
            return base_offset, 0
        position, least = _indexed_position(filesystem, directory, base_offset, log, size)
        end = _LastSegment(filesystem, SegmentOnDisk(directory, base_offset, None), log)
        found = end.walk(position, size, least)
        if found is None and position:
            found = end.walk(0, size, base_offset)
    finally:
        log.close()
    return _end_from_engine(filesystem, directory, base_offset) if found is None else found


def follow_log_end(
    filesystem: FileSystem, directory: Path, base_offset: int, end_offset: int, position: int
) -> tuple[int, int] | None:
    """
    Return the new end of a log whose end was found before, in the same segment.

    Args:
        filesystem: the disk.
        directory: of the partition.
        base_offset: of its last segment.
        end_offset, position: the result of `find_log_end`.

    Returns:
        The same as `find_log_end`; None if the segment has become shorter, or the new bytes are not
        batches that follow.
    """
    log = filesystem.open(directory / segment_file_name(base_offset, FileKind.LOG))
    try:
        size = log.size()
        end = _LastSegment(filesystem, SegmentOnDisk(directory, base_offset, None), log)
        return None if size < position else end.walk(position, size, end_offset)
    finally:
        log.close()


def _indexed_position(
    filesystem: FileSystem, directory: Path, base_offset: int, log: FileHandle, size: int
) -> tuple[int, int]:
    """
    Return the position of a batch not far from the end, if the index is consistent.

    And the lowest offset that it may have: its own, if the index names the same last offset.
    """
    start = 0, base_offset
    if size <= _TAIL_BYTES:
        return start
    index = _open(filesystem, directory, base_offset, FileKind.OFFSET_INDEX)
    if index is None:
        return start
    try:
        entry = _last_entry(index, OFFSET_INDEX.entry)
    finally:
        index.close()
    if entry is None or not 0 <= entry[1] < size:
        return start
    try:
        header = parse_header(log.pread(RECORD_BATCH_OVERHEAD, entry[1]))
    except (CorruptRecordError, InvalidRecordError):
        return start
    indexed_offset = base_offset + entry[0]
    if not base_offset <= header.base_offset <= header.last_offset <= indexed_offset:
        return start
    is_named = header.last_offset == indexed_offset
    return entry[1], header.base_offset if is_named else base_offset


class _LastSegment:
    """
    The last segment of a log, read to its end.

    Args:
        filesystem: the disk.
        segment: the segment.
        log: its open `.log`.
    """

    def __init__(self, filesystem: FileSystem, segment: SegmentOnDisk, log: FileHandle) -> None:
        self._filesystem = filesystem
        self._segment = segment
        self._log = log
        self._batches = BatchColumns(_BATCHES)

    def walk(self, position: int, size: int, next_offset: int) -> tuple[int, int] | None:
        """
        Return the offset after the last whole batch, and the end of that batch.

        None if the bytes after it are neither a partly written batch nor zeros, or if the
        checkpoints of the log contradict it.

        Args:
            position: start of a batch.
            size: bytes of the file.
            next_offset: the lowest offset that the batch may have.
        """
        reached, is_odd = (next_offset, position), False

        def stop(damage: WalkDamage) -> None:
            nonlocal is_odd
            # Zeros are preallocated, or not written yet.
            if any(damage.rest[:RECORD_BATCH_OVERHEAD]):
                is_odd = (
                    is_odd
                    or damage.status != TRUNCATED
                    or self._is_damage(damage.position, size, damage.next_offset)
                )

        for walked in walk_source(
            PreadSource(self._log, size),
            WalkRange(position, size, next_offset, self._segment.offset_max),
            self._batches,
            on_damage=stop,
            window_bytes=_TAIL_BYTES,
        ):
            is_odd = self._ends_oddly(walked, size)
            reached = walked.next_offset, walked.end_position
        return None if is_odd else reached

    def _is_damage(self, position: int, size: int, next_offset: int) -> bool:
        """Return whether the rest of a file is more than a partly written or torn batch."""
        segment = self._segment
        rest = memoryview(self._log.pread(size - position, position))
        resume, _ = find_resume(rest, 0, len(rest), segment.base_offset, segment.offset_max)
        if resume < len(rest):
            return True
        return next_offset < end_facts_of(self._filesystem, segment).durable_offset

    def _ends_oddly(self, walked: WalkedBatches, size: int) -> bool:
        """Return whether the records or checkpoints contradict the last batch of a walk."""
        row = walked.count - 1
        before = int(self._batches.last_offset[row - 1]) + 1 if row else walked.expected
        if self._batches.record_count[row] < 0:
            checks = wrapper_checks_of(self._filesystem, self._segment, self._log, size)
            last = neighbours_in(self._batches, walked.count, walked.origin)[-1]
            if checks.find_misfit([last], 0, last.end) is not None:
                # No batch after it contradicts its header, but its records do.
                return True
        return last_batch_is_odd(self._filesystem, self._segment, self._batches, row, before)


def _end_from_engine(filesystem: FileSystem, directory: Path, base_offset: int) -> tuple[int, int]:
    """Return the end of a damaged log from the engine, which has the recovery point."""
    # Planning rarely gets here, and starts sooner without the modules that open and write logs.
    from kafkalog.log.log import partition_of
    from kafkalog.log.opening import open_log

    with open_log(directory, read_only=True, filesystem=without_mappings(filesystem)) as log:
        snapshot = partition_of(log).view.snapshot()
        if snapshot.segments.active.base_offset != base_offset:
            raise FileNotFoundError(f"{directory}: segment {base_offset} is not the last any more")
        return snapshot.end_offset, snapshot.end_position


def largest_timestamp(filesystem: FileSystem, directory: Path, base_offset: int) -> int:
    """Return the largest time of a sealed segment by its time index, or UNKNOWN_TIMESTAMP."""
    index = _open(filesystem, directory, base_offset, FileKind.TIME_INDEX)
    if index is None:
        return UNKNOWN_TIMESTAMP
    try:
        entry = _last_entry(index, TIME_INDEX.entry)
    finally:
        index.close()
    return UNKNOWN_TIMESTAMP if entry is None else entry[0]


class SegmentCuts:
    """
    Places to split a segment: between two batches, by the entries of the offset index.

    Args:
        filesystem: the disk.
        directory: of the partition.
    """

    def __init__(self, filesystem: FileSystem, directory: str) -> None:
        self._filesystem = filesystem
        self._directory = Path(directory)

    def near(self, base_offset: int, size_bytes: int, positions: list[int]) -> list[int]:
        """
        Return offsets at which batches begin, one near each of rising positions.

        Args:
            base_offset: of the segment.
            size_bytes: its size.
            positions: in bytes; a position without an entry near it is left out.
        """
        try:
            index = _open(self._filesystem, self._directory, base_offset, FileKind.OFFSET_INDEX)
        except OSError:
            return []
        if index is None:
            return []
        try:
            count = index.size() // OFFSET_INDEX.entry.size
            if not count:
                return []
            found = self._guess(index, count, size_bytes, positions)
            if found is None:
                found = self._find_in_index(index, base_offset, size_bytes, positions)
        finally:
            index.close()
        # An entry names the last offset of its batch: the next batch begins after it.
        return sorted({base_offset + relative + 1 for relative in found})

    def _guess(
        self, index: FileHandle, count: int, size_bytes: int, positions: list[int]
    ) -> list[int] | None:
        """Return the entries at places expected from even distances; None if they do not match."""
        found = []
        for position in positions:
            slot = min(position * count // max(size_bytes, 1), count - 1)
            entry = _unpacked(
                OFFSET_INDEX.entry,
                index.pread(OFFSET_INDEX.entry.size, slot * OFFSET_INDEX.entry_size),
            )
            distance = positions[0] if len(positions) == 1 else positions[1] - positions[0]
            if entry is None or abs(entry[1] - position) > distance // 16:
                return None
            found.append(entry[0])
        return found

    def _find_in_index(
        self, index: FileHandle, base_offset: int, size_bytes: int, positions: list[int]
    ) -> list[int]:
        """Return the same from the whole index, if that is consistent."""
        entries = index.pread(min(index.size(), _MAX_INDEX_BYTES), 0)
        entries = OFFSET_INDEX.whole_entries(entries)
        count, is_sound = check_offset_index(entries, segment_size=size_bytes)
        if not is_sound or not count:
            return []
        view = OffsetIndexView(entries, base_offset, count)
        found = (view.ceiling_position(position) for position in positions)
        return [entry[0] - base_offset for entry in found if entry is not None]


def offset_for_timestamp(
    filesystem: FileSystem,
    directory: Path,
    base_offsets: list[int],
    ends: list[int],
    timestamp_ms: int,
    start_offset: int = 0,
) -> int | None:
    """
    Return the first offset whose record is as late as a time, None without one.

    Args:
        filesystem: the disk.
        directory: of the partition.
        base_offsets: of its segments, rising.
        ends: end of the part of each to read, in bytes.
        timestamp_ms: the time.
        start_offset: records below it do not count.

    Raises:
        KafkaLogError: a batch cannot be read for another reason than damage.
    """
    try:
        return _find_first(filesystem, directory, base_offsets, ends, timestamp_ms, start_offset)
    except (CorruptRecordError, InvalidRecordError):
        return _find_after_damage(filesystem, directory, timestamp_ms, start_offset)


def _find_after_damage(
    filesystem: FileSystem, directory: Path, timestamp_ms: int, start_offset: int
) -> int | None:
    """Return the same from all whole batches, as workers will read them."""
    timestamps = Integers(timestamp_ms)
    for batch_slice in all_batches(
        filesystem, directory, start_offset, timestamps=timestamps, check_crcs=True
    ):
        check_crcs(batch_slice)
        stop = batch_slice.stop if batch_slice.rejected_row is None else batch_slice.rejected_row
        if not batch_slice.is_wanted:
            continue
        for row in range(batch_slice.first, stop):
            try:
                found = _first_as_late(batch_slice.view(row), timestamp_ms, start_offset)
            except (CorruptRecordError, InvalidRecordError):
                continue
            if found is not None:
                return found
    return None


def _first_as_late(batch: BatchView, timestamp_ms: int, start_offset: int) -> int | None:
    if batch.header.is_control:
        return None
    for record in batch.records():
        if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
            return record.offset
    return None


def _find_first(
    filesystem: FileSystem,
    directory: Path,
    base_offsets: list[int],
    ends: list[int],
    timestamp_ms: int,
    start_offset: int,
) -> int | None:
    last = len(base_offsets) - 1
    for slot, base_offset in enumerate(base_offsets):
        # The index of the last segment need not have its latest records yet.
        if slot < last and largest_timestamp(filesystem, directory, base_offset) < timestamp_ms:
            continue
        if slot < last and base_offsets[slot + 1] <= start_offset:
            continue
        found = _first_in_segment(
            filesystem, directory, base_offset, ends[slot], timestamp_ms, start_offset
        )
        if found is not None:
            return found
    return None


def _first_in_segment(
    filesystem: FileSystem,
    directory: Path,
    base_offset: int,
    end: int,
    timestamp_ms: int,
    start_offset: int,
) -> int | None:
    path = directory / segment_file_name(base_offset, FileKind.LOG)
    position = _position_before(filesystem, directory, base_offset, end, timestamp_ms)
    log = filesystem.open(path)
    try:
        for data, at in _batches_as_late(log, position, end, timestamp_ms):
            batch = BatchView(data, path=path, position=at)
            batch.check()
            found = _first_as_late(batch, timestamp_ms, start_offset)
            if found is not None:
                return found
    finally:
        log.close()
    return None


def _position_before(
    filesystem: FileSystem, directory: Path, base_offset: int, end: int, timestamp_ms: int
) -> int:
    """Return the position of a batch before which all records are earlier, by the indexes."""
    names = (segment_file_name(base_offset, kind) for kind in _INDEXES)
    times, offsets = (
        read_file(filesystem, directory / name, max_bytes=_MAX_INDEX_BYTES) for name in names
    )
    if not times or not offsets:
        return 0
    times = TIME_INDEX.whole_entries(times)
    offsets = OFFSET_INDEX.whole_entries(offsets)
    time_count, times_sound = check_time_index(times)
    offset_count, offsets_sound = check_offset_index(offsets, segment_size=end)
    if not (times_sound and offsets_sound and time_count and offset_count):
        return 0
    # By the entry before: up to its offset nothing is later than its time.
    _time, offset = TimeIndexView(times, base_offset, time_count).lookup(timestamp_ms - 1)
    return OffsetIndexView(offsets, base_offset, offset_count).lookup(offset)[1]


_INDEXES: Final = (FileKind.TIME_INDEX, FileKind.OFFSET_INDEX)


def _batches_as_late(
    log: FileHandle, position: int, end: int, timestamp_ms: int
) -> Iterator[tuple[bytes, int]]:
    """Yield the batches that may have a record as late, with their positions."""
    file = HandleReader(log)
    while position < end:
        position, status = walk_headers(file, find_timestamp, timestamp_ms, position, end)
        if status not in (OK, TRUNCATED):
            raise CorruptRecordError(f"{log.path}: damage at {position}", position=position)
        header = read_whole_header(file, position, end) if status == OK else None
        if header is None:
            return
        yield log.pread(header.size_bytes, position), position
        position += header.size_bytes
