"""One range of offsets of a partition as stretches of batches, read by `pread` piece by piece.

    directory -> segments -> pieces of their files -> whole batches in them -> stretches

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
from kafkalog.log.fences import FencedRange, join_fences
from kafkalog.log.ranges.damage import (
    Damage,
    cut_size,
    damage_of,
    declared_size,
    ends_in_zeros,
    fence_alone,
    judge_segment,
    last_batch_is_odd,
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
from kafkalog.log.scan.conditions import Integers
from kafkalog.log.scan.stretches import (
    Stretch,
    count_below,
    kind_edges,
    leave_out_aborted,
    wanted_batches,
)
from kafkalog.log.walk import Walk, walk_batches
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
class _Place:
    """
    How far a segment was read.

    Attributes:
        segment, handle: the segment, and its open `.log`.
        checks: which of its wrappers fit between their neighbours.
        size: bytes of the file.
        position: of the next batch.
        expected: the least offset that it may have.
        piece_bytes: how much is read next.
        is_doubted: whether the next piece is read with a look at every sum.
        fences: what is damaged in the segment, once that was judged.
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
    is_doubted: bool = False
    fences: tuple[FencedRange, ...] = ()
    is_judged: bool = False
    is_end_judged: bool = False
    end_position: int | None = None
    tail_status: int = OK
    questioned: frozenset[int] = frozenset()

    @property
    def end(self) -> int:
        """Where batches end, as far as that is known."""
        return self.size if self.end_position is None else min(self.end_position, self.size)

    def next_fence(self) -> FencedRange | None:
        """Return the first damaged range that ends behind the position."""
        return next((each for each in self.fences if each.end_position > self.position), None)


