"""Damage in a file that is read piece by piece: how far it reaches, and whether it is any.

What is believed of a segment is judged as readers of an open log judge it (`kafkalog.log.judging`),
by all of its bytes: so both serve the same batches. For that alone a file is mapped, which costs
no memory that the system could not take back; where it is cut meanwhile, the judgement is one of
what is left.

Thread-safety: functions over an open file, and frozen values, from any thread; a `RangeJudge` has
state and belongs to one walk.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, replace
from typing import Final

from kafkalog._core.batch import BatchColumns, check_batch
from kafkalog._core.header import parse_header
from kafkalog._core.status import STATUS_CODES, status_name
from kafkalog._engine.snapshot import ReadBound
from kafkalog.errors import CorruptRecordError, InvalidRecordError, LogStorageError, NotALogError
from kafkalog.files.errors import ShortFileError
from kafkalog.files.filesystem import FileHandle, FileSystem
from kafkalog.files.zeros import Holes, end_of_data, find_holes, is_zero_after
from kafkalog.layout import LOG_OVERHEAD, MAGIC_POSITION, MAGIC_V2, RECORD_BATCH_OVERHEAD
from kafkalog.log.batch_walk import WalkDamage
from kafkalog.log.byte_source import ByteSource
from kafkalog.log.checkpoint_store import FileCheckpointStore
from kafkalog.log.corrupt_ranges import (
    CorruptRange,
    find_corrupt_range,
    find_resume,
    gap_around,
    join_corrupt_ranges,
    next_corrupt_range,
)
from kafkalog.log.judging import (
    Judgement,
    LogEndFacts,
    has_odd_end,
    is_whole_without_offset,
    judge_batches,
)
from kafkalog.log.partition_paths import find_partition_paths
from kafkalog.log.ranges.on_disk import SegmentOnDisk
from kafkalog.log.scanner import SegmentScan, scan_segment
from kafkalog.log.segment_damage import judge_published
from kafkalog.log.walk import WalkResult
from kafkalog.log.wrapper_checks import (
    QUESTIONED_MAX,
    Neighbour,
    WrapperChecks,
    has_wrapper,
    neighbours_in,
)

__all__ = [
    "Damage",
    "RangeJudge",
    "end_facts_of",
    "last_batch_is_odd",
]

OK: Final = STATUS_CODES["OK"]
MAGIC: Final = STATUS_CODES["MAGIC"]
OFFSET_ORDER: Final = STATUS_CODES["OFFSET_ORDER"]
BASE_OFFSET: Final = STATUS_CODES["BASE_OFFSET"]
TRUNCATED: Final = STATUS_CODES["TRUNCATED"]

PIECE_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Damage:
    """
    Bytes that a reader cannot use.

    Attributes:
        corrupt_range: the range, and the offsets that may be missing.
        unknown_magic: magic of a batch that may be whole, in an unknown format; else None.
        batch_bytes: size of a batch that is larger than allowed; else None.
    """

    corrupt_range: CorruptRange
    unknown_magic: int | None = None
    batch_bytes: int | None = None


def declared_size(head: memoryview) -> int | None:
    """Return the size of a batch by its header, None if that is damaged."""
    try:
        return parse_header(head).size_bytes
    except (CorruptRecordError, InvalidRecordError):
        return None


class RangeJudge:
    """
    The judge of walks over one segment that another process owns.

    Args:
        filesystem: the disk.
        segment: the segment.
        handle: its open `.log`.
        source: the bytes that are walked.
        checks: which of its wrappers fit between their neighbours.
        range_end: one past the last offset that is read.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        segment: SegmentOnDisk,
        handle: FileHandle,
        source: ByteSource,
        checks: WrapperChecks,
        range_end: int,
    ) -> None:
        self._filesystem = filesystem
        self._segment = segment
        self._handle = handle
        self._source = source
        self._checks = checks
        # Offset that follows the segment, or the range that is read.
        self._following = range_end if segment.following is None else segment.following
        self._ranges: tuple[CorruptRange, ...] = ()
        self._is_judged = self._is_end_judged = False
        # Scan of the last segment, as at the opening of the log, and the bytes that it is about.
        self._opening: SegmentScan | None = None
        self._opening_bytes = 0
        # Position of a cut, or of the last zeros; end of the last whole batch, and its status.
        self._size = self._whole_end = 2**63 - 1
        self._tail_status = OK
        self._questioned: frozenset[int] = frozenset()
        self._misfit: tuple[Neighbour, int] | None = None
        self._walk_end = 0

    @property
    def size(self) -> int:
        """Bytes of the file that may belong to the log."""
        return min(self._size, self._source.size_bytes)

    @property
    def end(self) -> int:
        """End of the last whole batch that is known."""
        return min(self._whole_end, self.size)

    @property
    def is_final(self) -> bool:
        """True if all damage before the end is known."""
        return self._is_judged

    def corrupt_range_from(self, position: int) -> CorruptRange | None:
        """Return the first corrupt range that ends after a position."""
        return next_corrupt_range(self._ranges, position)

    def judge(self, damage: WalkDamage, /) -> None:
        """Find all damage, unless what ended the walk is only the end of the segment."""
        following = self._segment.following
        is_complete = following is None or damage.next_offset >= following
        if (
            damage.status != OK
            and is_complete
            and is_zero_after(self._handle, damage.position, self.size)
        ):
            self._size = damage.position
        else:
            self._judge(damage.position, damage.status)

    def accepts(
        self, walk: WalkResult, origin: int, expected: int, columns: BatchColumns, /
    ) -> bool:
        """
        Return whether a walk's wrappers fit between the batches around them.

        And whether what is known of the end of the log fits its last batch.
        """
        self._misfit, self._walk_end = None, origin + walk.position
        if has_wrapper(columns, walk.count):
            batches = neighbours_in(columns, walk.count, origin)
            first, last = batches[0].position, batches[-1].end
            start, end = gap_around(self._ranges, first, last, self.end)
            self._misfit = self._checks.find_misfit(batches, start, end)
        if self._misfit is not None:
            return False
        is_last = self._segment.following is None and not self._is_end_judged
        if not is_last or self._walk_end < self.end:
            return True
        row = walk.count - 1
        end_before = int(columns.last_offset[row - 1]) + 1 if row else expected
        return not last_batch_is_odd(self._filesystem, self._segment, columns, row, end_before)

    def judge_refused(self) -> None:
        """Judge the segment, because `accepts` returned False."""
        if self._misfit is None:
            self._judge(self._walk_end, OK)
            return
        wrapper, end_before = self._misfit
        if wrapper.position in self._questioned or len(self._questioned) >= QUESTIONED_MAX:
            self._add_single_range(wrapper.position, end_before)
        else:
            self._questioned |= {wrapper.position}
            self._judge(self._walk_end, OK)

    def damage_at(self, damage: WalkDamage) -> Damage | None:
        """
        Return the damage that a walk came to.

        None where another process has changed the file since it was judged: it ends there then.
        """
        if damage.batch_bytes:
            return self._too_large(damage)
        corrupt_range = self.corrupt_range_from(damage.position)
        if corrupt_range is not None and corrupt_range.position <= damage.position:
            return damage_of(self._handle, corrupt_range, self.size)
        self._whole_end, self._tail_status = damage.position, damage.status
        return None

    def tail_damage(self, position: int, next_offset: int) -> Damage | None:
        """
        Return the bytes after the last whole batch, as damage that reaches to the end.

        None for a torn tail, which is no damage: the log ends before it, and perhaps below the
        range; nor are zeros.
        """
        following, size = self._segment.following, self.size
        is_torn = following is None and self._tail_status == TRUNCATED
        is_complete = following is None or next_offset >= following
        if is_torn or (is_complete and is_zero_after(self._handle, position, size)):
            return None
        corrupt_range = CorruptRange(
            path=self._segment.files.log,
            position=position,
            size_bytes=size - position,
            first_offset=next_offset,
            next_offset=max(self._following, next_offset),
            reason=status_name(self._tail_status),
        )
        return damage_of(self._handle, corrupt_range, size)

    def _judge(self, position: int, status: int) -> None:
        """
        Judge the segment, unless nothing whole follows the failure at a position.

        Args:
            position: position of the failure.
            status: its status; OK to judge in any case.
        """
        try:
            judgement = self._judgement(position, status)
        except (ShortFileError, LogStorageError) as error:
            # Another process has cut the file: the bytes before the cut are the log now.
            self._size = self._size_after_cut(error)
            return
        if judgement is None:
            self._whole_end, self._tail_status = position, status
            return
        self._is_judged = True
        self._is_end_judged = True
        self._ranges = join_corrupt_ranges(self._ranges, judgement.corrupt_ranges)
        self._whole_end, self._tail_status = judgement.whole_end, judgement.tail_status
        self._join_tail()

    def _judgement(self, position: int, status: int) -> Judgement | SegmentScan | None:
        handle, segment = self._handle, self._segment
        # Zeros that a writer has made ahead are not gone through.
        size = min(max(end_of_data(handle, self.size), position + 1), self.size)
        data, holes = _whole(handle, size), find_holes(handle, size)
        first_offset, offset_max = segment.base_offset, segment.offset_max
        if status not in (OK, OFFSET_ORDER, BASE_OFFSET):
            resume, _ = find_resume(data, position, size, first_offset, offset_max, holes)
            if resume == size and not is_whole_without_offset(data, position):
                return None
        if segment.following is None:
            return self._judge_last_segment(data, holes)
        return judge_batches(
            data,
            segment.files.log,
            first_offset=first_offset,
            offset_max=offset_max,
            following_offset=self._following,
            questioned=self._questioned,
            holes=holes,
        )

    def _judge_last_segment(self, data: memoryview, holes: Holes) -> SegmentScan:
        """
        Judge the last segment as an open log does: by its end at the opening, then by its readers.

        The end that the opening has found confirms the batch before it, for the later judgement of
        wrappers that do not fit.
        """
        segment, path = self._segment, self._segment.files.log
        if self._opening is None or self._opening_bytes != len(data):
            self._opening = scan_segment(
                data,
                path,
                base_offset=segment.base_offset,
                interval=len(data),
                end_facts=end_facts_of(self._filesystem, segment),
                find_holes=lambda: holes,
            )
            self._opening_bytes = len(data)
        opening = self._opening
        if not self._questioned:
            return opening
        found = judge_published(
            data[: opening.whole_end],
            path,
            ReadBound(opening.whole_end, max(opening.next_offset, opening.free_offset)),
            base_offset=segment.base_offset,
            questioned=self._questioned,
            holes=holes,
        )
        return replace(opening, corrupt_ranges=join_corrupt_ranges(opening.corrupt_ranges, found))

    def _add_single_range(self, position: int, next_offset: int) -> None:
        """Add the corrupt range of a wrapper that does not fit, though a judgement believes it."""
        end = self.end
        try:
            corrupt_range = find_corrupt_range(
                _whole(self._handle, end),
                self._segment.files.log,
                position=position,
                end=end,
                status=OFFSET_ORDER,
                next_offset=next_offset,
                offset_max=self._segment.offset_max,
                following_offset=self._following,
                holes=find_holes(self._handle, end),
            )
        except (ShortFileError, LogStorageError) as error:
            self._size = self._size_after_cut(error)
        else:
            self._ranges = join_corrupt_ranges(self._ranges, [corrupt_range])

    def _size_after_cut(self, error: OSError | LogStorageError) -> int:
        """Return the size of a file that was cut while it was read; raise what is another error."""
        present = self._handle.size()
        if present >= self.size:
            raise error
        return present

    def _join_tail(self) -> None:
        """Let damage at the end of a segment that others follow reach to the end of its file."""
        if self._segment.following is None or not self._ranges or self.end >= self.size:
            return
        last = self._ranges[-1]
        if last.end_position == self.end and not is_zero_after(self._handle, self.end, self.size):
            whole = replace(last, size_bytes=self.size - last.position)
            self._ranges = (*self._ranges[:-1], whole)
            self._whole_end = self.size

    def _too_large(self, damage: WalkDamage) -> Damage:
        """Return the damage for a batch that is whole by its header, and larger than allowed."""
        corrupt_range = CorruptRange(
            path=self._segment.files.log,
            position=damage.position,
            size_bytes=damage.batch_bytes,
            first_offset=damage.next_offset,
            next_offset=max(parse_header(damage.rest).next_offset, damage.next_offset),
            reason="TOO_LARGE",
        )
        return Damage(corrupt_range, batch_bytes=damage.batch_bytes)


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


