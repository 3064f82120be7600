"""The reading side of a log: its range, its segments, slices, batches and records.

Every call takes one snapshot and works on it, without a lock; a read-only log looks first how far
its writer has come.

Thread-safety: everything may be called from any thread, while another writes.
"""

from __future__ import annotations

import operator
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Protocol, TypeVar

from kafkalog._core.record import Record
from kafkalog._engine.iteration import ClosableRecords, CloseSignal
from kafkalog.config import LogConfig
from kafkalog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    KafkaLogError,
    LogClosedError,
    LogStorageError,
    OffsetOutOfRangeError,
)
from kafkalog.files.errors import has_missed_file
from kafkalog.indexes.transaction_index import AbortedTransaction
from kafkalog.log.corrupt_ranges import CorruptRange
from kafkalog.log.epochs import LogEpochs
from kafkalog.log.holes import record_holes
from kafkalog.log.isolation import (
    Isolation,
    StableOffsets,
    Visibility,
    check_isolation,
    without_aborted,
)
from kafkalog.log.local_log import LocalLog, LogSnapshot
from kafkalog.log.partition_paths import PartitionPaths
from kafkalog.log.producer_loading import ReadOnlyProducers
from kafkalog.log.reading import (
    OnCorrupt,
    read_batches,
    read_parts,
    try_records,
)
from kafkalog.log.report import RepairedIndex
from kafkalog.log.segment import LogSegment
from kafkalog.log.segment_types import ReportedErrors
from kafkalog.log.tail import ReadOnlyTail
from kafkalog.log.transactions import aborted_between, repaired_indexes
from kafkalog.log.walk import check_wrapper, fits_after
from kafkalog.model import TopicPartition
from kafkalog.records.batch_view import BatchView
from kafkalog.records.message_run import MessageRun, Part
from kafkalog.state.producers import OpenTransaction

__all__ = ["LogReader", "whole_offset"]

# Waits of a follower that misses a file: a quarter of a second in all, longer than a truncation.
PAUSES_SECONDS = (0.0, 0.001, 0.004, 0.015, 0.06, 0.17)


class _HasNextOffset(Protocol):
    @property
    def next_offset(self) -> int: ...


_Read = TypeVar("_Read", bound=_HasNextOffset)


