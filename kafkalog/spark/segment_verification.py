"""Verification of a segment from its first byte to its last: every CRC, every offset, its indexes.

No record is decoded and no damage raises: damage is counted.

Thread-safety: pure functions over files. Nothing here imports pyspark.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kafkalog._core.index import check_offset_index, check_time_index
from kafkalog.errors import OffsetOutOfRangeError
from kafkalog.files.atomic_files import read_file
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import SegmentFiles
from kafkalog.files.zeros import is_zero_after
from kafkalog.indexes.kinds import OFFSET_INDEX
from kafkalog.log.ranges.damage import Damage
from kafkalog.log.ranges.reader import RangeOptions, RangeReader
from kafkalog.log.scan.batch_slices import BatchSlice
from kafkalog.log.scan.rows import check_crcs
from kafkalog.spark.options import ReadOptions
from kafkalog.spark.plan import SplitRange

__all__ = ["verify_segment"]

_MAX_INDEX_BYTES: Final = 64 * 1024 * 1024


@dataclass(slots=True)
class _Findings:
    """Counts of a segment's batches, and the positions of the whole ones."""

    batches: int = 0
    records: int = 0
    end_position: int = 0
    damage: list[Damage] = field(default_factory=list)
    starts: list[npt.NDArray[np.int64]] = field(default_factory=list)

    def count(self, batch_slice: BatchSlice, stop: int) -> None:
        """Count the batches of a slice up to the row `stop`."""
        rows = slice(batch_slice.first, stop)
        self.batches += stop - batch_slice.first
        self.records += int(np.maximum(batch_slice.batches.record_count[rows], 0).sum())
        self.starts.append(batch_slice.batches.position[rows] + batch_slice.origin)
        self.end_position = batch_slice.file_end(stop - 1)


def verify_segment(
    disk: FileSystem, split_range: SplitRange, options: ReadOptions
) -> dict[str, Any]:
    """
    Return the row of the view for one segment.

    Args:
        disk: the disk.
        split_range: the range from the segment's base to what follows it.
        options: of the query.

    Raises:
        LogStorageError: the disk refused.
    """
    files = SegmentFiles(Path(split_range.directory), split_range.start)
    found = _Findings()

    def note_end(_: OffsetOutOfRangeError) -> int:
        return split_range.end

    reader = RangeReader(
        disk,
        Path(split_range.directory),
        split_range.start,
        split_range.end,
        RangeOptions(
            check_crcs=True,
            max_batch_bytes=options.max_batch_bytes,
            retries=options.retries,
        ),
        on_damage=found.damage.append,
        on_missing=note_end,
    )
    for batch_slice in reader.batch_slices():
        check_crcs(batch_slice)
        stop = batch_slice.stop if batch_slice.rejected_row is None else batch_slice.rejected_row
        if stop > batch_slice.first:
            found.count(batch_slice, stop)
    with storage_errors(files.log, doing="reading"):
        return _row(disk, split_range, files, found)


def _row(
    disk: FileSystem, split_range: SplitRange, files: SegmentFiles, found: _Findings
) -> dict[str, Any]:
    corrupt_ranges = [each.corrupt_range for each in found.damage]
    end = max(
        [found.end_position, *(corrupt_range.end_position for corrupt_range in corrupt_ranges)]
    )
    size, tail = _tail(disk, files, end)
    return {
        "topic": split_range.topic,
        "partition": split_range.partition,
        "segment": files.log.name,
        "bytes": size,
        "batches": found.batches,
        "records": found.records,
        "bad": len(corrupt_ranges),
        "badBytes": sum(corrupt_range.size_bytes for corrupt_range in corrupt_ranges),
        "firstBad": min((corrupt_range.position for corrupt_range in corrupt_ranges), default=None),
        "tailBytes": max(size - end, 0),
        "tail": tail,
        "indexOk": _indexes_hold(disk, files, size, found),
    }


def _tail(disk: FileSystem, files: SegmentFiles, end: int) -> tuple[int, str]:
    """Return the size of the file, and the kind of the bytes after its last batch."""
    try:
        handle = disk.open(files.log)
    except FileNotFoundError:
        return 0, "gone"
    try:
        size = handle.size()
        if size <= end:
            return size, "none"
        return size, "zeros" if is_zero_after(handle, end, size) else "torn"
    finally:
        handle.close()


def _indexes_hold(
    disk: FileSystem, files: SegmentFiles, size: int, found: _Findings
) -> bool | None:
    """Return True if the indexes lead to batches; None without indexes."""
    offsets = read_file(disk, files.offset_index, max_bytes=_MAX_INDEX_BYTES)
    times = read_file(disk, files.time_index, max_bytes=_MAX_INDEX_BYTES)
    if offsets is None or times is None:
        return None
    count, holds = check_offset_index(offsets, segment_size=size)
    if not holds or not check_time_index(times)[1]:
        return False
    starts = np.concatenate(found.starts) if found.starts else np.empty(0, np.int64)
    named = np.frombuffer(offsets, OFFSET_INDEX.dtype, count)["position"].astype(np.int64)
    named = named[named < found.end_position]
    # Both rise: an entry names the start of a batch if it equals the start at its place.
    slots = np.searchsorted(starts, named)
    return bool((slots < len(starts)).all() and (starts[slots] == named).all())
