"""Bringing to the disk what no sync is known to have covered, before a recovery believes it.

When a write-back fails, the system calls the pages clean all the same: reads go on to show bytes
that the disk never got. The error is told once; who has been told, or was killed before it was, is
gone. So before a log that was not closed in order is scanned, each file above its recovery point is
synced, and what may have been told to a writer before, by its note (`state/sync_note.py`), is
written once more first, each byte as it is read. Where that sync tells of an error that nobody had
seen, the file is written once more from the recovery point on. What the scan then finds is what the
disk has.

In place: the bytes are the same, so readers that have the file mapped see no change, a crash on the
way leaves in each sector what was there or the same again, and no room is needed for a second copy.
Not from a mapping taken before: a clean page may be dropped at any moment, and what was read for
the scan would not be what was written.

Crash points: after any write or sync. Nothing has changed, and the note says "trying" all the time:
the next start writes again what this one may have been told of. Before a file has its time of last
modification back, it looks young, and retention waits the longer.

Thread-safety: pure functions over the disk; the holder of the directory's lock calls them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from kafkalog._core.batch import BatchColumns, scan_batches
from kafkalog._core.status import STATUS_CODES
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.zeros import is_zero
from kafkalog.log.segment import LogSegment

__all__ = ["make_durable", "rewrite", "unflushed_position"]

logger = logging.getLogger(__name__)

FULL = STATUS_CODES["FULL"]

CHUNK_BATCHES = 4096
REWRITE_BYTES = 1024 * 1024


def make_durable(
    filesystem: FileSystem,
    segments: Iterable[LogSegment],
    recovery_point: int,
    doubtful_offset: int | None,
) -> int:
    """
    Put segments on the disk as they read; return how many bytes were written once more.

    Args:
        filesystem: the disk.
        segments: not scanned yet.
        recovery_point: everything below it is on the disk for certain.
        doubtful_offset: what lies at or above it may be missing whatever a sync says; None where
            nothing is.

    Raises:
        OSError: the disk takes the bytes in no way.
    """
    written = 0
    for segment in segments:
        position = segment.size_bytes
        if doubtful_offset is not None:
            position = _position(segment, doubtful_offset)
        try:
            written += rewrite(filesystem, segment.path, position)
        except OSError as error:
            logger.warning("%s is written once more: %s", segment.path, error)
            position = _position(segment, recovery_point)
            written += rewrite(filesystem, segment.path, position)
    return written


def _position(segment: LogSegment, offset: int) -> int:
    if segment.base_offset >= offset or not segment.size_bytes:
        return 0
    return unflushed_position(
        segment.file.whole(), base_offset=segment.base_offset, recovery_point=offset
    )


def unflushed_position(data: memoryview, *, base_offset: int, recovery_point: int) -> int:
    """
    Return how many bytes at the start of a segment lie below the recovery point for certain.

    Batches count while their CRC is right and their offsets rise: a length or an offset that lies
    must not lead past bytes that the disk may lack. What comes behind damage counts as unflushed.

    Args:
        data: bytes of the segment.
        base_offset: of the segment.
        recovery_point: first offset not known to be on the disk.
    """
    columns = BatchColumns(CHUNK_BATCHES)
    position, expected, status = 0, base_offset, FULL
    while status == FULL and expected < recovery_point:
        columns.clear()
        walk = scan_batches(data, position, columns=columns, next_offset=expected)
        above = np.flatnonzero(columns.last_offset[: walk.count] >= recovery_point)
        if above.size:
            return int(columns.position[above[0]])
        position, expected, status = walk.position, walk.next_offset, walk.status
    return position


def rewrite(filesystem: FileSystem, path: Path, position: int) -> int:
    """
    Write the bytes of a file from `position` on once more, and sync; return how many.

    Where a file was made longer than what was written to it, its zeros are a hole, and stay one.
    Its time of last modification stays as well: records without timestamps have no other age.

    Raises:
        OSError: the disk takes the bytes in no way.
    """
    written = 0
    facts = filesystem.stat(path)
    handle = filesystem.open(path, write=True)
    try:
        size = handle.size()
        buffer = memoryview(bytearray(min(REWRITE_BYTES, max(size - position, 0))))
        for start in range(position, size, REWRITE_BYTES):
            chunk = buffer[: handle.pread_into(buffer[: size - start], start)]
            if is_zero(chunk):
                # The last byte goes out in any case: it takes the length of the file along.
                start, chunk = start + len(chunk) - 1, chunk[-1:]
                if start + 1 < size:
                    continue
            handle.pwrite(chunk, start)
            written += len(chunk)
        if written and facts is not None:
            _keep_time(filesystem, path, facts.modified_ms)
        handle.sync()
    finally:
        handle.close()
    return written


def _keep_time(filesystem: FileSystem, path: Path, modified_ms: int) -> None:
    try:
        filesystem.set_modified_ms(path, modified_ms)
    except PermissionError as error:
        # Who may write a file need not own it. It counts as young then, and is kept the longer.
        logger.warning("%s looks modified now, which it is not: %s", path, error)
