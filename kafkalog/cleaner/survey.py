"""Survey of a log: segments, live and dead bytes, tombstones, and the biggest keys.

A record is dead if a compaction of all stable offsets would remove it: of clean and dirty segments,
the active one too. The bytes of a record are its share of its batch, by the sizes of keys and
values.

All numbers are counted, not estimated, in bounded memory: the map of keys, and about twice as much
for the counts of its keys. If the keys do not fit, the log is read once more for each part of them.

Thread-safety: pure functions over the log as it is at the call.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kafkalog._core.offset_map import ELSEWHERE, OffsetMap
from kafkalog.cleaner.decoded_chunks import ChunkReader, DecodedChunk
from kafkalog.cleaner.dry_run import collect_keys, estimate_keys
from kafkalog.cleaner.grouping import parts_for
from kafkalog.cleaner.log_to_clean import LogToClean, log_to_clean
from kafkalog.cleaner.offset_map_buffer import OffsetMapBuffer
from kafkalog.cleaner.plan_model import (
    CompactionBound,
    SegmentState,
    begin_of,
    bounds_of,
    state_of,
)
from kafkalog.cleaner.transactions import TransactionTracker
from kafkalog.layout import CONTROL_MASK, DELETE_HORIZON_MASK, MAGIC_V2
from kafkalog.log.log import Log
from kafkalog.manager_config import CleanerConfig
from kafkalog.model import TopicPartition

__all__ = ["KeySurvey", "LogSurvey", "SegmentSurvey", "TombstoneSurvey", "survey_log"]

# Keys that wait to be added to those counted before.
_WAITING_KEYS: Final = 1 << 18
# Approximate bytes of a record without key and value, in format v2.
_RECORD_BYTES: Final = 8

_Longs = NDArray[np.int64]
_Floats = NDArray[np.float64]
_Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class SegmentSurvey:
    """
    A segment.

    Attributes:
        base_offset: base offset of the segment; `state`: its state for the next cleaning.
        size_bytes, dead_bytes: size of its batches, and of its dead records.
        records, dead_records: numbers of records.
        tombstones: tombstones that are the latest of their keys and still retained.
        first_timestamp_ms, largest_timestamp_ms: of its first batch, and of all; -1 for none.
    """

    base_offset: int
    state: SegmentState
    size_bytes: int
    dead_bytes: int
    records: int
    dead_records: int
    tombstones: int
    first_timestamp_ms: int
    largest_timestamp_ms: int

    @property
    def live_bytes(self) -> int:
        """Size after a compaction."""
        return self.size_bytes - self.dead_bytes


@dataclass(frozen=True, slots=True)
class TombstoneSurvey:
    """
    Tombstones that are the latest of their keys and still retained.

    Attributes:
        count: number of tombstones.
        until_ms: time from which a cleaning removes them; None for tombstones that no cleaning has
            found yet: `delete.retention.ms` after the first that does.
    """

    count: int
    until_ms: int | None


@dataclass(frozen=True, slots=True)
class KeySurvey:
    """
    A key.

    Attributes:
        key: the key.
        records, bytes: number and size of its records.
        latest_offset: offset of its last record.
    """

    key: bytes
    records: int
    bytes: int
    latest_offset: int


@dataclass(frozen=True, slots=True)
class LogSurvey:
    """
    A log.

    Attributes:
        topic_partition: name of the log.
        now_ms: the time of the survey.
        log_start_offset, log_end_offset, last_stable_offset: offsets of the log.
        is_compacted: whether its settings include compact, or a cleaner checkpoint exists; only
            then records without a key are dead.
        begins, ends: bounds of the next cleaning, as in a plan.
        segments: from the oldest to the active one.
        tombstones: by the end of their retention.
        keys: number of different keys.
        records_without_key: number of records without a key.
        biggest_by_records, biggest_by_bytes: keys, the biggest first.
        passes: number of passes over the log that the memory for keys required.
    """

    topic_partition: TopicPartition
    now_ms: int
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    is_compacted: bool
    begins: CompactionBound
    ends: tuple[CompactionBound, ...]
    segments: tuple[SegmentSurvey, ...]
    tombstones: tuple[TombstoneSurvey, ...]
    keys: int
    records_without_key: int
    biggest_by_records: tuple[KeySurvey, ...]
    biggest_by_bytes: tuple[KeySurvey, ...]
    passes: int

    @property
    def size_bytes(self) -> int:
        """Size of all segments."""
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def dead_bytes(self) -> int:
        """Bytes that a compaction of all stable offsets would free."""
        return sum(segment.dead_bytes for segment in self.segments)

    @property
    def records(self) -> int:
        """Number of records of all segments."""
        return sum(segment.records for segment in self.segments)

    @property
    def dead_records(self) -> int:
        """Number of records that a compaction of all stable offsets would remove."""
        return sum(segment.dead_records for segment in self.segments)

    def as_dict(self) -> dict[str, Any]:
        """Return the survey as plain values; keys in base 16."""
        shown = asdict(self) | {"topic_partition": str(self.topic_partition)}
        for name in ("biggest_by_records", "biggest_by_bytes"):
            for key in shown[name]:
                key["key"] = key["key"].hex()
        return shown


@dataclass(slots=True)
class _SegmentCounts:
    """Counts of one segment during a survey."""

    dead_bytes: float = 0.0
    records: int = 0
    dead_records: int = 0
    tombstones: int = 0

    def add_records(self, count: int) -> None:
        """Count records, dead or live."""
        self.records += count

    def add_dead(self, count: int, size: float) -> None:
        """Count records that compaction would remove, and their share of their batches."""
        self.dead_records += count
        self.dead_bytes += size

    def add_tombstones(self, count: int) -> None:
        """Count tombstones whose time is not over."""
        self.tombstones += count


def survey_log(
    log: Log,
    *,
    config: CleanerConfig | None = None,
    checkpoint: int | None = None,
    memory_bytes: int | None = None,
    now_ms: int | None = None,
    top: int = 10,
    on_progress: Callable[[int, int], object] | None = None,
) -> LogSurvey:
    """
    Survey a log.

    Args:
        log: an open log, read-only or not; it is only read.
        config, checkpoint, memory_bytes, now_ms, on_progress: as for `plan_compaction`.
        top: number of biggest keys to return.

    Raises:
        CorruptRecordError: a batch is damaged.
        LogStorageError: the disk failed.
    """
    target = log_to_clean(log, checkpoint=checkpoint, now_ms=now_ms)
    map_buffer = OffsetMapBuffer(config or CleanerConfig(), memory_bytes)
    return _Surveyor(target, map_buffer, top, on_progress).survey()


class _Surveyor:
    """
    Surveyor of one log; used once, by one thread.

    Args:
        target: the log.
        map_buffer: memory for the keys.
        top: number of biggest keys.
        on_progress: as for `survey_log`.
    """

    def __init__(
        self,
        target: LogToClean,
        map_buffer: OffsetMapBuffer,
        top: int,
        on_progress: Callable[[int, int], object] | None,
    ) -> None:
        self._target = target
        self._map_buffer = map_buffer
        self._top = top
        self._on_progress = on_progress
        facts = target.facts
        self._start = facts.segments[0].base_offset
        self._stable = facts.last_stable_offset
        self._first_dirty = target.span().first_dirty
        self._is_compacted = target.config.is_compacted or target.checkpoint is not None
        self._counts = [_SegmentCounts() for _ in facts.segments]
        self._waiting: Counter[int | None] = Counter()
        self._key_count = 0
        self._keyless = 0
        self._by_records: list[tuple[int, int, int]] = []
        self._by_bytes: list[tuple[int, int, int]] = []
        self._passes = 0
        self._size = sum(segment.size_bytes for segment in facts.segments)
        self._done_bytes = 0
        self._total_bytes = 0

    def survey(self) -> LogSurvey:
        """Read the log once for each part of the keys."""
        waiting = deque([(0, 1)])
        while waiting:
            part, part_count = waiting.popleft()
            self._total_bytes = 2 * (self._passes + 1 + len(waiting)) * self._size
            if not self._add_part(part, part_count):
                waiting.extendleft(reversed(self._divided(part, part_count)))
        return self._build()

    def _divided(self, part: int, part_count: int) -> list[tuple[int, int]]:
        """Divide a part of the keys that does not fit into parts that may."""
        if part_count > 1:
            return [(2 * part, 2 * part_count), (2 * part + 1, 2 * part_count)]
        estimate = estimate_keys(self._target, self._start, self._stable, self._map_buffer)
        part_count = max(2, parts_for(estimate, self._map_buffer.new_map().usable))
        return [(each, part_count) for each in range(part_count)]

    def _report(self, size: int) -> None:
        self._done_bytes += size
        if self._on_progress is not None:
            self._on_progress(self._done_bytes, max(self._total_bytes, self._done_bytes))

    def _add_part(self, part: int, part_count: int) -> bool:
        """Count one part of the keys; return whether they fit the memory."""
        target = self._target
        offset_map = self._map_buffer.new_map(part=part, part_count=part_count)
        _, _, is_whole = collect_keys(target, self._start, self._stable, offset_map, self._report)
        if not is_whole:
            return False
        tracker = target.tracker(self._start, self._stable)
        reader = ChunkReader(target.config.decompressed_max_bytes)
        counters = _KeyCounters()
        for slot in target.slots_between(self._start, target.facts.log_end_offset):
            for run in target.runs(slot):
                for chunk in reader.chunks(run):
                    self._add(
                        slot, chunk, offset_map, tracker, counters, is_first=self._passes == 0
                    )
                self._report(len(run.data))
        self._passes += 1
        self._key_count += len(offset_map)
        self._by_records = _largest(self._by_records, counters.biggest(1, self._top), 1, self._top)
        self._by_bytes = _largest(self._by_bytes, counters.biggest(2, self._top), 2, self._top)
        return True

    def _add(
        self,
        slot: int,
        chunk: DecodedChunk,
        offset_map: OffsetMap,
        tracker: TransactionTracker,
        counters: _KeyCounters,
        *,
        is_first: bool,
    ) -> None:
        """Count the records of a chunk; with the first part also records that enter no map."""
        columns, counts = chunk.columns, self._counts[slot]
        row_counts = np.diff(chunk.first_rows)
        is_keyed = columns.key_size >= 0
        is_dead = np.zeros(len(columns), np.bool_)
        unjudged = (columns.offset >= self._stable) | np.repeat(
            chunk.has_bits(CONTROL_MASK), row_counts
        )
        for batch, is_control, is_gone in tracker.judge(chunk):
            rows = slice(int(chunk.first_rows[batch]), int(chunk.first_rows[batch + 1]))
            if is_gone and not is_control:
                unjudged[rows] = True
                is_dead[rows] = is_first
        if is_first:
            counts.add_records(len(columns))
            self._keyless += int(np.count_nonzero(~is_keyed & ~unjudged))
            if self._is_compacted:
                is_dead |= ~is_keyed & ~unjudged
        found = np.empty(len(columns), np.int64)
        offset_map.get_run(chunk.data, columns.key_position, columns.key_size, found)
        is_judged = is_keyed & ~unjudged & (found != ELSEWHERE)
        is_superseded = is_judged & (found > columns.offset)
        is_dead |= is_superseded
        is_tombstone = is_judged & ~is_superseded & (columns.value_size < 0)
        if is_tombstone.any():
            is_dead |= self._expired(slot, chunk, is_tombstone)
        sizes = _record_bytes(chunk, row_counts)
        counts.add_dead(int(np.count_nonzero(is_dead)), float(sizes[is_dead].sum()))
        counters.add(found[is_judged], sizes[is_judged])

    def _expired(self, slot: int, chunk: DecodedChunk, is_tombstone: _Flags) -> _Flags:
        """Return the tombstones that a cleaning would remove; count others by their horizon."""
        target = self._target
        is_expired = np.zeros(len(is_tombstone), np.bool_)
        has_horizon = chunk.has_bits(DELETE_HORIZON_MASK)
        horizons, is_old = chunk.header("base_timestamp"), chunk.magic < MAGIC_V2
        found = chunk.counts(is_tombstone)
        for batch in np.flatnonzero(found).tolist():
            until: int | None = None
            if is_old[batch]:
                until = target.modified_ms[slot] + target.config.delete_retention_ms
                is_over = not target.old_tombstones_stay(slot, self._first_dirty)
            else:
                is_over = bool(has_horizon[batch]) and int(horizons[batch]) <= target.now_ms
                until = int(horizons[batch]) if has_horizon[batch] else None
            if is_over:
                rows = slice(int(chunk.first_rows[batch]), int(chunk.first_rows[batch + 1]))
                is_expired[rows] = is_tombstone[rows]
            else:
                self._waiting[until] += int(found[batch])
                self._counts[slot].add_tombstones(int(found[batch]))
        return is_expired

    # ---- the result ----

    def _build(self) -> LogSurvey:
        target, facts = self._target, self._target.facts
        span = target.span()
        boundary = target.boundary(span)
        segments = tuple(
            SegmentSurvey(
                base_offset=segment.base_offset,
                state=state_of(target, slot, span.first_dirty, boundary),
                size_bytes=segment.size_bytes,
                dead_bytes=min(segment.size_bytes, round(counts.dead_bytes)),
                records=counts.records,
                dead_records=counts.dead_records,
                tombstones=counts.tombstones,
                first_timestamp_ms=segment.first_timestamp_ms,
                largest_timestamp_ms=segment.largest_timestamp_ms,
            )
            for slot, (segment, counts) in enumerate(zip(facts.segments, self._counts, strict=True))
        )
        waiting = sorted(self._waiting.items(), key=lambda each: (each[0] is None, each[0] or 0))
        return LogSurvey(
            topic_partition=target.topic_partition,
            now_ms=target.now_ms,
            log_start_offset=facts.log_start_offset,
            log_end_offset=facts.log_end_offset,
            last_stable_offset=facts.last_stable_offset,
            is_compacted=self._is_compacted,
            begins=begin_of(target, span),
            ends=tuple(bounds_of(target, span)),
            segments=segments,
            tombstones=tuple(TombstoneSurvey(count, until) for until, count in waiting),
            keys=self._key_count,
            records_without_key=self._keyless,
            biggest_by_records=tuple(self._named(self._by_records)),
            biggest_by_bytes=tuple(self._named(self._by_bytes)),
            passes=self._passes,
        )

    def _named(self, found: list[tuple[int, int, int]]) -> Iterator[KeySurvey]:
        """Yield the biggest keys, which are read from the log."""
        for offset, records, size in found:
            yield KeySurvey(self._target.key_at(offset) or b"", records, size, offset)


@dataclass(slots=True)
class _KeyCounters:
    """Counts of records and bytes by key; a key is identified by its latest offset."""

    offsets: _Longs = field(default_factory=lambda: np.empty(0, np.int64))
    records: _Longs = field(default_factory=lambda: np.empty(0, np.int64))
    bytes: _Floats = field(default_factory=lambda: np.empty(0, np.float64))
    _fresh: list[tuple[_Longs, _Longs, _Floats]] = field(default_factory=list)
    _fresh_count: int = 0

    def add(self, offsets: _Longs, sizes: _Floats) -> None:
        """Count records of these keys."""
        unique, places = np.unique(offsets, return_inverse=True)
        self._fresh.append(
            (
                unique,
                np.bincount(places, minlength=len(unique)).astype(np.int64),
                _sums(places, sizes, len(unique)),
            )
        )
        self._fresh_count += len(unique)
        if self._fresh_count > max(_WAITING_KEYS, len(self.offsets)):
            self._finish_key()

    def _finish_key(self) -> None:
        parts = [(self.offsets, self.records, self.bytes), *self._fresh]
        offsets, records, sizes = (
            np.concatenate([part[number] for part in parts]) for number in range(3)
        )
        self.offsets, places = np.unique(offsets, return_inverse=True)
        count = len(self.offsets)
        self.records = _sums(places, records, count).astype(np.int64)
        self.bytes = _sums(places, sizes, count)
        self._fresh, self._fresh_count = [], 0

    def biggest(self, by: int, top: int) -> list[tuple[int, int, int]]:
        """Return (latest offset, records, bytes) of the biggest keys by column 1 or 2."""
        self._finish_key()
        columns = (self.offsets, self.records, np.rint(self.bytes).astype(np.int64))
        # Of two keys of one size the later comes first, so that results are repeatable.
        order = np.lexsort((self.offsets, columns[by]))[::-1][:top]
        return [
            (int(offset), int(records), int(size))
            for offset, records, size in zip(*(column[order] for column in columns), strict=True)
        ]


def _sums(places: NDArray[np.intp], weights: _Longs | _Floats, count: int) -> _Floats:
    """Return the sum of the weights of each place."""
    return np.bincount(places, weights=weights, minlength=count).astype(np.float64, copy=False)


def _largest(
    previous: list[tuple[int, int, int]], fresh: list[tuple[int, int, int]], by: int, top: int
) -> list[tuple[int, int, int]]:
    """Return the biggest of both."""
    return sorted((*previous, *fresh), key=lambda each: (each[by], each[0]), reverse=True)[:top]


def _record_bytes(chunk: DecodedChunk, row_counts: _Longs) -> _Floats:
    """Return each record's share of its batch."""
    columns = chunk.columns
    weights = np.maximum(columns.key_size, 0).astype(np.float64)
    weights += np.maximum(columns.value_size, 0)
    weights += _RECORD_BYTES
    sums = np.concatenate(([0.0], np.cumsum(weights)))
    totals = np.diff(sums[chunk.first_rows])
    scales = np.divide(
        chunk.header("size_bytes"), totals, out=np.zeros(len(totals)), where=totals > 0
    )
    shares: _Floats = weights * np.repeat(scales, row_counts)
    return shares
