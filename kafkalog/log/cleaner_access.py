"""The operations on a log that compaction needs.

A cleaning reads a snapshot of the log without a lock, while others append and read. Only the
replacement of segments takes the lock: see `replacement.py`.

Thread-safety: every method from any thread.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import NamedTuple

from kafkalog._engine.snapshot import LogSnapshot
from kafkalog.errors import LogCleaningAbortedError
from kafkalog.indexes.transaction_index import AbortedTransaction
from kafkalog.log.cleaning_facts import LogCleaningFacts, cleaning_facts
from kafkalog.log.log import Log, partition_of
from kafkalog.log.partition import Partition
from kafkalog.log.replacement import (
    mark_replaced,
    remove_cleaned,
    remove_replaced_marker,
    replace_segments,
)
from kafkalog.log.segment import LogSegment
from kafkalog.log.segment_types import SegmentContext

__all__ = ["CleanerAccess", "LastProducerBatch", "cleaner_access"]

logger = logging.getLogger(__name__)


class LastProducerBatch(NamedTuple):
    """
    A live producer, as the log has it when a cleaning begins.

    Attributes:
        last_offset: of its last batch of data, None without one.
        producer_epoch: its current epoch.
    """

    last_offset: int | None
    producer_epoch: int


def cleaner_access(log: Log) -> CleanerAccess:
    """Return the operations that compaction needs, of an open log."""
    return CleanerAccess(partition_of(log))


class CleanerAccess:
    """
    Operations on one log for compaction.

    Args:
        partition: the log.

    Attributes:
        context: what the segments of the log share, for code that builds replacement segments.

    Thread-safety: every method from any thread.
    """

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self.context: SegmentContext = partition.local.context

    def snapshot(self) -> LogSnapshot:
        """Return the log as it is now; raises LogClosedError, LogStorageError."""
        return self._partition.view.snapshot()

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """Return the transactions whose abort may hide records from `start` up to `end`."""
        return self._partition.reader.aborted_transactions(start, end)

    def cleaning_facts(self, *, with_times: bool = True) -> LogCleaningFacts:
        """
        Return the facts by which a log is selected for cleaning.

        Args:
            with_times: whether to find out timestamps, which may cost a read of each segment.

        Raises:
            LogStorageError, CorruptRecordError: a segment cannot be read.
        """
        view = self._partition.view
        # Before the snapshot: what is stable stays so, unless the log is truncated.
        stable = view.last_stable_offset
        snapshot = view.snapshot()
        with view.errors():
            return cleaning_facts(self.context, snapshot, stable, with_times=with_times)

    @property
    def cleaner_offset(self) -> int | None:
        """The checkpointed start of the next cleaning, None without one."""
        with self._partition.view.errors():
            return self._partition.store.read_cleaner_offset()

    def checkpoint_cleaner_offset(self, offset: int) -> None:
        """
        Checkpoint the end of a cleaning; on the disk when this returns.

        Raises:
            LogStorageError: the disk refused.
        """
        partition = self._partition
        self.context.mark_holes_possible()
        with (
            partition.gate.owned(),
            partition.gate.mark_offline_on_error("writing where a cleaning ended"),
        ):
            # The log may have been truncated since.
            end_offset = partition.local.snapshot.end_offset
            partition.store.write_cleaner_offset(min(offset, end_offset))

    def last_batches(self) -> Mapping[int, LastProducerBatch]:
        """Return the last batch of each live producer, by its id."""
        with self._partition.gate.owned():
            return {
                producer_id: LastProducerBatch(
                    entry.last_offset if entry.batches else None, entry.producer_epoch
                )
                for producer_id, entry in self._partition.producers.last_entries().items()
            }

    @contextmanager
    def cleaning_lock(self) -> Iterator[None]:
        """
        Exclude other cleanings of the log.

        Raises:
            LogCleaningAbortedError: another cleaning is running.
        """
        lock, directory = self._partition.cleaning, self.context.directory
        if not lock.acquire(blocking=False):
            raise LogCleaningAbortedError(f"{directory} is being cleaned already", path=directory)
        try:
            yield
        finally:
            lock.release()

    def sync(self) -> None:
        """
        Put everything in the log's own files on the disk, what a commit journal has too.

        Raises:
            LogClosedError, LogStorageError, LogOfflineError: as `Log.flush`.
        """
        flusher = self._partition.flusher
        if flusher.synced_offset < self._partition.local.snapshot.end_offset:
            flusher.flush()

    def ensure_owner(self) -> AbstractContextManager[None]:
        """
        Return a context that holds the log's lock, for work that must not meet the log's closing.

        Raises:
            LogClosedError, ReadOnlyLogError, LogOfflineError: it may not be written.
        """
        return self._partition.gate.owned()

    def replace_segments(
        self,
        leaving: Sequence[LogSegment],
        bases: Sequence[int],
        *,
        required_segments: Sequence[LogSegment] = (),
        leaves_offsets_out: bool = True,
    ) -> None:
        """
        Replace sealed segments by segments that were made of them; see `replacement.py`.

        Readers that hold the old ones are not disturbed. Files of old segments whose base offset no
        new one has are removed after `file.delete.delay.ms`, with their producer snapshots.

        Args:
            leaving: consecutive segments of the log, without the active one.
            bases: base offsets of the `.cleaned` segments; the first is that of the first old one.
            required_segments: segments that must still be in the log, because the new ones rely on
                their content: records that are left out for later ones.
            leaves_offsets_out: whether the new ones may lack records, as those of a compaction.
                If nothing records that of the log yet, a cleaner offset is checkpointed before.

        Raises:
            LogCleaningAbortedError: a segment has left the log. Nothing was changed, and the
                `.cleaned` files are gone.
            LogStorageError: the disk refused. If the replacement had begun, the log is offline.
        """
        partition, context = self._partition, self.context
        gate = partition.gate
        if leaves_offsets_out:
            try:
                self._record_holes()
            except BaseException:
                with suppress(OSError):
                    remove_cleaned(context, bases)
                raise
        with gate.mark_offline_on_error("marking segments"):
            mark_replaced(context, leaving, bases)
        with gate.writable(), context.commits_withdrawn(partition.flusher.sync_all):
            with gate.mark_offline_on_error("replacing segments"):
                gone = replace_segments(
                    partition.local, leaving, bases, required_segments=required_segments
                )
            if gone:
                partition.producers.mark_snapshots_deleted(gone)
                partition.deleter.delete_replaced(gone)
        try:
            remove_replaced_marker(context, bases)
        except OSError as error:
            logger.warning("%s keeps the marker of a replacement: %s", context.directory, error)
            context.report(error)

    def _record_holes(self) -> None:
        """
        Record of the log, on the disk, that offsets may be missing between its segments.

        Otherwise holes would count as lost records, in this process until the cleaning ends, and
        after a crash until the next one. Crash points: those of a checkpoint; a cleaning begins at
        the log start, as it did before.

        Raises:
            LogStorageError: the disk refused.
        """
        partition = self._partition
        self.context.mark_holes_possible()
        if "compact" in self.context.config.cleanup_policy:
            return
        with (
            partition.gate.owned(),
            partition.gate.mark_offline_on_error("writing where a cleaning begins"),
        ):
            if partition.store.read_cleaner_offset() is None:
                partition.store.write_cleaner_offset(partition.local.snapshot.start_offset)
