"""Cleaning in two steps: new segments are staged by one process, and installed later by another.

1. `stage_cleaning`, in any process that reads the log, writes the new segments to a staging
   directory, by a bitmap of the latest records (`live_records`). It takes no lock and does not
   change the log; it may take hours.
2. `install_cleaning`, in the process that has the log open for writing, checks that its segments
   are still those that were read, and replaces them.

Several processes may stage a large log together: `staging_runs` divides it at offsets where no
transaction is open, and `StagedCleaning.joined` combines the results.

Crash points of the installation: for each group, those of moving its files to the partition
directory under names `.cleaned`, which have no effect and are removed by the next start; then those
of the replacement (`kafkalog.log.replacement`). A second installation recognizes the groups that
were replaced by their files. If the next start removed moved files of a group, this group and the
later ones cannot be installed; the log must be staged again.

Thread-safety: staging takes no lock; an installation holds the cleaning lock of the log.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Self

from kafkalog.cleaner.group_output import GroupOutput
from kafkalog.cleaner.live_records import LiveRecordBitmap
from kafkalog.cleaner.log_to_clean import LogToClean
from kafkalog.cleaner.output_targets import StagingTarget
from kafkalog.cleaner.record_filter import RecordFilter
from kafkalog.cleaner.segment_runs import grouped, segments_between
from kafkalog.errors import LogCleaningAbortedError
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import FileState, SegmentFiles
from kafkalog.log.aborted import has_none_open
from kafkalog.log.cleaner_access import cleaner_access
from kafkalog.log.conversion.source import SegmentSource
from kafkalog.log.log import Log
from kafkalog.log.producer_replay import load_states, replay_segments
from kafkalog.log.segment import LogSegment
from kafkalog.state.snapshot_files import SnapshotFiles

__all__ = [
    "SegmentIdentity",
    "StagedCleaning",
    "StagedGroup",
    "StagingRun",
    "identify_segments",
    "install_cleaning",
    "stage_cleaning",
    "staging_runs",
]

_COPY_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class SegmentIdentity:
    """
    Identity of the file of a segment.

    Attributes:
        base_offset: base offset of the segment.
        size_bytes, modified_ms, file_id: facts of its `.log` file.
    """

    base_offset: int
    size_bytes: int
    modified_ms: int
    file_id: int


@dataclass(frozen=True, slots=True)
class StagedGroup:
    """
    Old segments and their replacements.

    Attributes:
        leaving: the old segments.
        fresh: the new segments; empty if the old segment stays unchanged.
        directory: directory of the new segments.
    """

    leaving: tuple[SegmentIdentity, ...]
    fresh: tuple[SegmentIdentity, ...]
    directory: str


@dataclass(frozen=True, slots=True)
class StagingRun:
    """
    Groups of segments that can be staged independently of other groups.

    Attributes:
        first, stop: numbers of the groups.
        start_offset: base offset of the first group.
        size_bytes: size of the segments.
    """

    first: int
    stop: int
    start_offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StagedCleaning:
    """
    Result of a staging as plain data, for the process that installs it.

    Attributes:
        first_dirty, end_offset: end of the last cleaning, and of this one.
        groups: in the order of their offsets.
        statistics: counts of the filter, as in `CleaningStatistics`.
    """

    first_dirty: int
    end_offset: int
    groups: tuple[StagedGroup, ...]
    statistics: Mapping[str, int]

    @property
    def bytes_before(self) -> int:
        """Size of the old segments."""
        return sum(each.size_bytes for group in self.groups for each in group.leaving)

    @property
    def bytes_after(self) -> int:
        """Size of the segments after the installation."""
        return sum(
            each.size_bytes for group in self.groups for each in group.fresh or group.leaving
        )

    def to_json(self) -> dict[str, Any]:
        """Return the result as values for JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return the result of which `to_json` returned the values."""
        groups = tuple(
            StagedGroup(
                _identities(group["leaving"]), _identities(group["fresh"]), group["directory"]
            )
            for group in value["groups"]
        )
        return cls(
            value["first_dirty"],
            value["end_offset"],
            groups,
            dict(value["statistics"]),
        )

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Combine the results of the runs of one log, in the order of their offsets."""
        statistics: Counter[str] = Counter()
        for part in parts:
            statistics.update(part.statistics)
        groups = tuple(group for part in parts for group in part.groups)
        return cls(parts[0].first_dirty, parts[0].end_offset, groups, dict(statistics))


