"""Opening a partition: cleanup, segments, recovery, the log's range.

After a clean shutdown nothing is scanned but the tail behind the last index entry. Otherwise what
lies above the recovery point is synced, and written once more where a sync would not be enough (see
`unflushed.py`), then every segment from there on is read, every batch checked, every index made
anew. What a writer's recovery keeps is therefore on the disk, and the recovery point rises to the
log end.

Torn is not corrupt. Bytes at the very end of the log that make no whole batch, above the recovery
point, are a torn tail: they are kept in a `.broken` file beside the log, then cut. Everything else
that fails a check is fenced and stays where it is: damage with whole batches behind it, damage
below the recovery point, damage at the end of a segment that is not the last.

Crash points of a cut: the side file is written and synced before the log is truncated; a crash
between leaves both, and the next start does the same again. The cut is synced before the first
append can follow, so that cut bytes never come back behind new ones.

Segments whose offsets are too far from their base are split then (`splitting.py`), and the log is
loaded once more.

Read-only, nothing on disk changes: the same findings are held in memory.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from kafkalog._core.batch import check_batch, scan_batches
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
from kafkalog.log.judging import KnownEnd
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

# A file of so many bytes is read and checked faster than its index is mapped.
SMALL_FILE_BYTES = 64 * 1024


@dataclass(slots=True)
class ScanFacts:
    """
    What the batches that were scanned say of producers and leaders.

    Attributes:
        first_offset: base of the first segment that was scanned, None where none was.
        has_producers: whether a batch names a producer.
        bases: of the segments, each with whether it has markers of transactions.
        leader_epochs: epochs as they rise, with the base offset where each begins; NO_EPOCH where
            those before are forgotten.
    """

    first_offset: int | None = None
    has_producers: bool = False
    bases: dict[int, bool] = field(default_factory=dict)
    leader_epochs: list[tuple[int, int]] = field(default_factory=list)

    def add(self, base_offset: int, scan: SegmentScan) -> None:
        """Take in a segment, behind those before."""
        if self.first_offset is None:
            self.first_offset = base_offset
        self.has_producers = self.has_producers or scan.has_producers
        self.bases[base_offset] = scan.has_markers
        self.leader_epochs += scan.leader_epochs


@dataclass(frozen=True, slots=True)
class LoadedLog:
    """
    A log ready for use, and what loading it found.

    Attributes:
        local: the log.
        report: what was found and done.
        recovery_point: first offset not known to be on the disk.
        scanned: what the scanned batches say.
        has_lost_end: whether the log was seen to end higher: bytes at its end were no batch.
    """

    local: LocalLog
    report: RecoveryReport
    recovery_point: int
    scanned: ScanFacts
    has_lost_end: bool = False


@dataclass(slots=True)
class _Findings:
    """What accumulates while segments are looked at."""

    scanned_segments: int = 0
    scanned_bytes: int = 0
    scanned_batches: int = 0
    scanned_records: int = 0
    rewritten_bytes: int = 0
    cut: list[TruncatedTail] = field(default_factory=list)
    rebuilt: list[Path] = field(default_factory=list)
    corrupt_ranges: list[CorruptRange] = field(default_factory=list)
    removed: list[Path] = field(default_factory=list)
    next_offset: int = 0
    last_scan: SegmentScan | None = None
    unindexed: SegmentScan | None = None
    last_is_corrupt: bool = False
    has_lost_end: bool = False
    duration_ms: int = 0
    facts: ScanFacts = field(default_factory=ScanFacts)


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
    Load the segments of `context.directory`, recovering what was not closed in order.

    Args:
        context: disk, directory, configuration, clock.
        clean: whether the last writer closed the log in order.
        recovery_point: first offset not known to be on the disk.
        start_offset: checkpointed log start offset, None for the first segment's base.
        doubtful_offset: first offset that may be missing on the disk whatever a sync says; None
            where none is.
        may_release: whether a log that was closed in order is left at rest, and nothing written.
    """
    started = context.clock.monotonic_ms()
    # What no segment can begin at is no offset that anybody has checkpointed.
    recovery_point = recovery_point if recovery_point <= MAX_BASE_OFFSET else 0
    start_offset = None if (start_offset or 0) > MAX_BASE_OFFSET else start_offset
    recover = partial(
        _recover_segments,
        context,
        clean=clean,
        recovery_point=recovery_point,
        doubtful_offset=doubtful_offset,
        may_release=may_release,
    )
    recovered = recover()
    if _split(context, recovered):
        recovered = recover().behind(recovered)
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
        # Segments may have been made, and not called durable, by whoever had the log before. And
        # later ones must not outlive the name of a first one made here: the log would begin there.
        context.filesystem.sync_directory(context.directory)
    findings.duration_ms = context.clock.monotonic_ms() - started
    report = _report(local, findings, cleanup, recovery_point, clean=clean)
    return LoadedLog(local, report, recovery_point, findings.facts, findings.has_lost_end)