class LogReader:
    """
    What can be done with a log without changing it; the base of `Log`.

    Args:
        paths: where the partition lives.
        local: its segments.
        tail: follows the writing process, None in the writing process itself.
        epochs: its leader epochs.
    """

    def __init__(
        self, paths: PartitionPaths, local: LocalLog, tail: ReadOnlyTail | None, epochs: LogEpochs
    ) -> None:
        self._paths = paths
        self._local = local
        self._tail = tail
        self._epochs = epochs
        self._closed = False
        self._gate = CloseSignal()
        self._stable = StableOffsets()
        self._read_only_producers = None if tail is None else ReadOnlyProducers(local.context)
        local.context.on_damage = weakref.WeakMethod(self._invalidate_readers)
        local.context.read_end_before = weakref.WeakMethod(self._end_before)
        # Weakly: a log that is forgotten lets its files go at once.
        myself = weakref.ref(self)
        local.on_change = lambda: _segments_changed(myself)

    @property
    def directory(self) -> Path:
        """The partition directory."""
        return self._paths.directory

    @property
    def is_closed(self) -> bool:
        """Whether the log was closed."""
        return self._closed

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition that the directory's name says."""
        return self._paths.topic_partition

    @property
    def config(self) -> LogConfig:
        """The configuration in force."""
        return self._local.context.config

    @property
    def log_start_offset(self) -> int:
        """Smallest offset that may be read; read-only, as far as another process has moved it."""
        snapshot = self._local.snapshot if self._tail is None else self._snapshot()
        return snapshot.start_offset

    @property
    def log_end_offset(self) -> int:
        """Offset that the next record gets; read-only, as far as another process has written."""
        return self._snapshot().end_offset

    @property
    def high_watermark(self) -> int:
        """Offset below which readers may go: the log end, unless `set_high_watermark` was used."""
        return self._visible("read_uncommitted")[1]

    @property
    def last_stable_offset(self) -> int:
        """Offset below which readers of committed records may go."""
        return self._visible("read_committed")[1]

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the earliest transaction that is not stable yet, None where all are."""
        visibility, snapshot = self._read_visibility("read_committed")
        first = visibility.first_unstable_offset
        return None if first is None else max(first, snapshot.start_offset)

    def snapshot(self) -> LogSnapshot:
        """Return the log as it is now: what several passes over one state of it work on."""
        return self._snapshot()

    def last_segments(self) -> tuple[LogSegment, ...]:
        """Return the segments that a writer's log has, or had when it was closed."""
        return self._local.snapshot.segments.segments

    def segments(self) -> tuple[LogSegment, ...]:
        """Return the segments as they are now; the tuple never changes."""
        return self._snapshot().segments.segments

    def corrupt_ranges(self) -> tuple[CorruptRange, ...]:
        """
        Return the damaged ranges known so far: from recovery, and from what readers met.

        What lies below the log start is no part of the log, though its file may be there yet.
        """
        snapshot = self._snapshot()
        start = snapshot.start_offset
        return tuple(
            corrupt_range
            for segment in snapshot.segments.segments
            for corrupt_range in segment.corrupt_ranges
            if corrupt_range.next_offset > start or corrupt_range.first_offset >= start
        )

    def look_for_holes(self) -> None:
        """
        Look at the end of each segment that another one follows, the first time that this is asked.

        Where offsets are missing in front of the next segment, `corrupt_ranges()` has them from
        then on,
        though no reader has come there: after a clean stop no opening looks. Segments that are
        made later are known to follow each other.

        Raises:
            LogStorageError: the disk refused; the next call looks again.
        """
        context = self._local.context
        if not context.has_searched_holes:
            with self._reading():
                record_holes(self._snapshot().segments.segments)
            context.has_searched_holes = True

    def repaired_indexes(self) -> tuple[RepairedIndex, ...]:
        """
        Return the transaction indexes that were found to contradict their segments.

        They are held against the batches by a recovery, and after a clean stop by the first reader
        of committed records that needs them.
        """
        return repaired_indexes(self._snapshot().segments.segments)

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """Return the transactions whose abort may hide records from `start` up to `end`."""
        snapshot = self._snapshot()
        while True:
            try:
                with self._reading():
                    return aborted_between(self._local.context, snapshot, start, end)
            except (KafkaLogError, ValueError) as error:
                snapshot = self._refresh_after(error, snapshot)

    def batches(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        on_corrupt: OnCorrupt = "raise",
        isolation: Isolation = "read_uncommitted",
    ) -> Iterator[BatchView]:
        """
        Yield whole batches, control batches too, from the one that holds `start` on.

        Args:
            start: first offset; the log start offset if None.
            end: one past the last offset; how far `isolation` goes at this moment if None.
            on_corrupt: "raise" at damage, after everything before it; "skip" goes on behind it.
            isolation: "read_uncommitted" ends at the high watermark; "read_committed" at the last
                stable offset, and leaves out the data batches of aborted transactions; "log_end"
                ends at the log end, for those who copy the log to raise the high watermark.
        """
        snapshot, limit = self._visible(isolation)
        start = snapshot.start_offset if start is None else start
        snapshot = self._check_range(snapshot, start)
        end = limit if end is None else min(whole_offset("end", end), limit)
        read = self._visible_parts(read_batches, on_corrupt, isolation)
        return self._read(read, snapshot, start, end)

    def records(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        on_corrupt: OnCorrupt = "raise",
        isolation: Isolation = "read_uncommitted",
    ) -> Iterator[Record]:
        """
        Yield records with `start` <= offset < `end`; control records are left out.

        Records decode their key, value and headers when touched. Arguments as for `batches`;
        with on_corrupt="skip" the log's `corrupt_ranges()` list what was passed.
        """
        snapshot, limit = self._visible(isolation)
        start = snapshot.start_offset if start is None else start
        snapshot = self._check_range(snapshot, start)
        end = limit if end is None else min(whole_offset("end", end), limit)
        read = self._visible_parts(read_parts, on_corrupt, isolation)
        parts = self._read(read, snapshot, start, end)
        limit_bytes = self.config.decompressed_max_bytes
        # Chained lists: a generator of records would be entered anew for each of them.
        lists = _record_lists(parts, start, end, limit_bytes, on_corrupt, self._gate)
        return chain.from_iterable(lists)

    def _invalidate_readers(self) -> None:
        """Drop what is cached for look-ups: segments may have left, or damage was found."""

    def _end_before(self, base_offset: int) -> int:
        """Return one above the last offset of the segment before one, 0 where none is sure."""
        segments = self._local.snapshot.segments
        slot = segments.floor_slot(base_offset) - 1
        if slot < 0:
            return 0
        try:
            return segments.segments[slot].end_offset_of_tail() or 0
        except (CorruptRecordError, InvalidRecordError, ValueError):
            return 0

    def _known_epochs(self, snapshot: LogSnapshot) -> LogEpochs:
        """Return the leader epochs, those of another process as they are now."""
        if self._tail is not None:
            self._epochs.follow(snapshot)
        return self._epochs

    def _visible(self, isolation: Isolation) -> tuple[LogSnapshot, int]:
        """Return the log as it is now, and how far a reader may go in it."""
        if isolation == "read_uncommitted":
            snapshot = self._snapshot()
            # Asked behind the snapshot: one that was set before it was taken is seen.
            if self._stable.visibility.high_watermark is None:
                return snapshot, snapshot.end_offset
        visibility, snapshot = self._read_visibility(isolation)
        return snapshot, visibility.limit_of(snapshot, isolation)

    def _read_visibility(self, isolation: Isolation) -> tuple[Visibility, LogSnapshot]:
        check_isolation(isolation)
        if self._read_only_producers is None:
            return self._stable.read(self._snapshot)
        snapshot = self._snapshot()
        if isolation == "read_uncommitted":
            return self._stable.visibility, snapshot
        while True:
            try:
                with self._reading():
                    return self._read_only_producers.visibility(snapshot), snapshot
            except (KafkaLogError, ValueError) as error:
                snapshot = self._refresh_after(error, snapshot)

    def _read_only_transactions(self) -> list[OpenTransaction]:
        """Return the open transactions of a log that another process writes."""
        assert self._read_only_producers is not None
        snapshot = self._snapshot()
        while True:
            try:
                with self._reading():
                    return self._read_only_producers.transactions(snapshot)
            except (KafkaLogError, ValueError) as error:
                snapshot = self._refresh_after(error, snapshot)

    def _reading(self) -> ReportedErrors:
        return self._local.context.errors("reading")

    def _close_readers(self) -> None:
        """Refuse every call from now on, and every batch that an iterator has not come to yet."""
        self._closed = True
        self._gate.close()

    def _ensure_open(self) -> None:
        if self._closed:
            raise LogClosedError(f"{self.directory} is closed", path=self.directory)

    def _snapshot(self) -> LogSnapshot:
        self._ensure_open()
        if self._tail is not None:
            with self._reading():
                self._tail.refresh()
        return self._local.snapshot

    def _check_range(self, snapshot: LogSnapshot, offset: int) -> LogSnapshot:
        if type(offset) is not int:
            offset = whole_offset("offset", offset)
        if snapshot.start_offset <= offset <= snapshot.end_offset:
            return snapshot
        raise OffsetOutOfRangeError(
            f"offset {offset} is not in {self.directory}, which holds"
            f" {snapshot.start_offset} to {snapshot.end_offset}",
            requested=offset,
            log_start_offset=snapshot.start_offset,
            log_end_offset=snapshot.end_offset,
            path=self.directory,
        )

    def _refresh_after(
        self, error: Exception, snapshot: LogSnapshot, offset: int | None = None
    ) -> LogSnapshot:
        """
        Return the log as it is now, where `error` came of its writer's taking files away.

        A file may be missed while its writer is between two steps of a truncation, where there is
        nothing else to see yet: then this looks again, as long as PAUSES_SECONDS lasts.

        Raises:
            OffsetOutOfRangeError: `offset` has gone with them.
            LogClosedError: the log was closed on the way.
        """
        if self._closed:
            if isinstance(error, KafkaLogError):
                raise error
            raise LogClosedError(f"{self.directory} was closed", path=self.directory) from error
        if self._tail is None:
            raise error
        missed = isinstance(error, LogStorageError) and has_missed_file(error)
        for pause in PAUSES_SECONDS:
            time.sleep(pause)
            with self._reading():
                seen = self._tail.refresh()
            fresh = self._snapshot()
            # The same files again after one was missed: it is back, under its old identity.
            if fresh.segments is not snapshot.segments or (missed and seen):
                return fresh if offset is None else self._check_range(fresh, offset)
            if not missed:
                break
        raise error

    def _read(
        self,
        read: Callable[[LogSnapshot, int, int], Iterator[_Read]],
        snapshot: LogSnapshot,
        start: int,
        end: int,
    ) -> Iterator[_Read]:
        """Stop with a typed error where the log is closed, or the disk fails, on the way."""
        parts = read(snapshot, start, end)
        while True:
            try:
                with self._reading():
                    self._ensure_open()
                    for part in parts:
                        yield part
                        start = max(start, part.next_offset)
                        self._ensure_open()
            except (KafkaLogError, ValueError) as error:
                snapshot = self._refresh_after(error, snapshot, start)
                end = min(end, snapshot.end_offset)
                parts = read(snapshot, start, end)
            else:
                return

    def _visible_parts(
        self, read: Callable[..., Iterator[Part]], on_corrupt: OnCorrupt, isolation: Isolation
    ) -> Callable[[LogSnapshot, int, int], Iterator[Part]]:
        """Return what reads the parts that a reader may see."""
        context = self._local.context

        def read_visible(snapshot: LogSnapshot, start: int, end: int) -> Iterator[Part]:
            parts = read(snapshot, start, end, on_corrupt=on_corrupt)
            if isolation != "read_committed":
                return parts
            return without_aborted(parts, context, snapshot, end)

        return read_visible