def _identities(values: Sequence[Mapping[str, int]]) -> tuple[SegmentIdentity, ...]:
    return tuple(SegmentIdentity(**each) for each in values)


def stage_cleaning(
    log: Log,
    target: LogToClean,
    latest: LiveRecordBitmap,
    directory: Path,
    *,
    expected: Sequence[SegmentIdentity] | None = None,
    run: StagingRun | None = None,
    on_bytes: Callable[[int], object] | None = None,
) -> StagedCleaning:
    """
    Write the retained records of a log to a staging directory; the log is only read.

    Args:
        log: an open log, read-only or not.
        target: the view of the same log.
        latest: bitmap of the records that are the latest of their keys, from the first segment, or
            that of the run, up to the base of a cleanable segment, where the cleaning ends.
        directory: an existing, empty directory, used by one cleaning only.
        expected: result of `identify_segments` before the bitmap was made; not checked if None.
        run: one of `staging_runs`; the whole log if None.
        on_bytes: called with the number of bytes read.

    Raises:
        LogCleaningAbortedError: the log has changed since the bitmap was made.
        CorruptRecordError: a batch is damaged.
        DiskFullError, LogStorageError: the disk failed.
    """
    staging = _Staging(log, target, latest, directory, run, on_bytes or _unreported)
    if expected is not None:
        staging.ensure_same(expected)
    return staging.stage()


def staging_runs(log: Log, target: LogToClean, run_bytes: int) -> list[StagingRun]:
    """
    Divide the staging of a log into runs of about `run_bytes`.

    A run starts at an offset without an open transaction: by the producer snapshot at this offset,
    or because the log has no snapshot and no producer. So each run can find the aborted
    transactions of its batches alone.

    Args:
        log: an open log, read-only or not.
        target: the view of the same log.
        run_bytes: approximate size of a run; a group of segments is never divided.

    Raises:
        LogStorageError: the disk failed.
    """
    end = target.boundary(target.span())
    start = target.facts.segments[0].base_offset
    groups = _groups_of(log, target, start, end)
    context = cleaner_access(log).context
    is_free = _has_no_producer(log)
    runs: list[StagingRun] = []
    for number, group in enumerate(groups):
        size = sum(source.bound.end for source in group)
        base = group[0].segment.base_offset
        last = runs[-1] if runs else None
        if last is not None and (
            last.size_bytes + size <= run_bytes
            or not (is_free or has_none_open(context.filesystem, log.directory, base, base))
        ):
            runs[-1] = replace(last, stop=number + 1, size_bytes=last.size_bytes + size)
            continue
        runs.append(StagingRun(number, number + 1, base, size))
    return runs


def _has_no_producer(log: Log) -> bool:
    """Return whether a log has neither a producer snapshot nor a batch of a producer."""
    access = cleaner_access(log)
    context, snapshot = access.context, access.snapshot()
    if SnapshotFiles(context.filesystem, context.directory, read_only=True).offsets:
        return False
    states = load_states(
        context.filesystem, context.directory, snapshot.start_offset, snapshot.end_offset
    )
    with storage_errors(log.directory, doing="reading"):
        replay_segments(states, snapshot)
    return not states.entries


def _groups_of(log: Log, target: LogToClean, start: int, end: int) -> list[list[SegmentSource]]:
    sources = segments_between(cleaner_access(log).snapshot(), start, end)
    bases = {source.segment.base_offset for source in sources}
    facts = [each for each in target.facts.segments if each.base_offset in bases]
    return grouped(sources, facts, target.config, end)


def identify_segments(log: Log, end_offset: int) -> tuple[SegmentIdentity, ...]:
    """
    Return the files of all segments below an offset, which is the base of a segment.

    Raises:
        LogStorageError: the disk failed.
    """
    access = cleaner_access(log)
    filesystem = access.context.filesystem
    with storage_errors(log.directory, doing="looking at"):
        return tuple(
            identity_of(filesystem, segment.path, segment.base_offset)
            for segment in access.snapshot().segments.segments
            if segment.base_offset < end_offset
        )


