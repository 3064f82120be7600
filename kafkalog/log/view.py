"""View of a reader: the current snapshot, the visible offsets, and the known damage.

Each operation takes one snapshot and works on it. A log that follows another process first reads
the end of its writer, and reads it again if a file is missing that the writer removed.

The view decodes nothing and changes nothing.

Thread-safety: every method from any thread, without a lock.
"""

from __future__ import annotations

import operator
import time

from kafkalog._engine.snapshot import LogSnapshot
from kafkalog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    KafkaLogError,
    LogClosedError,
    LogStorageError,
    OffsetOutOfRangeError,
)
from kafkalog.files.errors import has_missed_file
from kafkalog.log.corrupt_ranges import CorruptRange
from kafkalog.log.epochs import LogEpochs
from kafkalog.log.holes import record_holes
from kafkalog.log.isolation import Isolation, StableOffsets, Visibility, check_isolation
from kafkalog.log.local_log import LocalLog
from kafkalog.log.producer_loading import ReadOnlyProducers
from kafkalog.log.report import RepairedIndex
from kafkalog.log.segment import LogSegment
from kafkalog.log.segment_types import ReportedErrors
from kafkalog.log.tail import ReadOnlyTail
from kafkalog.log.transactions import repaired_indexes
from kafkalog.log.write_gate import WriteGate
from kafkalog.state.leader_epochs import EpochEnd
from kafkalog.state.producers import OpenTransaction

__all__ = ["PAUSES_SECONDS", "LogView", "whole_offset"]

# Waits of a follower for a missing file: a quarter of a second in all, longer than a truncation.
PAUSES_SECONDS = (0.0, 0.001, 0.004, 0.015, 0.06, 0.17)


