"""`plan_compaction`: the effect of a cleaning of a log, found by a dry run.

Both passes run over the log without writing (`dry_run`), so the numbers are those of the cleaning,
not estimates. A plan takes about as long as the cleaning without its writes. It changes nothing,
and works for a log that another process writes.

Thread-safety: pure functions over the log as it is at the call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from kafkalog.cleaner.cleaning_result import CleaningStatistics
from kafkalog.cleaner.dry_run import FirstPass, SecondPass, first_pass, second_pass
from kafkalog.cleaner.grouping import group_segments, map_bytes_for
from kafkalog.cleaner.log_to_clean import LogToClean, log_to_clean
from kafkalog.cleaner.offset_map_buffer import OffsetMapBuffer
from kafkalog.cleaner.plan_model import (
    BoundKind,
    CompactionBound,
    CompactionPlan,
    SegmentPlan,
    WaitingRecords,
    begin_of,
    bounds_of,
    due_ms_of,
    state_of,
)
from kafkalog.log.log import Log
from kafkalog.manager_config import CleanerConfig

__all__ = ["plan_compaction"]

_NANOSECONDS_PER_MS: Final = 1e6

Progress = Callable[[int, int], object]


def plan_compaction(
    log: Log,
    *,
    include_active: bool = False,
    config: CleanerConfig | None = None,
    checkpoint: int | None = None,
    memory_bytes: int | None = None,
    now_ms: int | None = None,
    on_progress: Progress | None = None,
    timer: Callable[[], int] = time.perf_counter_ns,
) -> CompactionPlan:
    """
    Return the plan of a cleaning of a log, without changes to the log.

    Args:
        log: an open log, read-only or not, with any `cleanup.policy`.
        include_active: plan as if the active segment had been rolled first.
        config: settings of compaction; Kafka's if None.
        checkpoint: first dirty offset; the one in the checkpoint file if None.
        memory_bytes: size of the offset map; by default the share of one thread by the settings.
        now_ms: the time; that of the clock if None.
        on_progress: called with the bytes read so far, and all bytes.
        timer: nanoseconds of a clock that only rises.

    Raises:
        CorruptRecordError: a batch of the range is damaged; a cleaning would end there, too.
        LogStorageError: the disk failed.
    """
    target = log_to_clean(log, include_active=include_active, checkpoint=checkpoint, now_ms=now_ms)
    map_buffer = OffsetMapBuffer(config or CleanerConfig(), memory_bytes)
    return _Planner(target, map_buffer, on_progress).plan(timer)


class _Planner:
    """
    Planner of one log; used once.

    Args:
        target: the log.
        map_buffer: memory for the keys.
        on_progress: as for `plan_compaction`.
    """

    def __init__(
        self, target: LogToClean, map_buffer: OffsetMapBuffer, on_progress: Progress | None
    ) -> None:
        self._target = target
        self._map_buffer = map_buffer
        self._on_progress = on_progress
        self._span = target.span()
        self._boundary = target.boundary(self._span)
        self._start = target.facts.segments[0].base_offset
        self._done_bytes = 0
        segments = target.facts.segments
        self._total_bytes = sum(
            segments[slot].size_bytes
            for start in (self._span.first_dirty, self._start)
            for slot in target.slots_between(start, self._boundary)
        )

    def plan(self, timer: Callable[[], int]) -> CompactionPlan:
        """Run both passes and return the plan."""
        target, span, map_buffer = self._target, self._span, self._map_buffer
        started = timer()
        first = first_pass(target, span.first_dirty, self._boundary, map_buffer, self._report)
        if span.first_dirty < self._boundary:
            second = second_pass(target, first, span, self._report)
        else:
            # A cleaning without a dirty part does not change the clean part.
            second = SecondPass(CleaningStatistics())
        elapsed_ms = (timer() - started) / _NANOSECONDS_PER_MS
        candidate = target.candidate()
        end_offset = max(first.end_offset, span.first_dirty)
        segments = self._segments(second, first.end_offset)
        return CompactionPlan(
            topic_partition=target.topic_partition,
            now_ms=target.now_ms,
            log_start_offset=target.facts.log_start_offset,
            log_end_offset=target.facts.log_end_offset,
            begins=begin_of(target, span),
            ends=tuple(self._ends(first)),
            end_offset=end_offset,
            clean_bytes=candidate.clean_bytes,
            cleanable_bytes=candidate.cleanable_bytes,
            dirty_ratio=candidate.dirty_ratio,
            min_dirty_ratio=candidate.min_dirty_ratio,
            must_be_cleaned=candidate.must_be_cleaned,
            is_due=candidate.is_due,
            due_ms=due_ms_of(target, span),
            statistics=second.statistics,
            segments=segments,
            groups=_groups_of(segments),
            keys=first.key_count,
            keys_are_estimate=first.is_estimate,
            memory_bytes=len(map_buffer.memory),
            bytes_for_one_pass=map_bytes_for(
                first.key_count, map_buffer.config.io_buffer_load_factor
            ),
            passes=len(first.parts),
            waiting=tuple(self._waiting(second)),
            duration_ms=round(max(elapsed_ms, self._throttled_ms(first, second))),
        )

    def _throttled_ms(self, first: FirstPass, second: SecondPass) -> float:
        """Return the time that the throttle allows for both passes and the writes."""
        found = second.statistics
        moved_bytes = first.bytes_read + found.bytes_read + found.bytes_written
        return (
            moved_bytes * 1000 * len(first.parts) / self._map_buffer.config.io_max_bytes_per_second
        )

    def _waiting(self, second: SecondPass) -> Iterator[WaitingRecords]:
        target = self._target
        for slot, count in second.old_tombstones.items():
            until = target.modified_ms[slot] + target.config.delete_retention_ms
            yield WaitingRecords("old tombstones", count, until)
        for kind, counts in (("tombstones", second.tombstones), ("markers", second.markers)):
            for until, count in sorted(counts.items()):
                if count:
                    yield WaitingRecords(kind, count, until)

    def _report(self, size: int) -> None:
        self._done_bytes += size
        if self._on_progress is not None:
            self._on_progress(self._done_bytes, max(self._total_bytes, self._done_bytes))

    def _ends(self, first: FirstPass) -> list[CompactionBound]:
        bounds = bounds_of(self._target, self._span)
        if first.end_offset < self._boundary:
            text = (
                f"the map of keys holds {first.usable:,} of about {first.key_count:,}: later"
                " records wait for the next cleaning"
            )
            bounds.insert(0, CompactionBound(BoundKind.MEMORY, first.end_offset, text))
        return bounds

    def _segments(self, second: SecondPass, end_offset: int) -> tuple[SegmentPlan, ...]:
        target = self._target
        rewritten = [target.facts.segments[slot] for slot in second.segments]
        groups = group_segments(
            rewritten,
            segment_bytes=target.config.segment_bytes,
            index_bytes=target.config.segment_index_bytes,
            end_offset=self._boundary,
        )
        group_of = {
            segment.base_offset: number for number, group in enumerate(groups) for segment in group
        }
        planned = []
        for slot, segment in enumerate(target.facts.segments):
            state = state_of(target, slot, self._span.first_dirty, end_offset)
            outcome = second.segments.get(slot)
            planned.append(
                SegmentPlan(
                    base_offset=segment.base_offset,
                    state=state,
                    group=group_of.get(segment.base_offset),
                    bytes_before=segment.size_bytes,
                    bytes_after=segment.size_bytes if outcome is None else outcome[1],
                    records_before=None if outcome is None else outcome[0],
                    records_after=None if outcome is None else outcome[2],
                )
            )
        return tuple(planned)


def _groups_of(segments: Sequence[SegmentPlan]) -> tuple[SegmentPlan, ...]:
    """Add up the segments of each group."""
    groups: dict[int, list[SegmentPlan]] = {}
    for segment in segments:
        if segment.group is not None:
            groups.setdefault(segment.group, []).append(segment)
    return tuple(
        SegmentPlan(
            base_offset=members[0].base_offset,
            state=members[-1].state,
            group=number,
            bytes_before=sum(each.bytes_before for each in members),
            bytes_after=sum(each.bytes_after for each in members),
            records_before=sum(each.records_before or 0 for each in members),
            records_after=sum(each.records_after or 0 for each in members),
        )
        for number, members in groups.items()
    )
