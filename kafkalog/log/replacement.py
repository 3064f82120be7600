"""Putting finished segments in the place of old ones: the end of a conversion, as of a compaction.

Several take the place of one that was split or converted; one takes the place of several that were
compacted. They hold the same records,
or fewer, under the same offsets; the first has the base offset of the first old one. They are
complete, and synced, under names `.cleaned`. From there, each step on the disk before the next:

  1. one mark `.covered` names all old and all new files (`covering`);
  2. `.cleaned` becomes `.swap`; the lowest comes last, and with it the new ones count;
  3. old segments whose base offset no new one has are renamed `.deleted`;
  4. `.swap` loses its suffix, the highest base offset first, the lowest over the files of the old
     segment; the log is published as it is now;
  5. the mark goes, and is not waited for: without `.swap` files it means nothing.

Crash points, with what the next start (`startup_cleanup`) makes of them:

  * before the last of step 2: a `.cleaned` is left at or below each `.swap`, so nothing counts: the
    old segments stay;
  * afterwards, up to the last of step 4: a `.swap` is left, and the mark vouches for it: what it
    names as old goes, and the rest is renamed. The mark is needed where a new segment ends below
    the last old one, since nothing of that was worth keeping;
  * later: nothing is left to do but to remove the mark.

A broker in between finds these steps as it makes them itself: old segments have left before a new
one has its name, so never do both lie in its log. It removes `.cleaned` files, completes `.swap`
files, and passes over the mark. Where it completes a swap it may keep an old segment behind the new
one; it cleans that once more, as after a crash of its own. The mark that it leaves counts no more.

Removed records are seen no more from the last of step 2 on. So none comes back: the old files count
until all of the new ones do, and never again.

Readers that hold an old segment go on reading it: its bytes are mapped before its name goes. A
reader in another process finds either by `exchanges.present_segments`: the old ones before the last
of step 2, the new ones afterwards, also where they are `.swap` yet.
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

# A snapshot is its log's, not a segment's: the caller knows which may go.
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
    Take step 1, which needs no lock: the mark counts only with the new segments.

    Args:
        context: what the log's segments share.
        leaving: old segments, one behind the other; bases: of the new ones.

    Raises:
        LogCleaningAbortedError: a segment has left the log, or the log was closed, meanwhile.
        OSError: the disk refused. Nothing was changed, and the `.cleaned` files are gone.
        UndoFailedError: nor would it let what was made be removed.
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
    Put the `.cleaned` segments with these base offsets in the place of sealed ones: steps 2 to 4.

    Args:
        local: the log's segments.
        leaving, bases: as for `mark_replaced`, which was done.
        required_segments: segments that must still be there too: what was cleaned relies on them.

    Returns:
        Base offsets of old segments that no new one has: their files are `.deleted`, and the
        caller's to remove.

    Raises:
        LogCleaningAbortedError: a segment has left the log meanwhile; nothing was changed, and the
            `.cleaned` files are gone.
        UndoFailedError: the disk failed half way; the next start finishes it, or takes it back.
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
        raise UndoFailedError(error.errno, f"{error}: half way of a swap") from error
    return [segment.base_offset for segment in covered]


def remove_replaced_marker(context: SegmentContext, bases: Sequence[int]) -> None:
    """
    Take step 5, which needs no lock.

    Raises:
        OSError: the disk refused; the next start removes it.
    """
    context.filesystem.unlink(replaced_marker_path(context.directory, min(bases)))


def remove_cleaned(context: SegmentContext, bases: Iterable[int]) -> None:
    """
    Remove the `.cleaned` files of segments that are not wanted after all.

    Not after a swap that failed half way: they say that its `.swap` files do not count.
    """
    for base in bases:
        for path in context.files(base).in_state(FileState.CLEANED):
            with contextlib.suppress(FileNotFoundError):
                context.filesystem.unlink(path)


def _ensure_consistent(
    segments: LogSegments, leaving: Sequence[LogSegment], bases: Sequence[int]
) -> None:
    if bases[0] != leaving[0].base_offset or any(segment is segments.active for segment in leaving):
        raise AssertionError(f"{bases} cannot stand in the place of {leaving}")


def _ensure_present(segments: LogSegments, needed: Sequence[LogSegment]) -> None:
    present = set(map(id, segments.segments))
    for segment in needed:
        if id(segment) not in present:
            raise LogCleaningAbortedError(
                f"{segment.path} has left the log meanwhile", path=segment.path
            )


def _undo(context: SegmentContext, bases: Sequence[int], cause: Exception) -> None:
    """Remove what was made."""
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
    Take step 2. While the lowest is `.cleaned`, the others may come in any order.

    Raises:
        OSError: the disk refused; the next start undoes what was done, or goes on with it.
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
        # Or a power cut might keep one between two that are `.swap` yet: the next start would take
        # it for an old segment that they cover, and remove it.
        local.context.filesystem.sync_directory(local.context.directory)


def _rename(context: SegmentContext, base_offset: int, before: FileState, after: FileState) -> None:
    """Rename the files of a segment, the `.log` first; what it lacks, nobody keeps in its place."""
    filesystem, files = context.filesystem, context.files(base_offset)
    pairs = zip(files.in_state(before), files.in_state(after), strict=True)
    for source, target in pairs:
        if filesystem.stat(source) is not None:
            filesystem.rename(source, target)
        elif filesystem.stat(target) is not None:
            filesystem.unlink(target)