def _segments_changed(log: weakref.ref[LogReader]) -> None:
    alive = log()
    if alive is not None:
        alive._invalidate_readers()


def _record_lists(
    parts: Iterator[BatchView | MessageRun],
    start: int,
    end: int,
    limit_bytes: int,
    on_corrupt: OnCorrupt,
    gate: CloseSignal,
) -> Iterator[Iterable[Record]]:
    """Yield the records of each part, as far as they lie in the range."""
    before: BatchView | None = None
    run: MessageRun | None = None
    for part in parts:
        if isinstance(part, MessageRun):
            for found in _lists_of_run(part, start, end, limit_bytes, on_corrupt):
                # Each message is a batch: a reader gets none after the log was closed.
                yield ClosableRecords(found, gate)
            start, run = max(start, part.next_offset), part
            continue
        batch, header, next_offset = part, part.header, part.header.next_offset
        if header.is_control:
            continue
        if run is not None:
            before, run = run.last_batch(), None
        records: list[Record] | None
        if on_corrupt == "raise":
            records = batch.records(limit_bytes=limit_bytes)
            check_wrapper(batch, records, before)
        else:
            # The CRC is right, so these bytes are what was written: nothing to search behind.
            records = try_records(batch, limit_bytes)
        if records is None or not fits_after(batch, records, before):
            continue
        inside = header.base_offset >= start and header.last_offset < end
        if inside and not header.is_wrapper:
            yield records
        else:
            yield _within(records, start, end)
        # Where the writer replaced what follows, the next batch may begin below the end of this.
        start, before = max(start, next_offset), batch


def _lists_of_run(
    run: MessageRun, start: int, end: int, limit_bytes: int, on_corrupt: OnCorrupt
) -> Iterator[list[Record]]:
    """Yield the records of plain messages, as far as they lie in the range."""
    is_inside = run.first_offset >= start and run.last_offset < end
    for piece in run.pieces():
        records: list[Record] | None
        if not isinstance(piece, BatchView):
            records = piece
        elif on_corrupt == "raise":
            records = piece.records(limit_bytes=limit_bytes)
        else:
            records = try_records(piece, limit_bytes)
        if records is not None:
            yield records if is_inside else _within(records, start, end)


def _within(records: list[Record], start: int, end: int) -> list[Record]:
    return [record for record in records if start <= record.offset < end]


def whole_offset(name: str, number: object) -> int:
    """Return an offset that a caller gives; TypeError with its name where it is no integer."""
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        raise TypeError(f"{name} must be an int, got {type(number).__name__} {number!r:.80}")
    return operator.index(number)
