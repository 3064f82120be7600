"""Which batches of a range were aborted, by the transaction indexes on the disk.

An index is believed as a broker believes it, with one look more: the abort markers within the range
have to be in it. Where one is not, or the file is damaged, the log is opened read-only, and tells
it by its batches: that maps files, and takes as long as opening takes.

Thread-safety: none; it is one reader's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from kafkalog._core.header import BatchHeader
from kafkalog.errors import CorruptIndexError, KafkaLogError, OffsetOutOfRangeError
from kafkalog.files.filesystem import FileSystem
from kafkalog.indexes.aborted_records import AbortedRecords
from kafkalog.indexes.transaction_index import (
    AbortedTransaction,
    TransactionIndex,
    collect_aborted,
)
from kafkalog.layout import CONTROL_MASK
from kafkalog.log.opening import open_log
from kafkalog.log.ranges.damage import Damage
from kafkalog.log.ranges.on_disk import SegmentOnDisk, floor_slot, segments_of
from kafkalog.log.ranges.reader import RangeReader
from kafkalog.log.scan.conditions import Integers
from kafkalog.log.transactions import is_abort_marker, none_is_open

__all__ = ["AbortedOnDisk"]

_ANY_TIME: Final = Integers()
_MAX_BATCH_BYTES: Final = 2**31 - 1


class AbortedOnDisk:
    """
    What a reader of committed records is not shown.

    Args:
        filesystem: the disk.
        directory: the partition's.
        end_offset: one past the last offset that is read.
    """

    def __init__(self, filesystem: FileSystem, directory: Path, end_offset: int) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._end_offset = end_offset
        self._aborted, self._known_end = AbortedRecords(()), -1

    def hides(self, header: BatchHeader) -> bool:
        """Return whether a batch was aborted; asked in the order of the log."""
        if not header.is_transactional or header.is_control:
            return False
        offset = header.base_offset
        if offset >= self._known_end:
            segments = segments_of(self._filesystem, self._directory)
            slot = max(floor_slot(segments, offset), 0)
            following = segments[slot].following if segments else None
            end = self._end_offset if following is None else min(following, self._end_offset)
            self._known_end = max(end, offset + 1)
            self._aborted = AbortedRecords(self._between(segments, slot, offset))
        return self._aborted.hides(header)

    def _between(
        self, segments: list[SegmentOnDisk], slot: int, offset: int
    ) -> list[AbortedTransaction]:
        try:
            found = collect_aborted(self._indexes(segments, slot), offset, self._known_end)
        except CorruptIndexError:
            return self._told_by_batches(offset)
        known = {(each.producer_id, each.last_offset) for each in found}
        if segments and not self._markers(offset) <= known:
            return self._told_by_batches(offset)
        return found

    def _indexes(self, segments: list[SegmentOnDisk], slot: int) -> Iterator[TransactionIndex]:
        for segment in segments[slot:]:
            index = TransactionIndex(
                self._filesystem,
                segment.files.transaction_index,
                segment.base_offset,
                read_only=True,
            )
            index.load()
            yield index
            behind = segment.following
            if behind is not None and none_is_open(
                self._filesystem, self._directory, behind, self._known_end
            ):
                return

    def _markers(self, offset: int) -> set[tuple[int, int]]:
        """Return producer and offset of the abort markers that may speak of what is read."""
        reader = RangeReader(
            self._filesystem,
            self._directory,
            offset,
            self._known_end,
            timestamps=_ANY_TIME,
            hides=None,
            check_crcs=False,
            max_batch_bytes=_MAX_BATCH_BYTES,
            retries=0,
            on_damage=_pass_over,
            on_missing=_find_no_more,
        )
        markers: set[tuple[int, int]] = set()
        for stretch in reader.stretches():
            rows = stretch.batches
            attributes = rows.attributes[stretch.first : stretch.stop]
            is_marker = (attributes & CONTROL_MASK != 0) & (
                rows.producer_id[stretch.first : stretch.stop] >= 0
            )
            for row in np.flatnonzero(is_marker).tolist():
                batch = stretch.view(stretch.first + row)
                try:
                    is_abort = is_abort_marker(batch)
                except KafkaLogError:
                    continue
                if is_abort:
                    markers.add((batch.header.producer_id, batch.header.base_offset))
        return markers

    def _told_by_batches(self, offset: int) -> list[AbortedTransaction]:
        with open_log(self._directory, read_only=True) as log:
            return log.aborted_transactions(offset, self._known_end)


def _pass_over(damage: Damage) -> None:
    """Damage is told by who reads the records."""


def _find_no_more(error: OffsetOutOfRangeError) -> int:
    """What is missing is told by who reads the records."""
    return error.log_start_offset or 0
