"""Loading of a partition: cleanup of its directory, segments, recovery, the range of the log.

After a clean shutdown only the tail after the last index entry is scanned. Otherwise everything
above the recovery point is synced, and written again if a sync is not enough (see `unflushed.py`);
then every segment from the recovery point on is read, every batch is checked, and every index is
rebuilt. So everything that the recovery of a writer keeps is on the disk, and the recovery point
rises to the log end.

A torn tail is not corrupt. Bytes at the very end of the log, above the recovery point, that form no
whole batch are a torn tail: they are copied to a `.broken` file in the log's directory, then cut.
Everything else that fails a check is a corrupt range and stays: damage followed by whole batches,
damage below the recovery point, damage at the end of a segment that is not the last.

Crash points of a cut: the side file is written and synced before the log is truncated; a crash
between the two leaves both, and the next start does the same again. The cut is synced before the
first append can follow, so that cut bytes never appear again after new bytes.

Segments whose offsets are too far from their base are split at the end (`splitting.py`), and the
log is loaded once more.

Read-only, nothing on the disk changes: the same findings are kept in memory.

Thread-safety: `load_log` runs in one thread, before the log has any other; a writer has the lock of
the directory.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from kafkalog._core.batch import check_batch, scan_batches
from kafkalog._core.header import BatchHeader
from kafkalog._core.status import STATUS_CODES, status_name
from kafkalog.errors import CorruptRecordError, InvalidRecordError
from kafkalog.files.atomic_files import read_file, replace_file, sync_directory_names
from kafkalog.files.filesystem import FileHandle
from kafkalog.files.names import (
    MAX_BASE_OFFSET,
    OFFSET_DIGITS,
    FileKind,
    FileState,
    SegmentFiles,
    segment_file_name,
)
from kafkalog.files.zeros import Holes, is_zero, pieces_between
from kafkalog.indexes.segment_index import SegmentIndex
from kafkalog.log.corrupt_ranges import CorruptRange, with_tail
from kafkalog.log.exchanges import present_segments
from kafkalog.log.holes import find_hole
from kafkalog.log.index_lookup import read_header, read_whole_header
from kafkalog.log.judging import LogEndFacts
from kafkalog.log.local_log import LocalLog
from kafkalog.log.report import RecoveryReport, TruncatedTail
from kafkalog.log.scanner import SegmentScan, scan_file
from kafkalog.log.segment import LogSegment, open_segment
from kafkalog.log.segment_types import SegmentContext
from kafkalog.log.segments import LogSegments
from kafkalog.log.splitting import split_overflowing
from kafkalog.log.startup_cleanup import (
    StartupCleanup,
    clean_partition_directory,
    misnamed_segments,
)
from kafkalog.log.unflushed import make_durable

__all__ = ["LoadedLog", "ScanFacts", "load_log"]

logger = logging.getLogger(__name__)

OK = STATUS_CODES["OK"]

# Reading and checking a file of this size is faster than mapping its index.
SMALL_FILE_BYTES = 64 * 1024


@dataclass(slots=True)
class ScanFacts:
    """
    Producers and leader epochs of the batches that were scanned.

    Attributes:
        first_offset: base of the first segment that was scanned, None if none was scanned.
        has_producers: True if a batch has a producer id.
        bases: base offsets of the segments, each with True if it has transaction markers.
        leader_epochs: epochs as they rise, with the base offset where each begins; NO_EPOCH where
            all earlier epochs are removed.
    """

    first_offset: int | None = None
    has_producers: bool = False
    bases: dict[int, bool] = field(default_factory=dict)
    leader_epochs: list[tuple[int, int]] = field(default_factory=list)

    def add(self, base_offset: int, scan: SegmentScan) -> None:
        """Add the scan of the next segment."""
        if self.first_offset is None:
            self.first_offset = base_offset
        self.has_producers = self.has_producers or scan.has_producers
        self.bases[base_offset] = scan.has_markers
        self.leader_epochs += scan.leader_epochs


@dataclass(frozen=True, slots=True)
class LoadedLog:
    """
    A log ready for use, with the findings of its recovery.

    Attributes:
        local: the log.
        report: the findings and repairs.
        recovery_point: first offset that may be missing on the disk.
        scanned: facts from the scanned batches.
        has_lost_end: True if the log ended higher once: bytes at its end were no whole batch.
    """

    local: LocalLog
    report: RecoveryReport
    recovery_point: int
    scanned: ScanFacts
    has_lost_end: bool = False


class _LastStop(NamedTuple):
    """
    Facts about the end of the last session of a log.

    Attributes:
        is_clean: True if the log was closed in order.
        recovery_point: first offset that may be missing on the disk.
        doubtful_offset: first offset that may be missing on the disk whatever a sync reports; None
            if there is no such offset.
    """

    is_clean: bool
    recovery_point: int
    doubtful_offset: int | None


class _Findings:
    """
    Findings that accumulate while the segments of a log are examined.

    Attributes:
        next_offset: end of the log.
        last_is_corrupt: True if the last segment takes no appends, because its end is damaged.
        has_lost_end: True if the log ended higher once.
        last_scan: state of the last segment, None if its end was trusted.
        needs_indexes: True if the indexes of the last segment do not have its scan yet.
        facts: facts from the scanned batches.
    """

    def __init__(self) -> None:
        self.next_offset = 0
        self.last_is_corrupt = self.has_lost_end = False
        self.last_scan: SegmentScan | None = None
        self.needs_indexes = False
        self.facts = ScanFacts()
        self._removed: list[Path] = []
        self._cut: list[TruncatedTail] = []
        self._corrupt_ranges: list[CorruptRange] = []
        self._rebuilt: list[Path] = []
        self._rewritten_bytes = 0
        self._segment_count = self._bytes = self._batch_count = self._record_count = 0

    def end_at(self, next_offset: int) -> None:
        """Set the end of the log."""
        self.next_offset = next_offset

    def end_after_damage(self, next_offset: int) -> None:
        """Set the end of a log whose end is damaged."""
        self.next_offset = next_offset
        self.last_is_corrupt = True

    def record_lost_end(self) -> None:
        """Record that the log ended higher once."""
        self.has_lost_end = True

    def record_scan(self, segment: LogSegment, scan: SegmentScan) -> None:
        """Record the scan of the next segment; the log ends after it, or where it ended before."""
        self.facts.add(segment.base_offset, scan)
        self._segment_count += 1
        self._bytes += segment.size_bytes
        self._batch_count += scan.batch_count
        self._record_count += scan.record_count
        self.next_offset = max(scan.next_offset, self.next_offset)

    def record_last_scan(self, scan: SegmentScan) -> None:
        """Record the scan of the last segment, whose indexes are not replaced yet."""
        self.last_scan, self.needs_indexes = scan, True

    def record_trusted_end(self, scan: SegmentScan) -> None:
        """Record the end of a last segment that is trusted, and was not scanned as a whole."""
        self.last_scan = scan
        self.next_offset = max(self.next_offset, scan.next_offset)

    def record_removed(self, paths: Iterable[Path]) -> None:
        """Record files that were removed."""
        self._removed.extend(paths)

    def record_cut(self, tail: TruncatedTail) -> None:
        """Record bytes that were cut."""
        self._cut.append(tail)

    def record_corrupt_ranges(self, found: Iterable[CorruptRange]) -> None:
        """Record damage."""
        self._corrupt_ranges.extend(found)

    def record_rewritten(self, size_bytes: int) -> None:
        """Record the bytes that were written again."""
        self._rewritten_bytes = size_bytes

    def record_rebuilt(self, index: SegmentIndex[Any]) -> None:
        """Record an index that was rebuilt."""
        self._rebuilt.append(index.path)

    def discard_facts(self) -> None:
        """Discard the facts from the scanned batches: all segments were removed."""
        self.facts = ScanFacts()

    def include_earlier(self, before: _Findings) -> None:
        """Include the changes of an earlier recovery of the same opening."""
        self._cut[:0] = before._cut
        self._removed[:0] = before._removed
        self._rewritten_bytes += before._rewritten_bytes
        self.has_lost_end |= before.has_lost_end

    def report(
        self, local: LocalLog, cleanup: StartupCleanup, recovery_point: int, *, clean: bool, ms: int
    ) -> RecoveryReport:
        """Return the report of a recovery that took `ms` milliseconds."""
        return RecoveryReport(
            clean=clean,
            scanned_segments=self._segment_count,
            scanned_bytes=self._bytes,
            scanned_batches=self._batch_count,
            scanned_records=self._record_count,
            rewritten_bytes=self._rewritten_bytes,
            cut=tuple(self._cut),
            rebuilt=tuple(self._rebuilt),
            corrupt_ranges=tuple(self._corrupt_ranges),
            removed=(*cleanup.removed, *self._removed),
            completed_swaps=tuple(cleanup.completed_swaps),
            refused_swaps=tuple(cleanup.refused_swaps),
            log_start_offset=local.snapshot.start_offset,
            log_end_offset=local.snapshot.end_offset,
            recovery_point=recovery_point,
            duration_ms=ms,
            ignored=cleanup.misnamed,
        )


class _Recovered(NamedTuple):
    """
    The recovered content of a directory.

    Attributes:
        segments: of the log; empty if there is no file.
        cleanup: the cleanup before the recovery.
        findings: the findings in the segments.
        may_release: True if the log may stay idle.
    """

    segments: list[LogSegment]
    cleanup: StartupCleanup
    findings: _Findings
    may_release: bool


def load_log(
    context: SegmentContext,
    *,
    clean: bool,
    recovery_point: int,
    start_offset: int | None,
    doubtful_offset: int | None = None,
    may_release: bool = False,
) -> LoadedLog:
    """
    Load the segments of `context.directory`; recover them if they were not closed in order.

    Args:
        context: disk, directory, configuration, clock.
        clean: True if the last writer closed the log in order.
        recovery_point: first offset that may be missing on the disk.
        start_offset: checkpointed log start offset, None for the first segment's base.
        doubtful_offset: first offset that may be missing on the disk whatever a sync reports; None
            if there is no such offset.
        may_release: True if a log that was closed in order is left idle, and nothing is written.
    """
    started = context.clock.monotonic_ms()
    # No log has checkpointed an offset at which no segment can begin.
    recovery_point = recovery_point if recovery_point <= MAX_BASE_OFFSET else 0
    start_offset = None if (start_offset or 0) > MAX_BASE_OFFSET else start_offset
    stop = _LastStop(clean, recovery_point, doubtful_offset)
    recovered = _recover_segments(context, stop, may_release=may_release)
    if _split(context, recovered):
        before, recovered = recovered, _recover_segments(context, stop, may_release=may_release)
        recovered.findings.include_earlier(before.findings)
        recovered.cleanup.include_earlier(before.cleanup)
    segments, cleanup, findings, may_release = recovered
    start = max(start_offset or 0, segments[0].base_offset if segments else 0)
    segments = _without_deleted(context, recovered, start)
    end_offset = max(findings.next_offset, start) if segments else start
    is_released = may_release and bool(segments) and not findings.last_is_corrupt
    local = _assemble(context, segments, findings, start, end_offset, is_released=is_released)
    context.set_settled_offset(end_offset if clean else min(recovery_point, end_offset))
    is_unsynced = context.read_only and not clean
    recovery_point = context.settled_offset if is_unsynced else end_offset
    if not context.read_only and not is_released:
        # The writer before may have made segments without a sync of their names. And later ones
        # must not outlive the name of a first one made here: the log would begin there.
        context.filesystem.sync_directory(context.directory)
    duration_ms = context.clock.monotonic_ms() - started
    report = findings.report(local, cleanup, recovery_point, clean=clean, ms=duration_ms)
    return LoadedLog(local, report, recovery_point, findings.facts, findings.has_lost_end)


def _recover_segments(context: SegmentContext, stop: _LastStop, *, may_release: bool) -> _Recovered:
    """Clean the directory, open the segments, and find their end."""
    cleanup = _clean(context)
    # Offsets are missing before the segments of an exchange, although nothing was lost.
    for path in cleanup.completed_swaps:
        context.allow_missing_before(int(path.name[:OFFSET_DIGITS]))
    is_released = may_release and stop.is_clean and cleanup.is_empty
    segments = _open_segments(context, cleanup)
    recovery = _Recovery(context, segments, stop)
    if segments:
        with closed_on_error(segments):
            is_released = recovery.find_end(may_release=is_released)
    return _Recovered(segments, cleanup, recovery.findings, is_released)


def _split(context: SegmentContext, recovered: _Recovered) -> bool:
    """Split segments whose offsets overflow, and return whether the log has to be loaded again."""
    segments = recovered.segments
    if context.read_only:
        return False
    with closed_on_error(segments):
        made = split_overflowing(context, segments, recovered.findings.next_offset)
    if made:
        for segment in segments:
            segment.close()
    return bool(made)


def _without_deleted(
    context: SegmentContext, recovered: _Recovered, start: int
) -> list[LogSegment]:
    """Return the segments; if all end below the log start, remove them, and return none."""
    segments, cleanup, findings, _ = recovered
    if context.read_only or not segments or findings.next_offset >= start:
        return segments
    # Deleted records, whose files were not removed yet.
    logger.warning(
        "%s: all segments end at %d, below the log start %d, and are removed",
        context.directory,
        findings.next_offset,
        start,
    )
    _remove_all(context, segments, cleanup)
    findings.discard_facts()
    return []


@contextlib.contextmanager
def closed_on_error(segments: Iterable[LogSegment]) -> Iterator[None]:
    """
    Close segments that will be part of no log.

    The error refers to them as long as it is kept, perhaps by a log handler, and the next opening
    must not truncate a file that is mapped.
    """
    try:
        yield
    except BaseException:
        for segment in segments:
            segment.close()
        raise


def _clean(context: SegmentContext) -> StartupCleanup:
    """Clean the directory, unless read-only, and find the segments."""
    if context.read_only:
        present = present_segments(context.filesystem, context.directory)
        misnamed = misnamed_segments(context.directory, context.filesystem.list(context.directory))
        return StartupCleanup(bases=present.bases, swapped=present.swapped, misnamed=misnamed)
    return clean_partition_directory(context.filesystem, context.directory)


def _open_segments(context: SegmentContext, found: StartupCleanup) -> list[LogSegment]:
    """Return the segments that were found; the directory is listed once for all of them."""
    if not found.bases:
        return []
    extents = context.filesystem.extents(context.directory, FileKind.LOG)
    swapping = replace(context, state=FileState.SWAP) if found.swapped else context
    segments = [
        open_segment(swapping, base)
        if base in found.swapped
        else open_segment(context, base, extents)
        for base in found.bases
    ]
    for segment in segments:
        extent = extents.get(segment_file_name(segment.base_offset, FileKind.LOG))
        if extent is not None and extent.has_hole:
            # Space that a writer has preallocated, or a power cut has left, is not read (PAR-13).
            segment.file.exclude_hole()
    return segments


class _Recovery:
    """
    Finds the end of the segments of a log, and repairs what may be repaired.

    Args:
        context: disk, directory, configuration.
        segments: of the directory, at least one for `find_end`; segments that are no part of the
            log are removed from the list.
        stop: facts about the last session.

    Attributes:
        findings: the findings so far.
    """

    def __init__(
        self, context: SegmentContext, segments: list[LogSegment], stop: _LastStop
    ) -> None:
        self.findings = _Findings()
        self._context = context
        self._segments = segments
        self._stop = stop

    def find_end(self, *, may_release: bool) -> bool:
        """Find the end of the log; return whether it may stay idle."""
        context, segments, stop, findings = self._context, self._segments, self._stop, self.findings
        recovery_point = stop.recovery_point
        first = self._first_to_examine()
        if self._move_strays_aside(first):
            may_release = False
            first = self._first_to_examine()
        if not stop.is_clean and not context.read_only:
            findings.record_rewritten(
                make_durable(
                    context.filesystem, segments[first:], recovery_point, stop.doubtful_offset
                )
            )
        if not stop.is_clean and first and segments[first].base_offset == recovery_point:
            _cut_lost_tail(context, segments[first - 1], recovery_point)
        for segment, follower in pairwise(segments[: first + 1]):
            _skip_zeros(segment, follower.base_offset, context)
        if not (may_release and self._trust_end(segments[-1])):
            may_release = False
            self._examine(first)
        if findings.next_offset < recovery_point and not findings.last_is_corrupt:
            self._record_lost_end()
            self._record_missing_end()
        self._install_last_indexes()
        return may_release

    def _first_to_examine(self) -> int:
        if self._stop.is_clean:
            return len(self._segments) - 1
        return max(LogSegments(self._segments).floor_slot(self._stop.recovery_point), 0)

    def _move_strays_aside(self, first: int) -> bool:
        """
        Remove segments that are no part of the log; return whether there were any.

        Such a segment has no whole batch and the base offset of another one, or is a copy of one
        under a higher base offset (`_is_copy`), or under a lower offset of the segment before it.
        Either would limit the segment before it. Empty ones are searched everywhere, others from
        `first` on, where all will be read; after a clean stop the last one only if its end is odd,
        or it is a copy.
        """
        segments, strays = self._segments, list[LogSegment]()
        for slot in range(len(segments) - 1, 0, -1):
            segment = segments[slot]
            if slot >= first and _is_copy(segment, segments[:slot]):
                strays.append(segments.pop(slot - _is_misplaced(segments, slot - 1)))
                continue
            is_examined = slot >= first and not (
                self._stop.is_clean and _tail_end(segment) is not None
            )
            if segment.size_bytes and not is_examined:
                continue
            if segment.size_bytes and (_begins_whole(segment) or _has_data(segment)):
                continue
            if _end_offset(segments[slot - 1]) > segment.base_offset:
                strays.append(segments.pop(slot))
        self.findings.record_removed(stray.path for stray in strays if not stray.size_bytes)
        self._move_aside(strays)
        return bool(strays)

    def _examine(self, first: int) -> None:
        """Examine the segments from slot `first` on."""
        segments, findings = self._segments, self.findings
        is_clean, recovery_point = self._stop.is_clean, self._stop.recovery_point
        findings.end_at(segments[first].base_offset)
        for slot, segment in enumerate(segments[first:], start=first):
            if slot + 1 == len(segments):
                is_trusted = is_clean and not segment.file.excluded_bytes
                if not (is_trusted and self._trust_tail(segment)):
                    self._end_log(self._scan(slot))
                return
            scan = self._scan(slot)
            following = segments[slot + 1].base_offset
            is_whole = scan.whole_end >= segment.size_bytes + segment.file.excluded_bytes
            is_torn = not (is_whole or is_clean) and recovery_point <= scan.next_offset < following
            if is_torn and not any(map(_has_data, segments[slot + 1 :])):
                # A power cut between a roll and the next sync: the tail of the log is here.
                self._move_aside(segments[slot + 1 :])
                del segments[slot + 1 :]
                # Scanned as the last segment: no segment after it confirms its last batch.
                self._end_log(self._scan(slot))
                return
            self._end_sealed(slot, scan)
            self._install_indexes(segment, scan)

    def _scan(self, slot: int) -> SegmentScan:
        """Scan a segment with all CRCs."""
        segment, stop = self._segments[slot], self._stop
        offset_max = end_facts = None
        if slot + 1 < len(self._segments):
            offset_max = self._segments[slot + 1].base_offset - 1
        else:
            end_offset = stop.recovery_point if stop.is_clean else None
            begin_offset = _begin_offset(self._segments, slot)
            end_facts = LogEndFacts(stop.recovery_point, end_offset, begin_offset)
        scan = scan_file(
            segment.file,
            base_offset=segment.base_offset,
            interval=self._context.config.index_interval_bytes,
            offset_max=offset_max,
            end_facts=end_facts,
        )
        self.findings.record_scan(segment, scan)
        segment.mark_judged()
        return scan

    def _trust_end(self, segment: LogSegment) -> bool:
        """
        Find the end of a cleanly closed log with as few reads as possible; False if it is odd.

        Its indexes are read when they are needed. A small file is read, and not mapped.
        """
        size = segment.size_bytes
        if segment.file.excluded_bytes:
            return False
        try:
            data: memoryview | bytes = b""
            if size > SMALL_FILE_BYTES:
                start = self._tail_start(segment)
                data = segment.file.read(start, size - start)
                size = len(data)
                tail = scan_batches(data, next_offset=segment.base_offset)
            else:
                if size:
                    filesystem = self._context.filesystem
                    found = read_file(filesystem, segment.path, max_bytes=2 * size)
                    data = b"" if found is None else found[:size]
                tail = scan_batches(data, 0, next_offset=segment.base_offset)
        except (CorruptRecordError, InvalidRecordError, ValueError):
            return False
        if tail.status != OK or len(data) < size:
            return False
        if not self._is_believable_end(segment, tail.next_offset):
            return False
        self.findings.end_at(max(segment.base_offset, tail.next_offset))
        return True

    def _trust_tail(self, segment: LogSegment) -> bool:
        """Find the end of a cleanly closed log by its last batches; False if it is odd."""
        try:
            if segment.size_bytes == 0:
                scan = SegmentScan(next_offset=segment.base_offset)
            else:
                start = self._tail_start(segment)
                data = segment.file.read(start, segment.size_bytes - start)
                tail = scan_batches(data, next_offset=segment.base_offset)
                if tail.status != OK or not self._is_believable_end(segment, tail.next_offset):
                    return False
                # If the beginning is damaged, the whole segment is scanned.
                read_header(segment.file, 0)
                scan = segment.summary(tail.next_offset)
        except (CorruptRecordError, InvalidRecordError):
            return False
        for index in (segment.offset_index, segment.time_index):
            if index.was_rebuilt:
                self.findings.record_rebuilt(index)
        self.findings.record_trusted_end(scan)
        return True

    def _tail_start(self, segment: LogSegment) -> int:
        """Return where the tail begins: at 0 if only the batches before confirm the last one."""
        return segment.tail_position() if self._stop.recovery_point > 0 else 0

    def _is_believable_end(self, segment: LogSegment, next_offset: int) -> bool:
        """
        Return whether a log that was closed in order may end there.

        Its recovery point was its end then. An older one, of a writer that could not write it,
        costs a scan of the segment; 0 proves nothing.
        """
        recovery_point = self._stop.recovery_point
        fits = next_offset - 1 <= segment.offset_max
        return fits and (recovery_point <= 0 or next_offset <= recovery_point)

    def _end_sealed(self, slot: int, scan: SegmentScan) -> None:
        """
        Record damage at the end of a segment that another one follows, or cut a preallocated tail.

        Crash points: before the cut is synced the zeros are there again, above a recovery point
        that has not risen yet, and the next start cuts them.
        """
        segment, following = self._segments[slot], self._segments[slot + 1].base_offset
        file = segment.file
        size = file.size_bytes - scan.whole_end
        is_preallocated = scan.next_offset >= following and file.is_zero_from(scan.whole_end)
        if (size or file.excluded_bytes) and is_preallocated:
            # It was never trimmed; nothing is missing. Cut now: with later settings files may not
            # be preallocated, and then zeros are not searched.
            if not self._context.read_only:
                _cut_file(self._context, segment, scan.whole_end)
            file.set_size(scan.whole_end)
            file.include_excluded()
            size = 0
        corrupt_ranges = list(scan.corrupt_ranges)
        if size:
            corrupt_ranges = _with_tail(segment, scan, following)
        elif scan.next_offset < following and not scan.ends_in_corrupt_range:
            corrupt_ranges += find_hole(self._segments, segment, scan.next_offset, following)
        self._add_corrupt_ranges(segment, corrupt_ranges)

    def _end_log(self, scan: SegmentScan) -> None:
        """Cut a torn tail of the last segment, or record damage to bytes that were durable."""
        segment, findings = self._segments[-1], self.findings
        durable_offset = self._stop.recovery_point
        if self._stop.is_clean:
            durable_offset = max(durable_offset, scan.next_offset + 1)
        file = segment.file
        size = file.size_bytes - scan.whole_end
        zeros = file.is_zero_from(scan.whole_end)
        corrupt_ranges = list(scan.corrupt_ranges)
        is_corrupt = scan.next_offset < durable_offset and not zeros
        if is_corrupt:
            corrupt_ranges = _with_tail(segment, scan, durable_offset)
        if is_corrupt or scan.ends_in_corrupt_range:
            # The last batch may be whole, with a wrong offset: appends follow all of its offsets.
            last = corrupt_ranges[-1]
            corrupt_ranges[-1] = replace(last, next_offset=max(last.next_offset, durable_offset))
            findings.end_after_damage(corrupt_ranges[-1].next_offset)
        if is_corrupt or any(each.next_offset > durable_offset for each in corrupt_ranges):
            # Damage that an earlier recovery found ends below the recovery point of that recovery.
            self._record_lost_end()
        self._add_corrupt_ranges(segment, corrupt_ranges)
        if (size or file.excluded_bytes) and not is_corrupt:
            self._cut(segment, scan)
        # Its indexes are installed when it is known whether it takes appends.
        findings.record_last_scan(scan)

    def _cut(self, segment: LogSegment, scan: SegmentScan) -> None:
        """Cut a torn tail; its bytes are kept in a side file."""
        context, position = self._context, scan.whole_end
        size = segment.size_bytes - position
        torn = segment.file.read(position, size)
        size += segment.file.excluded_bytes
        zeros = segment.file.is_zero_from(position)
        kept_in = None
        if not (zeros and _may_be_preallocated(context, segment.size_bytes)):
            self._record_lost_end()
        if not zeros:
            files = SegmentFiles(context.directory, segment.base_offset)
            kept_in = files.broken(FileKind.LOG, position)
        reason = status_name(scan.tail_status)
        self.findings.record_cut(TruncatedTail(segment.path, position, size, reason, kept_in))
        segment.file.include_excluded()
        if context.read_only:
            segment.file.set_size(position)
            return
        if kept_in is not None:
            holes = segment.file.holes()
            holes = [(max(a - position, 0), b - position) for a, b in holes if b > position]
            _keep(context, kept_in, torn, holes)
        del torn
        _cut_file(context, segment, position)
        segment.file.set_size(position)
        logger.warning("cut %d torn bytes at position %d of %s", size, position, segment.path)

    def _move_aside(self, segments: list[LogSegment]) -> None:
        """
        Remove segments without a whole batch that follow a torn tail; their bytes are kept.

        Crash points: after any file; the next start finds and removes the rest, in any order. All
        of them are removed from the disk before the torn tail before them is cut: otherwise the log
        would end above the records that it lost.
        """
        context = self._context
        if any(segment.size_bytes for segment in segments):
            self._record_lost_end()
        for segment in segments:
            files = SegmentFiles(context.directory, segment.base_offset)
            data = segment.file.whole()
            kept_in = None if segment.file.is_zero_from(0) else files.broken(FileKind.LOG, 0)
            if data:
                reason = status_name(segment.scan().tail_status)
                tail = TruncatedTail(segment.path, 0, len(data), reason, kept_in)
                self.findings.record_cut(tail)
            if not context.read_only:
                if kept_in is not None:
                    _keep(context, kept_in, data, segment.file.holes())
                _remove_files(context, files)
            segment.close()
        if not context.read_only:
            context.filesystem.sync_directory(context.directory)

    def _record_lost_end(self) -> None:
        """
        Record that the log ended higher, before anything is cut: its next epoch is another.

        Crash points: before or after the cut; the journal has the same until the epoch is written.
        """
        self.findings.record_lost_end()
        if self._context.journal is not None and not self._context.read_only:
            self._context.journal.mark_end_uncertain()

    def _record_missing_end(self) -> None:
        """Record that the log ends, without damage, below an offset that was on the disk once."""
        segment, recovery_point = self._segments[-1], self._stop.recovery_point
        corrupt_range = CorruptRange(
            path=segment.path,
            position=segment.size_bytes,
            size_bytes=0,
            first_offset=self.findings.next_offset,
            next_offset=recovery_point,
            reason="TRUNCATED",
        )
        self._add_corrupt_ranges(segment, [corrupt_range])
        self.findings.end_after_damage(recovery_point)

    def _add_corrupt_ranges(self, segment: LogSegment, found: Sequence[CorruptRange]) -> None:
        segment.add_corrupt_ranges(found)
        self.findings.record_corrupt_ranges(found)

    def _install_indexes(self, segment: LogSegment, scan: SegmentScan) -> None:
        """Replace the indexes of a scanned segment if they are not as its batches require."""
        for index, entries in _required_indexes(segment, scan):
            if index.replace(entries):
                self.findings.record_rebuilt(index)

    def _install_last_indexes(self) -> None:
        """As `_install_indexes`, for a last segment that was scanned."""
        segment, scan = self._segments[-1], self.findings.last_scan
        if scan is None or not self.findings.needs_indexes:
            return
        if self._context.read_only or self.findings.last_is_corrupt:
            self._install_indexes(segment, scan)
            return
        # The segment takes appends, which begin with new index files: one write is enough.
        for index, entries in _required_indexes(segment, scan):
            if not index.reads_as(entries):
                self.findings.record_rebuilt(index)


def _is_copy(segment: LogSegment, lower: Sequence[LogSegment]) -> bool:
    """
    Return whether a segment begins with a batch that a segment before it has as well.

    That is a batch below its base offset, in the segment that has these offsets, or the very first
    batch of the segment before. And it has no whole batch after the end of that segment, so that
    it can be left out.
    """
    first = read_whole_header(segment.file, 0, segment.size_bytes) if segment.size_bytes else None
    if first is None:
        return False
    below = [each for each in lower if each.base_offset <= first.base_offset]
    before = below[-1] if below else lower[-1]
    if not _has_first_batch(before, segment, first):
        return False
    size_bytes = before.size_bytes
    is_longer = segment.size_bytes > size_bytes and not segment.file.is_zero_from(size_bytes)
    # A torn end is left out with the copy now, not cut first and left out by the next opening.
    return not is_longer or segment.scan().whole_end <= size_bytes


def _has_first_batch(before: LogSegment, segment: LogSegment, first: BatchHeader) -> bool:
    """
    Return whether a segment has the first batch of another one.

    Its headers are read one by one, not by `walk_source`: this runs where a crash left two files
    with one first batch, and damage before it only means that it is no copy.
    """
    data = segment.file.read(0, first.size_bytes)
    position = 0
    while header := read_whole_header(before.file, position, before.size_bytes):
        if header.base_offset >= first.base_offset:
            return bool(before.file.read(position, header.size_bytes) == data)
        if first.base_offset >= segment.base_offset:
            return False
        position += header.size_bytes
    return False


def _is_misplaced(segments: Sequence[LogSegment], slot: int) -> bool:
    """Return whether of two adjacent copies the lower one begins in the segment before it."""
    lower, higher = segments[slot : slot + 2]
    if not slot or lower.size_bytes != higher.size_bytes:
        return False
    return _end_offset(segments[slot - 1]) > lower.base_offset


def _begins_whole(segment: LogSegment) -> bool:
    try:
        size = read_header(segment.file, 0).size_bytes
    except (CorruptRecordError, InvalidRecordError):
        return False
    return size <= segment.size_bytes and check_batch(segment.file.read(0, size)) == OK


def _tail_end(segment: LogSegment) -> int | None:
    """Return one above the last offset of a segment by its last batches; None if that fails."""
    try:
        return segment.end_offset_of_tail()
    except (CorruptRecordError, InvalidRecordError, ValueError):
        return None


def _end_offset(segment: LogSegment) -> int:
    """Return one above the last offset of a segment, by its last batches if they are whole."""
    found = _tail_end(segment)
    return segment.scan().next_offset if found is None else found


def _begin_offset(segments: Sequence[LogSegment], slot: int) -> int:
    """
    Return one above the last offset before a segment, 0 if it is unknown.

    Needed if it begins with a wrapper: a segment may have the last offset of that in its name.
    """
    if not slot or not segments[slot].begins_with_wrapper():
        return 0
    return _tail_end(segments[slot - 1]) or 0


def _has_data(segment: LogSegment) -> bool:
    """Return whether a segment has a whole batch, or a message of an old format."""
    if segment.size_bytes == 0:
        return False
    scan = segment.scan()
    return scan.batch_count > 0 or bool(scan.corrupt_ranges)


def _cut_lost_tail(context: SegmentContext, segment: LogSegment, following: int) -> None:
    """
    Cut a preallocated tail that a crash has restored in the last segment that is not scanned.

    The cut at the roll may not have been synced, if the segment ends at the recovery point; the
    tails of all segments before it were synced (`LocalLog.sync`). Cut with any settings: later ones
    may not search zeros. Crash points: before the cut is synced the zeros are there again, and the
    recovery point has not changed: the next start cuts them.
    """
    end = _end_before_zeros(segment, following)
    if end is not None:
        if not context.read_only:
            _cut_file(context, segment, end)
        segment.file.set_size(end)


def _skip_zeros(segment: LogSegment, following: int, context: SegmentContext) -> None:
    """
    End a segment that is not scanned before a preallocated tail that its writer left in it.

    Zeros at the end are searched only if files are, or may have been, preallocated: the search
    costs a read for each segment.
    """
    if _may_be_preallocated(context, segment.size_bytes):
        end = _end_before_zeros(segment, following)
        if end is not None:
            segment.file.set_size(end)


def _end_before_zeros(segment: LogSegment, following: int) -> int | None:
    """Return where the zeros after all batches of a segment begin; None if there are none."""
    size = segment.size_bytes
    # Most batches end with a zero, too: the batches after the last index entry decide.
    if size == 0 or segment.file.read(size - 1, 1)[0]:
        return None
    data = segment.file.whole()
    tail = scan_batches(data, segment.tail_position(), next_offset=segment.base_offset)
    whole = tail.status != OK and tail.next_offset >= following
    return tail.position if whole and is_zero(data[tail.position :]) else None


def _may_be_preallocated(context: SegmentContext, size_bytes: int) -> bool:
    """Return whether zeros at the end of a file may have been preallocated."""
    return context.config.preallocate or size_bytes == context.config.segment_bytes


def _with_tail(segment: LogSegment, scan: SegmentScan, next_offset: int) -> list[CorruptRange]:
    """Return the corrupt ranges of a segment, with the rest at its end as one of them."""
    tail = CorruptRange(
        path=segment.path,
        position=scan.whole_end,
        size_bytes=segment.size_bytes - scan.whole_end,
        first_offset=scan.next_offset,
        next_offset=next_offset,
        reason=status_name(scan.tail_status),
    )
    return with_tail(scan.corrupt_ranges, tail)


def _cut_file(context: SegmentContext, segment: LogSegment, size_bytes: int) -> None:
    """Truncate a file to `size_bytes`, on the disk too."""
    segment.file.drop_mapping()
    handle = context.filesystem.open(segment.path, write=True)
    try:
        handle.truncate(size_bytes)
        handle.sync()
    finally:
        handle.close()


def _keep(context: SegmentContext, side_file: Path, torn: memoryview, holes: Holes) -> None:
    """Write torn bytes to their side file, after bytes that were cut at the same place before."""
    try:
        before = context.filesystem.open(side_file)
    except FileNotFoundError:
        replace_file(context.filesystem, side_file, torn, holes=holes)
        return
    try:
        if _ends_with(before, torn, holes):
            before.sync()
            sync_directory_names(context.filesystem, side_file.parent)
        else:
            replace_file(context.filesystem, side_file, torn, holes=holes, before=before)
    finally:
        before.close()


def _ends_with(handle: FileHandle, data: memoryview, holes: Holes) -> bool:
    """Return whether a file ends with these bytes; the zeros of the holes are not read."""
    start = handle.size() - len(data)
    return start >= 0 and all(
        handle.pread(end - first, start + first) == data[first:end]
        for first, end in pieces_between(holes, 0, len(data))
    )


def _required_indexes(
    segment: LogSegment, scan: SegmentScan
) -> tuple[tuple[SegmentIndex[Any], bytes], ...]:
    return (
        (segment.offset_index, scan.offset_entries),
        (segment.time_index, scan.time_entries),
    )


def _assemble(
    context: SegmentContext,
    segments: list[LogSegment],
    findings: _Findings,
    start_offset: int,
    end_offset: int,
    *,
    is_released: bool,
) -> LocalLog:
    """Return the log of the segments, with a segment for appends unless it is read-only."""
    if segments and not context.read_only and not findings.last_is_corrupt:
        last = segments[-1]
        # After a clean stop, or by the syncs of this recovery.
        last.file.mark_synced()
        if is_released:
            last.mark_released()
        else:
            last.file.open_for_append()
            last.activate(findings.last_scan)
    local = LocalLog(
        context,
        LogSegments(segments or [open_segment(context, end_offset)]),
        end_offset=end_offset,
        start_offset=start_offset,
    )
    if not context.read_only and (not segments or findings.last_is_corrupt):
        fresh = local.create_segment(end_offset)
        kept = local.snapshot.segments if segments else LogSegments([])
        local.replace_all(local.snapshot.replace(segments=kept.with_segment(fresh), end_position=0))
    return local


def _remove_all(
    context: SegmentContext, segments: list[LogSegment], cleanup: StartupCleanup
) -> None:
    """
    Remove segments that end below the log start.

    Crash points: after any file; the next start removes the rest. None may be left next to the
    segment that is made instead, or later starts would not see that they have to be removed.
    """
    for segment in segments:
        segment.close()
        files = SegmentFiles(context.directory, segment.base_offset)
        cleanup.add_removed(*_remove_files(context, files))
    context.filesystem.sync_directory(context.directory)


def _remove_files(context: SegmentContext, files: SegmentFiles) -> list[Path]:
    present = [path for path in files if context.filesystem.stat(path) is not None]
    for path in present:
        context.filesystem.unlink(path)
    return present
