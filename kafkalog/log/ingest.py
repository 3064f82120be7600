"""Ingest of a file of encoded batches as the last segment of a log; renamed, not copied.

A bulk writer (a job, an import) encodes batches into files outside the log, which no reader opens,
and hands them over. A file is inspected first, with every CRC checked; or only its headers, if its
writer guarantees the content of the batches. Then, under the log's lock:

  1. everything that the log has is put on the disk, so that no crash leaves a hole before the file;
  2. offsets and leader epoch are written into the batches in place (16 bytes of each, the CRC does
     not cover them), and the file is synced;
  3. the leader epoch is written to its file;
  4. the file is renamed to the `.log` of the log end, and both directories are synced;
  5. it gets its indexes, is published, and the segment before it is sealed.

Crash points:

  * before the rename of step 4 is on the disk: the log is unchanged, the file is still at its path,
    perhaps with other offsets in some batches; a second ingest writes all offsets again;
  * from then on the log has all of it: its bytes were on the disk before its name. The next start
    rebuilds missing indexes, and trims the segment before it.

So at any moment the log has the file if and only if its former path no longer exists.

An active segment without a batch has the name that the file gets, and is replaced by it. A reader
in another process detects the replacement by the identity of the file.

Thread-safety: `inspect_file` needs no lock; `ingest_file` is called under the log's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from typing_extensions import Buffer

from kafkalog._core.batch import check_batch
from kafkalog._core.header import BatchHeader, parse_header
from kafkalog._core.index import IndexEntrySelector
from kafkalog._core.status import STATUS_CODES
from kafkalog._engine.snapshot import LogSnapshot
from kafkalog.errors import CorruptRecordError, InvalidRecordError, UnsupportedForMessageFormatError
from kafkalog.files.filesystem import FileHandle
from kafkalog.indexes.kinds import TIME_INDEX
from kafkalog.layout import (
    LOG_OVERHEAD,
    MAGIC_POSITION,
    MAGIC_V2,
    RECORD_BATCH_OVERHEAD,
    RECORD_BATCH_START,
)
from kafkalog.log.local_log import LocalLog, UndoFailedError
from kafkalog.log.scanner import RELATIVE_OFFSET_MAX, SegmentScan
from kafkalog.log.segment import LogSegment
from kafkalog.log.segment_file import SegmentFile
from kafkalog.log.segment_types import SegmentContext
from kafkalog.log.segments import LogSegments

__all__ = ["FileBatch", "IngestFile", "file_batches", "ingest_file", "inspect_file"]

_OK: Final = STATUS_CODES["OK"]


class FileBatch(NamedTuple):
    """
    One batch of a file.

    Attributes:
        position, size_bytes: its range in the file.
        record_count: number of its records, and of its offsets.
        crc: CRC in its header.
        max_timestamp: of its records.
    """

    position: int
    size_bytes: int
    record_count: int
    crc: int
    max_timestamp: int

    @property
    def end_position(self) -> int:
        """One past its last byte."""
        return self.position + self.size_bytes


@dataclass(frozen=True, slots=True)
class IngestFile:
    """
    A file of batches that was inspected.

    Attributes:
        path: its path before the ingest.
        size_bytes: of all of it.
        batches: in order.
        record_count: of all of them.
    """

    path: Path
    size_bytes: int
    batches: Sequence[FileBatch]
    record_count: int

    def scan_at(self, base_offset: int, interval: int) -> SegmentScan:
        """Return the result of a scan once the file has offsets from `base_offset` on."""
        rows = np.array(self.batches, dtype=np.int64).reshape(-1, len(FileBatch._fields))
        position, timestamp = rows[:, 0].copy(), rows[:, 4].copy()
        last_offset = base_offset + np.cumsum(rows[:, 2]) - 1
        selector = IndexEntrySelector(base_offset, interval)
        offsets, times = selector.select(position, last_offset, timestamp, len(rows))
        return SegmentScan(
            whole_end=self.size_bytes,
            next_offset=base_offset + self.record_count,
            max_timestamp=selector.max_timestamp,
            offset_of_max_timestamp=selector.offset_of_max_timestamp,
            first_max_timestamp=int(timestamp[0]),
            batch_count=len(rows),
            record_count=self.record_count,
            offset_entries=bytes(offsets),
            time_entries=bytes(times) + selector.final_time_entry(),
        )


def file_batches(data: Buffer, path: Path, position: int = 0) -> list[FileBatch]:
    """
    Return the batches of a file from `position` on, with every CRC checked; offsets are ignored.

    After an interrupted ingest some batches have offsets that do not follow the batches before.

    Raises:
        CorruptRecordError: it is not whole batches to its last byte.
        InvalidRecordError: a batch has holes in its offsets, is of a producer, or no data.
        UnsupportedForMessageFormatError: a batch has an old format.
    """
    view = memoryview(data)
    return _walk_heads(
        lambda at: view[at : at + RECORD_BATCH_OVERHEAD],
        position,
        len(view),
        path,
        is_whole=lambda at: check_batch(view, at) == _OK,
    )


def _headed_batches(handle: FileHandle, size: int, path: Path) -> list[FileBatch]:
    """As `file_batches`, from the headers alone: the content of the batches is not read."""
    return _walk_heads(
        lambda at: memoryview(handle.pread(RECORD_BATCH_OVERHEAD, at)),
        0,
        size,
        path,
        is_whole=lambda _at: True,
    )


def _walk_heads(
    head_at: Callable[[int], memoryview],
    position: int,
    size: int,
    path: Path,
    *,
    is_whole: Callable[[int], bool],
) -> list[FileBatch]:
    """
    Return the batches of a file by their headers.

    Not `walk_source`: the batches have no offsets of a log yet, and each one must be taken or named
    in an error.

    Args:
        head_at: returns the header at a position.
        position, size: range of the batches.
        path: the file, for errors.
        is_whole: returns whether the batch at a position passes its checks; for new formats only.
    """
    found: list[FileBatch] = []
    while position < size:
        head = head_at(position)
        _ensure_new_format(head, path, position, size)
        if not is_whole(position):
            raise _damaged(path, position, size)
        header = parse_header(head)
        if header.size_bytes > size - position:
            raise _damaged(path, position, size)
        found.append(_file_batch(header, path, position))
        position = found[-1].end_position
    return found


def _ensure_new_format(head: memoryview, path: Path, position: int, size: int) -> None:
    if len(head) < RECORD_BATCH_OVERHEAD:
        raise _damaged(path, position, size)
    if head[MAGIC_POSITION] < MAGIC_V2:
        raise UnsupportedForMessageFormatError(
            f"{path}: a batch of an old format cannot be ingested", path=path
        )


def _file_batch(header: BatchHeader, path: Path, position: int) -> FileBatch:
    """Return the batch of a header; raise if a log cannot ingest it."""
    if header.producer_id >= 0 or header.is_control or header.is_transactional:
        raise InvalidRecordError(
            f"{path}: the batch at {position} is of a producer; use append_batches",
            path=path,
            position=position,
        )
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        raise InvalidRecordError(
            f"{path}: the batch at {position} has {header.record_count} records for"
            f" {header.last_offset_delta + 1} offsets; it must have one record per offset",
            path=path,
            position=position,
        )
    return FileBatch(
        position, header.size_bytes, header.record_count, header.crc, header.max_timestamp
    )


def inspect_file(context: SegmentContext, path: Path, *, check_crc: bool = True) -> IngestFile:
    """
    Inspect a file that is to become a segment of a log.

    Args:
        context: of the log.
        path: path of the file.
        check_crc: read all of it, else the headers alone.

    Raises:
        FileNotFoundError: the file does not exist.
        OSError: the disk refused.
        CorruptRecordError, InvalidRecordError, UnsupportedForMessageFormatError: as
            `file_batches`; or it is larger than a segment, or its index, may be, or the log has an
            old format.
    """
    if context.config.message_magic < MAGIC_V2:
        raise UnsupportedForMessageFormatError(
            f"{context.directory}: message.format.version is an old one; a file of batches cannot"
            " be ingested",
            path=context.directory,
        )
    handle = context.filesystem.open(path)
    try:
        size = handle.size()
        if not size:
            raise _damaged(path, 0, 0)
        if check_crc:
            batches = file_batches(handle.map(size), path)
        else:
            batches = _headed_batches(handle, size, path)
    finally:
        handle.close()
    file = IngestFile(path, size, batches, sum(batch.record_count for batch in batches))
    _ensure_fitting(context, file)
    return file


def ingest_file(local: LocalLog, file: IngestFile, leader_epoch: int) -> None:
    """
    Do steps 2, 4 and 5; the caller has done steps 1 and 3.

    Raises:
        OSError: the disk refused; the log is unchanged.
        UndoFailedError: the disk refused after the rename; a recovery finds the state of the file.
    """
    context, snapshot = local.context, local.snapshot
    active, base = snapshot.segments.active, snapshot.end_offset
    handle = context.filesystem.open(file.path, write=True)
    try:
        _stamp(handle, file, base, leader_epoch)
        handle.sync()
    finally:
        handle.close()
    target = context.files(base).log
    context.filesystem.rename(file.path, target)
    try:
        context.filesystem.sync_directory(context.directory)
        context.filesystem.sync_directory(file.path.parent)
        replaces = active.base_offset == base
        if replaces:
            # Its name belongs to its successor now; it is empty, so its readers lose nothing.
            active.seal_in_memory()
            active.retire()
        segment = _activated(context, target, base, file)
        kept = snapshot.segments
        if replaces:
            kept = LogSegments(kept.segments[:-1])
        end = base + file.record_count
        local.name_changed()
        local.replace_all(
            LogSnapshot(kept.with_segment(segment), end, file.size_bytes, snapshot.start_offset)
        )
        if not replaces:
            local.seal([active])
    except OSError as error:
        raise UndoFailedError(error.errno, f"{error}: {target} has come already") from error


def _activated(context: SegmentContext, path: Path, base: int, file: IngestFile) -> LogSegment:
    """Return the file under its new name as a segment that takes appends."""
    handle = context.filesystem.open(path, write=True)
    segment_file = SegmentFile(context.pool, context.filesystem, path, file.size_bytes, handle)
    segment_file.mark_synced()
    segment = LogSegment(context, base, segment_file)
    segment.activate(file.scan_at(base, context.config.index_interval_bytes))
    segment.transactions.begin_empty()
    return segment


def _stamp(handle: FileHandle, file: IngestFile, base_offset: int, leader_epoch: int) -> None:
    """Write offsets and epoch into the headers of all batches."""
    for batch in file.batches:
        length = batch.size_bytes - LOG_OVERHEAD
        handle.pwrite(RECORD_BATCH_START.pack(base_offset, length, leader_epoch), batch.position)
        base_offset += batch.record_count


def _ensure_fitting(context: SegmentContext, file: IngestFile) -> None:
    config, path = context.config, file.path
    if file.size_bytes > config.segment_bytes:
        raise InvalidRecordError(
            f"{path} must have at most {config.segment_bytes} bytes (segment.bytes), got"
            f" {file.size_bytes}",
            path=path,
        )
    if file.record_count - 1 > RELATIVE_OFFSET_MAX:
        raise InvalidRecordError(f"{path}: {file.record_count} records in one segment", path=path)
    scan, limit = file.scan_at(0, config.index_interval_bytes), config.segment_index_bytes
    if max(len(scan.offset_entries), len(scan.time_entries) + TIME_INDEX.entry_size) > limit:
        raise InvalidRecordError(
            f"{path}: its index does not fit segment.index.bytes, which is {limit}", path=path
        )


def _damaged(path: Path, position: int, size: int) -> CorruptRecordError:
    return CorruptRecordError(
        f"{path}: no whole batch with a good CRC at {position} of {size} bytes",
        path=path,
        position=position,
    )
