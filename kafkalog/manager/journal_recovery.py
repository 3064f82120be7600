"""Recovery of a data directory from its commit journal: bytes that the logs' own files lack.

An entry of the journal has whole batches of one segment, and their position. After a power cut the
file may lack them, have a part of them, or have them. They are written where they belong, without a
sync: the recovery of the log, which follows, syncs all files above its recovery point, and finds
out what an earlier failed write-back has left (`kafkalog.log.unflushed`).

Nothing of another program is overwritten. An entry is left alone, and reported, if the file does
not have the bytes before it (the anchor), or if a whole batch with other bytes is in its place.
Then the later entries of the partition are left alone as well. An entry of a segment that left the
log counts as applied.

Crash points: after any write the file has bytes of the journal, and the next start repeats all of
this: an entry whose bytes are there is not written again.

Thread-safety: pure functions over the disk; the holder of the directory's lock calls them, one at a
time for a partition.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kafkalog._core.batch import BatchColumns, parse_header
from kafkalog._core.crc32c import value as crc32c
from kafkalog.errors import KafkaLogError
from kafkalog.files.directories import ensure_no_link
from kafkalog.files.filesystem import FileHandle, FileSystem
from kafkalog.files.names import FileKind, SegmentFiles, live_base_offset
from kafkalog.layout import RECORD_BATCH_OVERHEAD
from kafkalog.records.memory_walk import walk_memory
from kafkalog.state.commit_journal import DataEntry, read_entry

__all__ = ["AppliedEntries", "apply_entries"]

logger = logging.getLogger(__name__)

_WALK_BATCHES: Final = 256


class AppliedEntries(NamedTuple):
    """
    Result of the entries of one partition.

    Attributes:
        written_bytes: bytes that the segment files lacked.
        refusal: why some were left alone, with file, position and offset; empty if none was.
    """

    written_bytes: int
    refusal: str = ""


def apply_entries(
    filesystem: FileSystem, directory: Path, entries: Sequence[DataEntry], *, refusal: str = ""
) -> AppliedEntries:
    """
    Write what the segments of a partition lack; see the module.

    Args:
        filesystem: the disk.
        directory: the partition directory; its log is not open.
        entries: those that count, in order.
        refusal: why nothing is written, but lacking bytes are reported; empty to write them.

    Raises:
        OSError: the disk refused; the next call repeats all of it.
    """
    ensure_no_link(filesystem, directory)
    names = filesystem.list(directory)
    bases = {live_base_offset(name, FileKind.LOG.value) for name in names} - {None}
    written = 0
    for entry in entries:
        if entry.base_offset not in bases:
            if not any(base is not None and base > entry.base_offset for base in bases):
                return AppliedEntries(written, _refusal(directory, entry, "the file is missing"))
            continue
        size, reason = _apply(filesystem, directory, entry, refusal)
        written += size
        if reason:
            return AppliedEntries(written, _refusal(directory, entry, reason))
    if written:
        logger.warning(
            "%s: %d bytes were written again from the commit journal, up to offset %d",
            directory,
            written,
            entries[-1].end_offset,
        )
    return AppliedEntries(written)


def _refusal(directory: Path, entry: DataEntry, reason: str) -> str:
    path = SegmentFiles(directory, entry.base_offset).log
    return (
        f"{path}: offsets {entry.first_offset} to {entry.end_offset - 1} at position"
        f" {entry.position} are in {entry.path.name} alone: {reason}"
    )


def _apply(
    filesystem: FileSystem, directory: Path, entry: DataEntry, refusal: str
) -> tuple[int, str]:
    """Write what a file lacks of an entry; return the number of bytes, or why it was left alone."""
    journal = filesystem.open(entry.path)
    try:
        data = read_entry(journal, entry)
    finally:
        journal.close()
    starts = () if data is None else _batch_starts(data)
    if data is None or not starts:
        return 0, "the journal has no whole batches of them any more"
    path = SegmentFiles(directory, entry.base_offset).log
    handle = filesystem.open(path, write=not refusal)
    try:
        anchor = handle.pread(entry.anchor_size, entry.position - entry.anchor_size)
        if len(anchor) < entry.anchor_size or crc32c(anchor) != entry.anchor_checksum:
            return 0, "the file has other bytes before them"
        present = handle.pread(len(data), entry.position)
        if present == data or refusal:
            return 0, "" if present == data else refusal
        start = starts[bisect_right(starts, _equal_bytes(data, present)) - 1]
        if _is_batch_at(handle, entry.position + start):
            return 0, "the file has another batch there"
        handle.pwrite(memoryview(data)[start:], entry.position + start)
        return len(data) - start, ""
    finally:
        handle.close()


def _equal_bytes(data: bytes, present: bytes) -> int:
    """Return how many bytes at the start are equal."""
    low, high = 0, min(len(data), len(present))
    while low < high:
        middle = (low + high + 1) // 2
        if data[low:middle] == present[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _batch_starts(data: bytes) -> tuple[int, ...]:
    """Return the positions of the batches in data, none if they are not whole."""
    columns = BatchColumns(_WALK_BATCHES)
    starts: list[int] = []
    try:
        for step in walk_memory(data, columns, check_crc=True, check_order=False):
            starts += columns.position[: step.count].tolist()
    except KafkaLogError:
        return ()
    return tuple(starts)


def _is_batch_at(handle: FileHandle, position: int) -> bool:
    """Return whether a file has a whole batch at a position."""
    head = handle.pread(RECORD_BATCH_OVERHEAD, position)
    try:
        # A message of an old format at the end of the file may be shorter.
        size = parse_header(head.ljust(RECORD_BATCH_OVERHEAD, b"\0")).size_bytes
    except KafkaLogError:
        return False
    if position + size > handle.size():
        return False
    return bool(_batch_starts(handle.pread(size, position)))
