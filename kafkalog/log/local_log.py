"""The segments of one partition on disk: appends, rolls, syncs and removal.

No policy, no encoding, no validation, no waiting: other modules do these. State that readers need
is one immutable `LogSnapshot`, published by a single attribute store when an operation is complete.

Thread-safety: `snapshot` from any thread without a lock; every change under the log's lock, except
`sync` and its parts, which run concurrently with appends, in one thread at a time.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from typing_extensions import Buffer

from kafkalog._core.batch_metadata import BatchMetadata
from kafkalog._engine.commit_source import UnsyncedNames
from kafkalog._engine.snapshot import LogSnapshot, PublishedSnapshot
from kafkalog.errors import OffsetOverflowError
from kafkalog.files.filesystem import FileHandle
from kafkalog.files.names import MAX_BASE_OFFSET, FileKind, FileState, SegmentFiles
from kafkalog.log.scanner import RELATIVE_OFFSET_MAX
from kafkalog.log.segment import LogSegment
from kafkalog.log.segment_file import SegmentFile
from kafkalog.log.segment_types import SegmentContext
from kafkalog.log.segments import LogSegments

__all__ = ["LocalLog", "PendingSync", "UndoFailedError", "check_base_offset"]


class UndoFailedError(OSError):
    """A failed append could not be undone: the content of the files is unknown until a recovery."""


class PendingSync(NamedTuple):
    """
    The part of a log that a sync has to put on the disk, as it was when the sync began.

    Attributes:
        end_offset: the log end.
        segments: segments from the synced offset on.
        files: those of their files that have unsynced bytes, and the end of the bytes in each that
            the sync covers. Bytes that were written later are for the next sync.
        trimmed: files whose preallocated tail was cut.
        name_changes: number of the last change of a name.
        attempt: the open entry in the sync journal; None if no file has to be synced.
    """

    end_offset: int
    segments: Sequence[LogSegment]
    files: Sequence[tuple[SegmentFile, int]]
    trimmed: Sequence[SegmentFile]
    name_changes: int
    attempt: AbstractContextManager[None] | None


class LocalLog:
    """
    The segments of one partition directory.

    Args:
        context: shared context of the segments.
        segments: loaded segments; the last one active unless the log is read-only.
        end_offset: log end offset.
        start_offset: log start offset.

    Attributes:
        published: the snapshot that readers see; replaced when an operation is complete.
        names: changes of names in the directory, and those that a sync has covered.
        has_unrenamed_files: whether a file of a segment that left kept its name, because renaming
            it failed: only the checkpoint of the log start hides it.

    Thread-safety: see the module.
    """

    def __init__(
        self,
        context: SegmentContext,
        segments: LogSegments,
        *,
        end_offset: int,
        start_offset: int,
    ) -> None:
        self.context = context
        end_position = segments.active.size_bytes
        self.published = PublishedSnapshot(
            LogSnapshot(segments, end_offset, end_position, start_offset),
            context.meters.counters,
            context.meters.disk.append,
        )
        # Files whose preallocated tail was cut at a roll, and not on the disk yet.
        self._trimmed: list[SegmentFile] = []
        self.names = UnsyncedNames(self._trimmed)
        self.has_unrenamed_files = False
        self._on_change: weakref.WeakMethod[Callable[[], object]] | None = None
        self._before_segment: weakref.WeakMethod[Callable[[], object]] | None = None

    @property
    def snapshot(self) -> LogSnapshot:
        """The published snapshot."""
        return self.published.snapshot

    def connect(
        self,
        on_change: weakref.WeakMethod[Callable[[], object]],
        before_segment: weakref.WeakMethod[Callable[[], object]] | None = None,
    ) -> None:
        """
        Register methods that are called while their objects live.

        Args:
            on_change: called when the segments change.
            before_segment: called before another segment is created; it may sync the log, and raise
                what a sync raises.
        """
        self._on_change = on_change
        self._before_segment = before_segment

    # ------------------------------------------------------------------------------- appending

    def append(self, data: Buffer, batches: BatchMetadata) -> bool:
        """
        Append consecutive batches, all of them or none; roll wherever a batch requires it.

        Bytes are written with one call for each segment.

        Crash points: within a write (a prefix of the run stays, the last batch torn), after the
        creation of a segment, between the writes. Recovery keeps the whole batches and cuts the
        torn one.

        Returns:
            Whether a segment was begun.
        """
        if not batches:
            raise ValueError("batches must not be empty")
        before = self.published.snapshot
        active = before.segments.active
        try:
            row, size = active.append(data, batches)
        except BaseException as error:
            self._undo(active, [], error)
            raise
        if row < len(batches):
            self.append_rolling(data, batches, row, size)
            return True
        self.published.publish(
            before.replace(end_offset=batches.end_offset, end_position=active.size_bytes)
        )
        return False

    def undo_append(self, cause: BaseException) -> None:
        """
        Bring the disk back to the published state after an append to the active segment failed.

        Raises:
            UndoFailedError: the disk refused that, too.
        """
        self._undo(self.published.snapshot.segments.active, [], cause)

    def append_rolling(self, data: Buffer, batches: BatchMetadata, row: int, size: int) -> None:
        """Append batches and roll; the active segment gets the rows before `row`, staged before."""
        segments, start_offset = self.snapshot.segments, self.snapshot.start_offset
        active = segments.active
        fresh: list[LogSegment] = []
        try:
            self._write_batches(memoryview(data), batches, active, fresh, row, size)
        except BaseException as error:
            self._undo(active, fresh, error)
            raise
        for segment in fresh:
            segments = segments.with_segment(segment)
        end_position = fresh[-1].file.size_bytes
        self.published.publish(
            LogSnapshot(segments, batches.end_offset, end_position, start_offset)
        )
        self.seal([active, *fresh[:-1]])

    def roll(self, base_offset: int | None = None) -> LogSegment:
        """Start a new active segment at the log end, unless the active one is empty."""
        snapshot = self.snapshot
        active = snapshot.segments.active
        base_offset = max(snapshot.end_offset, base_offset or 0)
        if active.size_bytes == 0 and active.base_offset == base_offset:
            return active
        if base_offset > snapshot.end_offset:
            self._trim_before_hole(active)
        segment = self.create_segment(base_offset)
        self._publish(
            snapshot.replace(segments=snapshot.segments.with_segment(segment), end_position=0)
        )
        self.seal([active])
        return segment

    def prepared_path(self, base_offset: int) -> Path:
        """Return the path under which the file of a segment is created ahead."""
        return SegmentFiles(self.context.directory, base_offset, FileState.TEMPORARY).log

    def create_segment(self, base_offset: int, *, is_prepared: bool = False) -> LogSegment:
        """
        Create the files of an empty active segment, all or none; the caller publishes it.

        Args:
            base_offset: names it.
            is_prepared: whether its `.log` may be there, empty, under its `prepared_path`.
        """
        context = self.context
        check_base_offset(base_offset, context.directory)
        before = None if self._before_segment is None else self._before_segment()
        if before is not None:
            before()
        path = context.files(base_offset).log
        context.allow_missing_before(base_offset)
        try:
            handle = self._new_log(base_offset, path, is_prepared=is_prepared)
            segment = LogSegment(
                context,
                base_offset,
                SegmentFile(context.pool, context.filesystem, path, 0, handle),
            )
            segment.activate()
            segment.transactions.begin_empty()
        except OSError as error:
            # An empty file that stayed would bound the segment before it at the next start.
            try:
                self._remove_files([base_offset])
            except OSError as second:
                raise _undo_failed(error, second) from error
            raise
        # Not before: a sync at the same time would count names that it did not find.
        self.names.add_change()
        return segment

    def _new_log(self, base_offset: int, path: Path, *, is_prepared: bool) -> FileHandle:
        """Return a new and empty `.log`: the file that was created ahead, if it exists."""
        filesystem = self.context.filesystem
        prepared = self.prepared_path(base_offset)
        if not is_prepared or filesystem.stat(prepared) is None:
            return filesystem.create_new(path)
        filesystem.rename(prepared, path)
        return filesystem.open(path, write=True)

    def sync(self, synced_offset: int) -> int:
        """
        Put everything from `synced_offset` to the present log end on the disk; return that end.

        The order of data and names does not matter: nothing counts as durable before both are on
        the disk, and names that no sync has covered may outlive their bytes in any case. The cuts
        of preallocated tails are synced too: below a recovery point the next start searches for no
        tail.

        Crash points: between any two files. In the sync journal is "trying" until all of them are
        on the disk.

        Raises:
            OSError, LogStorageError: the disk refused.
        """
        pending = self.begin_sync(synced_offset)
        try:
            for file in pending.trimmed:
                file.sync_trimmed()
            for file, end in pending.files:
                file.sync(end)
        except BaseException as error:
            self.fail_sync(pending, error)
            raise
        return self.finish_sync(pending)

    def begin_sync(self, synced_offset: int) -> PendingSync:
        """
        Collect everything from `synced_offset` on that the disk may lack, and begin to sync it.

        The caller puts the files on the disk, then calls `finish_sync` or `fail_sync`; one thread
        at a time does all of this.

        Raises:
            OSError: the sync journal can neither be synced nor removed; nothing was begun.
        """
        snapshot = self.snapshot
        segments = snapshot.segments
        name_changes = self.names.changes
        covered = segments.segments[max(segments.floor_slot(synced_offset), 0) :]
        trimmed = tuple(self._trimmed)
        files = [
            # Not the size of the active file: an append that is not published may be undone.
            (file, snapshot.end_position if segment is segments.active else file.size_bytes)
            for segment in covered
            if (file := segment.file).unsynced_bytes
        ]
        attempt = None
        if files or trimmed:
            size_bytes = sum(file.unsynced_bytes for file, _end in files)
            attempt = self.context.sync_attempt(snapshot.end_offset, size_bytes)
            attempt.__enter__()
        return PendingSync(snapshot.end_offset, covered, files, trimmed, name_changes, attempt)

    def finish_sync(self, pending: PendingSync, *, has_synced_names: bool = False) -> int:
        """
        Record that files are on the disk; sync transaction indexes and names; return the log end.

        Args:
            pending: the result of `begin_sync`.
            has_synced_names: whether the caller has synced the names in the directory, too.

        Raises:
            OSError, LogStorageError: the disk refused; `fail_sync` is not to be called.
        """
        if pending.attempt is not None:
            pending.attempt.__exit__(None, None, None)
        for file, end in pending.files:
            file.mark_synced_below(end)
        for file in pending.trimmed:
            file.mark_trimmed_synced()
            self._trimmed.remove(file)
        for segment in pending.segments:
            segment.transactions.sync()
        if pending.name_changes > self.names.synced:
            if not has_synced_names:
                self.context.filesystem.sync_directory(self.context.directory)
            self.names.mark_synced(pending.name_changes)
        return pending.end_offset

    def fail_sync(self, pending: PendingSync, error: BaseException) -> None:
        """Record that files could not be put on the disk: what it has of them is unknown."""
        if pending.attempt is not None:
            pending.attempt.__exit__(type(error), error, error.__traceback__)

    # --------------------------------------------------------------------------------- leaving

    def remove_segments(
        self, leaving: list[LogSegment], *, start_offset: int, is_checkpointed: bool = True
    ) -> None:
        """
        Remove the first segments from the list and rename their files `.deleted`, newest first.

        Readers that hold them continue: their bytes are mapped before the rename. Crash points:
        after any rename; the checkpoint of the log start hides the segments that are not renamed
        yet, and startup removes the files `.deleted`.

        If that checkpoint could not be written, the oldest goes first, and is gone from the disk
        before the next: after a crash the log begins at one of them and has no hole.
        """
        for segment in leaving:
            segment.retire()
        snapshot = self.snapshot
        self._publish(
            snapshot.replace(segments=snapshot.segments.without(leaving), start_offset=start_offset)
        )
        try:
            self.rename_deleted(leaving, in_order=not is_checkpointed, newest_first=is_checkpointed)
        except OSError:
            self.has_unrenamed_files = True
            raise

    def rename_deleted(
        self,
        leaving: list[LogSegment],
        *,
        in_order: bool = False,
        newest_first: bool = True,
        kinds: Iterable[FileKind] = FileKind,
    ) -> None:
        """
        Rename the files of retired segments `.deleted`, the `.log` first.

        With `in_order` each segment is gone from the disk before the next one goes, so that a
        crash leaves no hole; without, a start offset above them must hide the segments that a
        crash leaves.
        """
        filesystem = self.context.filesystem
        for segment in sorted(leaving, key=lambda left: left.base_offset, reverse=newest_first):
            files = SegmentFiles(self.context.directory, segment.base_offset)
            for kind in kinds:
                if filesystem.stat(files.path(kind)) is not None:
                    deleted_path = files.in_state(FileState.DELETED).path(kind)
                    filesystem.rename(files.path(kind), deleted_path)
            if in_order:
                filesystem.sync_directory(self.context.directory)

    def name_changed(self) -> None:
        """Let the next sync put the names in the directory on the disk."""
        self.names.add_change()

    def replace_all(self, snapshot: LogSnapshot) -> None:
        """Publish the snapshot after a truncation, or after another change of the segments."""
        self._publish(snapshot)

    def release_files(self) -> None:
        """
        Close the files of the active segment; the caller has put their content on the disk.

        Raises:
            OSError, LogStorageError: the disk refused.
        """
        active = self.snapshot.segments.active
        active.transactions.sync()
        active.release()
        if self.context.journal is not None:
            self.context.journal.release()

    def reopen_files(self, synced_offset: int) -> None:
        """Open the files of the active segment again; OSError if the disk refuses."""
        active = self.snapshot.segments.active
        if self.context.journal is not None:
            self.context.journal.record_synced(synced_offset)
        active.file.open_for_append()
        active.activate(active.summary(self.snapshot.end_offset))

    def close_unmodified(self) -> None:
        """Close all files of a log in which only rebuilt indexes were written."""
        segments = self.snapshot.segments.segments
        unsynced = [
            segment
            for segment in segments
            if segment.offset_index.is_unsynced or segment.time_index.is_unsynced
        ]
        for segment in unsynced:
            segment.indexes.sync()
        if unsynced:
            self.context.filesystem.sync_directory(self.context.directory)
        if self.context.journal is not None:
            self.context.journal.remove()
        self.abandon()

    def close(self) -> None:
        """Seal the active segment and close all files; slices that readers have stay valid."""
        self.seal([self.snapshot.segments.active])
        # With the marker of a clean shutdown a broker believes index files unread, also rebuilt
        # ones, and searches for no preallocated tail: sync the indexes, and the trimming.
        segments = self.snapshot.segments.segments
        for segment in segments:
            segment.indexes.sync()
            # No entry in the sync journal: the flush before has put every record on the disk.
            segment.file.sync_trimmed()
        # The names of those index files, and of segments that left: if the base offset of the first
        # segment is the log start, no checkpoint hides removed segments any longer.
        self.context.filesystem.sync_directory(self.context.directory)
        for segment in segments:
            segment.close()

    def abandon(self) -> None:
        """Close all files as they are, after a failure."""
        self.close_segments()
        if self.context.journal is not None:
            self.context.journal.close()

    def close_segments(self) -> None:
        """Close the files of the segments alone, as they are; without a lock of this process."""
        for segment in self.snapshot.segments.segments:
            segment.close()

    # --------------------------------------------------------------------------------- private

    def _publish(self, snapshot: LogSnapshot) -> None:
        others = snapshot.segments is not self.published.snapshot.segments
        self.published.publish(snapshot)
        on_change = None if self._on_change is None else self._on_change()
        if others and on_change is not None:
            on_change()

    def seal(self, segments: Iterable[LogSegment]) -> None:
        """Seal segments against appends; the next sync covers the cuts of their files."""
        for segment in segments:
            segment.seal()
            if segment.file.is_trimmed:
                self._trimmed.append(segment.file)

    def _write_batches(
        self,
        data: memoryview,
        batches: BatchMetadata,
        segment: LogSegment,
        fresh: list[LogSegment],
        row: int,
        size: int,
    ) -> None:
        """Write a run and roll; its rows before `row`, of `size` bytes, are staged already."""
        start = 0
        next_offset = self.snapshot.end_offset
        while True:
            if size:
                segment.commit(data[start : start + size], size)
                start += size
                next_offset = batches[row - 1].last_offset + 1
            if row == len(batches):
                return
            base, last = batches[row].base_offset, batches[row].last_offset
            if base > next_offset:
                self._trim_before_hole(segment)
            segment = self._create_successor(segment, base, last)
            fresh.append(segment)
            row, size = segment.stage(batches, row)

    def _create_successor(self, segment: LogSegment, base: int, last: int) -> LogSegment:
        if base <= segment.base_offset or last - base > RELATIVE_OFFSET_MAX:
            raise OffsetOverflowError(
                f"offset {last} does not fit 32 bits above base offset {base} of a segment",
                path=self.context.directory,
                base_offset=base,
            )
        return self.create_segment(base)

    def _trim_before_hole(self, segment: LogSegment) -> None:
        """
        Cut the preallocated tail of the last segment, on the disk, before offsets are left out.

        Once another segment follows, zeros in the tail could stand for lost batches. Crash points:
        around the cut; the segment is still the last one, and recovery searches its tail.
        """
        if not segment.trim():
            return
        try:
            with self.context.sync_attempt():
                segment.file.sync_trimmed()
        except OSError as error:
            raise UndoFailedError(error.errno, f"{error}: before a hole in the offsets") from error

    def _undo(self, active: LogSegment, fresh: list[LogSegment], cause: BaseException) -> None:
        """
        Bring the disk back to the published state after a failed append.

        The result is synced: records whose append was reported as failed must not come back after a
        power cut, next to later appends or instead of them.
        """
        if isinstance(cause, UndoFailedError):
            return
        try:
            for segment in reversed(fresh):
                segment.close()
            if fresh:
                self._remove_files([segment.base_offset for segment in reversed(fresh)])
            with self.context.sync_attempt():
                active.rewind()
        except OSError as error:
            raise _undo_failed(cause, error) from cause

    def _remove_files(self, base_offsets: list[int]) -> None:
        """Unlink segments that were never published, on the disk too when this returns."""
        filesystem = self.context.filesystem
        for base_offset in base_offsets:
            for path in self.context.files(base_offset):
                with contextlib.suppress(FileNotFoundError):
                    filesystem.unlink(path)
        filesystem.sync_directory(self.context.directory)


def check_base_offset(offset: int, directory: Path) -> None:
    """
    Check that a segment may begin at an offset.

    Raises:
        OffsetOverflowError: the offset is too near to 2**63.
    """
    if offset > MAX_BASE_OFFSET:
        raise OffsetOverflowError(
            f"offset must be at most {MAX_BASE_OFFSET}, where a segment begins, got {offset}",
            path=directory,
            base_offset=offset,
        )


def _undo_failed(cause: BaseException, error: OSError) -> UndoFailedError:
    return UndoFailedError(error.errno, f"{cause}; and undoing it: {error}")
