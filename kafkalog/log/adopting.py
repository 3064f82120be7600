"""A file of finished batches becomes the last segment of a log: renamed, not copied.

What writes much at a time (a job, an import) encodes beside the log, in files that nobody reads,
and hands them over. A file is looked through first, every CRC checked; then, under the log's lock:

  1. everything that the log has is put on the disk, so that no crash leaves a hole before the file;
  2. the batches are stamped in place with their offsets and the leader epoch (16 bytes of each, the
     CRC does not cover them), and the file is synced;
  3. the leader epoch is in its file;
  4. the file is renamed to the `.log` of the log end, and both directories are synced;
  5. it gets its indexes, is published, and the segment before it is sealed.

Crash points:

  * before the rename of step 4 is on the disk: the log is what it was, the file is where it was,
    perhaps with other offsets; handing it over again stamps it again;
  * from then on the log has it, whole: its bytes were on the disk before its name. Missing indexes
    are made anew by the next start, which also trims the segment before it.

So where the file was handed over from tells, at any moment, whether the log has it.

An active segment without a batch has the name that the file gets, and is replaced by it. Who
follows the log from another process sees that by the identity of the file.

Thread-safety: `survey` needs no lock; `adopt` is called under the log's.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafkalog._core.batch import BatchColumns, scan_batches
from kafkalog._core.header import parse_header
from kafkalog._core.status import STATUS_CODES
from kafkalog.errors import CorruptRecordError, InvalidRecordError, UnsupportedForMessageFormatError
from kafkalog.files.filesystem import FileHandle
from kafkalog.layout import LOG_OVERHEAD, MAGIC_V2, RECORD_BATCH_OVERHEAD
from kafkalog.log.local_log import LocalLog, Snapshot, UndoFailedError
from kafkalog.log.scanner import NO_EPOCH, RELATIVE_OFFSET_MAX, SegmentScan, scan_segment
from kafkalog.log.segment import LogSegment
from kafkalog.log.segment_file import SegmentFile
from kafkalog.log.segment_types import SegmentContext
from kafkalog.log.segments import LogSegments

__all__ = ["BatchFile", "adopt", "survey"]

_OK: Final = STATUS_CODES["OK"]
_FULL: Final = STATUS_CODES["FULL"]
_STAMP: Final = struct.Struct(">qii")  # base offset, length, leader epoch
_CHUNK_BATCHES: Final = 4096
_INDEX_ENTRY_SIZE: Final = 8
_TIME_ENTRY_SIZE: Final = 12


@dataclass(frozen=True, slots=True)
class BatchFile:
    """
    A file of batches that was looked through.

    Attributes:
        path: where it is.
        size_bytes: of all of it.
        first_offset: as it stands in the first batch.
        scan: what is in it.
    """

    path: Path
    size_bytes: int
    first_offset: int
    scan: SegmentScan


def survey(context: SegmentContext, path: Path) -> BatchFile:
    """
    Look through a file that is to become a segment of a log.

    Raises:
        FileNotFoundError: there is none.
        OSError: the disk refused.
        CorruptRecordError: it is not whole batches with good CRCs, from its first byte to its last.
        InvalidRecordError: its batches leave out offsets, name producers or end transactions; or
            it is larger than a segment, or its index, may be.
        UnsupportedForMessageFormatError: a batch, or the log, has an old format.
    """
    if context.config.message_magic < MAGIC_V2:
        raise UnsupportedForMessageFormatError(
            f"{context.directory}: message.format.version is an old one; a file of batches cannot"
            " be taken over as it is",
            path=context.directory,
        )
    handle = context.filesystem.open(path)
    try:
        size = handle.size()
        if size < RECORD_BATCH_OVERHEAD:
            raise CorruptRecordError(f"{path}: {size} bytes are no batch", path=path, position=0)
        data = handle.map(size)
    finally:
        handle.close()
    first = parse_header(data).base_offset
    scan = scan_segment(
        data, path, base_offset=first, interval=context.config.index_interval_bytes
    )
    if scan.fences or scan.tail_status != _OK or scan.whole_end != size:
        position = scan.fences[0].position if scan.fences else scan.whole_end
        raise CorruptRecordError(
            f"{path}: no whole batch with a good CRC at {position} of {size} bytes",
            path=path,
            position=position,
        )
    _ensure_plain(path, first, scan)
    _ensure_fitting(context, path, size, scan)
    return BatchFile(path, size, first, scan)


def adopt(local: LocalLog, file: BatchFile, leader_epoch: int) -> None:
    """
    Take steps 2, 4 and 5; the caller has done the others, and has the epoch written.

    Raises:
        OSError: the disk refused; the log is what it was.
        UndoFailedError: it refused when the file had its name: a recovery finds out.
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
            # The name is its successor's; who holds it has nothing of it.
            active.seal_in_memory()
            active.retire()
        segment = _activated(context, target, base, file)
        kept = snapshot.segments
        if replaces:
            kept = LogSegments(kept.segments[:-1])
        end = base + file.scan.record_count
        local.name_changed()
        local.replace_all(
            Snapshot(kept.with_segment(segment), end, file.size_bytes, snapshot.start_offset)
        )
        if not replaces:
            active.seal()
    except OSError as error:
        raise UndoFailedError(error.errno, f"{error}: {target} has come already") from error


