"""Plans and explanations as text: lines and a table.

Thread-safety: pure functions except for the console.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from kafkalog.cleaner.plan_model import CompactionPlan, SegmentPlan, moment_text
from kafkalog.cli.printing import make_table, percent, print_line, print_table

__all__ = ["show_plan"]

_SECOND_MS = 1000
_REASONS = {
    "superseded": "superseded",
    "tombstones_expired": "expired tombstones",
    "aborted_dropped": "aborted",
    "control_dropped": "markers",
    "keyless_dropped": "without a key",
}


def show_plan(console: Console, plan: CompactionPlan) -> None:
    """Show what a cleaning would do, and why."""
    print_line(
        console,
        f"{plan.topic_partition}, offsets {plan.log_start_offset:,}..{plan.log_end_offset:,},"
        f" at {moment_text(plan.now_ms)}",
    )
    for label, text in _lines(plan):
        print_line(console, f"  {label:<7} {text}")
    table = make_table(
        ("", "segment", "state"), ("group", "bytes", "after", "less", "records", "after")
    )
    for segment in plan.segments:
        table.add_row("", *_cells(segment))
    print_table(console, table)


def _lines(plan: CompactionPlan) -> Iterator[tuple[str, str]]:
    yield "from", f"{plan.begins.offset:,}: {plan.begins.text}"
    bound = plan.ends[0]
    until = "" if bound.until_ms is None else f", until {moment_text(bound.until_ms)}"
    yield "to", f"{plan.end_offset:,}: {bound.text}{until}"
    yield "due", _due(plan)
    yield "goes", _goes(plan)
    yield "bytes", _bytes(plan)
    yield "keys", _keys(plan)
    yield "time", f"about {_duration(plan.duration_ms)}, as both passes took here, not writing"
    for waiting in plan.waiting:
        yield "waits", f"{waiting.count:,} {waiting.kind} until {moment_text(waiting.until_ms)}"


def _duration(time_ms: int) -> str:
    return f"{time_ms} ms" if time_ms < _SECOND_MS else f"{time_ms / _SECOND_MS:,.1f} s"


def _due(plan: CompactionPlan) -> str:
    is_more = "above" if plan.dirty_ratio > plan.min_dirty_ratio else "not above"
    text = f"dirty ratio {plan.dirty_ratio:.3f} is {is_more} {plan.min_dirty_ratio:g}"
    latest = "" if plan.due_ms is None else f"at the latest on {moment_text(plan.due_ms)}"
    if plan.must_be_cleaned:
        return f"yes: it has been since {moment_text(plan.due_ms or 0)} (max.compaction.lag.ms)"
    if plan.is_due:
        return f"yes: {text}"
    return f"no: {text}" + (f"; {latest}" if latest else "")


def _goes(plan: CompactionPlan) -> str:
    found = plan.statistics
    counts = found.as_dict()
    reasons = [f"{counts[name]:,} {what}" for name, what in _REASONS.items() if counts[name]]
    gone = found.records_read - found.records_kept
    why = f": {', '.join(reasons)}" if reasons else ""
    return f"{gone:,} of {found.records_read:,} records{why}"


def _bytes(plan: CompactionPlan) -> str:
    if not plan.groups:
        return "nothing is rewritten"
    before, after = plan.statistics.bytes_read, plan.statistics.bytes_written
    rewritten = sum(segment.group is not None for segment in plan.segments)
    return (
        f"{before:,} become {after:,} ({percent(before - after, before)} less),"
        f" in {len(plan.groups)} segments instead of {rewritten}"
    )


def _keys(plan: CompactionPlan) -> str:
    about = "about " if plan.keys_are_estimate else ""
    text = f"{about}{plan.keys:,} in the dirty part"
    if plan.passes == 1:
        return f"{text}; {plan.bytes_for_one_pass:,} of {plan.memory_bytes:,} bytes for the map"
    return (
        f"{text}: {plan.passes} passes with {plan.memory_bytes:,} bytes for the map, one with"
        f" {plan.bytes_for_one_pass:,}"
    )


def _cells(segment: SegmentPlan) -> list[str]:
    saved = segment.bytes_before - segment.bytes_after
    before, after = segment.records_before, segment.records_after
    return [
        str(segment.base_offset),
        segment.state,
        "-" if segment.group is None else str(segment.group),
        f"{segment.bytes_before:,}",
        f"{segment.bytes_after:,}",
        percent(saved, segment.bytes_before),
        "-" if before is None else f"{before:,}",
        "-" if after is None else f"{after:,}",
    ]
