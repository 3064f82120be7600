"""Estimate of the bytes of offsets, by sizes of segments and their offset indexes; nothing is
decoded.

For many partitions at once, a part of a segment is taken to have its share of the bytes. For a few,
the indexes give the offset after a number of bytes.

Thread-safety: functions of a snapshot.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from kafkalog._core.batch import find_offset
from kafkalog._core.header import parse_header
from kafkalog._core.index import OffsetIndexView, check_offset_index
from kafkalog._core.status import STATUS_CODES
from kafkalog.files.atomic_files import read_file
from kafkalog.files.names import FileKind, segment_file_name
from kafkalog.spark.plan.snapshot import QuerySnapshot

__all__ = ["SizeEstimator"]

Int64Array = npt.NDArray[np.int64]

OK: Final = STATUS_CODES["OK"]
_MAX_INDEX_BYTES: Final = 64 * 1024 * 1024
_WINDOW_BYTES: Final = 64 * 1024
# Indexes that are read for one micro-batch; that takes some milliseconds.
PRECISE_ROWS: Final = 64


class SizeEstimator:
    """
    Measures ranges of the partitions of a snapshot.

    Args:
        snapshot: of the partitions.
    """

    def __init__(self, snapshot: QuerySnapshot) -> None:
        self._snapshot = snapshot

    def bytes_between(self, starts: Int64Array, ends: Int64Array) -> Int64Array:
        """Return about how many bytes each range has, int64 of shape (p,)."""
        return np.array(
            [
                self._bytes_of(row, start, end) if start < end else 0
                for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True))
            ],
            np.int64,
        )

    def advance(self, starts: Int64Array, ends: Int64Array, sizes: Int64Array) -> Int64Array:
        """
        Return for each range the offset after about `sizes` bytes; the start if that is not
        possible.
        """
        found = ends.copy()
        rows = np.flatnonzero((starts < ends) & (self.bytes_between(starts, ends) > sizes))
        for row in rows.tolist():
            start, end, size = int(starts[row]), int(ends[row]), int(sizes[row])
            by_index = len(rows) <= PRECISE_ROWS
            reached = self._reach(row, start, size, by_index=by_index)
            found[row] = min(max(reached, start + 1), end)
        return found

    def _segments(self, row: int, start: int, end: int) -> list[tuple[int, int, int]]:
        """Return base, end offset and size of each segment that a range touches."""
        bases, sizes = self._snapshot.segments_of(row)
        ends = [*bases[1:], int(self._snapshot.log_ends[row])]
        rows = zip(bases, ends, sizes, strict=True)
        return [each for each in rows if each[0] < end and each[1] > start]

    def _bytes_of(self, row: int, start: int, end: int) -> int:
        total = 0
        for base, next_base, size in self._segments(row, start, end):
            total += size * (min(end, next_base) - max(start, base)) // max(next_base - base, 1)
        return max(total, 1)

    def _reach(self, row: int, start: int, size: int, *, by_index: bool) -> int:
        """Return the offset that is `size` bytes after `start`."""
        directory = Path(self._snapshot.directories[row])
        reached, rest = start, size
        for base, next_base, segment_size in self._segments(row, start, 2**63 - 1):
            from_offset = max(start, base)
            view = self._index(directory, base, segment_size) if by_index else None
            if view is None:
                span = max(next_base - base, 1)
                taken = segment_size * (next_base - from_offset) // span
                if taken > rest:
                    return from_offset + rest * span // max(segment_size, 1)
            else:
                position = view.lookup(from_offset)[1]
                taken = segment_size - position
                if taken > rest:
                    reached = self._last_before(view, position + rest) + 1
                    if reached <= start:
                        reached = self._batch_end(directory, base, position, start)
                    return reached
            rest -= taken
            reached = next_base
        return reached

    def _index(self, directory: Path, base: int, segment_size: int) -> OffsetIndexView | None:
        path = directory / segment_file_name(base, FileKind.OFFSET_INDEX)
        try:
            entries = read_file(self._snapshot.disk, path, max_bytes=_MAX_INDEX_BYTES)
        except (OSError, ValueError):
            return None
        entries = (entries or b"")[: len(entries or b"") // 8 * 8]
        count, is_sound = check_offset_index(entries, segment_size=segment_size)
        return OffsetIndexView(entries, base, count) if is_sound and count else None

    @staticmethod
    def _last_before(view: OffsetIndexView, position: int) -> int:
        """Return the last offset of the last batch in the index that begins below a position."""
        low, high = 0, len(view)
        while low < high:
            middle = (low + high) // 2
            if view.entry(middle)[1] < position:
                low = middle + 1
            else:
                high = middle
        return view.entry(low - 1)[0] if low else -1

    def _batch_end(self, directory: Path, base: int, position: int, offset: int) -> int:
        """
        Return the offset after the batch that holds an offset; the offset itself if it is unclear.
        """
        path = directory / segment_file_name(base, FileKind.LOG)
        try:
            handle = self._snapshot.disk.open(path)
        except OSError:
            return offset + 1
        try:
            while True:
                data = handle.pread(_WINDOW_BYTES, position)
                at, status = find_offset(data, offset)
                if status == OK:
                    return parse_header(data, at).next_offset
                if not at:
                    return offset + 1
                position += at
        except OSError:
            return offset + 1
        finally:
            handle.close()
