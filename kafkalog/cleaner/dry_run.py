"""Both passes of a cleaning over a log that is only read: everything but the writing.

The first pass fills the map as a cleaning would, within the same memory. The second lets the same
filter decide about every batch, and measures what it returns; the bytes are let go.

Thread-safety: none; one caller at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from kafkalog._core.offset_map import OffsetMap
from kafkalog.cleaner.key_room import KeyRoom
from kafkalog.cleaner.keys import KeyCollector
from kafkalog.cleaner.pieces import Piece
from kafkalog.cleaner.retained import BatchFilter, CleaningRules, Verdicts
from kafkalog.cleaner.subject import CleaningSubject
from kafkalog.cleaner.transactions import TransactionTracker
from kafkalog.layout import CONTROL_MASK, MAGIC_V2

__all__ = [
    "CountingFilter",
    "FirstPass",
    "KeyRoom",
    "collect_keys",
    "estimate_keys",
    "first_pass",
]

# Of a log with too many keys, one in so many parts of them is counted to know how many there are.
_SAMPLED_PARTS: Final = 64

# Is told how many bytes were gone through.
Tell = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class FirstPass:
    """
    What a first pass found.

    Attributes:
        offset_map: the keys.
        end_offset: cleaning goes up to here.
        key_count: different keys of the whole dirty part.
        is_estimate: whether they were not all counted, but one part of them.
        records_read, bytes_read: of one pass.
    """

    offset_map: OffsetMap
    end_offset: int
    key_count: int
    is_estimate: bool
    records_read: int
    bytes_read: int


def first_pass(
    subject: CleaningSubject,
    first_dirty: int,
    end_offset: int,
    room: KeyRoom,
    tell: Tell | None = None,
) -> FirstPass:
    """
    Read the keys from one offset up to another, the base of a segment.

    Raises:
        CorruptRecordError: there is damage.
        LogStorageError: the disk failed.
    """
    offset_map = room.new_map()
    records, size, is_whole = collect_keys(subject, first_dirty, end_offset, offset_map, tell)
    if is_whole:
        offset_map.advance_to(end_offset - 1)
        return FirstPass(offset_map, end_offset, len(offset_map), False, records, size)
    reached = offset_map.latest_offset + 1
    key_count = estimate_keys(subject, first_dirty, end_offset, room)
    # The sample took the memory: the keys are read once more.
    offset_map = room.new_map()
    records, size, _ = collect_keys(subject, first_dirty, end_offset, offset_map, tell)
    return FirstPass(offset_map, reached, key_count, True, records, size)


def estimate_keys(
    subject: CleaningSubject, first_dirty: int, end_offset: int, room: KeyRoom
) -> int:
    """Return about how many different keys there are: those of one part, times the parts."""
    part_count = _SAMPLED_PARTS
    while True:
        offset_map = room.new_map(part_count=part_count)
        _, _, is_whole = collect_keys(subject, first_dirty, end_offset, offset_map, None)
        if is_whole:
            return max(offset_map.usable + 1, len(offset_map) * part_count)
        part_count *= _SAMPLED_PARTS


def collect_keys(
    subject: CleaningSubject,
    first_dirty: int,
    end_offset: int,
    offset_map: OffsetMap,
    tell: Tell | None,
) -> tuple[int, int, bool]:
    """
    Put the keys between two offsets into a map.

    Returns:
        Records and bytes read, and whether there was room for all keys.
    """
    collector = KeyCollector(
        offset_map,
        subject.tracker(first_dirty, end_offset),
        limit_bytes=subject.config.decompressed_max_bytes,
    )
    size = 0
    for slot in subject.slots_between(first_dirty, end_offset):
        for run in subject.runs(slot, first_dirty, end_offset):
            size += len(run.data)
            if not collector.add(run, start_offset=first_dirty):
                return collector.records_read, size, False
            if tell is not None:
                tell(len(run.data))
    return collector.records_read, size, True


class CountingFilter(BatchFilter):
    """
    A filter that also counts the tombstones that stay, by the time until which they do.

    Attributes:
        horizons: of batches of format v2, the count of tombstones by delete horizon.
        old_tombstones: of the old formats, which have none.
        markers: control records that stay only until their delete horizon, by that.
    """

    def __init__(
        self,
        offset_map: OffsetMap,
        rules: CleaningRules,
        transactions: TransactionTracker,
        *,
        limit_bytes: int,
    ) -> None:
        super().__init__(offset_map, rules, transactions, limit_bytes=limit_bytes)
        self.horizons: Counter[int] = Counter()
        self.markers: Counter[int] = Counter()
        self.old_tombstones = 0

    def _take_note(self, piece: Piece, verdicts: Verdicts) -> None:
        super()._take_note(piece, verdicts)
        is_control = piece.has_bits(CONTROL_MASK)
        is_tombstone = verdicts.keep & (piece.columns.value_size < 0)
        counts = np.diff(piece.first_rows)
        if not is_tombstone.any() and not is_control.any():
            return
        tombstones = piece.counts(is_tombstone & ~np.repeat(is_control, counts))
        markers = piece.counts(verdicts.keep & np.repeat(is_control, counts))
        is_old = piece.magic < MAGIC_V2
        self.old_tombstones += int(tombstones[is_old].sum())
        waiting = ~is_old & (verdicts.has_horizon != 0)
        for counter, found in ((self.horizons, tombstones), (self.markers, markers)):
            for batch in np.flatnonzero(waiting & (found > 0)).tolist():
                counter[int(verdicts.horizons[batch])] += int(found[batch])
