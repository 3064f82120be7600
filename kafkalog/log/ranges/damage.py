"""Damage in a file that is read piece by piece: how far it reaches, and whether it is any.

What is believed of a segment is judged as readers of an open log judge it (`kafkalog.log.judging`),
by all of its bytes: so both serve the same batches. For that alone a file is mapped, which costs
no memory that the system could not take back; where it is cut meanwhile, the judgement is one of
what is left.

Thread-safety: functions over an open file, and frozen values.
"""

from __future__ import annotations

import errno
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from kafkalog._core.batch import BatchColumns, check_batch
from kafkalog._core.header import parse_header
from kafkalog._core.status import STATUS_CODES, status_name
from kafkalog.errors import CorruptRecordError, InvalidRecordError, LogStorageError, NotALogError
from kafkalog.files.errors import ShortFileError
from kafkalog.files.filesystem import FileHandle, FileSystem
from kafkalog.files.zeros import data_between, end_of_data, find_holes, is_zero
from kafkalog.layout import LOG_OVERHEAD, MAGIC_POSITION, MAGIC_V2, RECORD_BATCH_OVERHEAD
from kafkalog.log.corrupt_ranges import CorruptRange, find_corrupt_range, find_resume
from kafkalog.log.judging import (
    Judgement,
    KnownEnd,
    has_odd_end,
    is_whole_without_offset,
    judge_batches,
)
from kafkalog.log.partition_paths import find_partition_paths
from kafkalog.log.ranges.on_disk import SegmentOnDisk

__all__ = [
    "Damage",
    "cut_size",
    "damage_of",
    "declared_size",
    "ends_in_zeros",
    "judge_segment",
    "known_end_of",
    "last_batch_is_odd",
    "single_corrupt_range",
    "tail_damage",
    "too_large",
]

OK: Final = STATUS_CODES["OK"]
MAGIC: Final = STATUS_CODES["MAGIC"]
OFFSET_ORDER: Final = STATUS_CODES["OFFSET_ORDER"]
BASE_OFFSET: Final = STATUS_CODES["BASE_OFFSET"]

PIECE_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Damage:
    """
    Bytes that a reader cannot use.

    Attributes:
        corrupt_range: where, and which offsets may be missing.
        unknown_magic: of a batch that may be whole, in a format that nobody here knows; else None.
        batch_bytes: size of a batch that is larger than allowed; else None.
    """

    corrupt_range: CorruptRange
    unknown_magic: int | None = None
    batch_bytes: int | None = None


def declared_size(head: memoryview) -> int | None:
    """Return the size that a batch says it has, None where its header is damaged."""
    try:
        return parse_header(head).size_bytes
    except (CorruptRecordError, InvalidRecordError):
        return None


def ends_in_zeros(handle: FileHandle, position: int, size: int) -> bool:
    """Say whether only zeros follow: room that was made ahead of appends."""
    for start, stop in data_between(find_holes(handle, size), position, size):
        while start < stop:
            piece = handle.pread(min(PIECE_BYTES, stop - start), start)
            if not piece:
                return True
            if not is_zero(piece):
                return False
            start += len(piece)
    return True


def too_large(
    handle: FileHandle,
    segment: SegmentOnDisk,
    position: int,
    batch_bytes: int,
    next_offset: int,
) -> Damage:
    """Return what stands for a batch that is whole by its header, and larger than allowed."""
    head = memoryview(handle.pread(RECORD_BATCH_OVERHEAD, position))
    corrupt_range = CorruptRange(
        path=segment.files.log,
        position=position,
        size_bytes=batch_bytes,
        first_offset=next_offset,
        next_offset=max(parse_header(head).next_offset, next_offset),
        reason="TOO_LARGE",
    )
    return Damage(corrupt_range, batch_bytes=batch_bytes)


def judge_segment(
    filesystem: FileSystem,
    handle: FileHandle,
    segment: SegmentOnDisk,
    size: int,
    *,
    position: int,
    status: int,
    following: int,
    questioned: Collection[int] = (),
    judges_end: bool = True,
) -> Judgement | None:
    """
    Return what is believed of a segment; None where nothing whole lies behind what failed.

    Args:
        filesystem: the disk.
        handle: the open `.log`.
        segment: whose it is.
        size: bytes of the file.
        position: where a walk stopped.
        status: why; OK to judge in any case.
        following: offset that follows the segment, or the range that is read.
        questioned: where wrappers begin whose records do not fit between their neighbours.
        judges_end: whether what is known of the end of the log is held against its last batch.

    Raises:
        ShortFileError: the file was cut.
        LogStorageError: it was cut meanwhile, or the disk does not give it.
    """
    # Room that a writer has made ahead is not gone through.
    size = min(max(end_of_data(handle, size), position + 1), size)
    data, holes = _whole(handle, size), find_holes(handle, size)
    first_offset, offset_max = segment.base_offset, segment.offset_max
    if status not in (OK, OFFSET_ORDER, BASE_OFFSET):
        resume, _ = find_resume(data, position, size, first_offset, offset_max, holes)
        if resume == size and not is_whole_without_offset(data, position):
            return None
    judges_end = judges_end and segment.following is None
    return judge_batches(
        data,
        segment.files.log,
        first_offset=first_offset,
        offset_max=offset_max,
        following_offset=following,
        known_end=known_end_of(filesystem, segment) if judges_end else None,
        questioned=questioned,
        holes=holes,
    )


