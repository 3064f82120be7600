"""Conversion of a log in its directory, segment by segment: to format v2, or another codec.

The log is opened for writing: locked, and recovered first. Its active segment is rolled if there is
something to convert in it. Then, for one segment after the other:

  1. new ones are built of it under names `.cleaned`, and synced;
  2. they are read, and their digest of records is compared with that of the old one;
  3. they replace it (`kafkalog.log.replacement`).

At every moment the log is whole: some of its segments are converted, the others are not yet. Crash
points: in 1 and 2, `.cleaned` files are left, which the next opening removes; in 3 the next opening
finishes or undoes it. A repeated conversion continues where it ended: converted segments are
skipped.

The disk must have space for one more segment. Checkpoints, leader epochs and producer snapshots
stay unchanged: they refer to offsets. Entries of a transaction index follow their marker if a
segment is split. Segments below the log start are not converted.

Damage ends the conversion; converted segments stay converted. With on_corrupt="skip" a segment that
cannot be read whole, or whose transaction index is damaged, stays unchanged and is reported: bytes
without another copy are never removed.

Thread-safety: pure functions over the disk.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from kafkalog._core.batch import BatchColumns
from kafkalog.errors import (
    CorruptIndexError,
    CorruptRecordError,
    InvalidRecordError,
    KafkaLogError,
    NotALogError,
)
from kafkalog.files.atomic_files import write_synced
from kafkalog.files.directories import segment_files
from kafkalog.files.errors import storage_errors
from kafkalog.files.names import MAX_OFFSET, FileState
from kafkalog.layout import CODEC_MASK
from kafkalog.log.batch_walk import CrcCheck, WalkRange, walk_source
from kafkalog.log.cleaner_access import cleaner_access
from kafkalog.log.conversion.builder import SegmentsBuilder, open_built
from kafkalog.log.conversion.digest import RecordDigest, ensure_equal
from kafkalog.log.conversion.outcome import (
    ConversionProgress,
    LogConversion,
    SegmentConversion,
    SkippedBytes,
    corrupt_range_as_skipped,
    tail_as_skipped,
)
from kafkalog.log.conversion.partition import modified_ms, refuse_damage, segment_bytes_for
from kafkalog.log.conversion.plan import ConversionPlan
from kafkalog.log.conversion.small_files import split_transaction_index
from kafkalog.log.conversion.source import SegmentSource, segment_runs, sources
from kafkalog.log.log import Log, partition_of
from kafkalog.log.opening import open_log
from kafkalog.log.replacement import remove_cleaned
from kafkalog.log.segment_types import SegmentContext, make_context
from kafkalog.log.startup_cleanup import live_bases
from kafkalog.records.conversion.conversion_units import FileRecords
from kafkalog.records.conversion.convert import codec_name, convert_runs
from kafkalog.records.conversion.options import ConversionOptions
from kafkalog.records.conversion.report import ConversionReport
from kafkalog.scheduler import ScheduledTask

__all__ = ["convert_partition_in_place"]

_CHUNK_BATCHES: Final = 4096


def convert_partition_in_place(plan: ConversionPlan, source: Path) -> LogConversion:
    """Convert the log in `source` in its directory."""
    with storage_errors(source, doing="converting"):
        return _convert(plan, source)


def _convert(plan: ConversionPlan, source: Path) -> LogConversion:
    started = plan.clock.monotonic_ms()
    facts = plan.filesystem.stat(source)
    if facts is None or not facts.is_directory or not live_bases(plan.filesystem, source):
        # Opened for writing, a log would be made of it.
        raise NotALogError(f"{source} holds no segment", path=source)
    with open_log(
        source,
        config=plan.config,
        clock=plan.clock,
        scheduler=_NoBackgroundScheduler(),
        filesystem=plan.filesystem,
    ) as log:
        if plan.on_corrupt == "raise":
            refuse_damage(log)
        work = _Work(plan, log, started)
        try:
            work.convert()
        except BaseException:
            plan.on_done(work.outcome(is_complete=False))
            raise
        outcome = work.outcome(is_complete=True)
    plan.on_done(outcome)
    return outcome


class _NoBackgroundScheduler:
    """Scheduler for a caller that runs all tasks in the foreground."""

    def schedule(
        self,
        name: str,
        task: Callable[[], object],
        *,
        delay_ms: int,  # noqa: ARG002 - for nothing is run
        period_ms: int | None = None,
    ) -> ScheduledTask:
        """Return a task that never runs."""
        return ScheduledTask(name, task, period_ms)


class _Work:
    """State of one conversion."""

    def __init__(self, plan: ConversionPlan, log: Log, started_ms: int) -> None:
        self.plan = plan
        self.log = log
        self._started_ms = started_ms
        self.report = ConversionReport()
        self.segments: list[SegmentConversion] = []
        self.source_bytes = sum(segment.size_bytes for segment in log.segments())
        self._kept: list[SkippedBytes] = []
        self._done_bytes = 0

    def convert(self) -> None:
        """Convert every segment that is not in the target format."""
        found = sources(partition_of(self.log).view.snapshot())
        if copied_unchanged(found[-1], self.plan.options) is None:
            # Only sealed segments are exchanged. Everything is on the disk before the first is.
            self.log.roll()
            self.log.flush()
        # Only names: references to the segments would keep the space of the removed ones.
        bases = [source.segment.base_offset for source in found]
        del found
        for base in bases:
            self._segment(self._source(base))

    def outcome(self, *, is_complete: bool) -> LogConversion:
        """Return what was done so far."""
        directory, snapshot = self.log.directory, partition_of(self.log).view.snapshot()
        return LogConversion(
            source=directory,
            target=directory,
            report=self.report,
            segments=tuple(self.segments),
            segment_count=len(snapshot.segments),
            source_bytes=self.source_bytes,
            result_bytes=sum(segment.size_bytes for segment in snapshot.segments.segments),
            log_start_offset=snapshot.start_offset,
            log_end_offset=snapshot.end_offset,
            left_out=self._left_out(),
            verified=True,
            duration_ms=self.plan.clock.monotonic_ms() - self._started_ms,
            is_complete=is_complete,
        )

    def _left_out(self) -> tuple[SkippedBytes, ...]:
        """Return what could not be converted, and what is damaged, in order."""
        paths = {left.path for left in self._kept}
        found = [
            replace(corrupt_range_as_skipped(corrupt_range), kept=True)
            for corrupt_range in self.log.corrupt_ranges()
            if corrupt_range.next_offset > self.log.log_start_offset
            and corrupt_range.path not in paths
        ]
        end = self.log.log_end_offset
        found += [tail_as_skipped(tail, end) for tail in self.log.recovery_report.cut]
        return tuple(sorted(found + self._kept, key=lambda left: (left.path, left.position)))

    def _source(self, base_offset: int) -> SegmentSource:
        snapshot = partition_of(self.log).view.snapshot()
        slot = snapshot.segments.floor_slot(base_offset)
        segment = snapshot.segments.segments[slot]
        return SegmentSource(segment, snapshot.read_bound(slot), segment.base_offset)

    def _segment(self, source: SegmentSource) -> None:
        segment, bound, _ = source
        report = copied_unchanged(source, self.plan.options)
        result_bytes = bound.end
        if report is None:
            report = ConversionReport()
            try:
                self._exchange(source, report)
                result_bytes = report.result_bytes
            except (CorruptRecordError, InvalidRecordError, CorruptIndexError) as error:
                if self.plan.on_corrupt == "raise":
                    raise
                report = ConversionReport()
                self._kept.append(_kept_whole(source, error))
        self.report.add(report)
        self.segments.append(
            SegmentConversion(
                segment.base_offset,
                bound.end,
                result_bytes,
                was_converted=report.records_converted > 0,
            )
        )
        self._done_bytes += bound.end

    def _exchange(self, source: SegmentSource, report: ConversionReport) -> None:
        """Make new segments of one, and put them in its place."""
        plan, segment = self.plan, source.segment
        config = replace(plan.config, segment_bytes=segment_bytes_for(plan, segment.size_bytes))
        context = make_context(
            plan.filesystem, self.log.directory, config, plan.clock, state=FileState.CLEANED
        )
        try:
            bases = self._build(context, source, report)
            if bases:
                self._copy_transactions(context, segment.base_offset, bases)
                self._verify(context, source, bases)
        except BaseException:
            with contextlib.suppress(OSError):
                _remove_cleaned(context)
            raise
        if bases:
            cleaner_access(self.log).replace_segments([segment], bases, leaves_offsets_out=False)
        else:
            _remove_cleaned(context)

    def _build(
        self, context: SegmentContext, source: SegmentSource, report: ConversionReport
    ) -> list[int]:
        """Return the base offsets of what was built; none where nothing would change."""
        segment = source.segment
        builder = SegmentsBuilder(
            context, segment.base_offset, modified_ms(self.plan, segment.path)
        )
        try:
            runs = self._with_progress(source, "converting")
            for batch in convert_runs(runs, self.plan.options, report=report, check_crc=False):
                builder.add(batch)
            if report.records_converted:
                return builder.finish()
        except BaseException:
            builder.abandon()
            raise
        builder.abandon()
        return []

    def _copy_transactions(
        self, context: SegmentContext, base_offset: int, bases: Sequence[int]
    ) -> None:
        live = replace(context, state=FileState.LIVE).files(base_offset)
        contents = split_transaction_index(context.filesystem, live, bases)
        for base, content in contents.items():
            write_synced(context.filesystem, context.files(base).transaction_index, content)

    def _verify(self, context: SegmentContext, source: SegmentSource, bases: Sequence[int]) -> None:
        """Hold the digest of what was built against that of the segment it was built of."""
        limit_bytes = self.plan.options.limit_bytes
        ours, theirs = RecordDigest(limit_bytes), RecordDigest(limit_bytes)
        ours.update(self._with_progress(source, "verifying"))
        built = open_built(context, bases, source.bound.following_offset)
        for one in sources(built):
            theirs.update(segment_runs(one, "raise"))
        for segment in built.segments.segments:
            segment.close()
        ensure_equal(ours, theirs, source.segment.path)

    def _with_progress(self, source: SegmentSource, stage: str) -> Iterator[FileRecords]:
        """Yield the batches of a segment, and report the progress."""
        for run in segment_runs(source, "raise"):
            yield run
            done = self._done_bytes + run.position + len(run.data)
            self.plan.on_progress(
                ConversionProgress(self.log.directory, stage, done, self.source_bytes)
            )


def copied_unchanged(source: SegmentSource, options: ConversionOptions) -> ConversionReport | None:
    """Return the report on a segment of batches in the target format, None for any other one."""
    report, end = ConversionReport(), source.bound.end
    columns = BatchColumns(_CHUNK_BATCHES)
    position = 0
    for walked in walk_source(
        source.segment.file.source(end),
        WalkRange(0, end, 0, MAX_OFFSET),
        columns,
        check_crc=CrcCheck.NEVER,
        on_damage=lambda _damage: None,
    ):
        position, count = walked.end_position, walked.count
        codecs = columns.attributes[:count] & CODEC_MASK
        keep_mask = columns.magic[:count] == options.magic
        if options.codec is not None:
            keep_mask &= (codecs == options.codec) & (options.level is None)
        if not keep_mask.all():
            return None
        for codec, batches in enumerate(np.bincount(codecs).tolist()):
            if batches:
                size = int(columns.size_bytes[:count][codecs == codec].sum())
                report.add_source(codec_name(codec), size, batches)
                report.add_result(codec_name(codec), size)
        report.add_copied(count)
    return report if position == end else None


def _kept_whole(source: SegmentSource, error: KafkaLogError) -> SkippedBytes:
    segment, bound, _ = source
    return SkippedBytes(
        segment.path,
        0,
        bound.end,
        segment.base_offset,
        bound.following_offset,
        str(error),
        kept=True,
    )


def _remove_cleaned(context: SegmentContext) -> None:
    names = segment_files(context.filesystem, context.directory)
    bases = {name.base_offset for name in names if name.state is FileState.CLEANED}
    remove_cleaned(context, bases)