def _activated(context: SegmentContext, path: Path, base: int, file: BatchFile) -> LogSegment:
    """Return the file under its new name as a segment that takes appends."""
    handle = context.filesystem.open(path, write=True)
    segment_file = SegmentFile(context.pool, context.filesystem, path, file.size_bytes, handle)
    segment_file.found_synced()
    segment = LogSegment(context, base, segment_file)
    scan = file.scan
    scan.next_offset += base - file.first_offset
    if scan.offset_of_max_timestamp >= 0:
        scan.offset_of_max_timestamp += base - file.first_offset
    segment.activate(scan)
    segment.transactions.begin_empty()
    return segment


def _stamp(handle: FileHandle, file: BatchFile, base_offset: int, leader_epoch: int) -> None:
    """Write offsets and epoch into the headers of all batches."""
    data = handle.map(file.size_bytes)
    columns = BatchColumns(_CHUNK_BATCHES)
    position, shift, last = 0, base_offset - file.first_offset, file.first_offset
    while position < file.size_bytes:
        columns.clear()
        found = scan_batches(
            data, position, columns=columns, check_crc=False, next_offset=last
        )
        if found.status not in (_OK, _FULL) or not found.count:
            raise CorruptRecordError(
                f"{file.path} has changed", path=file.path, position=found.position
            )
        count = found.count
        rows = zip(
            columns.position[:count].tolist(),
            columns.size_bytes[:count].tolist(),
            columns.base_offset[:count].tolist(),
            strict=True,
        )
        # Headers are written behind what was read of them: the next look begins at the next one.
        for start, size, offset in rows:
            length = size - LOG_OVERHEAD
            handle.pwrite(_STAMP.pack(offset + shift, length, leader_epoch), start)
        position, last = found.position, found.next_offset


def _ensure_plain(path: Path, first: int, scan: SegmentScan) -> None:
    if any(epoch == NO_EPOCH for epoch, _ in scan.leader_epochs):
        raise UnsupportedForMessageFormatError(
            f"{path}: batches of an old format cannot be taken over as they are", path=path
        )
    if scan.has_producers:
        raise InvalidRecordError(
            f"{path}: a batch names a producer; append it with append_batches", path=path
        )
    if scan.record_count != scan.next_offset - first:
        raise InvalidRecordError(
            f"{path}: {scan.record_count} records take {scan.next_offset - first} offsets; a log"
            " takes over only what leaves none out",
            path=path,
        )


def _ensure_fitting(context: SegmentContext, path: Path, size: int, scan: SegmentScan) -> None:
    config = context.config
    if size > config.segment_bytes:
        raise InvalidRecordError(
            f"{path}: {size} bytes, and segment.bytes is {config.segment_bytes}", path=path
        )
    if scan.record_count - 1 > RELATIVE_OFFSET_MAX:
        raise InvalidRecordError(f"{path}: {scan.record_count} records in one segment", path=path)
    limit = config.segment_index_bytes
    offsets = limit // _INDEX_ENTRY_SIZE * _INDEX_ENTRY_SIZE
    times = limit // _TIME_ENTRY_SIZE * _TIME_ENTRY_SIZE
    if len(scan.offset_entries) > offsets or len(scan.time_entries) > times:
        raise InvalidRecordError(
            f"{path}: its index does not fit segment.index.bytes, which is {limit}", path=path
        )