def last_batch_is_odd(
    filesystem: FileSystem,
    segment: SegmentOnDisk,
    batches: BatchColumns,
    row: int,
    expected: int,
) -> bool:
    """
    Return whether the known end of a log may contradict its last batch.

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
        end_facts_of(filesystem, segment),
        base_offset=segment.base_offset,
        expected=expected,
        last_base=base,
        next_offset=last + 1,
    )


def end_facts_of(filesystem: FileSystem, segment: SegmentOnDisk) -> LogEndFacts:
    """Return the end of a log by checkpoints and the marker of a clean stop."""
    try:
        store = FileCheckpointStore(find_partition_paths(filesystem, segment.directory))
    except NotALogError:
        return LogEndFacts()
    recovery_point = store.read_recovery_point()
    return LogEndFacts(recovery_point, recovery_point if store.was_closed_in_order() else None)


def damage_of(handle: FileHandle, corrupt_range: CorruptRange, size: int) -> Damage:
    """Return a damaged range of a judgement as what a reader meets."""
    magic = None
    if corrupt_range.reason == status_name(MAGIC):
        data = memoryview(
            handle.pread(min(PIECE_BYTES, size - corrupt_range.position), corrupt_range.position)
        )
        magic = _unknown_magic(handle, data, corrupt_range.position, size)
    return Damage(corrupt_range, unknown_magic=magic)


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
    batch = bytearray(data[: min(end, len(data))])
    magic, batch[MAGIC_POSITION] = batch[MAGIC_POSITION], MAGIC_V2
    if check_batch(batch) == OK:
        return None
    following_bytes = handle.pread(RECORD_BATCH_OVERHEAD, position + end)
    if not following_bytes:
        return magic
    same = len(following_bytes) > MAGIC_POSITION and following_bytes[MAGIC_POSITION] == magic
    return magic if same or declared_size(memoryview(following_bytes)) is not None else None
