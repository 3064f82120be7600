"""Putting finished segments in the place of old ones: the end of a conversion, as of a compaction.

Several take the place of one that was split or converted; one takes the place of several that were
compacted. They hold the same records, or fewer, under the same offsets; the first has the base
offset of the first old one. They are complete, and synced, under names `.cleaned`. From there, each
step on the disk before the next:

  1. each *covered* segment, an old one in whose place none of its own base offset comes, gets a
     marker `.covered`;
  2. `.cleaned` becomes `.swap`; the lowest comes last, and with it the new ones count;
  3. `.swap` loses its suffix, the highest base offset first, the lowest over the files of the old
     segment; the log is published as it is now;
  4. covered segments are renamed `.deleted`;
  5. the markers go.

Crash points, with what the next start (`leftovers`) makes of them:

  * before the last of step 2: a `.cleaned` is left at or below each `.swap` and each marker, so
    nothing counts: the old segments stay;
  * afterwards: the new ones count. Old files in their range go, and those that a marker names: a
    new segment may end below them, where nothing of them was worth keeping. What still is `.swap`
    gets its name. An old broker does the same with what it finds, but for the markers: as with a
    crash of its own it may find an old segment behind the new one, and cleans that once more.

Removed records are seen no more from step 3 on. So none comes back: the old files count until all
of the new ones do, and never again.

Readers that hold an old segment go on reading it: its bytes are mapped before its name goes. A
reader in another process follows by the identity of files. Once the new segment has its name, it
passes over those that are marked (`leftovers.live_bases`); while several take the place of one, it
may see the old one beside the higher new ones, and refuses what overlaps: never a hole.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

from kafkalog.errors import LogCleaningAbortedError
from kafkalog.files.names import FileKind, FileState
from kafkalog.log.covering import marker_path, write_marker
from kafkalog.log.loader import open_segment
from kafkalog.log.local_log import LocalLog, UndoFailedError
from kafkalog.log.segment import LogSegment
from kafkalog.log.segment_types import SegmentContext
from kafkalog.log.segments import LogSegments

__all__ = ["mark_covered", "remove_cleaned", "remove_marks", "replace_segments"]

# A snapshot is its log's, not a segment's: the caller knows which may go.
_SEGMENT_KINDS = (
    FileKind.LOG,
    FileKind.OFFSET_INDEX,
    FileKind.TIME_INDEX,
    FileKind.TRANSACTION_INDEX,
)


def mark_covered(
    context: SegmentContext, leaving: Sequence[LogSegment], bases: Sequence[int]
) -> None:
    """
    Take step 1, which needs no lock: marks count only with the new segments.

    Args:
        context: what the log's segments share.
        leaving: old segments, one behind the other; bases: of the new ones.

    Raises:
        OSError: the disk refused. Nothing was changed, and the `.cleaned` files are gone.
        UndoFailedError: nor would it let what was made be removed.
    """
    try:
        for segment in _covered(leaving, bases):
            write_marker(context.filesystem, context.directory, segment.base_offset)
        context.filesystem.sync_directory(context.directory)
    except OSError as error:
        _undo(context, leaving, bases, error)
        raise


def replace_segments(
    local: LocalLog,
    leaving: Sequence[LogSegment],
    bases: Sequence[int],
    *,
    witnesses: Sequence[LogSegment] = (),
) -> list[int]:
    """
    Put the `.cleaned` segments with these base offsets in the place of sealed ones: steps 2 to 4.

    Args:
        local: the log's segments.
        leaving, bases: as for `mark_covered`, which was done.
        witnesses: segments that must still be there too: what was cleaned relies on them.

    Returns:
        Base offsets of the covered ones: their files are `.deleted`, and the caller's to remove.

    Raises:
        LogCleaningAbortedError: a segment has left the log meanwhile; nothing was changed, and the
            `.cleaned` files are gone.
        UndoFailedError: the disk failed half way; the next start finishes it, or takes it back.
    """
    snapshot = local.snapshot
    _ensure_sensible(snapshot.segments, leaving, bases)
    try:
        _ensure_there(snapshot.segments, [*leaving, *witnesses])
    except LogCleaningAbortedError as error:
        _undo(local.context, leaving, bases, error)
        raise
    covered = _covered(leaving, bases)
    for segment in leaving:
        segment.retire()
    try:
        _let_count(local, bases)
        _give_names(local, bases)
        fresh = [open_segment(local.context, base) for base in bases]
        for segment in fresh:
            segment.file.found_synced()
        staying = snapshot.segments.without(leaving).segments
        local.replace_all(snapshot._replace(segments=LogSegments([*staying, *fresh])))
        if covered:
            local.rename_deleted(covered, kinds=_SEGMENT_KINDS)
            local.context.filesystem.sync_directory(local.context.directory)
    except OSError as error:
        raise UndoFailedError(error.errno, f"{error}: half way of a swap") from error
    return [segment.base_offset for segment in covered]


def remove_marks(context: SegmentContext, base_offsets: Sequence[int]) -> None:
    """
    Take step 5, which needs no lock: what the marks mean is gone, and they mean nothing else.

    Raises:
        OSError: the disk refused; the next start removes them.
    """
    for base in base_offsets:
        context.filesystem.unlink(marker_path(context.directory, base))
    context.filesystem.sync_directory(context.directory)


def remove_cleaned(context: SegmentContext, bases: Iterable[int]) -> None:
    """
    Remove the `.cleaned` files of segments that are not wanted after all.

    Not after a swap that failed half way: they say that its `.swap` files do not count.
    """
    for base in bases:
        for path in context.files(base).in_state(FileState.CLEANED):
            with contextlib.suppress(FileNotFoundError):
                context.filesystem.unlink(path)


def _ensure_sensible(
    segments: LogSegments, leaving: Sequence[LogSegment], bases: Sequence[int]
) -> None:
    if bases[0] != leaving[0].base_offset or any(segment is segments.active for segment in leaving):
        raise AssertionError(f"{bases} cannot stand in the place of {leaving}")


def _ensure_there(segments: LogSegments, needed: Sequence[LogSegment]) -> None:
    present = set(map(id, segments.segments))
    for segment in needed:
        if id(segment) not in present:
            raise LogCleaningAbortedError(
                f"{segment.path} has left the log meanwhile", path=segment.path
            )


def _covered(leaving: Sequence[LogSegment], bases: Sequence[int]) -> list[LogSegment]:
    return [segment for segment in leaving if segment.base_offset not in bases]


def _undo(
    context: SegmentContext, leaving: Sequence[LogSegment], bases: Sequence[int], cause: Exception
) -> None:
    """Remove what was made. Marks first: without a `.cleaned` below them they would count."""
    filesystem, covered = context.filesystem, _covered(leaving, bases)
    try:
        for segment in covered:
            with contextlib.suppress(FileNotFoundError):
                filesystem.unlink(marker_path(context.directory, segment.base_offset))
        if covered:
            filesystem.sync_directory(context.directory)
    except OSError as error:
        raise UndoFailedError(error.errno, f"{cause}; and undoing it: {error}") from error
    # The next start removes these as well.
    with contextlib.suppress(OSError):
        remove_cleaned(context, bases)


def _let_count(local: LocalLog, bases: Sequence[int]) -> None:
    """Step 2. While the lowest is `.cleaned`, the others may come in any order."""
    lowest, *others = sorted(bases)
    for base in others:
        _rename(local, base, FileState.CLEANED, FileState.SWAP)
    if others:
        local.context.filesystem.sync_directory(local.context.directory)
    _rename(local, lowest, FileState.CLEANED, FileState.SWAP)
    local.context.filesystem.sync_directory(local.context.directory)


def _give_names(local: LocalLog, bases: Sequence[int]) -> None:
    """Step 3."""
    for base in sorted(bases, reverse=True):
        _rename(local, base, FileState.SWAP, FileState.LIVE)
        # Or a power cut might keep one between two that are `.swap` yet: the next start would take
        # it for an old segment that they cover, and remove it.
        local.context.filesystem.sync_directory(local.context.directory)


def _rename(local: LocalLog, base_offset: int, before: FileState, after: FileState) -> None:
    """Rename the files of a segment, the `.log` first; what it lacks, nobody keeps in its place."""
    filesystem = local.context.filesystem
    files = local.context.files(base_offset)
    pairs = zip(files.in_state(before), files.in_state(after), strict=True)
    for source, target in pairs:
        if filesystem.stat(source) is not None:
            filesystem.rename(source, target)
        elif filesystem.stat(target) is not None:
            filesystem.unlink(target)
