"""What compaction asks of a log, and does to it.

A cleaning reads a snapshot of the log without a lock, beside appends and readers. Only the exchange
of segments takes the lock: `replacement` says how.

Thread-safety: everything may be called from any thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from kafkalog.errors import LogCleaningAbortedError
from kafkalog.log.cleaning_facts import LogCleaningFacts, cleaning_facts
from kafkalog.log.deletion import Deleter
from kafkalog.log.replacement import (
    mark_replaced,
    remove_cleaned,
    remove_replaced_marker,
    replace_segments,
)
from kafkalog.log.segment import LogSegment
from kafkalog.log.segment_types import SegmentContext
from kafkalog.log.writable import WritableLog

__all__ = ["CleanableLog", "LastProducerBatch"]

logger = logging.getLogger(__name__)


class LastProducerBatch(NamedTuple):
    """
    What a log knows of a live producer when a cleaning begins.

    Attributes:
        last_offset: of its last batch of data, None where there is none.
        producer_epoch: its current epoch.
    """

    last_offset: int | None
    producer_epoch: int


class CleanableLog(WritableLog):
    """A log that can be compacted; `Log` makes what it needs."""

    _deleter: Deleter
    _cleaning: threading.Lock

    def cleaning_facts(self, *, with_times: bool = True) -> LogCleaningFacts:
        """
        Return what a log is chosen for cleaning by.

        Args:
            with_times: whether to find out timestamps, which may cost a look into each segment.

        Raises:
            LogStorageError, CorruptRecordError: a segment cannot be looked into.
        """
        # Before the snapshot: what is stable stays so, unless the log is truncated.
        stable = self.last_stable_offset
        snapshot = self._snapshot()
        with self._reading():
            return cleaning_facts(self._local.context, snapshot, stable, with_times=with_times)

    @property
    def cleaner_offset(self) -> int | None:
        """Where the next cleaning begins, as it was checkpointed; None where there was none."""
        with self._reading():
            return self._paths.read_cleaner_offset()

    def checkpoint_cleaner_offset(self, offset: int) -> None:
        """
        Checkpoint where a cleaning ended; on the disk when this returns.

        Raises:
            LogStorageError: the disk refused.
        """
        self._local.context.may_have_holes = True
        with self.ensure_owner(), self._changing("writing where a cleaning ended"):
            # It may have been truncated since.
            self._paths.write_cleaner_offset(min(offset, self._local.snapshot.end_offset))

    def last_batches(self) -> Mapping[int, LastProducerBatch]:
        """Return the last batch of each live producer, by its id."""
        with self._write_lock:
            self._ensure_in_charge()
            return {
                producer_id: LastProducerBatch(
                    entry.last_offset if entry.batches else None, entry.producer_epoch
                )
                for producer_id, entry in self._producers.last_entries().items()
            }

    @contextmanager
    def cleaning_lock(self) -> Iterator[None]:
        """
        Be the only one who cleans the log.

        Raises:
            LogCleaningAbortedError: somebody else does.
        """
        if not self._cleaning.acquire(blocking=False):
            raise LogCleaningAbortedError(
                f"{self.directory} is being cleaned already", path=self.directory
            )
        try:
            yield
        finally:
            self._cleaning.release()

    @contextmanager
    def ensure_owner(self) -> Iterator[None]:
        """
        Hold the log's lock, for what must not meet the log's closing.

        Raises:
            LogClosedError, ReadOnlyLogError, LogOfflineError: it may not be written.
        """
        with self._write_lock:
            self._ensure_in_charge()
            yield

    def segment_context(self) -> SegmentContext:
        """Return what the segments of this log share, for who makes others to replace them."""
        return self._local.context

    def replace_segments(
        self,
        leaving: Sequence[LogSegment],
        bases: Sequence[int],
        *,
        required_segments: Sequence[LogSegment] = (),
        leaves_offsets_out: bool = True,
    ) -> None:
        """
        Put segments that were made of sealed ones in their place; see `replacement`.

        Readers that hold the old ones are not disturbed. Files of old segments whose base offset no
        new one has are removed after `file.delete.delay.ms`, with their producer snapshots.

        Args:
            leaving: segments of the log one behind the other, the active one not among them.
            bases: base offsets of the `.cleaned` segments; the first is that of the first old one.
            required_segments: segments that must still be in the log too, since the new ones rely
                on what they say: records that are left out for later ones.
            leaves_offsets_out: whether the new ones may lack records, as those of a compaction.
                Where nothing says so of the log yet, a cleaner offset is checkpointed before.

        Raises:
            LogCleaningAbortedError: a segment has left the log meanwhile. Nothing was changed, and
                the `.cleaned` files are gone.
            LogStorageError: the disk refused. The log is latched where that was half way.
        """
        context = self._local.context
        if leaves_offsets_out:
            try:
                self._record_holes()
            except BaseException:
                with suppress(OSError):
                    remove_cleaned(context, bases)
                raise
        with self._changing("marking segments"):
            mark_replaced(context, leaving, bases)
        with self._write_lock:
            self._ensure_writable()
            with self._changing("replacing segments"):
                gone = replace_segments(
                    self._local, leaving, bases, required_segments=required_segments
                )
            if gone:
                self._producers.mark_snapshots_deleted(gone)
                self._deleter.delete_replaced(gone)
        try:
            remove_replaced_marker(context, bases)
        except OSError as error:
            logger.warning("%s keeps the mark of an exchange: %s", self.directory, error)
            context.report(error)

    def _record_holes(self) -> None:
        """
        Say of the log, on the disk, that offsets may be missing between its segments.

        Else holes would count as lost records, here until the cleaning ends, and after a crash
        until the next one. Crash points: those of a checkpoint; a cleaning begins at the start, as
        it did before.

        Raises:
            LogStorageError: the disk refused.
        """
        self._local.context.may_have_holes = True
        if "compact" in self.config.cleanup_policy:
            return
        with self.ensure_owner(), self._changing("writing where a cleaning begins"):
            if self._paths.read_cleaner_offset() is None:
                self._paths.write_cleaner_offset(self._local.snapshot.start_offset)
