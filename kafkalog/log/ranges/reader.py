"""One range of offsets of a partition as slices of batches, read by `pread` piece by piece.

    directory -> segments -> pieces of their files -> whole batches in them -> batch_slices

What a scan of an open log gives, this gives of files that belong to somebody else: a writer that
appends, a cleaner that exchanges segments, a broker that truncates. The range was settled before,
by whoever knows where the log begins and ends; nothing behind it is looked at. Holes are normal.

When files go away under the reader it lists the directory anew and goes on by offset, as often as
nothing came between. What the log has lost then is told to `on_missing`, damage to `on_damage`:
they raise, or let the reader go on behind it.

Memory: one piece, or one batch that is larger.

Thread-safety: none; a reader is one thread's. It writes nothing, and maps a file only to judge one
that is damaged, as an open log does (`damage.py`).
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Final

from kafkalog._core.batch import BatchColumns
from kafkalog._core.header import BatchHeader, parse_header
from kafkalog._core.status import STATUS_CODES
from kafkalog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    LogStorageError,
    OffsetOutOfRangeError,
)
from kafkalog.files.errors import ShortFileError, storage_errors
from kafkalog.files.filesystem import FileHandle, FileSystem
from kafkalog.files.zeros import is_zero
from kafkalog.layout import CODEC_MASK, RECORD_BATCH_OVERHEAD
from kafkalog.log.corrupt_ranges import CorruptRange, join_corrupt_ranges
from kafkalog.log.ranges.damage import (
    Damage,
    cut_size,
    damage_of,
    declared_size,
    ends_in_zeros,
    judge_segment,
    last_batch_is_odd,
    single_corrupt_range,
    tail_damage,
    too_large,
)
from kafkalog.log.ranges.on_disk import (
    FileWindow,
    SegmentOnDisk,
    find_start,
    floor_slot,
    segments_of,
    wrapper_checks_of,
)
from kafkalog.log.scan.batch_slices import (
    BatchSlice,
    count_below,
    kind_edges,
    leave_out_aborted,
    wanted_batches,
)
from kafkalog.log.scan.conditions import Integers
from kafkalog.log.walk import WalkResult, walk_batches
from kafkalog.log.wrapper_checks import (
    QUESTIONED_MAX,
    WrapperChecks,
    has_wrapper,
    neighbours_in,
)

__all__ = ["PIECE_BYTES", "RangeReader"]

OK: Final = STATUS_CODES["OK"]
FULL: Final = STATUS_CODES["FULL"]
TRUNCATED: Final = STATUS_CODES["TRUNCATED"]

# Decoded while it is in the second cache.
PIECE_BYTES: Final = 1024 * 1024
# Headers of one walk over a piece; a piece with more of them is walked in several.
BATCHES: Final = 4096
# Waits before looking again where a file has gone: longer than an exchange of segments takes.
PAUSE_SECONDS: Final = 0.01
PAUSE_GROWTH: Final = 4
_end_of = attrgetter("end_position")


@dataclass(slots=True)
class _SegmentCursor:
    """
    How far a segment was read.

    Attributes:
        segment, handle: the segment, and its open `.log`.
        checks: which of its wrappers fit between their neighbours.
        size: bytes of the file.
        position: of the next batch.
        expected: the least offset that it may have.
        piece_bytes: how much is read next.
        is_rejected: whether the next piece is read with a look at every sum.
        corrupt_ranges: what is damaged in the segment, once that was judged.
        is_judged: whether it was.
        is_end_judged: whether it was by what is known of the end of the log.
        end_position: one past the last whole batch, None while nobody has looked.
        tail_status: what fails there.
        questioned: where wrappers begin that do not fit between their neighbours.
    """

    segment: SegmentOnDisk
    handle: FileHandle
    checks: WrapperChecks
    size: int
    position: int
    expected: int
    piece_bytes: int
    is_rejected: bool = False
    corrupt_ranges: tuple[CorruptRange, ...] = ()
    is_judged: bool = False
    is_end_judged: bool = False
    end_position: int | None = None
    tail_status: int = OK
    questioned: frozenset[int] = frozenset()

    @property
    def end(self) -> int:
        """Where batches end, as far as that is known."""
        return self.size if self.end_position is None else min(self.end_position, self.size)

    def next_corrupt_range(self) -> CorruptRange | None:
        """Return the first damaged range that ends behind the position."""
        return next(
            (each for each in self.corrupt_ranges if each.end_position > self.position), None
        )


class RangeReader:
    """
    Reads the batches with the offsets of a range.

    Args:
        filesystem: the disk.
        directory: the partition's.
        start, end: first offset wanted, and one past the last.
        timestamps: those that are wanted.
        is_hidden: says of a transactional batch whether it was aborted; None to give them all.
        check_crcs: whether sums are checked; what contradicts itself is noticed without.
        max_batch_bytes: a larger batch is damage.
        retries: how often to go on, without progress, where the disk refuses or a file has gone.
        on_damage: told of damage that may hide offsets of the range.
        on_missing: told of offsets of the range that the log does not have any more; returns where
            to go on.
        pause: waits so many seconds.
        piece_bytes: how much is read at a time.

    Attributes:
        next_offset: how far reading has come.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        directory: Path,
        start: int,
        end: int,
        *,
        timestamps: Integers,
        is_hidden: Callable[[BatchHeader], bool] | None,
        check_crcs: bool,
        max_batch_bytes: int,
        retries: int,
        on_damage: Callable[[Damage], None],
        on_missing: Callable[[OffsetOutOfRangeError], int],
        pause: Callable[[float], None] = time.sleep,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        self.next_offset = start
        self._filesystem = filesystem
        self._directory = directory
        self._start = start
        self._end = end
        self._timestamps = timestamps
        self._is_hidden = is_hidden
        self._check_crcs = check_crcs
        self._max_batch_bytes = max_batch_bytes
        self._retries = retries
        self._on_damage = on_damage
        self._on_missing = on_missing
        self._pause = pause
        self._piece_bytes = piece_bytes
        self._window = FileWindow(piece_bytes)
        self._batches = BatchColumns(BATCHES)

    def batch_slices(self) -> Iterator[BatchSlice]:
        """
        Yield the slices, each good until the next is asked for.

        Raises:
            LogStorageError: the disk refused, more often than is to be retried.
        """
        failures = 0
        while True:
            reached = self.next_offset
            try:
                with storage_errors(self._directory, doing="reading"):
                    yield from self._read_segments()
                    return
            except LogStorageError:
                failures = 0 if self.next_offset > reached else failures
                if failures >= self._retries:
                    raise
            self._pause(PAUSE_SECONDS * PAUSE_GROWTH**failures)
            failures += 1

    def _read_segments(self) -> Iterator[BatchSlice]:
        segments = segments_of(self._filesystem, self._directory)
        slot = floor_slot(segments, self.next_offset)
        if slot < 0:
            first = segments[0].base_offset if segments else self._end
            go_on = max(self._report_missing(self.next_offset, segments), first)
            self.next_offset = max(min(go_on, self._end), self.next_offset)
            slot = max(floor_slot(segments, self.next_offset), 0)
        for segment in segments[slot:]:
            if max(segment.base_offset, self.next_offset) >= self._end:
                return
            yield from self._read_segment(segment)
            if segment.following is not None:
                self.next_offset = max(self.next_offset, min(segment.following, self._end))
        if self.next_offset < self._end and segments:
            # A log that ends with an empty segment ends with its base.
            self.next_offset = max(self.next_offset, segments[-1].base_offset)
            if self.next_offset < self._end:
                self._report_missing(self._end, segments)

    def _report_missing(self, requested: int, segments: list[SegmentOnDisk]) -> int:
        start = segments[0].base_offset if segments else self._end
        end = max(self.next_offset, segments[-1].base_offset) if segments else start
        return self._on_missing(
            OffsetOutOfRangeError(
                f"offsets {self._start} to {self._end - 1} were there when they were asked for;"
                f" {self._directory} holds {start} to {end - 1} now",
                requested=requested,
                log_start_offset=start,
                log_end_offset=end,
                path=self._directory,
            )
        )

    def _read_segment(self, segment: SegmentOnDisk) -> Iterator[BatchSlice]:
        handle = self._filesystem.open(segment.files.log)
        try:
            size = handle.size()
            position, expected = find_start(
                self._filesystem, segment, handle, size, self.next_offset
            )
            checks = wrapper_checks_of(self._filesystem, segment, handle, size)
            cursor = _SegmentCursor(
                segment, handle, checks, size, position, expected, self._piece_bytes
            )
            while cursor.position < cursor.size and cursor.expected < self._end:
                yield from self._read_piece(cursor)
        finally:
            handle.close()

    def _read_piece(self, cursor: _SegmentCursor) -> Iterator[BatchSlice]:
        """Yield what the next piece of a segment has, and bring the place behind it."""
        corrupt_range = cursor.next_corrupt_range()
        if corrupt_range is not None and corrupt_range.position <= cursor.position:
            self._skip(cursor, damage_of(cursor.handle, corrupt_range, cursor.size))
            return
        if cursor.position >= cursor.end:
            self._skip_tail(cursor)
            return
        stop = cursor.end if corrupt_range is None else corrupt_range.position
        data = self._read(cursor, stop)
        if not data:
            return
        batches = self._batches
        batches.clear()
        walk = walk_batches(
            data,
            0,
            batches,
            # What lies between damaged ranges is believed.
            next_offset=0 if cursor.is_judged else cursor.expected,
            offset_max=cursor.segment.offset_max,
            check_crc=cursor.is_rejected,
        )
        if not walk.count:
            walk = replace(walk, next_offset=cursor.expected)
        is_cut = walk.status == TRUNCATED and cursor.position + len(data) < min(stop, cursor.size)
        if is_cut and not walk.count:
            damage = self._grow(cursor, data)
            if damage is not None:
                self._skip(cursor, damage)
                return
            if cursor.piece_bytes > len(data):
                return
        is_whole = walk.status in (OK, FULL) or (is_cut and walk.count > 0)
        is_followed = not is_whole or self._is_followed(cursor, data, walk, stop)
        if not (is_whole and is_followed) and not cursor.is_rejected:
            # Once more, with a look at every sum: what that finds is what counts.
            cursor.is_rejected = True
            return
        position = cursor.position + walk.position
        if not is_whole:
            self._end_batches(cursor, walk, position)
        elif not is_followed:
            self._judge(cursor, position, OK)
        elif not self._fits(cursor, walk, stop):
            return
        elif self._has_odd_end(cursor, walk):
            self._judge(cursor, position, OK)
        else:
            yield from self._yield_slices(cursor, data, walk)

    def _is_followed(
        self, cursor: _SegmentCursor, data: memoryview, walk: WalkResult, stop: int
    ) -> bool:
        """
        Say whether the last batch of a walk has one behind it that begins where it may.

        The walk has seen that itself but for the last batch of a piece.
        """
        position = cursor.position + walk.position
        if cursor.is_judged or position >= min(stop, cursor.size):
            return True
        head = data[walk.position : walk.position + RECORD_BATCH_OVERHEAD]
        if len(head) < RECORD_BATCH_OVERHEAD:
            head = memoryview(cursor.handle.pread(RECORD_BATCH_OVERHEAD, position))
        if is_zero(head):
            return True
        try:
            return parse_header(head).base_offset >= walk.next_offset
        except (CorruptRecordError, InvalidRecordError):
            return False

    def _fits(self, cursor: _SegmentCursor, walk: WalkResult, stop: int) -> bool:
        """Hold wrappers that a walk has found against what is around them; judge what is odd."""
        if not has_wrapper(self._batches, walk.count):
            return True
        batches = neighbours_in(self._batches, walk.count, cursor.position)
        before = bisect_right(cursor.corrupt_ranges, cursor.position, key=_end_of)
        start = cursor.corrupt_ranges[before - 1].end_position if before else 0
        found = cursor.checks.find_misfit(batches, start, stop)
        if found is None:
            return True
        if not cursor.is_rejected:
            # Once more, with a look at every sum.
            cursor.is_rejected = True
            return False
        wrapper, end_before = found
        if wrapper.position in cursor.questioned or len(cursor.questioned) >= QUESTIONED_MAX:
            self._add_single_corrupt_range(cursor, wrapper.position, end_before)
        else:
            cursor.questioned |= {wrapper.position}
            position = cursor.position + walk.position
            self._judge(cursor, position, OK, judges_end=wrapper.end >= cursor.end)
        return False

    def _add_single_corrupt_range(
        self, cursor: _SegmentCursor, position: int, next_offset: int
    ) -> None:
        """Take note of a wrapper that does not fit, though a judgement has found nothing in it."""
        following = cursor.segment.following
        try:
            corrupt_range = single_corrupt_range(
                cursor.handle,
                cursor.segment,
                cursor.end,
                position=position,
                next_offset=next_offset,
                following=self._end if following is None else following,
            )
        except (ShortFileError, LogStorageError) as error:
            cursor.size = cut_size(cursor.handle, cursor.size, error)
            return
        cursor.corrupt_ranges = join_corrupt_ranges(cursor.corrupt_ranges, [corrupt_range])

    def _yield_slices(
        self, cursor: _SegmentCursor, data: memoryview, walk: WalkResult
    ) -> Iterator[BatchSlice]:
        """Yield what a walk has found, and bring the place behind it."""
        batches = self._batches
        count = count_below(batches, walk, cursor.expected, self._end)
        for batch_slice in self._batch_slices(cursor, data, count):
            yield batch_slice
            if batch_slice.rejected_row is not None:
                self._resume_at(cursor, batch_slice.rejected_row)
                return
            self.next_offset = max(self.next_offset, batch_slice.next_offset)
        if count < walk.count:
            cursor.expected = self._end
            self.next_offset = self._end
            return
        cursor.position += walk.position
        cursor.expected = walk.next_offset
        cursor.is_rejected = False
        cursor.piece_bytes = self._piece_bytes

    def _has_odd_end(self, cursor: _SegmentCursor, walk: WalkResult) -> bool:
        """Say whether what is known of the end of the log may contradict its last batch."""
        is_last = cursor.segment.following is None and not cursor.is_end_judged
        if not is_last or not walk.count or cursor.position + walk.position < cursor.end:
            return False
        row = walk.count - 1
        before = int(self._batches.last_offset[row - 1]) + 1 if row else cursor.expected
        return last_batch_is_odd(self._filesystem, cursor.segment, self._batches, row, before)

    def _end_batches(self, cursor: _SegmentCursor, walk: WalkResult, position: int) -> None:
        """Take note of the end of the batches, or of what is damaged."""
        following = cursor.segment.following
        if cursor.is_judged:
            # Somebody has changed the file meanwhile.
            cursor.end_position, cursor.tail_status = position, walk.status
            return
        is_complete = following is None or walk.next_offset >= following
        if is_complete and ends_in_zeros(cursor.handle, position, cursor.size):
            cursor.size = position
        else:
            self._judge(cursor, position, walk.status)

    def _judge(
        self, cursor: _SegmentCursor, position: int, status: int, *, judges_end: bool = True
    ) -> None:
        """Judge a segment, unless what failed at a position is only its end."""
        segment = cursor.segment
        following = self._end if segment.following is None else segment.following
        try:
            judgement = judge_segment(
                self._filesystem,
                cursor.handle,
                segment,
                cursor.size,
                position=position,
                status=status,
                following=following,
                questioned=cursor.questioned,
                judges_end=judges_end,
            )
        except (ShortFileError, LogStorageError) as error:
            # Somebody has cut the file: what lies before the cut is the log now.
            cursor.size = cut_size(cursor.handle, cursor.size, error)
            return
        if judgement is None:
            cursor.end_position, cursor.tail_status = position, status
            return
        cursor.is_judged = True
        cursor.is_end_judged |= judges_end
        cursor.corrupt_ranges = join_corrupt_ranges(cursor.corrupt_ranges, judgement.corrupt_ranges)
        cursor.end_position, cursor.tail_status = judgement.whole_end, judgement.tail_status
        self._join_tail(cursor)

    def _join_tail(self, cursor: _SegmentCursor) -> None:
        """Let damage at the end of a segment that others follow reach to the end of its file."""
        if (
            cursor.segment.following is None
            or not cursor.corrupt_ranges
            or cursor.end >= cursor.size
        ):
            return
        last = cursor.corrupt_ranges[-1]
        if last.end_position == cursor.end and not ends_in_zeros(
            cursor.handle, cursor.end, cursor.size
        ):
            whole = replace(last, size_bytes=cursor.size - last.position)
            cursor.corrupt_ranges = (*cursor.corrupt_ranges[:-1], whole)
            cursor.end_position = cursor.size

    def _skip_tail(self, cursor: _SegmentCursor) -> None:
        """Go to the end of the file from behind its last whole batch."""
        following, position = cursor.segment.following, cursor.position
        is_torn = following is None and cursor.tail_status == TRUNCATED
        is_complete = following is None or cursor.expected >= following
        # A torn tail is no damage: the log ends before it, and perhaps below the range.
        if is_torn or (is_complete and ends_in_zeros(cursor.handle, position, cursor.size)):
            cursor.position = cursor.size
            return
        damage = tail_damage(
            cursor.handle,
            cursor.segment,
            position=position,
            size=cursor.size,
            status=cursor.tail_status,
            next_offset=cursor.expected,
            following=self._end if following is None else following,
        )
        self._skip(cursor, damage)

    def _read(self, cursor: _SegmentCursor, stop: int) -> memoryview:
        wanted = min(cursor.piece_bytes, stop - cursor.position)
        data = self._window.read(cursor.handle, cursor.position, wanted)
        if len(data) < wanted:
            # Somebody has cut the file: what lies before the cut is the log now.
            cursor.size = cursor.position + len(data)
        return data

    def _grow(self, cursor: _SegmentCursor, data: memoryview) -> Damage | None:
        """Make the piece as large as the batch it begins with; or return that as damage."""
        needed = declared_size(data[:RECORD_BATCH_OVERHEAD])
        if needed is None or cursor.position + needed > cursor.size:
            return None
        if needed > self._max_batch_bytes:
            return too_large(
                cursor.handle, cursor.segment, cursor.position, needed, cursor.expected
            )
        cursor.piece_bytes = needed
        return None

    def _batch_slices(
        self, cursor: _SegmentCursor, data: memoryview, count: int
    ) -> Iterator[BatchSlice]:
        batches = self._batches
        wanted = wanted_batches(batches, count, self._timestamps)
        wanted &= batches.last_offset[:count] >= self._start
        if self._is_hidden is not None:
            leave_out_aborted(wanted, batches, data, self._is_hidden)
        is_plain = batches.attributes[:count] & CODEC_MASK == 0
        for first, stop in pairwise(kind_edges(wanted, is_plain)):
            yield BatchSlice(
                cursor.segment.files.log,
                data,
                batches,
                first,
                stop,
                is_wanted=bool(wanted[first]),
                is_plain=bool(is_plain[first]),
                is_checked=cursor.is_rejected or not self._check_crcs,
                origin=cursor.position,
            )

    def _resume_at(self, cursor: _SegmentCursor, row: int) -> None:
        """Let the next piece begin with a batch of this one whose sum is wrong."""
        batches = self._batches
        if row:
            cursor.expected = int(batches.last_offset[row - 1]) + 1
        cursor.position += int(batches.position[row])
        cursor.is_rejected = True

    def _skip(self, cursor: _SegmentCursor, damage: Damage) -> None:
        """Tell of damage where it concerns the range, and go behind it."""
        corrupt_range = damage.corrupt_range
        if corrupt_range.first_offset < self._end and corrupt_range.next_offset > self._start:
            self._on_damage(damage)
        cursor.position = corrupt_range.end_position
        # What lies may name offsets that the next segment has.
        following = cursor.segment.following
        behind = (
            corrupt_range.next_offset
            if following is None
            else min(corrupt_range.next_offset, following)
        )
        cursor.expected = max(cursor.expected, behind)
        cursor.is_rejected = False
        cursor.piece_bytes = self._piece_bytes
        self.next_offset = max(self.next_offset, min(behind, self._end))
