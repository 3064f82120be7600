"""Writer of new segments from batches of old ones, under names that are not valid yet.

Batches come in buffers of any size, from a cleaning or a split. Their index files are made at the
end, from the bytes that the file returns when it is read: so a segment that cannot be read never
replaces an old one. If offsets or bytes exceed the limits of one segment, another one is begun,
named by its first batch.

Crash points: any; files `.cleaned` are removed by the next opening.

Thread-safety: none; it belongs to one cleaning or split.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Final, Protocol

from typing_extensions import Buffer

from kafkalog._core.batch import BatchColumns
from kafkalog.errors import CorruptRecordError
from kafkalog.files.atomic_files import write_synced
from kafkalog.files.filesystem import FileHandle
from kafkalog.files.names import FileState
from kafkalog.indexes.transaction_index import AbortedTransaction, encode_entries
from kafkalog.log.corrupt_ranges import first_offset_at
from kafkalog.log.replacement import remove_cleaned
from kafkalog.log.scanner import RELATIVE_OFFSET_MAX
from kafkalog.log.segment import open_segment
from kafkalog.log.segment_types import SegmentContext
from kafkalog.records.memory_walk import walk_memory

__all__ = ["SEGMENT_BYTES_MAX", "OutputTarget", "SegmentWriter", "cleaned_context"]

# Positions in an offset index are signed 32-bit numbers.
SEGMENT_BYTES_MAX: Final = 2**31 - 1
_SCANNED_BATCHES: Final = 1024


class OutputTarget(Protocol):
    """
    Directory of new segments.

    Attributes:
        context: settings and parts that they share; their files are `.cleaned`.
        is_given_up: whether another owner may have the directory by now.
    """

    @property
    def context(self) -> SegmentContext: ...
    @property
    def is_given_up(self) -> bool: ...
    def ensure_owner(self) -> AbstractContextManager[None]:
        """Guarantee the ownership of the directory while a file is made."""
        ...


def cleaned_context(context: SegmentContext) -> SegmentContext:
    """Return a context for new segments, whose files are `.cleaned`."""
    return replace(context, state=FileState.CLEANED, journal=None)


class SegmentWriter:
    """
    Writes new segments.

    Args:
        target: directory of the segments.
        base_offset: base offset of the first one.
        end_offset: limit of the written offsets.

    Raises:
        LogClosedError: the log was closed.
        OSError: the disk failed.
    """

    def __init__(self, target: OutputTarget, base_offset: int, end_offset: int) -> None:
        self._target = target
        self._context = target.context
        self._may_split = end_offset - 1 - base_offset > RELATIVE_OFFSET_MAX
        self._next_offset = base_offset
        self._size = 0
        self.bases: list[int] = []
        self._handle = self._begin(base_offset)

    def write(self, parts: Sequence[Buffer]) -> int:
        """Write whole batches, which follow the last ones; return their number of bytes."""
        size = sum(memoryview(part).nbytes for part in parts)
        if self._may_split or self._size + size > SEGMENT_BYTES_MAX:
            for part in parts:
                self._write_batches(memoryview(part).cast("B"))
        elif size:
            self._handle.pwritev(parts, self._size)
            self._size += size
        return size

    def finish(
        self,
        modified_ms: int,
        aborted: Sequence[AbortedTransaction],
        *,
        empty_modified_ms: int | None = None,
    ) -> list[int]:
        """
        Sync everything except the names; return the base offsets.

        Args:
            modified_ms: time of last modification of the files.
            aborted: entries of the transaction indexes, by their markers.
            empty_modified_ms: that of a segment without a batch; the same if None.

        Raises:
            CorruptRecordError: the written bytes cannot be read.
        """
        self._handle.sync()
        self._handle.close()
        entries: dict[int, list[AbortedTransaction]] = defaultdict(list)
        for each in sorted(aborted, key=lambda each: each.last_offset):
            entries[self.bases[bisect_right(self.bases, each.last_offset) - 1]].append(each)
        for base in self.bases:
            self._complete(base, entries[base])
            path, time_ms = self._context.files(base).log, modified_ms
            if empty_modified_ms is not None:
                facts = self._context.filesystem.stat(path)
                if facts is not None and not facts.size_bytes:
                    time_ms = empty_modified_ms
            self._context.filesystem.set_modified_ms(path, time_ms)
        return self.bases

    def abandon(self) -> None:
        """Remove the written files, up to the first failure of the disk."""
        self._handle.close()
        if self._target.is_given_up:
            # Another owner may have the directory by now; its next opening removes the files.
            return
        with contextlib.suppress(OSError):
            remove_cleaned(self._context, self.bases)

    def _begin(self, base_offset: int) -> FileHandle:
        filesystem, files = self._context.filesystem, self._context.files(base_offset)
        with self._target.ensure_owner():
            remove_cleaned(self._context, [base_offset])
            handle = filesystem.create_new(files.log)
        self.bases.append(base_offset)
        self._size = 0
        return handle

    def _write_batches(self, data: memoryview) -> None:
        """Write the batches that fit the segment at once, and begin another for the rest."""
        columns = BatchColumns(_SCANNED_BATCHES)
        for step in walk_memory(data, columns, path=self._context.directory):
            starts = [*columns.position[: step.count].tolist(), step.position]
            row = 0
            while row < step.count:
                fitting = self._count_fitting(columns, row)
                if not fitting:
                    self._begin_another(data, columns, row)
                    continue
                self._next_offset = int(columns.last_offset[row + fitting - 1]) + 1
                part = data[starts[row] : starts[row + fitting]]
                self._handle.pwrite(part, self._size)
                self._size += len(part)
                row += fitting

    def _count_fitting(self, columns: BatchColumns, row: int) -> int:
        """Return the number of batches from a row on that fit the segment."""
        count, limit = len(columns), self.bases[-1] + RELATIVE_OFFSET_MAX
        is_beyond = columns.last_offset[row:count] > limit
        ends = columns.position[row:count] + columns.size_bytes[row:count] - columns.position[row]
        is_beyond |= ends > SEGMENT_BYTES_MAX - self._size
        return int(is_beyond.argmax()) if is_beyond.any() else count - row

    def _begin_another(self, data: memoryview, columns: BatchColumns, row: int) -> None:
        """Begin a segment with the batch of a row."""
        self._handle.sync()
        self._handle.close()
        first = first_offset_at(data, int(columns.position[row]), self._context.directory)
        # The first offset of a wrapper is not in its header: it is above those before.
        lowest = int(columns.last_offset[row]) - RELATIVE_OFFSET_MAX
        self._handle = self._begin(max(first, self._next_offset, lowest))

    def _complete(self, base_offset: int, aborted: Sequence[AbortedTransaction]) -> None:
        """Read a segment back, and write its indexes."""
        context = self._context
        filesystem, files = context.filesystem, context.files(base_offset)
        segment = open_segment(context, base_offset)
        try:
            scan = segment.scan()
            if scan.corrupt_ranges or scan.whole_end < segment.size_bytes:
                raise CorruptRecordError(
                    f"{segment.path} does not read back as it was written", path=segment.path
                )
        finally:
            segment.close()
        write_synced(filesystem, files.offset_index, scan.offset_entries)
        write_synced(filesystem, files.time_index, scan.time_entries)
        if aborted:
            # Entries of a broker may break its rules. Then the log finds them by the markers.
            with contextlib.suppress(ValueError):
                write_synced(filesystem, files.transaction_index, encode_entries(aborted))