class LogView:
    """
    Visible part of one log.

    Args:
        gate: knows whether the log was closed.
        local: the segments.
        tail: follows the writing process; None in the writing process itself.
        epochs: the leader epochs.

    Attributes:
        context: settings and parts that the segments share.
        stable: the published visibility; `LogProducers` publishes it.
        follows: whether another process writes the log.

    Thread-safety: every method from any thread, without a lock.
    """

    def __init__(
        self, gate: WriteGate, local: LocalLog, tail: ReadOnlyTail | None, epochs: LogEpochs
    ) -> None:
        self._gate = gate
        self._published = local.published
        self._tail = tail
        self._epochs = epochs
        self.context = local.context
        # Without a state, and made once: it is entered at each look at the end of a writer.
        self._errors = local.context.errors("reading")
        self.stable = StableOffsets()
        self.follows = tail is not None
        self._followed = None if tail is None else ReadOnlyProducers(local.context)

    @property
    def is_closed(self) -> bool:
        """True if the log was closed."""
        return self._gate.state.is_closed

    def ensure_open(self) -> None:
        """Raise LogClosedError if the log was closed."""
        if self._gate.state.is_closed:
            raise LogClosedError(f"{self.context.directory} is closed", path=self.context.directory)

    def errors(self) -> ReportedErrors:
        """Return a context that raises disk errors of a read as typed ones, and reports them."""
        return self._errors

    # ------------------------------------------------------------------------------ snapshots

    def snapshot(self) -> LogSnapshot:
        """
        Return the log as it is now.

        Raises:
            LogClosedError: the log was closed.
            LogStorageError: the disk failed.
        """
        self.ensure_open()
        if self._tail is not None:
            with self.errors():
                self._tail.refresh()
        return self._published.snapshot

    @property
    def last_snapshot(self) -> LogSnapshot:
        """The log as it was published last, also of a log that was closed."""
        return self._published.snapshot

    def visible(self, isolation: Isolation) -> tuple[LogSnapshot, int]:
        """Return the current snapshot, and the end of its visible offsets."""
        if isolation == "read_uncommitted":
            snapshot = self.snapshot()
            # Read after the snapshot, so that a high watermark set before the snapshot is seen.
            if self.stable.visibility.high_watermark is None:
                return snapshot, snapshot.end_offset
        visibility, snapshot = self.visibility(isolation)
        return snapshot, visibility.limit_of(snapshot, isolation)

    def visibility(self, isolation: Isolation) -> tuple[Visibility, LogSnapshot]:
        """Return the visibility of an isolation level, and a snapshot that belongs to it."""
        check_isolation(isolation)
        if self._followed is None:
            return self.stable.read(self.snapshot)
        snapshot = self.snapshot()
        if isolation == "read_uncommitted":
            return self.stable.visibility, snapshot
        while True:
            try:
                with self.errors():
                    return self._followed.visibility(snapshot), snapshot
            except (KafkaLogError, ValueError) as error:
                snapshot = self.refresh_after(error, snapshot)

    def check_range(self, snapshot: LogSnapshot, offset: int) -> LogSnapshot:
        """
        Return the snapshot if it has the offset, the log end offset included.

        Raises:
            TypeError: the offset is no integer.
            OffsetOutOfRangeError: it is below the log start or above the log end.
        """
        if type(offset) is not int:
            offset = whole_offset("offset", offset)
        if snapshot.start_offset <= offset <= snapshot.end_offset:
            return snapshot
        directory = self.context.directory
        raise OffsetOutOfRangeError(
            f"offset {offset} is not in {directory}, which holds"
            f" {snapshot.start_offset} to {snapshot.end_offset}",
            requested=offset,
            log_start_offset=snapshot.start_offset,
            log_end_offset=snapshot.end_offset,
            path=directory,
        )

    def refresh_after(
        self, error: Exception, snapshot: LogSnapshot, offset: int | None = None
    ) -> LogSnapshot:
        """
        Return the current snapshot, if `error` came from files that the writer removed.

        A file may be missing while the writer is between two steps of a truncation: then this reads
        the directory again, up to the time of PAUSES_SECONDS.

        Raises:
            OffsetOutOfRangeError: `offset` was removed with them.
            LogClosedError: the log was closed during the call.
            Exception: `error` itself, which has another cause.
        """
        if self.is_closed:
            if isinstance(error, KafkaLogError):
                raise error
            directory = self.context.directory
            raise LogClosedError(f"{directory} was closed", path=directory) from error
        if self._tail is None:
            raise error
        missed = isinstance(error, LogStorageError) and has_missed_file(error)
        for pause in PAUSES_SECONDS:
            time.sleep(pause)
            with self.errors():
                seen = self._tail.refresh()
            fresh = self.snapshot()
            # The same files again after one was missed: it is back, under its old identity.
            if fresh.segments is not snapshot.segments or (missed and seen):
                return fresh if offset is None else self.check_range(fresh, offset)
            if not missed:
                break
        raise error

    # ----------------------------------------------------------------------- offsets of the log

    @property
    def log_start_offset(self) -> int:
        """Smallest offset that may be read."""
        snapshot = self._published.snapshot if self._tail is None else self.snapshot()
        return snapshot.start_offset

    @property
    def log_end_offset(self) -> int:
        """Offset that the next record gets."""
        return self.snapshot().end_offset

    @property
    def high_watermark(self) -> int:
        """End of the offsets that readers may see."""
        return self.visible("read_uncommitted")[1]

    @property
    def last_stable_offset(self) -> int:
        """End of the offsets that readers of committed records may see."""
        return self.visible("read_committed")[1]

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the earliest transaction that is not stable yet, None without one."""
        visibility, snapshot = self.visibility("read_committed")
        first = visibility.first_unstable_offset
        return None if first is None else max(first, snapshot.start_offset)

    def epochs(self, snapshot: LogSnapshot) -> LogEpochs:
        """Return the leader epochs, those of another process as they are now."""
        if self._tail is not None:
            self._epochs.follow(snapshot)
        return self._epochs

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """Return the largest leader epoch not above `epoch`, and the offset after its records."""
        snapshot = self.snapshot()
        return self.epochs(snapshot).end_offset_for(epoch, snapshot.end_offset)

    def open_transactions(self) -> list[OpenTransaction]:
        """Return the open transactions of a log that another process writes."""
        assert self._followed is not None
        snapshot = self.snapshot()
        while True:
            try:
                with self.errors():
                    return self._followed.transactions(snapshot)
            except (KafkaLogError, ValueError) as error:
                snapshot = self.refresh_after(error, snapshot)

    # ---------------------------------------------------------------------- segments and damage

    def segments(self) -> tuple[LogSegment, ...]:
        """Return the segments as they are now; the tuple never changes."""
        return self.snapshot().segments.segments

    def corrupt_ranges(self) -> tuple[CorruptRange, ...]:
        """Return the corrupt ranges known so far that reach above the log start."""
        snapshot = self.snapshot()
        start = snapshot.start_offset
        return tuple(
            each
            for segment in snapshot.segments.segments
            for each in segment.corrupt_ranges
            if each.next_offset > start or each.first_offset >= start
        )

    def search_holes(self) -> None:
        """
        Search the end of each segment for missing offsets, once for each opening of the log.

        Holes before the next segment are in `corrupt_ranges` from then on, although no reader was
        there: after a clean stop no opening searches. Segments that are made later follow each
        other.

        Raises:
            LogStorageError: the disk failed; the next call searches again.
        """
        context = self.context
        if not context.has_searched_holes:
            with self.errors():
                record_holes(self.snapshot().segments.segments)
            context.mark_holes_searched()

    def repaired_indexes(self) -> tuple[RepairedIndex, ...]:
        """
        Return the transaction indexes that contradicted their segments.

        A recovery compares them with the batches; after a clean stop the first reader of committed
        records that needs them does.
        """
        return repaired_indexes(self.snapshot().segments.segments)

    def end_before(self, base_offset: int) -> int:
        """Return one above the last offset of the segment before one, 0 where none is sure."""
        segments = self._published.snapshot.segments
        slot = segments.floor_slot(base_offset) - 1
        if slot < 0:
            return 0
        try:
            return segments.segments[slot].end_offset_of_tail() or 0
        except (CorruptRecordError, InvalidRecordError, ValueError):
            return 0


def whole_offset(name: str, number: object) -> int:
    """Return an offset that a caller gives; TypeError with its name if it is no integer."""
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        raise TypeError(f"{name} must be an int, got {type(number).__name__} {number!r:.80}")
    return operator.index(number)
