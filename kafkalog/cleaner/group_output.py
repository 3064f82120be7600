"""The output of one group of segments: a new segment, unless there is nothing to change.

A single segment that stays byte for byte is not written. While nothing of it has changed, only the
positions of its runs are kept; the runs are copied after the first change.

Thread-safety: none; it belongs to one cleaning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from typing_extensions import Buffer

from kafkalog.cleaner.record_filter import RecordFilter
from kafkalog.indexes.transaction_index import AbortedTransaction
from kafkalog.log.conversion.source import SegmentSource
from kafkalog.log.segment_writer import OutputTarget, SegmentWriter
from kafkalog.records.conversion.conversion_units import FileRecords

__all__ = ["GroupOutput"]


class GroupOutput:
    """
    Output of the runs of one group.

    Args:
        target: directory of the new segment.
        group: the segments.
        record_filter: filters the runs.
        throttle: called with the bytes of each write.
    """

    def __init__(
        self,
        target: OutputTarget,
        group: Sequence[SegmentSource],
        record_filter: RecordFilter,
        throttle: Callable[[int], object],
    ) -> None:
        self._target = target
        self._group = group
        self._filter = record_filter
        self._throttle = throttle
        self._unchanged: list[tuple[int, int]] = []
        self._writer: SegmentWriter | None = None

    def add(self, run: FileRecords, *, old_tombstones_stay: bool) -> None:
        """
        Filter a run, and write the retained batches.

        Raises:
            CorruptRecordError: a batch is damaged.
            LogClosedError: the log was closed.
            OSError: the disk failed.
        """
        statistics = self._filter.statistics
        before = statistics.batches_read - statistics.batches_copied
        parts = self._filter.filter(run, old_tombstones_stay=old_tombstones_stay)
        has_changed = statistics.batches_read - statistics.batches_copied > before
        if self._writer is None and not has_changed and len(self._group) == 1:
            self._unchanged.append((run.position, len(run.data)))
        else:
            self._write(parts)

    def finish(
        self,
        modified_ms: int,
        aborted: Sequence[AbortedTransaction],
        *,
        empty_modified_ms: int | None = None,
    ) -> list[int]:
        """
        Sync the new segment; return its base offset, or those of several.

        The list is empty if the old segment stays. Arguments and errors as for
        `SegmentWriter.finish`.
        """
        if self._writer is None and len(self._group) == 1:
            entries = self._group[0].segment.transactions.index.entries()
            if sorted(aborted) == sorted(entries):
                return []
        self._write([])
        assert self._writer is not None
        return self._writer.finish(modified_ms, aborted, empty_modified_ms=empty_modified_ms)

    def abandon(self) -> None:
        """Remove the files that were written."""
        if self._writer is not None:
            self._writer.abandon()

    def _write(self, parts: Sequence[Buffer]) -> None:
        if self._writer is None:
            first, last = self._group[0], self._group[-1]
            self._writer = SegmentWriter(
                self._target, first.segment.base_offset, last.bound.following_offset
            )
            unchanged, self._unchanged = self._unchanged, []
            for position, size in unchanged:
                data = first.segment.file.read(position, size)
                self._throttle(self._writer.write([data]))
        self._throttle(self._writer.write(parts))
