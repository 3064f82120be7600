"""Putting finished segments in the place of one: the end of a conversion, as of a compaction.

The new segments hold the records of the old one, or fewer, under the same offsets; the first has
its base offset. They are complete, and synced, under names `.cleaned`. From there, each step on the
disk before the next:

  1. `.cleaned` becomes `.swap`, the highest base offset first;
  2. `.swap` loses its suffix, in the same order, the lowest over the files of the old segment.

Crash points, with what the next start (`leftovers`) makes of them:

  * before the last of step 1: some `.cleaned` are left, so nothing counts: the old segment stays;
  * afterwards: the new ones count. Old files in their range go, and what still is `.swap` gets its
    name. An old broker does the same with what it finds.

Readers that hold the old segment go on reading it: its bytes are mapped before its name goes. A
reader in another process follows by the identity of files. While several take the place of one, it
may see the old segment beside the higher new ones, and refuses what overlaps: never a hole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kafkalog.errors import LogCleaningAbortedError
from kafkalog.files.names import FileState
from kafkalog.log.loader import open_segment
from kafkalog.log.local_log import LocalLog, UndoFailedError
from kafkalog.log.segment import LogSegment
from kafkalog.log.segments import LogSegments

__all__ = ["replace_segment"]


def replace_segment(local: LocalLog, leaving: LogSegment, bases: Sequence[int]) -> None:
    """
    Put the `.cleaned` segments with these base offsets in the place of a sealed one.

    Raises:
        LogCleaningAbortedError: the segment has left the log meanwhile; nothing was changed.
        UndoFailedError: the disk failed half way; the next start finishes it, or takes it back.
    """
    snapshot = local.snapshot
    others = [segment for segment in snapshot.segments.segments if segment is not leaving]
    if len(others) == len(snapshot.segments):
        raise LogCleaningAbortedError(
            f"{leaving.path} has left the log meanwhile", path=leaving.path
        )
    if leaving is snapshot.segments.active or bases[0] != leaving.base_offset:
        raise AssertionError(f"{bases} cannot stand in the place of {leaving}")
    leaving.retire()
    try:
        local.context.filesystem.sync_directory(local.context.directory)
        for base in sorted(bases, reverse=True):
            _rename(local, base, FileState.CLEANED, FileState.SWAP)
            # Or a power cut might keep a lower one that looks complete without the higher ones.
            local.context.filesystem.sync_directory(local.context.directory)
        for base in sorted(bases, reverse=True):
            _rename(local, base, FileState.SWAP, FileState.LIVE)
            # Or it might keep one between two that are `.swap` yet: the next start would take it
            # for an old segment that they cover, and remove it.
            local.context.filesystem.sync_directory(local.context.directory)
    except OSError as error:
        raise UndoFailedError(error.errno, f"{error}: half way of a swap") from error
    fresh = [open_segment(local.context, base) for base in bases]
    local.replace_all(replace(snapshot, segments=LogSegments([*others, *fresh])))


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