class _Recovered(NamedTuple):
    """
    What a directory holds, recovered.

    Attributes:
        segments: of the log; none where there is no file.
        cleanup: what was cleared before.
        findings: what was found in the segments.
        may_release: whether the log may rest.
    """

    segments: list[LogSegment]
    cleanup: StartupCleanup
    findings: _Findings
    may_release: bool

    def behind(self, before: _Recovered) -> _Recovered:
        """Add what an earlier recovery of the same opening has done."""
        findings, cleanup = self.findings, self.cleanup
        findings.cut[:0] = before.findings.cut
        findings.removed[:0] = before.findings.removed
        findings.rewritten_bytes += before.findings.rewritten_bytes
        findings.has_lost_end |= before.findings.has_lost_end
        cleanup.removed[:0] = before.cleanup.removed
        cleanup.completed_swaps[:0] = before.cleanup.completed_swaps
        cleanup.refused_swaps[:0] = before.cleanup.refused_swaps
        return self


def _recover_segments(
    context: SegmentContext,
    *,
    clean: bool,
    recovery_point: int,
    doubtful_offset: int | None,
    may_release: bool,
) -> _Recovered:
    """Find the segments and their end."""
    cleanup = _clear(context)
    # Offsets are missing in front of what an exchange has made, without anything being lost.
    context.left_out.update(int(path.name[:OFFSET_DIGITS]) for path in cleanup.completed_swaps)
    is_released = may_release and clean and cleanup.is_empty
    segments = _open_segments(context, cleanup)
    findings = _Findings()
    if segments:
        with _closed_on_error(segments):
            is_released = _find_end(
                context,
                segments,
                findings,
                clean=clean,
                recovery_point=recovery_point,
                doubtful_offset=doubtful_offset,
                may_release=is_released,
            )
    return _Recovered(segments, cleanup, findings, is_released)


def _split(context: SegmentContext, recovered: _Recovered) -> bool:
    """Split segments whose offsets overflow, and return whether the log has to be loaded again."""
    segments = recovered.segments
    if context.read_only:
        return False
    with _closed_on_error(segments):
        made = split_overflowing(context, segments, recovered.findings.next_offset)
    if made:
        for segment in segments:
            segment.close()
    return bool(made)


def _without_deleted(
    context: SegmentContext, recovered: _Recovered, start: int
) -> list[LogSegment]:
    """Return the segments; where all lie below the log start, remove them, and return none."""
    segments, cleanup, findings, _ = recovered
    if context.read_only or not segments or findings.next_offset >= start:
        return segments
    # Deleted records, whose files had not gone yet.
    logger.warning(
        "%s: all segments end at %d, below the log start %d, and are removed",
        context.directory,
        findings.next_offset,
        start,
    )
    _remove_all(context, segments, cleanup)
    findings.facts = ScanFacts()
    return []


@contextlib.contextmanager
def _closed_on_error(segments: Sequence[LogSegment]) -> Iterator[None]:
    """
    Close segments that no log will have.

    The error leads to them as long as it is kept, by a log handler perhaps, and a file that is
    mapped must not be cut by the next opening.
    """
    try:
        yield
    except BaseException:
        for segment in segments:
            segment.close()
        raise


