"""Files of unfinished work in a partition directory, and the action of startup for each.

    .deleted   a segment that was being deleted: removed
    .tmp       a file that was to replace another: removed
    .cleaned   output of an unfinished compaction or split: removed
    .swap      output of a finished run: it replaces the old segments if `exchanges` finds it whole
               and covering; otherwise it is renamed `.broken`, the old ones stay, and the report
               names it. An old file `.deleted` gets its name back. With a `.cleaned`
               file at or below its base offset the renames to `.swap`, which run downwards, were
               not complete: removed
    .covered   the mark of an exchange, valid only with its `.swap` files: removed
    .broken    bytes that a recovery cut: kept for people

Crash points while a swap is completed: after the removal of any old segment, after any rename. Old
segments are removed from the disk before the first `.swap` file gets its name, and each name is on
the disk before the next. Without a mark the old segment of the lowest base offset is removed from
the disk before any other, which shows the next start that the exchange had begun. With a mark, the
lowest `.swap` file gets its name over that segment. So the next start finds a `.swap` name for each
remaining step. The mark is removed last.

Crash points while a swap is refused: after the rename to `.broken`, and after that of any old file;
the next start finds no `.swap` file, and the old segments. Names of old files are restored first,
and are on the disk before the `.swap` file loses its name.

Crash points while an unfinished swap is undone: `.swap` files are removed from the disk before the
`.cleaned` ones that make them invalid.

Removals on which nothing depends are synced with the directory at the end of the opening.

Thread-safety: during an opening, before the log has any other user.
"""

from __future__ import annotations

import logging
from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kafkalog.files.directories import segment_files
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import (
    MAX_OFFSET,
    OFFSET_DIGITS,
    FileKind,
    FileState,
    SegmentFileName,
    SegmentFiles,
    is_misnamed_segment,
    live_base_offset,
    segment_file_name,
    try_parse_segment_file,
)
from kafkalog.log.exchanges import Exchange, judge_exchanges, present_segments
from kafkalog.log.report import RefusedSwap

__all__ = ["StartupCleanup", "clean_partition_directory", "live_bases", "misnamed_segments"]

logger = logging.getLogger(__name__)

# Suffixes of files to remove, or to swap in.
_UNFINISHED: Final = tuple(
    state.value for state in FileState if state not in (FileState.LIVE, FileState.BROKEN)
)
_INDEXES: Final = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX)


