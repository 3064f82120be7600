"""Rewrite of bytes that no sync is known to have covered, before a recovery believes them.

When a write-back fails, the system still marks the pages clean: reads return bytes that the disk
never got. The error is reported once, and the process that got it may have ended. So before a log
that was not closed in order is scanned, each file above its recovery point is synced, and the bytes
for which an earlier sync may have failed, by the journal of the writer (`state/sync_journal.py`),
are written again first, each byte as it is read. If that sync reports an error, the file is written
again from the recovery point on. The scan then reads bytes that the disk has.

Rewriting in place is cheap: readers that have the file mapped see no change, a crash leaves in each
sector the old bytes or the same bytes, and no space is needed. But it is not sufficient everywhere.
On ext4 a block whose first write failed stays marked as unwritten while its page is in memory: the
second write and its sync succeed, and the block reads as zeros later. So the bytes are compared
with those of the disk itself (`FileSystem.is_stored`). If they differ, or that cannot be found out,
the whole file is copied into new blocks, and the copy gets its name. Readers keep the old file,
whose bytes are the same. The copy needs space: on a full disk the opening fails, and nothing is
lost.

An earlier mapping is not used: a clean page may be dropped at any moment, and the scan would read
other bytes than were written.

Crash points:
  1. after any write or sync in place: nothing has changed, and the journal has the state "trying":
     the next start repeats everything. Before the time of last modification of a file is restored,
     it looks young, and retention waits longer.
  2. while the copy is written, synced or given its time: it is `.tmp` and removed at the next
     start, which repeats everything.
  3. after the rename, before the sync of the directory: the name refers to the old file or to the
     copy, which was on the disk before. The next start repeats everything.
The same is true for the transaction index of a segment.

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

from kafkalog._core.batch import BatchColumns
from kafkalog.files.filesystem import FileHandle, FileSystem
from kafkalog.files.names import MAX_OFFSET, FileKind, SegmentFiles, temporary_path
from kafkalog.files.zeros import is_zero
from kafkalog.log.batch_walk import WalkRange, walk_source
from kafkalog.log.byte_source import MappedSource
from kafkalog.log.segment import LogSegment

__all__ = ["copy_to_new_blocks", "make_durable", "rewrite", "unflushed_position"]

logger = logging.getLogger(__name__)

# Errors not of the disk but of the name: a link, a device, a file of another owner. A copy of it
# would not help.
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
    Make segments durable with the bytes that they show; return the number of rewritten bytes.

    Args:
        filesystem: the disk.
        segments: segments before their scan. A segment whose file was replaced by a copy has no
            mapping of the old file after the call.
        recovery_point: everything below it is certainly on the disk.
        doubtful_offset: bytes at or above it may be missing even after a successful sync; None if
            none may.

    Raises:
        OSError: the bytes can be written neither in place nor to a new file. Nothing is lost.
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
    """Rewrite doubtful bytes; return their number, and whether the disk has all of them."""
    for offset in (doubtful_offset, recovery_point):
        # Without doubtful bytes the sync alone has to succeed.
        position = segment.size_bytes if offset is None else _position(segment, offset)
        try:
            written = rewrite(filesystem, segment.path, position)
        except OSError as error:
            if error.errno in _REFUSALS:
                raise
            logger.warning("%s: the sync of a recovery failed: %s", segment.path, error)
            if segment.context.journal is not None:
                # Bytes that were not stored may be zeros already, like preallocated space.
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
    Return the number of bytes at the start of a segment certainly below the recovery point.

    Batches count up to the first damage, with every CRC checked: a wrong length or offset must not
    lead past bytes that the disk may lack. Bytes after damage count as unflushed.

    Args:
        data: bytes of the segment.
        base_offset: base offset of the segment.
        recovery_point: first offset that is not known to be on the disk.
    """
    columns, position = BatchColumns(CHUNK_BATCHES), 0
    for walked in walk_source(
        MappedSource(data),
        WalkRange(0, len(data), base_offset, MAX_OFFSET - 1),
        columns,
        on_damage=lambda _damage: None,
    ):
        above = np.flatnonzero(columns.last_offset[: walked.count] >= recovery_point)
        if above.size:
            return int(columns.position[above[0]])
        position = walked.end_position
        if walked.next_offset >= recovery_point:
            break
    return position


def rewrite(filesystem: FileSystem, path: Path, position: int) -> int:
    """
    Write the bytes of a file from `position` on again, in place, and sync; return their number.

    The hole of a preallocated file stays a hole. The time of last modification stays as well:
    records without timestamps have no other age.

    Raises:
        OSError: the bytes cannot be written.
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
    Replace a file by a synced copy of the bytes that it shows; return the number of bytes written.

    Holes and the time of last modification stay. The caller syncs the directory. Crash points: see
    the module.

    Raises:
        OSError: there is no space, or the bytes cannot be written; the file is unchanged.
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
            # The cause may be a full disk: free the space. The first error is raised.
            with contextlib.suppress(OSError):
                filesystem.unlink(temporary)
            raise
    finally:
        source.close()
    logger.warning("%s: %d bytes were copied to new blocks of the disk", path, written)
    return written


def _copy(source: FileHandle, target: FileHandle, position: int) -> int:
    """Copy the bytes of a file from `position` on to the same place of another; keep holes."""
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
            # The last byte is always written: it sets the length of the file.
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
    Make the transaction index of a segment durable with the bytes that it shows.

    Not for this library, which compares an index with its segment before it is used: a broker
    believes the file as soon as the log was closed in order.

    Raises:
        OSError: the bytes can be written neither in place nor to a new file.
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
        # A process may write a file without owning it. The file then looks young and stays longer.
        logger.warning("%s looks modified now, which it is not: %s", path, error)