def _find_end(
    context: SegmentContext,
    segments: list[LogSegment],
    findings: _Findings,
    *,
    clean: bool,
    recovery_point: int,
    doubtful_offset: int | None,
    may_release: bool,
) -> bool:
    """Find the end of the segments that are there; return whether the log may stay at rest."""
    first = _first_to_examine(segments, recovery_point, clean=clean)
    if _move_strays_aside(context, segments, first, findings, clean=clean):
        may_release = False
        first = _first_to_examine(segments, recovery_point, clean=clean)
    if not clean and not context.read_only:
        findings.rewritten_bytes = make_durable(
            context.filesystem, segments[first:], recovery_point, doubtful_offset
        )
    if not clean and first and segments[first].base_offset == recovery_point:
        _cut_lost_tail(context, segments[first - 1], recovery_point)
    for segment, follower in pairwise(segments[: first + 1]):
        _skip_zeros(segment, follower.base_offset, context)
    if not (may_release and _trust_end(context, segments[-1], recovery_point, findings)):
        may_release = False
        _examine(context, segments, first, clean, recovery_point, findings)
    if findings.next_offset < recovery_point and not findings.last_is_corrupt:
        _record_lost_end(context, findings)
        _record_missing_end(segments[-1], recovery_point, findings)
    _install_last_indexes(context, segments[-1], findings)
    return may_release


def _clear(context: SegmentContext) -> StartupCleanup:
    """Clear what unfinished work left, but read-only; either way say which segments there are."""
    if context.read_only:
        present = present_segments(context.filesystem, context.directory)
        misnamed = misnamed_segments(context.directory, context.filesystem.list(context.directory))
        return StartupCleanup(bases=present.bases, swapped=present.swapped, misnamed=misnamed)
    return clean_partition_directory(context.filesystem, context.directory)


def _report(
    local: LocalLog,
    findings: _Findings,
    cleanup: StartupCleanup,
    recovery_point: int,
    *,
    clean: bool,
) -> RecoveryReport:
    return RecoveryReport(
        clean=clean,
        scanned_segments=findings.scanned_segments,
        scanned_bytes=findings.scanned_bytes,
        scanned_batches=findings.scanned_batches,
        scanned_records=findings.scanned_records,
        rewritten_bytes=findings.rewritten_bytes,
        cut=tuple(findings.cut),
        rebuilt=tuple(findings.rebuilt),
        corrupt_ranges=tuple(findings.corrupt_ranges),
        removed=(*cleanup.removed, *findings.removed),
        completed_swaps=tuple(cleanup.completed_swaps),
        refused_swaps=tuple(cleanup.refused_swaps),
        log_start_offset=local.snapshot.start_offset,
        log_end_offset=local.snapshot.end_offset,
        recovery_point=recovery_point,
        duration_ms=findings.duration_ms,
        ignored=cleanup.misnamed,
    )


def _open_segments(context: SegmentContext, found: StartupCleanup) -> list[LogSegment]:
    """Return the segments that were found, with one look at the directory for all of them."""
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
            # Room that a writer has made ahead of its appends, or what a power cut has left, is not
            # gone through (PAR-13).
            segment.file.exclude_hole()
    return segments


def _first_to_examine(segments: list[LogSegment], recovery_point: int, *, clean: bool) -> int:
    if clean:
        return len(segments) - 1
    return max(LogSegments(segments).floor_slot(recovery_point), 0)


