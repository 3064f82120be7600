"""Slices of a segment that a scan decodes at once: adjacent batches of one kind.

Segments are excluded by their facts, and by the time index the part before the first requested
time; batches by their headers: those outside the requested offsets and times, those of control
records, and for readers of committed records those that were aborted. The rest are runs of
uncompressed batches, of old messages too, and runs of compressed ones; one call decodes many of
either.

Bytes are read from memory once: a walk reads headers only, and the CRC is checked when a batch is
decoded. Until then no header is believed: skipped batches are checked as well, and if a CRC is
wrong, or headers contradict each other, the walk is repeated by the rules of `walk.py`.

Thread-safety: none; a generator belongs to one thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kafkalog._core.batch import BatchColumns
from kafkalog.layout import (
    CODEC_MASK,
    CONTROL_MASK,
    MAGIC_V2,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
)
from kafkalog.log.batch_walk import CrcCheck, ResumePoint, WalkedBatches
from kafkalog.log.holes import record_hole
from kafkalog.log.reading import OnCorrupt, WalkStart, after_damage, walk_ahead, walk_starts
from kafkalog.log.scan.conditions import Integers
from kafkalog.records.batch_view import BatchView

if TYPE_CHECKING:
    from kafkalog._engine.snapshot import LogSnapshot
    from kafkalog.log.isolation import AbortedBatches

__all__ = [
    "BatchSlice",
    "count_below",
    "kind_edges",
    "read_batch_slices",
    "wanted_batches",
]

# Bytes whose headers are read ahead: four times those of other readers, since other threads wait
# during the Python code of each walk. No record is read for it.
WALK_BYTES = 4 * 1024 * 1024


class BatchSlice:
    """
    Adjacent batches, whole by their headers; all of them are requested, or none.

    The reader of a slice checks the CRC of each batch when it has its bytes, unless that was done.
    It calls `reject` for a wrong one before it takes the next slice.

    Attributes:
        path: their file.
        origin: position of `data` in it.
        data: its bytes, up to the end of the walk.
        batches: headers of a walk over it, valid until the next slice.
        first, stop: range of their rows.
        is_wanted: whether their records are requested.
        is_plain: whether they are uncompressed.
        is_checked: whether their CRC is known to be right.
        rejected_row: row with a wrong CRC.
    """

    __slots__ = (
        "batches",
        "data",
        "first",
        "is_checked",
        "is_plain",
        "is_wanted",
        "origin",
        "path",
        "rejected_row",
        "stop",
    )

    def __init__(
        self,
        path: Path,
        walked: WalkedBatches,
        batches: BatchColumns,
        first: int,
        stop: int,
        *,
        is_wanted: bool,
        is_plain: bool,
    ) -> None:
        self.path = path
        self.origin = walked.origin
        self.data = walked.data
        self.batches = batches
        self.first = first
        self.stop = stop
        self.is_wanted = is_wanted
        self.is_plain = is_plain
        self.is_checked = walked.is_checked
        self.rejected_row: int | None = None

    def reject(self, row: int) -> None:
        """Record that the CRC of a batch is wrong; those before it were right."""
        self.rejected_row = row

    @property
    def next_offset(self) -> int:
        """One above the last offset, by the header."""
        stop = self.stop if self.rejected_row is None else self.rejected_row
        if stop == self.first:
            return 0
        return int(self.batches.last_offset[stop - 1]) + 1

    @property
    def start_position(self) -> int:
        """Position of the first batch in the data."""
        return int(self.batches.position[self.first])

    @property
    def end_position(self) -> int:
        """End of the last batch in the data."""
        last = self.stop - 1
        return int(self.batches.position[last]) + int(self.batches.size_bytes[last])

    @property
    def size_bytes(self) -> int:
        """Size of the batches, which are adjacent."""
        return self.end_position - self.start_position

    @property
    def record_count(self) -> int:
        """Number of their records, by the headers."""
        # Not `sum`, a Python function around it: it costs a percent of a scan.
        return max(int(np.add.reduce(self.batches.record_count[self.first : self.stop])), 0)

    def view(self, row: int) -> BatchView:
        """Return one of the batches."""
        start, size = int(self.batches.position[row]), int(self.batches.size_bytes[row])
        data = self.data[start : start + size]
        return BatchView(data, path=self.path, position=self.origin + start)

    def file_end(self, row: int) -> int:
        """Return the end of a batch in its file."""
        return self.origin + int(self.batches.position[row]) + int(self.batches.size_bytes[row])


def read_batch_slices(
    snapshot: LogSnapshot,
    start_offset: int,
    end_offset: int,
    *,
    on_corrupt: OnCorrupt,
    timestamps: Integers,
    aborted: AbortedBatches | None = None,
) -> Iterator[BatchSlice]:
    """
    Yield the slices with the offsets of a range, from the batch with the first of them on.

    Args:
        snapshot: snapshot of the log.
        start_offset: first offset to read.
        end_offset: batches that begin at or above it are left out.
        on_corrupt: what to do at damage.
        timestamps: requested timestamps.
        aborted: filter of aborted batches; None to yield them, too.

    Raises:
        CorruptRecordError: at damage, with on_corrupt="raise".
    """
    expected, before = 0, None
    # The active segment may have a later record by now, and its largest timestamp.
    active = snapshot.segments.active
    for walk_start in walk_starts(snapshot, start_offset, end_offset, on_corrupt):
        segment = walk_start.segment
        asks = not timestamps.is_all and segment is not active
        if asks and segment.max_timestamp < timestamps.first:
            before = None
            continue
        if before is not None and walk_start.bound.end:
            record_hole(snapshot.segments.segments, before, expected, segment.base_offset)
        before, expected = None if asks else segment, max(expected, walk_start.next_offset)
        for batch_slice in _of_segment(
            walk_start, expected, end_offset, on_corrupt, timestamps, aborted
        ):
            yield batch_slice
            expected = max(expected, batch_slice.next_offset)


def _of_segment(
    walk_start: WalkStart,
    expected: int,
    end_offset: int,
    on_corrupt: OnCorrupt,
    timestamps: Integers,
    aborted: AbortedBatches | None,
) -> Iterator[BatchSlice]:
    segment, bound, position = walk_start.segment, walk_start.bound, walk_start.position
    if timestamps.first > 0:
        # Times need not rise: the index gives a first position, but no last one.
        position = max(position, segment.start_for_time(timestamps.first, bound))
    batches = BatchColumns(walk_ahead(walk_start, end_offset - expected, WALK_BYTES))
    for walked in segment.walk(
        ResumePoint(position, expected),
        bound,
        batches,
        after_damage(segment, bound, on_corrupt),
        check_crc=CrcCheck.ON_DOUBT,
    ):
        data, count = walked.data, count_below(batches, walked, end_offset)
        keep_mask = wanted_batches(batches, count, timestamps)
        if aborted is not None:
            aborted.leave_out(keep_mask, batches, data)
        is_plain = batches.attributes[:count] & CODEC_MASK == 0
        for first, stop in pairwise(kind_edges(keep_mask, is_plain)):
            batch_slice = BatchSlice(
                segment.path,
                walked,
                batches,
                first,
                stop,
                is_wanted=bool(keep_mask[first]),
                is_plain=bool(is_plain[first]),
            )
            yield batch_slice
            if batch_slice.rejected_row is not None:
                walked.reject(batch_slice.rejected_row)
                break
        else:
            if count < walked.count:
                return


def count_below(batches: BatchColumns, walked: WalkedBatches, end_offset: int) -> int:
    """Return the number of batches of a walk that begin below the end."""
    count = walked.count
    if walked.next_offset <= end_offset:
        return count
    # The first of those that reach the end may begin below it.
    row = int(batches.last_offset[:count].searchsorted(end_offset))
    if row == count:
        return count
    is_wrapper = batches.magic[row] < MAGIC_V2 and batches.attributes[row] & CODEC_MASK
    if is_wrapper:
        # A wrapper has its last offset; its first may be the next one.
        begins = int(batches.last_offset[row - 1]) + 1 if row else walked.expected
    else:
        begins = int(batches.base_offset[row])
    return row + (begins < end_offset)


def wanted_batches(batches: BatchColumns, count: int, timestamps: Integers) -> NDArray[np.bool_]:
    """Return whether each batch may have a requested record, by its header."""
    attributes, magic = batches.attributes[:count], batches.magic[:count]
    keep_mask: NDArray[np.bool_] = (attributes & CONTROL_MASK == 0) | (magic < MAGIC_V2)
    keep_mask &= batches.record_count[:count] != 0
    if timestamps.is_all:
        return keep_mask
    largest = batches.max_timestamp[:count]
    keep_mask &= (largest >= timestamps.first) & (largest != NO_TIMESTAMP)
    # With LogAppendTime all records have the time of the append.
    is_appended = (attributes & TIMESTAMP_TYPE_MASK != 0) & (magic == MAGIC_V2)
    keep_mask &= ~is_appended | (largest <= timestamps.last)
    return keep_mask


def kind_edges(keep_mask: NDArray[np.bool_], is_plain: NDArray[np.bool_]) -> list[int]:
    """Return the edges of runs of batches of one kind."""
    count = len(keep_mask)
    if not count:
        return []
    kind = keep_mask.view(np.int8) * 2 + is_plain.view(np.int8)
    return [0, *(np.flatnonzero(kind[1:] != kind[:-1]) + 1).tolist(), count]
