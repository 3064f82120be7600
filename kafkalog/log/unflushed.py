"""Making durable what no sync is known to have covered, before a recovery believes it.

When a write-back fails, the system calls the pages clean all the same: reads go on to show bytes
that the disk never got. The error is reported once, and the process that got it may have ended. So
before a log that was not closed in order is scanned, each file above its recovery point is synced,
and the bytes that an earlier sync may have failed on, by the note of the writer
(`state/sync_journal.py`), are written again first, each byte as it is read. If that sync reports an
error, the file is written again from the recovery point on. What the scan then finds is what the
disk has.

Written again in place, because that is cheap: readers that have the file mapped see no change, a
crash on the way leaves in each sector the old bytes or the same bytes, and no space is needed. But
in place is not enough everywhere. On ext4 a block whose first write failed stays marked as
unwritten while its page is in memory: the second write and its sync succeed, and the block reads as
zeros later. So what was written again is compared with what the disk itself has
(`FileSystem.is_stored`). Where that differs or cannot be found out, the whole file is copied into
new blocks, and the copy takes its name. Readers keep the old file, whose bytes are the same. The
copy needs space: on a full disk the opening fails, and nothing is lost.

Not from a mapping taken before: a clean page may be dropped at any moment, and what was read for
the scan would not be what was written.

Crash points:
  1. after any write or sync in place: nothing has changed, and the note says "trying" all the time:
     the next start does all of it again. Before a file has its time of last modification back, it
     looks young, and retention waits the longer.
  2. while the copy is written, synced or given its time: it is `.tmp` and removed at the next
     start, which does all of it again.
  3. after the rename, before the sync of the directory: the name stands for the old file or for the
     copy, which was on the disk before. The next start does all of it again.
The same holds for the transaction index of a segment.

Thread-safety: pure functions over the disk; the holder of the directory's lock calls them.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np

from kafkalog._core.batch import BatchColumns, scan_batches
from kafkalog._core.status import STATUS_CODES
from kafkalog.files.filesystem import FileHandle, FileSystem
from kafkalog.files.names import FileKind, SegmentFiles, temporary_path
from kafkalog.files.zeros import is_zero
from kafkalog.log.segment import LogSegment

__all__ = ["copy_to_new_blocks", "make_durable", "rewrite", "unflushed_position"]

logger = logging.getLogger(__name__)

FULL = STATUS_CODES["FULL"]

# Not of the disk, but of what has the name: a link, a device, a file of somebody else. A copy of it
# would be no cure.
_REFUSALS: Final = frozenset(
    {errno.ELOOP, errno.EINVAL, errno.EISDIR, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENXIO}
)
CHUNK_BATCHES = 4096
REWRITE_BYTES = 1024 * 1024


def make_durable(
    filesystem: FileSystem,
    segments: Iterable[LogSegment],
    recovery_point: int,
    doubtful_offset: int | None,
) -> int:
    """
    Put segments on the disk as they read; return how many bytes were written again.

    Args:
        filesystem: the disk.
        segments: not scanned yet. One whose file was replaced by a copy has no mapping of the old
            file afterwards.
        recovery_point: everything below it is on the disk for certain.
        doubtful_offset: what lies at or above it may be missing whatever a sync says; None where
            nothing is.

    Raises:
        OSError: the disk takes the bytes neither in place nor in a new file. Nothing is lost.
    """
    written = 0
    for segment in segments:
        size, is_stored = _write_in_place(filesystem, segment, recovery_point, doubtful_offset)
        written += size
        if not is_stored:
            # The search for a position may have mapped the old file.
            segment.file.drop_mapping()
            written += copy_to_new_blocks(filesystem, segment.path)
            filesystem.sync_directory(segment.path.parent)
        _store_transaction_index(filesystem, segment, is_doubtful=doubtful_offset is not None)
    return written


def _write_in_place(
    filesystem: FileSystem,
    segment: LogSegment,
    recovery_point: int,
    doubtful_offset: int | None,
) -> tuple[int, bool]:
    """Rewrite what is in doubt; return how many bytes, and whether the disk has all of them."""
    for offset in (doubtful_offset, recovery_point):
        # Where nothing is in doubt the sync alone has to succeed.
        position = segment.size_bytes if offset is None else _position(segment, offset)
        try:
            written = rewrite(filesystem, segment.path, position)
        except OSError as error:
            if error.errno in _REFUSALS:
                raise
            logger.warning("%s: the sync of a recovery failed: %s", segment.path, error)
            if segment.context.journal is not None:
                # What the disk did not take may be zeros already, which look like room made ahead.
                segment.context.journal.mark_end_uncertain()
        else:
            return written, not written or filesystem.is_stored(segment.path, position)
    return 0, False


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
    Write the bytes of a file from `position` on again, in place, and sync; return how many.

    Where a file was made longer than what was written to it, its zeros are a hole, and stay one.
    Its time of last modification stays as well: records without timestamps have no other age.

    Raises:
        OSError: the disk does not take the bytes.
    """
    facts = filesystem.stat(path)
    handle = filesystem.open(path, write=True)
    try:
        written = _copy(handle, handle, position)
        if written and facts is not None:
            _keep_time(filesystem, path, facts.modified_ms)
        handle.sync()
    finally:
        handle.close()
    return written


