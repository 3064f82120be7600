"""One range of offsets of a partition as stretches of batches, read by `pread` piece by piece.

    directory -> segments -> pieces of their files -> whole batches in them -> stretches

What a scan of an open log gives, this gives of files that belong to somebody else: a writer that
appends, a cleaner that exchanges segments, a broker that truncates. The range was settled before,
by whoever knows where the log begins and ends; nothing behind it is looked at. Holes are normal.

When files go away under the reader it lists the directory anew and goes on by offset, as often as
nothing came between. What the log has lost then is told to `on_missing`, damage to `on_damage`:
they raise, or let the reader go on behind it.

Memory: one piece, or one batch that is larger.

Thread-safety: none; a reader is one thread's. It writes nothing and maps nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from kafkalog._core.batch import BatchColumns
from kafkalog._core.header import BatchHeader
from kafkalog._core.status import STATUS_CODES
from kafkalog.errors import LogStorageError, OffsetOutOfRangeError
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileHandle, FileSystem
from kafkalog.layout import CODEC_MASK, RECORD_BATCH_OVERHEAD
from kafkalog.log.ranges.damage import Damage, declared_size, ends_in_zeros, examine, too_large
from kafkalog.log.ranges.on_disk import (
    FileWindow,
    SegmentOnDisk,
    find_start,
    floor_slot,
    largest_overflow,
    segments_of,
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

__all__ = ["PIECE_BYTES", "RangeReader"]

OK: Final = STATUS_CODES["OK"]
FULL: Final = STATUS_CODES["FULL"]
TRUNCATED: Final = STATUS_CODES["TRUNCATED"]
BASE_OFFSET: Final = STATUS_CODES["BASE_OFFSET"]

# Decoded while it is in the second cache.
PIECE_BYTES: Final = 1024 * 1024
# Headers of one walk over a piece; a piece with more of them is walked in several.
BATCHES: Final = 4096
# Waits before looking again where a file has gone: longer than an exchange of segments takes.
PAUSE_SECONDS: Final = 0.01
PAUSE_GROWTH: Final = 4


@dataclass(slots=True)
class _Place:
    """How far a segment was read: the next batch, the least offset it may have, the file's end."""

    segment: SegmentOnDisk
    handle: FileHandle
    size: int
    position: int
    expected: int
    piece_bytes: int
    offset_max: int
    is_doubted: bool = False
    is_overflow_known: bool = False


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
            place = _Place(
                segment, handle, size, position, expected, self._piece_bytes, segment.offset_max
            )
            while place.position < place.size and place.expected < self._end:
                yield from self._over_piece(place)
        finally:
            handle.close()

    def _over_piece(self, place: _Place) -> Iterator[Stretch]:
        """Yield what the next piece of a segment has, and bring the place behind it."""
        data = self._read(place)
        if not data:
            return
        batches = self._batches
        batches.clear()
        walk = walk_batches(
            data,
            0,
            batches,
            next_offset=place.expected,
            offset_max=place.offset_max,
            check_crc=place.is_doubted,
        )
        is_cut = walk.status == TRUNCATED and place.position + len(data) < place.size
        if is_cut and not walk.count:
            damage = self._grow(place, data)
            if damage is not None:
                self._pass(place, damage)
                return
            if place.piece_bytes > len(data):
                return
        is_whole = walk.status in (OK, FULL) or (is_cut and walk.count > 0)
        if not is_whole and not place.is_doubted:
            # Once more, with a look at every sum: what that finds is what counts.
            place.is_doubted = True
            return
        if walk.status == BASE_OFFSET and self._find_overflow(place, walk):
            return
        count = count_below(batches, walk, place.expected, self._end)
        kept = self._kept(place, data, walk, count, is_whole)
        for stretch in self._stretches(place, data, kept):
            yield stretch
            if stretch.doubted is not None:
                self._come_to(place, stretch.doubted, is_doubted=True)
                return
            self.next_offset = max(self.next_offset, stretch.next_offset)
        if count < walk.count:
            place.expected = self._end
            self.next_offset = self._end
        elif kept < count:
            self._come_to(place, kept, is_doubted=True)
        else:
            self._go_behind(place, walk, is_whole)

    def _find_overflow(self, place: _Place, stopped: Walk) -> bool:
        """
        Find out, once, whether the offsets of a segment go on beyond what an index can express.

        They do where every batch from where a walk stopped to the end of the file has a good sum,
        and follows those before. A last one alone may have a bit of its offset wrong.
        """
        if place.is_overflow_known:
            return False
        place.is_overflow_known = True
        largest = largest_overflow(place.segment)
        if largest <= place.offset_max:
            return False
        batches = BatchColumns(BATCHES)
        position = place.position + stopped.position
        expected = stopped.next_offset if stopped.count else place.expected
        before, first, count, wanted = expected, -1, 0, self._piece_bytes
        while position < place.size:
            data = memoryview(place.handle.pread(min(wanted, place.size - position), position))
            batches.clear()
            walk = walk_batches(data, 0, batches, next_offset=expected, offset_max=largest)
            is_cut = walk.status == TRUNCATED and position + len(data) < place.size
            if not walk.count and is_cut and wanted < place.size:
                wanted *= 2
                continue
            first = int(batches.base_offset[0]) if first < 0 and walk.count else first
            count += walk.count
            if walk.status not in (OK, FULL) and not is_cut:
                break
            position, expected = position + walk.position, walk.next_offset
        else:
            if count > 1 or (first ^ before).bit_count() > 1:
                place.offset_max = largest
                return True
        return False

    def _read(self, place: _Place) -> memoryview:
        wanted = min(place.piece_bytes, place.size - place.position)
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

    def _kept(self, place: _Place, data: memoryview, walk: Walk, count: int, is_whole: bool) -> int:
        """
        Return how many batches of a walk are given before the next piece is read.

        Damage far behind in a piece is judged in one that begins with the batch before, where both
        have their neighbours.
        """
        is_late = walk.position > len(data) // 2 and place.position + len(data) < place.size
        if is_whole or not is_late or count < walk.count or count < 2:
            return count
        return count - 1

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

    def _come_to(self, place: _Place, row: int, *, is_doubted: bool) -> None:
        """Let the next piece begin with one of the batches of this one."""
        batches = self._batches
        if row:
            place.expected = int(batches.last_offset[row - 1]) + 1
        place.position += int(batches.position[row])
        place.is_doubted = is_doubted

    def _go_behind(self, place: _Place, walk: Walk, is_whole: bool) -> None:
        """Let the next piece begin behind a walk, and behind the damage that ended it."""
        origin = place.position
        place.position += walk.position
        place.expected = walk.next_offset
        place.is_doubted = False
        place.piece_bytes = self._piece_bytes
        if is_whole:
            return
        segment, end = place.segment, self._end
        following = segment.following
        behind = max(end if following is None else following, place.expected)
        is_complete = following is not None and place.expected >= following
        if (following is None or is_complete) and ends_in_zeros(
            place.handle, place.position, place.size
        ):
            place.position = place.size
            return
        damage = examine(
            place.handle,
            segment,
            position=place.position,
            size=place.size,
            status=walk.status,
            next_offset=place.expected,
            resume_min=origin + walk.resume_min,
            following=behind,
        )
        is_last = following is None and damage.fence.end_position >= place.size
        if is_last and walk.status == TRUNCATED:
            # A torn tail is no damage: the log ends before it, and perhaps below the range.
            place.position = place.size
            return
        self._pass(place, damage)

    def _pass(self, place: _Place, damage: Damage) -> None:
        """Tell of damage where it concerns the range, and go behind it."""
        fence = damage.fence
        if fence.first_offset < self._end and fence.next_offset > self._start:
            self._on_damage(damage)
        place.position = fence.end_position
        place.expected = max(place.expected, fence.next_offset)
        place.is_doubted = False
        place.piece_bytes = self._piece_bytes
        self.next_offset = max(self.next_offset, min(fence.next_offset, self._end))