def _move_strays_aside(
    context: SegmentContext,
    segments: list[LogSegment],
    first: int,
    findings: _Findings,
    *,
    clean: bool,
) -> bool:
    """
    Take out segments that are no part of the log; say if there are any.

    Those are a segment without a whole batch whose base offset another one has, and a copy of one
    under a higher base offset (`_is_copy`), or a lower one that the segment before has. Either
    would bound the segment before it. Empty ones are looked for everywhere, others from `first` on,
    where all will be read; after a clean stop the last one only where its end is odd, or it is a
    copy.
    """
    strays = []
    for slot in range(len(segments) - 1, 0, -1):
        segment = segments[slot]
        if slot >= first and _is_copy(segment, segments[:slot]):
            strays.append(segments.pop(slot - _is_misplaced(segments, slot - 1)))
            continue
        is_examined = slot >= first and not (clean and _has_whole_tail(segment))
        if segment.size_bytes and not is_examined:
            continue
        if segment.size_bytes and (_begins_whole(segment) or _has_data(segment)):
            continue
        if _end_offset(segments[slot - 1]) > segment.base_offset:
            strays.append(segments.pop(slot))
    findings.removed += [stray.path for stray in strays if not stray.size_bytes]
    _move_aside(context, strays, findings)
    return bool(strays)


def _is_copy(segment: LogSegment, lower: Sequence[LogSegment]) -> bool:
    """
    Say whether a segment begins with a batch that one before it has as well.

    With one below its base offset, in the segment whose offsets those are, or with the very first
    one of the segment before. And with no more bytes but zeros, so that it is the one to leave out.
    """
    first = read_whole_header(segment.file, 0, segment.size_bytes) if segment.size_bytes else None
    if first is None:
        return False
    below = [each for each in lower if each.base_offset <= first.base_offset]
    before = below[-1] if below else lower[-1]
    is_longer = segment.size_bytes > before.size_bytes
    if is_longer and not segment.file.is_zero_from(before.size_bytes):
        return False
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
    """Say whether of two copies side by side the lower one begins in the segment before it."""
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


def _has_whole_tail(segment: LogSegment) -> bool:
    try:
        return segment.end_offset_of_tail() is not None
    except (CorruptRecordError, InvalidRecordError, ValueError):
        return False


def _end_offset(segment: LogSegment) -> int:
    """Return one above the last offset of a segment, from its end where that is whole."""
    try:
        found = segment.end_offset_of_tail()
    except (CorruptRecordError, InvalidRecordError, ValueError):
        found = None
    return segment.scan().next_offset if found is None else found


def _examine(
    context: SegmentContext,
    segments: list[LogSegment],
    first: int,
    clean: bool,
    recovery_point: int,
    findings: _Findings,
) -> None:
    findings.next_offset = segments[first].base_offset
    for slot, segment in enumerate(segments[first:], start=first):
        last = slot + 1 == len(segments)
        is_trusted = clean and last and not segment.file.excluded_bytes
        if is_trusted and _trust_tail(segment, recovery_point, findings):
            return
        following = None if last else segments[slot + 1].base_offset
        begin_offset = _begin_offset(segments, slot) if last else 0
        known_end = KnownEnd(recovery_point, recovery_point if clean else None, begin_offset)
        scan = _scan(context, segment, following, known_end, findings)
        if scan.whole_end < segment.size_bytes + segment.file.excluded_bytes:
            behind = segments[slot + 1 :]
            torn = not clean and recovery_point <= scan.next_offset < (following or 0)
            if torn and not any(map(_has_data, behind)):
                # The power went between a roll and the next sync: the tail of the log is here.
                _move_aside(context, behind, findings)
                del segments[slot + 1 :]
                last = True
                # Its last batch is judged as that of a log, which nothing behind it speaks for.
                known_end = known_end._replace(begin_offset=_begin_offset(segments, slot))
                scan = _scan(context, segment, None, known_end, findings)
        if last:
            durable_offset = max(recovery_point, scan.next_offset + 1) if clean else recovery_point
            _end_of_log(context, segment, scan, durable_offset, findings)
        else:
            _end_of_sealed(context, segments, slot, scan, findings)
        findings.last_scan = scan
        if last:
            # Its indexes wait until it is known what becomes of it.
            findings.unindexed = scan
            return
        _install_indexes(segment, scan, findings)


