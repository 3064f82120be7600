"""Conversions and estimates as tables for people and as dictionaries for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from kafkalog.cli.printing import make_table, percent, print_line, print_table
from kafkalog.log.conversion.data_directory import DirectoryConversion
from kafkalog.log.conversion.estimate import CodecEstimate, LogEstimate
from kafkalog.log.conversion.outcome import LogConversion, SegmentConversion, SkippedBytes
from kafkalog.records.conversion.report import ConversionReport

__all__ = ["conversion_as_dict", "estimate_as_dict", "show_conversions", "show_estimate"]


def conversion_as_dict(log: LogConversion) -> dict[str, Any]:
    """Return one conversion as plain values."""
    return {
        "source": str(log.source),
        "target": str(log.target),
        "log_start_offset": log.log_start_offset,
        "log_end_offset": log.log_end_offset,
        "source_bytes": log.source_bytes,
        "result_bytes": log.result_bytes,
        "saved_bytes": log.saved_bytes,
        "segment_count": log.segment_count,
        "segments": [
            {
                "base_offset": segment.base_offset,
                "source_bytes": segment.source_bytes,
                "result_bytes": segment.result_bytes,
                "converted": segment.was_converted,
            }
            for segment in log.segments
        ],
        "verified": log.verified,
        "complete": log.is_complete,
        "duration_ms": log.duration_ms,
        "report": log.report.as_dict(),
        "left_out": [_skipped_as_dict(left) for left in log.left_out],
    }


def estimate_as_dict(found: LogEstimate) -> dict[str, Any]:
    """Return one estimate as plain values."""
    return {
        "log_bytes": found.log_bytes,
        "sampled_bytes": found.sampled_bytes,
        "samples": found.sample_count,
        "codecs": {
            estimate.codec.kafka_name: {
                "level": estimate.level,
                "ratio": None if estimate.problem else round(found.ratio(estimate), 4),
                "expected_bytes": None if estimate.problem else found.expected_bytes(estimate),
                "compress_bytes_per_s": round(estimate.compress_bytes_per_s),
                "decompress_bytes_per_s": round(estimate.decompress_bytes_per_s),
                "problem": estimate.problem,
            }
            for estimate in found.codecs
        },
    }


def show_conversions(
    console: Console, made: DirectoryConversion, not_done: Sequence[str] = ()
) -> None:
    """Show a line for each log, what was left out, sizes by segment and codec, and the sum."""
    logs = made.logs
    counts = ("offsets", "records converted", "copied batches")
    table = make_table(("partition",), (*counts, "before", "after", "saved", "verified"))
    for log in logs:
        table.add_row(
            log.source.name,
            f"{log.log_start_offset:,}..{log.log_end_offset:,}",
            f"{log.report.records_converted:,}",
            f"{log.report.batches_copied:,}",
            f"{log.source_bytes:,}",
            f"{log.result_bytes:,}",
            percent(log.saved_bytes, log.source_bytes),
            _verified(log),
        )
    print_table(console, table)
    for log in logs:
        for left in log.left_out:
            print_line(console, _left_out_line(left))
        if not log.is_complete:
            count = sum(segment.was_converted for segment in log.segments)
            name = log.source.name
            print_line(console, f"stopped in {name}: {count} of its segments are converted")
    for name in made.left_out:
        print_line(console, f"left out: {name}, which is not a live partition")
    if not_done:
        print_line(console, f"not done: {', '.join(not_done)}")
    if made.copied:
        print_line(console, f"copied as they are: {', '.join(made.copied)}")
    if len(logs) == 1 and len(logs[0].segments) > 1:
        print_table(console, _segment_table(logs[0].segments))
    if any(log.report.result_bytes_by_codec for log in logs):
        print_table(console, _codec_table(logs))
    before = sum(log.source_bytes for log in logs)
    after = sum(log.result_bytes for log in logs)
    share = percent(before - after, before)
    print_line(
        console, f"{before:,} bytes before, {after:,} after: {before - after:,} saved ({share})"
    )


def _verified(log: LogConversion) -> str:
    """Return the text of the comparison; there is none if the first segment was damaged."""
    if not log.is_complete and not any(segment.was_converted for segment in log.segments):
        return "-"
    return "yes" if log.verified else "no"


def _segment_table(segments: Sequence[SegmentConversion]) -> Table:
    table = make_table((), ("segment", "before", "after", "saved"))
    for segment in segments:
        saved = segment.source_bytes - segment.result_bytes
        table.add_row(
            f"{segment.base_offset:,}",
            f"{segment.source_bytes:,}",
            f"{segment.result_bytes:,}" if segment.was_converted else "as it was",
            percent(saved, segment.source_bytes),
        )
    return table


def _codec_table(logs: Sequence[LogConversion]) -> Table:
    total = ConversionReport()
    for log in logs:
        total.add(log.report)
    table = make_table(("codec",), ("bytes before", "bytes after"))
    before, after = total.source_bytes_by_codec, total.result_bytes_by_codec
    for name in sorted(before.keys() | after.keys()):
        table.add_row(name, f"{before[name]:,}", f"{after[name]:,}")
    return table


def show_estimate(console: Console, estimates: Mapping[Path, LogEstimate]) -> None:
    """Show a table for each log: a line for each codec."""
    for path, found in estimates.items():
        print_line(
            console,
            f"{path.name}: {found.log_bytes:,} bytes,"
            f" {found.sampled_bytes:,} of them sampled in {found.sample_count} places",
        )
        titles = ("ratio", "expected bytes", "compress MB/s", "decompress MB/s")
        table = make_table(("codec",), titles)
        for estimate in found.codecs:
            table.add_row(*_estimate_cells(found, estimate))
        print_table(console, table)


def _estimate_cells(found: LogEstimate, estimate: CodecEstimate) -> list[str]:
    name = estimate.codec.kafka_name
    if estimate.level is not None:
        name = f"{name} level {estimate.level}"
    if estimate.problem is not None:
        return [name, "-", estimate.problem, "-", "-"]
    return [
        name,
        f"{found.ratio(estimate):.3f}",
        f"{found.expected_bytes(estimate):,}",
        _speed(estimate.compress_bytes_per_s),
        _speed(estimate.decompress_bytes_per_s),
    ]


def _speed(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e6:,.0f}" if bytes_per_s else "-"


def _left_out_line(left: SkippedBytes) -> str:
    what = "taken over as it is" if left.kept else "left out"
    offsets = (
        f", offsets {left.first_offset} to {left.next_offset - 1}"
        if 0 <= left.first_offset < left.next_offset
        else ""
    )
    where = f"{left.path} at {left.position}"
    return f"{what}: {left.size_bytes:,} bytes of {where}{offsets}: {left.reason}"


def _skipped_as_dict(left: SkippedBytes) -> dict[str, Any]:
    return {
        "path": str(left.path),
        "position": left.position,
        "size_bytes": left.size_bytes,
        "first_offset": left.first_offset,
        "next_offset": left.next_offset,
        "reason": left.reason,
        "kept": left.kept,
    }