@dataclass(slots=True)
class StartupCleanup:
    """
    Findings and actions of an opening.

    Attributes:
        removed: files that were removed.
        completed_swaps: segments of a finished exchange that got their names, ascending.
        refused_swaps: `.swap` files that were set aside.
        bases: base offsets of the current segments, ascending.
        swapped: those of them whose files are still `.swap`, for a read-only log.
        misnamed: files that are named like segments, but are none; they stay.
    """

    removed: list[Path] = field(default_factory=list)
    completed_swaps: list[Path] = field(default_factory=list)
    refused_swaps: list[RefusedSwap] = field(default_factory=list)
    bases: list[int] = field(default_factory=list)
    swapped: frozenset[int] = frozenset()
    misnamed: tuple[Path, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True if nothing was found."""
        return not (self.removed or self.completed_swaps or self.refused_swaps)

    def add_removed(self, *paths: Path) -> None:
        """Add files that were removed."""
        self.removed.extend(paths)

    def add_completed_swap(self, path: Path) -> None:
        """Add a segment of a finished exchange that got its name."""
        insort(self.completed_swaps, path)

    def add_refused_swap(self, swap: RefusedSwap) -> None:
        """Add a `.swap` file that was set aside."""
        self.refused_swaps.append(swap)

    def include_earlier(self, before: StartupCleanup) -> None:
        """Include the changes of an earlier cleanup of the same opening."""
        self.removed[:0] = before.removed
        self.completed_swaps[:0] = before.completed_swaps
        self.refused_swaps[:0] = before.refused_swaps


def live_bases(filesystem: FileSystem, directory: Path) -> list[int]:
    """Return the base offsets of the segments in a directory, ascending; see `exchanges`."""
    return present_segments(filesystem, directory).bases


def clean_partition_directory(filesystem: FileSystem, directory: Path) -> StartupCleanup:
    """Remove files of unfinished work, and complete the swaps that can be completed."""
    done = StartupCleanup()
    names = filesystem.list(directory)
    if any(name.endswith(_UNFINISHED) for name in names):
        _clear_unfinished(filesystem, directory, done)
        names = filesystem.list(directory)
    found = (live_base_offset(name, FileKind.LOG) for name in names)
    done.bases = sorted(base_offset for base_offset in found if base_offset is not None)
    done.misnamed = misnamed_segments(directory, names)
    _remove_orphans(filesystem, directory, names, done)
    return done


def misnamed_segments(directory: Path, names: Iterable[str]) -> tuple[Path, ...]:
    """Return the files of a directory that are named like segments, but are none."""
    return tuple(directory / name for name in names if is_misnamed_segment(name))


def _clear_unfinished(filesystem: FileSystem, directory: Path, done: StartupCleanup) -> None:
    files = segment_files(filesystem, directory)
    cleaned = [name.base_offset for name in files if name.state is FileState.CLEANED]
    first_cleaned = min(cleaned, default=None)
    swaps: list[SegmentFileName] = []
    for name in files:
        if name.state is not FileState.SWAP:
            continue
        if first_cleaned is not None and name.base_offset >= first_cleaned:
            _remove(filesystem, directory, name, done)
        else:
            swaps.append(name)
    if done.removed:
        filesystem.sync_directory(directory)
    exchanges = judge_exchanges(filesystem, directory) if swaps else []
    for exchange in exchanges:
        if exchange.refusal is not None:
            _refuse(filesystem, directory, exchange, done)
    for name in segment_files(filesystem, directory):
        if name.state in (FileState.DELETED, FileState.TEMPORARY, FileState.CLEANED):
            _remove(filesystem, directory, name, done)
    for exchange in exchanges:
        if exchange.refusal is None:
            _complete(filesystem, directory, exchange, done)
    _finish(filesystem, directory, done)


def _refuse(
    filesystem: FileSystem, directory: Path, exchange: Exchange, done: StartupCleanup
) -> None:
    """Rename `.swap` files to `.broken`; restore the names of their old segments."""
    _give_back(filesystem, directory, exchange.swaps[0])
    for base in exchange.swaps:
        files = SegmentFiles(directory, base, FileState.SWAP)
        number, kept = None, files.broken(FileKind.LOG)
        while filesystem.stat(kept) is not None:
            # Kept by an earlier opening.
            number = 0 if number is None else number + 1
            kept = files.broken(FileKind.LOG, number)
        filesystem.rename(files.log, kept)
        reason = exchange.refusal or ""
        logger.warning("%s replaces nothing: %s; kept in %s", files.log, reason, kept)
        done.add_refused_swap(RefusedSwap(files.log, reason, kept))
        for path in files:
            if filesystem.stat(path) is not None:
                filesystem.unlink(path)
                done.add_removed(path)
    filesystem.sync_directory(directory)


def _give_back(filesystem: FileSystem, directory: Path, base: int) -> None:
    """Undo the renames to `.deleted` of an exchange whose new segment is not to be used."""
    files = segment_files(filesystem, directory)
    live = {name.base_offset for name in files if name[1:3] == (FileKind.LOG, FileState.LIVE)}
    if base in live:
        return
    following = min((each for each in live if each > base), default=MAX_OFFSET + 1)
    back = [
        name
        for name in files
        if name.state is FileState.DELETED
        and name.kind is not FileKind.SNAPSHOT
        and base <= name.base_offset < following
    ]
    for name in sorted(back):
        target = directory / segment_file_name(name.base_offset, name.kind)
        filesystem.rename(directory / segment_file_name(*name), target)
        logger.warning("%s restored: no complete replacement existed", target)
    if back:
        filesystem.sync_directory(directory)


def _complete(
    filesystem: FileSystem, directory: Path, exchange: Exchange, done: StartupCleanup
) -> None:
    """Remove old segments, and give `.swap` segments their names."""
    fresh = set(exchange.swaps)
    lowest = SegmentFiles(directory, exchange.swaps[0]).log
    if exchange.leaving and not exchange.is_marked and filesystem.stat(lowest) is not None:
        # From here on the exchange has begun, for the next start too: see `exchanges`.
        filesystem.unlink(lowest)
        done.add_removed(lowest)
        filesystem.sync_directory(directory)
    for name in segment_files(filesystem, directory):
        if name.state is not FileState.LIVE:
            continue
        # An index of the old segment next to the new one would have wrong positions.
        is_index = name.kind in _INDEXES and name.base_offset in fresh
        if name.base_offset in exchange.leaving or is_index:
            _remove(filesystem, directory, name, done)
    filesystem.sync_directory(directory)
    for base in sorted(exchange.swaps, reverse=True):
        name = SegmentFileName(base, FileKind.LOG, FileState.SWAP)
        done.add_completed_swap(_swap_in(filesystem, directory, name))
        filesystem.sync_directory(directory)


def _finish(filesystem: FileSystem, directory: Path, done: StartupCleanup) -> None:
    """Give the index files of completed segments their names, and remove the marks."""
    names = segment_files(filesystem, directory)
    live = {name.base_offset for name in names if name[1:3] == (FileKind.LOG, FileState.LIVE)}
    found = [name for name in names if name.state in (FileState.SWAP, FileState.COVERED)]
    for name in found:
        if name.state is FileState.SWAP and name.base_offset in live:
            _swap_in(filesystem, directory, name)
        else:
            _remove(filesystem, directory, name, done)
    if found:
        filesystem.sync_directory(directory)


def _swap_in(filesystem: FileSystem, directory: Path, name: SegmentFileName) -> Path:
    target = directory / segment_file_name(name.base_offset, name.kind)
    filesystem.rename(directory / segment_file_name(*name), target)
    logger.info("completed the swap of %s", target)
    return target


def _remove_orphans(
    filesystem: FileSystem, directory: Path, names: list[str], done: StartupCleanup
) -> None:
    """Remove index files without a segment."""
    present = {name[:OFFSET_DIGITS] for name in names if name.endswith(FileKind.LOG)}
    for name in names:
        if name.endswith(_INDEXES) and name[:OFFSET_DIGITS] not in present:
            parsed = try_parse_segment_file(name)
            if parsed is not None:
                _remove(filesystem, directory, parsed, done)


def _remove(
    filesystem: FileSystem, directory: Path, name: SegmentFileName, done: StartupCleanup
) -> None:
    path = directory / segment_file_name(*name)
    filesystem.unlink(path)
    logger.info("removed %s, left by unfinished work", path)
    done.add_removed(path)
