"""Conversion of a whole log into a new directory: in format v2, or with another codec.

Offsets, timestamps, keys, values and headers are kept, and so are the bounds of segments, unless
one grows beyond `segment.bytes`. The source is read and never written; no other process should
write it during the conversion, which reads the log as it was when it was opened.

    records below the log start offset      left out, except those in the batch with that offset
    leader-epoch-checkpoint                 kept; batches made of old messages have no epoch (-1)
    producer snapshots, transaction index   kept: they refer to offsets, and those stay
    partition.metadata                      kept
    time of last modification of segments   kept
    indexes                                 rebuilt
    recovery point                          the end of the log: everything is on the disk
    files `.broken`, `.deleted`, ...        left out

With damage the conversion is refused, and nothing is left on the disk. With on_corrupt="skip"
corrupt ranges, and old batches whose records cannot be read, are left out and reported; batches of
v2 that cannot be read are copied unchanged. The end offset stays: missing records leave a hole.

Crash points: see `new_directory`.

Thread-safety: pure functions over the disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from typing_extensions import Buffer

from kafkalog.errors import KafkaLogError, LogCleaningAbortedError, NotALogError
from kafkalog.files.directories import segment_files
from kafkalog.files.names import FileState
from kafkalog.log.conversion.builder import SegmentsBuilder
from kafkalog.log.conversion.digest import RecordDigest, ensure_equal
from kafkalog.log.conversion.outcome import (
    ConversionProgress,
    LogConversion,
    SegmentConversion,
    SkippedBytes,
    corrupt_range_as_skipped,
    tail_as_skipped,
)
from kafkalog.log.conversion.plan import ConversionPlan
from kafkalog.log.conversion.small_files import copy_partition_files
from kafkalog.log.conversion.source import SegmentSource, segment_runs, sources
from kafkalog.log.log import Log, partition_of
from kafkalog.log.partition_paths import find_partition_paths
from kafkalog.log.segment_types import make_context
from kafkalog.log.segment_writer import SEGMENT_BYTES_MAX
from kafkalog.records.conversion.conversion_units import ConversionUnit, FileRecords
from kafkalog.records.conversion.convert import convert_runs
from kafkalog.records.conversion.report import ConversionReport
from kafkalog.state.commit_journal import ensure_applied

__all__ = ["convert_partition", "modified_ms", "refuse_damage", "segment_bytes_for"]


def convert_partition(plan: ConversionPlan, source: Path, directory: Path) -> LogConversion:
    """Convert one log into `directory`, which must be empty; the caller writes checkpoints."""
    started = plan.clock.monotonic_ms()
    _refuse_unfinished(plan, source)
    with plan.open_read_only(source) as log:
        if plan.on_corrupt == "raise":
            refuse_damage(log)
        work = _Work(plan, log, directory)
        bases = work.convert()
        odd = copy_partition_files(
            plan.filesystem, source, directory, bases, on_corrupt=plan.on_corrupt
        )
        left_out = work.left_out(odd)
        if plan.verify:
            work.verify()
        snapshot = work.snapshot
        return LogConversion(
            source=source,
            target=directory,
            report=work.report,
            segments=tuple(work.segments),
            segment_count=len(bases),
            source_bytes=work.source_bytes,
            result_bytes=work.report.result_bytes,
            log_start_offset=snapshot.start_offset,
            log_end_offset=snapshot.end_offset,
            left_out=left_out,
            verified=plan.verify,
            duration_ms=plan.clock.monotonic_ms() - started,
        )


def refuse_damage(log: Log) -> None:
    """Raise CorruptRecordError for damaged bytes that opening the log has found."""
    for corrupt_range in log.corrupt_ranges():
        if corrupt_range.size_bytes and corrupt_range.next_offset > log.log_start_offset:
            raise corrupt_range.to_error()


def modified_ms(plan: ConversionPlan, path: Path) -> int:
    """Return the time of last modification of a segment file."""
    facts = plan.filesystem.stat(path)
    return plan.clock.now_ms() if facts is None else facts.modified_ms


def segment_bytes_for(plan: ConversionPlan, largest: int) -> int:
    """Return the size of segments: a present segment is not split because of a setting."""
    return max(plan.config.segment_bytes, min(largest, SEGMENT_BYTES_MAX))


class _Work:
    """State of one conversion."""

    def __init__(self, plan: ConversionPlan, log: Log, directory: Path) -> None:
        self.plan = plan
        self.log = log
        self.directory = directory
        # One snapshot of the log for all passes, also while its writer continues.
        self.snapshot = partition_of(log).view.snapshot()
        self.sources = sources(self.snapshot)
        self.source_bytes = sum(
            self.snapshot.read_bound(slot).end for slot in range(len(self.snapshot.segments))
        )
        self.report = ConversionReport()
        self.segments: list[SegmentConversion] = []
        self._refused: list[SkippedBytes] = []
        self._done_bytes = 0

    def convert(self) -> list[int]:
        """Write the new log; return the base offsets of its segments."""
        plan = self.plan
        largest = max(source.segment.size_bytes for source in self.sources)
        config = replace(plan.config, segment_bytes=segment_bytes_for(plan, largest))
        context = make_context(plan.filesystem, self.directory, config, plan.clock)
        first = self.sources[0].segment
        builder = SegmentsBuilder(context, first.base_offset, modified_ms(plan, first.path))
        try:
            for source in self.sources:
                self._segment(builder, source)
            if builder.next_offset < self.snapshot.end_offset:
                # Offsets that were left out at the end must not be used again.
                builder.begin_segment(self.snapshot.end_offset, plan.clock.now_ms())
            return builder.finish()
        except BaseException:
            builder.abandon()
            raise

    def verify(self) -> None:
        """
        Read the new log, and compare its digest with that of the source.

        Raises:
            CorruptRecordError: they differ.
        """
        plan = self.plan
        limit_bytes = plan.options.limit_bytes
        lost = {(left.path, left.position) for left in self._refused if not left.kept}
        ours = RecordDigest(limit_bytes, lost)
        self._done_bytes = 0
        for source in self.sources:
            ours.update(self._with_progress(source, "verifying"))
        theirs = RecordDigest(limit_bytes)
        with plan.open_read_only(self.directory) as log:
            made = partition_of(log).view.snapshot()
            for source in sources(made):
                theirs.update(segment_runs(source, "raise"))
        ensure_equal(ours, theirs, self.log.directory)
        if made.end_offset != self.snapshot.end_offset:
            raise AssertionError(
                f"the log made ends at {made.end_offset}, its source at {self.snapshot.end_offset}"
            )

    def left_out(self, odd: list[SkippedBytes]) -> tuple[SkippedBytes, ...]:
        """Return the unconvertible bytes, in order; `odd` are those of small files."""
        start, end = self.snapshot.start_offset, self.snapshot.end_offset
        found = [
            corrupt_range_as_skipped(one)
            for one in self.log.corrupt_ranges()
            if one.next_offset > start
        ]
        found += [tail_as_skipped(tail, end) for tail in self.log.recovery_report.cut]
        found += [*self._refused, *odd]
        return tuple(sorted(found, key=lambda left: (left.path, left.position)))

    def _segment(self, builder: SegmentsBuilder, source: SegmentSource) -> None:
        segment = source.segment
        builder.begin_segment(segment.base_offset, modified_ms(self.plan, segment.path))
        report = ConversionReport()
        for batch in convert_runs(
            self._with_progress(source, "converting"),
            self.plan.options,
            report=report,
            check_crc=False,
            on_refused=self._refuse if self.plan.on_corrupt == "skip" else None,
        ):
            builder.add(batch)
        self.report.add(report)
        self.segments.append(
            SegmentConversion(
                segment.base_offset,
                source.bound.end,
                report.result_bytes,
                was_converted=report.records_converted > 0,
            )
        )

    def _with_progress(self, source: SegmentSource, stage: str) -> Iterator[FileRecords]:
        """Yield the batches of a segment, and report the progress."""
        before = source.bound.end
        on_progress, directory, total = self.plan.on_progress, self.log.directory, self.source_bytes
        for run in segment_runs(source, self.plan.on_corrupt):
            yield run
            done = self._done_bytes + run.position + len(run.data)
            on_progress(ConversionProgress(directory, stage, done, total))
        self._done_bytes += before

    def _refuse(
        self, run: FileRecords, unit: ConversionUnit, error: KafkaLogError
    ) -> Buffer | None:
        """Record a whole batch that cannot be read; a batch of v2 is copied unchanged."""
        kept = unit.magic == self.plan.options.magic
        first = error.base_offset
        self._refused.append(
            SkippedBytes(
                path=Path(run.path or ""),
                position=run.position + unit.start,
                size_bytes=unit.end - unit.start,
                first_offset=-1 if first is None else first,
                next_offset=-1 if first is None else first + 1,
                reason=str(error),
                kept=kept,
            )
        )
        return run.data[unit.start : unit.end] if kept else None


def _refuse_unfinished(plan: ConversionPlan, source: Path) -> None:
    """Refuse a log whose segments a compaction was exchanging, or whose last records it lacks."""
    facts = plan.filesystem.stat(source)
    if facts is None or not facts.is_directory:
        raise NotALogError(f"partition directory not found: {source}", path=source)
    paths = find_partition_paths(plan.filesystem, source)
    if not paths.is_standalone:
        ensure_applied(plan.filesystem, paths.state_directory)
    found = segment_files(plan.filesystem, source)
    swaps = [name for name in found if name.state is FileState.SWAP]
    if swaps:
        raise LogCleaningAbortedError(
            f"{source} holds segments that a compaction was swapping in ({len(swaps)} files .swap):"
            " open the log for writing once, which completes that",
            path=source,
        )