class _Staging:
    """One staging; it belongs to one thread."""

    def __init__(
        self,
        log: Log,
        target: LogToClean,
        latest: LiveRecordBitmap,
        directory: Path,
        run: StagingRun | None,
        on_bytes: Callable[[int], object],
    ) -> None:
        span = target.span()
        self._log = log
        self._target = target
        self._output = StagingTarget(log, directory)
        self._first_dirty = span.first_dirty
        self._start = target.facts.segments[0].base_offset
        self._boundary = latest.latest_offset + 1
        bases = {segment.base_offset for segment in target.facts.segments}
        if self._boundary > target.boundary(span) or self._boundary not in bases:
            raise LogCleaningAbortedError(
                f"{log.directory} has changed: it cannot be cleaned up to {self._boundary}",
                path=log.directory,
            )
        self._run = run
        begins = self._start if run is None else run.start_offset
        self._tracker = target.tracker(begins, self._boundary)
        self._filter = RecordFilter(
            latest,
            target.rules(self._boundary),
            self._tracker,
            limit_bytes=target.config.decompressed_max_bytes,
        )
        self._on_bytes = on_bytes

    def ensure_same(self, expected: Sequence[SegmentIdentity]) -> None:
        """Raise LogCleaningAbortedError if the segments are not the expected ones."""
        now = identify_segments(self._log, self._boundary)
        if now != tuple(expected):
            changed = sorted({each.base_offset for each in set(now) ^ set(expected)})
            raise LogCleaningAbortedError(
                f"{self._log.directory}: segments changed since their keys were read, the first at"
                f" offset {changed[0]}",
                path=self._log.directory,
            )

    def stage(self) -> StagedCleaning:
        """Write the new segments of all chosen groups."""
        with storage_errors(self._output.context.directory, doing="staging a cleaning in"):
            chosen = _groups_of(self._log, self._target, self._start, self._boundary)
            if self._run is not None:
                chosen = chosen[self._run.first : self._run.stop]
            groups = tuple(self._stage_group(group) for group in chosen)
            self._output.context.filesystem.sync_directory(self._output.context.directory)
        return StagedCleaning(
            self._first_dirty,
            max(self._boundary, self._first_dirty),
            groups,
            self._filter.statistics.as_dict(),
        )

    def _stage_group(self, group: Sequence[SegmentSource]) -> StagedGroup:
        filesystem = self._output.context.filesystem
        leaving = tuple(
            identity_of(filesystem, source.segment.path, source.segment.base_offset)
            for source in group
        )
        output = GroupOutput(self._output, group, self._filter, self._on_bytes)
        try:
            for source in group:
                slot = self._target.slot_of(source.segment.base_offset)
                stay = self._target.old_tombstones_stay(slot, self._first_dirty)
                for run in self._target.runs(slot):
                    output.add(run, old_tombstones_stay=stay)
                    self._on_bytes(len(run.data))
            bases = output.finish(leaving[-1].modified_ms, self._tracker.pop_kept())
        except BaseException:
            output.abandon()
            raise
        context = self._output.context
        fresh = tuple(identity_of(filesystem, context.files(base).log, base) for base in bases)
        return StagedGroup(leaving, fresh, str(context.directory))


def identity_of(filesystem: FileSystem, path: Path, base_offset: int) -> SegmentIdentity:
    """
    Return the identity of a segment file.

    Raises:
        FileNotFoundError: the file does not exist.
    """
    facts = filesystem.stat(path)
    if facts is None:
        raise FileNotFoundError(errno.ENOENT, "no such segment", str(path))
    return SegmentIdentity(base_offset, facts.size_bytes, facts.modified_ms, facts.file_id)


def install_cleaning(log: Log, staged: StagedCleaning) -> int:
    """
    Replace segments of a log by the staged ones.

    Returns:
        Number of groups that were replaced, without groups that an earlier call replaced.

    Raises:
        LogCleaningAbortedError: segments of the log have changed, or staged files are missing.
            Groups that were replaced before stay replaced; each group is correct alone.
        LogStorageError: the disk failed; nothing is lost.
    """
    access = cleaner_access(log)
    with access.cleaning_lock(), storage_errors(log.directory, doing="taking over a cleaning in"):
        # Later records and markers must be safe before the records that they supersede are removed.
        access.sync()
        installed = _Installation(log, staged).install()
        if log.durable_offset >= staged.end_offset:
            access.checkpoint_cleaner_offset(staged.end_offset)
    return installed