def single_corrupt_range(
    handle: FileHandle,
    segment: SegmentOnDisk,
    size: int,
    *,
    position: int,
    next_offset: int,
    following: int,
) -> CorruptRange:
    """
    Return the damaged range of one wrapper whose records do not fit between its neighbours.

    Args:
        handle: the open `.log`.
        segment: whose it is.
        size: where its whole batches end.
        position: where the wrapper begins.
        next_offset: the end of the batch before.
        following: offset that follows the segment, or the range that is read.

    Raises:
        ShortFileError: the file was cut.
        LogStorageError: it was cut meanwhile, or the disk does not give it.
    """
    return find_corrupt_range(
        _whole(handle, size),
        segment.files.log,
        position=position,
        end=size,
        status=OFFSET_ORDER,
        next_offset=next_offset,
        offset_max=segment.offset_max,
        following_offset=following,
        holes=find_holes(handle, size),
    )


def _whole(handle: FileHandle, size: int) -> memoryview:
    """Return the first bytes of a file, mapped, or copied where the system maps none."""
    try:
        return handle.map(size)
    except ShortFileError:
        raise
    except OSError as error:
        if error.errno not in (errno.ENODEV, errno.EACCES, errno.ENOMEM):
            raise
    data = memoryview(handle.pread(size, 0))
    if len(data) < size:
        raise ShortFileError(handle.path, len(data), size)
    return data


def cut_size(handle: FileHandle, size: int, error: OSError | LogStorageError) -> int:
    """Return the size of a file that was cut while it was read; raise what is another error."""
    present = handle.size()
    if present >= size:
        raise error
    return present


def last_batch_is_odd(
    filesystem: FileSystem,
    segment: SegmentOnDisk,
    batches: BatchColumns,
    row: int,
    expected: int,
) -> bool:
    """
    Say whether what is known of the end of a log may contradict its last batch.

    Args:
        filesystem: the disk.
        segment: the last one.
        batches: its header, among others.
        row: which of them it is.
        expected: the end of those before it.
    """
    base, last = int(batches.base_offset[row]), int(batches.last_offset[row])
    if base <= expected and last <= segment.largest_relative:
        return False
    return has_odd_end(
        known_end_of(filesystem, segment),
        base_offset=segment.base_offset,
        expected=expected,
        last_base=base,
        next_offset=last + 1,
    )


def known_end_of(filesystem: FileSystem, segment: SegmentOnDisk) -> KnownEnd:
    """Return what checkpoints and the marker of a clean stop say of the end of a log."""
    try:
        paths = find_partition_paths(filesystem, segment.directory)
    except NotALogError:
        return KnownEnd()
    recovery_point = paths.read_recovery_point()
    return KnownEnd(recovery_point, recovery_point if paths.was_closed_in_order() else None)


def damage_of(handle: FileHandle, corrupt_range: CorruptRange, size: int) -> Damage:
    """Return a damaged range of a judgement as what a reader meets."""
    magic = None
    if corrupt_range.reason == status_name(MAGIC):
        data = memoryview(
            handle.pread(min(PIECE_BYTES, size - corrupt_range.position), corrupt_range.position)
        )
        magic = _unknown_magic(handle, data, corrupt_range.position, size)
    return Damage(corrupt_range, unknown_magic=magic)


def tail_damage(
    handle: FileHandle,
    segment: SegmentOnDisk,
    *,
    position: int,
    size: int,
    status: int,
    next_offset: int,
    following: int,
) -> Damage:
    """Return what lies behind the last whole batch, as damage that reaches to the end."""
    corrupt_range = CorruptRange(
        path=segment.files.log,
        position=position,
        size_bytes=size - position,
        first_offset=next_offset,
        next_offset=max(following, next_offset),
        reason=status_name(status),
    )
    return damage_of(handle, corrupt_range, size)


def _unknown_magic(handle: FileHandle, data: memoryview, position: int, size: int) -> int | None:
    """
    Return the magic of a batch that may be whole in a format of the future, None if it is damaged.

    The CRC does not cover the magic: a batch of today of which that byte alone was hit has the sum
    of today. One of the future has a length that leads to another batch, or to the end.
    """
    if len(data) < RECORD_BATCH_OVERHEAD:
        return None
    length = int.from_bytes(data[LOG_OVERHEAD - 4 : LOG_OVERHEAD], "big", signed=True)
    end = LOG_OVERHEAD + length
    if length <= 0 or position + end > size:
        return None
    known = bytearray(data[: min(end, len(data))])
    magic, known[MAGIC_POSITION] = known[MAGIC_POSITION], MAGIC_V2
    if check_batch(known) == OK:
        return None
    behind = handle.pread(RECORD_BATCH_OVERHEAD, position + end)
    if not behind:
        return magic
    same = len(behind) > MAGIC_POSITION and behind[MAGIC_POSITION] == magic
    return magic if same or declared_size(memoryview(behind)) is not None else None
