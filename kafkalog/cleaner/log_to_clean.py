"""One consistent view of a log for plans, explanations, surveys and staging.

The view is taken at one moment without a lock. Later appends and deletions do not change it, and
the writer of the log may be another process. It does not clean anything.

Thread-safety: immutable; reads take no lock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from kafkalog._core.batch import BatchColumns, scan_batches
from kafkalog._engine.snapshot import LogSnapshot
from kafkalog.cleaner.decoded_chunks import ChunkReader, DecodedChunk
from kafkalog.cleaner.record_filter import CleaningRules, LastProducerBatch
from kafkalog.cleaner.segment_runs import read_runs
from kafkalog.cleaner.selection import (
    CleanableRange,
    CleaningCandidate,
    LogCleaningFacts,
    SegmentCleaningFacts,
    cleanable_range,
    cleaning_candidate,
)
from kafkalog.cleaner.transactions import TransactionTracker
from kafkalog.config import LogConfig
from kafkalog.files.errors import storage_errors
from kafkalog.indexes.kinds import OFFSET_INDEX, TIME_INDEX
from kafkalog.log.aborted import aborted_between
from kafkalog.log.cleaner_access import cleaner_access
from kafkalog.log.cleaning_facts import cleaning_facts
from kafkalog.log.conversion.source import SegmentSource
from kafkalog.log.log import Log
from kafkalog.log.partition import PRODUCER_EXPIRATION_MS
from kafkalog.log.producer_replay import load_states, replay_segments
from kafkalog.log.segment import LogSegment
from kafkalog.log.segment_types import SegmentContext
from kafkalog.model import TopicPartition
from kafkalog.records.conversion.conversion_units import FileRecords
from kafkalog.records.memory_walk import walk_memory
from kafkalog.state.producers import OpenTransaction

__all__ = ["LogToClean", "log_to_clean"]

_CUT_BATCHES: Final = 4096
# Size of a run, and so the step of progress reports.
_RUN_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class LogToClean:
    """
    Facts of a log before its batches are read.

    Attributes:
        topic_partition: name of the log.
        config: settings of the log.
        now_ms: the time of the view.
        facts: segments and offsets. With `include_active` the list ends with one more, empty
            segment, which a roll would create.
        checkpoint: first dirty offset by the checkpoint file; None if it has no entry.
        last_batches: last batch of each live producer.
        open_transactions: the earliest first.
        modified_ms: time of the last write of each segment file, -1 if the file does not exist.
    """

    topic_partition: TopicPartition
    config: LogConfig
    now_ms: int
    facts: LogCleaningFacts
    checkpoint: int | None
    last_batches: Mapping[int, LastProducerBatch]
    open_transactions: tuple[OpenTransaction, ...]
    modified_ms: tuple[int, ...]
    _context: SegmentContext
    _snapshot: LogSnapshot

    def span(self) -> CleanableRange:
        """Return the cleanable range of offsets."""
        return cleanable_range(
            self.facts,
            checkpoint=self.checkpoint,
            now_ms=self.now_ms,
            min_lag_ms=self.config.min_compaction_lag_ms,
        )

    def candidate(self) -> CleaningCandidate:
        """Return the log as a candidate for a cleaning, with its dirty ratio."""
        return cleaning_candidate(
            self.topic_partition,
            self.facts,
            self.span(),
            now_ms=self.now_ms,
            max_lag_ms=self.config.max_compaction_lag_ms,
            min_dirty_ratio=self.config.min_cleanable_dirty_ratio,
        )

    def boundary(self, span: CleanableRange) -> int:
        """
        Return the end of a cleaning: the base of the first segment that must wait.

        It is below the first dirty offset if the last cleaning ended within that segment.
        """
        return self.facts.segments[self.slot_of(span.first_uncleanable)].base_offset

    def slot_of(self, offset: int) -> int:
        """Return the slot of the segment that holds an offset."""
        return max(0, bisect_right(self.facts.segments, offset, key=_base_of) - 1)

    def slots_between(self, start_offset: int, end_offset: int) -> range:
        """Return the slots from the segment that holds `start_offset`, to bases below the end."""
        if start_offset >= end_offset:
            return range(0)
        end = bisect_left(self.facts.segments, end_offset, key=_base_of)
        return range(self.slot_of(start_offset), min(end, len(self._snapshot.segments)))

    def runs(
        self, slot: int, start_offset: int = 0, end_offset: int | None = None
    ) -> Iterator[FileRecords]:
        """
        Yield the batches of a segment, from the batch that holds an offset on.

        Args:
            slot: slot of the segment.
            start_offset: an offset of the first batch.
            end_offset: batches with this base offset or a higher one are left out.

        Raises:
            CorruptRecordError: a batch is damaged.
            LogStorageError: the disk failed.
        """
        segment, bound = self._snapshot.segments.segments[slot], self._snapshot.read_bound(slot)
        start = max(segment.base_offset, start_offset)
        with storage_errors(segment.path, doing="reading"):
            for run in read_runs(SegmentSource(segment, bound, start), _RUN_BYTES):
                if end_offset is None or bound.following_offset <= end_offset:
                    yield run
                    continue
                cut = _cut(run, end_offset)
                if cut:
                    yield run._replace(data=run.data[:cut])
                if cut < len(run.data):
                    return

    def chunk_at(self, offset: int) -> DecodedChunk | None:
        """Return the decoded batch that covers an offset; None if no batch covers it."""
        for run in self.runs(self.slot_of(offset), offset):
            columns = BatchColumns(1)
            scan_batches(run.data, columns=columns, check_crc=False)
            batch = run._replace(data=run.data[: int(columns.size_bytes[0])])
            reader = ChunkReader(self.config.decompressed_max_bytes)
            chunk = next(iter(reader.chunks(batch)))
            begins = int(chunk.header("base_offset")[0])
            if len(chunk.columns):
                # The header of a wrapper has its last offset as its base offset.
                begins = min(begins, int(chunk.columns.offset[0]))
            return chunk if begins <= offset else None
        return None

    def key_at(self, offset: int) -> bytes | None:
        """Return the key of the record at an offset, which was read before."""
        chunk = self.chunk_at(offset)
        if chunk is None:
            raise AssertionError(f"the record at offset {offset} was read before, and is missing")
        return chunk.key_of(int(np.searchsorted(chunk.columns.offset, offset)))

    def tracker(self, start_offset: int, end_offset: int) -> TransactionTracker:
        """Return a tracker with the transactions that were aborted between two offsets."""
        return TransactionTracker(
            lambda: aborted_between(self._context, self._snapshot, start_offset, end_offset)
        )

    def rules(self, end_offset: int) -> CleaningRules:
        """Return the rules of a cleaning up to an offset."""
        return CleaningRules(
            now_ms=self.now_ms,
            delete_retention_ms=self.config.delete_retention_ms,
            end_offset=end_offset,
            last_batches=self.last_batches,
            max_message_bytes=self.config.max_message_bytes,
        )

    def old_tombstones_stay(self, slot: int, first_dirty: int) -> bool:
        """Return whether tombstones of old formats stay in a segment: see `old_horizon_ms`."""
        until = self.old_horizon_ms(first_dirty)
        return until is None or self.modified_ms[slot] > until

    def old_horizon_ms(self, first_dirty: int) -> int | None:
        """
        Return the time after which a segment must be written to keep tombstones of old formats.

        That is the time of the last clean segment less the retention. None if no segment is clean:
        then all tombstones stay.
        """
        clean = bisect_left(self.facts.segments, first_dirty, key=_base_of)
        if clean == 0:
            return None
        last = min(clean, len(self.modified_ms)) - 1
        return self.modified_ms[last] - self.config.delete_retention_ms


def log_to_clean(
    log: Log,
    *,
    include_active: bool = False,
    checkpoint: int | None = None,
    now_ms: int | None = None,
) -> LogToClean:
    """
    Take the view of a log.

    Args:
        log: an open log, read-only or not.
        include_active: whether the active segment would be rolled first.
        checkpoint: first dirty offset; that of the checkpoint file if None.
        now_ms: the time; that of the clock if None.

    Raises:
        LogStorageError: the disk failed.
    """
    # Read before the snapshot, so that everything below it is stable in the snapshot.
    stable = log.last_stable_offset
    access = cleaner_access(log)
    snapshot, context = access.snapshot(), access.context
    now_ms = context.clock.now_ms() if now_ms is None else now_ms
    with storage_errors(log.directory, doing="reading"):
        facts = cleaning_facts(context, snapshot, stable)
        if include_active and facts.segments[-1].size_bytes:
            sealed = _sealed(facts.segments[-1], snapshot.segments.active)
            rolled = SegmentCleaningFacts(snapshot.end_offset, 0)
            facts = replace(facts, segments=(*facts.segments[:-1], sealed, rolled))
        modified = tuple(_modified_ms(segment, context) for segment in snapshot.segments.segments)
        first_offset = snapshot.segments.segments[0].base_offset
        states = load_states(
            context.filesystem, context.directory, first_offset, snapshot.end_offset
        )
        replay_segments(states, snapshot)
    if log.is_read_only:
        # From batches and snapshots: the writer of the log may have removed some producers since.
        states.remove_expired(now_ms, PRODUCER_EXPIRATION_MS)
        last_batches: Mapping[int, LastProducerBatch] = {
            producer: LastProducerBatch(
                entry.last_offset if entry.batches else None, entry.producer_epoch
            )
            for producer, entry in states.entries.items()
        }
    else:
        last_batches = access.last_batches()
    return LogToClean(
        topic_partition=log.topic_partition,
        config=log.config,
        now_ms=now_ms,
        facts=facts,
        checkpoint=access.cleaner_offset if checkpoint is None else checkpoint,
        last_batches=last_batches,
        open_transactions=tuple(states.open_transactions()),
        modified_ms=modified,
        _context=context,
        _snapshot=snapshot,
    )


def _base_of(segment: SegmentCleaningFacts) -> int:
    return segment.base_offset


def _cut(run: FileRecords, end_offset: int) -> int:
    """Return the end of the batches whose base offset is below an offset."""
    columns = BatchColumns(_CUT_BATCHES)
    for step in walk_memory(run.data, columns, path=run.path, origin=run.position):
        beyond = np.flatnonzero(columns.base_offset[: step.count] >= end_offset)
        if len(beyond):
            return int(columns.position[beyond[0]])
    return len(run.data)


def _sealed(facts: SegmentCleaningFacts, segment: LogSegment) -> SegmentCleaningFacts:
    """Return the facts of the active segment after a roll, which trims its index files."""
    times = segment.time_index.view
    is_last_there = len(times) > 0 and times.entry(len(times) - 1)[0] >= segment.max_timestamp
    # Sealing adds an entry of the largest timestamp if the index does not have it.
    time_count = len(times) + (segment.max_timestamp >= 0 and not is_last_there)
    return replace(
        facts,
        offset_index_bytes=len(segment.offset_index.view) * OFFSET_INDEX.entry_size,
        time_index_bytes=time_count * TIME_INDEX.entry_size,
    )


def _modified_ms(segment: LogSegment, context: SegmentContext) -> int:
    facts = context.filesystem.stat(segment.path)
    return -1 if facts is None else facts.modified_ms
