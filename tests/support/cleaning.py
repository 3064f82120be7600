"""Both passes of a cleaning over bytes in memory, for tests of what stays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kafkalog._core.offset_map import OffsetMap
from kafkalog.cleaner.cleaning_result import CleaningStatistics
from kafkalog.cleaner.keys import KeyCollector
from kafkalog.cleaner.record_filter import (
    CleaningRules,
    LastProducerBatch,
    RecordFilter,
    RetentionMask,
)
from kafkalog.cleaner.transactions import TransactionTracker
from kafkalog.indexes.transaction_index import AbortedTransaction
from kafkalog.records.conversion.conversion_units import FileRecords

__all__ = ["Cleaned", "SegmentCleaning", "offset_map_of"]

SECRET = bytes(range(16))
# The largest number of bytes of marks: some tests exceed it.
MARKS_MAX = 4096


def offset_map_of(entries: int) -> OffsetMap:
    """Return a map for so many keys."""
    return OffsetMap(bytearray(24 * max(1, entries)), load_factor=1.0, secret=SECRET)


@dataclass(frozen=True)
class Cleaned:
    """The output of a cleaning: a run for each input run, and its results."""

    runs: list[bytes]
    statistics: CleaningStatistics
    aborted: list[AbortedTransaction]
    offset_map: OffsetMap

    @property
    def data(self) -> bytes:
        """All runs together."""
        return b"".join(self.runs)


@dataclass(frozen=True)
class SegmentCleaning:
    """
    A cleaning to be: from `first_dirty` to `end_offset`, at the time `now_ms`.

    Attributes:
        old_tombstones_stay: for all runs of old formats.
        entries: keys that the map takes.
    """

    end_offset: int
    first_dirty: int = 0
    now_ms: int = 0
    delete_retention_ms: int = 0
    last_batches: Mapping[int, LastProducerBatch] = field(default_factory=dict)
    aborted: Sequence[AbortedTransaction] = ()
    old_tombstones_stay: bool = True
    entries: int = 10_000
    max_message_bytes: int = 1 << 20

    def rules(self) -> CleaningRules:
        """Return what the second pass goes by."""
        return CleaningRules(
            now_ms=self.now_ms,
            delete_retention_ms=self.delete_retention_ms,
            end_offset=self.end_offset,
            last_batches=self.last_batches,
            max_message_bytes=self.max_message_bytes,
        )

    def _tracker(self) -> TransactionTracker:
        transactions = TransactionTracker()
        transactions.add_aborted(self.aborted)
        return transactions

    def clean(self, runs: Iterable[bytes]) -> Cleaned:
        """
        Build the map of what is dirty and filter all runs.

        With marks, without, and piece by piece: it is the same.
        """
        runs = list(runs)
        looked_up = self._clean(runs, 0)
        marks_size = min((self.end_offset - self.first_dirty) // 8 + 1, MARKS_MAX)
        marked = self._clean(runs, marks_size)
        for other in (looked_up, self._clean(runs, marks_size, in_pieces=True)):
            assert other.runs == marked.runs
            assert other.statistics == marked.statistics
            assert other.aborted == marked.aborted
            assert len(other.offset_map) == len(marked.offset_map)
        return marked

    def _clean(self, runs: Sequence[bytes], marks_size: int, *, in_pieces: bool = False) -> Cleaned:
        offset_map = offset_map_of(self.entries)
        offset_map.mark(bytearray(max(0, marks_size)), self.first_dirty)
        collector = KeyCollector(offset_map, self._tracker(), uses_fast_path=not in_pieces)
        full = any(
            not collector.add(FileRecords(memoryview(run)), start_offset=self.first_dirty)
            for run in runs
        )
        if not full:
            offset_map.advance_to(self.end_offset - 1)
        transactions = self._tracker()
        chunks: list[RetentionMask] = []
        record_filter = RecordFilter(
            offset_map,
            self.rules(),
            transactions,
            on_chunk=(lambda _chunk, mask: chunks.append(mask)) if in_pieces else None,
        )
        kept = [
            b"".join(
                bytes(part)
                for part in record_filter.filter(
                    FileRecords(memoryview(run)), old_tombstones_stay=self.old_tombstones_stay
                )
            )
            for run in runs
        ]
        assert not in_pieces or chunks or not any(runs)
        return Cleaned(kept, record_filter.statistics, transactions.pop_kept(), offset_map)