class _Installation:
    """One installation; it belongs to the thread that holds the cleaning lock."""

    def __init__(self, log: Log, staged: StagedCleaning) -> None:
        self._log = log
        self._access = cleaner_access(log)
        self._context = self._access.context
        self._staged = staged
        self._slots = {
            each.base_offset: Path(group.directory)
            for group in staged.groups
            for each in group.fresh
        }
        segments = self._access.snapshot().segments
        self._by_base = {each.base_offset: each for each in segments.segments}

    def install(self) -> int:
        """Check all groups before the first is replaced: later groups are required segments."""
        waiting = [group for group in self._staged.groups if not self._is_installed(group)]
        for group in waiting:
            self._ensure_unchanged(group)
        kept = {
            each.base_offset
            for group in self._staged.groups
            for each in group.fresh or group.leaving
        }
        installed = 0
        for group in waiting:
            if not group.fresh:
                continue
            first = group.leaving[0].base_offset
            later = [base for base in sorted(kept | self._waiting_bases(waiting)) if base > first]
            leaving = [self._by_base[each.base_offset] for each in group.leaving]
            gone = {segment.base_offset for segment in leaving}
            required_segments = [
                self._by_base[base] for base in later if base in self._by_base and base not in gone
            ]
            for each in group.fresh:
                self._move(each.base_offset)
            self._context.filesystem.sync_directory(self._context.directory)
            bases = [each.base_offset for each in group.fresh]
            self._access.replace_segments(leaving, bases, required_segments=required_segments)
            for base in gone:
                del self._by_base[base]
            installed += 1
        return installed

    def _waiting_bases(self, waiting: Sequence[StagedGroup]) -> set[int]:
        return {each.base_offset for group in waiting for each in group.leaving}

    def _is_installed(self, group: StagedGroup) -> bool:
        """Return whether the log has the new files; a rename keeps file id and size."""
        return bool(group.fresh) and all(
            (now := self._current_identity(each.base_offset)) is not None
            and (now.file_id, now.size_bytes) == (each.file_id, each.size_bytes)
            for each in group.fresh
        )

    def _ensure_unchanged(self, group: StagedGroup) -> None:
        for each in group.leaving:
            if self._current_identity(each.base_offset) != each:
                raise LogCleaningAbortedError(
                    f"{self._log.directory}: the segment of offset {each.base_offset} has changed"
                    " since it was read",
                    path=self._log.directory,
                )
        for each in group.fresh:
            path = self._files(each.base_offset).log
            facts = self._context.filesystem.stat(path)
            if facts is None or facts.size_bytes != each.size_bytes:
                raise LogCleaningAbortedError(
                    f"{path} is missing, or has changed since it was staged", path=path.parent
                )
        self._ensure_nothing_between(group)

    def _ensure_nothing_between(self, group: StagedGroup) -> None:
        """Raise LogCleaningAbortedError if a new segment is between two segments of a group."""
        bases = sorted(self._by_base)
        for before, after in pairwise(group.leaving):
            slot = bases.index(before.base_offset)
            if bases[slot + 1] != after.base_offset:
                raise LogCleaningAbortedError(
                    f"{self._log.directory}: the segment after {before.base_offset} was not read",
                    path=self._log.directory,
                )

    def _current_identity(self, base_offset: int) -> SegmentIdentity | None:
        segment: LogSegment | None = self._by_base.get(base_offset)
        if segment is None:
            return None
        facts = self._context.filesystem.stat(segment.path)
        if facts is None:
            return None
        return SegmentIdentity(base_offset, facts.size_bytes, facts.modified_ms, facts.file_id)

    def _files(self, base_offset: int) -> SegmentFiles:
        return SegmentFiles(self._slots[base_offset], base_offset, FileState.CLEANED)

    def _move(self, base_offset: int) -> None:
        """Move the files of a new segment to the partition directory, with the same names."""
        sources = self._files(base_offset).in_state(FileState.CLEANED)
        targets = self._context.files(base_offset).in_state(FileState.CLEANED)
        for source, target in zip(sources, targets, strict=True):
            if self._context.filesystem.stat(source) is not None:
                _move_file(self._context.filesystem, source, target)


def _move_file(filesystem: FileSystem, source: Path, target: Path) -> None:
    """Rename a file; between two file systems, copy and sync it, then remove the source."""
    try:
        filesystem.rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    else:
        return
    facts = filesystem.stat(source)
    reading = filesystem.open(source)
    writing = filesystem.create_new(target)
    try:
        position = 0
        while piece := reading.pread(_COPY_BYTES, position):
            writing.pwrite(piece, position)
            position += len(piece)
        writing.truncate(position)
        writing.sync()
    finally:
        writing.close()
        reading.close()
    if facts is not None:
        filesystem.set_modified_ms(target, facts.modified_ms)
    filesystem.unlink(source)


def _unreported(_size: int) -> None:
    """Ignore the number of bytes: the caller wants no reports."""