def _begin_offset(segments: Sequence[LogSegment], slot: int) -> int:
    """
    Return one above the last offset before a segment, 0 where none is sure.

    Asked for where it begins with a wrapper: the segment may be named by the last offset of that.
    """
    if not slot or not segments[slot].begins_with_wrapper():
        return 0
    try:
        return segments[slot - 1].end_offset_of_tail() or 0
    except (CorruptRecordError, InvalidRecordError, ValueError):
        return 0


def _record_lost_end(context: SegmentContext, findings: _Findings) -> None:
    """
    Note that the log ended higher, before anything is cut: its next epoch is another.

    Crash points: the cut is not made yet, or is; the note says the same until the epoch is written.
    """
    findings.has_lost_end = True
    if context.journal is not None and not context.read_only:
        context.journal.mark_end_uncertain()


def _has_data(segment: LogSegment) -> bool:
    """Say whether a segment has a whole batch, or a message of an old format."""
    if segment.size_bytes == 0:
        return False
    scan = segment.scan()
    return scan.batch_count > 0 or bool(scan.corrupt_ranges)


def _move_aside(context: SegmentContext, segments: list[LogSegment], findings: _Findings) -> None:
    """
    Remove segments without a whole batch that follow a torn tail; their bytes are kept.

    Crash points: after any file; what is left is found and removed again by the next start, in
    whatever order they went. All of them are gone from the disk before the torn tail in front of
    them is cut, or the log would end above the records that it lost.
    """
    if any(segment.size_bytes for segment in segments):
        _record_lost_end(context, findings)
    for segment in segments:
        files = SegmentFiles(context.directory, segment.base_offset)
        data = segment.file.whole()
        kept_in = None if segment.file.is_zero_from(0) else files.broken(FileKind.LOG, 0)
        if data:
            reason = status_name(segment.scan().tail_status)
            findings.cut.append(TruncatedTail(segment.path, 0, len(data), reason, kept_in))
        if not context.read_only:
            if kept_in is not None:
                _keep(context, kept_in, data, segment.file.holes())
            _remove_files(context, files)
        segment.close()
    if not context.read_only:
        context.filesystem.sync_directory(context.directory)


def _scan(
    context: SegmentContext,
    segment: LogSegment,
    following: int | None,
    known_end: KnownEnd,
    findings: _Findings,
) -> SegmentScan:
    scan = scan_file(
        segment.file,
        base_offset=segment.base_offset,
        interval=context.config.index_interval_bytes,
        offset_max=None if following is None else following - 1,
        known_end=known_end if following is None else None,
    )
    findings.facts.add(segment.base_offset, scan)
    findings.scanned_segments += 1
    findings.scanned_bytes += segment.size_bytes
    findings.scanned_batches += scan.batch_count
    findings.scanned_records += scan.record_count
    findings.next_offset = max(scan.next_offset, findings.next_offset)
    segment.mark_judged()
    return scan


def _trust_end(
    context: SegmentContext, segment: LogSegment, recovery_point: int, findings: _Findings
) -> bool:
    """
    Find the end of a cleanly closed log with as few looks as can be; False where anything is odd.

    Its indexes are looked at when they are needed. A small file is read, and not mapped.
    """
    size = segment.size_bytes
    if segment.file.excluded_bytes:
        return False
    try:
        data: memoryview | bytes = b""
        if size > SMALL_FILE_BYTES:
            start = _tail_start(segment, recovery_point)
            data = segment.file.read(start, size - start)
            size = len(data)
            tail = scan_batches(data, next_offset=segment.base_offset)
        else:
            if size:
                found = read_file(context.filesystem, segment.path, max_bytes=2 * size)
                data = b"" if found is None else found[:size]
            tail = scan_batches(data, 0, next_offset=segment.base_offset)
    except (CorruptRecordError, InvalidRecordError, ValueError):
        return False
    if tail.status != OK or len(data) < size:
        return False
    if not _is_believable_end(segment, tail.next_offset, recovery_point):
        return False
    findings.next_offset = max(segment.base_offset, tail.next_offset)
    return True