def copy_to_new_blocks(filesystem: FileSystem, path: Path) -> int:
    """
    Replace a file by a synced copy of what reads show of it; return how many bytes were written.

    Holes and the time of last modification stay. The caller syncs the directory. Crash points: see
    the module.

    Raises:
        OSError: there is no space, or the disk does not take the bytes; the file is as it was.
    """
    temporary = temporary_path(path)
    facts = filesystem.stat(path)
    source = filesystem.open(path)
    try:
        try:
            target = filesystem.create_new(temporary)
            try:
                written = _copy(source, target, 0)
                target.sync()
            finally:
                target.close()
            if facts is not None:
                _keep_time(filesystem, temporary, facts.modified_ms)
            filesystem.rename(temporary, path)
        except OSError:
            # The cause may be a full disk: free the space. The first error is the one to raise.
            with contextlib.suppress(OSError):
                filesystem.unlink(temporary)
            raise
    finally:
        source.close()
    logger.warning("%s: %d bytes were copied to new blocks of the disk", path, written)
    return written


def _copy(source: FileHandle, target: FileHandle, position: int) -> int:
    """Write what a file shows from `position` on to the same place of a file; holes stay holes."""
    written = 0
    size = source.size()
    buffer = memoryview(bytearray(min(REWRITE_BYTES, max(size - position, 0))))
    while position < size:
        # A hole is not read: that would fill memory with its zeros, and on some disks the file.
        found = source.next_data(position)
        if found is None:
            target.truncate(size)
            break
        start = min(found, size - 1)
        count = source.pread_into(buffer[: size - start], start)
        if not count:
            break
        chunk, position = buffer[:count], start + count
        if is_zero(chunk):
            # The last byte goes out in any case: it takes the length of the file along.
            start, chunk = start + count - 1, chunk[-1:]
            if start + 1 < size:
                continue
        target.pwrite(chunk, start)
        written += len(chunk)
    return written


def _store_transaction_index(
    filesystem: FileSystem, segment: LogSegment, *, is_doubtful: bool
) -> None:
    """
    Put the transaction index of a segment on the disk as it reads.

    Not for this library, which compares an index with its segment before it is used: a broker
    believes the file as soon as the log was closed in order.

    Raises:
        OSError: the disk takes the bytes neither in place nor in a new file.
    """
    files = SegmentFiles(segment.path.parent, segment.base_offset)
    path = files.path(FileKind.TRANSACTION_INDEX)
    facts = filesystem.stat(path)
    # An entry is smaller than its marker: a larger file is damaged, and will be replaced.
    if facts is None or facts.is_directory or facts.size_bytes > segment.size_bytes:
        return
    try:
        position = 0 if is_doubtful else facts.size_bytes
        if not rewrite(filesystem, path, position) or filesystem.is_stored(path, position):
            return
    except OSError as error:
        if error.errno in _REFUSALS:
            raise
        logger.warning("%s: the sync of a recovery failed: %s", path, error)
    copy_to_new_blocks(filesystem, path)
    filesystem.sync_directory(path.parent)


def _keep_time(filesystem: FileSystem, path: Path, modified_ms: int) -> None:
    try:
        filesystem.set_modified_ms(path, modified_ms)
    except PermissionError as error:
        # Who may write a file need not own it. It counts as young then, and is kept the longer.
        logger.warning("%s looks modified now, which it is not: %s", path, error)
