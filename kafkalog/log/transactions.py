"""Verification of the transaction indexes of a log against the batches of its segments.

Aborted records are a fact of the log: of its transactional batches and their markers. A `.txnindex`
only saves a walk, and nothing in a segment shows that there has to be one. So before an index is
believed for the first time, the headers of its segment are walked, and its markers read:

  * each abort marker must have its entry. If an entry is missing, the batches are replayed from the
    newest producer snapshot below the segment, and the result is put into the index, on the disk
    too; a marker that found no open transaction has none;
  * no entry may name another batch as its marker, or an offset after the segment: a truncation that
    a crash interrupted leaves entries of removed markers, whose offsets are soon used again;
  * no entry may begin at or below the previous marker of its producer, or above the first batch of
    its transaction, nor have a stable offset above an open one: no checksum covers the file. For a
    transaction that began before its segment, the producers at the segment's base decide.

A contradiction of an index is recorded with its segment (`RepairedIndex`), if it was on the disk
before the log was opened, by an orderly close or below the recovery point: entries that a crash
removed, or left, are repaired without a report, and so is a missing file.

An index that the log itself has kept since its segment was begun needs no such look. Those of
segments that a recovery has scanned are looked at by it: once the log is closed in order, a broker
believes what files there are, and returns as committed what none of them calls aborted.

Crash points: those of `TransactionIndex.replace`. A repair that the disk refuses counts in memory.

Thread-safety: questions may be asked by any thread, on a snapshot of the log and without its lock.
Repairs, and additions of the writer, exclude each other by the context's `repair_lock`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog._core.batch import BatchColumns
from kafkalog.errors import CorruptStateError, KafkaLogError, LogStorageError
from kafkalog.files.names import FileKind, SegmentFiles
from kafkalog.indexes.transaction_index import (
    ENTRY_SIZE,
    AbortedTransaction,
    TransactionIndex,
)
from kafkalog.layout import CONTROL_MASK, TRANSACTIONAL_MASK
from kafkalog.log.producer_replay import aborted_of, load_states, replay_segments
from kafkalog.log.reading import walk_whole_segment
from kafkalog.log.report import RepairedIndex
from kafkalog.log.segment_transactions import KEPT, SegmentTransactions
from kafkalog.log.segment_types import SegmentContext
from kafkalog.records.batch_view import BatchView
from kafkalog.records.control import ControlType
from kafkalog.settings import LONG_MAX
from kafkalog.state.producer_snapshot import read_snapshot

if TYPE_CHECKING:
    from kafkalog._engine.snapshot import LogSnapshot
    from kafkalog.errors import CorruptIndexError
    from kafkalog.log.segment import LogSegment

__all__ = [
    "add_aborted",
    "is_abort_marker",
    "recover_indexes",
    "repaired_indexes",
    "verified_index",
    "verify_index",
]

WALK_BATCHES: Final = 4096

logger = logging.getLogger(__name__)


def verify_index(context: SegmentContext, snapshot: LogSnapshot, slot: int) -> RepairedIndex | None:
    """
    Repair the index of a segment by its batches; return the contradictions.

    Raises:
        OSError, LogStorageError: the disk refused.
    """
    verified_index(context, snapshot, slot)
    return snapshot.segments.segments[slot].transactions.repaired


def repaired_indexes(segments: Iterable[LogSegment]) -> tuple[RepairedIndex, ...]:
    """Return the indexes that were found to contradict their segments."""
    found = (segment.transactions.repaired for segment in segments)
    return tuple(each for each in found if each is not None)


def recover_indexes(
    context: SegmentContext, snapshot: LogSnapshot, scanned: Mapping[int, bool]
) -> tuple[RepairedIndex, ...]:
    """
    Repair the indexes of segments that were scanned after a crash.

    Returned are those that were wrong already before the crash.

    Crash points: any. Until the recovery point rises the next opening does it again.

    Args:
        context, snapshot: the log as it was recovered.
        scanned: bases of segments, each with whether it has markers. One without is looked at if
            it has an index: of markers that the crash took.

    Raises:
        OSError, LogStorageError: the disk refused.
    """
    for slot, segment in enumerate(snapshot.segments.segments):
        if segment.base_offset not in scanned:
            continue
        path = segment.transactions.index.path
        if scanned[segment.base_offset] or context.filesystem.stat(path) is not None:
            verified_index(context, snapshot, slot)
    return repaired_indexes(snapshot.segments.segments)


def add_aborted(
    context: SegmentContext, snapshot: LogSnapshot, transactions: Sequence[AbortedTransaction]
) -> None:
    """
    Enter transactions whose markers were just appended; never fails, the log has the markers.

    Args:
        context: settings and parts that the segments of the log share.
        snapshot: the log with the markers.
        transactions: all transactions of one append, by their markers. An index that was not
            verified yet is compared with the batches first, which would report omitted ones.
    """
    by_slot: dict[int, list[AbortedTransaction]] = {}
    for each in transactions:
        by_slot.setdefault(snapshot.segments.floor_slot(each.last_offset), []).append(each)
    for slot, fresh in by_slot.items():
        _add_to_segment(context, snapshot, slot, fresh)


def _add_to_segment(
    context: SegmentContext, snapshot: LogSnapshot, slot: int, fresh: list[AbortedTransaction]
) -> None:
    own = snapshot.segments.segments[slot].transactions
    with context.repair_lock:
        try:
            if own.verified_end != KEPT:
                _verify(context, snapshot, slot, fresh=fresh)
                own.record_verified(KEPT)
            for transaction in fresh:
                entries = own.index.entries()
                if not entries or entries[-1].last_offset < transaction.last_offset:
                    own.index.append(transaction)
        except (KafkaLogError, OSError, ValueError) as error:
            # The first reader that needs it computes it from the batches.
            logger.warning("%s lacks %s: %s", own.index.path, fresh, error)
            context.report(error)
            own.record_verified(-1)


def verified_index(context: SegmentContext, snapshot: LogSnapshot, slot: int) -> TransactionIndex:
    """Return the index of a segment, compared with its batches and repaired first."""
    own = snapshot.segments.segments[slot].transactions
    end = snapshot.read_bound(slot).end
    if own.verified_end < end:
        with context.repair_lock:
            if own.verified_end < end:
                _verify(context, snapshot, slot)
                own.record_verified(end)
    return own.index


def _verify(
    context: SegmentContext,
    snapshot: LogSnapshot,
    slot: int,
    *,
    fresh: Sequence[AbortedTransaction] = (),
) -> None:
    """Repair an index by its segment, except for transactions that the caller adds."""
    own: SegmentTransactions = snapshot.segments.segments[slot].transactions
    index = own.index
    was_verified = own.verified_end >= 0
    is_absent = not own.is_loaded and context.filesystem.stat(index.path) is None
    found = _compare(context, snapshot, slot, fresh)
    added: list[AbortedTransaction] = []
    if found.missing:
        added = [
            each
            for each in _replayed(context, snapshot, slot)
            if (each.producer_id, each.last_offset) in found.missing
        ]
    if found.damage is None and not added and not found.wrong:
        return
    is_late = found.is_followed and was_verified and found.damage is None and not found.wrong
    logger.log(
        logging.DEBUG if is_late else logging.WARNING,
        "%s contradicts its segment%s: %d entries are added, %d removed",
        index.path,
        "" if found.damage is None else f" ({found.damage})",
        len(added),
        len(found.wrong),
    )
    is_written = _replace(index, found.kept, added, lambda: _replayed(context, snapshot, slot))
    if not is_absent and own.repaired is None:
        is_written = is_written and not context.read_only
        own.record_repair(_contradiction(context, index.path, found, added, is_written=is_written))


@dataclass(slots=True)
class _Compared:
    """
    Comparison of an index with the batches of its segment.

    Attributes:
        damage: why its file cannot be believed at all, None if it can.
        kept: entries that match the batches.
        wrong: entries that do not.
        missing: producer and offset of abort markers without a kept entry.
        bounds: bounds of the transaction of each abort marker, by the batches.
        is_followed: whether the writer may be ahead of the snapshot, or late with the index.
        end_offset: one above the last offset of the segment.
    """

    damage: CorruptIndexError | None
    kept: list[AbortedTransaction]
    wrong: list[AbortedTransaction]
    missing: set[tuple[int, int]]
    bounds: Mapping[tuple[int, int], _Bounds]
    is_followed: bool
    end_offset: int


def _compare(
    context: SegmentContext, snapshot: LogSnapshot, slot: int, fresh: Sequence[AbortedTransaction]
) -> _Compared:
    segment = snapshot.segments.segments[slot]
    damage = segment.transactions.load()
    entries = segment.transactions.index.entries()
    walked = _MarkerWalk()
    walked.add_segment(snapshot, slot)
    bounds, others = walked.bounds, walked.spans
    allow_before = _allow_before(context, snapshot, slot, entries)
    markers = set(bounds) - {(each.producer_id, each.last_offset) for each in fresh}
    following = snapshot.segments.base_after(slot)
    end_offset = snapshot.end_offset if following is None else following
    # The writer may be ahead of the snapshot of the segment, or late with the index.
    is_followed = context.read_only and following is None
    kept: list[AbortedTransaction] = []
    wrong: list[AbortedTransaction] = []
    for each in entries:
        marker = each.producer_id, each.last_offset
        if marker in markers:
            is_early = each.first_offset < segment.base_offset
            is_right = bounds[marker].allow(each) and (not is_early or allow_before(each))
        # The offset of a marker that a compaction removed is never used again.
        elif each.last_offset >= end_offset:
            is_right = is_followed
        else:
            is_right = not others.contains(each.last_offset)
        (kept if is_right else wrong).append(each)
    missing = markers - {(each.producer_id, each.last_offset) for each in kept}
    return _Compared(damage, kept, wrong, missing, bounds, is_followed, end_offset)


def _contradiction(
    context: SegmentContext,
    path: Path,
    found: _Compared,
    added: Sequence[AbortedTransaction],
    *,
    is_written: bool,
) -> RepairedIndex | None:
    """Return what was wrong with an index that a crash does not explain, None where nothing was."""
    is_settled = found.end_offset <= context.settled_offset
    settled = LONG_MAX if is_settled else context.settled_offset
    lost = [each for each in added if each.last_offset < settled]
    if found.damage is not None:
        # The entries of synced markers come first; later ones may be from a crash.
        if not is_settled and (found.damage.position or 0) // ENTRY_SIZE >= len(lost):
            return None
        reason = str(found.damage).removeprefix(f"{path}: ")
        return RepairedIndex(path, reason, 0, len(lost), is_written)
    if _may_lack_markers(context):
        # Of an aborted transaction that has no records any more a cleaner leaves no entry.
        lost = [
            each
            for each in lost
            if found.bounds[each.producer_id, each.last_offset].first_data is not None
        ]
    wrong = [each for each in found.wrong if each.last_offset < settled]
    if not lost and not wrong:
        return None
    reason = (
        f"entries that contradict the batches: {len(wrong)}; aborted transactions"
        f" that lack one: {len(lost)}"
    )
    return RepairedIndex(path, reason, len(wrong), len(lost), is_written)


def _may_lack_markers(context: SegmentContext) -> bool:
    return "compact" in context.config.cleanup_policy or context.was_cleaned()


def _replace(
    index: TransactionIndex,
    kept: list[AbortedTransaction],
    added: list[AbortedTransaction],
    replay: Callable[[], list[AbortedTransaction]],
) -> bool:
    """Give an index its entries; return whether the disk took them."""
    try:
        try:
            index.replace(sorted((*kept, *added), key=lambda each: each.last_offset))
        except ValueError:
            # Entries of a broker that do not fit between ours: the batches alone count.
            index.replace(replay())
    except LogStorageError as error:
        logger.warning("%s is corrected in memory only: %s", index.path, error)
        return False
    return True


class _Spans:
    """The offsets that batches have."""

    def __init__(self) -> None:
        # Of control batches that cannot be read: an entry that names one is kept.
        self._unknown: set[int] = set()
        self._firsts: list[npt.NDArray[np.int64]] = []
        self._lasts: list[npt.NDArray[np.int64]] = []

    def add(self, columns: BatchColumns, count: int) -> None:
        """Add batches, which follow those that were added."""
        self._firsts.append(columns.base_offset[:count].copy())
        self._lasts.append(columns.last_offset[:count].copy())

    def add_unknown(self, offset: int) -> None:
        """Add the offset of a control batch that cannot be read."""
        self._unknown.add(offset)

    def contains(self, offset: int) -> bool:
        """Return whether an offset is that of a batch of a known kind."""
        if offset in self._unknown:
            return False
        for firsts, lasts in zip(self._firsts, self._lasts, strict=True):
            row = int(np.searchsorted(firsts, offset, "right")) - 1
            if row >= 0 and offset <= lasts[row]:
                return True
        return False


class _Bounds(NamedTuple):
    """
    Bounds of the transaction that an abort marker ended, by the batches of a segment.

    Attributes:
        marker_before: offset of the marker before of its producer, -1 where it is not here.
        first_data: base offset of its first batch that is here, None where there is none.
        first_open: lowest offset of a batch of other transactions that were open at the marker.
    """

    marker_before: int
    first_data: int | None
    first_open: int | None

    def allow(self, entry: AbortedTransaction) -> bool:
        """Return whether an entry of the index can be right."""
        if entry.first_offset <= self.marker_before:
            return False
        if self.first_data is not None and entry.first_offset > self.first_data:
            return False
        if self.first_open is not None and entry.last_stable_offset > self.first_open:
            return False
        return entry.last_stable_offset <= entry.last_offset + 1


def _allow_before(
    context: SegmentContext, snapshot: LogSnapshot, slot: int, entries: Sequence[AbortedTransaction]
) -> Callable[[AbortedTransaction], bool]:
    """
    Return the check of entries that begin before a segment.

    A producer snapshot at the segment's base has the first offsets; without one, the batches
    between the lowest offset that an entry names and that base.
    """
    segments = snapshot.segments
    base_offset = segments.segments[slot].base_offset
    early = [each.first_offset for each in entries if each.first_offset < base_offset]
    if not early:
        return lambda _entry: True
    path = SegmentFiles(context.directory, base_offset).path(FileKind.SNAPSHOT)
    with contextlib.suppress(CorruptStateError):
        producers = read_snapshot(context.filesystem, path, end_offset=base_offset)
        if producers is not None:
            opened = {each.producer_id: each.transaction_first_offset for each in producers}
            return lambda entry: opened.get(entry.producer_id) == entry.first_offset
    walked = _MarkerWalk()
    for number in range(max(segments.floor_slot(min(early)), 0), slot):
        walked.add_segment(snapshot, number)
    return walked.allow_open


class _MarkerWalk:
    """
    Follows the transactions of segments from batch to batch.

    Attributes:
        bounds: producer and offset of each abort marker, and what its entry must keep to.
        spans: the offsets that batches have.
    """

    def __init__(self) -> None:
        self.bounds: dict[tuple[int, int], _Bounds] = {}
        self.spans = _Spans()
        self._opened: dict[int, int] = {}
        self._marked: dict[int, int] = {}

    def add_segment(self, snapshot: LogSnapshot, slot: int) -> None:
        """Add the batches of the next segment."""
        segment, bound = snapshot.segments.segments[slot], snapshot.read_bound(slot)
        columns = BatchColumns(WALK_BATCHES)
        end = 0
        for walked in walk_whole_segment(segment, bound, columns):
            if walked.position != end:
                # Skipped bytes may have had a marker: an open transaction may have ended.
                self._opened.clear()
            end = walked.end_position
            self._add(columns, walked.count, walked.data, walked.origin, segment.path)
        if end != bound.end:
            self._opened.clear()

    def allow_open(self, entry: AbortedTransaction) -> bool:
        """Return whether an entry can have the first offset of a transaction open at the end."""
        first_data = self._opened.get(entry.producer_id, entry.first_offset)
        return self._marked.get(entry.producer_id, -1) < entry.first_offset <= first_data

    def _add(
        self, columns: BatchColumns, count: int, data: memoryview, origin: int, path: Path
    ) -> None:
        self.spans.add(columns, count)
        is_control = (columns.attributes[:count] & CONTROL_MASK) != 0
        is_data = (columns.attributes[:count] & TRANSACTIONAL_MASK) != 0
        # A batch that a compaction emptied may be of a transaction whose marker it took.
        is_data &= columns.record_count[:count] > 0
        matters = (is_control | is_data) & (columns.producer_id[:count] >= 0)
        for row in np.flatnonzero(matters).tolist():
            producer_id, offset = int(columns.producer_id[row]), int(columns.base_offset[row])
            if is_control[row]:
                start, size = int(columns.position[row]), int(columns.size_bytes[row])
                batch = BatchView(data[start : start + size], path=path, position=origin + start)
                self._end(producer_id, offset, batch)
            else:
                self._opened.setdefault(producer_id, offset)

    def _end(self, producer_id: int, offset: int, batch: BatchView) -> None:
        first_data = self._opened.pop(producer_id, None)
        try:
            is_abort = is_abort_marker(batch)
        except KafkaLogError:
            self.spans.add_unknown(batch.header.last_offset)
            return
        if is_abort:
            before = self._marked.get(producer_id, -1)
            first_open = min(self._opened.values(), default=None)
            self.bounds[producer_id, offset] = _Bounds(before, first_data, first_open)
        self._marked[producer_id] = offset


def is_abort_marker(batch: BatchView) -> bool:
    """Return whether a control batch ends a transaction that was aborted."""
    record = next(iter(batch.control_records()), None)
    return record is not None and record.type is ControlType.ABORT


def _replayed(
    context: SegmentContext, snapshot: LogSnapshot, slot: int
) -> list[AbortedTransaction]:
    """Return the aborted transactions of a segment, as its batches and earlier ones show them."""
    segments = snapshot.segments
    base_offset = segments.segments[slot].base_offset
    first_offset = segments.segments[0].base_offset
    states = load_states(
        context.filesystem, context.directory, first_offset, base_offset, at_start=True
    )
    completed = replay_segments(states, snapshot, last_slot=slot)
    return [each for each in aborted_of(completed) if each.last_offset >= base_offset]