def _tail_start(segment: LogSegment, recovery_point: int) -> int:
    """Return where the tail begins: at 0 where only the batches before confirm the last one."""
    return segment.tail_position() if recovery_point > 0 else 0


def _is_believable_end(segment: LogSegment, next_offset: int, recovery_point: int) -> bool:
    """
    Say whether a log that was closed in order may end there.

    Its recovery point was its end then. An older one, of somebody who could not write it, costs a
    look at the segment; one of 0 says nothing.
    """
    fits = next_offset - 1 <= segment.offset_max
    return fits and (recovery_point <= 0 or next_offset <= recovery_point)


def _trust_tail(segment: LogSegment, recovery_point: int, findings: _Findings) -> bool:
    """Take the end of a cleanly closed log from its last batches; False where anything is odd."""
    try:
        if segment.size_bytes == 0:
            scan = SegmentScan(next_offset=segment.base_offset)
        else:
            start = _tail_start(segment, recovery_point)
            data = segment.file.read(start, segment.size_bytes - start)
            tail = scan_batches(data, next_offset=segment.base_offset)
            if tail.status != OK:
                return False
            if not _is_believable_end(segment, tail.next_offset, recovery_point):
                return False
            # A damaged beginning costs a look at the whole segment.
            read_header(segment.file, 0)
            scan = segment.summary(tail.next_offset)
    except (CorruptRecordError, InvalidRecordError):
        return False
    if segment.offset_index.was_rebuilt or segment.time_index.was_rebuilt:
        indexes = (segment.offset_index, segment.time_index)
        findings.rebuilt.extend(index.path for index in indexes if index.was_rebuilt)
    findings.next_offset = max(findings.next_offset, scan.next_offset)
    findings.last_scan = scan
    return True


def _cut_lost_tail(context: SegmentContext, segment: LogSegment, following: int) -> None:
    """
    Cut the preallocated tail that a crash has given back to the last segment that is not scanned.

    Its cut at the roll may have had no sync, where the segment ends at the recovery point; a sync
    has covered those of all segments before it (`LocalLog.sync`). Whatever the settings say now:
    later ones may not look for zeros. Crash points: before the cut is synced the zeros are there
    again, and the recovery point is what it was: the next start cuts them.
    """
    end = _end_before_zeros(segment, following)
    if end is not None:
        if not context.read_only:
            _cut_file(context, segment, end)
        segment.file.set_size(end)


def _skip_zeros(segment: LogSegment, following: int, context: SegmentContext) -> None:
    """
    End a segment that is not scanned before a preallocated tail that its writer left it.

    Zeros at the end are looked for only where files are, or may have been, preallocated: it costs a
    read for each segment.
    """
    if _may_be_preallocated(context, segment.size_bytes):
        end = _end_before_zeros(segment, following)
        if end is not None:
            segment.file.set_size(end)


def _end_before_zeros(segment: LogSegment, following: int) -> int | None:
    """Return where the zeros behind all batches of a segment begin; None where there are none."""
    size = segment.size_bytes
    # Most batches end with a zero, too: the ones behind the last index entry tell.
    if size == 0 or segment.file.read(size - 1, 1)[0]:
        return None
    data = segment.file.whole()
    tail = scan_batches(data, segment.tail_position(), next_offset=segment.base_offset)
    whole = tail.status != OK and tail.next_offset >= following
    return tail.position if whole and is_zero(data[tail.position :]) else None


def _may_be_preallocated(context: SegmentContext, size_bytes: int) -> bool:
    """Say whether zeros at the end of a file may have been made ahead of the appends."""
    return context.config.preallocate or size_bytes == context.config.segment_bytes


def _add_corrupt_ranges(
    segment: LogSegment, corrupt_ranges: Sequence[CorruptRange], findings: _Findings
) -> None:
    segment.add_corrupt_ranges(corrupt_ranges)
    findings.corrupt_ranges.extend(corrupt_ranges)


