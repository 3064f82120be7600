"""`plan_compaction`: what a cleaning of a log would do now, found out by doing all but the writing.

Both passes are made over the log as it is (`dry_run`), so the numbers are those of the cleaning and
no guesses; that takes about as long as the cleaning does, less the writing. Nothing is changed, and
a log that another process writes may be asked about like one of one's own.

Thread-safety: pure functions over the log as it is at the call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from kafkalog.cleaner.dry_run import CountingFilter, FirstPass, KeyRoom, first_pass
from kafkalog.cleaner.grouping import group_segments, map_bytes_for, parts_for
from kafkalog.cleaner.plan_facts import (
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
from kafkalog.cleaner.subject import CleaningSubject, subject_of
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
    Find out what a cleaning of a log would do now.

    Args:
        log: open in any way, and whatever its `cleanup.policy`.
        include_active: as if the active segment had been rolled first.
        config: settings of compaction; Kafka's if None.
        checkpoint: first dirty offset; the one in the checkpoint file if None.
        memory_bytes: for the map of keys; what one thread has by the settings if None.
        now_ms: the time; the clock's if None.
        on_progress: called with the bytes gone through, and how many there are.
        timer: nanoseconds of a clock that only rises.

    Raises:
        CorruptRecordError: what would be cleaned is damaged; a cleaning would end there, too.
        LogStorageError: the disk failed.
    """
    subject = subject_of(log, include_active=include_active, checkpoint=checkpoint, now_ms=now_ms)
    room = KeyRoom(config or CleanerConfig(), memory_bytes)
    return _Planner(subject, room, on_progress).plan(timer)


@dataclass(slots=True)
class _Outcomes:
    """What stays of the segments, by slot: (records before, bytes after, records after)."""

    by_slot: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    waiting: list[WaitingRecords] = field(default_factory=list)


class _Planner:
    """
    The making of one plan.

    Args:
        subject: the log.
        room: memory for the keys.
        on_progress: as for `plan_compaction`.
    """

    def __init__(
        self, subject: CleaningSubject, room: KeyRoom, on_progress: Progress | None
    ) -> None:
        self._subject = subject
        self._room = room
        self._on_progress = on_progress
        self._span = subject.span()
        self._boundary = subject.boundary(self._span)
        self._start = subject.facts.segments[0].base_offset
        self._done_bytes = 0
        segments = subject.facts.segments
        self._total_bytes = sum(
            segments[slot].size_bytes
            for start in (self._span.first_dirty, self._start)
            for slot in subject.slots_between(start, self._boundary)
        )

    def plan(self, timer: Callable[[], int]) -> CompactionPlan:
        """Make both passes, and say what they would do."""
        subject, span = self._subject, self._span
        started = timer()
        first = first_pass(subject, span.first_dirty, self._boundary, self._room, self._tell)
        batch_filter = CountingFilter(
            first.offset_map,
            subject.rules(self._boundary),
            subject.tracker(self._start, self._boundary),
            limit_bytes=subject.config.decompressed_max_bytes,
        )
        outcomes = self._filter(batch_filter, first.end_offset)
        elapsed_ms = (timer() - started) / _NANOSECONDS_PER_MS
        statistics = batch_filter.statistics
        moved_bytes = first.bytes_read + statistics.bytes_read + statistics.bytes_written
        rate = self._room.config.io_max_bytes_per_second
        candidate = subject.candidate()
        segments = self._segments(outcomes, first.end_offset)
        usable = first.offset_map.usable
        return CompactionPlan(
            topic_partition=subject.topic_partition,
            now_ms=subject.now_ms,
            log_start_offset=subject.facts.log_start_offset,
            log_end_offset=subject.facts.log_end_offset,
            begins=begin_of(subject, span),
            ends=tuple(self._ends(first)),
            end_offset=first.end_offset,
            clean_bytes=candidate.clean_bytes,
            cleanable_bytes=candidate.cleanable_bytes,
            dirty_ratio=candidate.dirty_ratio,
            min_dirty_ratio=candidate.min_dirty_ratio,
            must_be_cleaned=candidate.must_be_cleaned,
            is_due=candidate.is_due,
            due_ms=due_ms_of(subject, span),
            statistics=statistics,
            segments=segments,
            groups=_groups_of(segments),
            keys=first.key_count,
            keys_are_estimate=first.is_estimate,
            memory_bytes=len(self._room.memory),
            bytes_for_one_pass=map_bytes_for(
                first.key_count, self._room.config.io_buffer_load_factor
            ),
            passes=parts_for(first.key_count, usable),
            waiting=tuple(outcomes.waiting),
            duration_ms=round(max(elapsed_ms, moved_bytes * 1000 / rate)),
        )

    def _tell(self, size: int) -> None:
        self._done_bytes += size
        if self._on_progress is not None:
            self._on_progress(self._done_bytes, max(self._total_bytes, self._done_bytes))

    def _ends(self, first: FirstPass) -> list[CompactionBound]:
        bounds = bounds_of(self._subject, self._span)
        if first.end_offset < self._boundary:
            text = (
                f"the map of keys takes {first.offset_map.usable:,} of about"
                f" {first.key_count:,}: what lies above waits for the next cleaning"
            )
            bounds.insert(0, CompactionBound(BoundKind.MEMORY, first.end_offset, text))
        return bounds

    def _filter(self, batch_filter: CountingFilter, end_offset: int) -> _Outcomes:
        """Let the filter decide about every segment up to an offset, and measure."""
        subject, statistics = self._subject, batch_filter.statistics
        first_dirty, retention_ms = self._span.first_dirty, subject.config.delete_retention_ms
        outcomes = _Outcomes()
        for slot in subject.slots_between(self._start, end_offset):
            before = (statistics.records_read, statistics.bytes_written, statistics.records_kept)
            old_before = batch_filter.old_tombstones
            stay = subject.old_tombstones_stay(slot, first_dirty)
            for run in subject.runs(slot):
                batch_filter.filter(run, old_tombstones_stay=stay)
                self._tell(len(run.data))
            records, written, kept = before
            outcomes.by_slot[slot] = (
                statistics.records_read - records,
                statistics.bytes_written - written,
                statistics.records_kept - kept,
            )
            if old := batch_filter.old_tombstones - old_before:
                until = subject.modified_ms[slot] + retention_ms
                outcomes.waiting.append(WaitingRecords("old tombstones", old, until))
        for kind, counts in (
            ("tombstones", batch_filter.horizons),
            ("markers", batch_filter.markers),
        ):
            outcomes.waiting += [
                WaitingRecords(kind, count, until) for until, count in sorted(counts.items())
            ]
        return outcomes

    def _segments(self, outcomes: _Outcomes, end_offset: int) -> tuple[SegmentPlan, ...]:
        subject = self._subject
        rewritten = [subject.facts.segments[slot] for slot in outcomes.by_slot]
        groups = group_segments(
            rewritten,
            segment_bytes=subject.config.segment_bytes,
            index_bytes=subject.config.segment_index_bytes,
            end_offset=self._boundary,
        )
        group_of = {
            segment.base_offset: number for number, group in enumerate(groups) for segment in group
        }
        planned = []
        for slot, segment in enumerate(subject.facts.segments):
            state = state_of(subject, slot, self._span.first_dirty, end_offset)
            outcome = outcomes.by_slot.get(slot)
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
