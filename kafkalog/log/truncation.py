"""Truncation of a log, by copy: bytes that a reader may have mapped are never cut in place.

`truncate_to` copies the kept part of the segment with the target into a new file, and renames it
over the old one. Readers of the old segment continue with the old file. Afterwards, before any
append, `producers.py` removes the producer snapshots above the target.

All files that need disk space are made first, with names that end in `.tmp`: if the disk is full,
they are removed, nothing has changed, and the log continues.

Crash points of `truncate_to`:
  1. while the copies are written: they are `.tmp` and removed at the next start; nothing happened.
  2. after any later segment was renamed `.deleted` (newest first): the log ends earlier, at a
     segment boundary at or above the target.
  3. after the copy was renamed over the `.log`, before new indexes were made: the old ones reach
     beyond the log. The segment is above the recovery point, so its indexes are rebuilt.
  4. after it, before the empty segment that keeps the log end after a batch that was removed as a
     whole: the log ends where that batch began. The recovery point is not above that, so nothing is
     lost.
Crash points of `truncate_fully_and_start_at`: the new start, or the present one if that is higher,
is checkpointed first. A crash before all old segments are gone leaves the oldest. If all of them
end below the checkpointed start, the next start removes them; otherwise they are still the log,
hidden below that start: it was truncated, but not to its beginning. The file of the new segment is
made before all of that, as `.tmp`; after a crash before it has its name, the next start makes one.

Thread-safety: under the log's lock.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kafkalog._engine.snapshot import LogSnapshot
from kafkalog.errors import LogStorageError
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import FileKind, FileState, SegmentFiles
from kafkalog.indexes.transaction_index import ENTRY_LAYOUT, ENTRY_SIZE
from kafkalog.log.local_log import LocalLog
from kafkalog.log.scanner import scan_segment
from kafkalog.log.segment import LogSegment
from kafkalog.log.segment_file import SegmentFile
from kafkalog.log.segments import LogSegments

__all__ = [
    "Cut",
    "find_cut",
    "prepare_segment",
    "removed_on_error",
    "truncate_fully_and_start_at",
    "truncate_to",
]

COPY_BYTES = 1024 * 1024


class Cut(NamedTuple):
    """
    The position at which a log is truncated.

    Attributes:
        offset: the log end afterwards.
        kept_offset: one above the last offset that is kept; below `offset` if a batch has offsets
            on both sides, and is removed as a whole.
        slot: number of the segment with the target.
        kept_bytes: kept part of that segment.
    """

    offset: int
    kept_offset: int
    slot: int
    kept_bytes: int


def find_cut(local: LocalLog, offset: int) -> Cut:
    """Return the cut before the first batch that reaches `offset`, which is within the log."""
    snapshot = local.snapshot
    slot = snapshot.segments.floor_slot(offset)
    holder = snapshot.segments.segments[slot]
    bound = snapshot.read_bound(slot)
    position = holder.find_position(offset, bound)
    kept_bytes = bound.end if position is None else position
    kept_offset = holder.end_offset_at(kept_bytes, offset)
    # After damage the caller's offset counts: a corrupt range there counts as kept.
    return Cut(offset, offset if kept_offset is None else kept_offset, slot, kept_bytes)


def truncate_to(local: LocalLog, cut: Cut) -> list[LogSegment]:
    """
    Remove every batch that reaches `cut.offset`, which becomes the log end.

    The recovery point is at or below `cut.kept_offset`, on the disk.

    Returns:
        The segments that left, whose `.deleted` files may be unlinked.
    """
    snapshot, offset, slot, kept_bytes = local.snapshot, cut.offset, cut.slot, cut.kept_bytes
    holder = snapshot.segments.segments[slot]
    leaving = list(snapshot.segments.segments[slot + 1 :])
    filesystem, files = local.context.filesystem, _files(local, holder)
    is_copied = kept_bytes < snapshot.read_bound(slot).end
    fresh_path = index_path = None
    with removed_on_error(filesystem) as made:
        if is_copied:
            fresh_path = _copy_prefix(local, holder, kept_bytes, made)
        index_path = _copy_transaction_index(local, files, offset, made)
        if cut.kept_offset < offset:
            prepare_segment(local, offset, made)
    # From here on a failure takes the log offline: a sealed active segment takes no appends.
    snapshot.segments.active.seal_in_memory()
    for segment in [holder, *leaving]:
        segment.retire()
    local.context.lower_settled_offset(offset)
    local.rename_deleted(leaving, in_order=True)
    if fresh_path is not None:
        filesystem.rename(fresh_path, files.log)
    if index_path is not None:
        filesystem.rename(index_path, files.path(FileKind.TRANSACTION_INDEX))
    remaining, next_offset = _reopen(local, holder, cut)
    segments = LogSegments((*snapshot.segments.segments[:slot], remaining))
    if next_offset < offset:
        # A batch with offsets on both sides was removed as a whole. An empty segment keeps the log
        # end at the target: after a reopen, too, no offset is assigned twice. Not before the batch
        # is gone from the disk: before this segment it would count as damaged.
        filesystem.sync_directory(local.context.directory)
        segments = segments.with_segment(local.create_segment(offset, is_prepared=True))
        local.seal([remaining])
    filesystem.sync_directory(local.context.directory)
    local.replace_all(
        LogSnapshot(
            segments, offset, segments.active.size_bytes, min(snapshot.start_offset, offset)
        )
    )
    return leaving


def truncate_fully_and_start_at(local: LocalLog, offset: int) -> list[LogSegment]:
    """
    Remove everything; the log is empty and begins at `offset`.

    The file of its segment was prepared (`prepare_segment`).

    Returns:
        The segments that left.
    """
    snapshot = local.snapshot
    leaving = list(snapshot.segments.segments)
    snapshot.segments.active.seal_in_memory()
    for segment in leaving:
        segment.retire()
    local.context.lower_settled_offset(offset)
    local.rename_deleted(leaving, in_order=True)
    fresh = local.create_segment(offset, is_prepared=True)
    local.context.filesystem.sync_directory(local.context.directory)
    local.replace_all(
        LogSnapshot(LogSegments([fresh]), end_offset=offset, end_position=0, start_offset=offset)
    )
    return leaving


@contextlib.contextmanager
def removed_on_error(filesystem: FileSystem) -> Iterator[list[Path]]:
    """If the block fails, try to remove the files that it has added to the list."""
    made: list[Path] = []
    try:
        yield made
    except (OSError, LogStorageError):
        for path in made:
            with contextlib.suppress(OSError):
                filesystem.unlink(path)
        raise


def prepare_segment(local: LocalLog, base_offset: int, made: list[Path]) -> None:
    """Make the empty file of a segment for `create_segment`, and add its path to the list."""
    path = local.prepared_path(base_offset)
    made.append(path)
    local.context.filesystem.create_new(path).close()


def _copy_prefix(local: LocalLog, segment: LogSegment, size: int, made: list[Path]) -> Path:
    filesystem = local.context.filesystem
    target = _files(local, segment).in_state(FileState.TEMPORARY).log
    made.append(target)
    handle = filesystem.create_new(target)
    try:
        for position in range(0, size, COPY_BYTES):
            part = segment.file.read(position, min(COPY_BYTES, size - position))
            handle.pwrite(part, position)
        # Before the rename: the name must not refer to bytes that the disk does not have.
        handle.sync()
    finally:
        handle.close()
    return target


def _reopen(local: LocalLog, old: LogSegment, cut: Cut) -> tuple[LogSegment, int]:
    """Return the rest of a segment, ready for appends, and the offset that follows it."""
    context = local.context
    path = _files(local, old).log
    handle = context.filesystem.open(path, write=True)
    file = SegmentFile(context.pool, context.filesystem, path, cut.kept_bytes, handle)
    segment = LogSegment(context, old.base_offset, file)
    scan = scan_segment(
        file.whole(),
        path,
        base_offset=old.base_offset,
        interval=context.config.index_interval_bytes,
        find_holes=file.holes,
    )
    segment.add_corrupt_ranges(scan.corrupt_ranges)
    next_offset = max(scan.next_offset, old.base_offset)
    # If another segment follows after a hole, zeros at the end of this one would count as damage.
    segment.activate(scan, is_last=next_offset >= cut.offset)
    return segment, next_offset


def _copy_transaction_index(
    local: LocalLog, files: SegmentFiles, offset: int, made: list[Path]
) -> Path | None:
    """Copy an index without the transactions whose marker is cut; None if it has none."""
    filesystem = local.context.filesystem
    path = files.path(FileKind.TRANSACTION_INDEX)
    if filesystem.stat(path) is None:
        return None
    handle = filesystem.open(path)
    try:
        data = handle.pread(handle.size(), 0)
    finally:
        handle.close()
    size = ENTRY_SIZE
    entries = [data[start : start + size] for start in range(0, len(data) - size + 1, size)]
    # The fourth field is the last offset.
    kept = [entry for entry in entries if ENTRY_LAYOUT.unpack(entry)[3] < offset]
    if len(kept) == len(entries):
        return None
    target = files.in_state(FileState.TEMPORARY).path(FileKind.TRANSACTION_INDEX)
    made.append(target)
    handle = filesystem.create_new(target)
    try:
        handle.pwrite(b"".join(kept), 0)
        handle.sync()
    finally:
        handle.close()
    return target


def _files(local: LocalLog, segment: LogSegment) -> SegmentFiles:
    return SegmentFiles(local.context.directory, segment.base_offset)
