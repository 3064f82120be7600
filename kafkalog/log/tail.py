"""Follower of a log that another process writes: lock-free, never a torn batch.

A refresh looks at the directory and at the end of the last segment, checks the CRC of every batch
that is new, and publishes up to the last whole one. An incomplete batch is left for the next
refresh. The end is also where zeros begin instead of a batch, however much space is allocated
after it.

An incomplete batch that whole ones follow, and batches whose offsets contradict each other, are
damage once two refreshes have found them: the segment is judged as by every reader (`judging.py`),
and the log ends after its last whole batch.

While the directory has not changed since it was listed, by a change mark of the system that is old
enough to show the next change, the known segments are valid: the cost of a refresh does not depend
on their number. While the last segment has not changed either, nothing is read: such a refresh
costs three look-ups of file attributes. Everything is still listed and read again every
LISTED_SECONDS, for systems whose marks cannot be trusted.

The writer never changes published bytes, so what was read stays true. After a truncation the file
has another identity or is shorter, and the segment is opened again. A file that is removed during a
refresh makes the refresh begin again; nothing incomplete is published.

Thread-safety: refreshes exclude each other; readers take the published snapshot without a lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from kafkalog._core.batch import BatchColumns, check_batch
from kafkalog._core.header import BatchHeader, parse_header
from kafkalog._core.status import STATUS_CODES
from kafkalog._engine.snapshot import LogSnapshot
from kafkalog.errors import CorruptRecordError, InvalidRecordError
from kafkalog.files.errors import ShortFileError
from kafkalog.files.filesystem import FileFacts
from kafkalog.files.names import FileState, SegmentFiles
from kafkalog.files.zeros import is_zero, is_zero_after
from kafkalog.forking import forked_error, refuse_in_children
from kafkalog.layout import LOG_OVERHEAD, RECORD_BATCH_OVERHEAD
from kafkalog.log.batch_walk import WalkDamage, WalkRange, walk_source
from kafkalog.log.corrupt_ranges import find_resume
from kafkalog.log.exchanges import present_segments
from kafkalog.log.followed_start import FollowedStartOffset
from kafkalog.log.judging import OVERFLOW_MAX, LogEndFacts, is_whole_without_offset, judge_batches
from kafkalog.log.local_log import LocalLog
from kafkalog.log.segment import LogSegment
from kafkalog.log.segment_file import SegmentFile
from kafkalog.log.segments import LogSegments

__all__ = ["ReadOnlyTail"]

OK = STATUS_CODES["OK"]
OFFSET_ORDER = STATUS_CODES["OFFSET_ORDER"]
BASE_OFFSET = STATUS_CODES["BASE_OFFSET"]

# Bytes examined at a time: the distance to the writer does not show in the memory of a reader.
# Mostly little is new, and preallocated space for a whole segment may follow it.
WINDOW_BYTES = 64 * 1024
WINDOW_BATCHES = 4096
# Number of zero bytes at the end of a sealed file above which it is checked.
ZEROS = 64
# Bytes before the end of a released file by which it is recognized: the end of its last batch.
END_BYTES = 256
# Attempts of one refresh while a writer removes files.
ATTEMPTS = 5
# No longer is a directory believed to be as it was because its mark is.
LISTED_SECONDS = 10.0


class ReadOnlyTail:
    """
    Keeps the snapshot of a read-only log in step with its writer.

    Args:
        local: the log as it was loaded.
        start: the checkpointed log start offset.
    """

    def __init__(self, local: LocalLog, start: FollowedStartOffset) -> None:
        self._local = local
        self._start = start
        self._guard = threading.Lock()
        # Change mark of the directory before it was last listed, and the time of the listing.
        self._mark: tuple[int, ...] | None = None
        self._listed_at = 0.0
        # Change mark of the last segment's file before its new batches were last read.
        self._end_mark: tuple[int, ...] | None = None
        self._end_path: Path | None = None
        # A partition that was just made has no file yet.
        present = present_segments(local.context.filesystem, local.context.directory)
        self._swapped = present.swapped
        self._ids = {
            segment.base_offset: self._facts(segment.base_offset).file_id
            for segment in local.snapshot.segments.segments
            if present.bases
        }
        # Sizes of the files of all but the last one at the last look. Not as they were loaded: a
        # file may have a preallocated tail, which is no part of its segment.
        self._sealed: dict[int, int] = {}
        # Torn by a crash, or a copy: passed over by the loader, left for the next writer to remove.
        self._set_aside = frozenset(present.bases) - self._ids.keys()
        # Of these: change mark of a file whose batches were judged, and the end of the last one.
        self._whole_ends: dict[int, tuple[tuple[int, ...] | None, int]] = {}
        # Possible damage of the last refresh: base offset and position, and why a walk stopped.
        self._odd: tuple[int, int, int] | None = None
        if present.bases:
            # While it is open its identity cannot become another file's.
            local.snapshot.segments.active.file.open_for_following()
        # The last segment's file if it was released: base offset, and its bytes at both ends.
        self._released: tuple[int, bytes, bytes] | None = None
        self._was_released = self.is_released
        self._on_reopen: Callable[[], object] = _no_effect
        # In a forked child: a thread of the parent was in a refresh, which left something unknown.
        self._is_torn = False
        refuse_in_children(self)

    @property
    def is_released(self) -> bool:
        """True if no file is held open."""
        return not self._local.snapshot.segments.active.file.is_followed

    def set_on_reopen(self, on_reopen: Callable[[], object]) -> None:
        """Set the function that is called, by a refresh, when the file is held open again."""
        self._on_reopen = on_reopen

    def try_release(self) -> bool:
        """Close the last segment's file; False if a refresh is running, or the disk refused."""
        if self._is_torn or not self._guard.acquire(blocking=False):
            return False
        try:
            snapshot = self._local.snapshot
            active = snapshot.segments.active
            if active.file.is_followed:
                ends = self._ends_of(active, snapshot.end_position)
                active.file.seal(trim=False)
                self._released, self._was_released = (active.base_offset, *ends), True
        except OSError:
            return False
        finally:
            self._guard.release()
        return True

    def _ends_of(self, segment: LogSegment, end: int) -> tuple[bytes, bytes]:
        """Return the first and the last bytes of a followed file, by which it is recognized."""
        file = segment.file
        start = max(end - END_BYTES, 0)
        return (
            bytes(file.read_unpublished(0, min(RECORD_BATCH_OVERHEAD, end))),
            bytes(file.read_unpublished(start, end - start)),
        )

    def _reopen(self, segment: LogSegment, end: int) -> bool:
        """Hold the released file open again; return whether it is the same file, not shorter."""
        released, self._released = self._released, None
        if released is None or released[0] != segment.base_offset:
            return False
        segment.file.open_for_following()
        if self._ends_of(segment, end) == released[1:]:
            return True
        segment.file.seal(trim=False)
        return False

    def refresh(self) -> bool:
        """
        Publish what the writer has completed since the last time.

        Returns:
            False if its files kept changing, or there are none: between two steps of a truncation,
            or deleted altogether. The published snapshot stays then.

        Raises:
            ForkedLogError: this process was forked during a refresh.
        """
        if self._is_torn:
            raise forked_error(self._local.context.directory)
        with self._guard:
            for _attempt in range(ATTEMPTS):
                try:
                    found = self._refresh_last() or self._refresh()
                except FileNotFoundError:
                    # Rolled away, deleted or replaced between the listing and the opening.
                    self._mark = None
                    continue
                if self._was_released and not self.is_released:
                    self._was_released = False
                    self._on_reopen()
                return found
            return False

    def become_inherited(self) -> None:
        """Refuse refreshes if a thread of the parent, which does not continue here, was in one."""
        if self._guard.acquire(blocking=False):
            self._guard.release()
        else:
            self._is_torn = True

    def _refresh_last(self) -> bool:
        """Read the last segment only; return False if the directory may have other segments."""
        context, snapshot = self._local.context, self._local.snapshot
        if self._mark is None or time.monotonic() - self._listed_at > LISTED_SECONDS:
            return False
        if context.filesystem.change_mark(context.directory) != self._mark:
            return False
        last = snapshot.segments.active
        if self._end_path is None:
            self._end_path = self._path_of(last.base_offset)
        end_mark = context.filesystem.change_mark(self._end_path)
        if end_mark is not None and end_mark == self._end_mark:
            if not self._start.is_unchanged():
                self._publish_start(snapshot)
            return True
        facts = self._facts(last.base_offset)
        if self._ids.get(last.base_offset) != facts.file_id or facts.size_bytes < last.size_bytes:
            return False
        if not last.file.is_followed and not self._reopen(last, snapshot.end_position):
            return False
        odd = self._odd
        position, offset = self._find_end(
            last, snapshot.end_position, snapshot.end_offset, facts.size_bytes
        )
        start = max(self._start.read() or 0, snapshot.segments.segments[0].base_offset)
        fresh = LogSnapshot(snapshot.segments, offset, position, min(start, offset))
        if fresh != snapshot:
            self._publish(fresh, self._ids)
        # Possible damage that was found now must be found again.
        self._end_mark = end_mark if self._odd == odd else None
        return True

    def _publish_start(self, snapshot: LogSnapshot) -> None:
        """Publish the log start offset of a log that is otherwise as it was."""
        first_offset = snapshot.segments.segments[0].base_offset
        start = min(max(self._start.read() or 0, first_offset), snapshot.end_offset)
        if start != snapshot.start_offset:
            self._publish(snapshot.replace(start_offset=start), self._ids)

    def _refresh(self) -> bool:
        context, snapshot = self._local.context, self._local.snapshot
        self._end_mark = self._end_path = None
        listed_at = time.monotonic()
        mark = context.filesystem.change_mark(context.directory)
        listed = present_segments(context.filesystem, context.directory)
        bases, renamed = list(listed.bases), listed.swapped ^ self._swapped
        if not bases:
            return False
        self._swapped = listed.swapped
        by_base = {segment.base_offset: segment for segment in snapshot.segments.segments}
        passed = self._set_aside.intersection(bases)
        bases = [base for base in bases if base not in passed or self._belongs(base, bases)]
        if not bases:
            return False
        facts = {base: self._facts(base) for base in bases}
        for base in renamed:
            # The same file under another name: it is opened again by that.
            by_base.pop(base, None)
        active = snapshot.segments.active
        is_present = active.base_offset in by_base and active.base_offset in bases
        if is_present and self.is_released and not self._reopen(active, snapshot.end_position):
            del by_base[active.base_offset]
        segments = [self._current(base, facts[base], by_base) for base in bases[:-1]]
        last = by_base.get(bases[-1])
        if last is not None and not last.file.is_followed:
            # Sealed once, and last again since a truncation ended at its end.
            del by_base[last.base_offset]
        segments.append(self._current(bases[-1], facts[bases[-1]], by_base))
        completed = self._complete_sealed(segments, snapshot, facts)
        last, position, offset = segments[-1], 0, segments[-1].base_offset
        if last is snapshot.segments.active:
            position, offset = snapshot.end_position, snapshot.end_offset
        size = facts[last.base_offset].size_bytes
        end_position, end_offset = self._find_end(last, position, offset, size)
        start = max(self._start.read(trusts_mark=False) or 0, segments[0].base_offset)
        fresh = LogSnapshot(snapshot.segments, end_offset, end_position, min(start, end_offset))
        if segments != list(snapshot.segments.segments):
            if present_segments(context.filesystem, context.directory) != listed or any(
                self._facts(base) != facts[base] for base in completed
            ):
                # A new segment may have replaced several that were listed; or a truncation and a
                # roll since may have made files of the same names, one of which was too short.
                raise FileNotFoundError(f"{context.directory} has changed")
            fresh = fresh.replace(segments=LogSegments(segments))
        if fresh != snapshot:
            self._publish(fresh, {base: facts[base].file_id for base in bases})
        self._sealed = {base: facts[base].size_bytes for base in bases[:-1]}
        # A file that was set aside may become whole without a change of the directory.
        self._mark = mark if bases == list(listed.bases) else None
        self._listed_at = listed_at
        return True

    def _publish(self, snapshot: LogSnapshot, ids: dict[int, int]) -> None:
        active = snapshot.segments.active
        if active.size_bytes != snapshot.end_position:
            active.file.set_size(snapshot.end_position)
            active.invalidate_max_timestamp()
        for segment in snapshot.segments.segments[:-1]:
            segment.file.seal(trim=False)
        self._ids = ids
        self._local.replace_all(snapshot)

    def _belongs(self, base_offset: int, bases: Sequence[int]) -> bool:
        """Return whether the whole first batch of a segment is there, and is not of a copy."""
        header, data, size = self._first_batch(base_offset)
        if header is None or header.base_offset < base_offset or check_batch(data) != OK:
            return False
        slot = bases.index(base_offset)
        for side in (*bases[max(slot - 1, 0) : slot], *bases[slot + 1 : slot + 2]):
            _header, data_beside, size_beside = self._first_batch(side)
            if data == data_beside and not (
                size > size_beside and self._has_batch_after(base_offset, size_beside)
            ):
                return False
        return True

    def _has_batch_after(self, base_offset: int, position: int) -> bool:
        """Return whether a whole batch of a segment ends after a position."""
        filesystem = self._local.context.filesystem
        path = SegmentFiles(self._local.context.directory, base_offset).log
        mark = filesystem.change_mark(path)
        found = self._whole_ends.get(base_offset)
        if found is not None and mark is not None and found[0] == mark:
            return found[1] > position
        handle = filesystem.open(path)
        try:
            if is_zero_after(handle, position):
                return False
            data = memoryview(handle.pread(handle.size(), 0))
        finally:
            handle.close()
        judgement = judge_batches(
            data,
            path,
            first_offset=base_offset,
            offset_max=base_offset + OVERFLOW_MAX,
            following_offset=0,
        )
        self._whole_ends[base_offset] = mark, judgement.whole_end
        return judgement.whole_end > position

    def _first_batch(self, base_offset: int) -> tuple[BatchHeader | None, bytes, int]:
        """Return the header of a segment's first batch, its bytes, and the size of the file."""
        path = SegmentFiles(self._local.context.directory, base_offset).log
        handle = self._local.context.filesystem.open(path)
        try:
            size = handle.size()
            header = parse_header(handle.pread(RECORD_BATCH_OVERHEAD, 0))
            return header, handle.pread(min(header.size_bytes, size), 0), size
        except (CorruptRecordError, InvalidRecordError):
            return None, b"", size
        finally:
            handle.close()

    def _current(
        self, base_offset: int, facts: FileFacts, by_base: dict[int, LogSegment]
    ) -> LogSegment:
        """Return the segment object for a file, a new one where it is another file now."""
        segment = by_base.get(base_offset)
        same = self._ids.get(base_offset) == facts.file_id
        # A sealed segment that has another size was cut in place, and perhaps appended to since.
        same &= self._sealed.get(base_offset, facts.size_bytes) == facts.size_bytes
        if segment is not None and same and segment.size_bytes <= facts.size_bytes:
            return segment
        context = self._local.context
        if base_offset in self._swapped:
            context = replace(context, state=FileState.SWAP)
        path = context.files(base_offset).log
        file = SegmentFile(context.pool, context.filesystem, path, 0)
        file.open_for_following()
        if self._facts(base_offset).file_id != facts.file_id:
            raise FileNotFoundError(f"{path} was replaced")
        return LogSegment(context, base_offset, file)

    def _complete_sealed(
        self, segments: Sequence[LogSegment], snapshot: LogSnapshot, facts: dict[int, FileFacts]
    ) -> list[int]:
        """Take in all of each segment that was sealed since; return their base offsets."""
        # A segment that was sealed when we look has all its bytes; only the last one may grow.
        completed = []
        for segment in segments[:-1]:
            is_active = segment is snapshot.segments.active
            if is_active or segment not in snapshot.segments.segments:
                self._complete(segment, facts[segment.base_offset])
                completed.append(segment.base_offset)
        return completed

    def _complete(self, segment: LogSegment, facts: FileFacts) -> None:
        """Take in all of a segment that the writer has sealed."""
        size = facts.size_bytes
        # A preallocated tail is cut only after the roll. Few batches end in so many zeros, and
        # those that do cost a walk.
        if size and is_zero(segment.file.read_unpublished(max(size - ZEROS, 0), ZEROS)):
            size, _offset = self._find_end(
                segment, segment.size_bytes, segment.base_offset, facts.size_bytes, is_sealed=True
            )
        segment.file.set_size(size)
        segment.invalidate_max_timestamp()

    def _find_end(
        self,
        segment: LogSegment,
        position: int,
        next_offset: int,
        size: int,
        *,
        is_sealed: bool = False,
    ) -> tuple[int, int]:
        """Walk the whole batches from `position` on; return where they end, and what follows."""
        reached, is_damaged = (position, next_offset), False

        def stop(damage: WalkDamage) -> None:
            nonlocal is_damaged
            if not _is_preallocated_space(damage.rest):
                is_damaged = self._is_damage(
                    segment, damage.position, size, damage.status, is_sealed=is_sealed
                )

        for walked in walk_source(
            segment.file.unpublished_source(size),
            WalkRange(position, size, next_offset, segment.offset_max),
            BatchColumns(WINDOW_BATCHES),
            on_damage=stop,
            window_bytes=WINDOW_BYTES,
        ):
            reached = walked.end_position, walked.next_offset
        return self._judge(segment, size, is_sealed=is_sealed) if is_damaged else reached

    def _is_damage(
        self, segment: LogSegment, position: int, size: int, status: int, *, is_sealed: bool
    ) -> bool:
        """
        Return whether a walk ended at damage, and not at a batch that is being written.

        A batch is whole before the next one is. If several machines share the files, they may see
        that in another order, so everything is checked twice.
        """
        if status not in (OFFSET_ORDER, BASE_OFFSET):
            data = self._read_all(segment, size)
            first_offset, limit = segment.base_offset, segment.base_offset + OVERFLOW_MAX
            if len(data) <= position:
                return False
            holes = segment.file.unpublished_holes(len(data))
            resume, _ = find_resume(data, position, len(data), first_offset, limit, holes)
            if resume == len(data) and not is_whole_without_offset(data, position):
                return False
        odd = segment.base_offset, position, status
        was_met, self._odd = self._odd == odd, odd
        return is_sealed or was_met

    def _judge(self, segment: LogSegment, size: int, *, is_sealed: bool) -> tuple[int, int]:
        """Return where the last whole batch ends, and which offset follows all of them."""
        data = self._read_all(segment, size)
        judgement = judge_batches(
            data,
            segment.path,
            first_offset=segment.base_offset,
            offset_max=segment.base_offset + OVERFLOW_MAX,
            following_offset=0,
            end_facts=None if is_sealed else LogEndFacts(),
            holes=segment.file.unpublished_holes(len(data)),
        )
        return judgement.whole_end, max(judgement.next_offset, judgement.free_offset)

    def _read_all(self, segment: LogSegment, size: int) -> memoryview:
        """Return the bytes of a segment, without a hole at their end."""
        try:
            return segment.file.map_unpublished(size)
        except ShortFileError as error:
            raise FileNotFoundError(f"{segment.path} was cut") from error

    def _path_of(self, base_offset: int) -> Path:
        state = FileState.SWAP if base_offset in self._swapped else FileState.LIVE
        return SegmentFiles(self._local.context.directory, base_offset, state).log

    def _facts(self, base_offset: int) -> FileFacts:
        path = self._path_of(base_offset)
        facts = self._local.context.filesystem.stat(path)
        if facts is None:
            raise FileNotFoundError(f"{path} was removed")
        return facts


def _no_effect() -> None:
    """Do nothing: a log whose file is never released."""


def _is_preallocated_space(data: memoryview) -> bool:
    """Return whether a batch may be appended at this place: its first fields are zeros."""
    return len(data) >= LOG_OVERHEAD and is_zero(data[:LOG_OVERHEAD])
