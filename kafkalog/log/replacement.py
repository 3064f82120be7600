"""Replacement of old segments by finished ones: the last step of a conversion and a compaction.

A split or conversion replaces one segment by several, a compaction several by one. The new segments
have the same records, or fewer, under the same offsets; the first has the base offset of the first
old one. They are complete, and synced, under names `.cleaned`. Steps, each on the disk before the
next:

  1. one mark `.covered` names all old and all new files (`covering`);
  2. `.cleaned` becomes `.swap`, the lowest last: with it the new segments are valid;
  3. old segments whose base offset no new one has are renamed `.deleted`;
  4. `.swap` loses its suffix, the highest base offset first, the lowest over the files of the old
     segment; the log is published with the new segments;
  5. the mark is removed, without a sync: without `.swap` files it means nothing.

Crash points, with the action of the next start (`startup_cleanup`):

  * before the last of step 2: a `.cleaned` is left at or below each `.swap`, so the new segments
    are not valid: the old segments stay;
  * then up to the last of step 4: a `.swap` is left, and the mark confirms it: the files that it
    names as old are removed, and the rest is renamed. The mark is needed if a new segment ends
    below the last old one, whose records were all removed;
  * later: only the mark is left, and removed.

These steps are those of a broker: old segments lose their names before a new one gets its name, so
a broker never finds both. It removes `.cleaned` files, completes `.swap` files, and ignores the
mark. If it completes a swap it may keep an old segment after the new one; it cleans that again, as
after its own crash. The mark that it leaves is not valid any more.

Removed records are not visible from the last of step 2 on. None returns: the old files are valid
until all new ones are, and never again.

Readers that hold an old segment continue to read it: its bytes are mapped before its name is
removed. A reader in another process finds either by `exchanges.present_segments`: the old ones
before the last of step 2, the new ones then, also with the suffix `.swap`.

Thread-safety: under the lock of the log, which the caller holds; readers need none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

from kafkalog.errors import LogCleaningAbortedError
from kafkalog.files.names import FileKind, FileState
from kafkalog.log.local_log import LocalLog, UndoFailedError
from kafkalog.log.replaced_markers import replaced_marker_path, write_replaced_marker
from kafkalog.log.segment import LogSegment, open_segment
from kafkalog.log.segment_types import SegmentContext
from kafkalog.log.segments import LogSegments

__all__ = [
    "activate_exchange",
    "mark_replaced",
    "remove_cleaned",
    "remove_replaced_marker",
    "replace_segments",
]

# Snapshots are not included: they belong to the log, and the caller decides on them.
_SEGMENT_KINDS = (
    FileKind.LOG,
    FileKind.OFFSET_INDEX,
    FileKind.TIME_INDEX,
    FileKind.TRANSACTION_INDEX,
)


def mark_replaced(
    context: SegmentContext, leaving: Sequence[LogSegment], bases: Sequence[int]
) -> None:
    """
    Do step 1, which needs no lock: the mark is valid only with the new segments.

    Args:
        context: settings and parts that the segments of the log share.
        leaving: old segments, in sequence; bases: base offsets of the new ones.

    Raises:
        LogCleaningAbortedError: a segment was removed from the log, or the log was closed.
        OSError: the disk failed. Nothing was changed, and the `.cleaned` files are removed.
        UndoFailedError: the disk failed, and the new files could not be removed.
    """
    filesystem, directory = context.filesystem, context.directory
    try:
        write_replaced_marker(filesystem, directory, [each.base_offset for each in leaving], bases)
        filesystem.sync_directory(directory)
    except FileNotFoundError as error:
        _undo(context, bases, error)
        raise LogCleaningAbortedError(
            f"{directory}: a segment has left the log meanwhile", path=directory
        ) from error
    except OSError as error:
        _undo(context, bases, error)
        raise


def replace_segments(
    local: LocalLog,
    leaving: Sequence[LogSegment],
    bases: Sequence[int],
    *,
    required_segments: Sequence[LogSegment] = (),
) -> list[int]:
    """
    Replace sealed segments by the `.cleaned` segments with these base offsets: steps 2 to 4.

    Args:
        local: the log's segments.
        leaving, bases: as for `mark_replaced`, which was called.
        required_segments: other segments that must still exist, because the cleaning used them.

    Returns:
        Base offsets of old segments that no new one has: their files are `.deleted`, and the
        caller removes them.

    Raises:
        LogCleaningAbortedError: a segment was removed from the log; nothing was changed, and the
            `.cleaned` files are removed.
        UndoFailedError: the disk failed between two steps; the next start finishes or undoes them.
    """
    snapshot = local.snapshot
    _ensure_consistent(snapshot.segments, leaving, bases)
    try:
        _ensure_present(snapshot.segments, [*leaving, *required_segments])
    except LogCleaningAbortedError as error:
        _undo(local.context, bases, error)
        raise
    covered = [segment for segment in leaving if segment.base_offset not in bases]
    for segment in leaving:
        segment.retire()
    try:
        activate_exchange(local.context, bases)
        if covered:
            local.rename_deleted(covered, kinds=_SEGMENT_KINDS)
            local.context.filesystem.sync_directory(local.context.directory)
        _rename_to_live(local, bases)
        fresh = [open_segment(local.context, base) for base in bases]
        for segment in fresh:
            segment.file.mark_synced()
        staying = snapshot.segments.without(leaving).segments
        local.replace_all(snapshot.replace(segments=LogSegments([*staying, *fresh])))
    except OSError as error:
        raise UndoFailedError(error.errno, f"{error}: the swap is incomplete") from error
    return [segment.base_offset for segment in covered]


def remove_replaced_marker(context: SegmentContext, bases: Sequence[int]) -> None:
    """
    Do step 5, which needs no lock.

    Raises:
        OSError: the disk failed; the next start removes the mark.
    """
    context.filesystem.unlink(replaced_marker_path(context.directory, min(bases)))


def remove_cleaned(context: SegmentContext, bases: Iterable[int]) -> None:
    """
    Remove the `.cleaned` files of segments that are not needed.

    Not after a failure in step 2: they show that its `.swap` files are not valid.
    """
    for base in bases:
        for path in context.files(base).in_state(FileState.CLEANED):
            with contextlib.suppress(FileNotFoundError):
                context.filesystem.unlink(path)


def _ensure_consistent(
    segments: LogSegments, leaving: Sequence[LogSegment], bases: Sequence[int]
) -> None:
    if bases[0] != leaving[0].base_offset or any(segment is segments.active for segment in leaving):
        raise AssertionError(f"{bases} cannot replace {leaving}")


def _ensure_present(segments: LogSegments, needed: Sequence[LogSegment]) -> None:
    present = set(map(id, segments.segments))
    for segment in needed:
        if id(segment) not in present:
            raise LogCleaningAbortedError(
                f"{segment.path} has left the log meanwhile", path=segment.path
            )


def _undo(context: SegmentContext, bases: Sequence[int], cause: Exception) -> None:
    """Remove the new files."""
    try:
        with contextlib.suppress(FileNotFoundError):
            context.filesystem.unlink(replaced_marker_path(context.directory, min(bases)))
    except OSError as error:
        raise UndoFailedError(error.errno, f"{cause}; and undoing it: {error}") from error
    # The next start removes these as well.
    with contextlib.suppress(OSError):
        remove_cleaned(context, bases)


def activate_exchange(context: SegmentContext, bases: Sequence[int]) -> None:
    """
    Do step 2. While the lowest is `.cleaned`, the others may be renamed in any order.

    Raises:
        OSError: the disk failed; the next start undoes or continues it.
    """
    lowest, *others = sorted(bases)
    for base in others:
        _rename(context, base, FileState.CLEANED, FileState.SWAP)
    if others:
        context.filesystem.sync_directory(context.directory)
    _rename(context, lowest, FileState.CLEANED, FileState.SWAP)
    context.filesystem.sync_directory(context.directory)


def _rename_to_live(local: LocalLog, bases: Sequence[int]) -> None:
    """Step 3."""
    for base in sorted(bases, reverse=True):
        _rename(local.context, base, FileState.SWAP, FileState.LIVE)
        # Else a power cut might keep one of these names between two `.swap` names: the next start
        # would take it for an old segment that they cover, and remove it.
        local.context.filesystem.sync_directory(local.context.directory)


def _rename(context: SegmentContext, base_offset: int, before: FileState, after: FileState) -> None:
    """Rename the files of a segment, the `.log` first; missing files stay missing."""
    filesystem, files = context.filesystem, context.files(base_offset)
    pairs = zip(files.in_state(before), files.in_state(after), strict=True)
    for source, target in pairs:
        if filesystem.stat(source) is not None:
            filesystem.rename(source, target)
        elif filesystem.stat(target) is not None:
            filesystem.unlink(target)
