"""One range of offsets of a partition as slices of batches, read by `pread` piece by piece.

    directory -> segments -> pieces of their files -> whole batches in them -> batch_slices

It reads, as a scan of an open log, files of another process: a writer that appends, a cleaner that
exchanges segments, a broker that truncates. The caller, which knows the bounds of the log, has
decided on the range; nothing above it is read. Holes are normal.

When files are removed during a read it lists the directory again and continues by offset. Offsets
that the log has lost then are reported to `on_missing`, damage to `on_damage`: they raise, or let
the reader continue after it.

Memory: one piece, or one larger batch.

Thread-safety: none; a reader belongs to one thread. It writes nothing, and maps a file only to
judge a damaged one, as an open log does (`damage.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkalog._core.batch import BatchColumns
from kafkalog.errors import LogStorageError, OffsetOutOfRangeError
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileSystem
from kafkalog.layout import CODEC_MASK, RECORD_BATCH_OVERHEAD
from kafkalog.log.batch_walk import (
    CrcCheck,
    ResumePoint,
    WalkDamage,
    WalkedBatches,
    WalkRange,
    walk_source,
)
from kafkalog.log.byte_source import PreadSource
from kafkalog.log.ranges.damage import Damage, RangeJudge
from kafkalog.log.ranges.on_disk import (
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
    wanted_batches,
)
from kafkalog.log.scan.conditions import Integers

if TYPE_CHECKING:
    from kafkalog.log.isolation import AbortedBatches

__all__ = ["PIECE_BYTES", "RangeOptions", "RangeReader", "all_batches"]

# Decoded while it is in the second cache.
PIECE_BYTES: Final = 1024 * 1024
# Headers of one walk over a piece; a piece with more of them is walked in several.
BATCHES: Final = 4096
# Waits before the next look for a missing file: longer than an exchange of segments takes.
PAUSE_SECONDS: Final = 0.01
PAUSE_GROWTH: Final = 4
# Repeated listings of `all_batches`, where files were removed while they were read.
RETRIES: Final = 3

_ANY_TIME: Final = Integers()


@dataclass(frozen=True, slots=True)
class RangeOptions:
    """
    Options of a reader of ranges.

    Attributes:
        timestamps: requested timestamps.
        aborted: filter of aborted batches; None to yield them, too.
        check_crcs: whether CRCs are checked; contradictions are found without.
        max_batch_bytes: a larger batch is damage.
        retries: attempts without progress after an error of the disk or a missing file.
        pause: waits a number of seconds.
        piece_bytes: bytes of one read.
    """

    timestamps: Integers = field(default_factory=Integers)
    aborted: AbortedBatches | None = None
    check_crcs: bool = True
    max_batch_bytes: int = 2**31 - 1
    retries: int = 0
    pause: Callable[[float], None] = time.sleep
    piece_bytes: int = PIECE_BYTES


class RangeReader:
    """
    Reads the batches with the offsets of a range.

    Args:
        filesystem: the disk.
        directory: directory of the partition.
        start, end: first requested offset, and one above the last.
        options: options of the read.
        on_damage: called with damage that may hide offsets of the range.
        on_missing: called with offsets of the range that the log does not have any more; returns
            the next offset.

    Attributes:
        next_offset: how far reading has come.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        directory: Path,
        start: int,
        end: int,
        options: RangeOptions,
        *,
        on_damage: Callable[[Damage], None],
        on_missing: Callable[[OffsetOutOfRangeError], int],
    ) -> None:
        self.next_offset = start
        self._filesystem = filesystem
        self._directory = directory
        self._start = start
        self._end = end
        self._options = options
        self._on_damage = on_damage
        self._on_missing = on_missing
        # One piece of memory for the whole range, and one set of columns.
        self._buffer = memoryview(bytearray(options.piece_bytes + RECORD_BATCH_OVERHEAD))
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
                if failures >= self._options.retries:
                    raise
            self._options.pause(PAUSE_SECONDS * PAUSE_GROWTH**failures)
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
        handle, options = self._filesystem.open(segment.files.log), self._options
        try:
            size = handle.size()
            source = PreadSource(handle, size, self._buffer)
            start = find_start(self._filesystem, segment, handle, size, self.next_offset)
            checks = wrapper_checks_of(self._filesystem, segment, handle, size)
            judge = RangeJudge(self._filesystem, segment, handle, source, checks, self._end)
            reached = ResumePoint(*start)

            def go_on(walk_damage: WalkDamage) -> ResumePoint | None:
                nonlocal reached
                damage = judge.damage_at(walk_damage)
                reached = ResumePoint(walk_damage.position, walk_damage.next_offset)
                if damage is not None:
                    reached = self._skip(segment, damage, walk_damage.next_offset)
                return reached if reached.next_offset < self._end else None

            for walked in walk_source(
                source,
                WalkRange(reached.position, size, reached.next_offset, segment.offset_max),
                self._batches,
                check_crc=CrcCheck.ON_DOUBT,
                on_damage=go_on,
                judge=judge,
                window_bytes=options.piece_bytes,
                batch_bytes_max=options.max_batch_bytes,
            ):
                yield from self._batch_slices(segment.files.log, walked)
                if walked.rejected_row is None:
                    reached = ResumePoint(walked.end_position, walked.next_offset)
                if self.next_offset >= self._end:
                    return
            if reached.position < judge.size and reached.next_offset < self._end:
                tail = judge.tail_damage(*reached)
                if tail is not None:
                    self._skip(segment, tail, reached.next_offset)
        finally:
            handle.close()

    def _batch_slices(self, path: Path, walked: WalkedBatches) -> Iterator[BatchSlice]:
        """Yield what a walk has found, and note how far it was read."""
        batches, options = self._batches, self._options
        count = count_below(batches, walked, self._end)
        keep_mask = wanted_batches(batches, count, options.timestamps)
        keep_mask &= batches.last_offset[:count] >= self._start
        if options.aborted is not None:
            options.aborted.leave_out(keep_mask, batches, walked.data)
        is_plain = batches.attributes[:count] & CODEC_MASK == 0
        shown = walked if options.check_crcs else replace(walked, is_checked=True)
        for first, stop in pairwise(kind_edges(keep_mask, is_plain)):
            batch_slice = BatchSlice(
                path,
                shown,
                batches,
                first,
                stop,
                is_wanted=bool(keep_mask[first]),
                is_plain=bool(is_plain[first]),
            )
            yield batch_slice
            if batch_slice.rejected_row is not None:
                walked.reject(batch_slice.rejected_row)
                return
            self.next_offset = max(self.next_offset, batch_slice.next_offset)
        if count < walked.count:
            self.next_offset = self._end

    def _skip(self, segment: SegmentOnDisk, damage: Damage, expected: int) -> ResumePoint:
        """Report damage that concerns the range; return the position after it."""
        corrupt_range = damage.corrupt_range
        if corrupt_range.first_offset < self._end and corrupt_range.next_offset > self._start:
            self._on_damage(damage)
        # A wrong header may have offsets of the next segment.
        following = segment.following
        resume_offset = (
            corrupt_range.next_offset
            if following is None
            else min(corrupt_range.next_offset, following)
        )
        self.next_offset = max(self.next_offset, min(resume_offset, self._end))
        return ResumePoint(corrupt_range.end_position, max(expected, resume_offset))


def all_batches(
    filesystem: FileSystem,
    directory: Path,
    start: int,
    end: int | None = None,
    *,
    timestamps: Integers = _ANY_TIME,
    check_crcs: bool = False,
) -> Iterator[BatchSlice]:
    """
    Yield the readable batches of a range, without reports of damage and of missing offsets.

    Args:
        filesystem: the disk.
        directory: directory of the partition.
        start, end: the offsets; to the end of the log if None.
        timestamps: selected timestamps; slices of others are not marked as selected.
        check_crcs: whether CRCs are checked, if the caller checks the slices (`check_crcs`).

    Raises:
        LogStorageError: the disk refused.
    """
    options = RangeOptions(timestamps=timestamps, check_crcs=check_crcs, retries=RETRIES)
    reader = RangeReader(
        filesystem,
        directory,
        start,
        2**62 if end is None else end,
        options,
        on_damage=lambda _damage: None,
        on_missing=lambda error: error.log_start_offset or 0,
    )
    return reader.batch_slices()