class RangeReader:
    """
    Reads the batches with the offsets of a range.

    Args:
        filesystem: the disk.
        directory: the partition's.
        start, end: first offset wanted, and one past the last.
        timestamps: those that are wanted.
        hides: says of a transactional batch whether it was aborted; None to give them all.
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
        hides: Callable[[BatchHeader], bool] | None,
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
        self._hides = hides
        self._check_crcs = check_crcs
        self._max_batch_bytes = max_batch_bytes
        self._retries = retries
        self._on_damage = on_damage
        self._on_missing = on_missing
        self._pause = pause
        self._piece_bytes = piece_bytes
        self._window = FileWindow(piece_bytes)
        self._batches = BatchColumns(BATCHES)

    def stretches(self) -> Iterator[Stretch]:
        """
        Yield the stretches, each good until the next is asked for.

        Raises:
            LogStorageError: the disk refused, more often than is to be retried.
        """
        failures = 0
        while True:
            reached = self.next_offset
            try:
                with storage_errors(self._directory, doing="reading"):
                    yield from self._over_segments()
                    return
            except LogStorageError:
                failures = 0 if self.next_offset > reached else failures
                if failures >= self._retries:
                    raise
            self._pause(PAUSE_SECONDS * PAUSE_GROWTH**failures)
            failures += 1

    def _over_segments(self) -> Iterator[Stretch]:
        segments = segments_of(self._filesystem, self._directory)
        slot = floor_slot(segments, self.next_offset)
        if slot < 0:
            first = segments[0].base_offset if segments else self._end
            go_on = max(self._miss(self.next_offset, segments), first)
            self.next_offset = max(min(go_on, self._end), self.next_offset)
            slot = max(floor_slot(segments, self.next_offset), 0)
        for segment in segments[slot:]:
            if max(segment.base_offset, self.next_offset) >= self._end:
                return
            yield from self._over_segment(segment)
            if segment.following is not None:
                self.next_offset = max(self.next_offset, min(segment.following, self._end))
        if self.next_offset < self._end and segments:
            # A log that ends with an empty segment ends with its base.
            self.next_offset = max(self.next_offset, segments[-1].base_offset)
            if self.next_offset < self._end:
                self._miss(self._end, segments)

    def _miss(self, requested: int, segments: list[SegmentOnDisk]) -> int:
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

    def _over_segment(self, segment: SegmentOnDisk) -> Iterator[Stretch]:
        handle = self._filesystem.open(segment.files.log)
        try:
            size = handle.size()
            position, expected = find_start(
                self._filesystem, segment, handle, size, self.next_offset
            )
            checks = wrapper_checks_of(self._filesystem, segment, handle, size)
            place = _Place(segment, handle, checks, size, position, expected, self._piece_bytes)
            while place.position < place.size and place.expected < self._end:
                yield from self._over_piece(place)
        finally:
            handle.close()

    def _over_piece(self, place: _Place) -> Iterator[Stretch]:
        """Yield what the next piece of a segment has, and bring the place behind it."""
        fence = place.next_fence()
        if fence is not None and fence.position <= place.position:
            self._pass(place, damage_of(place.handle, fence, place.size))
            return
        if place.position >= place.end:
            self._pass_tail(place)
            return
        stop = place.end if fence is None else fence.position
        data = self._read(place, stop)
        if not data:
            return
        batches = self._batches
        batches.clear()
        walk = walk_batches(
            data,
            0,
            batches,
            # What lies between damaged ranges is believed.
            next_offset=0 if place.is_judged else place.expected,
            offset_max=place.segment.offset_max,
            check_crc=place.is_doubted,
        )
        if not walk.count:
            walk = replace(walk, next_offset=place.expected)
        is_cut = walk.status == TRUNCATED and place.position + len(data) < min(stop, place.size)
        if is_cut and not walk.count:
            damage = self._grow(place, data)
            if damage is not None:
                self._pass(place, damage)
                return
            if place.piece_bytes > len(data):
                return
        is_whole = walk.status in (OK, FULL) or (is_cut and walk.count > 0)
        is_followed = not is_whole or self._is_followed(place, data, walk, stop)
        if not (is_whole and is_followed) and not place.is_doubted:
            # Once more, with a look at every sum: what that finds is what counts.
            place.is_doubted = True
            return
        position = place.position + walk.position
        if not is_whole:
            self._look_behind(place, walk, position)
        elif not is_followed:
            self._judge(place, position, OK)
        elif not self._fits(place, walk, stop):
            return
        elif self._ends_oddly(place, walk):
            self._judge(place, position, OK)
        else:
            yield from self._give(place, data, walk)

    def _is_followed(self, place: _Place, data: memoryview, walk: Walk, stop: int) -> bool:
        """
        Say whether the last batch of a walk has one behind it that begins where it may.

        The walk has seen that itself but for the last batch of a piece.
        """
        position = place.position + walk.position
        if place.is_judged or position >= min(stop, place.size):
            return True
        head = data[walk.position : walk.position + RECORD_BATCH_OVERHEAD]
        if len(head) < RECORD_BATCH_OVERHEAD:
            head = memoryview(place.handle.pread(RECORD_BATCH_OVERHEAD, position))
        if is_zero(head):
            return True
        try:
            return parse_header(head).base_offset >= walk.next_offset
        except (CorruptRecordError, InvalidRecordError):
            return False

    def _fits(self, place: _Place, walk: Walk, stop: int) -> bool:
        """Hold wrappers that a walk has found against what is around them; judge what is odd."""
        if not has_wrapper(self._batches, walk.count):
            return True
        batches = neighbours_in(self._batches, walk.count, place.position)
        before = bisect_right(place.fences, place.position, key=_end_of)
        start = place.fences[before - 1].end_position if before else 0
        found = place.checks.find_misfit(batches, start, stop)
        if found is None:
            return True
        if not place.is_doubted:
            # Once more, with a look at every sum.
            place.is_doubted = True
            return False
        wrapper, end_before = found
        if wrapper.position in place.questioned or len(place.questioned) >= QUESTIONED_MAX:
            self._fence_alone(place, wrapper.position, end_before)
        else:
            place.questioned |= {wrapper.position}
            position = place.position + walk.position
            self._judge(place, position, OK, asks_end=wrapper.end >= place.end)
        return False

    def _fence_alone(self, place: _Place, position: int, next_offset: int) -> None:
        """Take note of a wrapper that does not fit, though a judgement has found nothing in it."""
        following = place.segment.following
        try:
            fence = fence_alone(
                place.handle,
                place.segment,
                place.end,
                position=position,
                next_offset=next_offset,
                following=self._end if following is None else following,
            )
        except (ShortFileError, LogStorageError) as error:
            place.size = cut_size(place.handle, place.size, error)
            return
        place.fences = join_fences(place.fences, [fence])

    def _give(self, place: _Place, data: memoryview, walk: Walk) -> Iterator[Stretch]:
        """Yield what a walk has found, and bring the place behind it."""
        batches = self._batches
        count = count_below(batches, walk, place.expected, self._end)
        for stretch in self._stretches(place, data, count):
            yield stretch
            if stretch.doubted is not None:
                self._come_to(place, stretch.doubted)
                return
            self.next_offset = max(self.next_offset, stretch.next_offset)
        if count < walk.count:
            place.expected = self._end
            self.next_offset = self._end
            return
        place.position += walk.position
        place.expected = walk.next_offset
        place.is_doubted = False
        place.piece_bytes = self._piece_bytes

    def _ends_oddly(self, place: _Place, walk: Walk) -> bool:
        """Say whether what is known of the end of the log may contradict its last batch."""
        is_last = place.segment.following is None and not place.is_end_judged
        if not is_last or not walk.count or place.position + walk.position < place.end:
            return False
        row = walk.count - 1
        before = int(self._batches.last_offset[row - 1]) + 1 if row else place.expected
        return last_batch_is_odd(self._filesystem, place.segment, self._batches, row, before)

    def _look_behind(self, place: _Place, walk: Walk, position: int) -> None:
        """Take note of the end of the batches, or of what is damaged."""
        following = place.segment.following
        if place.is_judged:
            # Somebody has changed the file meanwhile.
            place.end_position, place.tail_status = position, walk.status
            return
        is_complete = following is None or walk.next_offset >= following
        if is_complete and ends_in_zeros(place.handle, position, place.size):
            place.size = position
        else:
            self._judge(place, position, walk.status)

    def _judge(self, place: _Place, position: int, status: int, *, asks_end: bool = True) -> None:
        """Judge a segment, unless what failed at a position is only its end."""
        segment = place.segment
        following = self._end if segment.following is None else segment.following
        try:
            judgement = judge_segment(
                self._filesystem,
                place.handle,
                segment,
                place.size,
                position=position,
                status=status,
                following=following,
                questioned=place.questioned,
                asks_end=asks_end,
            )
        except (ShortFileError, LogStorageError) as error:
            # Somebody has cut the file: what lies before the cut is the log now.
            place.size = cut_size(place.handle, place.size, error)
            return
        if judgement is None:
            place.end_position, place.tail_status = position, status
            return
        place.is_judged = True
        place.is_end_judged |= asks_end
        place.fences = join_fences(place.fences, judgement.fences)
        place.end_position, place.tail_status = judgement.whole_end, judgement.tail_status
        self._join_tail(place)

    def _join_tail(self, place: _Place) -> None:
        """Let damage at the end of a segment that others follow reach to the end of its file."""
        if place.segment.following is None or not place.fences or place.end >= place.size:
            return
        last = place.fences[-1]
        if last.end_position == place.end and not ends_in_zeros(
            place.handle, place.end, place.size
        ):
            whole = replace(last, size_bytes=place.size - last.position)
            place.fences = (*place.fences[:-1], whole)
            place.end_position = place.size

    def _pass_tail(self, place: _Place) -> None:
        """Go to the end of the file from behind its last whole batch."""
        following, position = place.segment.following, place.position
        is_torn = following is None and place.tail_status == TRUNCATED
        is_complete = following is None or place.expected >= following
        # A torn tail is no damage: the log ends before it, and perhaps below the range.
        if is_torn or (is_complete and ends_in_zeros(place.handle, position, place.size)):
            place.position = place.size
            return
        damage = tail_damage(
            place.handle,
            place.segment,
            position=position,
            size=place.size,
            status=place.tail_status,
            next_offset=place.expected,
            following=self._end if following is None else following,
        )
        self._pass(place, damage)

    def _read(self, place: _Place, stop: int) -> memoryview:
        wanted = min(place.piece_bytes, stop - place.position)
        data = self._window.read(place.handle, place.position, wanted)
        if len(data) < wanted:
            # Somebody has cut the file: what lies before the cut is the log now.
            place.size = place.position + len(data)
        return data

    def _grow(self, place: _Place, data: memoryview) -> Damage | None:
        """Make the piece as large as the batch it begins with; or return that as damage."""
        needed = declared_size(data[:RECORD_BATCH_OVERHEAD])
        if needed is None or place.position + needed > place.size:
            return None
        if needed > self._max_batch_bytes:
            return too_large(place.handle, place.segment, place.position, needed, place.expected)
        place.piece_bytes = needed
        return None

    def _stretches(self, place: _Place, data: memoryview, count: int) -> Iterator[Stretch]:
        batches = self._batches
        wanted = wanted_batches(batches, count, self._timestamps)
        wanted &= batches.last_offset[:count] >= self._start
        if self._hides is not None:
            leave_out_aborted(wanted, batches, data, self._hides)
        is_plain = batches.attributes[:count] & CODEC_MASK == 0
        for first, stop in pairwise(kind_edges(wanted, is_plain)):
            yield Stretch(
                place.segment.files.log,
                data,
                batches,
                first,
                stop,
                is_wanted=bool(wanted[first]),
                is_plain=bool(is_plain[first]),
                is_checked=place.is_doubted or not self._check_crcs,
                origin=place.position,
            )

    def _come_to(self, place: _Place, row: int) -> None:
        """Let the next piece begin with a batch of this one whose sum is wrong."""
        batches = self._batches
        if row:
            place.expected = int(batches.last_offset[row - 1]) + 1
        place.position += int(batches.position[row])
        place.is_doubted = True

    def _pass(self, place: _Place, damage: Damage) -> None:
        """Tell of damage where it concerns the range, and go behind it."""
        fence = damage.fence
        if fence.first_offset < self._end and fence.next_offset > self._start:
            self._on_damage(damage)
        place.position = fence.end_position
        # What lies may name offsets that the next segment has.
        following = place.segment.following
        behind = fence.next_offset if following is None else min(fence.next_offset, following)
        place.expected = max(place.expected, behind)
        place.is_doubted = False
        place.piece_bytes = self._piece_bytes
        self.next_offset = max(self.next_offset, min(behind, self._end))