def _end_of_sealed(
    context: SegmentContext,
    segments: Sequence[LogSegment],
    slot: int,
    scan: SegmentScan,
    findings: _Findings,
) -> None:
    """
    Fence what is left at the end of a segment that others follow, or cut a preallocated tail.

    Crash points: before the cut is synced the zeros are there again, above a recovery point that
    has not risen yet, and the next start cuts them.
    """
    segment, following = segments[slot], segments[slot + 1].base_offset
    file = segment.file
    size = file.size_bytes - scan.whole_end
    is_preallocated = scan.next_offset >= following and file.is_zero_from(scan.whole_end)
    if (size or file.excluded_bytes) and is_preallocated:
        # It was never trimmed; nothing is missing. Later settings may not say that files are
        # preallocated, and nobody would look for zeros then.
        if not context.read_only:
            _cut_file(context, segment, scan.whole_end)
        file.set_size(scan.whole_end)
        file.include_excluded()
        size = 0
    corrupt_ranges = list(scan.corrupt_ranges)
    if size:
        corrupt_ranges = _with_tail(segment, scan, following)
    elif scan.next_offset < following and not scan.ends_in_corrupt_range:
        corrupt_ranges += find_hole(segments, segment, scan.next_offset, following)
    _add_corrupt_ranges(segment, corrupt_ranges, findings)


def _with_tail(segment: LogSegment, scan: SegmentScan, next_offset: int) -> list[CorruptRange]:
    """Return the damaged ranges of a segment with what is left at its end as one of them."""
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
    """End a file at `size_bytes`, on the disk too."""
    segment.file.drop_mapping()
    handle = context.filesystem.open(segment.path, write=True)
    try:
        handle.truncate(size_bytes)
        handle.sync()
    finally:
        handle.close()


def _end_of_log(
    context: SegmentContext,
    segment: LogSegment,
    scan: SegmentScan,
    durable_offset: int,
    findings: _Findings,
) -> None:
    """Cut a torn tail, or fence damage to what was durable."""
    file = segment.file
    size = file.size_bytes - scan.whole_end
    zeros = file.is_zero_from(scan.whole_end)
    corrupt_ranges = list(scan.corrupt_ranges)
    is_corrupt = scan.next_offset < durable_offset and not zeros
    if is_corrupt:
        corrupt_ranges = _with_tail(segment, scan, durable_offset)
    if is_corrupt or scan.ends_in_corrupt_range:
        # The last batch is whole, and lies: what follows it comes behind all that it may have.
        corrupt_ranges[-1] = replace(
            corrupt_ranges[-1], next_offset=max(corrupt_ranges[-1].next_offset, durable_offset)
        )
        findings.next_offset = corrupt_ranges[-1].next_offset
        findings.last_is_corrupt = True
    if is_corrupt or any(
        corrupt_range.next_offset > durable_offset for corrupt_range in corrupt_ranges
    ):
        # Damage that was found before lies below the recovery point of that recovery.
        _record_lost_end(context, findings)
    _add_corrupt_ranges(segment, corrupt_ranges, findings)
    if (size or file.excluded_bytes) and not is_corrupt:
        _cut(context, segment, scan, findings)


def _cut(
    context: SegmentContext,
    segment: LogSegment,
    scan: SegmentScan,
    findings: _Findings,
) -> None:
    """Cut a torn tail; its bytes are kept aside."""
    size = segment.size_bytes - scan.whole_end
    torn = segment.file.read(scan.whole_end, size)
    size += segment.file.excluded_bytes
    zeros = segment.file.is_zero_from(scan.whole_end)
    kept_in = None
    is_room = zeros and _may_be_preallocated(context, segment.size_bytes)
    if not is_room:
        _record_lost_end(context, findings)
    if not zeros:
        kept_in = SegmentFiles(context.directory, segment.base_offset).broken(
            FileKind.LOG, scan.whole_end
        )
    findings.cut.append(
        TruncatedTail(segment.path, scan.whole_end, size, status_name(scan.tail_status), kept_in)
    )
    segment.file.excluded_bytes = 0
    if context.read_only:
        segment.file.set_size(scan.whole_end)
        return
    if kept_in is not None:
        start = scan.whole_end
        holes = [(max(a - start, 0), b - start) for a, b in segment.file.holes() if b > start]
        _keep(context, kept_in, torn, holes)
    del torn
    _cut_file(context, segment, scan.whole_end)
    segment.file.set_size(scan.whole_end)
    logger.warning("cut %d torn bytes at position %d of %s", size, scan.whole_end, segment.path)


