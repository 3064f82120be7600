"""Files of unfinished work in a partition directory, and what startup does with each.

    .deleted   a segment that was leaving: removed
    .tmp       a file that was to replace another: removed
    .cleaned   output of a compaction or split that had not finished: removed
    .swap      output that had: it is swapped in, unless a `.cleaned` file at or below its base
               offset shows that the renames to `.swap` had only begun (they go downwards)
    .covered   marks an old segment in whose place a lower one comes, or has come: that goes, as
               long as no `.cleaned` file speaks against it
    .broken    bytes that a recovery cut: kept for people

Crash points while a swap is completed: after the removal of any covered file, after any rename.
What is covered is gone from the disk before the first `.swap` file takes its name, and they take
them in order of offset (upwards or downwards is all the same), each on the disk before the next. So
the next start finds a `.swap` name for all that is not done yet, and nothing that is done already
between the lowest and the highest of them. Markers go last: what they name is gone by then.

Crash points while an unfinished one is undone: `.swap` files and markers are gone from the disk
before the `.cleaned` ones that speak against them.

Removals that nothing rests on are left to the directory sync at the end of the opening.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kafkalog.files.filesystem import FileSystem
from kafkalog.files.listing import segment_files
from kafkalog.files.names import (
    OFFSET_DIGITS,
    FileKind,
    FileState,
    SegmentFileName,
    SegmentFiles,
    live_base_offset,
    segment_file_name,
    try_parse_segment_file,
)
from kafkalog.log.covering import is_covered
from kafkalog.log.scanner import scan_segment

__all__ = ["Leftovers", "clear_leftovers", "live_bases"]

logger = logging.getLogger(__name__)

# How names end whose files are to go, or to be swapped in.
_UNFINISHED: Final = tuple(
    state.value for state in FileState if state not in (FileState.LIVE, FileState.BROKEN)
)
_INDEXES: Final = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX)


@dataclass(slots=True)
class Leftovers:
    """What was removed, which segments a finished compaction left to be swapped in, and the bases
    of all segments that are there now, ascending."""

    removed: list[Path] = field(default_factory=list)
    completed_swaps: list[Path] = field(default_factory=list)
    bases: list[int] = field(default_factory=list)

    @property
    def are_none(self) -> bool:
        """Whether nothing was found."""
        return not self.removed and not self.completed_swaps


def live_bases(filesystem: FileSystem, directory: Path) -> list[int]:
    """
    Return the base offsets of the segments in a directory, ascending.

    Without those that are marked as covered, once the new segment has its name (`replacement`): who
    looks in the midst of an exchange sees no record twice.
    """
    names = filesystem.list(directory)
    bases = _log_bases(names, FileState.LIVE)
    covered = _log_bases(names, FileState.COVERED)
    if covered and not _log_bases(names, FileState.SWAP) | _log_bases(names, FileState.CLEANED):
        bases -= {base for base in covered if is_covered(filesystem, directory, base)}
    return sorted(bases)


def _log_bases(names: list[str], state: FileState) -> set[int]:
    # Of a log of many segments most names do not end with this.
    suffix = FileKind.LOG.value + state.value
    parsed = (try_parse_segment_file(name) for name in names if name.endswith(suffix))
    return {name.base_offset for name in parsed if name is not None}


def clear_leftovers(filesystem: FileSystem, directory: Path) -> Leftovers:
    """Remove what unfinished work left, and complete the swaps that can be completed."""
    done = Leftovers()
    names = filesystem.list(directory)
    if any(name.endswith(_UNFINISHED) for name in names):
        _clear_unfinished(filesystem, directory, done)
        names = filesystem.list(directory)
    found = (live_base_offset(name, FileKind.LOG) for name in names)
    done.bases = sorted(base_offset for base_offset in found if base_offset is not None)
    _remove_orphans(filesystem, directory, names, done)
    return done


def _clear_unfinished(filesystem: FileSystem, directory: Path, done: Leftovers) -> None:
    files = segment_files(filesystem, directory)
    cleaned = [name.base_offset for name in files if name.state is FileState.CLEANED]
    first_cleaned = min(cleaned, default=None)
    swaps: list[SegmentFileName] = []
    for name in files:
        if name.state not in (FileState.SWAP, FileState.COVERED):
            continue
        if first_cleaned is not None and name.base_offset >= first_cleaned:
            _remove(filesystem, directory, name, done)
        else:
            swaps.append(name)
    if done.removed:
        filesystem.sync_directory(directory)
    for name in files:
        if name.state in (FileState.DELETED, FileState.TEMPORARY, FileState.CLEANED):
            _remove(filesystem, directory, name, done)
    if swaps:
        _complete_swaps(filesystem, directory, swaps, done)


def _complete_swaps(
    filesystem: FileSystem, directory: Path, swaps: list[SegmentFileName], done: Leftovers
) -> None:
    markers = [name for name in swaps if name.state is FileState.COVERED]
    swaps = [name for name in swaps if name.state is FileState.SWAP]
    logs = sorted(name for name in swaps if name.kind is FileKind.LOG)
    covered = {
        name.base_offset for name in markers if is_covered(filesystem, directory, name.base_offset)
    }
    lower = upper = 0
    if logs:
        lower = logs[0].base_offset
        upper = max(_next_offset(filesystem, directory, name) for name in logs)
    for name in segment_files(filesystem, directory):
        is_old = lower <= name.base_offset < upper or name.base_offset in covered
        if name.state is FileState.LIVE and is_old:
            _remove(filesystem, directory, name, done)
    filesystem.sync_directory(directory)
    for name in logs:
        done.completed_swaps.append(_swap_in(filesystem, directory, name))
        filesystem.sync_directory(directory)
    for name in swaps:
        if name.kind is not FileKind.LOG:
            _swap_in(filesystem, directory, name)
    for name in markers:
        _remove(filesystem, directory, name, done)
    filesystem.sync_directory(directory)


def _swap_in(filesystem: FileSystem, directory: Path, name: SegmentFileName) -> Path:
    target = directory / segment_file_name(name.base_offset, name.kind)
    filesystem.rename(directory / segment_file_name(*name), target)
    logger.info("completed the swap of %s", target)
    return target


def _next_offset(filesystem: FileSystem, directory: Path, name: SegmentFileName) -> int:
    """Return the offset behind the last whole batch of a swap file."""
    path = SegmentFiles(directory, name.base_offset, FileState.SWAP).log
    handle = filesystem.open(path)
    try:
        size = handle.size()
        data = handle.map(size) if size else memoryview(b"")
    finally:
        handle.close()
    return scan_segment(data, path, base_offset=name.base_offset, interval=2**31 - 1).next_offset


def _remove_orphans(
    filesystem: FileSystem, directory: Path, names: list[str], done: Leftovers
) -> None:
    """Remove index files whose segment is gone."""
    present = {name[:OFFSET_DIGITS] for name in names if name.endswith(FileKind.LOG)}
    for name in names:
        if name.endswith(_INDEXES) and name[:OFFSET_DIGITS] not in present:
            parsed = try_parse_segment_file(name)
            if parsed is not None:
                _remove(filesystem, directory, parsed, done)


def _remove(
    filesystem: FileSystem, directory: Path, name: SegmentFileName, done: Leftovers
) -> None:
    path = directory / segment_file_name(*name)
    filesystem.unlink(path)
    logger.info("removed %s, left by unfinished work", path)
    done.removed.append(path)
