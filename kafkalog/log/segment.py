"""One segment: a `.log` file with its offset index and its time index.

Appends are staged (roll decision, index entries), as many batches at once as the segment takes, and
committed with one write, so that an append of many batches costs one system call a segment. The
rules for rolls and index entries are Kafka's; `_engine/roll_planner` has them.

An index entry is a hint. A look-up checks the batch it finds and, where the index promised
another one, rebuilds the index and tries again; a look-up that meets damage raises.

Thread-safety: reads and look-ups by any thread without a lock; everything else under the log's
lock. Staged state is invisible to readers, which are bounded by the published end of the log.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from typing_extensions import Buffer

from kafkalog._core.batch import (
    BatchColumns,
    find_offset,
    find_timestamp,
    scan_batches,
)
from kafkalog._core.batch_metadata import BatchMetadata
from kafkalog._core.index import OffsetIndexView, TimeIndexView
from kafkalog._core.point_read import PointReader
from kafkalog._core.record import Record
from kafkalog._core.status import STATUS_CODES
from kafkalog._engine.roll_planner import RollPlanner
from kafkalog._engine.segment_appender import SegmentAppender
from kafkalog._engine.snapshot import ReadBound
from kafkalog.errors import CorruptRecordError, InvalidRecordError, LogStorageError
from kafkalog.files.filesystem import FileExtent
from kafkalog.files.names import FileKind, segment_file_name
from kafkalog.indexes.kinds import TIME_INDEX
from kafkalog.indexes.segment_index import SegmentIndex
from kafkalog.layout import NO_TIMESTAMP
from kafkalog.log.batch_walk import (
    CrcCheck,
    OnDamage,
    ResumePoint,
    WalkDamage,
    WalkedBatches,
    WalkRange,
    walk_source,
)
from kafkalog.log.byte_source import ByteSource
from kafkalog.log.corrupt_ranges import CorruptRange
from kafkalog.log.index_lookup import (
    WALK_BYTES,
    read_header,
    read_whole_header,
    walk_headers,
)
from kafkalog.log.lazy_attribute import LazyAttribute
from kafkalog.log.scanner import RELATIVE_OFFSET_MAX, SegmentScan, largest_timestamp
from kafkalog.log.segment_damage import SegmentDamage, SegmentJudge
from kafkalog.log.segment_file import SegmentFile
from kafkalog.log.segment_indexes import SegmentIndexes
from kafkalog.log.segment_transactions import SegmentTransactions
from kafkalog.log.segment_types import IndexRebuildInput, SegmentContext
from kafkalog.log.wrapper_checks import WrapperChecks, neighbour_at

__all__ = ["LogSegment", "open_segment"]

logger = logging.getLogger(__name__)

OK = STATUS_CODES["OK"]
TRUNCATED = STATUS_CODES["TRUNCATED"]

_ABSENT = FileExtent(0)
NO_ENTRIES = OffsetIndexView(b"", 0)
# Batches that a careful look-up examines at a time.
SLOW_PATH_BATCHES = 64


class LogSegment:
    """
    A segment of a log.

    Attributes:
        base_offset: names the segment; a lower bound of its offsets.
        file: the `.log` file.
        indexes: its offset index, time index and look-up.
        transactions: its transaction index.
        end: where it takes appends, None where it takes none.
        is_released: whether it is the active segment, and holds no file open for appending.
    """

    _wrappers: LazyAttribute[WrapperChecks] = LazyAttribute(lambda segment: segment._make_checks())

    def __init__(self, context: SegmentContext, base_offset: int, file: SegmentFile) -> None:
        self.base_offset = base_offset
        self.file = file
        self._context = context
        self._source = IndexRebuildInput(file, base_offset, context.config.index_interval_bytes)
        self.indexes = SegmentIndexes(context, self._source)
        self._damage = SegmentDamage(context, base_offset, file)
        self.created_ms = context.clock.now_ms()
        self.roll_jitter_ms = context.config.random_segment_jitter(context.random)
        self.is_released = False
        self._is_preallocated = False
        self._max_timestamp: int | None = None
        self._offset_of_max_timestamp = -1
        self.end: SegmentAppender | None = None
        self.transactions = SegmentTransactions(context, base_offset)

    def __repr__(self) -> str:
        return f"LogSegment(base_offset={self.base_offset}, size_bytes={self.size_bytes})"

    @property
    def context(self) -> SegmentContext:
        """Settings and parts that the segments of the log share."""
        return self._context

    @property
    def offset_index(self) -> SegmentIndex[OffsetIndexView]:
        """Its offset index."""
        return self.indexes.offset_index

    @property
    def time_index(self) -> SegmentIndex[TimeIndexView]:
        """Its time index."""
        return self.indexes.time_index

    @property
    def size_bytes(self) -> int:
        """Bytes of the log in this segment, staged ones not counted."""
        return self.file.end.size_bytes

    @property
    def decompressed_max_bytes(self) -> int:
        """Largest size that the records of one batch may have uncompressed."""
        return self._context.config.decompressed_max_bytes

    @property
    def offset_max(self) -> int:
        """Largest offset that fits 32 bits above the base offset."""
        return self.base_offset + RELATIVE_OFFSET_MAX

    @property
    def path(self) -> Path:
        """The `.log` file."""
        return self.file.path

    @property
    def corrupt_ranges(self) -> tuple[CorruptRange, ...]:
        """Damage known so far, in order of position."""
        return self._damage.ranges

    @property
    def is_active(self) -> bool:
        """True if the segment takes appends."""
        return self.is_released or self.indexes.offset_index.growing is not None

    # ------------------------------------------------------------------ life as active segment

    def age_ms(self) -> int:
        """Age of the segment by the clock of the log."""
        return self._context.clock.now_ms() - self.created_ms

    def apply_config(self) -> None:
        """Apply the current settings that are valid for a segment that has begun."""
        if self.end is not None:
            config = self._context.config
            self.end.stage.set_limits(
                segment_bytes=config.segment_bytes,
                interval_bytes=config.index_interval_bytes,
                roll_after_ms=max(config.max_segment_ms - self.roll_jitter_ms, 0),
            )

    def activate(self, scan: SegmentScan | None = None, *, is_last: bool = True) -> None:
        """
        Begin to take appends.

        Args:
            scan: the state of the present bytes.
            is_last: whether appends follow, and space is preallocated for them.
        """
        config = self._context.config
        self.file.set_on_error(self._context.report)
        if scan is None:
            scan = SegmentScan(next_offset=self.base_offset)
        offsets = self.indexes.offset_index.start_growing(
            config.segment_index_bytes, scan.offset_entries
        )
        times = self.indexes.time_index.start_growing(config.segment_index_bytes, scan.time_entries)
        stage = RollPlanner(
            self.base_offset,
            offset_entries_max=offsets.max_entries,
            time_entries_max=times.max_entries,
            offset_count=len(offsets),
            time_count=len(times),
            last_time=TIME_INDEX.entry.unpack(times.last_entry())[0]
            if len(times)
            else NO_TIMESTAMP,
            max_timestamp=scan.max_timestamp,
            offset_of_max_timestamp=scan.offset_of_max_timestamp,
            rolling_timestamp=scan.first_max_timestamp if self.size_bytes else NO_TIMESTAMP,
        )
        self.end = SegmentAppender(stage, self.file.end, offsets.buffer, times.buffer)
        self.apply_config()
        self._is_preallocated = config.preallocate and is_last
        if self._is_preallocated:
            self.file.preallocate(config.segment_bytes, config.preallocate_zero_bytes)
        self.is_released = False

    def release(self) -> None:
        """Let the files go until `activate`: as sealed, and still the active segment."""
        self.seal()
        self.is_released = True

    def mark_released(self) -> None:
        """Record that this is the active segment of an idle log, whose files are closed."""
        self.is_released = True

    def append(self, data: Buffer, facts: BatchMetadata) -> tuple[int, int]:
        """
        Write a run if all of it belongs here.

        Returns:
            As `stage` from the first batch on. If that is not all, nothing is written: what was
            taken is to be committed.
        """
        end = self._active_end()
        waited_ms = 0 if end.stage.rolling_timestamp >= 0 else self.age_ms()
        return end.append(data, facts, waited_ms)

    def stage(self, facts: BatchMetadata, first: int) -> tuple[int, int]:
        """
        Take note of batches about to be written, from row `first` on.

        Stops at the first batch that begins a new segment (the four conditions of Kafka). Staged
        batches must be committed before more are staged.

        Returns:
            The row after the last staged one, and the bytes of the staged rows.
        """
        stage = self._active_end().stage
        waited_ms = 0 if stage.rolling_timestamp >= 0 else self.age_ms()
        return stage.plan(facts, first, self.file.size_bytes, waited_ms)

    def commit(self, data: Buffer, size: int) -> None:
        """Write the staged bytes, then let the indexes follow."""
        self._active_end().commit(data, size)

    def rewind(self) -> None:
        """Undo what the last append staged and wrote; none of it was published."""
        end = self._active_end()
        entries = end.stage.restore()
        growing = (self.indexes.offset_index.growing, self.indexes.time_index.growing)
        for index, count in zip(growing, entries, strict=True):
            if index is not None:
                index.rewind(count)
        self.file.cut_unpublished(end.saved_bytes)
        if self._is_preallocated:
            config = self._context.config
            self.file.preallocate(config.segment_bytes, config.preallocate_zero_bytes)

    def seal(self) -> None:
        """
        Take no more appends: last time index entry, indexes trimmed, preallocated tail cut.

        Crash points: before, between and after the cuts. Startup rebuilds what is above the
        recovery point; below it an index with a zero tail is found by its check and rebuilt, and
        zeros after the last batch are cut or skipped.
        """
        end = self._keep_max_timestamp()
        if end is not None:
            end.stage.close()
            end.add_entries()
        self.indexes.offset_index.seal()
        self.indexes.time_index.seal()
        self.file.seal(trim=self._is_preallocated)

    def trim(self) -> bool:
        """Cut a preallocated tail off ahead of sealing; return whether there was one."""
        return self._is_preallocated and self.file.trim()

    def seal_in_memory(self) -> None:
        """Take no more appends and leave the files alone: their names belong to a successor."""
        self._keep_max_timestamp()
        self.indexes.offset_index.detach()
        self.indexes.time_index.detach()
        self.file.seal(trim=False)

    def retire(self) -> None:
        """Prepare for removal: readers that hold the segment keep its bytes, no file is written."""
        self.indexes.offset_index.retire()
        self.indexes.time_index.retire()
        self.transactions.retire()
        self.file.pin()

    def close(self) -> None:
        """Let files and mappings go; slices given out stay valid."""
        for index in self.indexes.made():
            index.close()
        self.transactions.close()
        self.file.close()

    # ------------------------------------------------------------------------------ look-ups

    @property
    def max_timestamp(self) -> int:
        """Largest batch timestamp in the segment, -1 where there is none."""
        end, largest = self.end, self._max_timestamp
        if end is not None:
            return end.stage.max_timestamp
        return self._load_max_timestamp() if largest is None else largest

    @property
    def offset_of_max_timestamp(self) -> int:
        """Last offset of the earliest batch with the largest timestamp."""
        end = self.end
        if end is not None:
            return end.stage.offset_of_max_timestamp
        if self._max_timestamp is None:
            self._load_max_timestamp()
        return self._offset_of_max_timestamp

    def invalidate_max_timestamp(self) -> None:
        """Look the largest timestamp up again: another process has appended."""
        self._max_timestamp = None

    def find_position(self, offset: int, bound: ReadBound) -> int | None:
        """
        Return the position of the first batch whose last offset is at least `offset`.

        Returns:
            The position, or None if every batch within `bound` is below `offset`.

        Raises:
            CorruptRecordError: the offset may lie in a damaged range.
        """
        hint = self.indexes.lookup.start_for(offset)
        position, status = walk_headers(self.file, find_offset, offset, hint, bound.end)
        is_around = self._damage.ranges and self._damage.is_between(hint, position)
        if status == OK and not is_around and self._is_believable(position, offset, hint, bound):
            return position
        # A hole, the end, damage, or a length field that led astray: look with every CRC checked.
        start = 0 if is_around else self.indexes.lookup.start_before(offset, hint)
        return self._find_slow_path(offset, start, bound)

    def scan(self) -> SegmentScan:
        """Scan all bytes, every CRC checked."""
        return self._source.scan()

    def find_record(self, offset: int, bound: ReadBound, check_crcs: bool = True) -> Record | None:
        """Return the record at `offset` where a quick look finds it, None where it does not."""
        if self._damage.ranges and check_crcs:
            return None
        position = self.indexes.offset_index.view.lookup(offset)[1]
        if position >= bound.end:
            return None
        window = self.file.read(position, min(WALK_BYTES, bound.end - position))
        return PointReader(window, NO_ENTRIES).find(offset, check_crcs)

    def point_reader(self, bound: ReadBound) -> PointReader:
        """Return what finds the records of this segment, as they are now, without it."""
        return PointReader(self.file.whole()[: bound.end], self.indexes.offset_index.view)

    def time_reader(self, bound: ReadBound) -> PointReader:
        """As `point_reader`, and it finds them by their times, too."""
        data, offsets = self.file.whole()[: bound.end], self.indexes.offset_index.view
        return PointReader(data, offsets, self.indexes.time_index.view)

    def tail_position(self) -> int:
        """Return the start of the last batch that the offset index names, 0 where it is empty."""
        view = self.indexes.offset_index.view
        return self.indexes.lookup.start_for(view.entry(len(view) - 1)[0]) if len(view) else 0

    def end_offset_of_tail(self) -> int | None:
        """
        Return one above the last offset, by the batches that the offset index leads to.

        Their sums are checked. None where they are no run of whole batches.

        Raises:
            CorruptRecordError, InvalidRecordError, ValueError: nor does the index lead to a batch.
        """
        start = self.tail_position()
        data = self.file.read(start, self.size_bytes - start)
        tail = scan_batches(data, next_offset=self.base_offset)
        return tail.next_offset if tail.status == OK else None

    def end_offset_at(self, position: int, offset: int) -> int | None:
        """
        Return one above the last offset before `position`, where the batch of `offset` begins.

        Headers from the index entry before it on are read, no sum is checked; None where they are
        no run of whole batches.
        """
        start = self.indexes.lookup.start_before(offset, position)
        data = self.file.read(start, position - start)
        found = scan_batches(data, check_crc=False, next_offset=self.base_offset)
        return found.next_offset if found.status == OK else None

    def summary(self, next_offset: int) -> SegmentScan:
        """
        Return what a scan would, from the indexes of a segment that was closed in order.

        Where the first batch outside of corrupt ranges is damaged, its timestamp counts as unknown.
        """
        return SegmentScan(
            whole_end=self.size_bytes,
            next_offset=next_offset,
            max_timestamp=self.max_timestamp,
            offset_of_max_timestamp=self.offset_of_max_timestamp,
            first_max_timestamp=self._first_max_timestamp(),
            offset_entries=self.indexes.offset_index.entries(),
            time_entries=self.indexes.time_index.entries(),
        )

    def _first_max_timestamp(self) -> int:
        position = 0
        for corrupt_range in self._damage.ranges:
            if corrupt_range.position > position:
                break
            position = corrupt_range.end_position
        header = read_whole_header(self.file, position, self.size_bytes)
        return -1 if header is None else header.max_timestamp

    def find_timestamp(self, timestamp_ms: int, bound: ReadBound, position: int = 0) -> int | None:
        """
        Return the position of the first batch with a timestamp at or above `timestamp_ms`.

        The search begins at `position` or at the entry of the time index. None if there is none.
        """
        start = max(position, self.start_for_time(timestamp_ms, bound))
        position, status = walk_headers(self.file, find_timestamp, timestamp_ms, start, bound.end)
        if status == TRUNCATED and position >= bound.end:
            return None
        is_around = self._damage.ranges and self._damage.is_between(position, position)
        if status == OK and not is_around and self._fits_at(position, bound):
            return position
        return self.find_timestamp_slow_path(timestamp_ms, bound, start)

    def start_for_time(self, timestamp_ms: int, bound: ReadBound) -> int:
        """
        Return the position of a batch before which nothing is at or above `timestamp_ms`.

        It is from the time index, whose entry is compared with the batch that it names.
        """
        return self.indexes.lookup.start_for_time(timestamp_ms, bound.end, bound.following_offset)

    def find_timestamp_slow_path(
        self, timestamp_ms: int, bound: ReadBound, start: int = 0
    ) -> int | None:
        """As `find_timestamp` from `start` on, every CRC from the segment's start on checked."""
        columns = BatchColumns(SLOW_PATH_BATCHES)
        for walked in self._walk_slow_path(0, bound, columns, lambda _range: None):
            reaching = columns.max_timestamp[: walked.count] >= timestamp_ms
            positions = columns.position[: walked.count] + walked.origin
            rows = np.flatnonzero(reaching & (positions >= start))
            if rows.size:
                return int(positions[rows[0]])
        return None

    def begins_with_wrapper(self) -> bool:
        """Return whether the first batch is a wrapper of an old format; False if it is damaged."""
        if not self.size_bytes:
            return False
        try:
            return read_header(self.file, 0).is_wrapper
        except (CorruptRecordError, InvalidRecordError):
            return False

    def batch_size_at(self, position: int) -> int:
        """Return the size of the whole batch at `position`, which a look-up returned."""
        return read_header(self.file, position).size_bytes

    def corrupt_range_at(
        self, position: int, bound: ReadBound, status: int, next_offset: int, resume_min: int = 0
    ) -> CorruptRange:
        """Return the corrupt range that holds `position`; it is found and kept where need be."""
        return self._damage.range_at(position, bound, status, next_offset, resume_min)

    def add_corrupt_ranges(self, found: Sequence[CorruptRange]) -> None:
        """Remember damaged ranges."""
        self._damage.add(found)

    def mark_judged(self) -> None:
        """Record that a scan has found all corrupt ranges of the present bytes."""
        self._damage.mark_judged()

    def walk(
        self,
        start: ResumePoint,
        bound: ReadBound,
        columns: BatchColumns,
        on_damage: OnDamage,
        *,
        check_crc: CrcCheck = CrcCheck.ALWAYS,
        source: ByteSource | None = None,
        window_bytes: int | None = None,
    ) -> Iterator[WalkedBatches]:
        """
        Walk the batches from a position on that all readers believe, around damage.

        Args:
            start: of the walk.
            bound: how far the segment may be read.
            columns, on_damage, check_crc, window_bytes: as of `walk_source`.
            source: the bytes, where the caller has some of them; those of the file if None.
        """
        damage = self._damage
        if source is None:
            source = self.file.source(bound.end)
        return walk_source(
            source,
            WalkRange(start.position, bound.end, start.next_offset, damage.limit(bound)),
            columns,
            check_crc=check_crc,
            on_damage=on_damage,
            judge=SegmentJudge(damage, bound, lambda: self._wrappers),
            window_bytes=window_bytes,
        )

    def _make_checks(self) -> WrapperChecks:
        hints, context = self.indexes.lookup, self._context
        return WrapperChecks(self.file, self.base_offset, hints.start_before, context.end_before)

    def _fits_at(self, position: int, bound: ReadBound) -> bool:
        """Return whether the batch at a position fits; the segment is judged where it does not."""
        header = read_whole_header(self.file, position, bound.end)
        if header is None or not header.is_wrapper:
            return True
        judge = SegmentJudge(self._damage, bound, lambda: self._wrappers)
        if judge.fits([neighbour_at(position, header)]):
            return True
        judge.judge_refused()
        return False

    # ------------------------------------------------------------------------------- private

    def _active_end(self) -> SegmentAppender:
        if self.end is None:
            raise AssertionError(f"{self.path} is sealed")
        return self.end

    def _keep_max_timestamp(self) -> SegmentAppender | None:
        """Take no more batches; return what took them."""
        end, self.end = self.end, None
        if end is not None:
            self._max_timestamp = end.stage.max_timestamp
            self._offset_of_max_timestamp = end.stage.offset_of_max_timestamp
        return end

    def _is_believable(self, position: int, offset: int, hint: int, bound: ReadBound) -> bool:
        """
        Return whether the batch at `position` has `offset`, and ends before the next one begins.

        A damaged last offset would else include offsets of later whole batches. The first offset of
        a wrapper is not in its header: it follows from the batch before, if offsets rise.
        """
        header = read_header(self.file, position)
        begins = header.base_offset <= offset
        if header.is_wrapper:
            start = self.indexes.lookup.start_before(offset, hint)
            before = self.file.read(start, position - start)
            found = scan_batches(
                before, check_crc=False, next_offset=0 if start else self.base_offset
            )
            begins = found.status == OK and found.next_offset <= header.base_offset
        if position + header.size_bytes >= bound.end:
            is_below = header.last_offset < bound.following_offset
        else:
            successor = read_whole_header(self.file, position + header.size_bytes, bound.end)
            is_below = successor is not None and header.last_offset < successor.base_offset
        return begins and is_below and (not header.is_wrapper or self._fits_at(position, bound))

    def _find_slow_path(self, offset: int, position: int, bound: ReadBound) -> int | None:
        """Find the batch with every CRC from `position` on checked, around known damage."""

        def ensure_outside(corrupt_range: CorruptRange) -> None:
            if corrupt_range.first_offset <= offset < corrupt_range.next_offset:
                raise corrupt_range.to_error()

        columns = BatchColumns(SLOW_PATH_BATCHES)
        for walked in self._walk_slow_path(position, bound, columns, ensure_outside):
            reaching = np.flatnonzero(columns.last_offset[: walked.count] >= offset)
            if reaching.size:
                return walked.origin + int(columns.position[reaching[0]])
        return None

    def _walk_slow_path(
        self,
        position: int,
        bound: ReadBound,
        columns: BatchColumns,
        on_range: Callable[[CorruptRange], None],
    ) -> Iterator[WalkedBatches]:
        """Walk batches with every CRC checked; `on_range` is called with each corrupt range."""

        def go_around(damage: WalkDamage) -> ResumePoint:
            # Only now: for a batch before it the extent of damage is not needed.
            found = self.corrupt_range_at(
                damage.position, bound, damage.status, damage.next_offset, damage.resume_min
            )
            on_range(found)
            return ResumePoint(found.end_position, max(damage.next_offset, found.next_offset))

        expected = read_header(self.file, position).base_offset if position else self.base_offset
        return self.walk(ResumePoint(position, expected), bound, columns, go_around)

    def _load_max_timestamp(self) -> int:
        """Start from the last time index entry, and see whether a later batch goes beyond it."""
        view = self.indexes.time_index.view
        latest = view.entry(len(view) - 1)[0] if len(view) else 0
        position = self.indexes.lookup.start_for_time(latest, self.size_bytes, self.offset_max + 1)
        found = largest_timestamp(self.file, position, self.base_offset)
        if found is None:
            scan = self._source.scan()
            found = scan.max_timestamp, scan.offset_of_max_timestamp
        self._max_timestamp, self._offset_of_max_timestamp = found
        return found[0]


def open_segment(
    context: SegmentContext, base_offset: int, extents: Mapping[str, FileExtent] | None = None
) -> LogSegment:
    """
    Return a segment whose files are there, or may be, as a sealed one.

    Args:
        context: what the log's segments share.
        base_offset: names it.
        extents: all live `.log` files by name, where a listing is available.

    Raises:
        LogStorageError: there is something under its name that is no regular file.
    """
    path: Path | tuple[Path, str]
    if extents is None:
        path = context.files(base_offset).log
        facts = context.filesystem.stat(path)
        size = 0 if facts is None else facts.size_bytes
    else:
        name = segment_file_name(base_offset, FileKind.LOG)
        extent = extents.get(name, _ABSENT)
        if extent.refusal:
            path = context.directory / name
            raise LogStorageError(
                f"{path}: opening failed: {extent.refusal}", errno=errno.EINVAL, path=path
            )
        path, size = (context.directory, name), extent.size_bytes
    file = SegmentFile(context.pool, context.filesystem, path, size)
    return LogSegment(context, base_offset, file)
