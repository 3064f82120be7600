"""Cutting a log back, by copy: bytes that somebody may have mapped are never cut in place.

`truncate_to` copies what stays of the segment that holds the target into a new file and renames it
over the old one. Readers that hold the old segment go on reading the old file. Producer snapshots
above the target are removed afterwards, by whoever keeps the producers (`producers.py`), before
anything is appended.

All that needs room on the disk is made first, under names that end in `.tmp`: where there is none,
it is removed, nothing has changed, and the log goes on.

Crash points of `truncate_to`:
  1. while the copies are written: they are `.tmp` and removed at the next start; nothing happened.
  2. after any later segment was renamed `.deleted` (newest first): the log ends earlier, at a
     segment boundary at or above the target.
  3. after the copy was renamed over the `.log`, before new indexes were made: the old ones reach
     beyond the log. The segment lies above the recovery point, so its indexes are made anew.
  4. after it, before the empty segment that keeps the log end behind a batch that went as a whole:
     the log ends where that batch began. The recovery point is not above that, so it is no loss.
Crash points of `truncate_fully_and_start_at`: the new start, or the present one where that is
higher, is checkpointed first. A crash before all old segments are gone leaves the oldest. Where all
of them end below the checkpointed start, the next start removes them; otherwise they are the log
yet, hidden below that start: it was truncated, but not to its beginning. The file of the new
segment is made before all of that, as `.tmp`; a crash before it has its name leaves none, and the
next start makes one.
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
ABORTED_TRANSACTION_SIZE = 34


class Cut(NamedTuple):
    """
    Where a log is to be cut.

    Attributes:
        offset: the log end afterwards.
        kept_offset: one above the last offset that stays; below `offset` where a batch straddles
            it, and goes as a whole.
        slot: of the segment that holds the target.
        kept_bytes: what stays of it.
    """

    offset: int
    kept_offset: int
    slot: int
    kept_bytes: int


def find_cut(local: LocalLog, offset: int) -> Cut:
    """Return where the first batch begins that reaches `offset`, which lies within the log."""
    snapshot = local.snapshot
    slot = snapshot.segments.floor_slot(offset)
    holder = snapshot.segments.segments[slot]
    bound = snapshot.read_bound(slot)
    position = holder.find_position(offset, bound)
    kept_bytes = bound.end if position is None else position
    kept_offset = holder.end_offset_at(kept_bytes, offset)
    # Behind damage it is as the caller says: what is fenced there counts as kept.
    return Cut(offset, offset if kept_offset is None else kept_offset, slot, kept_bytes)


def truncate_to(local: LocalLog, cut: Cut) -> list[LogSegment]:
    """
    Remove every batch that reaches `cut.offset` or beyond; the log end becomes that.

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
    # From here on a failure latches the log: a sealed active segment takes no appends.
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
        # A batch that straddled the target went as a whole. A segment of its own keeps the log
        # end where it was asked for: after a reopen, too, no offset is given out twice. Not before
        # the batch is gone from the disk: in front of this segment it would count as damaged.
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
    """Remove the files that are noted in the list where the block fails, as far as that goes."""
    made: list[Path] = []
    try:
        yield made
    except (OSError, LogStorageError):
        for path in made:
            with contextlib.suppress(OSError):
                filesystem.unlink(path)
        raise


def prepare_segment(local: LocalLog, base_offset: int, made: list[Path]) -> None:
    """Make the empty file of a segment ahead, for `create_segment`, and note its path."""
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
        # Before the rename: a name must not come to stand for bytes the disk does not have.
        handle.sync()
    finally:
        handle.close()
    return target


def _reopen(local: LocalLog, old: LogSegment, cut: Cut) -> tuple[LogSegment, int]:
    """Return what is left of a segment, ready for appends, and the offset that follows it."""
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
    # With another segment behind a hole in the offsets, zeros at its end would count as damage.
    segment.activate(scan, is_last=next_offset >= cut.offset)
    return segment, next_offset


def _copy_transaction_index(
    local: LocalLog, files: SegmentFiles, offset: int, made: list[Path]
) -> Path | None:
    """Copy an index without the transactions whose marker is cut; None where it has none."""
    filesystem = local.context.filesystem
    path = files.path(FileKind.TRANSACTION_INDEX)
    if filesystem.stat(path) is None:
        return None
    handle = filesystem.open(path)
    try:
        data = handle.pread(handle.size(), 0)
    finally:
        handle.close()
    size = ABORTED_TRANSACTION_SIZE
    entries = [data[start : start + size] for start in range(0, len(data) - size + 1, size)]
    kept = [entry for entry in entries if int.from_bytes(entry[18:26], "big") < offset]
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