def _keep(context: SegmentContext, side_file: Path, torn: memoryview, holes: Holes) -> None:
    """Write torn bytes to their side file, behind others that were cut at the same place before."""
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
    """Say whether a file ends with these bytes, without a look at the zeros of the holes."""
    start = handle.size() - len(data)
    return start >= 0 and all(
        handle.pread(behind - first, start + first) == data[first:behind]
        for first, behind in pieces_between(holes, 0, len(data))
    )


def _record_missing_end(segment: LogSegment, recovery_point: int, findings: _Findings) -> None:
    """Tell of a log that ends, without damage, below what was on the disk once."""
    corrupt_range = CorruptRange(
        path=segment.path,
        position=segment.size_bytes,
        size_bytes=0,
        first_offset=findings.next_offset,
        next_offset=recovery_point,
        reason="TRUNCATED",
    )
    segment.add_corrupt_ranges([corrupt_range])
    findings.corrupt_ranges.append(corrupt_range)
    findings.next_offset = recovery_point
    findings.last_is_corrupt = True


def _install_indexes(segment: LogSegment, scan: SegmentScan, findings: _Findings) -> None:
    """Give a scanned segment the indexes that its batches call for."""
    for index, entries in _required_indexes(segment, scan):
        if index.replace(entries):
            findings.rebuilt.append(index.path)


def _install_last_indexes(
    context: SegmentContext, segment: LogSegment, findings: _Findings
) -> None:
    """As `_install_indexes`, for a last segment that was scanned."""
    scan = findings.unindexed
    if scan is None:
        return
    if context.read_only or findings.last_is_corrupt:
        _install_indexes(segment, scan, findings)
        return
    # It takes appends, and begins with files of its own: they are not written twice.
    for index, entries in _required_indexes(segment, scan):
        if not index.reads_as(entries):
            findings.rebuilt.append(index.path)


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
    if segments and not context.read_only and not findings.last_is_corrupt:
        last = segments[-1]
        # After a clean stop, or by the syncs of this recovery.
        last.file.mark_synced()
        if is_released:
            last.is_released = True
        else:
            last.file.open_for_append()
            last.activate(findings.last_scan)
    local = LocalLog(
        context,
        LogSegments(segments or [_placeholder(context, end_offset)]),
        end_offset=end_offset,
        start_offset=start_offset,
    )
    if not context.read_only and (not segments or findings.last_is_corrupt):
        fresh = local.create_segment(end_offset)
        kept = local.snapshot.segments if segments else LogSegments([])
        local.replace_all(local.snapshot.replace(segments=kept.with_segment(fresh), end_position=0))
    return local


def _placeholder(context: SegmentContext, base_offset: int) -> LogSegment:
    return open_segment(context, base_offset)


def _remove_all(
    context: SegmentContext, segments: list[LogSegment], cleanup: StartupCleanup
) -> None:
    """
    Remove segments that lie below the log start.

    Crash points: after any file; the next start removes what is left. None may stay beside the
    segment that is made in their place, which would hide from later starts that they are to go.
    """
    for segment in segments:
        segment.close()
        files = SegmentFiles(context.directory, segment.base_offset)
        cleanup.removed.extend(_remove_files(context, files))
    context.filesystem.sync_directory(context.directory)


def _remove_files(context: SegmentContext, files: SegmentFiles) -> list[Path]:
    present = [path for path in files if context.filesystem.stat(path) is not None]
    for path in present:
        context.filesystem.unlink(path)
    return present
