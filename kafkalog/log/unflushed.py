"""Writing again what no sync is known to have covered, before a recovery believes it.

When a write-back fails, the system calls the pages clean all the same: reads go on to show bytes
that the disk never got, and a later sync says "ok" without writing them. Neither an error that an
earlier process was told, nor one that it was killed before it could tell, is seen by the next. So a
log that was not closed in order is written once more, from its recovery point on, each byte as it
is read, and synced, before it is scanned. What the scan then finds is what the disk has.

In place: the bytes are the same, so readers that have the file mapped see no change, a crash on the
way leaves in each sector what was there or the same again, and no room is needed for a second copy.
Not from a mapping taken before: a clean page may be dropped at any moment, and what was read for
the scan would not be what was written.

Crash points: after any write. Nothing has changed, and the next start does it all again.

Thread-safety: pure functions over the disk; the holder of the directory's lock calls them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kafkalog._core.batch import BatchColumns, scan_batches
from kafkalog._core.status import STATUS_CODES
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.zeros import is_zero

__all__ = ["rewrite", "unflushed_position"]

FULL = STATUS_CODES["FULL"]

CHUNK_BATCHES = 4096
REWRITE_BYTES = 1024 * 1024


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
    """
    written = 0
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
        handle.sync()
    finally:
        handle.close()
    return written
