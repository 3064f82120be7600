"""Segments under construction without readers: the output of a conversion.

The caller begins segments, and the rules of the log for size begin another one if a segment grows
too large. The code of appends writes the indexes. Files get the time of last modification of their
source segment: the age of records without timestamps is that of the file.

Thread-safety: none; one caller.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Final

from typing_extensions import Buffer

from kafkalog._core.batch_metadata import BatchMetadata
from kafkalog._core.header import parse_header
from kafkalog._engine.snapshot import LogSnapshot
from kafkalog.errors import CorruptRecordError
from kafkalog.files.atomic_files import read_file, write_synced
from kafkalog.log.local_log import LocalLog
from kafkalog.log.segment import LogSegment, open_segment
from kafkalog.log.segment_file import SegmentFile
from kafkalog.log.segment_types import SegmentContext
from kafkalog.log.segments import LogSegments

__all__ = ["SegmentsBuilder", "open_built"]

# Bytes that are collected before a write: one system call for many batches.
_WRITE_BYTES: Final = 1 << 20
_NEVER_MS: Final = 2**62
_INDEX_BYTES_MAX: Final = 2**31 - 1


class SegmentsBuilder:
    """
    Writer of batches that keep their offsets.

    Args:
        context: directory, names and sizes; the directory exists, and has no segment of these
            names.
        base_offset: base offset of the first segment.
        modified_ms: its time of last modification.
    """

    def __init__(self, context: SegmentContext, base_offset: int, modified_ms: int) -> None:
        # The records are old: their age must not begin new segments.
        config = replace(
            context.config, segment_ms=_NEVER_MS, segment_jitter_ms=0, preallocate=False
        )
        self._context = replace(context, config=config)
        self._local = self._empty_log(base_offset)
        self._waiting = bytearray()
        self._batches = BatchMetadata()
        self._next_offset = base_offset
        self._begun = [(base_offset, modified_ms)]

    @property
    def next_offset(self) -> int:
        """One above the last written offset."""
        return self._next_offset

    def begin_segment(self, base_offset: int, modified_ms: int) -> None:
        """Begin a segment, unless the current one has this base offset."""
        self._write()
        if base_offset > self._begun[-1][0]:
            self._local.roll(base_offset)
            self._begun.append((base_offset, modified_ms))
            self._next_offset = max(self._next_offset, base_offset)

    def add(self, batch: Buffer) -> None:
        """
        Add one batch of format v2.

        Raises:
            CorruptRecordError: it begins below the end of the one before.
        """
        header = parse_header(batch)
        if header.base_offset < self._next_offset:
            raise CorruptRecordError(
                f"the records at offset {header.base_offset} are below {self._next_offset}, the"
                " end of those before them",
                base_offset=header.base_offset,
            )
        self._next_offset = header.next_offset
        self._waiting += memoryview(batch)
        self._batches.add(
            header.size_bytes,
            header.base_offset,
            header.last_offset,
            header.max_timestamp,
            header.last_offset,
        )
        if len(self._waiting) >= _WRITE_BYTES:
            self._write()

    def finish(self) -> list[int]:
        """
        Sync everything; return the base offsets of the segments.

        Raises:
            CorruptRecordError: the written bytes are not read as whole batches.
        """
        self._write()
        self._local.sync(0)
        self._local.close()
        context = self._context
        bases = [segment.base_offset for segment in self._local.snapshot.segments.segments]
        for base in bases:
            self._prove(open_segment(context, base))
            slot = bisect_right(self._begun, base, key=itemgetter(0)) - 1
            context.filesystem.set_modified_ms(context.files(base).log, self._begun[slot][1])
        context.filesystem.sync_directory(context.directory)
        return bases

    def abandon(self) -> None:
        """Close the files."""
        self._local.abandon()

    def _prove(self, segment: LogSegment) -> None:
        """Read a segment, and check that its index files match its batches."""
        scan = segment.scan()
        if scan.corrupt_ranges or scan.whole_end < segment.size_bytes:
            raise CorruptRecordError(
                f"{segment.path} does not read back as it was written", path=segment.path
            )
        for path, entries in (
            (segment.offset_index.path, scan.offset_entries),
            (segment.time_index.path, scan.time_entries),
        ):
            filesystem = self._context.filesystem
            # A log keeps an index that could not be written in memory. Not here: the opening of a
            # log that was closed in order believes its index files.
            if read_file(filesystem, path, max_bytes=_INDEX_BYTES_MAX) != entries:
                write_synced(filesystem, path, entries)
        segment.close()

    def _write(self) -> None:
        if self._batches:
            self._local.append(self._waiting, self._batches)
            self._waiting, self._batches = bytearray(), BatchMetadata()

    def _empty_log(self, base_offset: int) -> LocalLog:
        context = self._context
        path = context.files(base_offset).log
        handle = context.filesystem.create_new(path)
        segment = LogSegment(
            context, base_offset, SegmentFile(context.pool, context.filesystem, path, 0, handle)
        )
        segment.activate()
        return LocalLog(
            context, LogSegments([segment]), end_offset=base_offset, start_offset=base_offset
        )


def open_built(context: SegmentContext, bases: Sequence[int], end_offset: int) -> LogSnapshot:
    """Return a snapshot of finished segments; `end_offset` is that of the last."""
    segments = LogSegments(open_segment(context, base) for base in bases)
    return LogSnapshot(segments, end_offset, segments.active.size_bytes, bases[0])
