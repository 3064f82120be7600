"""A survey as tables.

Thread-safety: pure functions except for the console.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from kafkalog.cleaner.plan_model import moment_text
from kafkalog.cleaner.survey import KeySurvey, LogSurvey, SegmentSurvey
from kafkalog.cli.printing import make_table, percent, print_line, print_table
from kafkalog.cli.stat.keys import key_text

__all__ = ["headline", "range_line", "segment_cells", "show_survey", "tombstone_lines"]


def headline(survey: LogSurvey) -> str:
    """Return the main facts of a log in a line."""
    return (
        f"{survey.topic_partition}: offsets {survey.log_start_offset:,}..{survey.log_end_offset:,},"
        f" {survey.size_bytes:,} bytes in {len(survey.segments)} segments,"
        f" {survey.records:,} records of {survey.keys:,} keys"
    )


def range_line(survey: LogSurvey) -> str:
    """Return the range that the next cleaning would clean, and why."""
    begins, end = survey.begins, survey.ends[0]
    kind = "" if survey.is_compacted else "not compacted by the known settings; "
    return (
        f"{kind}dirty from {begins.offset:,} ({begins.text}), held from {end.offset:,} ({end.text})"
    )


def tombstone_lines(survey: LogSurvey) -> list[str]:
    """Return the number of tombstones that wait, and until when."""
    return [
        f"{each.count:,} tombstones that no cleaning has seen yet"
        if each.until_ms is None
        else f"{each.count:,} tombstones until {moment_text(each.until_ms)}"
        for each in survey.tombstones
    ]


def show_survey(console: Console, survey: LogSurvey, *, hide_keys: bool) -> None:
    """Show a log: what is live and dead in its segments, tombstones, and its biggest keys."""
    print_line(console, headline(survey))
    print_line(console, f"  {range_line(survey)}")
    dead = percent(survey.dead_bytes, survey.size_bytes)
    print_line(
        console,
        f"  dead: {survey.dead_bytes:,} bytes ({dead}), {survey.dead_records:,} records",
    )
    for line in tombstone_lines(survey):
        print_line(console, f"  {line}")
    if survey.records_without_key:
        print_line(console, f"  {survey.records_without_key:,} records without a key")
    table = make_table(
        ("", "segment", "state"), ("bytes", "live", "dead", "", "records", "dead", "tombstones")
    )
    for segment in survey.segments:
        table.add_row("", *segment_cells(segment))
    print_table(console, table)
    _show_keys(console, "records", survey.biggest_by_records, hide_keys=hide_keys)
    _show_keys(console, "bytes", survey.biggest_by_bytes, hide_keys=hide_keys)


def segment_cells(segment: SegmentSurvey) -> list[str]:
    """Return a segment's line in a table: name and state, then numbers."""
    return [
        str(segment.base_offset),
        segment.state,
        f"{segment.size_bytes:,}",
        f"{segment.live_bytes:,}",
        f"{segment.dead_bytes:,}",
        percent(segment.dead_bytes, segment.size_bytes),
        f"{segment.records:,}",
        f"{segment.dead_records:,}",
        f"{segment.tombstones:,}",
    ]


def _show_keys(console: Console, what: str, keys: Sequence[KeySurvey], *, hide_keys: bool) -> None:
    if not keys:
        return
    table = make_table(("", f"biggest keys by {what}"), ("records", "bytes", "latest offset"))
    for each in keys:
        table.add_row(
            "",
            Text(key_text(each.key, hidden=hide_keys)),
            f"{each.records:,}",
            f"{each.bytes:,}",
            str(each.latest_offset),
        )
    print_table(console, table)
