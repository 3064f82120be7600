"""A partition's files as one range reader sees them: which segments, and bytes of one by `pread`.

A mapped file that is cut raises an error; `pread` of a cut file returns fewer bytes. So files of
another process are not mapped, and no index either: a binary search reads a few entries of an
offset index.

Thread-safety: functions and frozen values.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafkalog._core.batch import BatchColumns
from kafkalog._core.header import BatchHeader
from kafkalog.files.filesystem import FileHandle, FileSystem
from kafkalog.files.names import FileState, SegmentFiles
from kafkalog.files.zeros import end_of_data, is_zero
from kafkalog.indexes.kinds import OFFSET_INDEX
from kafkalog.layout import RECORD_BATCH_OVERHEAD
from kafkalog.log.batch_walk import WalkDamage, WalkRange, walk_source
from kafkalog.log.byte_source import PreadSource
from kafkalog.log.exchanges import present_segments
from kafkalog.log.index_lookup import read_whole_header
from kafkalog.log.judging import OVERFLOW_MAX, RELATIVE_OFFSET_MAX
from kafkalog.log.wrapper_checks import WrapperChecks

__all__ = [
    "HandleReader",
    "SegmentOnDisk",
    "find_start",
    "floor_slot",
    "segments_of",
    "wrapper_checks_of",
]

OFFSET_MAX: Final = 2**63 - 1
BATCHES: Final = 256


@dataclass(frozen=True, slots=True)
class SegmentOnDisk:
    """
    A segment of a directory as it was listed.

    Attributes:
        directory: of the partition.
        base_offset: names it.
        following: base offset of the next one, None of the last, which may be growing.
    """

    directory: Path
    base_offset: int
    following: int | None
    state: FileState = FileState.LIVE

    @property
    def files(self) -> SegmentFiles:
        """The paths of its files."""
        return SegmentFiles(self.directory, self.base_offset, self.state)

    @property
    def largest_relative(self) -> int:
        """Largest offset that fits 32 bits above the base offset."""
        return self.base_offset + RELATIVE_OFFSET_MAX

    @property
    def offset_max(self) -> int:
        """Largest offset that it may have; those of old cleaners go further (KAFKA-6264)."""
        largest = self.base_offset + OVERFLOW_MAX
        return largest if self.following is None else min(largest, self.following - 1)


def segments_of(filesystem: FileSystem, directory: Path) -> list[SegmentOnDisk]:
    """Return the segments of a partition, ascending; none if the directory was removed."""
    try:
        bases, swapped = present_segments(filesystem, directory)
    except FileNotFoundError:
        return []
    return [
        SegmentOnDisk(
            directory, base, following, FileState.SWAP if base in swapped else FileState.LIVE
        )
        for base, following in zip(bases, [*bases[1:], None], strict=True)
    ]


def floor_slot(segments: Sequence[SegmentOnDisk], offset: int) -> int:
    """Return the number of the segment that may have an offset, -1 if it is below all."""
    return bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1


class HandleReader:
    """An open file, read at any position (`ReadsAt`)."""

    __slots__ = ("_handle",)

    def __init__(self, handle: FileHandle) -> None:
        self._handle = handle

    def read(self, position: int, size: int) -> memoryview:
        return memoryview(self._handle.pread(size, position))


def find_start(
    filesystem: FileSystem, segment: SegmentOnDisk, handle: FileHandle, size: int, offset: int
) -> tuple[int, int]:
    """
    Return where to begin reading for `offset`, and the smallest offset that may come there.

    The batch with it begins there or later, by an entry of the index that the header there
    confirms; without one the position is the start of the segment.

    Args:
        filesystem: the disk.
        segment: the segment.
        handle: its open `.log`.
        size: bytes of that.
        offset: what is sought.
    """
    if offset <= segment.base_offset:
        return 0, segment.base_offset
    for entry_offset, position in _entries_before(filesystem, segment, offset):
        if position <= 0:
            break
        header = _promised(handle, segment, size, entry_offset, position)
        if header is None:
            # After one wrong entry the others are not trusted either.
            break
        if header.base_offset <= offset:
            return position, max(header.base_offset, segment.base_offset)
    return 0, segment.base_offset


def wrapper_checks_of(
    filesystem: FileSystem, segment: SegmentOnDisk, handle: FileHandle, size: int
) -> WrapperChecks:
    """
    Return what holds wrappers of a segment against their neighbours.

    Args:
        filesystem: the disk.
        segment: the segment.
        handle: its open `.log`.
        size: bytes of that.
    """

    def start_before(offset: int, start: int) -> int:
        for entry_offset, position in _entries_before(filesystem, segment, offset):
            if position < start:
                header = _promised(handle, segment, size, entry_offset, position)
                return 0 if header is None else position
        return 0

    def end_before(base_offset: int) -> int:
        segments = segments_of(filesystem, segment.directory)
        slot = floor_slot(segments, base_offset) - 1
        return 0 if slot < 0 else _end_offset(filesystem, segments[slot])

    return WrapperChecks(HandleReader(handle), segment.base_offset, start_before, end_before)


def _end_offset(filesystem: FileSystem, segment: SegmentOnDisk) -> int:
    """Return one above the last offset of a segment, 0 where its last batches are no whole ones."""
    handle = filesystem.open(segment.files.log)
    try:
        size = end_of_data(handle, handle.size())
        position, expected = find_start(filesystem, segment, handle, size, OFFSET_MAX)
        is_broken = False

        def stop(damage: WalkDamage) -> None:
            nonlocal is_broken
            is_broken = not is_zero(damage.rest[:RECORD_BATCH_OVERHEAD])

        for walked in walk_source(
            PreadSource(handle, size),
            WalkRange(position, size, expected, OFFSET_MAX),
            BatchColumns(BATCHES),
            on_damage=stop,
        ):
            expected = walked.next_offset
        return 0 if is_broken else expected
    finally:
        handle.close()


def _promised(
    handle: FileHandle, segment: SegmentOnDisk, size: int, entry_offset: int, position: int
) -> BatchHeader | None:
    header = read_whole_header(HandleReader(handle), position, size)
    if header is None or header.base_offset < segment.base_offset:
        return None
    # A wrapper of an old format has its last offset, and may begin below the entry.
    return header if header.is_wrapper or header.base_offset <= entry_offset else None


def _entries_before(
    filesystem: FileSystem, segment: SegmentOnDisk, offset: int
) -> Iterator[tuple[int, int]]:
    """Yield the index entries at and below an offset, from the highest down."""
    try:
        handle = filesystem.open(segment.files.offset_index)
    except FileNotFoundError:
        return
    try:
        low, high = 0, handle.size() // OFFSET_INDEX.entry.size
        while low < high:
            middle = (low + high) // 2
            relative, position = _entry(handle, middle)
            # A preallocated file has zeros after the last entry.
            is_used = position > 0 or middle == 0
            if is_used and segment.base_offset + relative <= offset:
                low = middle + 1
            else:
                high = middle
        for slot in range(low - 1, -1, -1):
            relative, position = _entry(handle, slot)
            yield segment.base_offset + relative, position
    finally:
        handle.close()


def _entry(handle: FileHandle, slot: int) -> tuple[int, int]:
    data = handle.pread(OFFSET_INDEX.entry.size, slot * OFFSET_INDEX.entry.size)
    if len(data) < OFFSET_INDEX.entry.size:
        return 0, 0  # cut meanwhile
    relative, position = OFFSET_INDEX.entry.unpack(data)
    return relative, position
