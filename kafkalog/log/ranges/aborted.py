"""Which batches of a range were aborted, by the transaction indexes on the disk.

Which records were aborted the batches say; an index only saves looking, and nothing says that there
has to be one. So before one is believed its segment is gone through for abort markers, by headers,
once in a process. Where the index lacks one, or its file is damaged, the batches tell, from the
newest producer snapshot on. All of that is read by `pread`. Logs without transactions are never
asked.

Thread-safety: none; it is one reader's. What was gone through is shared by those of a process, and
two of them that go through the same segment at a time do it twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from kafkalog.errors import CorruptIndexError, KafkaLogError
from kafkalog.files.filesystem import FileSystem
from kafkalog.indexes.aborted_records import LazyAbortedBatches
from kafkalog.indexes.transaction_index import AbortedTransaction, TransactionIndex
from kafkalog.layout import CONTROL_MASK, MAGIC_V2
from kafkalog.log.ranges.on_disk import SegmentOnDisk, floor_slot, segments_of
from kafkalog.log.ranges.producers import aborted_by_batches, all_batches
from kafkalog.log.scan.batch_slices import BatchSlice
from kafkalog.log.transactions import has_none_open, is_abort_marker

__all__ = ["AbortedOnDisk"]


@dataclass(slots=True)
class _Walked:
    """How far a segment was gone through, and which producers aborted there, at which offset."""

    next_offset: int
    markers: set[tuple[int, int]] = field(default_factory=set)

    def add(self, batch_slice: BatchSlice) -> None:
        """Take in the control batches of a slice."""
        batches = batch_slice.batches
        rows = slice(batch_slice.first, batch_slice.stop)
        is_control = batches.attributes[rows] & CONTROL_MASK != 0
        is_control &= (batches.producer_id[rows] >= 0) & (batches.magic[rows] == MAGIC_V2)
        for row in np.flatnonzero(is_control).tolist():
            batch = batch_slice.view(batch_slice.first + row)
            try:
                if is_abort_marker(batch):
                    self.markers.add((batch.header.producer_id, batch.header.base_offset))
            except KafkaLogError:
                continue
        self.next_offset = max(self.next_offset, batch_slice.next_offset)


# Of the segments that this process has asked about last, by path and file: tasks of one query, and
# batches of one stream, ask about the same ones again.
_WALKED: Final[dict[tuple[str, int], _Walked]] = {}
_WALKED_MAX: Final = 256


class AbortedOnDisk(LazyAbortedBatches):
    """
    What a reader of committed records is not shown.

    Args:
        filesystem: the disk.
        directory: the partition's.
        end_offset: one past the last offset that is read.
    """

    def __init__(self, filesystem: FileSystem, directory: Path, end_offset: int) -> None:
        super().__init__(end_offset)
        self._filesystem = filesystem
        self._directory = directory
        self._ahead: list[SegmentOnDisk] = []

    def _segment_after(self, offset: int) -> int | None:
        segments = segments_of(self._filesystem, self._directory)
        self._ahead = segments[max(floor_slot(segments, offset), 0) :]
        return self._ahead[0].following if self._ahead else None

    def _between(self, start: int, end: int) -> list[AbortedTransaction]:
        found: list[AbortedTransaction] = []
        for segment in self._ahead:
            index = TransactionIndex(
                self._filesystem,
                segment.files.transaction_index,
                segment.base_offset,
                read_only=True,
            )
            try:
                index.load()
            except CorruptIndexError:
                return self._from_batches(start, end)
            known = {(each.producer_id, each.last_offset) for each in index.entries()}
            if not self._markers(segment) <= known:
                return self._from_batches(start, end)
            transactions, is_complete = index.collect(start, end)
            found += transactions
            behind = segment.following
            if is_complete or behind is None:
                break
            if behind >= end and has_none_open(self._filesystem, self._directory, behind, end):
                break
        return found

    def _markers(self, segment: SegmentOnDisk) -> set[tuple[int, int]]:
        """Return producer and offset of the abort markers in a segment, as far as it goes now."""
        facts = self._filesystem.stat(segment.files.log)
        if facts is None:
            return set()
        key = (str(segment.files.log), facts.file_id)
        walked = _WALKED.pop(key, None) or _Walked(segment.base_offset)
        # The last one that was asked for goes last.
        _WALKED[key] = walked
        while len(_WALKED) > _WALKED_MAX:
            _WALKED.pop(next(iter(_WALKED)), None)
        batch_slices = all_batches(
            self._filesystem, self._directory, walked.next_offset, segment.following
        )
        for batch_slice in batch_slices:
            walked.add(batch_slice)
        return walked.markers

    def _from_batches(self, start: int, end: int) -> list[AbortedTransaction]:
        return aborted_by_batches(self._filesystem, self._directory, start, end)
